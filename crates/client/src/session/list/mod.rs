//! Directory listings over the data channel.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use data::job::{TransferControl, TransferSettings};
use data::options::{IoMethod, TransferOptions};
use data::recv::ReceivePlan;
use proto::client::{TransferDirection, TransferRequirements};
use proto::command::{Command, DataType, TransferMode};
use proto::listing::{EntryKind, ListedEntry, parse_ls, parse_mlsx};
use proto::streams::ParallelismRange;
use tokio::sync::mpsc;
use tune::Prior;

use super::replies::{self, RefusalCause, refusal_cause};
use super::{ClientSession, display_path};
use crate::answers::EntryVisitor;
use crate::transfer::control_messages::ReplySinks;
use crate::transfer::exchange::{LocalTransfer, TransferExchange};
use crate::transfer::outcome::FailedTransfer;
use crate::transfer::prepare::{LocalDataEnd, PreparationResult};
use crate::{CopyFailure, Exit};

mod entries;

use entries::{EntrySink, ListingLimits, ListingLineCounts, ListingLineParser};

/// Of a listing that is kept in memory.
const IN_MEMORY_LIMITS: ListingLimits = ListingLimits {
    bytes: 512 << 20,
    lines: 2_000_000,
};

/// Of a listing whose entries go on as they come: more are no directory.
const STREAMING_LIMITS: ListingLimits = ListingLimits {
    bytes: 64 << 30,
    lines: 100_000_000,
};

/// Batches of entries on their way from the data connection to who takes them.
const QUEUED_BATCHES: usize = 4;

/// Result of a listing command.
enum ListingResult {
    /// It came whole; or whoever took the entries had enough.
    Complete(ListingLineCounts),
    /// The server does not know the command.
    Unsupported,
}

impl ClientSession {
    /// Entries of a directory without `.` and `..`: MLSD, else LIST, else NLST. At most two million
    /// and 512 MiB of text.
    ///
    /// # Errors
    /// The refusal by its class; `Usage` for a path that FTP cannot express; `Protocol` for a
    /// listing beyond the bounds.
    pub async fn list(&mut self, path: &[u8]) -> Result<Vec<ListedEntry>, CopyFailure> {
        let mut found = Vec::new();
        let mut visit = |entry| {
            found.push(entry);
            ControlFlow::Continue(())
        };
        self.list_with(path, IN_MEMORY_LIMITS, &mut visit).await?;
        Ok(found)
    }

    /// [`ClientSession::list`], entry by entry as they come, in bounded memory.
    ///
    /// # Errors
    /// As [`ClientSession::list`]; entries may have been visited before.
    pub(crate) async fn list_each(
        &mut self,
        path: &[u8],
        visit: &mut EntryVisitor<'_>,
    ) -> Result<(), CopyFailure> {
        self.list_with(path, STREAMING_LIMITS, visit).await
    }

    async fn list_with(
        &mut self,
        path: &[u8],
        bounds: ListingLimits,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<(), CopyFailure> {
        self.check_path(path)?;
        if self.features().mlst {
            let command = Command::Mlsd(Some(path.to_vec()));
            let fetch = ListingRequest {
                path,
                command,
                parse: parse_mlsx,
                bounds,
            };
            if let ListingResult::Complete(_) = self.fetch_listing(fetch, visit).await? {
                return Ok(());
            }
        }
        self.list_without_mlsd(path, bounds, visit).await
    }

    /// Entries as LIST tells them, else NLST, whatever the server has besides; bounds as for
    /// [`ClientSession::list`].
    pub(super) async fn list_by_list_command(
        &mut self,
        path: &[u8],
    ) -> Result<Vec<ListedEntry>, CopyFailure> {
        let mut found = Vec::new();
        let mut visit = |entry| {
            found.push(entry);
            ControlFlow::Continue(())
        };
        self.list_without_mlsd(path, IN_MEMORY_LIMITS, &mut visit)
            .await?;
        Ok(found)
    }

    /// LIST and NLST without a path, inside the directory: servers read options, blanks and
    /// wildcards in a path differently.
    async fn list_without_mlsd(
        &mut self,
        path: &[u8],
        bounds: ListingLimits,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<(), CopyFailure> {
        if let Some(reply) = self.change_directory(path).await? {
            let doing = format!("list {}", display_path(path));
            return Err(replies::refusal_failure(self.name(), &doing, &reply));
        }
        // vsftpd hides names that start with a dot unless asked. A server that takes `-a` for a
        // name lists nothing or refuses; then the plain form speaks.
        for argument in [Some(b"-a".to_vec()), None] {
            let last = argument.is_none();
            let mut visited = false;
            let mut noting = |entry| {
                visited = true;
                visit(entry)
            };
            let fetch = ListingRequest {
                path,
                command: Command::List(argument),
                parse: parse_ls,
                bounds,
            };
            match self.fetch_listing(fetch, &mut noting).await {
                Ok(ListingResult::Complete(seen)) if last || seen.lines > 0 => {
                    if seen.entries == 0 && seen.unrecognized > 0 {
                        break;
                    }
                    return Ok(());
                }
                Ok(ListingResult::Complete(_) | ListingResult::Unsupported) => {}
                Err(failure) if last || visited || failure.exit == Exit::Unreachable => {
                    return Err(failure);
                }
                Err(_) => {}
            }
        }
        self.list_by_nlst(path, visit).await
    }

    /// Names alone; each is looked at on its own.
    async fn list_by_nlst(
        &mut self,
        path: &[u8],
        visit: &mut EntryVisitor<'_>,
    ) -> Result<(), CopyFailure> {
        let mut names = Vec::new();
        let mut keep = |entry: ListedEntry| {
            names.push(entry.name);
            ControlFlow::Continue(())
        };
        let fetch = ListingRequest {
            path,
            command: Command::Nlst(None),
            parse: parse_nlst_line,
            bounds: IN_MEMORY_LIMITS,
        };
        let ListingResult::Complete(_) = self.fetch_listing(fetch, &mut keep).await? else {
            return Err(CopyFailure {
                exit: Exit::Protocol,
                message: format!(
                    "{} can list no directory in a form that is understood (MLSD, LIST, NLST); \
                     name the files one by one",
                    self.name()
                ),
                transient: false,
            });
        };
        for name in names {
            let mut full = path.to_vec();
            if !full.ends_with(b"/") {
                full.push(b'/');
            }
            full.extend_from_slice(&name);
            // Boxed: stat may itself look into a listing.
            match Box::pin(self.stat(&full)).await {
                Ok(entry) => {
                    if visit(entry).is_break() {
                        return Ok(());
                    }
                }
                // Deleted meanwhile, or a dangling link.
                Err(failure) if failure.exit == Exit::NotFound => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    async fn fetch_listing(
        &mut self,
        fetch: ListingRequest<'_>,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<ListingResult, CopyFailure> {
        let need = listing_requirements(fetch.command);
        let doing = format!("list {}", display_path(fetch.path));
        let mut warnings = Vec::new();
        let prepared = self
            .prepare_transfer(&need, &LocalDataEnd::default(), &doing, &mut warnings)
            .await?;
        let PreparationResult::Ready { alternative } = prepared else {
            return Ok(ListingResult::Unsupported);
        };
        let (sender, batches) = mpsc::channel(QUEUED_BATCHES);
        let sink = Arc::new(EntrySink::new(fetch.parse, fetch.bounds, sender));
        let exchange = TransferExchange {
            local_end: LocalTransfer::Receive {
                sink: Arc::clone(&sink) as Arc<_>,
                plan: ReceivePlan {
                    origin: 0,
                    stream_start: 0,
                    limit: None,
                },
                server_overruns: false,
            },
            settings: listing_settings(self.control.reply_timeout()),
            control: &Arc::new(TransferControl::new()),
            reply_sinks: ReplySinks::default(),
            alternative,
            wait_for_start: false,
            doing: &doing,
        };
        let (came, enough) = self.visit_entries(exchange, batches, &sink, visit).await;
        match came {
            Ok(seen) => Ok(ListingResult::Complete(seen)),
            Err(_) if enough => Ok(ListingResult::Complete(ListingLineCounts::default())),
            Err(ended) => match (sink.exceeded_limit(), ended.refusal) {
                (Some(excess), _) => Err(CopyFailure::new(
                    Exit::Protocol,
                    format!(
                        "{}: its listing of {} has {excess}",
                        self.name(),
                        display_path(fetch.path)
                    ),
                )),
                (_, Some(reply)) if replies::is_unsupported(&reply) => {
                    Ok(ListingResult::Unsupported)
                }
                // Some servers refuse to list an empty directory by names.
                (_, Some(reply))
                    if reply.code == 550 && is_empty_directory_reply(&need.command, &reply) =>
                {
                    Ok(ListingResult::Complete(ListingLineCounts::default()))
                }
                _ => Err(ended.failure),
            },
        }
    }

    /// Visits entries while they come; whether the visitor had enough.
    async fn visit_entries(
        &mut self,
        exchange: TransferExchange<'_>,
        mut batches: mpsc::Receiver<Vec<ListedEntry>>,
        sink: &EntrySink,
        visit: &mut EntryVisitor<'_>,
    ) -> (Result<ListingLineCounts, FailedTransfer>, bool) {
        let mut enough = false;
        let mut take = |batch: Vec<ListedEntry>| {
            let mut entries = batch.into_iter();
            enough = enough || entries.any(|entry| visit(entry).is_break());
            enough
        };
        let mut exchange = Box::pin(self.exchange(exchange));
        let done = loop {
            tokio::select! {
                biased;
                Some(batch) = batches.recv() => {
                    if take(batch) {
                        batches.close();
                    }
                }
                done = &mut exchange => break done,
            }
        };
        let done = done.map(|_| {
            while let Ok(batch) = batches.try_recv() {
                take(batch);
            }
            let (rest, seen) = sink.finish();
            take(rest);
            seen
        });
        (done, enough)
    }
}

/// A listing command and how its answer is read.
struct ListingRequest<'a> {
    path: &'a [u8],
    command: Command,
    parse: ListingLineParser,
    bounds: ListingLimits,
}

/// MODE S whatever the session's transfers use: every server can.
fn listing_requirements(command: Command) -> TransferRequirements {
    TransferRequirements {
        direction: TransferDirection::Send,
        mode: TransferMode::Stream,
        streams: ParallelismRange::fixed(1),
        congestion_control: None,
        buffer: None,
        buffer_sizing: None,
        announced_size: None,
        store_checksum: None,
        restart: None,
        server_listens: true,
        connections_reusable: false,
        command,
    }
}

/// A line of NLST: a name, with or without the directory's path.
fn parse_nlst_line(line: &[u8]) -> Option<ListedEntry> {
    let name = line.rsplit(|b| *b == b'/').next().unwrap_or(line);
    (!name.is_empty()).then(|| ListedEntry::new(name, EntryKind::File))
}

/// RFC 959 servers of old answer NLST of an empty directory with `550 No files found`.
fn is_empty_directory_reply(verb: &Command, reply: &proto::reply::Reply) -> bool {
    matches!(verb, Command::Nlst(_))
        && refusal_cause(reply) != RefusalCause::Denied
        && reply.text().to_lowercase().contains("no files")
}

fn listing_settings(patience: Duration) -> TransferSettings {
    TransferSettings {
        options: TransferOptions {
            io: IoMethod::Copy,
            block: 64 << 10,
            stall: patience,
            ..TransferOptions::default()
        },
        mode: TransferMode::Stream,
        type_: DataType::Image,
        streams: 1,
        max_streams: 1,
        min_streams: 1,
        max_connections: 1,
        adapt: false,
        prior: Prior::default(),
        checksum: None,
        connect_timeout: patience,
        drs: None,
        close_after: false,
    }
}
