//! Requests that are refused before anything is opened: they are invalid for any files, or would write over their own input.

use std::path::{Path, PathBuf};

use crate::batch::BatchContext;
use crate::local::replacement::is_other_than_file;
use crate::options::BatchJournalLocation;
use crate::options::CopyOptions;
use crate::plan::pairs::PairSource;
use crate::plan::{is_inside, is_same_file, side_files};
use ftp::Failure;
use ftp::location::Location;

/// Refuses requests that are invalid for any files.
pub(crate) fn check_copy(
    sources: &[Location],
    destination: &Location,
    options: &CopyOptions,
) -> Result<(), Failure> {
    let is_in_way = |file: &Path| side_files::is_in_copy(file, sources, destination);
    check_side_files(options, is_in_way)?;
    if let Some(sums) = &options.write_sums {
        let sums = Location::Local(sums.path.clone());
        let mut locations = sources.iter().chain([destination]);
        if locations.any(|end| is_same_file(&sums, end)) {
            return usage("--write-sums would overwrite a file of this copy: name another file");
        }
    }
    let stream_sources = sources
        .iter()
        .filter(|s| **s == Location::StandardStreams)
        .count();
    if stream_sources > 1 || (stream_sources == 1 && sources.len() > 1) {
        return usage("standard input cannot be one of several sources");
    }
    if stream_sources == 1 && *destination == Location::StandardStreams {
        return usage("cannot copy standard input to standard output");
    }
    let is_open_here = stream_sources == 1 || *destination == Location::StandardStreams;
    if is_open_here && !options.nodes.nodes.is_empty() {
        return usage(
            "nodes can neither read the standard input nor write the standard output of this process: use --nodes off",
        );
    }
    if stream_sources == 1 && (options.file.offset.is_some() || options.file.length.is_some()) {
        return usage("--offset and --length need a source with a size, not standard input");
    }
    Ok(())
}

/// Refuses syncs that are invalid for any files.
pub(crate) fn check_sync(
    from: &Location,
    to: &Location,
    options: &CopyOptions,
) -> Result<(), Failure> {
    if [from, to].contains(&&Location::StandardStreams) {
        return usage("sync takes two directories, not standard input or output");
    }
    if is_inside(from, to) || is_inside(to, from) {
        let (from, to) = (from.display(), to.display());
        return usage(&format!("{from} and {to} contain one another"));
    }
    check_side_files(options, |file| side_files::is_in_sync(file, from, to))
}

/// Refuses a journal, a trace and a list of failures that the copy would overwrite or copy.
fn check_side_files(
    options: &CopyOptions,
    is_in_way: impl Fn(&Path) -> bool,
) -> Result<(), Failure> {
    check_failed_list(options)?;
    check_nodes(options)?;
    let journal = named_journal(options);
    let files = [
        ("--journal", journal),
        // Opening the trace truncates it, so the check comes before anything is opened.
        ("--trace", options.trace.as_ref()),
        ("--failed", options.failed_list.as_ref()),
        ("--receipt", options.receipt.as_ref().map(|file| &file.path)),
    ];
    let in_way = files
        .iter()
        .find(|(_, file)| file.is_some_and(|file| is_in_way(file)));
    match in_way {
        Some((flag, _)) => usage(&format!(
            "{flag} would write into what is copied: name a file elsewhere"
        )),
        None => Ok(()),
    }
}

/// Refuses a limit of the rate where the bytes do not pass through this machine. A limit from settings is a default for other
/// copies, and does not refuse this one.
///
/// # Errors
/// `Usage`
pub(crate) fn check_rate_limit(
    ctx: &BatchContext,
    sources: &[&Location],
    destination: &Location,
) -> Result<(), Failure> {
    let is_ftp =
        |at: &Location| matches!(at, Location::Remote { server, .. } if server.scheme.is_ftp());
    let options = &ctx.options;
    let is_direct = is_ftp(destination) && sources.iter().any(|source| is_ftp(source));
    if options.streams.transfer.rate.is_none() || !is_direct {
        return Ok(());
    }
    if options.security.options().is_asked("limit-rate") {
        return usage(
            "--limit-rate cannot be applied between two servers, because the bytes do not pass through this \
             machine: leave it out, or copy through this machine",
        );
    }
    let note = "the limit-rate of the settings is not applied between two servers, whose bytes do not pass through \
                this machine";
    ctx.warn(note.to_owned());
    Ok(())
}

/// Refuses copies of pairs that are invalid for any pairs.
pub(crate) fn check_pairs(pairs: &PairSource, options: &CopyOptions) -> Result<(), Failure> {
    if options.file.offset.is_some() || options.file.length.is_some() {
        return usage("--offset and --length are for one file");
    }
    if options.write_sums.is_some() {
        return usage("--write-sums needs one destination, below which its names are, not --from");
    }
    if options.receipt.is_some() {
        return usage("--receipt needs one destination, below which its names are, not --from");
    }
    // The list is read while the copy runs, and by the next run with --resume.
    let list = pairs.location();
    let journal = named_journal(options);
    for (flag, written) in [
        ("--failed", options.failed_list.as_ref()),
        ("--trace", options.trace.as_ref()),
        ("--journal", journal),
    ] {
        if written.is_some_and(|path| is_same_file(&Location::Local(path.clone()), &list)) {
            return usage(&format!(
                "{flag} would overwrite the list that --from reads: name another file"
            ));
        }
    }
    check_nodes(options)?;
    check_failed_list(options)
}

/// A trace has no samples of nodes.
fn check_nodes(options: &CopyOptions) -> Result<(), Failure> {
    match options.trace.is_some() && !options.nodes.nodes.is_empty() {
        true => usage(
            "--trace records the streams of this process, and nodes would move the files: use --nodes off",
        ),
        false => Ok(()),
    }
}

/// The file of `--journal`.
fn named_journal(options: &CopyOptions) -> Option<&PathBuf> {
    match &options.journal {
        BatchJournalLocation::File(path) => Some(path),
        _ => None,
    }
}

/// The list of failures takes the place of what has its name, which may be a device.
fn check_failed_list(options: &CopyOptions) -> Result<(), Failure> {
    match &options.failed_list {
        Some(list) if is_other_than_file(list) => usage(&format!(
            "--failed: {} is not a regular file: name another file",
            list.display()
        )),
        _ => Ok(()),
    }
}

fn usage(message: &str) -> Result<(), Failure> {
    Err(Failure::usage(message))
}
