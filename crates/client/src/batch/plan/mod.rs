//! Turns arguments into a list of files with their destinations, by the rules of cp(1).
//!
//! - If the destination is an existing directory, or ends in `/`, the sources keep their names
//!   below it. Several sources require this.
//! - A directory requires `-r`. It becomes `DESTINATION/NAME` if the destination exists, otherwise
//!   `DESTINATION`.
//! - A pattern in the last component of a source stands for all matching names.
//!
//! Unfinished files of earlier copies, and their journals, are skipped inside trees and patterns.
//! One that is named as a source is copied. A conflict between files refuses the whole plan.

use std::collections::HashSet;

use proto::path::MAX_NAME;

use crate::answers::SourceFacts;
use crate::batch::BatchContext;
use crate::location::Location;
use crate::partial::is_unfinished;
use crate::tree::{DirectoryTree, check_name, check_sendable, join_path};
use crate::{CopyEvent, CopyFailure, Exit};

mod conflicts;
mod create;
mod expand;
mod hard_links;
mod paths;

pub(crate) use conflicts::check_conflicts;
pub(crate) use create::{make_directories, make_link, make_with_parents};
pub(crate) use expand::is_directory;
use expand::{FoundSource, expand_source};
pub(crate) use hard_links::keep_hard_links;
pub(crate) use paths::{is_inside, is_same_file, last_component, trim_trailing_slashes};

/// One file to copy.
#[derive(Debug, Clone)]
pub(crate) struct PlannedFile {
    /// Source location.
    pub(crate) source: Location,
    /// Destination location.
    pub(crate) destination: Location,
    /// Facts of the source from its listing.
    pub(crate) facts: SourceFacts,
}

/// One symbolic link to create.
#[derive(Debug, Clone)]
pub(crate) struct PlannedLink {
    /// The link that is copied.
    pub(crate) source: Location,
    /// Path of the new link.
    pub(crate) path: Location,
    /// Target of the new link, relative to its directory.
    pub(crate) target: Vec<u8>,
}

/// A further name of a file that is copied.
#[derive(Debug, Clone)]
pub(crate) struct PlannedHardLink {
    /// The copy of this name alone.
    pub(crate) file: PlannedFile,
    /// The file at the destination.
    pub(crate) first: Location,
}

/// Everything that a copy will do.
#[derive(Debug, Default)]
pub(crate) struct CopyPlan {
    /// Directories to create, parents first.
    pub(crate) directories: Vec<Location>,
    /// Copied directories, with the facts of their sources.
    pub(crate) directory_facts: Vec<(Location, SourceFacts)>,
    /// Files to copy.
    pub(crate) items: Vec<PlannedFile>,
    /// Further names of files, which they get when they are written.
    pub(crate) hard_links: Vec<PlannedHardLink>,
    /// Symbolic links to create after the files are written.
    pub(crate) links: Vec<PlannedLink>,
    /// Skipped sources with the reason.
    pub(crate) skipped: Vec<(String, String)>,
    /// Sources that cannot be copied.
    pub(crate) failed: Vec<(String, CopyFailure)>,
}

/// Kind of destination.
enum PlannedDestination {
    /// Standard output.
    StandardOutput,
    /// A directory that will hold the sources. `make`: it may not exist yet.
    Directory { at: Location, make: bool },
    /// A file, or nothing yet.
    File { at: Location, exists: bool },
}

/// Examines all sources and the destination. Errors concern the request as a whole.
pub(crate) async fn make_plan(
    ctx: &BatchContext,
    sources: &[Location],
    destination: &Location,
) -> Result<CopyPlan, CopyFailure> {
    let mut plan = CopyPlan::default();
    let mut found = Vec::new();
    // Concurrently, because sources and destination are usually on different machines.
    let examine_sources = async {
        for source in sources {
            match expand_source(ctx, source).await {
                Ok(expanded) => {
                    for source_found in expanded {
                        plan.add_source(source_found, source, &mut found);
                    }
                }
                Err(failure) => plan.failed.push((source.display(), failure)),
            }
        }
        Ok(())
    };
    // A failing destination ends the search for sources.
    let (destination, ()) =
        tokio::try_join!(inspect_destination(ctx, destination), examine_sources)?;
    if sources.len() > 1 || found.len() > 1 {
        require_directory(&destination)?;
    }
    if let PlannedDestination::Directory { at, make: true } = &destination {
        plan.directories.push(at.clone());
    }
    for source_found in found {
        plan.plan_source(ctx, source_found, &destination).await;
        ctx.observer.on_event(CopyEvent::Planned {
            files: plan.items.len() as u64,
            bytes: plan.items.iter().filter_map(|i| i.facts.size).sum(),
        });
    }
    check_conflicts(&plan)?;
    Ok(plan)
}

fn require_directory(destination: &PlannedDestination) -> Result<(), CopyFailure> {
    let at = match destination {
        PlannedDestination::Directory { .. } => return Ok(()),
        PlannedDestination::StandardOutput => "standard output".to_owned(),
        PlannedDestination::File { at, .. } => at.display(),
    };
    Err(CopyFailure::new(
        Exit::Usage,
        format!(
            "{at} is not a directory, which several sources require; end it with / to create one"
        ),
    ))
}

async fn inspect_destination(
    ctx: &BatchContext,
    at: &Location,
) -> Result<PlannedDestination, CopyFailure> {
    if *at == Location::StandardStreams {
        return Ok(PlannedDestination::StandardOutput);
    }
    let (id, path, at) = (at.storage_id(), at.path(), at.clone());
    let ends_with_slash = path.ends_with(b"/");
    // The root always exists.
    if path == b"/" {
        return Ok(PlannedDestination::Directory { at, make: false });
    }
    let path = trim_trailing_slashes(path);
    let mut session = ctx.session_for_path(&id, Some(path)).await?;
    let result = session.stat(path).await;
    match result {
        Err(failure) if failure.transient => return Err(failure),
        _ => ctx.pool.release(&id, session),
    }
    Ok(match result {
        Ok(entry) if is_directory(&entry) => PlannedDestination::Directory { at, make: false },
        // A server may refuse to show a path that it would still accept in STOR.
        _ if ends_with_slash => PlannedDestination::Directory { at, make: true },
        result => PlannedDestination::File {
            at,
            exists: result.is_ok(),
        },
    })
}

/// Reason for skipping a partial file or journal.
const UNFINISHED: &str = "unfinished file of an earlier copy, or its journal";

impl CopyPlan {
    /// Adds what `source` stands for. Skips duplicates, and unfinished files unless they are named.
    fn add_source(
        &mut self,
        source_found: FoundSource,
        source: &Location,
        found: &mut Vec<FoundSource>,
    ) {
        let unfinished =
            last_component(&source_found.location).is_some_and(|name| is_unfinished(&name));
        if unfinished && source_found.location != *source {
            self.skip(&source_found.location, UNFINISHED);
        } else if found
            .iter()
            .any(|other| other.location == source_found.location)
        {
            self.skip(&source_found.location, "named twice");
        } else {
            found.push(source_found);
        }
    }

    fn skip(&mut self, source: &Location, reason: &str) {
        self.skipped.push((source.display(), reason.to_owned()));
    }

    /// Adds one source: a file, or with `-r` a tree.
    async fn plan_source(
        &mut self,
        ctx: &BatchContext,
        found: FoundSource,
        destination: &PlannedDestination,
    ) {
        let display_name = found.location.display();
        let added = if found.is_directory {
            self.add_tree(ctx, &found, destination).await
        } else {
            file_destination(&found.location, destination)
                .and_then(|target| self.add_file(found.location, target, found.facts))
        };
        if let Err(failure) = added {
            self.failed.push((display_name, failure));
        }
    }

    fn add_file(
        &mut self,
        source: Location,
        destination: Location,
        facts: SourceFacts,
    ) -> Result<(), CopyFailure> {
        if is_same_file(&source, &destination) {
            return Err(CopyFailure::new(
                Exit::Usage,
                format!(
                    "{} and {} are the same file",
                    source.display(),
                    destination.display()
                ),
            ));
        }
        if let Location::Remote { .. } = destination {
            // Local file systems report a name that is too long when the partial file is opened.
            check_name_length(&destination)?;
        }
        self.items.push(PlannedFile {
            source,
            destination,
            facts,
        });
        Ok(())
    }

    async fn add_tree(
        &mut self,
        ctx: &BatchContext,
        found: &FoundSource,
        destination: &PlannedDestination,
    ) -> Result<(), CopyFailure> {
        let display_name = found.location.display();
        if !ctx.options.recursive {
            let message =
                format!("{display_name} is a directory: use -r to copy it with its content");
            return Err(CopyFailure::new(Exit::Usage, message));
        }
        let top = tree_destination(&found.location, destination)?;
        // The walk would list the copies that it creates.
        if is_inside(&found.location, &top) {
            let message = format!("cannot copy {display_name} into itself ({})", top.display());
            return Err(CopyFailure::new(Exit::Usage, message));
        }
        let id = found.location.storage_id();
        let mut session = ctx.session(&id).await?;
        let path = trim_trailing_slashes(found.location.path());
        let mut tree = DirectoryTree::walk(&mut *session, path, ctx.options.symlinks).await?;
        tree.directory_facts.insert(Vec::new(), found.facts);
        ctx.pool.release(&id, session);
        let tree = keep_hard_links(ctx, (&found.location, &top), select(ctx, tree));
        self.add_tree_content(&found.location, &top, tree);
        Ok(())
    }

    /// Adds the content of a tree, with its relative paths placed below the source and destination
    /// tops.
    pub(super) fn add_tree_content(
        &mut self,
        source: &Location,
        top: &Location,
        tree: DirectoryTree,
    ) {
        let at = |relative: &[u8]| join_location(source, relative).display();
        self.directories.push(top.clone());
        for directory in &tree.directories {
            self.directories.push(join_location(top, directory));
        }
        let kept = tree.directory_facts.into_iter();
        self.directory_facts
            .extend(kept.map(|(relative, facts)| (join_location(top, &relative), facts)));
        for (relative, facts) in tree.files {
            let (from, to) = (
                join_location(source, &relative),
                join_location(top, &relative),
            );
            if last_component(&from).is_some_and(|name| is_unfinished(&name)) {
                self.skip(&from, UNFINISHED);
                continue;
            }
            let sendable = match &to {
                Location::Remote { path, .. } => check_sendable(path),
                _ => Ok(()),
            };
            let display_name = from.display();
            if let Err(failure) = sendable.and_then(|()| self.add_file(from, to, facts)) {
                self.failed.push((display_name, failure));
            }
        }
        let linked = tree.hard_links.into_iter().map(|link| PlannedHardLink {
            file: PlannedFile {
                source: join_location(source, &link.path),
                destination: join_location(top, &link.path),
                facts: link.facts,
            },
            first: join_location(top, &link.first),
        });
        self.hard_links.extend(linked);
        self.links
            .extend(tree.links.iter().map(|(r, target)| PlannedLink {
                source: join_location(source, r),
                path: join_location(top, r),
                target: target.clone(),
            }));
        let skipped = tree
            .skipped
            .iter()
            .map(|(r, reason)| (at(r), reason.clone()));
        self.skipped.extend(skipped);
        let failed = tree
            .failed
            .iter()
            .map(|(r, reason)| (at(r), reason.clone()));
        self.failed.extend(failed);
    }
}

/// The part of a tree that the user asked for. Directories that would be empty only for that are left out.
pub(super) fn select(ctx: &BatchContext, mut tree: DirectoryTree) -> DirectoryTree {
    let (selection, listed) = (&ctx.options.selection, &ctx.options.files_from);
    if selection.selects_all() && listed.is_none() {
        return tree;
    }
    if let Some(listed) = listed {
        let wanted: HashSet<&[u8]> = listed.iter().map(Vec::as_slice).collect();
        let is_wanted = |path: &[u8]| wanted.contains(path) || is_below_one_of(&wanted, path);
        tree.files.retain(|(path, _)| is_wanted(path));
        tree.links.retain(|(path, _)| is_wanted(path));
        tree.skipped.retain(|(path, _)| is_wanted(path));
        tree.add_missing(&wanted);
    }
    tree.files
        .retain(|(path, facts)| selection.selects(path, *facts));
    tree.links
        .retain(|(path, _)| selection.selects(path, SourceFacts::default()));
    tree.skipped
        .retain(|(path, _)| selection.selects(path, SourceFacts::default()));
    let needed: HashSet<&[u8]> = tree
        .files
        .iter()
        .map(|(path, _)| path)
        .chain(tree.links.iter().map(|(path, _)| path))
        .flat_map(|path| parents(path))
        .collect();
    tree.directories
        .retain(|directory| needed.contains(directory.as_slice()));
    tree.directory_facts
        .retain(|path, _| path.is_empty() || needed.contains(path.as_slice()));
    tree
}

/// The directories above a relative path.
pub(super) fn parents(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.map(|(at, _)| &path[..at])
}

fn is_below_one_of(directories: &HashSet<&[u8]>, path: &[u8]) -> bool {
    parents(path).any(|parent| directories.contains(parent))
}

/// Refuses a name that is too long for file systems before its bytes are moved under a shorter,
/// hashed name. The limit is in characters, because some servers' file systems do not count bytes.
fn check_name_length(destination: &Location) -> Result<(), CopyFailure> {
    let name = last_component(destination).unwrap_or_default();
    if String::from_utf8_lossy(&name).chars().count() <= MAX_NAME {
        return Ok(());
    }
    let message = format!(
        "{}: the name is longer than the {MAX_NAME} characters that file systems allow",
        destination.display()
    );
    Err(CopyFailure::new(Exit::Usage, message))
}

/// Destination of a file.
fn file_destination(
    source: &Location,
    destination: &PlannedDestination,
) -> Result<Location, CopyFailure> {
    match destination {
        PlannedDestination::StandardOutput => Ok(Location::StandardStreams),
        PlannedDestination::File { at, .. } => Ok(at.clone()),
        PlannedDestination::Directory { at, .. } => {
            let name = last_component(source).ok_or_else(|| {
                let message = "standard input has no name: name the destination file";
                CopyFailure::new(Exit::Usage, message)
            })?;
            join_checked_name(at, &name)
        }
    }
}

/// Destination of a directory's content.
fn tree_destination(
    source: &Location,
    destination: &PlannedDestination,
) -> Result<Location, CopyFailure> {
    match destination {
        PlannedDestination::StandardOutput => Err(CopyFailure::new(
            Exit::Usage,
            "a directory cannot go to standard output",
        )),
        PlannedDestination::File { at, exists: true } => Err(CopyFailure::new(
            Exit::Usage,
            format!("{} is a file: a directory cannot replace it", at.display()),
        )),
        PlannedDestination::File { at, .. } => Ok(at.clone()),
        PlannedDestination::Directory { at, make: true } => Ok(at.clone()),
        PlannedDestination::Directory { at, .. } => match last_component(source) {
            // A server root, `.` and `..` have no name of their own, so their content goes directly
            // into the destination.
            None => Ok(at.clone()),
            Some(name) if check_name(&name).is_err() => Ok(at.clone()),
            Some(name) => join_checked_name(at, &name),
        },
    }
}

fn join_checked_name(directory: &Location, name: &[u8]) -> Result<Location, CopyFailure> {
    check_name(name)?;
    if matches!(directory, Location::Remote { .. }) {
        check_sendable(name)?;
    }
    Ok(join_location(directory, name))
}

/// A location below a directory.
pub(crate) fn join_location(top: &Location, relative: &[u8]) -> Location {
    match top {
        Location::StandardStreams => Location::StandardStreams,
        _ if relative.is_empty() => top.clone(),
        _ => top.with_path(join_path(top.path(), relative)),
    }
}

#[cfg(test)]
mod tests;
