//! The roots of accounts that have their own, each opened once.
//!
//! A root may lie inside another account's, whose sessions can rename and link as they please. So a
//! path is never walked through a symbolic link: below the server's root it is opened from that root's
//! descriptor, elsewhere from `/`. What was opened stays the root of the account, whatever becomes of
//! its name, until the directory itself is removed, the users file names another, or the administrator
//! asks for it (SIGHUP).

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use data::store::root::{Root, RootError};

/// Descriptors kept for roots. Those of further accounts are opened at each login.
const MOST_KEPT: usize = 4096;

/// The open roots.
#[derive(Debug)]
pub(crate) struct AccountRoots {
    /// The server's root, and the path that the configuration gives it.
    server: Arc<Root>,
    configured: PathBuf,
    open: Mutex<HashMap<PathBuf, Arc<Root>>>,
}

impl AccountRoots {
    /// None opened yet. `configured` is the path that led to `server`.
    pub(crate) fn new(server: Arc<Root>, configured: PathBuf) -> Self {
        Self {
            server,
            configured,
            open: Mutex::default(),
        }
    }

    /// Opens the roots that accounts name now, and forgets all others; those that are open already
    /// stay as they are. One that cannot be opened is told in the log and tried again at a login.
    /// At the start, and when the accounts were read anew. Blocks on the file system.
    pub(crate) fn open_named(&self, named: &HashSet<PathBuf>) {
        self.open().retain(|path, _| named.contains(path));
        for path in named.iter().take(MOST_KEPT) {
            if let Err(error) = self.get(path) {
                tracing::warn!(%error, "an account's root cannot be opened");
            }
        }
    }

    /// Opens all roots anew by their names; one that cannot be opened stays as it is. For an
    /// administrator who has put another directory in a root's place. Blocks on the file system.
    pub(crate) fn reopen(&self) {
        let paths: Vec<PathBuf> = self.open().keys().cloned().collect();
        for path in paths {
            match self.open_root(&path) {
                Ok(root) => drop(self.open().insert(path, Arc::new(root))),
                Err(error) => {
                    tracing::warn!(%error, "an account's root cannot be opened anew; the directory before stays");
                }
            }
        }
    }

    /// The root at `path`, opened if it is not. Blocks on the file system.
    pub(crate) fn get(&self, path: &Path) -> Result<Arc<Root>, RootError> {
        let known = self.open().get(path).cloned();
        if let Some(root) = known.filter(|root| root.exists()) {
            return Ok(root);
        }
        let root = Arc::new(self.open_root(path)?);
        let mut open = self.open();
        if open.len() < MOST_KEPT || open.contains_key(path) {
            open.insert(path.to_owned(), Arc::clone(&root));
        }
        Ok(root)
    }

    fn open_root(&self, path: &Path) -> Result<Root, RootError> {
        let plain = path.components().all(|c| c != Component::ParentDir);
        let tops = [self.configured.as_path(), self.server.host_path()];
        match tops.iter().find_map(|top| path.strip_prefix(top).ok()) {
            Some(below) if plain => self.server.open_below(below),
            _ => Root::open_without_links(path),
        }
    }

    fn open(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, Arc<Root>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
