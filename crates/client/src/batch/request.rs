//! Requests that are refused before anything is opened: they are invalid for any files, or would write over their own input.

use super::failed_list;
use super::pairs::PairSource;
use super::plan::is_same_file;
use crate::location::Location;
use crate::replacement::is_other_than_file;
use crate::{BatchJournalLocation, CopyFailure, CopyOptions, Exit};

/// Standard input, which may be a file.
const STANDARD_INPUT: &str = "/dev/stdin";

/// Refuses requests that are invalid for any files.
pub(super) fn check_copy(
    sources: &[Location],
    destination: &Location,
    options: &CopyOptions,
) -> Result<(), CopyFailure> {
    if let Some(trace) = &options.trace {
        // Opening the trace truncates it, so the check comes before anything is opened.
        let trace = Location::Local(trace.clone());
        let mut locations = sources.iter().chain([destination]);
        if locations.any(|end| is_same_file(&trace, end)) {
            return usage("--trace would overwrite a file of this copy: name another file");
        }
    }
    if let Some(sums) = &options.write_sums {
        let sums = Location::Local(sums.path.clone());
        let mut locations = sources.iter().chain([destination]);
        if locations.any(|end| is_same_file(&sums, end)) {
            return usage("--write-sums would overwrite a file of this copy: name another file");
        }
    }
    check_failed_list(options)?;
    if let Some(list) = &options.failed_list
        && failed_list::is_in_copy(list, sources, destination)
    {
        return usage("--failed would write into a tree of this copy: name a file elsewhere");
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
    let is_ftp =
        |at: &Location| matches!(at, Location::Remote { server, .. } if server.scheme.is_ftp());
    if options.transfer.rate.is_some() && is_ftp(destination) && sources.iter().any(is_ftp) {
        return usage(
            "--limit-rate cannot be applied between two servers, because the bytes do not pass through this \
             machine: leave it out, or copy through this machine",
        );
    }
    if stream_sources == 1 && (options.offset.is_some() || options.length.is_some()) {
        return usage("--offset and --length need a source with a size, not standard input");
    }
    Ok(())
}

/// Refuses copies of pairs that are invalid for any pairs.
pub(super) fn check_pairs(pairs: &PairSource, options: &CopyOptions) -> Result<(), CopyFailure> {
    if options.offset.is_some() || options.length.is_some() {
        return usage("--offset and --length are for one file");
    }
    if options.write_sums.is_some() {
        return usage("--write-sums needs one destination, below which its names are, not --from");
    }
    // The list is read while the copy runs, and by the next run with --resume.
    let list = Location::Local(match pairs {
        PairSource::File(path) => path.clone(),
        PairSource::StandardInput => STANDARD_INPUT.into(),
    });
    let journal = match &options.journal {
        BatchJournalLocation::File(path) => Some(path),
        _ => None,
    };
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
    check_failed_list(options)
}

/// The list of failures takes the place of what has its name, which may be a device.
fn check_failed_list(options: &CopyOptions) -> Result<(), CopyFailure> {
    match &options.failed_list {
        Some(list) if is_other_than_file(list) => usage(&format!(
            "--failed: {} is not a regular file: name another file",
            list.display()
        )),
        _ => Ok(()),
    }
}

fn usage(message: &str) -> Result<(), CopyFailure> {
    Err(CopyFailure::new(Exit::Usage, message))
}
