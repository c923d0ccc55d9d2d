//! Files that a copy writes beside what it copies: the log, the trace, the journal, the list of failures. None of them may be, or lie in,
//! what is copied: such a file would be overwritten, or be copied while it grows.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::pairs::PairSource;
use crate::plan::{NamePattern, is_same_file, last_component};
use crate::storage::entry_names::check_name;
use ftp::Failure;
use ftp::location::Location;

/// The places of a command that copies.
#[derive(Debug, Clone, Copy)]
pub enum CopiedPlaces<'a> {
    /// Sources, and a destination that they go to or become.
    Copy(&'a [String], &'a str),
    /// Two trees: the content of the first becomes that of the second.
    Sync(&'a str, &'a str),
    /// A list of pairs.
    Pairs(&'a PairSource),
}

/// Refuses a log that the copy would overwrite or copy.
///
/// # Errors
/// `Usage`
pub fn check_log_file(log: &Path, places: CopiedPlaces<'_>) -> Result<(), Failure> {
    // An argument that cannot be parsed is refused later. Only paths of this machine count.
    let parsed =
        |text: &str| Location::parse_without_login(text).unwrap_or(Location::StandardStreams);
    let is_in_way = match places {
        CopiedPlaces::Copy(sources, destination) => {
            let sources: Vec<_> = sources.iter().map(|source| parsed(source)).collect();
            is_in_copy(log, &sources, &parsed(destination))
        }
        CopiedPlaces::Sync(from, to) => is_in_sync(log, &parsed(from), &parsed(to)),
        CopiedPlaces::Pairs(pairs) => {
            is_same_file(&Location::Local(log.to_owned()), &pairs.location())
        }
    };
    match is_in_way {
        true => Err(Failure::usage(format!(
            "--log would write into what is copied: name a file elsewhere than {}",
            log.display()
        ))),
        false => Ok(()),
    }
}

/// Whether a file is one of a copy, or lies where a tree of it is or will be.
pub(crate) fn is_in_copy(file: &Path, sources: &[Location], destination: &Location) -> bool {
    if sources.iter().any(|source| is_in_tree(file, source)) {
        return true;
    }
    let Location::Local(top) = destination else {
        return false;
    };
    match resolved(file).strip_prefix(resolved(top)) {
        Err(_) => is_in_tree(file, destination),
        // An existing directory gets the sources by their names: `cp -r URL . --failed left`.
        Ok(below) if top.is_dir() => {
            let first = below.iter().next().map(OsStr::as_bytes);
            first.is_none_or(|first| sources.iter().any(|source| may_be_named(source, first)))
        }
        Ok(_) => true,
    }
}

/// Whether a file lies in one of the trees of a sync.
pub(crate) fn is_in_sync(file: &Path, from: &Location, to: &Location) -> bool {
    [from, to].into_iter().any(|tree| is_in_tree(file, tree))
}

/// Whether what a source stands for may have this name at a destination.
fn may_be_named(source: &Location, name: &[u8]) -> bool {
    match (NamePattern::of(source), last_component(source)) {
        (Ok(Some(pattern)), _) => pattern.may_stand_for(name),
        (Ok(None), Some(own)) if check_name(&own).is_ok() => own == name,
        // A directory whose content goes into the destination.
        _ => true,
    }
}

/// Whether a file is an end of a copy, or lies below it.
fn is_in_tree(file: &Path, end: &Location) -> bool {
    let Location::Local(top) = end else {
        return false;
    };
    is_same_file(&Location::Local(file.to_owned()), end)
        || resolved(file).starts_with(resolved(top))
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
