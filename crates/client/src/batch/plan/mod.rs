//! From arguments to a list of files: what goes where, with the rules of cp(1).
//!
//! - An existing directory as destination, or a name that ends in `/`, takes the sources under
//!   their own names; several sources need that.
//! - A directory needs `-r`; it becomes `DESTINATION/NAME` when the destination exists and
//!   `DESTINATION` when not.
//! - A pattern in the last component of a source stands for what it matches.
//!
//! Unfinished files of earlier copies (and their journals) that a tree or a pattern brings are left
//! out; one that is named itself is copied. Files that would be in each other's way refuse the whole
//! plan.

use proto::path::MAX_NAME;

use crate::answers::SourceFacts;
use crate::batch::BatchContext;
use crate::location::Location;
use crate::partial::is_unfinished;
use crate::tree::{DirectoryTree, check_name, check_sendable, join};
use crate::{CopyEvent, CopyFailure, Exit};

mod conflicts;
mod create;
mod expand;
mod paths;

pub(crate) use create::{make_directory, make_link, make_with_parents};
use expand::{FoundSource, expand};
pub(crate) use paths::same_place;
use paths::{inside, name_of};

/// One file to copy.
#[derive(Debug, Clone)]
pub(crate) struct PlannedFile {
    /// From.
    pub(crate) source: Location,
    /// To.
    pub(crate) destination: Location,
    /// What the source's listing said.
    pub(crate) facts: SourceFacts,
}

/// One symbolic link to be made.
#[derive(Debug, Clone)]
pub(crate) struct PlannedLink {
    /// The one that is copied.
    pub(crate) source: Location,
    /// Where.
    pub(crate) at: Location,
    /// Its target: a path relative to its directory.
    pub(crate) target: Vec<u8>,
}

/// Everything that a copy will do.
#[derive(Debug, Default)]
pub(crate) struct CopyPlan {
    /// Directories to make, parents first.
    pub(crate) directories: Vec<Location>,
    /// Files.
    pub(crate) items: Vec<PlannedFile>,
    /// Symbolic links to be made when the files are there.
    pub(crate) links: Vec<PlannedLink>,
    /// Left alone: source and reason.
    pub(crate) skipped: Vec<(String, String)>,
    /// Cannot be copied.
    pub(crate) failed: Vec<(String, CopyFailure)>,
}

/// What is at the destination.
enum PlannedDestination {
    /// Standard output.
    Pipe,
    /// A directory: sources go inside. `make`: it may not exist yet.
    Directory { at: Location, make: bool },
    /// A file or nothing.
    Name { at: Location, exists: bool },
}

/// Reads all sources and the destination; errors are about the request as a whole.
pub(crate) async fn plan(
    ctx: &BatchContext,
    sources: &[Location],
    destination: &Location,
) -> Result<CopyPlan, CopyFailure> {
    let mut plan = CopyPlan::default();
    let mut found = Vec::new();
    // Side by side: most often they are on different machines.
    let looking = async {
        for source in sources {
            match expand(ctx, source).await {
                Ok(more) => {
                    for one in more {
                        plan.sort_in(one, source, &mut found);
                    }
                }
                Err(failure) => plan.failed.push((source.display(), failure)),
            }
        }
        Ok(())
    };
    // Without a destination there is nothing to look for.
    let (destination, ()) = tokio::try_join!(destination_of(ctx, destination), looking)?;
    if sources.len() > 1 || found.len() > 1 {
        several_need_a_directory(&destination)?;
    }
    if let PlannedDestination::Directory { at, make: true } = &destination {
        plan.directories.push(at.clone());
    }
    for one in found {
        plan.add(ctx, one, &destination).await;
        ctx.observer.on_event(CopyEvent::Planned {
            files: plan.items.len() as u64,
            bytes: plan.items.iter().filter_map(|i| i.facts.size).sum(),
        });
    }
    conflicts::check(&plan)?;
    Ok(plan)
}

fn several_need_a_directory(destination: &PlannedDestination) -> Result<(), CopyFailure> {
    let at = match destination {
        PlannedDestination::Directory { .. } => return Ok(()),
        PlannedDestination::Pipe => "standard output".to_owned(),
        PlannedDestination::Name { at, .. } => at.display(),
    };
    Err(CopyFailure::new(
        Exit::Usage,
        format!("{at} is no directory, which several sources need; end it with / to make one"),
    ))
}

async fn destination_of(
    ctx: &BatchContext,
    at: &Location,
) -> Result<PlannedDestination, CopyFailure> {
    if *at == Location::StandardStreams {
        return Ok(PlannedDestination::Pipe);
    }
    let (id, path, at) = (at.storage_id(), at.path(), at.clone());
    let slash = path.ends_with(b"/");
    if path == b"/" {
        return Ok(PlannedDestination::Directory { at, make: false });
    }
    let path = paths::trimmed(path);
    let mut session = ctx.session_for(&id, Some(path)).await?;
    let there = session.stat(path).await;
    match there {
        Err(failure) if failure.transient => return Err(failure),
        _ => ctx.pool.give(&id, session),
    }
    Ok(match there {
        Ok(entry) if expand::is_directory(&entry) => {
            PlannedDestination::Directory { at, make: false }
        }
        // Whatever is said about a path that is not shown, a store may still work.
        _ if slash => PlannedDestination::Directory { at, make: true },
        there => PlannedDestination::Name {
            at,
            exists: there.is_ok(),
        },
    })
}

/// Why a file is left out that an earlier copy did not finish.
const UNFINISHED: &str = "unfinished file of an earlier copy, or its journal";

impl CopyPlan {
    /// Takes what `source` stands for, unless it is there already or unfinished and not named itself.
    fn sort_in(&mut self, one: FoundSource, source: &Location, found: &mut Vec<FoundSource>) {
        let unfinished = name_of(&one.at).is_some_and(|name| is_unfinished(&name));
        if unfinished && one.at != *source {
            self.skip(&one.at, UNFINISHED);
        } else if found.iter().any(|other| other.at == one.at) {
            self.skip(&one.at, "named twice");
        } else {
            found.push(one);
        }
    }

    fn skip(&mut self, source: &Location, why: &str) {
        self.skipped.push((source.display(), why.to_owned()));
    }

    /// Adds one source: a file, or with `-r` a tree.
    async fn add(
        &mut self,
        ctx: &BatchContext,
        found: FoundSource,
        destination: &PlannedDestination,
    ) {
        let shown = found.at.display();
        let added = if found.directory {
            self.add_tree(ctx, &found, destination).await
        } else {
            file_target(&found.at, destination)
                .and_then(|target| self.add_file(found.at, target, found.facts))
        };
        if let Err(failure) = added {
            self.failed.push((shown, failure));
        }
    }

    fn add_file(
        &mut self,
        source: Location,
        destination: Location,
        facts: SourceFacts,
    ) -> Result<(), CopyFailure> {
        if same_place(&source, &destination) {
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
            check_length(&destination)?;
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
        let shown = found.at.display();
        if !ctx.options.recursive {
            let message = format!("{shown} is a directory: use -r to copy it with its content");
            return Err(CopyFailure::new(Exit::Usage, message));
        }
        let top = tree_target(&found.at, destination)?;
        if inside(&found.at, &top) {
            let message = format!("cannot copy {shown} into itself ({})", top.display());
            return Err(CopyFailure::new(Exit::Usage, message));
        }
        let id = found.at.storage_id();
        let mut session = ctx.session(&id).await?;
        let path = paths::trimmed(found.at.path());
        let tree = DirectoryTree::below(&mut *session, path, ctx.options.links).await?;
        ctx.pool.give(&id, session);
        self.graft(&found.at, &top, tree);
        Ok(())
    }

    /// Turns a tree's relative paths into items below both tops.
    fn graft(&mut self, source: &Location, top: &Location, tree: DirectoryTree) {
        let at = |relative: &[u8]| below(source, relative).display();
        self.directories.push(top.clone());
        for directory in &tree.directories {
            self.directories.push(below(top, directory));
        }
        for (relative, facts) in tree.files {
            let (from, to) = (below(source, &relative), below(top, &relative));
            if name_of(&from).is_some_and(|name| is_unfinished(&name)) {
                self.skip(&from, UNFINISHED);
                continue;
            }
            let sendable = match &to {
                Location::Remote { path, .. } => check_sendable(path),
                _ => Ok(()),
            };
            let shown = from.display();
            if let Err(failure) = sendable.and_then(|()| self.add_file(from, to, facts)) {
                self.failed.push((shown, failure));
            }
        }
        self.links
            .extend(tree.links.iter().map(|(r, target)| PlannedLink {
                source: below(source, r),
                at: below(top, r),
                target: target.clone(),
            }));
        let skipped = tree.skipped.iter().map(|(r, why)| (at(r), why.clone()));
        self.skipped.extend(skipped);
        let failed = tree.failed.iter().map(|(r, why)| (at(r), why.clone()));
        self.failed.extend(failed);
    }
}

/// Refuses a name that no file system has room for, before its bytes are moved under another one.
/// Characters count: some servers' file systems do not count bytes.
fn check_length(destination: &Location) -> Result<(), CopyFailure> {
    let name = name_of(destination).unwrap_or_default();
    if String::from_utf8_lossy(&name).chars().count() <= MAX_NAME {
        return Ok(());
    }
    let message = format!(
        "{}: the name is longer than the {MAX_NAME} characters that file systems have room for",
        destination.display()
    );
    Err(CopyFailure::new(Exit::Usage, message))
}

/// Where a file goes.
fn file_target(
    source: &Location,
    destination: &PlannedDestination,
) -> Result<Location, CopyFailure> {
    match destination {
        PlannedDestination::Pipe => Ok(Location::StandardStreams),
        PlannedDestination::Name { at, .. } => Ok(at.clone()),
        PlannedDestination::Directory { at, .. } => {
            let name = name_of(source).ok_or_else(|| {
                let message = "standard input has no name: name the destination file";
                CopyFailure::new(Exit::Usage, message)
            })?;
            named(at, &name)
        }
    }
}

/// Where a directory's content goes.
fn tree_target(
    source: &Location,
    destination: &PlannedDestination,
) -> Result<Location, CopyFailure> {
    match destination {
        PlannedDestination::Pipe => Err(CopyFailure::new(
            Exit::Usage,
            "a directory cannot go to standard output",
        )),
        PlannedDestination::Name { at, exists: true } => Err(CopyFailure::new(
            Exit::Usage,
            format!("{} is a file: a directory cannot replace it", at.display()),
        )),
        PlannedDestination::Name { at, .. } => Ok(at.clone()),
        PlannedDestination::Directory { at, make: true } => Ok(at.clone()),
        PlannedDestination::Directory { at, .. } => match name_of(source) {
            // The root of a server, `.` and `..` have no name of their own: their content goes.
            None => Ok(at.clone()),
            Some(name) if check_name(&name).is_err() => Ok(at.clone()),
            Some(name) => named(at, &name),
        },
    }
}

fn named(directory: &Location, name: &[u8]) -> Result<Location, CopyFailure> {
    check_name(name)?;
    if matches!(directory, Location::Remote { .. }) {
        check_sendable(name)?;
    }
    Ok(below(directory, name))
}

/// A location below a directory.
pub(crate) fn below(top: &Location, relative: &[u8]) -> Location {
    match top {
        Location::StandardStreams => Location::StandardStreams,
        _ if relative.is_empty() => top.clone(),
        _ => top.with_path(join(top.path(), relative)),
    }
}

#[cfg(test)]
mod tests;
