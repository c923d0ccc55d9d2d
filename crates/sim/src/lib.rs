//! A discrete-event simulator of TCP over links.
//!
//! [`world`] runs [`tcp`] flows over two links. Those are of the crate `link`, as the emulator's are, so
//! simulation and emulation agree. [`transfer`] runs a GridFTP transfer that the policies of `tune` control, as they control
//! real ones; [`chunked`] does the same chunk by chunk, and [`auto`] as `longhaul cp` does by itself. [`sessions`] runs
//! several of them over one path.
//!
//! The crate is pure: the clock is an argument (time since the start of the run), random numbers come
//! from a seed, decisions are return values. The same seed and the same calls give the same results.

#![forbid(unsafe_code)]

pub mod auto;
pub mod chunked;
pub mod fluid;
pub mod sessions;
pub mod tcp;
pub mod transfer;
pub mod world;
