//! The GridFTP and FTP protocols, and the parts of HTTP and S3 that longhaul reads.
//!
//! This crate holds the wire formats (control lines, commands, replies, addresses, listings,
//! extended-block headers, byte ranges, markers, HTTP header fields and bodies), file name patterns, and
//! the session state machines of client and server.
//! It performs no input or output and reads no clock: bytes and time are arguments, decisions are
//! return values. The crates `data`, `server` and `ftp` do the input and output.

#![forbid(unsafe_code)]

pub mod address;
pub mod bundle;
pub mod carried;
pub mod checksum;
pub mod client;
pub mod command;
pub mod drs;
pub mod eblock;
pub mod feature;
pub mod http;
pub mod line;
pub mod listing;
pub mod marker;
pub mod path;
pub mod pattern;
mod peer_text;
pub mod ranges;
pub mod remark;
pub mod reply;
pub mod s3;
pub mod security;
pub mod server;
pub mod sftp;
pub mod sizing;
pub mod streams;
pub mod stripes;
pub mod timestamp;
pub mod tunnel;

pub use peer_text::{echo, printable};
