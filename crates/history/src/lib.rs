//! Memory of paths: a record of each, made by finished transfers, in one bounded file that may be deleted at any time.
//!
//! A *record* is the part of a [`tune::Evidence`] from which [`tune::path::prior_from_evidence`] makes the
//! [`tune::Prior`] of the next transfer, with its time. Its key, [`PathKey`], consists of the peer's address
//! prefix, this end's address prefix and the direction. The file holds no whole address, and no name of a file, a
//! user or a host.
//!
//! Memory is an aid and never an error: a file that is missing, unreadable, corrupt or of another version counts as
//! empty and is replaced by the next record. Two processes at once lose at most one record.

#![forbid(unsafe_code)]

mod known_server;
mod location;
mod path_history;
mod path_key;
mod record_file;
mod recorded_evidence;
mod session_limit;

pub use location::{ENVIRONMENT_VARIABLE, HistoryLocation};
pub use path_history::PathHistory;
pub use path_key::PathKey;
