//! How many parallel streams a transfer should use, and with which congestion control.
//!
//! [`initial`] says what to begin with when nothing was measured, and a [`Prior`](crate::Prior) what is
//! known otherwise. [`auto`] goes on from there while data
//! moves, told by the kernel's accounts of every stream. [`chunked`] are the modes of a paper that
//! knows nothing but goodput and round trip, chunk by chunk, on its [`model`] of parallel TCP.

pub mod auto;
pub mod chunked;
pub mod initial;
pub mod model;

pub use initial::prior_from_rtt;
