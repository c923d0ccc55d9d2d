//! One listing command and what came of it.

use std::sync::Arc;
use std::time::Duration;

use data::job::{TransferControl, TransferSettings};
use data::options::{IoMethod, TransferOptions};
use data::recv::ReceivePlan;
use proto::client::{TransferDirection, TransferRequirements};
use proto::command::{Command, DataType, OptsCommand, TransferMode};
use proto::listing::{ListedEntry, ListingFormat, ListingReader};
use proto::reply::Reply;
use proto::streams::ParallelismRange;
use proto::timestamp::Timestamp;
use tokio::sync::mpsc;
use tune::Prior;

use super::completeness::ListingExtent;
use super::entries::{EntrySink, ListingText};
use super::limit_remark::limit_remark;
use crate::Failure;
use crate::answers::EntryVisitor;
use crate::failure::{Operation, Sentence};
use crate::session::listing_limits::ListingLimits;
use crate::session::replies::{self, Meaning, RefusalCause, means, refusal_cause};
use crate::session::{ClientSession, display_path};
use crate::transfer::control_messages::ReplySinks;
use crate::transfer::exchange::{CompletedExchange, LocalTransfer, TransferExchange};
use crate::transfer::outcome::FailedTransfer;
use crate::transfer::prepare::{LocalDataEnd, PreparationResult};

/// Batches of entries queued between the data connection and the visitor.
const QUEUED_BATCHES: usize = 4;

/// A listing command and the form of its lines.
pub(super) struct ListingRequest<'a> {
    pub(super) path: &'a [u8],
    pub(super) command: Command,
    pub(super) format: ListingFormat,
    pub(super) limits: ListingLimits,
    /// Ask for compressed text.
    pub(super) deflated: bool,
}

/// How a listing command ended. Entries may have been visited in any case.
pub(super) enum ListingEnd {
    /// The text arrived, and the server confirmed it.
    Text {
        text: ListingText,
        /// Words by which the server says that entries were left out.
        limit: Option<Vec<u8>>,
    },
    /// The visitor stopped it.
    Stopped,
    /// The server says that the directory is empty.
    Empty,
    /// The server does not support the command.
    Unsupported,
    /// The server refused it for another reason.
    Refused(Failure),
}

impl ClientSession {
    /// Sends a listing command and passes its entries on as they arrive.
    ///
    /// # Errors
    /// The session is lost. `Protocol` if the listing exceeds the limits. Entries may have been visited.
    pub(super) async fn fetch_listing(
        &mut self,
        request: ListingRequest<'_>,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<ListingEnd, Failure> {
        let mut requirements = listing_requirements(request.command);
        if request.deflated {
            let deflate = Some(true);
            let option = Command::Opts(OptsCommand::MlsrOptions { deflate });
            requirements.announcements.push(option);
        }
        let operation = Operation::on_path("list", request.path);
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
            return Ok(ListingEnd::Unsupported);
        };
        // A bounded queue: a slow visitor slows the transfer down.
        let (sender, batches) = mpsc::channel(QUEUED_BATCHES);
        let sink = Arc::new(EntrySink::new(
            ListingReader::new(
                request.format,
                Timestamp(jiff::Timestamp::now().as_second()),
            ),
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
            Ok(_) | Err(_) if visitor_stopped => Ok(ListingEnd::Stopped),
            Ok((text, None)) => Ok(ListingEnd::Text { text, limit: None }),
            Ok((text, Some(completed))) => {
                let reply = completed.reply;
                let extent = ListingExtent {
                    lines: text.reader.lines(),
                    ends_within_line: text.is_cut,
                    bytes: completed.report.evidence.bytes,
                    announced: reply.as_ref().and_then(|reply| self.listing_bytes(reply)),
                };
                self.require_whole(extent, &requirements.command, &operation)?;
                Ok(ListingEnd::Text {
                    limit: reply.and_then(|reply| limit_remark(&reply, request.path)),
                    text,
                })
            }
            Err(failed) => match (sink.exceeded_limit(), failed.refusal) {
                (Some(excess), _) => {
                    let listing = Sentence::from(format!("{}: its listing of ", self.name()));
                    let listing = listing.name(display_path(request.path));
                    Err(Failure::protocol(
                        listing.words(format_args!(" has {excess}")),
                    ))
                }
                (_, Some(reply)) if replies::is_unsupported(&reply) => Ok(ListingEnd::Unsupported),
                (_, Some(reply)) if is_empty_directory_reply(&requirements.command, &reply) => {
                    Ok(ListingEnd::Empty)
                }
                // Another command may do better, but not without a data connection.
                (_, Some(reply)) if refusal_cause(&reply) != RefusalCause::Lost => {
                    Ok(ListingEnd::Refused(failed.failure))
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
    ) -> (
        Result<(ListingText, Option<CompletedExchange>), FailedTransfer>,
        bool,
    ) {
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
        drop(exchange);
        while let Ok(batch) = batches.try_recv() {
            visit_batch(batch);
        }
        let received = match result {
            Ok(completed) => {
                let text = sink.finish().ok_or_else(cut_listing);
                text.map(|text| (text, Some(completed)))
            }
            Err(failed) if failed.end_is_unproved => {
                let text = sink.finish_unproved();
                text.map(|text| (text, None)).ok_or(failed)
            }
            Err(failed) => Err(failed),
        };
        let rest = match received {
            Ok((mut text, completed)) => {
                visit_batch(std::mem::take(&mut text.rest));
                Ok((text, completed))
            }
            Err(failed) => {
                visit_batch(sink.take_rest());
                Err(failed)
            }
        };
        (rest, visitor_stopped)
    }
}

/// A server has confirmed a compressed text whose end is missing.
fn cut_listing() -> FailedTransfer {
    let message = "a listing ended in the middle, although the server says that it is complete";
    Failure::protocol(message).into()
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
        passing_checksum: None,
        restart: None,
        server_listens: true,
        connections_reusable: false,
        command,
    }
}

/// Whether the reply means an empty directory. Old RFC 959 servers answer NLST of one with `550 No
/// files found`.
fn is_empty_directory_reply(verb: &Command, reply: &Reply) -> bool {
    reply.code == 550
        && matches!(verb, Command::Nlst(_))
        && refusal_cause(reply) != RefusalCause::Denied
        // The first line alone: further ones may speak of another directory.
        && means(&reply.text().to_lowercase(), Meaning::NoFiles)
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
