//! Directory listings over the data connection.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use data::job::{TransferControl, TransferSettings};
use data::options::{IoMethod, TransferOptions};
use data::recv::ReceivePlan;
use proto::client::{TransferDirection, TransferRequirements};
use proto::command::{Command, DataType, OptsCommand, TransferMode};
use proto::listing::{EntryKind, ListedEntry, parse_ls, parse_mlsx};
use proto::streams::ParallelismRange;
use tokio::sync::mpsc;
use tune::Prior;

use super::replies::{self, RefusalCause, refusal_cause};
use super::{COMPRESSED_FROM, ClientSession, display_path};
use crate::answers::EntryVisitor;
use crate::transfer::control_messages::ReplySinks;
use crate::transfer::exchange::{LocalTransfer, TransferExchange};
use crate::transfer::outcome::FailedTransfer;
use crate::transfer::prepare::{LocalDataEnd, PreparationResult};
use crate::{CopyFailure, Exit};

mod entries;
mod inflate;

use entries::{EntrySink, ListingLimits, ListingLineCounts, ListingLineParser};

/// Limits of a listing that is kept in memory.
const IN_MEMORY_LIMITS: ListingLimits = ListingLimits {
    bytes: 512 << 20,
    lines: 2_000_000,
};

/// Limits of a listing whose entries are passed on as they arrive. No real directory exceeds them.
const STREAMING_LIMITS: ListingLimits = ListingLimits {
    bytes: 64 << 30,
    lines: 100_000_000,
};

/// Batches of entries queued between the data connection and the visitor.
const QUEUED_BATCHES: usize = 4;

/// Result of a listing command.
enum ListingResult {
    /// The listing arrived completely, or the visitor stopped it.
    Complete(ListingLineCounts),
    /// The server does not support the command.
    Unsupported,
}

impl ClientSession {
    /// Entries of a directory without `.` and `..`, by MLSD, else LIST, else NLST. At most two
    /// million entries and 512 MiB of text.
    ///
    /// # Errors
    /// The refusal by its class; `Usage` for a path that FTP cannot express; `Protocol` for a
    /// listing beyond the limits.
    pub async fn list(&mut self, path: &[u8]) -> Result<Vec<ListedEntry>, CopyFailure> {
        let mut found = Vec::new();
        let mut visit = |entry| {
            found.push(entry);
            ControlFlow::Continue(())
        };
        self.list_with(path, IN_MEMORY_LIMITS, &mut visit).await?;
        Ok(found)
    }

    /// Like [`ClientSession::list`], entry by entry as they arrive, in bounded memory.
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

    /// All entries below a directory by MLSR, as they arrive, in bounded memory; names are relative to `path`.
    /// `Ok(false)`: the server is not known to report links and unreadable directories in it.
    ///
    /// # Errors
    /// As [`ClientSession::list`]; entries may have been visited before.
    pub(crate) async fn list_tree(
        &mut self,
        path: &[u8],
        visit: &mut EntryVisitor<'_>,
    ) -> Result<bool, CopyFailure> {
        // The greeting with pipelining is that of a longhaul server.
        let is_known = self.supports_pipelining() && self.reports_symlinks();
        if !(is_known && self.features().mlsr) {
            return Ok(false);
        }
        self.check_path(path)?;
        let request = ListingRequest {
            path,
            command: Command::Mlsr(Some(path.to_vec())),
            parse: parse_mlsx,
            limits: STREAMING_LIMITS,
            deflated: self.features().deflated_trees && self.rtt() >= COMPRESSED_FROM,
        };
        let result = self.fetch_listing(request, visit).await?;
        Ok(matches!(result, ListingResult::Complete(_)))
    }

    async fn list_with(
        &mut self,
        path: &[u8],
        limits: ListingLimits,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<(), CopyFailure> {
        self.check_path(path)?;
        if self.features().mlst {
            let command = Command::Mlsd(Some(path.to_vec()));
            let request = ListingRequest {
                path,
                command,
                parse: parse_mlsx,
                limits,
                deflated: false,
            };
            if let ListingResult::Complete(_) = self.fetch_listing(request, visit).await? {
                return Ok(());
            }
        }
        self.list_without_mlsd(path, limits, visit).await
    }

    /// Entries by LIST, else NLST, even if the server has MLSD. Limits as for
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

    /// Sends LIST and NLST without a path, after CWD into the directory: servers differ in how they
    /// read options, blanks and wildcards in a path.
    async fn list_without_mlsd(
        &mut self,
        path: &[u8],
        limits: ListingLimits,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<(), CopyFailure> {
        if let Some(reply) = self.change_directory(path).await? {
            let operation = format!("list {}", display_path(path));
            return Err(replies::refusal_failure(self.name(), &operation, &reply));
        }
        // vsftpd hides names that begin with a dot unless `-a` is given. A server that takes `-a`
        // for a name lists nothing or refuses; then LIST without an argument follows.
        for argument in [Some(b"-a".to_vec()), None] {
            let last = argument.is_none();
            let mut visited = false;
            let mut tracking = |entry| {
                visited = true;
                visit(entry)
            };
            let request = ListingRequest {
                path,
                command: Command::List(argument),
                parse: parse_ls,
                limits,
                deflated: false,
            };
            match self.fetch_listing(request, &mut tracking).await {
                Ok(ListingResult::Complete(counts)) if last || counts.lines > 0 => {
                    // Lines came but none was understood: NLST has a format without columns.
                    if counts.entries == 0 && counts.unrecognized > 0 {
                        break;
                    }
                    return Ok(());
                }
                Ok(ListingResult::Complete(_) | ListingResult::Unsupported) => {}
                // After the first visited entry a second attempt would visit entries twice.
                Err(failure) if last || visited || failure.exit == Exit::Unreachable => {
                    return Err(failure);
                }
                Err(_) => {}
            }
        }
        self.list_by_nlst(path, visit).await
    }

    /// Lists names by NLST and asks for the facts of each.
    async fn list_by_nlst(
        &mut self,
        path: &[u8],
        visit: &mut EntryVisitor<'_>,
    ) -> Result<(), CopyFailure> {
        let mut names = Vec::new();
        let mut collect_name = |entry: ListedEntry| {
            names.push(entry.name);
            ControlFlow::Continue(())
        };
        let request = ListingRequest {
            path,
            command: Command::Nlst(None),
            parse: parse_nlst_line,
            limits: IN_MEMORY_LIMITS,
            deflated: false,
        };
        let ListingResult::Complete(_) = self.fetch_listing(request, &mut collect_name).await?
        else {
            return Err(CopyFailure {
                exit: Exit::Protocol,
                message: format!(
                    "{} sends no directory listing in a supported form (MLSD, LIST, NLST); \
                     name the files one by one",
                    self.name()
                ),
                transient: false,
                no_room: false,
                away: false,
            });
        };
        for name in names {
            let mut full_path = path.to_vec();
            if !full_path.ends_with(b"/") {
                full_path.push(b'/');
            }
            full_path.extend_from_slice(&name);
            // Boxed, since stat may itself list the parent directory.
            match Box::pin(self.stat(&full_path)).await {
                Ok(entry) => {
                    if visit(entry).is_break() {
                        return Ok(());
                    }
                }
                // The entry was deleted meanwhile, or is a dangling link.
                Err(failure) if failure.exit == Exit::NotFound => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    async fn fetch_listing(
        &mut self,
        request: ListingRequest<'_>,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<ListingResult, CopyFailure> {
        let mut requirements = listing_requirements(request.command);
        if request.deflated {
            let deflate = Some(true);
            let option = Command::Opts(OptsCommand::MlsrOptions { deflate });
            requirements.announcements.push(option);
        }
        let operation = format!("list {}", display_path(request.path));
        let mut warnings = Vec::new();
        let preparation = self
            .prepare_transfer(
                &requirements,
                &LocalDataEnd::default(),
                &operation,
                &mut warnings,
            )
            .await?;
        let PreparationResult::Ready { alternative } = preparation else {
            return Ok(ListingResult::Unsupported);
        };
        // A bounded queue: a slow visitor slows the transfer down.
        let (sender, batches) = mpsc::channel(QUEUED_BATCHES);
        let sink = Arc::new(EntrySink::new(
            request.parse,
            request.limits,
            sender,
            request.deflated,
        ));
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
            operation: &operation,
            when_sent: None,
        };
        let (received, visitor_stopped) = self.visit_entries(exchange, batches, &sink, visit).await;
        match received {
            Ok(counts) => Ok(ListingResult::Complete(counts)),
            // The visitor stopped: the closed data connection is not a failure.
            Err(_) if visitor_stopped => Ok(ListingResult::Complete(ListingLineCounts::default())),
            Err(failed) => match (sink.exceeded_limit(), failed.refusal) {
                (Some(excess), _) => Err(CopyFailure::new(
                    Exit::Protocol,
                    format!(
                        "{}: its listing of {} has {excess}",
                        self.name(),
                        display_path(request.path)
                    ),
                )),
                (_, Some(reply)) if replies::is_unsupported(&reply) => {
                    Ok(ListingResult::Unsupported)
                }
                // Some servers refuse NLST of an empty directory.
                (_, Some(reply))
                    if reply.code == 550
                        && is_empty_directory_reply(&requirements.command, &reply) =>
                {
                    Ok(ListingResult::Complete(ListingLineCounts::default()))
                }
                _ => Err(failed.failure),
            },
        }
    }

    /// Visits entries while they arrive. The flag says whether the visitor stopped.
    async fn visit_entries(
        &mut self,
        exchange: TransferExchange<'_>,
        mut batches: mpsc::Receiver<Vec<ListedEntry>>,
        sink: &EntrySink,
        visit: &mut EntryVisitor<'_>,
    ) -> (Result<ListingLineCounts, FailedTransfer>, bool) {
        let mut visitor_stopped = false;
        let mut visit_batch = |batch: Vec<ListedEntry>| {
            let mut entries = batch.into_iter();
            visitor_stopped = visitor_stopped || entries.any(|entry| visit(entry).is_break());
            visitor_stopped
        };
        // Boxed because an exchange is large and the select below polls it in place.
        let mut exchange = Box::pin(self.exchange(exchange));
        let result = loop {
            tokio::select! {
                // Entries first, so that a finished exchange does not end the loop with entries in
                // the queue.
                biased;
                Some(batch) = batches.recv() => {
                    if visit_batch(batch) {
                        batches.close();
                    }
                }
                result = &mut exchange => break result,
            }
        };
        let result = result.and_then(|_| {
            while let Ok(batch) = batches.try_recv() {
                visit_batch(batch);
            }
            let (last_batch, counts) = sink.finish().ok_or_else(cut_listing)?;
            visit_batch(last_batch);
            Ok(counts)
        });
        (result, visitor_stopped)
    }
}

/// A server has confirmed a compressed text whose end is missing.
fn cut_listing() -> FailedTransfer {
    let message = "a listing ended in the middle, although the server says that it is complete";
    CopyFailure::new(Exit::Protocol, message).into()
}

/// A listing command and the parser for its lines.
struct ListingRequest<'a> {
    path: &'a [u8],
    command: Command,
    parse: ListingLineParser,
    limits: ListingLimits,
    /// Ask for compressed text.
    deflated: bool,
}

/// Listings use MODE S whatever the session's transfers use, since every server supports it.
fn listing_requirements(command: Command) -> TransferRequirements {
    TransferRequirements {
        protection: None,
        direction: TransferDirection::Send,
        mode: TransferMode::Stream,
        streams: ParallelismRange::fixed(1),
        congestion_control: None,
        buffer: None,
        buffer_sizing: None,
        announcements: Vec::new(),
        announced_size: None,
        store_checksum: None,
        restart: None,
        server_listens: true,
        connections_reusable: false,
        command,
    }
}

/// Parses a line of NLST: a name, with or without the directory's path.
fn parse_nlst_line(line: &[u8]) -> Option<ListedEntry> {
    let name = line.rsplit(|b| *b == b'/').next().unwrap_or(line);
    (!name.is_empty()).then(|| ListedEntry::new(name, EntryKind::File))
}

/// Whether the reply means an empty directory. Old RFC 959 servers answer NLST of one with `550 No
/// files found`.
fn is_empty_directory_reply(verb: &Command, reply: &proto::reply::Reply) -> bool {
    matches!(verb, Command::Nlst(_))
        && refusal_cause(reply) != RefusalCause::Denied
        && reply.text().to_lowercase().contains("no files")
}

fn listing_settings(reply_timeout: Duration) -> TransferSettings {
    TransferSettings {
        options: TransferOptions {
            io: IoMethod::Copy,
            block: 64 << 10,
            stall: reply_timeout,
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
        connect_timeout: reply_timeout,
        drs: None,
        security: None,
        close_after: false,
    }
}
