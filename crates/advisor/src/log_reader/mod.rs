//! Logs of data servers, read as they grow: who the clients are, and what their transfers say of the paths.
//!
//! [`follower::LogFollower`] reads lines from a file that grows and is rotated. Each format is one parser in its own
//! file, a function of the line. [`reader::LogReader`] puts both together; [`transfer_measurement`] tells what a
//! transfer says of its path.

pub mod client_names;
pub mod entry;
pub mod follower;
pub mod format;
pub mod ftp_info;
pub mod json;
pub mod log_time;
pub mod position;
pub mod pure_ftpd;
pub mod reader;
mod rotated;
pub mod transfer_measurement;
pub mod vsftpd;
pub mod web;
pub mod xferlog;

#[cfg(test)]
mod tests;
