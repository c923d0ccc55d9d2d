//! Decisions from measurements: how many streams, how long to wait, what holds a transfer back.
//!
//! Pure: time, randomness and samples are arguments, decisions are return values.

#![forbid(unsafe_code)]

pub mod backoff;
pub mod congestion;
mod evidence;
pub mod limiter;
pub mod sizing;
pub mod streams;
