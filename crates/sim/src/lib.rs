//! Links and TCP as discrete events.
//!
//! [`link`] is one direction of a network path: bottleneck, queue, delay, loss. The emulator of the
//! lab and the simulator here use the same one, so what is simulated is what is emulated. [`world`]
//! runs [`tcp`] flows over two of them, and [`transfer`] a GridFTP transfer that asks `tune` what to
//! do, as the real one does, as [`chunked`] does chunk by chunk.
//!
//! Pure: the clock is an argument (time since the start of the run), randomness comes from a seed,
//! decisions are return values. The same seed and the same calls give the same answers.

#![forbid(unsafe_code)]

pub mod chunked;
pub mod link;
pub mod tcp;
pub mod trace;
pub mod transfer;
pub mod world;
