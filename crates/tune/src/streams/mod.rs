//! Number of parallel streams of a transfer and their congestion control.
//!
//! A transfer begins with a [`Prior`](crate::Prior): what is known of the path, or else the rule in
//! [`initial`]. [`auto`] then adapts while data moves, from samples of every stream. Where another program
//! sends, [`sessions`] decides from what the receiver sees. [`chunked`] has the
//! modes of a published paper, which measure only goodput and round trip of each chunk, and the paper's
//! [`model`] of parallel TCP.

pub mod auto;
pub mod chunked;
mod describe;
pub mod initial;
pub mod model;
pub mod sessions;

pub use initial::prior_from_rtt;
