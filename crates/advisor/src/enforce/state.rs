//! The record of the routes that were added, so that all of them can be removed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

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
        write(&self.path, &routes).map_err(|source| EnforceError::State {
            action: "write",
            path: self.path.clone(),
            source,
        })?;
        self.routes = routes;
        Ok(())
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(suffix);
    PathBuf::from(name)
}

fn lock(path: &Path) -> io::Result<File> {
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(beside(path, ".lock"))?;
    file.lock()?;
    Ok(file)
}

fn read(path: &Path) -> io::Result<Vec<EnforcedRoute>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    file.take(MOST_FILE_BYTES).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// A crash leaves the old or the new file: it is renamed when its bytes are on disk, and the directory is synced.
fn write(path: &Path, routes: &[EnforcedRoute]) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(routes).map_err(io::Error::other)?;
    let new = beside(path, ".new");
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(&text)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}
