//! The ends of a copy: what each source argument stands for, and what the destination is.

use super::expand::{self, FoundSource, expand_source};
use super::paths::{is_inside, join_location, last_component, trim_trailing_slashes};
use crate::batch::BatchContext;
use crate::local::partial::is_unfinished;
use crate::storage::entry_names::{check_name, check_sendable};
use ftp::Failure;
use ftp::location::{Location, Scheme, StorageId};

/// Reason for skipping a partial file or journal.
pub(crate) const UNFINISHED: &str = "unfinished file of an earlier copy, or its journal";

/// Kind of destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PlannedDestination {
    /// Standard output.
    StandardOutput,
    /// A directory that will hold the sources. `make`: it may not exist yet.
    Directory { at: Location, make: bool },
    /// A file, or nothing yet.
    File { at: Location, exists: bool },
}

/// The sources that exist, and the destination.
#[derive(Debug)]
pub(crate) struct PlanOutline {
    pub(crate) destination: PlannedDestination,
    pub(crate) found: Vec<FoundSource>,
    /// Skipped sources with the reason.
    pub(crate) skipped: Vec<(Location, &'static str)>,
    /// Sources that cannot be copied.
    pub(crate) failed: Vec<(Location, Failure)>,
}

impl PlanOutline {
    /// Examines all sources and the destination. `noted`: the kind of destination that an earlier run of this copy noted; that run may
    /// have created it since, which changes nothing.
    ///
    /// # Errors
    /// The request as a whole is refused.
    pub(crate) async fn examine(
        ctx: &BatchContext,
        sources: &[Location],
        destination: &Location,
        noted: Option<u8>,
    ) -> Result<Self, Failure> {
        let mut outline = Self {
            destination: PlannedDestination::StandardOutput,
            found: Vec::new(),
            skipped: Vec::new(),
            failed: Vec::new(),
        };
        // A pattern may stand for more than what was found.
        let mut may_be_many = sources.len() > 1;
        // Concurrently, because sources and destination are usually on different machines.
        let examine_sources = async {
            for source in sources {
                match expand_source(ctx, source).await {
                    Ok(expanded) => {
                        may_be_many |= !expanded.failed.is_empty();
                        for found in expanded.found {
                            ctx.name_source(&found.location);
                            outline.add_source(found, source);
                        }
                        outline.skipped.extend(expanded.skipped);
                        outline.failed.extend(expanded.failed);
                    }
                    Err(failure) => outline.failed.push((source.clone(), failure)),
                }
            }
            Ok(())
        };
        let find_destination = async {
            match noted {
                Some(kind) => Ok(PlannedDestination::from_number(kind, destination)),
                None => inspect_destination(ctx, destination).await,
            }
        };
        // A failing destination ends the search for sources.
        let (destination, ()) = tokio::try_join!(find_destination, examine_sources)?;
        if may_be_many || outline.found.len() > 1 {
            require_directory(&destination)?;
        }
        outline.destination = destination;
        Ok(outline)
    }

    /// Adds what `source` stands for. Skips duplicates, and unfinished files unless they are named.
    fn add_source(&mut self, found: FoundSource, source: &Location) {
        let unfinished = last_component(&found.location).is_some_and(|name| is_unfinished(&name));
        if unfinished && found.location != *source {
            self.skipped.push((found.location, UNFINISHED));
        } else if self
            .found
            .iter()
            .any(|other| other.location == found.location)
        {
            self.skipped.push((found.location, "named twice"));
        } else {
            self.found.push(found);
        }
    }

    /// The kind of destination as a number of the batch journal.
    pub(crate) fn destination_number(&self) -> u8 {
        self.destination.number()
    }

    /// Whether there is a tree, or more than one source.
    pub(crate) fn is_many(&self) -> bool {
        self.found.len() > 1 || self.has_tree()
    }

    /// Whether a source is a directory.
    pub(crate) fn has_tree(&self) -> bool {
        self.found.iter().any(|found| found.is_directory)
    }

    /// The directory that will hold everything, if it may have to be made.
    pub(crate) fn root(&self) -> Option<Location> {
        match (&self.destination, self.found.as_slice()) {
            (PlannedDestination::Directory { at, make: true }, _) => Some(at.clone()),
            (destination, [tree]) if tree.is_directory => destination.of_tree(&tree.location).ok(),
            _ => None,
        }
    }

    /// Whether nothing may be copied before all is known: files can be in conflict with one another, or must be restored from
    /// an archive of a bucket first, of which the user is told in time.
    pub(crate) fn needs_whole_listing(&self) -> bool {
        let is_in_bucket = |found: &FoundSource| {
            let server = found.location.server();
            found.is_directory && server.is_some_and(|server| server.scheme == Scheme::S3)
        };
        self.may_conflict() || self.found.iter().any(is_in_bucket)
    }

    /// Whether files of the copy can be in conflict with one another: there are several sources, or the destination is where
    /// the source is.
    fn may_conflict(&self) -> bool {
        let at = match &self.destination {
            PlannedDestination::StandardOutput => return false,
            PlannedDestination::Directory { at, .. } | PlannedDestination::File { at, .. } => at,
        };
        let is_same_machine = |source: &Location| match (source.storage_id(), at.storage_id()) {
            (StorageId::Server(from), StorageId::Server(to)) => {
                from.host.eq_ignore_ascii_case(&to.host)
            }
            (from, to) => from.is_server() == to.is_server(),
        };
        let mut sources = self.found.iter();
        self.found.len() > 1 || sources.any(|found| is_same_machine(&found.location))
    }
}

impl PlannedDestination {
    fn number(&self) -> u8 {
        match self {
            Self::StandardOutput => 0,
            Self::Directory { make: false, .. } => 1,
            Self::Directory { make: true, .. } => 2,
            Self::File { exists: false, .. } => 3,
            Self::File { exists: true, .. } => 4,
        }
    }

    /// Notes the directory that the user has named.
    pub(crate) fn name(&self, ctx: &BatchContext) {
        if let Self::Directory { at, .. } = self {
            ctx.name_destination(at);
        }
    }

    /// The kind that an earlier run noted.
    pub(crate) fn from_number(number: u8, at: &Location) -> Self {
        let at = at.clone();
        match number {
            0 => Self::StandardOutput,
            1 => Self::Directory { at, make: false },
            2 => Self::Directory { at, make: true },
            3 => Self::File { at, exists: false },
            _ => Self::File { at, exists: true },
        }
    }

    /// Destination of a file.
    pub(crate) fn of_file(&self, source: &Location) -> Result<Location, Failure> {
        file_destination(source, self)
    }

    /// Destination of a directory's content, which is not within the directory.
    pub(crate) fn of_tree(&self, source: &Location) -> Result<Location, Failure> {
        let top = tree_destination(source, self)?;
        // The walk would list the copies that it creates.
        if is_inside(source, &top) {
            let (from, to) = (source.display(), top.display());
            return Err(Failure::usage(format!(
                "cannot copy {from} into itself ({to})"
            )));
        }
        Ok(top)
    }
}

fn require_directory(destination: &PlannedDestination) -> Result<(), Failure> {
    let at = match destination {
        PlannedDestination::Directory { .. } => return Ok(()),
        PlannedDestination::StandardOutput => "standard output".to_owned(),
        PlannedDestination::File { at, .. } => at.display(),
    };
    Err(Failure::usage(format!(
        "{at} is not a directory, which several sources require; end it with / to create one"
    )))
}

async fn inspect_destination(
    ctx: &BatchContext,
    at: &Location,
) -> Result<PlannedDestination, Failure> {
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
    Ok(match ctx.stat(&id, path).await {
        Err(failure) if failure.may_retry() => return Err(failure),
        Ok(entry) if expand::is_directory(&entry) => {
            PlannedDestination::Directory { at, make: false }
        }
        // A server may refuse to show a path that it would still accept in STOR.
        _ if ends_with_slash => PlannedDestination::Directory { at, make: true },
        result => PlannedDestination::File {
            at,
            exists: result.is_ok(),
        },
    })
}

/// Destination of a file.
fn file_destination(
    source: &Location,
    destination: &PlannedDestination,
) -> Result<Location, Failure> {
    match destination {
        PlannedDestination::StandardOutput => Ok(Location::StandardStreams),
        PlannedDestination::File { at, .. } => Ok(at.clone()),
        PlannedDestination::Directory { at, .. } => {
            let name = last_component(source).ok_or_else(|| {
                Failure::usage("standard input has no name: name the destination file")
            })?;
            join_checked_name(at, &name)
        }
    }
}

/// Destination of a directory's content.
fn tree_destination(
    source: &Location,
    destination: &PlannedDestination,
) -> Result<Location, Failure> {
    match destination {
        PlannedDestination::StandardOutput => {
            Err(Failure::usage("a directory cannot go to standard output"))
        }
        PlannedDestination::File { at, exists: true } => Err(Failure::usage(format!(
            "{} is a file: a directory cannot replace it",
            at.display()
        ))),
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

fn join_checked_name(directory: &Location, name: &[u8]) -> Result<Location, Failure> {
    check_name(name)?;
    if directory
        .server()
        .is_some_and(|server| !server.scheme.takes_any_name())
    {
        check_sendable(name)?;
    }
    Ok(join_location(directory, name))
}
