//! The remote file verbs: call the client, print the result.

use std::io;
use std::ops::ControlFlow;

use client::location::Location;
use client::{CopyFailure, Exit, RemoteEntry, RemoteOptions};
use proto::checksum::ChecksumAlgorithm;
use proto::listing::EntryKind;
use serde_json::json;

use crate::args::{CksumArgs, LsArgs, MkdirArgs, MvArgs, RmArgs, StatArgs};
use crate::check_sums::check_sums;
use crate::output::{print_json, print_listing_line};
use crate::passwords::ask_for_missing;

/// Number of entries that `ls` sorts. It prints further ones in the server's order, to bound memory.
const MAX_SORTED: usize = 16_384;

pub(crate) async fn ls(args: &LsArgs) -> Result<(), CopyFailure> {
    let mut collected = Vec::new();
    let mut is_sorting = true;
    let mut printed = Ok(());
    let mut visit = |entry| {
        if is_sorting {
            collected.push(entry);
            if collected.len() <= MAX_SORTED {
                return ControlFlow::Continue(());
            }
            // Too many entries to hold: print those collected, and the rest as they arrive.
            is_sorting = false;
            printed = print_sorted(args, std::mem::take(&mut collected));
        } else {
            printed = print_entry(args, &entry);
        }
        match printed {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    };
    let options = args.common.options()?;
    ask_for_missing([args.url.as_str()], &options.security).await;
    client::list_each(&args.url, &options, &mut visit).await?;
    ignore_broken_pipe(printed.and_then(|()| print_sorted(args, collected)))
}

fn print_sorted(args: &LsArgs, mut entries: Vec<RemoteEntry>) -> io::Result<()> {
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries
        .iter()
        .try_for_each(|entry| print_entry(args, entry))
}

fn print_entry(args: &LsArgs, entry: &RemoteEntry) -> io::Result<()> {
    match (args.json, args.long) {
        (true, _) => print_json(&entry_to_json(entry)),
        (false, true) => print_listing_line(&long_line(entry)),
        (false, false) => print_listing_line(&entry.name),
    }
}

/// Ignores a broken pipe (`longhaul ls | head`); other errors, such as a full disk, are failures.
fn ignore_broken_pipe(printed: io::Result<()>) -> Result<(), CopyFailure> {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CopyFailure::new(
            Exit::Local,
            format!("standard output: {error}"),
        )),
        _ => Ok(()),
    }
}

pub(crate) async fn stat(args: &StatArgs) -> Result<(), CopyFailure> {
    let options = args.common.options()?;
    ask_for_missing([args.url.as_str()], &options.security).await;
    let entry = client::stat(&args.url, &options).await?;
    ignore_broken_pipe(if args.json {
        print_json(&entry_to_json(&entry))
    } else {
        print_listing_line(&long_line(&entry))
    })
}

pub(crate) async fn rm(args: &RmArgs) -> Result<(), CopyFailure> {
    let options = args.common.options()?;
    ask_for_missing(args.urls.iter().map(String::as_str), &options.security).await;
    for url in &args.urls {
        match args.dry_run {
            false => client::remove(url, args.recursive, &options).await?,
            true => print_removal(args, url, &options).await?,
        }
    }
    Ok(())
}

/// Prints what would be removed, as the listings arrive.
async fn print_removal(
    args: &RmArgs,
    url: &str,
    options: &RemoteOptions,
) -> Result<(), CopyFailure> {
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
    let previewed = client::preview_removal(url, args.recursive, options, &mut visit).await;
    previewed.and_then(|()| ignore_broken_pipe(printed))
}

pub(crate) async fn mkdir(args: &MkdirArgs) -> Result<(), CopyFailure> {
    let options = args.common.options()?;
    ask_for_missing([args.url.as_str()], &options.security).await;
    client::make_dir(&args.url, args.parents, &options).await
}

pub(crate) async fn mv(args: &MvArgs) -> Result<(), CopyFailure> {
    let options = args.common.options()?;
    ask_for_missing([args.from.as_str(), &args.to], &options.security).await;
    client::rename(&args.from, &args.to, &options).await
}

pub(crate) async fn cksum(args: &CksumArgs) -> Result<(), CopyFailure> {
    let options = args.common.options()?;
    ask_for_missing(args.urls.iter().map(String::as_str), &options.security).await;
    if let Some(sums) = &args.check {
        return check_sums(args, sums, &options).await;
    }
    let algorithm = args.algorithm.unwrap_or(ChecksumAlgorithm::Sha256);
    for url in &args.urls {
        let checksum = client::checksum(url, algorithm, args.offset, args.length, &options).await?;
        // `display` leaves out the password of the URL.
        let display_name = Location::parse_secured(url, &options.security)?.display();
        let printed = print_listing_line(format!("{checksum}  {display_name}").as_bytes());
        if printed.is_err() {
            return ignore_broken_pipe(printed);
        }
    }
    Ok(())
}

fn entry_type(entry: &RemoteEntry) -> &'static str {
    match entry.kind {
        EntryKind::File => "file",
        EntryKind::Dir | EntryKind::CurrentDir | EntryKind::ParentDir => "dir",
        EntryKind::SymLink => "link",
        EntryKind::Other => "other",
    }
}

fn long_line(entry: &RemoteEntry) -> Vec<u8> {
    let size = entry.size.map_or_else(|| "-".into(), |s| s.to_string());
    let time = entry
        .modified
        .map_or_else(|| "-".into(), proto::timestamp::Timestamp::format);
    let mut line = format!("{:5} {size:>15} {time:14} ", entry_type(entry)).into_bytes();
    line.extend_from_slice(&entry.name);
    if let Some(target) = &entry.link_target {
        line.extend_from_slice(b" -> ");
        line.extend_from_slice(target);
    }
    line
}

fn entry_to_json(entry: &RemoteEntry) -> serde_json::Value {
    json!({
        "name": String::from_utf8_lossy(&entry.name),
        "type": entry_type(entry),
        "size": entry.size,
        "modified": entry.modified.map(proto::timestamp::Timestamp::format),
        "mode": entry.mode.map(|m| format!("{m:04o}")),
        "owner": entry.owner,
        "group": entry.group,
        "link": entry.link_target.as_ref().map(|t| String::from_utf8_lossy(t)),
    })
}
