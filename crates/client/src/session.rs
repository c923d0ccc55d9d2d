//! A logged-in control connection and what is known of the server behind it.

use std::time::Duration;

use proto::checksum::Algorithm;
use proto::feature::Features;
use proto::listing::RemoteEntry;
use proto::timestamp::Timestamp;

use crate::Failure;
use crate::location::Server;

/// A logged-in control connection. Every method maps the server's refusal to a [`Failure`] with
/// the right exit class (550 "no such file" → NotFound, 550 "permission" / 530 → Refused, 4xx →
/// transient ...). After a transient failure the session is to be dropped.
#[derive(Debug)]
pub struct Session {
    // private
}

impl Session {
    /// Connects (all addresses of the name in turn), logs in, asks FEAT, announces itself
    /// (CLIENTINFO when known), sets TYPE I.
    pub async fn open(server: &Server, timeout: Duration) -> Result<Self, Failure> {
        let _ = (server, timeout);
        todo!()
    }

    /// What the server announced.
    pub fn features(&self) -> &Features {
        todo!()
    }

    /// Round-trip time of the control connection (TCP handshake), for the choice of streams.
    pub fn rtt(&self) -> Duration {
        todo!()
    }

    /// Facts of a path: MLST, or SIZE + MDTM (+ CWD to tell a directory) on plain servers.
    pub async fn stat(&mut self, path: &[u8]) -> Result<RemoteEntry, Failure> {
        let _ = path;
        todo!()
    }

    /// Entries of a directory without `.` and `..`: MLSD, else LIST, else NLST.
    pub async fn list(&mut self, path: &[u8]) -> Result<Vec<RemoteEntry>, Failure> {
        let _ = path;
        todo!()
    }

    /// CKSM, or XCRC/XMD5/... on plain servers. The time-out counts from the last 113 marker.
    pub async fn checksum(
        &mut self,
        algorithm: Algorithm,
        offset: u64,
        length: Option<u64>,
        path: &[u8],
    ) -> Result<String, Failure> {
        let _ = (algorithm, offset, length, path);
        todo!()
    }

    /// MKD; `Ok(false)` when it exists already.
    pub async fn make_dir(&mut self, path: &[u8]) -> Result<bool, Failure> {
        let _ = path;
        todo!()
    }

    /// DELE
    pub async fn delete(&mut self, path: &[u8]) -> Result<(), Failure> {
        let _ = path;
        todo!()
    }

    /// RMD
    pub async fn remove_dir(&mut self, path: &[u8]) -> Result<(), Failure> {
        let _ = path;
        todo!()
    }

    /// RNFR, RNTO
    pub async fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), Failure> {
        let _ = (from, to);
        todo!()
    }

    /// MFMT, else SITE UTIME; `Ok(false)` when the server has neither.
    pub async fn set_modified(&mut self, path: &[u8], time: Timestamp) -> Result<bool, Failure> {
        let _ = (path, time);
        todo!()
    }

    /// QUIT, politely and briefly.
    pub async fn close(self) {
        todo!()
    }
}
