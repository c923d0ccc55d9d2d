//! Storages (local files, servers): the contract ([`contract`]), what only some offer ([`optional`]), and the
//! implementations.

pub(crate) mod capabilities;
pub(crate) mod collected;
#[cfg(test)]
pub(crate) mod conformance;
pub(crate) mod contract;
pub(crate) mod entry_names;
#[cfg(test)]
mod faulty_connection;
pub(crate) mod files;
mod ftp_server;
pub(crate) mod http;
mod local_calls;
pub(crate) mod local_checksum;
pub(crate) mod local_copy;
mod local_source;
#[cfg(test)]
pub(crate) mod memory;
pub(crate) mod open_source;
pub(crate) mod optional;
pub(crate) mod pipes;
mod remove;
pub(crate) mod s3;
pub(crate) mod sftp;

#[cfg(test)]
pub(crate) use http::webdav;
