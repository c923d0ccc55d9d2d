//! The roots of accounts that have a root of their own, each opened once.
//!
//! A root may lie inside another account's root, whose sessions can rename directories and create
//! links. So symbolic links in the path of a root are never followed: below the server's root the path is
//! opened relative to that root's descriptor, elsewhere from `/`. An opened directory stays the root of
//! its account, even if it is renamed, until the directory is removed, the users file names another, or
//! the administrator reloads (SIGHUP).

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use data::served::ServedStore;
use data::store::root::{Root, RootError};
use parking_lot::Mutex;

/// The files that the sessions of a server see, unless their account has a root of its own.
#[derive(Debug, Clone)]
pub(crate) enum ServerRoot {
    /// A directory.
    Directory(Arc<Root>),
    /// A store of objects. No account has a root of its own.
    Served(Arc<dyn ServedStore>),
}

impl From<Arc<Root>> for ServerRoot {
    fn from(root: Arc<Root>) -> Self {
        Self::Directory(root)
    }
}

impl ServerRoot {
    /// The directory; `None`: it is none.
    pub(crate) fn directory(&self) -> Option<&Arc<Root>> {
        match self {
            Self::Directory(root) => Some(root),
            Self::Served(_) => None,
        }
    }

    /// Its path on the host, or its URL.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Directory(root) => root.host_path().to_owned(),
            Self::Served(store) => PathBuf::from(store.name()),
        }
    }
}

/// Largest number of roots kept open. Roots of further accounts are opened at each login.
const MAX_KEPT: usize = 4096;

/// The open roots of accounts.
#[derive(Debug)]
pub(crate) struct AccountRoots {
    /// The server's root.
    server: Arc<Root>,
    configured: PathBuf,
    open: Mutex<HashMap<PathBuf, Arc<Root>>>,
}

impl AccountRoots {
    /// No root is open yet. `configured` is the path that led to `server`.
    pub(crate) fn new(server: Arc<Root>, configured: PathBuf) -> Self {
        Self {
            server,
            configured,
            open: Mutex::default(),
        }
    }

    /// Opens the roots that accounts name, and closes all others; open roots stay as they are. A root
    /// that cannot be opened is logged and tried again at a login. Called at the start and after each
    /// change of the accounts. Blocks on the file system.
    pub(crate) fn open_named(&self, named: &HashSet<PathBuf>) {
        self.open.lock().retain(|path, _| named.contains(path));
        for path in named.iter().take(MAX_KEPT) {
            if let Err(error) = self.get(path) {
                tracing::warn!(%error, "an account's root cannot be opened");
            }
        }
    }

    /// Opens all roots again by their paths, after an administrator has replaced directories; a root that
    /// cannot be opened stays as it is. Blocks on the file system.
    pub(crate) fn reopen(&self) {
        let paths: Vec<PathBuf> = self.open.lock().keys().cloned().collect();
        for path in paths {
            match self.open_root(&path) {
                Ok(root) => drop(self.open.lock().insert(path, Arc::new(root))),
                Err(error) => {
                    tracing::warn!(%error, "an account's root cannot be opened again; the directory that is open stays its root");
                }
            }
        }
    }

    /// Returns the root at `path`, and opens it if needed. Blocks on the file system.
    pub(crate) fn get(&self, path: &Path) -> Result<Arc<Root>, RootError> {
        // The lock is not held while the root is opened: a hanging network file system must not block
        // the logins of all accounts.
        let known = self.open.lock().get(path).cloned();
        if let Some(root) = known.filter(|root| root.exists()) {
            return Ok(root);
        }
        let root = Arc::new(self.open_root(path)?);
        let mut open = self.open.lock();
        if open.len() < MAX_KEPT || open.contains_key(path) {
            open.insert(path.to_owned(), Arc::clone(&root));
        }
        Ok(root)
    }

    fn open_root(&self, path: &Path) -> Result<Root, RootError> {
        // A `..` could leave the server's root, so such a path is opened from `/` without following links.
        let has_no_parent_dir = path.components().all(|c| c != Component::ParentDir);
        let tops = [self.configured.as_path(), self.server.host_path()];
        match tops.iter().find_map(|top| path.strip_prefix(top).ok()) {
            Some(below) if has_no_parent_dir => self.server.open_below(below),
            _ => Root::open_without_links(path),
        }
    }
}

#[cfg(test)]
mod tests;
