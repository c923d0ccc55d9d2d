//! The list of what a batch did not copy (`--failed`): a line `SOURCE DESTINATION` each, as `--from` and globus-url-copy's `-f`
//! read them.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data::store::durability::SyncPolicy;

use crate::batch::BatchContext;
use crate::local::replacement::Replacement;
use crate::plan::{CopyPlan, NextEntry, PlanReader, PlannedEntry};
use ftp::location::Location;

/// Writes the list when the batch ends, in whatever way.
pub(crate) struct FailedList {
    ctx: Arc<BatchContext>,
    plan: Arc<CopyPlan>,
    path: Option<PathBuf>,
}

impl FailedList {
    /// The list of a batch, if the user asked for one.
    pub(crate) fn of(ctx: &Arc<BatchContext>, plan: &Arc<CopyPlan>) -> Self {
        Self {
            ctx: Arc::clone(ctx),
            plan: Arc::clone(plan),
            path: ctx
                .options
                .failed_list
                .clone()
                .filter(|_| !ctx.options.dry_run),
        }
    }
}

/// Also when the batch is interrupted.
impl Drop for FailedList {
    fn drop(&mut self) {
        if let Some(path) = &self.path
            && let Err(error) = replace(path, &self.plan)
        {
            self.ctx.warn(format!("{}: {error}", path.display()));
        }
    }
}

/// Replaces the list: a reader sees the old or the new one.
fn replace(path: &Path, plan: &CopyPlan) -> io::Result<()> {
    // Names of files are nobody else's business.
    let mut list = Replacement::create(path, "list", 0o600)?;
    write_list(&mut list, plan)?;
    list.put_in_place(SyncPolicy::File)
}

fn write_list(out: &mut impl Write, plan: &CopyPlan) -> io::Result<()> {
    if !plan.is_listed() {
        writeln!(
            out,
            "# The listing is not complete: there may be more files."
        )?;
    }
    let mut reader = PlanReader::of(plan);
    loop {
        let (source, destination, end) = match reader.next(plan)? {
            NextEntry::Entry(PlannedEntry::File(item)) => (item.source, item.destination, ""),
            NextEntry::Entry(PlannedEntry::HardLink(link)) => {
                (link.file.source, link.file.destination, "")
            }
            NextEntry::Entry(PlannedEntry::Unlisted {
                source,
                destination,
                is_directory,
            }) => (source, destination, if is_directory { "/" } else { "" }),
            // Lists of pairs have neither; a directory is made with what is copied into it.
            NextEntry::Entry(PlannedEntry::Directory { at, .. }) => {
                writeln!(out, "# not made: {}", pair_url(&at, "/"))?;
                continue;
            }
            NextEntry::Entry(PlannedEntry::Link(link)) => {
                let (source, path) = (pair_url(&link.source, ""), pair_url(&link.path, ""));
                writeln!(out, "# not copied, a symbolic link: {source} {path}")?;
                continue;
            }
            NextEntry::Pending | NextEntry::End => return Ok(()),
        };
        let (source, destination) = (pair_url(&source, end), pair_url(&destination, end));
        writeln!(out, "{source} {destination}")?;
    }
}

/// A location as an absolute URL without a password. Characters that end a word are percent-encoded in it.
fn pair_url(at: &Location, end: &str) -> String {
    let mut url = match at {
        Location::Local(path) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            Location::Local(path).identity_key()
        }
        other => other.identity_key(),
    };
    if !url.ends_with('/') {
        url.push_str(end);
    }
    url
}
