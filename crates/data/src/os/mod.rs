//! The system calls of each system that longhaul runs on, and all unsafe code, each with its SAFETY comment.
//!
//! `posix` is what both systems have, `linux` and `macos` are counterparts: a module of one has the name and the functions of
//! the other one's, so that nothing else in the program asks which system it is compiled for. What macOS has not, its
//! counterpart refuses with [`std::io::ErrorKind::Unsupported`], or does without where it says so. Nobody has run it on a Mac
//! yet: it is known to compile.
#![allow(
    unsafe_code,
    reason = "all unsafe code of the workspace is in this module"
)]

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
mod posix;

pub(crate) use posix::tls_session;
pub use posix::{readable, remote_key, signals, tls_tickets};

#[cfg(target_os = "linux")]
pub use linux::{
    attributes, caps, clock, congestion, core_dumps, disk, lookup, machine, process, random,
    sending, sharing, sockopt, stat, tcp_info, wake, zerocopy,
};
/// Of servers, which are Linux alone.
#[cfg(target_os = "linux")]
pub use linux::{ktls, memory, pam, privilege};
#[cfg(target_os = "linux")]
pub(crate) use linux::{splice, writeback};

#[cfg(target_os = "macos")]
pub use macos::{
    attributes, caps, clock, congestion, core_dumps, disk, lookup, machine, process, random,
    sending, sharing, sockopt, stat, tcp_info, wake, zerocopy,
};
#[cfg(target_os = "macos")]
pub(crate) use macos::{splice, writeback};
