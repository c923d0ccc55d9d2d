//! A discrete-event simulator of links and TCP.
//!
//! [`link`] is one direction of a network path: bottleneck, queue, delay, loss. The emulator of the lab
//! uses the same code, so simulation and emulation agree. [`world`] runs [`tcp`] flows over two
//! links. [`transfer`] runs a GridFTP transfer that the policies of `tune` control, as they control
//! real ones; [`chunked`] does the same chunk by chunk.
//!
//! The crate is pure: the clock is an argument (time since the start of the run), random numbers come
//! from a seed, decisions are return values. The same seed and the same calls give the same results.

#![forbid(unsafe_code)]

pub mod chunked;
pub mod link;
pub mod tcp;
pub mod trace;
pub mod transfer;
pub mod world;
