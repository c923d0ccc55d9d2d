//! Entrances to private parsers, for the fuzz targets alone.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

pub use crate::key_holder::{answer_again, first_frame, request_again};
pub use crate::pam::question_again;

/// Parses a PROXY header; `None`: more bytes are needed. `Some(None)`: a connection of the proxy's own.
///
/// # Errors
/// The bytes are no header.
pub fn parse_proxy_header(bytes: &[u8]) -> io::Result<Option<Option<SocketAddr>>> {
    crate::proxy_header::parse(bytes)
}

/// The process that holds a key, without its process.
pub struct FuzzedKeyHolder(crate::key_holder::process::Holder);

impl FuzzedKeyHolder {
    /// For the key of this file, whose certificate is in the other.
    pub fn new(chain: &Path, key: &Path) -> Self {
        Self(crate::key_holder::process::Holder::new(chain, key))
    }

    /// The frame that answers a frame.
    pub fn answer(&mut self, frame: &[u8]) -> Vec<u8> {
        self.0.answer_frame(frame)
    }
}
