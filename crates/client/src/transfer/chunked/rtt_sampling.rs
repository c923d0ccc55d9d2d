//! R of the 2008 paper (§3.3): the running average of the response times of commands.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use data::os::tcp_info;
use proto::command::Command;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tune::streams::chunked::RttAverage;

use super::chunk_session::OpeningFuture;
use crate::session::ClientSession;

/// How often a command is sent while data flows: with ten a second and ρ = 0.1 ns-2 gives the paper's
/// results.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// R as it is now.
#[derive(Debug, Clone)]
pub(super) struct SharedRttAverage(Arc<Mutex<RttAverage>>);

impl SharedRttAverage {
    /// None measured.
    pub(super) fn new(rho: f64) -> Self {
        Self(Arc::new(Mutex::new(RttAverage::new(rho))))
    }

    /// R; zero before the first sample.
    pub(super) fn average(&self) -> Duration {
        self.lock().average().unwrap_or_default()
    }

    /// Takes one from an idle session; `false`: it does not answer.
    pub(super) async fn sample(&self, session: &mut ClientSession) -> bool {
        let before = total_retransmits(session);
        let sent = Instant::now();
        if session.control.call(&Command::Noop).await.is_err() {
            return false;
        }
        let sample = sent.elapsed();
        // TCP's time-out is no round trip: with such samples MI does not end.
        if total_retransmits(session) == before {
            self.lock().on_sample(sample);
        }
        true
    }

    /// The average is whole after every statement.
    fn lock(&self) -> MutexGuard<'_, RttAverage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn total_retransmits(session: &ClientSession) -> u32 {
    tcp_info::tcp_info(session.control.transport().as_fd()).map_or(0, |info| info.total_retrans)
}

/// A session of its own that sends commands while data flows elsewhere. It ends when dropped.
#[derive(Debug)]
pub(super) struct RttProbeSession {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl RttProbeSession {
    /// Opens the session and begins, in the background; a server that refuses the session is not
    /// asked again.
    pub(super) fn start(session: OpeningFuture<ClientSession>, trips: SharedRttAverage) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let Ok(mut session) = session.await else {
                return;
            };
            tokio::select! {
                _ = stopped => {}
                () = sample_until_failure(&mut session, &trips) => {}
            }
            session.close().await;
        });
        Self {
            stop: Some(stop),
            task,
        }
    }

    /// Ends it in order.
    pub(super) fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            // One that has ended by itself hears nothing, and need not.
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

async fn sample_until_failure(session: &mut ClientSession, trips: &SharedRttAverage) {
    let mut timer = tokio::time::interval(SAMPLE_INTERVAL);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        if !trips.sample(session).await {
            return;
        }
    }
}
