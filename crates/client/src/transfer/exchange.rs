//! One transfer whose command is sent: data and replies side by side.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use data::channel::SessionDataChannel;
use data::drs::DrsEndpoint;
use data::error::DataError;
use data::job::{TransferControl, TransferReport, TransferSettings};
use data::recv::{self, ReceivePlan};
use data::send::{self, SendPlan};
use data::store::{Sink, Source};
use proto::reply::Reply;
use proto::stripes::StripeAddresses;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tune::Evidence;
use tune::limiter::Role;

use super::HostRemark;
use super::control_messages::{AnnouncedSizeFollower, ReplySinks, SizesToAnnounce};
use super::outcome::{self, FailedTransfer};
use crate::CopyFailure;
use crate::session::ClientSession;
use crate::session::control::{MarkerRateLimit, unreachable_failure};
use crate::session::replies::{RefusalCause, refusal_cause};

/// Longest wait for the server's own words after the data side failed.
const FINAL_REPLY_AFTER_FAILURE: Duration = Duration::from_secs(10);
/// Longest wait for the server's word on a data connection that this end closed because it had
/// enough. Some say nothing more (Pure-FTPd's last line then has code 150): a new session costs
/// less than waiting for them.
const FINAL_REPLY_AFTER_CLOSE: Duration = Duration::from_secs(1);
/// How long the data side may take to tell why the server lost the data connection: the reason is
/// often here, and the server's reply is only its echo.
const LOCAL_ERROR_WAIT: Duration = Duration::from_millis(500);

/// Task of this end.
#[derive(Debug)]
pub(crate) enum LocalTransfer {
    /// Takes them.
    Receive {
        /// Where to.
        sink: Arc<dyn Sink>,
        /// Offsets.
        plan: ReceivePlan,
        /// The server goes on past the plan's limit, so that this end closes the connection.
        server_overruns: bool,
    },
    /// Gives them.
    Send {
        /// Where from.
        source: Arc<dyn Source>,
        /// Ranges.
        plan: SendPlan,
    },
}

/// A transfer whose command is sent.
pub(crate) struct TransferExchange<'a> {
    /// This end's part.
    pub(crate) local_end: LocalTransfer,
    /// Of the data side.
    pub(crate) settings: TransferSettings,
    /// Watched and stopped from outside.
    pub(crate) control: &'a Arc<TransferControl>,
    /// Takes what preliminary replies tell.
    pub(crate) reply_sinks: ReplySinks<'a>,
    /// Where to connect if the told addresses do not answer.
    pub(crate) alternative: Option<StripeAddresses>,
    /// Start the data side only when the server begins: connections that it opens wait in the
    /// listener's queue, and a refusal leaves `control` as it was.
    pub(crate) wait_for_start: bool,
    /// `read /x`, for messages.
    pub(crate) doing: &'a str,
}

/// A transfer that ended well.
#[derive(Debug)]
pub(crate) struct CompletedExchange {
    /// This end's report.
    pub(crate) report: TransferReport,
    /// Remarks of both hosts.
    pub(crate) remarks: Vec<HostRemark>,
}

impl CompletedExchange {
    fn new(report: TransferReport, said: Option<HostRemark>) -> Self {
        let here = HostRemark::from_local_report(&report);
        Self {
            report,
            remarks: here.into_iter().chain(said).collect(),
        }
    }
}

/// Result from the blocking thread.
struct DataResult {
    channel: SessionDataChannel,
    result: Result<TransferReport, DataError>,
    /// This end had enough and closed the data connection.
    stopped: bool,
    /// The host of the alternative that was taken.
    elsewhere: Option<IpAddr>,
}

/// Where to connect when the first addresses do not answer.
struct AlternativeAddresses {
    targets: StripeAddresses,
    /// To connect from.
    local: Option<IpAddr>,
    /// The DRS channel follows the data.
    drs: Option<Arc<DrsEndpoint>>,
}

impl ClientSession {
    /// Moves the bytes while the control connection is read, and gives the verdict of both. After
    /// a failure the data connections are gone; the session itself survives only when the server
    /// gave its final reply.
    pub(crate) async fn exchange(
        &mut self,
        exchange: TransferExchange<'_>,
    ) -> Result<CompletedExchange, FailedTransfer> {
        let Some(channel) = self.data_channel.take() else {
            return Err(FailedTransfer::no_data_channel(self.name(), exchange.doing));
        };
        let TransferExchange {
            local_end,
            settings,
            control,
            reply_sinks: told,
            alternative,
            wait_for_start: await_start,
            doing,
        } = exchange;
        let answer = if await_start {
            self.wait_for_start_reply(doing, told).await?
        } else {
            None
        };
        let sends = matches!(local_end, LocalTransfer::Send { .. });
        let follows = AnnouncedSizeFollower::new_if_sending(sends, &settings, control);
        let told = ReplySinks {
            size_follower: follows.as_ref(),
            ..told
        };
        let sizes = SizesToAnnounce::new_if_receiving(sends, &settings, control);
        let mut guard = CancelTransferOnDrop(Some(Arc::clone(control)));
        let alternative = alternative.map(|targets| self.alternative_addresses(targets, &settings));
        let data = start_data_side(
            local_end,
            channel,
            alternative,
            settings,
            Arc::clone(control),
        );
        let (moved, answer) = self
            .run_both_sides(data, answer, control, told, sizes)
            .await;
        guard.0 = None;
        if matches!(&answer, Some(Ok(_))) {
            self.control.drain_sbuf_replies().await;
        }
        let Some(moved) = moved else {
            self.control.abandon();
            return Err(FailedTransfer::data_thread_lost(self.name(), doing));
        };
        self.conclude_exchange(moved, answer, doing)
    }

    /// The verdict of both sides, and what stays of the data connections.
    fn conclude_exchange(
        &mut self,
        moved: DataResult,
        answer: Option<Result<Reply, CopyFailure>>,
        doing: &str,
    ) -> Result<CompletedExchange, FailedTransfer> {
        if let Some(host) = moved.elsewhere {
            self.set_data_host(host);
        }
        if moved.stopped {
            return self.conclude_early_close(moved, answer.as_ref(), doing);
        }
        let answered = matches!(&answer, Some(Ok(_)));
        let said = match &answer {
            Some(Ok(reply)) => self.remark_of_reply(reply),
            _ => None,
        };
        let outcome = outcome::combine_results(self.name(), doing, moved.result, answer);
        if outcome.is_ok() {
            self.data_channel = Some(moved.channel);
            self.planner.on_transferred();
        } else {
            self.planner.on_channel_lost();
            if !answered {
                self.control.abandon();
            }
        }
        outcome.map(|report| CompletedExchange::new(report, said))
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

    /// The verdict when this end closed the data connection.
    fn conclude_early_close(
        &mut self,
        moved: DataResult,
        answer: Option<&Result<Reply, CopyFailure>>,
        doing: &str,
    ) -> Result<CompletedExchange, FailedTransfer> {
        self.planner.on_channel_lost();
        // An empty part is whole from the start; whether there is a file, the server says.
        if moved
            .result
            .as_ref()
            .is_ok_and(|report| report.evidence.bytes == 0)
            && let Some(Ok(reply)) = answer
            && matches!(
                refusal_cause(reply),
                RefusalCause::Missing | RefusalCause::Denied
            )
        {
            return Err(outcome::refused_by_server(
                self.name(),
                doing,
                reply.clone(),
            ));
        }
        // Whatever else the server says of the closed connection (226, 426, 451): it said it.
        moved
            .result
            .map(|report| CompletedExchange::new(report, None))
            .map_err(|error| outcome::data_side_error(self.name(), doing, &error))
    }

    /// The reply that says whether the transfer begins; given back when it is the final one.
    async fn wait_for_start_reply(
        &mut self,
        doing: &str,
        told: ReplySinks<'_>,
    ) -> Result<Option<Result<Reply, CopyFailure>>, FailedTransfer> {
        let patience = self.control.reply_timeout();
        let Ok(first) = timeout(patience, self.control.next_reply()).await else {
            self.control.abandon();
            let message = format!(
                "{} did not begin to {doing} within {} s: most likely it cannot connect to this \
                 machine (a firewall or address translation is between); use --mode s",
                self.name(),
                patience.as_secs()
            );
            return Err(unreachable_failure(message).into());
        };
        match first {
            Ok(reply) if reply.is_preliminary() => {
                told.record_reply(&reply);
                Ok(None)
            }
            Ok(reply) if reply.is_success() => Ok(Some(Ok(reply))),
            Ok(reply) => {
                self.planner.on_channel_lost();
                let mut ended = outcome::refused_by_server(self.name(), doing, reply);
                ended.refused_before_data = true;
                ended.disputed = false;
                Err(ended)
            }
            Err(lost) => Err(lost.into()),
        }
    }

    /// Waits for both ends of the transfer: the data side's result and the final reply. Each
    /// one's failure ends the other.
    async fn run_both_sides(
        &mut self,
        mut data: JoinHandle<DataResult>,
        mut answer: Option<Result<Reply, CopyFailure>>,
        control: &TransferControl,
        told: ReplySinks<'_>,
        mut sizes: SizesToAnnounce,
    ) -> (Option<DataResult>, Option<Result<Reply, CopyFailure>>) {
        let mut moved: Option<DataResult> = None;
        // Preliminary replies since the data is through: until then, the data side's own limits end it.
        let mut late = MarkerRateLimit::new();
        loop {
            let reply = match (&moved, &answer) {
                (Some(_), Some(_)) => return (moved, answer),
                (None, Some(_)) => {
                    // Bounded: a failed answer cancelled it, otherwise it stalls out by itself.
                    return ((&mut data).await.ok(), answer);
                }
                (Some(done), None) => match final_reply_timeout(done, self.control.reply_timeout())
                {
                    Some(limit) => self.control.wait_for_reply_within(limit).await,
                    None => return (moved, None),
                },
                (None, None) => tokio::select! {
                    result = &mut data => match result {
                        Ok(done) => {
                            moved = Some(done);
                            continue;
                        }
                        // The thread is gone, and its data connections with it.
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
                Ok(reply) if reply.is_preliminary() => {
                    told.record_reply(&reply);
                    if moved.is_some() && late.is_exceeded() {
                        answer = Some(Err(self.control.too_many_markers_failure()));
                    }
                }
                other => {
                    if may_echo_local_failure(&other) && moved.is_none() {
                        match timeout(LOCAL_ERROR_WAIT, &mut data).await {
                            Ok(Ok(done)) => moved = Some(done),
                            Ok(Err(_)) => return (None, None),
                            Err(_) => {}
                        }
                    }
                    if !matches!(&other, Ok(reply) if reply.is_success()) {
                        control.cancel();
                    }
                    answer = Some(other);
                }
            }
        }
    }
}

/// How long the final reply is waited for once the data side is done; `None`: not at all, since
/// the failure is this end's own.
fn final_reply_timeout(moved: &DataResult, patience: Duration) -> Option<Duration> {
    match &moved.result {
        Ok(_) if moved.stopped => Some(patience.min(FINAL_REPLY_AFTER_CLOSE)),
        Ok(_) => Some(patience),
        Err(DataError::Aborted) => None,
        Err(error) if outcome::is_local_error(error) => None,
        Err(_) => Some(patience.min(FINAL_REPLY_AFTER_FAILURE)),
    }
}

/// Whether a final reply may only say that this end broke the data connection.
fn may_echo_local_failure(answer: &Result<Reply, CopyFailure>) -> bool {
    matches!(answer, Ok(reply) if !reply.is_success()
        && matches!(refusal_cause(reply), RefusalCause::Lost | RefusalCause::Busy))
}

fn start_data_side(
    local_end: LocalTransfer,
    channel: SessionDataChannel,
    alternative: Option<AlternativeAddresses>,
    settings: TransferSettings,
    control: Arc<TransferControl>,
) -> JoinHandle<DataResult> {
    tokio::task::spawn_blocking(move || {
        let (mut channel, mut settings) = (channel, settings);
        let mut result = local_end.run(&mut channel, &settings, &control);
        let mut elsewhere = None;
        if let (Err(DataError::Connect { .. }), Some(other)) = (&result, alternative) {
            channel =
                SessionDataChannel::connect_to(other.targets.as_slice().to_vec(), other.local);
            settings.drs = other.drs;
            elsewhere = Some(other.targets.first().ip());
            result = local_end.run(&mut channel, &settings, &control);
        }
        let part = local_end.completed_part(&result, &control);
        let stopped = part.is_some();
        if let Some(report) = part {
            result = Ok(report);
        }
        DataResult {
            channel,
            result,
            stopped,
            elsewhere,
        }
    })
}

impl LocalTransfer {
    fn run(
        &self,
        channel: &mut SessionDataChannel,
        settings: &TransferSettings,
        control: &Arc<TransferControl>,
    ) -> Result<TransferReport, DataError> {
        match self {
            Self::Receive { sink, plan, .. } => recv::run(channel, sink, plan, settings, control),
            Self::Send { source, plan } => send::run(channel, source, plan, settings, control),
        }
    }

    /// The report of a part that is whole although the transfer did not end well: the server went
    /// on past the part's end.
    fn completed_part(
        &self,
        result: &Result<TransferReport, DataError>,
        control: &TransferControl,
    ) -> Option<TransferReport> {
        let Self::Receive {
            plan,
            server_overruns: true,
            ..
        } = self
        else {
            return None;
        };
        let (start, end) = (plan.stream_start, plan.limit?);
        let stored = control.stored();
        let beyond = matches!(result, Err(DataError::OutOfRange { .. }));
        if !beyond || !stored.contains(start, end) {
            return None;
        }
        Some(TransferReport {
            evidence: Evidence {
                bytes: end - start,
                ..Evidence::for_role(Role::Receiver)
            },
            stored,
            ..TransferReport::default()
        })
    }
}

/// Stops the blocking side when the transfer's future is dropped: threads do not stop by
/// themselves.
struct CancelTransferOnDrop(Option<Arc<TransferControl>>);

impl Drop for CancelTransferOnDrop {
    fn drop(&mut self) {
        if let Some(control) = &self.0 {
            control.cancel();
        }
    }
}
