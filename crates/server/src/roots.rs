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
    pub(crate) fn follow(&self, named: &HashSet<PathBuf>) {
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
            match self.open_now(&path) {
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
        let root = Arc::new(self.open_now(path)?);
        let mut open = self.open();
        if open.len() < MOST_KEPT || open.contains_key(path) {
            open.insert(path.to_owned(), Arc::clone(&root));
        }
        Ok(root)
    }

    fn open_now(&self, path: &Path) -> Result<Root, RootError> {
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
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use proto::path::VPath;
    use tempfile::TempDir;

    use super::*;

    /// `srv/` is the server's root, `srv/outer/inner/` an account's; `secret/` is nobody's.
    struct Host {
        dir: TempDir,
        roots: AccountRoots,
    }

    impl Host {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            for path in ["srv/outer/inner", "secret", "else/where"] {
                fs::create_dir_all(dir.path().join(path)).unwrap();
            }
            fs::write(dir.path().join("secret/f"), "secret").unwrap();
            fs::write(dir.path().join("srv/outer/inner/f"), "inner").unwrap();
            let configured = dir.path().join("srv");
            let server = Arc::new(Root::open(&configured).unwrap());
            let roots = AccountRoots::new(server, configured);
            Self { dir, roots }
        }

        fn path(&self, path: &str) -> PathBuf {
            self.dir.path().join(path)
        }

        fn content(&self, path: &str) -> Result<String, RootError> {
            let root = self.roots.get(&self.path(path))?;
            let file = VPath::root().resolve(b"f").unwrap();
            let mut text = String::new();
            let mut file = root.open_read(&file).unwrap();
            file.read_to_string(&mut text).unwrap();
            Ok(text)
        }
    }

    #[test]
    fn a_writer_of_an_outer_root_cannot_redirect_an_inner_one() {
        let host = Host::new();
        let inner = host.path("srv/outer/inner");
        // Never opened before: the name leads through a link, and is refused.
        fs::rename(&inner, host.path("srv/outer/moved")).unwrap();
        symlink(host.path("secret"), &inner).unwrap();
        let refused = host.content("srv/outer/inner").unwrap_err();
        assert!(matches!(refused, RootError::Link { .. }), "{refused}");
        // A link higher up is one as well, and so is one outside of the server's root.
        symlink(host.path("srv/outer"), host.path("srv/up")).unwrap();
        let refused = host.content("srv/up/moved").unwrap_err();
        assert!(matches!(refused, RootError::Link { .. }), "{refused}");
        symlink(host.path("secret"), host.path("else/link")).unwrap();
        let refused = host.content("else/link").unwrap_err();
        assert!(matches!(refused, RootError::Link { .. }), "{refused}");
        assert_eq!(host.content("srv/outer/moved").unwrap(), "inner");
    }

    #[test]
    fn a_root_that_was_opened_stays_whatever_becomes_of_its_name() {
        let host = Host::new();
        let inner = host.path("srv/outer/inner");
        host.roots.follow(&HashSet::from([inner.clone()]));
        fs::rename(&inner, host.path("srv/outer/moved")).unwrap();
        symlink(host.path("secret"), &inner).unwrap();
        assert_eq!(host.content("srv/outer/inner").unwrap(), "inner");
        // No account names it any more: the name is looked at anew.
        host.roots.follow(&HashSet::new());
        assert!(host.content("srv/outer/inner").is_err());
    }

    #[test]
    fn a_directory_in_a_roots_place_is_the_root_when_the_administrator_asks() {
        let host = Host::new();
        let inner = host.path("srv/outer/inner");
        assert_eq!(host.content("srv/outer/inner").unwrap(), "inner");
        fs::rename(&inner, host.path("srv/outer/moved")).unwrap();
        // A link in its place is none.
        symlink(host.path("secret"), &inner).unwrap();
        host.roots.reopen();
        assert_eq!(host.content("srv/outer/inner").unwrap(), "inner");
        fs::remove_file(&inner).unwrap();
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join("f"), "another").unwrap();
        host.roots.follow(&HashSet::from([inner]));
        assert_eq!(host.content("srv/outer/inner").unwrap(), "inner");
        host.roots.reopen();
        assert_eq!(host.content("srv/outer/inner").unwrap(), "another");
    }

    #[test]
    fn a_root_that_was_removed_and_made_anew_is_opened_anew() {
        let host = Host::new();
        let inner = host.path("srv/outer/inner");
        assert_eq!(host.content("srv/outer/inner").unwrap(), "inner");
        fs::remove_dir_all(&inner).unwrap();
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join("f"), "anew").unwrap();
        assert_eq!(host.content("srv/outer/inner").unwrap(), "anew");
    }

    #[test]
    fn links_above_the_servers_root_are_the_administrators() {
        let host = Host::new();
        symlink(host.path("srv"), host.path("alias")).unwrap();
        let configured = host.path("alias");
        let server = Arc::new(Root::open(&configured).unwrap());
        let roots = AccountRoots::new(server, configured.clone());
        assert!(roots.get(&configured.join("outer/inner")).is_ok());
        assert!(roots.get(&host.path("srv/outer/inner")).is_ok());
        assert!(roots.get(&configured.join("../secret")).is_err());
    }
}
