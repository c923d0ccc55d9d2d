//! How many sessions there may be, and how soon a failed login may be tried again.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Counts sessions; shared by all of them.
#[derive(Debug)]
pub struct Limits {}

/// A counted session; uncounts itself when dropped.
#[derive(Debug)]
pub struct SessionSlot {}

/// A counted login; uncounts itself when dropped.
#[derive(Debug)]
pub struct UserSlot {}

/// Which limit is reached; the text is for the 421 or 530 reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitReached {
    /// Sessions in all.
    #[error("too many sessions on this server (limit {0})")]
    Sessions(usize),
    /// Sessions from one address.
    #[error("too many sessions from your address (limit {0})")]
    Address(usize),
    /// Sessions of one user.
    #[error("too many sessions of this user (limit {0})")]
    User(usize),
}

impl Limits {
    /// Nothing counted; the bounds are inclusive.
    pub fn new(sessions: usize, per_address: usize, per_user: usize) -> Arc<Self> {
        let _ = (sessions, per_address, per_user);
        todo!()
    }

    /// Counts a new control connection.
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> Result<SessionSlot, LimitReached> {
        let _ = peer;
        todo!()
    }

    /// Counts a login of `user`.
    pub fn login(self: &Arc<Self>, user: &str) -> Result<UserSlot, LimitReached> {
        let _ = user;
        todo!()
    }
}

/// Slows down guessing of passwords, per address.
#[derive(Debug, Default)]
pub struct LoginPenalties {}

impl LoginPenalties {
    /// How long to wait before the next login from `peer` is checked.
    pub fn delay(&mut self, peer: IpAddr, now: Instant) -> Duration {
        let _ = (peer, now);
        todo!()
    }

    /// Notes the result of a login.
    pub fn note(&mut self, peer: IpAddr, granted: bool, now: Instant) {
        let _ = (peer, granted, now);
        todo!()
    }
}
