//! R of the 2008 paper (§3.3): the running average of the response times of commands.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use data::os::tcp_info;
use proto::command::Command;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tune::streams::chunked::RoundTrip;

use super::lane::Opening;
use crate::session::Session;

/// How often a command is sent while data flows: with ten a second and ρ = 0.1 ns-2 gives the paper's
/// results.
const PERIOD: Duration = Duration::from_millis(100);

/// R as it is now.
#[derive(Debug, Clone)]
pub(super) struct RoundTrips(Arc<Mutex<RoundTrip>>);

impl RoundTrips {
    /// None measured.
    pub(super) fn new(rho: f64) -> Self {
        Self(Arc::new(Mutex::new(RoundTrip::new(rho))))
    }

    /// R; zero before the first sample.
    pub(super) fn average(&self) -> Duration {
        self.lock().average().unwrap_or_default()
    }

    /// Takes one from an idle session; `false`: it does not answer.
    pub(super) async fn sample(&self, session: &mut Session) -> bool {
        let before = retransmits(session);
        let sent = Instant::now();
        if session.control.call(&Command::Noop).await.is_err() {
            return false;
        }
        let sample = sent.elapsed();
        // TCP's time-out is no round trip: with such samples MI does not end.
        if retransmits(session) == before {
            self.lock().on_sample(sample);
        }
        true
    }

    /// The average is whole after every statement.
    fn lock(&self) -> MutexGuard<'_, RoundTrip> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn retransmits(session: &Session) -> u32 {
    tcp_info::tcp_info(session.control.transport().as_fd()).map_or(0, |info| info.total_retrans)
}

/// A session of its own that sends commands while data flows elsewhere. It ends when dropped.
#[derive(Debug)]
pub(super) struct Pulse {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Pulse {
    /// Opens the session and begins, in the background; a server that refuses the session is not
    /// asked again.
    pub(super) fn start(session: Opening<Session>, trips: RoundTrips) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let Ok(mut session) = session.await else {
                return;
            };
            tokio::select! {
                _ = stopped => {}
                () = beat(&mut session, &trips) => {}
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

impl Drop for Pulse {
    fn drop(&mut self) {
        if self.stop.is_some() {
            self.task.abort();
        }
    }
}

async fn beat(session: &mut Session, trips: &RoundTrips) {
    let mut timer = tokio::time::interval(PERIOD);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        if !trips.sample(session).await {
            return;
        }
    }
}
