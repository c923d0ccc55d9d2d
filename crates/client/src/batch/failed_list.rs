//! The list of what a batch did not copy (`--failed`): a line `SOURCE DESTINATION` each, as `--from` and globus-url-copy's `-f`
//! read them.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data::store::durability::SyncPolicy;
use proto::pattern::braces::has_braces;
use proto::pattern::has_wildcard;

use super::BatchContext;
use super::plan::{CopyPlan, NextEntry, PlanReader, PlannedEntry, is_same_file, last_component};
use crate::location::Location;
use crate::replacement::Replacement;
use crate::tree::check_name;

/// Writes the list when the batch ends, in whatever way.
pub(super) struct FailedList {
    ctx: Arc<BatchContext>,
    plan: Arc<CopyPlan>,
    path: Option<PathBuf>,
}

impl FailedList {
    /// The list of a batch, if the user asked for one.
    pub(super) fn of(ctx: &Arc<BatchContext>, plan: &Arc<CopyPlan>) -> Self {
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

/// Whether a list is a file of a copy, or lies where a tree of it is or will be.
pub(super) fn is_in_copy(list: &Path, sources: &[Location], destination: &Location) -> bool {
    if sources.iter().any(|source| is_in_tree(list, source)) {
        return true;
    }
    let Location::Local(top) = destination else {
        return false;
    };
    match resolved(list).strip_prefix(resolved(top)) {
        Err(_) => is_in_tree(list, destination),
        // An existing directory gets the sources by their names: `cp -r URL . --failed left`.
        Ok(below) if top.is_dir() => {
            let first = below.iter().next().map(OsStr::as_bytes);
            first.is_none_or(|first| sources.iter().any(|source| may_be_named(source, first)))
        }
        Ok(_) => true,
    }
}

/// Whether what a source stands for may have this name at a destination.
fn may_be_named(source: &Location, name: &[u8]) -> bool {
    match last_component(source) {
        Some(own) if !has_wildcard(&own) && !has_braces(&own) && check_name(&own).is_ok() => {
            own == name
        }
        // A pattern, or a directory whose content goes into the destination.
        _ => true,
    }
}

/// Whether a list is a file of an end of a copy, or lies below it.
fn is_in_tree(list: &Path, end: &Location) -> bool {
    let Location::Local(top) = end else {
        return false;
    };
    is_same_file(&Location::Local(list.to_owned()), end)
        || resolved(list).starts_with(resolved(top))
}

/// A path with links resolved as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut above = path.ancestors();
    let known = above.find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
    match known {
        Some((above, known)) => match path.strip_prefix(above) {
            Ok(rest) if rest.as_os_str().is_empty() => known,
            Ok(rest) => known.join(rest),
            Err(_) => path,
        },
        None => path,
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
