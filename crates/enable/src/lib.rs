//! The client of Enable, the network-advice service (Tierney et al., "Enabling Network-Aware
//! Applications", HPDC 2001): questions, answers, and the flags that other programs take.
//!
//! An Enable server runs beside a data server and knows the paths from there to its clients. A client asks
//! it which buffer, how many streams and which speed to expect:
//!
//! ```no_run
//! use std::time::Duration;
//! use enable::advice::Question;
//! use enable::client::EnableClient;
//!
//! let server = EnableClient::new("data.example.org", Duration::from_secs(2))?;
//! let buffer = server.buffer_size()?;
//! let advice = server.advice(&Question { bytes: Some(1 << 40), ..Question::default() })?;
//! println!("{buffer} bytes, {:?} streams: {}", advice.streams, advice.why);
//! # Ok::<(), enable::client::EnableError>(())
//! ```

#![forbid(unsafe_code)]

pub mod advice;
pub mod client;
pub mod emit;
pub mod method;
pub mod processor;
pub mod xmlrpc;
