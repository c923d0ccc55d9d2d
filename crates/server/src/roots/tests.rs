use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;

use proto::path::VPath;
use tempfile::TempDir;

use super::*;

/// A host with the server's root `srv/`, an account's root `srv/outer/inner/`, and `secret/`, which
/// no account may reach.
struct RootsFixture {
    dir: TempDir,
    roots: AccountRoots,
}

impl RootsFixture {
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
    let host = RootsFixture::new();
    let inner = host.path("srv/outer/inner");
    // Not opened before: the path leads through a link and is refused.
    fs::rename(&inner, host.path("srv/outer/moved")).unwrap();
    symlink(host.path("secret"), &inner).unwrap();
    let refused = host.content("srv/outer/inner").unwrap_err();
    assert!(matches!(refused, RootError::Link { .. }), "{refused}");
    // A link in a parent directory is refused, too, and so is one outside of the server's root.
    symlink(host.path("srv/outer"), host.path("srv/up")).unwrap();
    let refused = host.content("srv/up/moved").unwrap_err();
    assert!(matches!(refused, RootError::Link { .. }), "{refused}");
    symlink(host.path("secret"), host.path("else/link")).unwrap();
    let refused = host.content("else/link").unwrap_err();
    assert!(matches!(refused, RootError::Link { .. }), "{refused}");
    assert_eq!(host.content("srv/outer/moved").unwrap(), "inner");
}

#[test]
fn an_open_root_stays_the_same_directory_after_a_rename() {
    let host = RootsFixture::new();
    let inner = host.path("srv/outer/inner");
    host.roots.open_named(&HashSet::from([inner.clone()]));
    fs::rename(&inner, host.path("srv/outer/moved")).unwrap();
    symlink(host.path("secret"), &inner).unwrap();
    assert_eq!(host.content("srv/outer/inner").unwrap(), "inner");
    // No account names it any more, so the path is resolved again.
    host.roots.open_named(&HashSet::new());
    assert!(host.content("srv/outer/inner").is_err());
}

#[test]
fn a_reload_opens_the_directory_that_replaced_a_root() {
    let host = RootsFixture::new();
    let inner = host.path("srv/outer/inner");
    assert_eq!(host.content("srv/outer/inner").unwrap(), "inner");
    fs::rename(&inner, host.path("srv/outer/moved")).unwrap();
    // A link at its path is not followed, so the open directory stays the root.
    symlink(host.path("secret"), &inner).unwrap();
    host.roots.reopen();
    assert_eq!(host.content("srv/outer/inner").unwrap(), "inner");
    fs::remove_file(&inner).unwrap();
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("f"), "another").unwrap();
    host.roots.open_named(&HashSet::from([inner]));
    assert_eq!(host.content("srv/outer/inner").unwrap(), "inner");
    host.roots.reopen();
    assert_eq!(host.content("srv/outer/inner").unwrap(), "another");
}

#[test]
fn a_root_that_was_removed_and_created_again_is_reopened() {
    let host = RootsFixture::new();
    let inner = host.path("srv/outer/inner");
    assert_eq!(host.content("srv/outer/inner").unwrap(), "inner");
    fs::remove_dir_all(&inner).unwrap();
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("f"), "anew").unwrap();
    assert_eq!(host.content("srv/outer/inner").unwrap(), "anew");
}

#[test]
fn links_above_the_servers_root_are_followed() {
    let host = RootsFixture::new();
    symlink(host.path("srv"), host.path("alias")).unwrap();
    let configured = host.path("alias");
    let server = Arc::new(Root::open(&configured).unwrap());
    let roots = AccountRoots::new(server, configured.clone());
    assert!(roots.get(&configured.join("outer/inner")).is_ok());
    assert!(roots.get(&host.path("srv/outer/inner")).is_ok());
    assert!(roots.get(&configured.join("../secret")).is_err());
}
