//! Anomalies of paths, told to people and programs: a log line for each, and digests by webhook and e-mail.
//!
//! [`digest::Digest`] bounds how often and how much is sent. [`webhook`] and [`email`] send one digest each, with
//! time-outs and a bounded number of attempts. [`notifier`] puts them together on a thread of its own, so that a slow
//! mail server holds nobody up.

pub mod anomaly;
pub mod digest;
pub mod email;
pub mod notifier;
pub mod retry;
pub mod webhook;
