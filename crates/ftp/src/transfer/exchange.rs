//! A transfer whose command is sent: the data side and the replies run concurrently.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use data::channel::SessionDataChannel;
use data::error::DataError;
use data::job::{TransferControl, TransferReport, TransferSettings};
use data::os::readable::ReadableWait;
use proto::command::Command;
use proto::reply::Reply;
use proto::stripes::StripeAddresses;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::HostRemark;
use super::control_messages::{AnnouncedSizeFollower, ReplySinks, SizesToAnnounce};
pub(crate) use super::data_side::LocalTransfer;
use super::data_side::{AlternativeAddresses, DataResult, start_data_side};
use super::outcome::{self, FailedTransfer};
use crate::failure::{Operation, Sentence};
use crate::session::ClientSession;
use crate::session::control::MarkerRateLimit;
use crate::session::replies::{RefusalCause, refusal_cause};
use crate::{Failure, FailureKind};

/// Longest wait for the server's final reply after the data side failed.
const FINAL_REPLY_AFTER_FAILURE: Duration = Duration::from_secs(10);
/// Longest wait for the server's final reply after this end closed the data connection on purpose.
/// Some servers send nothing more (Pure-FTPd's last line then has code 150): a new session costs
/// less than the wait.
const FINAL_REPLY_AFTER_CLOSE: Duration = Duration::from_secs(1);
/// Longest wait, after the data, for the reply behind one that came before the transfer had begun: that may have been the
/// late answer to an earlier command. If none comes, it was the final reply.
const REPLY_AFTER_EARLY_ONE: Duration = Duration::from_secs(1);
/// How long the data side may take to report why the server lost the data connection: often the
/// reason is local and the server's reply only repeats its effect.
const LOCAL_ERROR_WAIT: Duration = Duration::from_millis(500);

/// A transfer whose command is sent.
pub struct TransferExchange<'a> {
    /// This end's part.
    pub local_end: LocalTransfer,
    /// Settings of the data side.
    pub settings: TransferSettings,
    /// Counts the bytes and cancels the transfer from outside.
    pub control: &'a Arc<TransferControl>,
    /// Receives the contents of preliminary replies.
    pub(crate) reply_sinks: ReplySinks<'a>,
    /// Addresses to try if the announced ones do not answer.
    pub alternative: Option<StripeAddresses>,
    /// Start the data side only when the server begins. Connections that the server opens wait in
    /// the listener's queue until then, and a refusal leaves `control` unchanged.
    pub(crate) wait_for_start: bool,
    /// `read /x`, for messages.
    pub operation: &'a Operation,
    /// The command to send as soon as all bytes are sent, before the server has confirmed the transfer; it goes to those whose
    /// replies are read later ([`ClientSession::can_pipeline_followups`]).
    pub(crate) when_sent: Option<NextCommand<'a>>,
}

/// Makes the command that follows a transfer of this end.
pub(crate) type NextCommand<'a> = &'a (dyn Fn(&TransferReport) -> Option<Command> + Send + Sync);

/// A transfer whose data side runs.
struct RunningExchange<'a> {
    data: JoinHandle<DataResult>,
    when_sent: Option<NextCommand<'a>>,
    /// The final reply, if it came before the data side began.
    final_reply: Option<Result<Reply, Failure>>,
    /// The server has said that the transfer begins.
    has_begun: bool,
    control: &'a TransferControl,
    reply_sinks: ReplySinks<'a>,
    sizes: SizesToAnnounce,
}

/// A transfer that succeeded.
#[derive(Debug)]
pub struct CompletedExchange {
    /// This end's report.
    pub(crate) report: TransferReport,
    /// Remarks of both hosts.
    pub(crate) remarks: Vec<HostRemark>,
    /// The server's final reply. `None` if this end closed the data connection before.
    pub(crate) reply: Option<Reply>,
}

impl CompletedExchange {
    fn new(report: TransferReport, remark: Option<HostRemark>, reply: Option<Reply>) -> Self {
        let here = HostRemark::from_local_report(&report);
        Self {
            report,
            remarks: here.into_iter().chain(remark).collect(),
            reply,
        }
    }
}

impl ClientSession {
    /// Moves the bytes while reading the control connection, and combines the results of both.
    /// After a failure the data connections are closed; the session stays usable only if the server
    /// sent its final reply.
    pub async fn exchange(
        &mut self,
        exchange: TransferExchange<'_>,
    ) -> Result<CompletedExchange, FailedTransfer> {
        let channel = self.data_channel.as_ref();
        let is_striped = channel.is_some_and(SessionDataChannel::is_striped);
        let (control, before) = (Arc::clone(exchange.control), exchange.control.bytes());
        let result = self.run_exchange(exchange).await;
        let is_apart = |failed: &FailedTransfer| {
            let refusal = failed.refusal.as_ref();
            failed.failure.kind() == FailureKind::Unreachable
                && refusal.is_none_or(|reply| refusal_cause(reply) == RefusalCause::Lost)
        };
        // A lost session says nothing of the data nodes.
        if is_striped
            && control.bytes() == before
            && !self.control.connection_was_lost()
            && result.as_ref().is_err_and(is_apart)
        {
            // This end may not reach the data nodes, or they not this end, where the server itself does.
            self.forget_stripes();
        }
        result
    }

    async fn run_exchange(
        &mut self,
        exchange: TransferExchange<'_>,
    ) -> Result<CompletedExchange, FailedTransfer> {
        let Some(channel) = self.data_channel.take() else {
            return Err(FailedTransfer::no_data_channel(
                self.name(),
                exchange.operation,
            ));
        };
        let TransferExchange {
            local_end,
            settings,
            control,
            reply_sinks,
            alternative,
            wait_for_start,
            operation,
            when_sent,
        } = exchange;
        let settings = TransferSettings {
            security: self.local_data_security()?,
            ..settings
        };
        let final_reply = match wait_for_start {
            true => {
                // The server begins only after the handshake, which this end must take part in.
                let is_protected = settings.security.is_some();
                let arrivals = is_protected
                    .then(|| channel.listener_descriptor())
                    .flatten();
                self.wait_for_start_reply(operation, reply_sinks, arrivals)
                    .await?
            }
            false => None,
        };
        let is_sender = matches!(local_end, LocalTransfer::Send { .. });
        let size_follower = AnnouncedSizeFollower::new_if_sending(is_sender, &settings, control);
        let reply_sinks = ReplySinks {
            size_follower: size_follower.as_ref(),
            ..reply_sinks
        };
        let sizes = SizesToAnnounce::new_if_receiving(is_sender, &settings, control);
        // Cancels the threads if this future is dropped before both sides have ended.
        let mut guard = CancelTransferOnDrop(Some(Arc::clone(control)));
        let alternative = alternative.map(|targets| self.alternative_addresses(targets, &settings));
        let data = start_data_side(
            local_end,
            channel,
            alternative,
            settings,
            Arc::clone(control),
        );
        let (data_result, final_reply) = self
            .run_both_sides(RunningExchange {
                data,
                when_sent,
                final_reply,
                has_begun: wait_for_start,
                control,
                reply_sinks,
                sizes,
            })
            .await;
        guard.0 = None;
        // SBUF replies may follow the final one; without a final reply the session is lost anyway.
        if matches!(&final_reply, Some(Ok(_))) {
            self.control.drain_sbuf_replies().await;
        }
        let Some(data_result) = data_result else {
            self.control.abandon();
            return Err(FailedTransfer::data_thread_lost(self.name(), operation));
        };
        self.conclude_exchange(data_result, final_reply, operation)
    }

    /// Combines the results of both sides and decides whether the data connections are kept.
    fn conclude_exchange(
        &mut self,
        data_result: DataResult,
        final_reply: Option<Result<Reply, Failure>>,
        operation: &Operation,
    ) -> Result<CompletedExchange, FailedTransfer> {
        if let Some(host) = data_result.alternative_host {
            self.set_data_host(host);
        }
        if data_result.closed_early {
            return self.conclude_early_close(data_result, final_reply.as_ref(), operation);
        }
        let answered = matches!(&final_reply, Some(Ok(_)));
        let reply = match &final_reply {
            Some(Ok(reply)) => Some(reply.clone()),
            _ => None,
        };
        let remark = reply.as_ref().and_then(|reply| self.remark_of_reply(reply));
        let is_striped = data_result.channel.is_striped();
        let outcome =
            outcome::combine_results(self.name(), operation, data_result.result, final_reply);
        if outcome.is_ok() {
            self.data_channel = Some(data_result.channel);
            self.planner.on_transferred();
        } else {
            self.planner.on_channel_lost();
            if !answered {
                // The final reply may still arrive later and would be taken for another command's.
                self.control.abandon();
            }
        }
        outcome.map(|report| {
            let mut completed = CompletedExchange::new(report, remark, reply);
            completed
                .remarks
                .extend(is_striped.then(|| self.remark_of_stripes()));
            completed
        })
    }

    fn alternative_addresses(
        &self,
        targets: StripeAddresses,
        settings: &TransferSettings,
    ) -> AlternativeAddresses {
        let host = targets.first().ip();
        let drs = self.drs_endpoint_at(host);
        AlternativeAddresses {
            targets,
            local: self.local_address_for(host),
            drs: drs.filter(|_| settings.drs.is_some()),
        }
    }

    /// The result when this end closed the data connection.
    fn conclude_early_close(
        &mut self,
        data_result: DataResult,
        final_reply: Option<&Result<Reply, Failure>>,
        operation: &Operation,
    ) -> Result<CompletedExchange, FailedTransfer> {
        self.planner.on_channel_lost();
        // An empty part is complete from the start; only the server knows whether the file exists.
        if data_result
            .result
            .as_ref()
            .is_ok_and(|report| report.evidence.bytes == 0)
            && let Some(Ok(reply)) = final_reply
            && matches!(
                refusal_cause(reply),
                RefusalCause::Missing | RefusalCause::Denied
            )
        {
            return Err(outcome::refused_by_server(
                self.name(),
                operation,
                reply.clone(),
            ));
        }
        // Any other reply to the closed connection (226, 426, 451) has no meaning.
        data_result
            .result
            .map(|report| CompletedExchange::new(report, None, None))
            .map_err(|error| outcome::data_side_error(self.name(), operation, &error))
    }

    /// Waits for the reply that says whether the transfer begins, or until a data connection waits
    /// in the listener `arrivals`. Returns the reply if it is the final one.
    async fn wait_for_start_reply(
        &mut self,
        operation: &Operation,
        reply_sinks: ReplySinks<'_>,
        arrivals: Option<OwnedFd>,
    ) -> Result<Option<Result<Reply, Failure>>, FailedTransfer> {
        let reply_timeout = self.control.reply_timeout();
        let first = tokio::select! {
            biased;
            first = timeout(reply_timeout, self.control.next_reply()) => first,
            () = wait_for_arrival(arrivals) => return Ok(None),
        };
        let Ok(first) = first else {
            self.control.abandon();
            let reason = Sentence::from(format!("{} did not start to ", self.name()))
                .operation(operation)
                .words(format_args!(
                    " within {} s: most likely it cannot connect to this machine (a firewall or address translation is \
                     between)",
                    reply_timeout.as_secs()
                ));
            return Err(Failure::unreachable(reason).advise("use --mode s").into());
        };
        match first {
            Ok(reply) if reply.is_preliminary() => {
                reply_sinks.record_reply(&reply);
                Ok(None)
            }
            Ok(reply) if reply.is_success() => Ok(Some(Ok(reply))),
            Ok(reply) => {
                self.planner.on_channel_lost();
                let mut failed = outcome::refused_by_server(self.name(), operation, reply);
                failed.refused_before_data = true;
                failed.disputed = false;
                Err(failed)
            }
            Err(lost) => Err(lost.into()),
        }
    }

    /// The next reply after the data side has ended, or `early_reply` if none follows that.
    async fn reply_after_data(
        &mut self,
        limit: Duration,
        early_reply: Option<Reply>,
    ) -> Result<Reply, Failure> {
        let Some(early_reply) = early_reply else {
            return self.control.wait_for_reply_within(limit).await;
        };
        let limit = limit.min(REPLY_AFTER_EARLY_ONE);
        match timeout(limit, self.control.next_reply()).await {
            Ok(reply) => reply,
            Err(_) => Ok(early_reply),
        }
    }

    /// Waits for both sides: the result of the data side and the final reply. Each side's failure
    /// ends the other.
    async fn run_both_sides(
        &mut self,
        running: RunningExchange<'_>,
    ) -> (Option<DataResult>, Option<Result<Reply, Failure>>) {
        let RunningExchange {
            mut data,
            when_sent,
            mut final_reply,
            mut has_begun,
            control,
            reply_sinks,
            mut sizes,
        } = running;
        let mut data_result: Option<DataResult> = None;
        // Limits preliminary replies after the data side has ended. Before that, the data side's
        // own limits end the transfer.
        let mut marker_rate = MarkerRateLimit::new();
        let mut early_reply = None;
        loop {
            let reply = match (&data_result, &final_reply) {
                (Some(_), Some(_)) => return (data_result, final_reply),
                (None, Some(_)) => {
                    // This wait is bounded: after a failed reply the data side is cancelled,
                    // otherwise it has its own stall timeout.
                    return ((&mut data).await.ok(), final_reply);
                }
                (Some(done), None) => match final_reply_timeout(done, self.control.reply_timeout())
                {
                    Some(limit) => self.reply_after_data(limit, early_reply.take()).await,
                    None => return (data_result, None),
                },
                (None, None) => tokio::select! {
                    result = &mut data => match result {
                        Ok(done) => {
                            let next = done.result.as_ref().ok().zip(when_sent);
                            if let Some(command) = next.and_then(|(report, next)| next(report))
                                && let Err(lost) = self.control.prefetch(&command).await
                            {
                                final_reply = Some(Err(lost));
                            }
                            data_result = Some(done);
                            continue;
                        }
                        // The thread panicked, and its data connections are closed.
                        Err(_) => return (None, None),
                    },
                    reply = self.control.next_reply() => reply,
                    bytes = sizes.next_size() => match self.control.send_buffer_size(bytes).await {
                        Ok(()) => continue,
                        Err(lost) => Err(lost),
                    },
                },
            };
            match reply {
                // Perhaps of an earlier command: a transfer begins with 125 or 150, or ends after its data.
                Ok(reply)
                    if reply.is_success()
                        && !std::mem::replace(&mut has_begun, true)
                        && data_result.is_none()
                        && self.control.awaits_nothing() =>
                {
                    early_reply = Some(reply);
                }
                Ok(reply) if reply.is_preliminary() => {
                    has_begun = true;
                    reply_sinks.record_reply(&reply);
                    if data_result.is_some() && marker_rate.count_marker() {
                        final_reply = Some(Err(self.control.too_many_markers_failure()));
                    }
                }
                other => {
                    if may_echo_local_failure(&other) && data_result.is_none() {
                        // A 426 may be the server's view of an error on this side, such as a full
                        // disk; that error is the better message.
                        match timeout(LOCAL_ERROR_WAIT, &mut data).await {
                            Ok(Ok(done)) => data_result = Some(done),
                            Ok(Err(_)) => return (None, None),
                            Err(_) => {}
                        }
                    }
                    // The final reply is a refusal or the session is lost: the data side must not
                    // wait for more bytes.
                    if !matches!(&other, Ok(reply) if reply.is_success()) {
                        control.cancel();
                    }
                    final_reply = Some(other);
                }
            }
        }
    }
}

/// Waits until a connection waits in a listener; without one for ever.
async fn wait_for_arrival(listener: Option<OwnedFd>) {
    let listener = listener.map(ReadableWait::new);
    if let Some(Ok(listener)) = listener
        && listener.readable().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// How long to wait for the final reply after the data side has ended; `None` if its failure is
/// local and a reply adds nothing.
fn final_reply_timeout(data_result: &DataResult, reply_timeout: Duration) -> Option<Duration> {
    match &data_result.result {
        Ok(_) if data_result.closed_early => Some(reply_timeout.min(FINAL_REPLY_AFTER_CLOSE)),
        Ok(_) => Some(reply_timeout),
        Err(DataError::Aborted) => None,
        Err(error) if outcome::is_local_error(error) => None,
        Err(_) => Some(reply_timeout.min(FINAL_REPLY_AFTER_FAILURE)),
    }
}

/// Whether a final reply may only report that this end broke the data connection.
fn may_echo_local_failure(final_reply: &Result<Reply, Failure>) -> bool {
    matches!(final_reply, Ok(reply) if !reply.is_success()
        && matches!(refusal_cause(reply), RefusalCause::Lost | RefusalCause::Busy))
}

/// Cancels the blocking side when the transfer's future is dropped: threads do not stop by
/// themselves.
struct CancelTransferOnDrop(Option<Arc<TransferControl>>);

impl Drop for CancelTransferOnDrop {
    fn drop(&mut self) {
        if let Some(control) = &self.0 {
            control.cancel();
        }
    }
}
