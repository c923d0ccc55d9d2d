//! Symbolic links in trees: `longhaul` with real servers, and a real client with `longhaul serve`. Files
//! outside of the tree are never touched.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::binary::longhaul;
use interop::longhaul::serve::ServeCommand;
use interop::matrix::TestStore;
use interop::peer::{self, PeerServer};
use interop::require;
use interop::run::{self, FinishedProgram};

fn verb(arguments: &[&str]) -> Result<FinishedProgram> {
    run::run(longhaul()?.args(arguments))
}

/// Creates `up/keep/f`, and `up/NAME/` with files, a directory, and links to `keep`, to a file and to the
/// tree itself; with `dangling` also one to a missing file.
fn create_tree(store: &TestStore, name: &str, dangling: bool) -> Result<PathBuf> {
    let (keep, top) = (store.path("up/keep"), store.path(&format!("up/{name}")));
    std::fs::create_dir_all(&keep)?;
    std::fs::write(keep.join("f"), "keep")?;
    std::fs::create_dir_all(top.join("sub/deep"))?;
    std::fs::write(top.join("f"), "1")?;
    std::fs::write(top.join("  two spaces "), "2")?;
    std::fs::write(top.join("sub/deep/g"), "3")?;
    symlink("../keep", top.join("out"))?;
    symlink("../../keep", top.join("sub/out"))?;
    symlink("f", top.join("same"))?;
    symlink("..", top.join("sub/up"))?;
    if dangling {
        symlink("gone", top.join("dangling"))?;
    }
    for path in [&keep, &top, &top.join("sub"), &top.join("sub/deep")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))?;
    }
    for path in [
        keep.join("f"),
        top.join("f"),
        top.join("  two spaces "),
        top.join("sub/deep/g"),
    ] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    }
    Ok(top)
}

fn check_keep(store: &TestStore) -> Result<()> {
    let keep = std::fs::read_to_string(store.path("up/keep/f"))?;
    ensure!(keep == "keep", "{keep}");
    Ok(())
}

fn exists(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// Checks how `longhaul` handles links on one server.
fn check_links(name: &str, store: &TestStore, url: &dyn Fn(&str) -> String, dangling: bool) {
    let mut cells = MatrixRow::new(format!("links, {name}"));
    cells.check("cp -r leaves links out", || {
        create_tree(store, "c", dangling)?;
        let to = store.local();
        verb(&["cp", "-r", &url("up/c"), to.to_str().unwrap()])?.expect_success()?;
        ensure!(
            std::fs::read_to_string(to.join("  two spaces "))? == "2",
            "spaces"
        );
        ensure!(to.join("sub/deep/g").is_file(), "not copied");
        for link in ["out", "sub/out", "sub/up"] {
            ensure!(!exists(&to.join(link)), "{link} was copied");
        }
        Ok(())
    });
    cells.check("cp -r --links follow ends", || {
        let to = store.local();
        let local = to.to_str().unwrap();
        let arguments = ["cp", "-r", "--links", "follow", &url("up/c"), local];
        let finished = verb(&arguments)?;
        ensure!(
            std::fs::read_to_string(to.join("out/f"))? == "keep",
            "{finished}"
        );
        Ok(())
    });
    cells.check("rm -r removes links and nothing outside", || {
        let top = create_tree(store, "r", dangling)?;
        let finished = verb(&["rm", "-r", &url("up/r")])?;
        check_keep(store)?;
        finished.expect_success()?;
        ensure!(!exists(&top), "not removed");
        check_keep(store)
    });
    cells.check("rm -r of a link", || {
        let link = store.path("up/link");
        symlink("keep", &link)?;
        let finished = verb(&["rm", "-r", &url("up/link")])?;
        check_keep(store)?;
        finished.expect_success()?;
        ensure!(!exists(&link), "not removed");
        Ok(())
    });
    cells.finish();
}

fn check_links_on_peer(
    name: &str,
    found: Result<PathBuf, String>,
    start: impl FnOnce(&TestStore) -> Result<PeerServer>,
    dangling: bool,
) {
    require!(found);
    let store = TestStore::new().unwrap();
    let server = start(&store).unwrap();
    check_links(name, &store, &|served| server.url(served), dangling);
}

#[test]
fn links_on_longhaul_serve_are_not_followed() {
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    check_links("longhaul", &store, &|served| server.url(served), true);
}

#[test]
fn links_on_globus_gridftp_server_are_not_followed() {
    use peer::globus_gridftp_server as globus;
    // Its listings lack dangling links, so a tree with one cannot be removed.
    check_links_on_peer(
        "globus-gridftp-server",
        globus::find(),
        globus::start,
        false,
    );
}

#[test]
fn links_on_vsftpd_are_not_followed() {
    use peer::vsftpd;
    check_links_on_peer("vsftpd", vsftpd::find(), vsftpd::start, true);
}

#[test]
fn links_on_proftpd_are_not_followed() {
    use peer::proftpd;
    check_links_on_peer("proftpd", proftpd::find(), proftpd::start, true);
}

#[test]
fn links_on_pure_ftpd_are_not_followed() {
    use peer::pure_ftpd;
    check_links_on_peer("pure-ftpd", pure_ftpd::find(), pure_ftpd::start, true);
}

#[test]
fn links_on_pyftpdlib_are_not_followed() {
    use peer::pyftpdlib;
    check_links_on_peer("pyftpdlib", pyftpdlib::find(), pyftpdlib::start, true);
}

#[test]
fn lftp_mirrors_and_removes_a_tree_with_links_without_leaving_it() {
    let lftp = require!(peer::lftp::Lftp::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let top = create_tree(&store, "r", true).unwrap();
    let local = store.local();
    let mirror = format!("mirror up/r {}", local.display());
    lftp.script(server.address(), &mirror).unwrap();
    assert!(local.join("sub/deep/g").is_file());
    let up = std::fs::symlink_metadata(local.join("sub/up"));
    assert!(
        up.map_or(true, |meta| meta.is_symlink()),
        "the loop was followed"
    );
    let finished = lftp.script(server.address(), "rm -r up/r").unwrap();
    check_keep(&store).unwrap();
    finished.expect_success().unwrap();
    assert!(!exists(&top));
}
