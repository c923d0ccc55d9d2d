//! Decisions from measurements: how many streams, how long to wait, what holds a transfer back.
//!
//! Pure: time, randomness and samples are arguments, decisions are return values. Nothing here opens a
//! socket, waits or reads a clock, so that every policy runs alike in a program, in a simulator and in
//! a test, and can be used by itself, for transfers that are not longhaul's:
//!
//! - [`streams`]: how many parallel connections, with which congestion control, how fast.
//!   [`streams::auto`] reads the kernel's accounts of each connection; [`streams::chunked`] knows nothing
//!   but how long chunks took.
//! - [`prior`]: what a transfer may begin with, where something is known of its path.
//! - [`sample`]: one end of a connection at one moment, which the policies judge by.
//! - [`sizing`]: how large socket buffers should be, at either end.
//! - [`evidence`]: what a finished transfer learned of its path; [`diagnosis`] says from it what held the
//!   transfer back, by the names of [`limiter`].
//! - [`congestion`], [`backoff`]: which congestion control to begin with; how long to wait before
//!   another attempt.
//!
//! Whoever drives a policy looks now and then (TCP_INFO and SO_MEMINFO on Linux; anything else that has
//! windows, queues and round trips will do), hands the looks over, and does what is answered:
//!
//! ```
//! use std::time::Duration;
//! use tune::look::Look;
//! use tune::streams::auto::{Auto, Limits, Scene, Step};
//!
//! let mut auto = Auto::new(
//!     Limits { least: 1, most: 16, congestion: Vec::new(), pace: false },
//!     1,
//! );
//! let (mut at, mut moved, mut streams) = (Duration::ZERO, 0, 1);
//! while at < Duration::from_secs(2) {
//!     // The program's own wait; then its own look at each connection. Here every one is held by a
//!     // window of 1 MB on a path of 50 ms.
//!     let wait = auto.due();
//!     at += wait;
//!     moved += 20_000 * wait.as_millis() as u64 * u64::from(streams);
//!     let look = |stream| Look {
//!         stream,
//!         at,
//!         bytes: moved / u64::from(streams),
//!         rtt: Duration::from_millis(50),
//!         min_rtt: Duration::from_millis(50),
//!         peer_window: 1_000_000,
//!         busy: at,
//!         rwnd_limited: at,
//!         ..Look::default()
//!     };
//!     let looks: Vec<Look> = (0..u64::from(streams)).map(look).collect();
//!     let decisions = auto.on_scene(&Scene {
//!         at,
//!         moved,
//!         left: None,
//!         looks: &looks,
//!         opening: 0,
//!         congestion: "cubic",
//!         rate_limit: None,
//!     });
//!     for decision in decisions {
//!         if let Some(Step::Streams(wanted)) = decision.step {
//!             streams = wanted;
//!         }
//!     }
//! }
//! assert_eq!(streams, 16);
//! assert_eq!(auto.verdict().limiter.name(), "receive window");
//! ```
//!
//! `examples/log_shipper.rs` tunes the connections of a program that ships logs.

#![forbid(unsafe_code)]

pub mod backoff;
pub mod congestion;
pub mod diagnosis;
pub mod evidence;
pub mod limiter;
mod observation;
pub mod prior;
pub mod sample;
pub mod sizing;
pub mod streams;

pub use evidence::Evidence;
pub use prior::Prior;
