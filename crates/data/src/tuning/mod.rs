//! Tunes a transfer while it runs: one thread per transfer ([`thread`]), beside the stream threads. It
//! samples each stream's kernel state and hands the sample to two tuners: [`buffers`] sizes the socket
//! buffers by `tune::sizing`, and [`streams`] sets the number of sending streams, their congestion control
//! and their pacing rate by `tune::streams::auto`.
//!
//! `crate::handshake` sets what must be set before there is a stream to sample.

mod buffer_choice;
mod buffers;
mod streams;
mod thread;

#[cfg(test)]
mod fixtures;

pub(crate) use thread::{is_worth_a_thread, run_with_tuning};
