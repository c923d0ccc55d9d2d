//! One transfer whose command is sent: data and replies side by side.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use data::channel::Channel;
use data::drs::Endpoint;
use data::error::DataError;
use data::job::{Control, Report, Settings};
use data::recv::{self, RecvPlan};
use data::send::{self, SendPlan};
use data::store::{Sink, Source};
use proto::reply::Reply;
use proto::stripes::StripeAddresses;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tune::Evidence;
use tune::limiter::Role;

use super::Remark;
use super::told::{Follows, Sizes, Told};
use super::verdict::{self, Ended};
use crate::Failure;
use crate::session::Session;
use crate::session::control::{MarkerPace, unreachable};
use crate::session::replies::{Cause, cause};

/// Longest wait for the server's own words after the data side failed.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// Longest wait for the server's word on a data connection that this end closed because it had
/// enough. Some say nothing more (Pure-FTPd's last line then has code 150): a new session costs
/// less than waiting for them.
const PARTING: Duration = Duration::from_secs(1);
/// How long the data side may take to tell why the server lost the data connection: the reason is
/// often here, and the server's reply is only its echo.
const OWN_REASON: Duration = Duration::from_millis(500);

/// Task of this end.
#[derive(Debug)]
pub(crate) enum LocalEnd {
    /// Takes them.
    Receive {
        /// Where to.
        sink: Arc<dyn Sink>,
        /// Offsets.
        plan: RecvPlan,
        /// The server goes on past the plan's limit, so that this end closes the connection.
        overruns: bool,
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
pub(crate) struct Exchange<'a> {
    /// This end's part.
    pub(crate) local_end: LocalEnd,
    /// Of the data side.
    pub(crate) settings: Settings,
    /// Watched and stopped from outside.
    pub(crate) control: &'a Arc<Control>,
    /// Takes what preliminary replies tell.
    pub(crate) told: Told<'a>,
    /// Where to connect if the told addresses do not answer.
    pub(crate) alternative: Option<StripeAddresses>,
    /// Start the data side only when the server begins: connections that it opens wait in the
    /// listener's queue, and a refusal leaves `control` as it was.
    pub(crate) await_start: bool,
    /// `read /x`, for messages.
    pub(crate) doing: &'a str,
}

/// A transfer that ended well.
#[derive(Debug)]
pub(crate) struct Done {
    /// This end's report.
    pub(crate) report: Report,
    /// Remarks of both hosts.
    pub(crate) remarks: Vec<Remark>,
}

impl Done {
    fn new(report: Report, said: Option<Remark>) -> Self {
        let here = Remark::of_this_machine(&report);
        Self {
            report,
            remarks: here.into_iter().chain(said).collect(),
        }
    }
}

/// Result from the blocking thread.
struct Moved {
    channel: Channel,
    result: Result<Report, DataError>,
    /// This end had enough and closed the data connection.
    stopped: bool,
    /// The host of the alternative that was taken.
    elsewhere: Option<IpAddr>,
}

/// Where to connect when the first addresses do not answer.
struct Alternative {
    targets: StripeAddresses,
    /// To connect from.
    local: Option<IpAddr>,
    /// The DRS channel follows the data.
    drs: Option<Arc<Endpoint>>,
}

impl Session {
    /// Moves the bytes while the control connection is read, and gives the verdict of both. After
    /// a failure the data connections are gone; the session itself survives only when the server
    /// gave its final reply.
    pub(crate) async fn exchange(&mut self, exchange: Exchange<'_>) -> Result<Done, Ended> {
        let Some(channel) = self.channel.take() else {
            return Err(Ended::no_channel(self.name(), exchange.doing));
        };
        let Exchange {
            local_end,
            settings,
            control,
            told,
            alternative,
            await_start,
            doing,
        } = exchange;
        let answer = if await_start {
            self.first_reply(doing, told).await?
        } else {
            None
        };
        let sends = matches!(local_end, LocalEnd::Send { .. });
        let follows = Follows::of(sends, &settings, control);
        let told = Told {
            follows: follows.as_ref(),
            ..told
        };
        let sizes = Sizes::of(sends, &settings, control);
        let mut guard = CancelOnDrop(Some(Arc::clone(control)));
        let alternative = alternative.map(|targets| self.alternative(targets, &settings));
        let data = start(
            local_end,
            channel,
            alternative,
            settings,
            Arc::clone(control),
        );
        let (moved, answer) = self.race(data, answer, control, told, sizes).await;
        guard.0 = None;
        if matches!(&answer, Some(Ok(_))) {
            self.control.settle().await;
        }
        let Some(moved) = moved else {
            self.control.abandon();
            return Err(Ended::thread_lost(self.name(), doing));
        };
        self.ended(moved, answer, doing)
    }

    /// The verdict of both sides, and what stays of the data connections.
    fn ended(
        &mut self,
        moved: Moved,
        answer: Option<Result<Reply, Failure>>,
        doing: &str,
    ) -> Result<Done, Ended> {
        if let Some(host) = moved.elsewhere {
            self.data_goes_to(host);
        }
        if moved.stopped {
            return self.had_enough(moved, answer.as_ref(), doing);
        }
        let answered = matches!(&answer, Some(Ok(_)));
        let said = match &answer {
            Some(Ok(reply)) => self.remark(reply),
            _ => None,
        };
        let outcome = verdict::of(self.name(), doing, moved.result, answer);
        if outcome.is_ok() {
            self.channel = Some(moved.channel);
            self.dialogue.transferred();
        } else {
            self.dialogue.channel_lost();
            if !answered {
                self.control.abandon();
            }
        }
        outcome.map(|report| Done::new(report, said))
    }

    fn alternative(&self, targets: StripeAddresses, settings: &Settings) -> Alternative {
        let host = targets.first().ip();
        let drs = self.drs_at(host);
        Alternative {
            targets,
            local: self.local_for(host),
            drs: drs.filter(|_| settings.drs.is_some()),
        }
    }

    /// The verdict when this end closed the data connection.
    fn had_enough(
        &mut self,
        moved: Moved,
        answer: Option<&Result<Reply, Failure>>,
        doing: &str,
    ) -> Result<Done, Ended> {
        self.dialogue.channel_lost();
        // An empty part is whole from the start; whether there is a file, the server says.
        if moved
            .result
            .as_ref()
            .is_ok_and(|report| report.evidence.bytes == 0)
            && let Some(Ok(reply)) = answer
            && matches!(cause(reply), Cause::Missing | Cause::Denied)
        {
            return Err(verdict::refused(self.name(), doing, reply.clone()));
        }
        // Whatever else the server says of the closed connection (226, 426, 451): it said it.
        moved
            .result
            .map(|report| Done::new(report, None))
            .map_err(|error| verdict::broken(self.name(), doing, &error))
    }

    /// The reply that says whether the transfer begins; given back when it is the final one.
    async fn first_reply(
        &mut self,
        doing: &str,
        told: Told<'_>,
    ) -> Result<Option<Result<Reply, Failure>>, Ended> {
        let patience = self.control.patience();
        let Ok(first) = timeout(patience, self.control.next_reply()).await else {
            self.control.abandon();
            let message = format!(
                "{} did not begin to {doing} within {} s: most likely it cannot connect to this \
                 machine (a firewall or address translation is between); use --mode s",
                self.name(),
                patience.as_secs()
            );
            return Err(unreachable(message).into());
        };
        match first {
            Ok(reply) if reply.is_preliminary() => {
                told.note(&reply);
                Ok(None)
            }
            Ok(reply) if reply.is_success() => Ok(Some(Ok(reply))),
            Ok(reply) => {
                self.dialogue.channel_lost();
                let mut ended = verdict::refused(self.name(), doing, reply);
                ended.before_data = true;
                ended.disputed = false;
                Err(ended)
            }
            Err(lost) => Err(lost.into()),
        }
    }

    /// Waits for both ends of the transfer: the data side's result and the final reply. Each
    /// one's failure ends the other.
    async fn race(
        &mut self,
        mut data: JoinHandle<Moved>,
        mut answer: Option<Result<Reply, Failure>>,
        control: &Control,
        told: Told<'_>,
        mut sizes: Sizes,
    ) -> (Option<Moved>, Option<Result<Reply, Failure>>) {
        let mut moved: Option<Moved> = None;
        // Preliminary replies since the data is through: until then, the data side's own limits end it.
        let mut late = MarkerPace::new();
        loop {
            let reply = match (&moved, &answer) {
                (Some(_), Some(_)) => return (moved, answer),
                (None, Some(_)) => {
                    // Bounded: a failed answer cancelled it, otherwise it stalls out by itself.
                    return ((&mut data).await.ok(), answer);
                }
                (Some(done), None) => match patience_after(done, self.control.patience()) {
                    Some(limit) => self.control.reply_within(limit).await,
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
                    bytes = sizes.next() => match self.control.tell_buffer(bytes).await {
                        Ok(()) => continue,
                        Err(lost) => Err(lost),
                    },
                },
            };
            match reply {
                Ok(reply) if reply.is_preliminary() => {
                    told.note(&reply);
                    if moved.is_some() && late.too_many() {
                        answer = Some(Err(self.control.endless_markers()));
                    }
                }
                other => {
                    if echoes(&other) && moved.is_none() {
                        match timeout(OWN_REASON, &mut data).await {
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
fn patience_after(moved: &Moved, patience: Duration) -> Option<Duration> {
    match &moved.result {
        Ok(_) if moved.stopped => Some(patience.min(PARTING)),
        Ok(_) => Some(patience),
        Err(DataError::Aborted) => None,
        Err(error) if verdict::is_local(error) => None,
        Err(_) => Some(patience.min(LAST_WORDS)),
    }
}

/// Whether a final reply may only say that this end broke the data connection.
fn echoes(answer: &Result<Reply, Failure>) -> bool {
    matches!(answer, Ok(reply) if !reply.is_success()
        && matches!(cause(reply), Cause::Lost | Cause::Busy))
}

fn start(
    local_end: LocalEnd,
    channel: Channel,
    alternative: Option<Alternative>,
    settings: Settings,
    control: Arc<Control>,
) -> JoinHandle<Moved> {
    tokio::task::spawn_blocking(move || {
        let (mut channel, mut settings) = (channel, settings);
        let mut result = local_end.run(&mut channel, &settings, &control);
        let mut elsewhere = None;
        if let (Err(DataError::Connect { .. }), Some(other)) = (&result, alternative) {
            channel = Channel::connect_to(other.targets.as_slice().to_vec(), other.local);
            settings.drs = other.drs;
            elsewhere = Some(other.targets.first().ip());
            result = local_end.run(&mut channel, &settings, &control);
        }
        let part = local_end.whole_part(&result, &control);
        let stopped = part.is_some();
        if let Some(report) = part {
            result = Ok(report);
        }
        Moved {
            channel,
            result,
            stopped,
            elsewhere,
        }
    })
}

impl LocalEnd {
    fn run(
        &self,
        channel: &mut Channel,
        settings: &Settings,
        control: &Arc<Control>,
    ) -> Result<Report, DataError> {
        match self {
            Self::Receive { sink, plan, .. } => recv::run(channel, sink, plan, settings, control),
            Self::Send { source, plan } => send::run(channel, source, plan, settings, control),
        }
    }

    /// The report of a part that is whole although the transfer did not end well: the server went
    /// on past the part's end.
    fn whole_part(&self, result: &Result<Report, DataError>, control: &Control) -> Option<Report> {
        let Self::Receive {
            plan,
            overruns: true,
            ..
        } = self
        else {
            return None;
        };
        let (start, end) = (plan.stream_start, plan.limit?);
        let stored = control.stored();
        let beyond = matches!(result, Err(DataError::Outside { .. }));
        if !beyond || !stored.contains(start, end) {
            return None;
        }
        Some(Report {
            evidence: Evidence {
                bytes: end - start,
                ..Evidence::of(Role::Receiver)
            },
            stored,
            ..Report::default()
        })
    }
}

/// Stops the blocking side when the transfer's future is dropped: threads do not stop by
/// themselves.
struct CancelOnDrop(Option<Arc<Control>>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(control) = &self.0 {
            control.cancel();
        }
    }
}
