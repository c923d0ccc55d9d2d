//! The worker's loop: one step after the other, each of which may fail without harm.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use units::Exit;

use crate::decisions::fleet::FleetState;
use crate::decisions::lease::LeaseTime;
use crate::decisions::retry::{AttemptEnd, StopReason};
use crate::guard::{STOP_ORDER, boot_time, deadline_order};
use crate::store::{
    ClaimedJob, HeldJob, JobResult, QueueError, RenewalAnswer, TransferQueue, WorkerIdentity,
};

use super::attempt::{AttemptOrder, EndedAttempt, RunningAttempt};
use super::credentials::Credentials;
use super::events::shortened;
use super::state::{StateError, WorkerState};

/// Pause after a failure of the database: the first, and the longest.
const AWAY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));
/// Notices within this time count as one.
const NOTICES: Duration = Duration::from_millis(50);
/// Shortest time between two renewals because of notices.
const RENEW_ON_NOTICE: Duration = Duration::from_secs(1);

/// Settings of a worker.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// Its name, for people.
    pub name: String,
    /// Jobs at a time.
    pub slots: usize,
    /// Length of leases.
    pub lease: LeaseTime,
    /// Time after which it looks for jobs also without a notice.
    pub poll: Duration,
    /// State directory.
    pub state: PathBuf,
    /// The program `longhaul`.
    pub program: PathBuf,
    /// Credentials by name.
    pub credentials: Credentials,
}

/// A worker.
#[derive(Debug)]
pub struct Worker {
    settings: WorkerSettings,
    queue: TransferQueue,
    identity: WorkerIdentity,
    state: WorkerState,
    credentials: Arc<Credentials>,
    running: BTreeMap<i64, WorkerJob>,
    /// Results that the database does not have.
    results: VecDeque<JobResult>,
    ended: mpsc::UnboundedReceiver<EndedAttempt>,
    /// Given to each attempt.
    ends: mpsc::UnboundedSender<EndedAttempt>,
    /// The tables are there, and jobs of earlier processes were given back.
    is_prepared: bool,
    /// When leases were renewed last, time since the machine started.
    renewed: Option<Duration>,
    /// No job is taken any more.
    is_ending: bool,
    /// The trouble was told.
    is_told: bool,
}

/// A job that runs here.
#[derive(Debug)]
struct WorkerJob {
    number: u32,
    endpoints: Vec<String>,
    own_rate: Option<u64>,
    rate: Option<u64>,
    attempt: RunningAttempt,
    stopped: Option<StopReason>,
}

impl Worker {
    /// Takes the state directory. The database is not asked yet: it may come later.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub async fn open(settings: WorkerSettings, queue: TransferQueue) -> Result<Self, StateError> {
        let (state, results) = WorkerState::open(&settings.state).await?;
        let identity = state.identity(&settings.name)?;
        let (ends, ended) = mpsc::unbounded_channel();
        Ok(Self {
            credentials: Arc::new(settings.credentials.clone()),
            settings,
            queue,
            identity,
            state,
            running: BTreeMap::new(),
            results: results.into(),
            ended,
            ends,
            is_prepared: false,
            renewed: None,
            is_ending: false,
            is_told: false,
        })
    }

    /// Works until `stop` completes; then the children are told to end, and their jobs go back into the queue.
    /// `ready` is called when the database was reached for the first time.
    pub async fn run(mut self, ready: impl FnOnce(), stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let mut ready = Some(ready);
        let changed = Arc::new(Notify::new());
        let listening = tokio::spawn(listen(self.queue.clone(), Arc::clone(&changed)));
        let mut pause = AWAY.0;
        loop {
            let stepped = self.step().await;
            let wait = match &stepped {
                Ok(()) => {
                    pause = AWAY.0;
                    if std::mem::take(&mut self.is_told) {
                        tracing::info!("the database is available again");
                    }
                    if let Some(ready) = ready.take() {
                        ready();
                    }
                    self.until_next_step()
                }
                Err(error) => {
                    self.tell(error);
                    pause = (pause * 2).min(AWAY.1);
                    pause
                }
            };
            if self.is_ending
                && self.running.is_empty()
                && (self.results.is_empty() || stepped.is_err())
            {
                break;
            }
            tokio::select! {
                ended = self.ended.recv() => self.note_end(ended),
                () = changed.notified() => self.note_notice().await,
                () = tokio::time::sleep(wait) => {}
                () = stop.as_mut(), if !self.is_ending => self.begin_end(),
            }
            while let Ok(ended) = self.ended.try_recv() {
                self.note_end(Some(ended));
            }
        }
        listening.abort();
        if !self.results.is_empty() {
            tracing::warn!(
                results = self.results.len(),
                "the database is away at the end: results wait in {} for the next worker there",
                self.settings.state.display()
            );
        }
        // Without an answer the worker is forgotten after the time of a lease.
        let _ = self.queue.leave(&self.identity).await;
        self.queue.close().await;
    }

    /// Writes results, renews leases and takes jobs.
    async fn step(&mut self) -> Result<(), QueueError> {
        if !self.is_prepared {
            self.queue.prepare().await?;
        }
        while let Some(result) = self.results.front() {
            self.queue.finish(result).await?;
            self.state.forget(result);
            self.results.pop_front();
        }
        if !self.is_prepared {
            // After the results: those jobs are not lost.
            let released = self.queue.release_earlier(&self.identity).await?;
            if released > 0 {
                tracing::info!(
                    jobs = released,
                    "jobs of an earlier worker here are in the queue again"
                );
            }
            self.is_prepared = true;
        }
        if self.until_renewal().is_zero() {
            self.renew().await?;
        }
        let free = self.settings.slots.saturating_sub(self.running.len());
        if free > 0 && !self.is_ending {
            let asked = boot_time();
            let lease = self.settings.lease;
            let jobs = self.queue.claim(&self.identity, free, lease).await?;
            for job in jobs {
                self.start(job, asked);
            }
        }
        Ok(())
    }

    fn until_renewal(&self) -> Duration {
        let Some(renewed) = self.renewed else {
            return Duration::ZERO;
        };
        let every = self.settings.lease.renew_every();
        (renewed + every).saturating_sub(boot_time())
    }

    fn until_next_step(&self) -> Duration {
        match self.results.is_empty() {
            true => self.until_renewal().min(self.settings.poll),
            false => Duration::ZERO,
        }
    }

    async fn renew(&mut self) -> Result<(), QueueError> {
        let held: Vec<HeldJob> = self
            .running
            .iter()
            .map(|(id, job)| HeldJob {
                id: *id,
                number: job.number,
                progress: job.attempt.report().progress,
            })
            .collect();
        let asked = boot_time();
        let answer = self
            .queue
            .renew(
                &self.identity,
                self.settings.slots,
                self.settings.lease,
                &held,
            )
            .await?;
        self.renewed = Some(asked);
        self.obey(&answer, asked);
        Ok(())
    }

    /// Does what the answer to a renewal asks for.
    fn obey(&mut self, answer: &RenewalAnswer, asked: Duration) {
        let deadlines = self.settings.lease.deadlines(asked);
        for (id, job) in &mut self.running {
            match answer.kept.get(id) {
                Some(true) => job.stop(StopReason::Cancelled),
                Some(false) => {
                    job.attempt.order(deadline_order(deadlines));
                    job.set_rate(*id, &answer.fleet, &self.state);
                    if !answer.fleet.may_go_on(&job.endpoints) {
                        job.stop(StopReason::Hours);
                    }
                }
                // Its guard ends it in time; there is no reason to wait for that.
                None => job.stop(StopReason::Lease),
            }
        }
    }

    /// Starts an attempt of a job whose lease was asked for at `asked`.
    fn start(&mut self, job: ClaimedJob, asked: Duration) {
        let copy = match job.copy {
            Ok(copy) => copy,
            Err(error) => {
                let error = format!("the job is not understood: {error}");
                let usage = AttemptEnd::Exited(Exit::Usage as u8);
                return self.keep(self.unstarted(job.id, job.number, usage, error));
            }
        };
        if let Err(error) = self.state.write_rate(job.id, job.number, job.rate) {
            let end = AttemptEnd::NotStarted;
            return self.keep(self.unstarted(job.id, job.number, end, error.to_string()));
        }
        let rate_file = self.state.rate_file(job.id, job.number);
        let words = copy.words(
            job.sessions,
            &rate_file.display().to_string(),
            job.rate.is_some(),
        );
        tracing::info!(job = job.id, attempt = job.number, "a job begins");
        let order = AttemptOrder {
            id: job.id,
            program: self.settings.program.clone(),
            words,
            credential: copy.parts().credential.clone(),
            lock: self.state.attempt_lock(job.id, job.number),
            deadlines: self.settings.lease.deadlines(asked),
        };
        let credentials = Arc::clone(&self.credentials);
        let running = WorkerJob {
            number: job.number,
            endpoints: copy.endpoints().to_vec(),
            own_rate: copy.parts().rate,
            rate: job.rate,
            attempt: RunningAttempt::start(order, credentials, self.ends.clone()),
            stopped: None,
        };
        self.running.insert(job.id, running);
    }

    fn unstarted(&self, id: i64, number: u32, end: AttemptEnd, error: String) -> JobResult {
        JobResult {
            id,
            number,
            session: self.identity.session.clone(),
            end,
            error: Some(error),
            bytes: None,
            files: None,
            seconds: None,
            verified: None,
        }
    }

    fn note_end(&mut self, ended: Option<EndedAttempt>) {
        let Some(ended) = ended else { return };
        let Some(job) = self.running.remove(&ended.id) else {
            return;
        };
        let (end, error) = end_of(&ended, job.stopped);
        tracing::info!(
            job = ended.id,
            attempt = job.number,
            ?end,
            "a job's attempt ended"
        );
        let report = ended.report;
        self.keep(JobResult {
            id: ended.id,
            number: job.number,
            session: self.identity.session.clone(),
            end,
            error,
            bytes: report.bytes,
            files: report.files,
            seconds: report.seconds,
            verified: report.verified,
        });
    }

    /// Keeps a result on the disk until the database has it.
    fn keep(&mut self, result: JobResult) {
        if let Err(error) = self.state.keep(&result) {
            tracing::warn!("a result is in memory alone: {error}");
        }
        self.results.push_back(result);
    }

    async fn note_notice(&mut self) {
        tokio::time::sleep(NOTICES).await;
        let is_old = |renewed: Duration| boot_time().saturating_sub(renewed) >= RENEW_ON_NOTICE;
        // A job may be cancelled, or the share of a rate has changed.
        if !self.running.is_empty() && self.renewed.is_some_and(is_old) {
            self.renewed = None;
        }
    }

    fn begin_end(&mut self) {
        self.is_ending = true;
        for job in self.running.values_mut() {
            job.stop(StopReason::WorkerEnds);
        }
    }

    fn tell(&mut self, error: &QueueError) {
        if !std::mem::replace(&mut self.is_told, true) {
            tracing::warn!(
                running = self.running.len(),
                "the database is away, what runs goes on: {error}"
            );
        }
    }
}

impl WorkerJob {
    fn stop(&mut self, reason: StopReason) {
        if self.stopped.is_none() {
            self.stopped = Some(reason);
            self.attempt.order(STOP_ORDER.to_owned());
        }
    }

    fn set_rate(&mut self, id: i64, fleet: &FleetState, state: &WorkerState) {
        let rate = fleet.rate_share(&self.endpoints, self.own_rate);
        if rate == self.rate {
            return;
        }
        match state.write_rate(id, self.number, rate) {
            Ok(()) => self.rate = rate,
            Err(error) => tracing::warn!(job = id, "the rate stays as it was: {error}"),
        }
    }
}

/// How an attempt ended, and the reason of a failure.
fn end_of(ended: &EndedAttempt, stopped: Option<StopReason>) -> (AttemptEnd, Option<String>) {
    let last_line = || {
        let line = ended.messages.lines().rfind(|line| !line.trim().is_empty());
        line.map(shortened)
    };
    let failure = || ended.report.failure.clone().or_else(last_line);
    let end = match (&ended.status, ended.report.end) {
        (Err(error), _) => return (AttemptEnd::NotStarted, Some(shortened(error))),
        (_, Some(end)) if end.exit == Some(Exit::Done as u8) => AttemptEnd::Exited(0),
        (_, Some(end)) if end.is_stopped => {
            AttemptEnd::Stopped(stopped.unwrap_or(StopReason::Lease))
        }
        (_, Some(end)) => match (end.exit, end.signal) {
            (Some(code), _) => AttemptEnd::Exited(code),
            (None, signal) => AttemptEnd::Killed(signal.unwrap_or(0)),
        },
        (Ok(status), None) => match status.signal() {
            Some(signal) => AttemptEnd::Killed(signal),
            None => AttemptEnd::NotStarted,
        },
    };
    let error = match end {
        AttemptEnd::Exited(0) => None,
        AttemptEnd::Killed(signal) => Some(format!("signal {signal} ended the program")),
        _ => failure(),
    };
    (end, error)
}

/// Passes notices on. Without a connection there are none, and the worker looks at intervals.
async fn listen(queue: TransferQueue, changed: Arc<Notify>) {
    let mut pause = AWAY.0;
    loop {
        if let Ok(mut notices) = queue.listen().await {
            pause = AWAY.0;
            // Those before this connection are lost.
            changed.notify_one();
            while notices.next().await {
                changed.notify_one();
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(AWAY.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::events::{ChildReport, GuardedEnd};

    fn ended(status: i32, end: Option<GuardedEnd>, messages: &str) -> EndedAttempt {
        EndedAttempt {
            id: 1,
            status: Ok(std::process::ExitStatus::from_raw(status)),
            report: ChildReport {
                end,
                ..ChildReport::default()
            },
            messages: messages.to_owned(),
        }
    }

    fn guarded(exit: Option<u8>, signal: Option<i32>, is_stopped: bool) -> Option<GuardedEnd> {
        Some(GuardedEnd {
            exit,
            signal,
            is_stopped,
        })
    }

    #[test]
    fn an_end_is_the_programs_unless_the_guard_brought_it_about() {
        let end = |ended: EndedAttempt, stopped| end_of(&ended, stopped).0;
        let done = ended(0, guarded(Some(0), None, true), "");
        assert_eq!(
            end(done, Some(StopReason::Cancelled)),
            AttemptEnd::Exited(0)
        );
        let failed = ended(0, guarded(Some(5), None, false), "");
        assert_eq!(end(failed, None), AttemptEnd::Exited(5));
        let lease = ended(0, guarded(Some(130), None, true), "");
        assert_eq!(end(lease, None), AttemptEnd::Stopped(StopReason::Lease));
        let killed = ended(0, guarded(None, Some(9), false), "");
        assert_eq!(end(killed, None), AttemptEnd::Killed(9));
        let no_guard = ended(9, None, "");
        assert_eq!(end(no_guard, None), AttemptEnd::Killed(9));
    }

    #[test]
    fn the_reason_is_the_failure_or_the_last_message() {
        let usage = ended(
            0,
            guarded(Some(2), None, false),
            "error: wrong\n\nusage\n \n",
        );
        assert_eq!(end_of(&usage, None).1.as_deref(), Some("usage"));
        let refused = ended(256, None, "the lock is held\n");
        let (end, error) = end_of(&refused, None);
        assert_eq!(end, AttemptEnd::NotStarted);
        assert_eq!(error.as_deref(), Some("the lock is held"));
    }
}
