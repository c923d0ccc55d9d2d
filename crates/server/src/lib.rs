//! The GridFTP and FTP server.

#![forbid(unsafe_code)]

pub mod config;
pub mod files;
pub mod limits;
pub mod transfer_log;
pub mod users;
