//! Limits: the number of sessions, the delay after failed logins, and fair queueing of expensive
//! work.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tune::admission::{ClientKey, HeldCounts};

mod bandwidth;
mod handshakes;
mod penalty;
mod queue;

pub(crate) use bandwidth::{BandwidthBudgets, BudgetHolder};
#[cfg(test)]
pub(crate) use handshakes::MAX_HANDSHAKES_PER_ADDRESS;
pub(crate) use handshakes::{HandshakeLimits, HandshakeSlot};
pub(crate) use penalty::FREE_FAILURES;
pub use penalty::{AttemptResult, LoginAttempt, LoginPenalties, LoginQueueFull};
pub use queue::{ClientQueueFull, FairQueue, NoPermit, QueueBounds, QueuePermit};

/// Counters of sessions and of logged-in users, shared by all sessions.
#[derive(Debug)]
pub struct SessionLimits {
    counts: Mutex<SessionCounts>,
}

/// Largest numbers of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionBounds {
    /// All sessions.
    pub sessions: usize,
    /// Sessions of one client: of one IPv4 address or one /64 network of IPv6.
    pub per_address: usize,
    /// Sessions of one user.
    pub per_user: usize,
}

/// The counters.
#[derive(Debug)]
struct SessionCounts {
    bounds: SessionBounds,
    sessions: usize,
    addresses: HeldCounts<ClientKey>,
    users: HeldCounts<String>,
}

/// One counted session; dropping it decrements the counters.
#[derive(Debug)]
pub struct SessionSlot {
    limits: Arc<SessionLimits>,
    address: ClientKey,
}

/// One counted login; dropping it decrements the counter.
#[derive(Debug)]
pub struct UserSlot {
    limits: Arc<SessionLimits>,
    user: String,
}

/// The limit that was reached; its text goes into the 421 reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitReached {
    /// Too many sessions.
    #[error("too many sessions on this server (limit {0})")]
    Sessions(usize),
    /// Too many sessions from one address.
    #[error("too many sessions from your address (limit {0})")]
    Address(usize),
    /// Too many sessions of one user.
    #[error("too many sessions of this user (limit {0})")]
    User(usize),
}

impl SessionLimits {
    /// New counters, all 0.
    pub fn new(bounds: SessionBounds) -> Arc<Self> {
        Arc::new(Self {
            counts: Mutex::new(SessionCounts {
                bounds,
                sessions: 0,
                addresses: HeldCounts::default(),
                users: HeldCounts::default(),
            }),
        })
    }

    /// Changes the bounds. Sessions above a smaller bound go on.
    pub fn set_bounds(&self, bounds: SessionBounds) {
        self.counts.lock().bounds = bounds;
    }

    /// Counts a new control connection.
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> Result<SessionSlot, LimitReached> {
        let address = ClientKey::from(peer);
        let mut counts = self.counts.lock();
        let bounds = counts.bounds;
        // Both limits are checked before either counter changes, so a refusal leaves no trace.
        if counts.sessions >= bounds.sessions {
            return Err(LimitReached::Sessions(bounds.sessions));
        }
        if counts.addresses.of(&address) >= bounds.per_address {
            return Err(LimitReached::Address(bounds.per_address));
        }
        counts.sessions += 1;
        counts.addresses.add(address);
        Ok(SessionSlot {
            limits: Arc::clone(self),
            address,
        })
    }

    /// Number of sessions now.
    pub(crate) fn sessions(&self) -> usize {
        self.counts.lock().sessions
    }

    /// Counts a login of `user`, unless the user has as many sessions as allowed: `own_bound`, or those of every user.
    pub fn count_login(
        self: &Arc<Self>,
        user: &str,
        own_bound: Option<usize>,
    ) -> Result<UserSlot, LimitReached> {
        let mut counts = self.counts.lock();
        let most = own_bound.unwrap_or(counts.bounds.per_user);
        if counts.users.of(user) >= most {
            return Err(LimitReached::User(most));
        }
        counts.users.add(user.to_owned());
        Ok(UserSlot {
            limits: Arc::clone(self),
            user: user.to_owned(),
        })
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        let mut counts = self.limits.counts.lock();
        counts.sessions -= 1;
        counts.addresses.remove(&self.address);
    }
}

impl Drop for UserSlot {
    fn drop(&mut self) {
        self.limits.counts.lock().users.remove(&self.user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn limits(sessions: usize, per_address: usize, per_user: usize) -> Arc<SessionLimits> {
        SessionLimits::new(SessionBounds {
            sessions,
            per_address,
            per_user,
        })
    }

    #[test]
    fn a_smaller_bound_applies_to_new_sessions() {
        let limits = limits(10, 10, 10);
        let _slots = [
            limits.admit(ip("192.0.2.1")).unwrap(),
            limits.admit(ip("192.0.2.1")).unwrap(),
        ];
        limits.set_bounds(SessionBounds {
            sessions: 10,
            per_address: 1,
            per_user: 10,
        });
        assert_eq!(
            limits.admit(ip("192.0.2.1")).unwrap_err(),
            LimitReached::Address(1)
        );
        limits.admit(ip("192.0.2.2")).unwrap();
    }

    #[test]
    fn sessions_are_counted_until_their_slot_is_dropped() {
        let limits = limits(3, 2, 1);
        let first = limits.admit(ip("192.0.2.1")).unwrap();
        let _second = limits.admit(ip("::ffff:192.0.2.1")).unwrap();
        assert_eq!(
            limits.admit(ip("192.0.2.1")).unwrap_err(),
            LimitReached::Address(2)
        );
        let _third = limits.admit(ip("192.0.2.2")).unwrap();
        assert_eq!(
            limits.admit(ip("192.0.2.3")).unwrap_err(),
            LimitReached::Sessions(3)
        );
        drop(first);
        assert_eq!(limits.counts.lock().sessions, 2);
        limits.admit(ip("192.0.2.1")).unwrap();
    }

    #[test]
    fn addresses_of_one_ipv6_64_network_count_as_one_client() {
        let limits = limits(10, 1, 1);
        let _slot = limits.admit(ip("2001:db8::1")).unwrap();
        assert!(limits.admit(ip("2001:db8::2")).is_err());
        limits.admit(ip("2001:db8:0:1::1")).unwrap();
    }

    #[test]
    fn users_are_counted_separately() {
        let limits = limits(10, 10, 1);
        let slot = limits.count_login("ann", None).unwrap();
        assert_eq!(
            limits.count_login("ann", None).unwrap_err(),
            LimitReached::User(1)
        );
        let _other = limits.count_login("bob", None).unwrap();
        drop(slot);
        limits.count_login("ann", None).unwrap();
        let _own = limits.count_login("bob", Some(2)).unwrap();
        let third = limits.count_login("bob", Some(2));
        assert_eq!(third.unwrap_err(), LimitReached::User(2));
    }

    #[test]
    fn counters_of_ended_sessions_are_removed() {
        let limits = limits(10, 10, 10);
        drop(limits.admit(ip("192.0.2.1")).unwrap());
        drop(limits.count_login("ann", None).unwrap());
        let counts = limits.counts.lock();
        assert!(counts.addresses.is_empty() && counts.users.is_empty());
    }
}
