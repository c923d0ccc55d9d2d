//! R of the 2008 paper (§3.3): the running average of the response times of commands.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::os::tcp_info;
use parking_lot::{Mutex, MutexGuard};
use proto::command::Command;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tune::streams::chunked::RttAverage;

use super::chunk_session::OpeningFuture;
use crate::session::ClientSession;

/// How often a command is sent while data flows: with ten samples a second and ρ = 0.1, ns-2
/// reproduces the paper's results.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Shared running average R.
#[derive(Debug, Clone)]
pub(super) struct SharedRttAverage(Arc<Mutex<RttAverage>>);

impl SharedRttAverage {
    /// An average without samples.
    pub(super) fn new(rho: f64) -> Self {
        Self(Arc::new(Mutex::new(RttAverage::new(rho))))
    }

    /// R; zero before the first sample.
    pub(super) fn average(&self) -> Duration {
        self.lock().average().unwrap_or_default()
    }

    /// Samples one round trip on an idle session; `false` if it does not answer.
    pub(super) async fn sample(&self, session: &mut ClientSession) -> bool {
        let before = total_retransmits(session);
        let sent = Instant::now();
        // NOOP does no work at the server, so its response time is the round trip.
        if session.control.call(&Command::Noop).await.is_err() {
            return false;
        }
        let sample = sent.elapsed();
        // A sample that includes a retransmission is no round trip (Karn's algorithm, RFC 6298 §3).
        // With such samples the MI mode does not end its search.
        if total_retransmits(session) == before {
            self.lock().on_sample(sample);
        }
        true
    }

    /// Takes the round trip that the kernel has measured by the commands of a session until now.
    pub(super) fn take_from_replies(&self, session: &ClientSession) {
        if let Ok(info) = tcp_info::tcp_info(session.control.transport().as_fd()) {
            self.lock().on_sample(info.smoothed_rtt);
        }
    }

    /// Locks even after a panic elsewhere: the average is consistent after every statement.
    fn lock(&self) -> MutexGuard<'_, RttAverage> {
        self.0.lock()
    }
}

fn total_retransmits(session: &ClientSession) -> u64 {
    tcp_info::tcp_info(session.control.transport().as_fd()).map_or(0, |info| info.retransmits)
}

/// A session that samples round trips while data flows on others. Dropping it stops it.
#[derive(Debug)]
pub(super) struct RttProbeSession {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl RttProbeSession {
    /// Opens the session and samples in the background. If the server refuses the session, it is
    /// not tried again.
    pub(super) fn start(session: OpeningFuture<ClientSession>, average: SharedRttAverage) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let Ok(mut session) = session.await else {
                return;
            };
            tokio::select! {
                _ = stopped => {}
                () = sample_until_failure(&mut session, &average) => {}
            }
            session.close().await;
        });
        Self {
            stop: Some(stop),
            task,
        }
    }

    /// Stops sampling and closes the session with QUIT.
    pub(super) fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            // Sending fails only if the task has ended.
            let _ = stop.send(());
        }
    }
}

impl Drop for RttProbeSession {
    fn drop(&mut self) {
        if self.stop.is_some() {
            self.task.abort();
        }
    }
}

async fn sample_until_failure(session: &mut ClientSession, average: &SharedRttAverage) {
    let mut timer = tokio::time::interval(SAMPLE_INTERVAL);
    // After a delay, missed ticks are not made up: a burst of commands would distort the samples.
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        if !average.sample(session).await {
            return;
        }
    }
}
