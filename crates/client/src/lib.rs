//! The GridFTP and FTP client, as a library; the `longhaul` binary is a thin shell around it.

#![forbid(unsafe_code)]

mod api;

pub use api::*;
