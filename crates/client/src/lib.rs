//! The GridFTP and FTP client, as a library; the `longhaul` binary is a thin shell around it.

#![forbid(unsafe_code)]

mod api;
pub mod location;
pub mod session;
pub mod transfer;

pub use api::*;
