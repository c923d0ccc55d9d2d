//! The edge: sockets, socket options, files, and the byte pump between them.
//!
//! One blocking OS thread per stream. The same [`send`] and [`recv`] serve server and client,
//! MODE S and MODE E. All unsafe code of the workspace is in [`os`].

#![deny(unsafe_code)]

pub mod channel;
pub mod digest;
pub mod error;
pub mod job;
pub mod os;
pub mod rate;
pub mod recv;
pub mod send;
pub mod store;
