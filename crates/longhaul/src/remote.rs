//! The remote file verbs that are not listings: call the client, print the result.

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use copy::{Failure, FailureKind, RemoteEntry, RemoteOptions, UnfinishedUpload, UploadRemoval};
use ftp::location::Location;
use proto::checksum::ChecksumAlgorithm;
use serde_json::json;

use crate::args::{CksumArgs, MkdirArgs, MvArgs, RmArgs};
use crate::check_sums::check_sums;
use crate::long_listing::entry_type;
use crate::output::{
    ignore_broken_pipe, print_failure, print_json, print_listing_line, print_to_stderr,
};
use crate::terminal::ask_for_missing;

/// `longhaul rm`: a file that cannot be deleted does not keep the others.
pub(crate) async fn rm(args: &RmArgs) -> Result<(), Failure> {
    let options = args.common.options()?;
    let mut totals = RemovalTotals::default();
    ask_for_missing(args.urls.iter().map(String::as_str), &options.security).await;
    for url in &args.urls {
        if let Some(idle) = args.unfinished {
            let removed = remove_unfinished(args, url, idle, &options, &mut totals).await;
            if removed.is_err() {
                totals.add(removed);
            }
            continue;
        }
        if args.dry_run {
            totals.add(print_removal(args, url, &options).await);
            continue;
        }
        let mut report = |removed| totals.add(removed);
        let removed = copy::remove_each(url, args.recursive, &options, &mut report).await;
        if removed.is_err() {
            totals.add(removed);
        }
    }
    totals.result()
}

/// Results of the removals of one command.
#[derive(Default)]
struct RemovalTotals {
    done: u64,
    failed: u64,
    /// The failure that is not printed yet: if it stays the only result, it is that of the command.
    last_failure: Option<Failure>,
}

impl RemovalTotals {
    fn add(&mut self, removed: Result<(), Failure>) {
        match removed {
            Ok(()) => self.done += 1,
            Err(failure) => {
                self.failed += 1;
                if let Some(earlier) = self.last_failure.replace(failure) {
                    print_failure(&earlier);
                }
            }
        }
    }

    /// The last failure. Its exit code is its own if nothing else was to be deleted.
    fn result(self) -> Result<(), Failure> {
        match self.last_failure {
            None => Ok(()),
            Some(failure) if self.done + self.failed == 1 => Err(failure),
            Some(failure) => Err(failure.of_kind(FailureKind::Partial)),
        }
    }
}

/// Removes or shows unfinished uploads, and tells how many are too young.
async fn remove_unfinished(
    args: &RmArgs,
    url: &str,
    idle: Duration,
    options: &RemoteOptions,
    totals: &mut RemovalTotals,
) -> Result<(), Failure> {
    let at = Location::parse_secured(url, &options.security)?;
    let removal = UploadRemoval {
        idle,
        is_preview: args.dry_run,
    };
    let mut printed = Ok(());
    let mut visit = |upload: &UnfinishedUpload, removed: Result<(), Failure>| {
        totals.add(removed);
        if args.dry_run && printed.is_ok() {
            printed = print_upload(args, &at, upload);
        }
    };
    let kept = copy::remove_unfinished(url, removal, options, &mut visit).await?;
    if kept > 0 {
        let kept = match kept {
            1 => "1 unfinished upload is".to_owned(),
            kept => format!("{kept} unfinished uploads are"),
        };
        print_to_stderr(&format!(
            "longhaul: {kept} kept: something was added within {}, so that a copy may still run (--unfinished=0s \
             deletes all)",
            units::show::time(idle)
        ));
    }
    ignore_broken_pipe(printed)
}

fn print_upload(args: &RmArgs, at: &Location, upload: &UnfinishedUpload) -> std::io::Result<()> {
    let path = at.with_path(upload.path.clone()).display();
    let idle = copy::idle_time(upload);
    if args.json {
        return print_json(&json!({
            "event": "would_delete", "path": path, "type": "unfinished-upload", "size": upload.bytes,
            "idle_seconds": idle.map(|idle| idle.as_secs()),
        }));
    }
    let idle = idle.map_or("unknown".to_owned(), units::show::time);
    let bytes = units::show::bytes(upload.bytes);
    print_listing_line(
        format!("would delete an unfinished upload of {path}: {bytes}, idle for {idle}").as_bytes(),
    )
}

/// Prints what would be removed, as the listings arrive.
async fn print_removal(args: &RmArgs, url: &str, options: &RemoteOptions) -> Result<(), Failure> {
    let at = Location::parse_secured(url, &options.security)?;
    let mut printed = Ok(());
    let mut visit = |entry: RemoteEntry| {
        // `display` leaves out the password of the URL.
        let path = at.with_path(entry.name.clone()).display();
        printed = match args.json {
            true => print_json(&json!({
                "event": "would_delete", "path": path, "type": entry_type(&entry), "size": entry.size,
            })),
            false => print_listing_line(format!("would delete {path}").as_bytes()),
        };
        match printed {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    };
    let previewed = copy::preview_removal(url, args.recursive, options, &mut visit).await;
    previewed.and_then(|()| ignore_broken_pipe(printed))
}

pub(crate) async fn mkdir(args: &MkdirArgs) -> Result<(), Failure> {
    let options = args.common.options()?;
    ask_for_missing([args.url.as_str()], &options.security).await;
    copy::make_dir(&args.url, args.parents, &options).await
}

pub(crate) async fn mv(args: &MvArgs) -> Result<(), Failure> {
    let options = args.common.options()?;
    ask_for_missing([args.from.as_str(), &args.to], &options.security).await;
    copy::rename(&args.from, &args.to, &options).await
}

pub(crate) async fn cksum(args: &CksumArgs) -> Result<(), Failure> {
    let options = args.common.options()?;
    ask_for_missing(args.urls.iter().map(String::as_str), &options.security).await;
    if let Some(sums) = &args.check {
        return check_sums(args, sums, &options).await;
    }
    let algorithm = args.algorithm.unwrap_or(ChecksumAlgorithm::Sha256);
    for url in &args.urls {
        let checksum = copy::checksum(url, algorithm, args.offset, args.length, &options).await?;
        let name = match Location::parse_secured(url, &options.security)? {
            Location::Local(path) => path.into_os_string().into_vec(),
            // `display` leaves out the password of the URL.
            other => other.display().into_bytes(),
        };
        // As sha256sum(1) writes a name with a line break.
        let (mark, name) = match copy::escape_sums_name(&name) {
            Some(escaped) => ("\\", escaped),
            None => ("", name),
        };
        let start = format!("{mark}{checksum}  ");
        let printed = print_listing_line(&[start.as_bytes(), &name].concat());
        if printed.is_err() {
            return ignore_broken_pipe(printed);
        }
    }
    Ok(())
}
