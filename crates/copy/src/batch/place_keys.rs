//! Keys of places: of locks, and of what this machine remembers about unfinished copies.

use std::collections::HashMap;

use ftp::location::{Location, Scheme};
use parking_lot::Mutex;

use super::BatchContext;
use crate::storage_access;

/// The servers of the buckets of a batch: the URL of a bucket does not name its server, which the environment and profiles do.
#[derive(Debug, Default)]
pub(crate) struct BucketServers(Mutex<HashMap<String, String>>);

impl BatchContext {
    /// A key that two locations share only if they are the same path of the same account at the same server, whatever the
    /// current directory is. It has no password.
    pub(crate) fn place_key(&self, at: &Location) -> String {
        let key = at.resolved_key();
        let Some(server) = at.server().filter(|server| server.scheme == Scheme::S3) else {
            return key;
        };
        let mut known = self.bucket_servers.0.lock();
        let endpoint = known.entry(server.to_string()).or_insert_with(|| {
            // Settings that cannot be used end the copy when it opens a session.
            storage_access::bucket_endpoint(server).unwrap_or_default()
        });
        match endpoint.as_str() {
            "" => key,
            endpoint => format!("{key} at {endpoint}"),
        }
    }
}
