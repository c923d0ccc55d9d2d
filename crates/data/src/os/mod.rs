//! The few system calls that no safe crate wraps, each with its SAFETY comment.
#![allow(unsafe_code, reason = "this is the one room for it")]

pub mod caps;
pub mod congestion;
pub mod hangup;
pub mod memory;
pub mod sockopt;
pub mod tcp_info;
pub mod wake;
pub(crate) mod writeback;
pub mod zerocopy;

pub use tcp_info::TcpInfo;
