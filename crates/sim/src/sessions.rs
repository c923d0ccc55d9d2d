//! Several transfers over one simulated path, each led by its own policy.

use std::fmt;
use std::time::Duration;

use crate::world::Simulation;

/// A transfer in a simulation that it does not own, so that others can run beside it.
pub trait SimSession: fmt::Debug {
    /// Time of the next call of [`Self::advance`], if [`Self::is_ready`] is not true before; after the transfer's
    /// end [`Duration::MAX`].
    fn wake_at(&self) -> Duration;

    /// Whether what the transfer waits for has happened. It is asked after every event.
    fn is_ready(&self, simulation: &Simulation) -> bool;

    /// Goes on at the current time.
    fn advance(&mut self, simulation: &mut Simulation);

    /// Payload that has arrived, bytes.
    fn delivered(&self, simulation: &Simulation) -> u64;

    /// Data connections that take new data.
    fn streams(&self) -> u32;
}

/// Runs all sessions until `until`, or until all have ended.
pub fn run_sessions<S: SimSession>(
    simulation: &mut Simulation,
    sessions: &mut [S],
    until: Duration,
) {
    loop {
        let next = sessions.iter().map(S::wake_at).min();
        let next = next.unwrap_or(Duration::MAX);
        let over = next == Duration::MAX;
        if over || simulation.now() >= until {
            return;
        }
        simulation.run_until_done(next.min(until), |now| {
            sessions.iter().any(|session| session.is_ready(now))
        });
        for session in &mut *sessions {
            if session.wake_at() <= simulation.now() || session.is_ready(simulation) {
                session.advance(simulation);
            }
        }
    }
}

impl<S: SimSession + ?Sized> SimSession for Box<S> {
    fn wake_at(&self) -> Duration {
        (**self).wake_at()
    }

    fn is_ready(&self, simulation: &Simulation) -> bool {
        (**self).is_ready(simulation)
    }

    fn advance(&mut self, simulation: &mut Simulation) {
        (**self).advance(simulation);
    }

    fn delivered(&self, simulation: &Simulation) -> u64 {
        (**self).delivered(simulation)
    }

    fn streams(&self) -> u32 {
        (**self).streams()
    }
}
