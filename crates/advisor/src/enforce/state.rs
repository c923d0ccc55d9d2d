//! The record of the routes that were added, so that all of them can be removed.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use smallfile::regular_file;

use super::ip_command::EnforceError;
use super::route_metrics::RouteMetrics;

/// A host route that was, or is about to be, added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnforcedRoute {
    /// The host.
    pub client: IpAddr,
    /// Its gateway.
    pub gateway: Option<IpAddr>,
    /// Its device.
    pub device: String,
    /// Its metrics.
    pub metrics: RouteMetrics,
}

/// The largest state file that is read.
const MOST_FILE_BYTES: u64 = 16 << 20;

/// The state file. One that may be changed is locked as long as this lives, so that two commands do not change
/// routes at one time.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    routes: Vec<EnforcedRoute>,
    _lock: Option<File>,
}

impl StateFile {
    /// Waits for the lock and reads the file; without a file there are no routes.
    pub(super) fn open(path: &Path) -> Result<Self, EnforceError> {
        let lock = lock(path).map_err(|source| EnforceError::State {
            action: "lock",
            path: path.to_owned(),
            source,
        })?;
        Self::read(path, Some(lock))
    }

    /// Reads the file without a lock, as somebody may who must not change it.
    pub(super) fn open_to_read(path: &Path) -> Result<Self, EnforceError> {
        Self::read(path, None)
    }

    fn read(path: &Path, lock: Option<File>) -> Result<Self, EnforceError> {
        let failed = |action| {
            move |source| EnforceError::State {
                action,
                path: path.to_owned(),
                source,
            }
        };
        let routes = read(path).map_err(failed("read"))?;
        Ok(Self {
            path: path.to_owned(),
            routes,
            _lock: lock,
        })
    }

    pub(super) fn routes(&self) -> &[EnforcedRoute] {
        &self.routes
    }

    pub(super) fn route_to(&self, client: IpAddr) -> Option<&EnforcedRoute> {
        self.routes.iter().find(|route| route.client == client)
    }

    /// Records a route, on disk when this returns, in place of an earlier one to the same client.
    pub(super) fn add(&mut self, route: EnforcedRoute) -> Result<(), EnforceError> {
        let mut routes = self.routes.clone();
        routes.retain(|other| other.client != route.client);
        routes.push(route);
        self.save(routes)
    }

    /// Forgets the route to a client.
    pub(super) fn remove(&mut self, client: IpAddr) -> Result<(), EnforceError> {
        let mut routes = self.routes.clone();
        routes.retain(|other| other.client != client);
        self.save(routes)
    }

    fn save(&mut self, routes: Vec<EnforcedRoute>) -> Result<(), EnforceError> {
        let text = serde_json::to_vec_pretty(&routes).map_err(io::Error::other);
        text.and_then(|text| smallfile::replace(&self.path, &text))
            .map_err(|source| EnforceError::State {
                action: "write",
                path: self.path.clone(),
                source,
            })?;
        self.routes = routes;
        Ok(())
    }
}

/// The lock is on a file of its own, because the state file is replaced.
fn lock(path: &Path) -> io::Result<File> {
    let mut beside = path.to_owned().into_os_string();
    beside.push(".lock");
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(beside)?;
    file.lock()?;
    Ok(file)
}

fn read(path: &Path) -> io::Result<Vec<EnforcedRoute>> {
    let text = match regular_file::read_to_string(path, MOST_FILE_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    serde_json::from_str(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
