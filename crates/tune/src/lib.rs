//! Tuning decisions from measurements: number of streams, congestion control, pacing rate, socket buffers,
//! and the bottleneck of a transfer.
//!
//! The crate is pure: time, randomness and samples are arguments, decisions are return values. Nothing
//! here opens a socket, waits or reads a clock. Every policy therefore runs the same way in a program, in a
//! simulator and in a test, and other programs can use it for their own transfers:
//!
//! - [`sample`]: one reading of a connection's kernel state, and the difference of two readings. All
//!   policies work on these.
//! - [`streams`]: number of parallel connections, their congestion control and pacing rate.
//!   [`streams::auto`] uses samples of every connection; [`streams::chunked`] only the time that chunks
//!   took.
//! - [`sizing`]: socket buffer sizes at either end.
//! - [`prior`]: knowledge of a path before a transfer begins.
//! - [`evidence`]: measurements of a finished transfer. [`diagnosis`] finds the [`limiter`] in them.
//! - [`path`]: statistics of a path's measurements, advice from them, and the memory of one transfer for
//!   the next.
//! - [`congestion`]: properties of congestion controls. [`backoff`]: waits between attempts.
//!   [`admission`]: who counts as one client of a server.
//!
//! The caller samples its connections from time to time (TCP_INFO and SO_MEMINFO on Linux; any
//! protocol with windows, queues and round trips works), passes the samples on, and applies the returned
//! settings:
//!
//! ```
//! use std::time::Duration;
//! use tune::sample::TcpSample;
//! use tune::streams::auto::{AutoLimits, AutoTuner, TransferSample, TransferSetting};
//!
//! let limits = AutoLimits {
//!     min_streams: 1,
//!     max_streams: 16,
//!     congestion_controls: Vec::new(),
//!     may_pace: false,
//! };
//! let mut tuner = AutoTuner::new(limits, 1);
//! let (mut at, mut bytes_moved, mut streams) = (Duration::ZERO, 0, 1);
//! while at < Duration::from_secs(2) {
//!     // The program waits and then samples each connection. Here a window of 1 MB limits every
//!     // connection on a path of 50 ms.
//!     let wait = tuner.next_sample_in();
//!     at += wait;
//!     bytes_moved += 20_000 * wait.as_millis() as u64 * u64::from(streams);
//!     let sample = |stream| TcpSample {
//!         stream,
//!         at,
//!         bytes_acked: bytes_moved / u64::from(streams),
//!         smoothed_rtt: Duration::from_millis(50),
//!         min_rtt: Duration::from_millis(50),
//!         peer_window: 1_000_000,
//!         busy_time: at,
//!         rwnd_limited: at,
//!         ..TcpSample::default()
//!     };
//!     let samples: Vec<TcpSample> = (0..u64::from(streams)).map(sample).collect();
//!     let decisions = tuner.on_sample(&TransferSample {
//!         at,
//!         bytes_moved,
//!         bytes_left: None,
//!         streams: &samples,
//!         streams_opening: 0,
//!         congestion_control: "cubic",
//!         rate_limit: None,
//!     });
//!     for decision in decisions {
//!         if let Some(TransferSetting::Streams(wanted)) = decision.setting {
//!             streams = wanted;
//!         }
//!     }
//! }
//! assert_eq!(streams, 16);
//! assert_eq!(tuner.verdict().limiter.name(), "receive window");
//! ```
//!
//! `examples/log_shipper.rs` tunes the connections of a program that ships logs.

#![forbid(unsafe_code)]

pub mod admission;
pub mod backoff;
pub mod congestion;
pub mod diagnosis;
pub mod evidence;
pub mod forecast;
pub mod limiter;
mod observation;
pub mod path;
pub mod prior;
pub mod sample;
pub mod sessions;
pub mod sizing;
pub mod streams;

pub use evidence::Evidence;
pub use prior::{PathRate, Prior, is_other_round_trip};
pub use sample::{IntervalStats, TcpSample};
