//! The edge: sockets, socket options, files, and the byte pump between them.
//!
//! One OS thread per stream. The same [`send`] and [`recv`] serve server and client, MODE S and
//! MODE E. All unsafe code of the workspace is in [`os`].
//!
//! How a transfer is laid out: [`channel`] is the source of its connections, `transfer` holds the
//! state that its streams share (stop, stall clock, rate limit, statistics), `stream_io` is one
//! active stream, [`transport`] is the layer between bytes and socket, [`send`] and [`recv`] are
//! the two loops, and `transfer_checksum` is the checksum beside them.

#![deny(unsafe_code)]

mod ascii;
pub mod budget;
mod buffer;
pub mod channel;
mod checkpoint;
pub mod checksum;
mod connect;
pub mod control;
mod cursor;
pub mod dialer;
pub mod drs;
pub mod error;
mod handshake;
pub mod job;
mod listener;
mod opening;
pub mod options;
pub mod os;
pub mod pull;
pub mod rate;
pub mod recv;
pub mod security;
pub mod send;
pub mod served;
mod settings;
mod stall_clock;
pub mod store;
mod store_watch;
pub mod stream;
mod stream_io;
mod stream_set;
mod tls_handshake;
mod transfer;
mod transfer_checksum;
pub mod transport;
mod tuning;
mod tuning_notices;
mod tuning_sample;
pub mod tunnel;
