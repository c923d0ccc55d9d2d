//! Calls that Linux and macOS have alike.

pub(super) mod attributes;
pub mod readable;
pub mod remote_key;
pub mod signals;
pub(super) mod sockopt;
pub(crate) mod tls_session;
pub mod tls_tickets;
pub(super) mod wake;
pub(super) mod writeback;
