//! `ls` and `stat`: the lines of remote files.

use std::io;
use std::ops::ControlFlow;

use copy::{Failure, RemoteEntry};
use ftp::location::Location;
use jiff::tz::TimeZone;
use serde_json::json;

use crate::args::{LsArgs, StatArgs};
use crate::long_listing::{LongFormat, entry_type};
use crate::output::{ignore_broken_pipe, print_json, print_listing_line};
use crate::terminal::ask_for_missing;

/// Number of entries that `ls` sorts. It prints further ones in the server's order, to bound memory.
const MAX_SORTED: usize = 16_384;

/// How `ls` prints entries.
struct ListingPrinter<'a> {
    args: &'a LsArgs,
    /// Entries that are not printed yet.
    collected: Vec<RemoteEntry>,
    /// Set when entries are printed as they arrive; then the widths of the columns are those of the first ones.
    format: Option<LongFormat>,
}

/// `longhaul ls`
pub(crate) async fn ls(args: &LsArgs) -> Result<(), Failure> {
    let mut printer = ListingPrinter {
        args,
        collected: Vec::new(),
        format: None,
    };
    let mut printed = Ok(());
    let mut visit = |entry| {
        printed = printer.take(entry);
        match printed {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    };
    let options = args.common.options()?;
    ask_for_missing([args.url.as_str()], &options.security).await;
    let listed = copy::list_each(&args.url, args.recursive, &options, &mut visit).await;
    // Entries that were listed before a failure are shown, too.
    ignore_broken_pipe(printed.and_then(|()| printer.print_collected()))?;
    listed
}

impl ListingPrinter<'_> {
    fn take(&mut self, entry: RemoteEntry) -> io::Result<()> {
        if self.format.is_some() {
            return self.print(&entry);
        }
        self.collected.push(entry);
        match self.collected.len() > MAX_SORTED {
            true => self.print_collected(),
            false => Ok(()),
        }
    }

    fn print_collected(&mut self) -> io::Result<()> {
        let mut entries = std::mem::take(&mut self.collected);
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        if self.format.is_none() {
            let human_readable = self.args.human_readable;
            self.format = Some(LongFormat::new(
                &entries,
                human_readable,
                TimeZone::system(),
            ));
        }
        entries.iter().try_for_each(|entry| self.print(entry))
    }

    fn print(&self, entry: &RemoteEntry) -> io::Result<()> {
        match (&self.format, self.args.json, self.args.long) {
            (_, true, _) => print_json(&entry_to_json(entry)),
            (Some(format), false, true) => print_listing_line(&format.line(entry)),
            _ => print_listing_line(&entry.name),
        }
    }
}

/// `longhaul stat`
pub(crate) async fn stat(args: &StatArgs) -> Result<(), Failure> {
    let options = args.common.options()?;
    ask_for_missing([args.url.as_str()], &options.security).await;
    let entry = copy::stat(&args.url, &options).await?;
    ignore_broken_pipe(if args.json {
        print_json(&entry_to_json(&entry))
    } else {
        let format = LongFormat::new(
            std::slice::from_ref(&entry),
            args.human_readable,
            TimeZone::system(),
        );
        print_listing_line(&format.line(&entry))
    })
}

fn entry_to_json(entry: &RemoteEntry) -> serde_json::Value {
    json!({
        "name": String::from_utf8_lossy(&entry.name),
        // Exact for names that are not UTF-8, too.
        "url_name": Location::url_name(&entry.name),
        "type": entry_type(entry),
        "size": entry.size,
        "modified": entry.modified.map(proto::timestamp::Timestamp::format),
        "mode": entry.mode.map(|m| format!("{m:04o}")),
        "owner": entry.owner,
        "group": entry.group,
        "link": entry.link_target.as_ref().map(|t| String::from_utf8_lossy(t)),
    })
}
