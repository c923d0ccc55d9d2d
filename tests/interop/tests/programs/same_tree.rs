//! `longhaul sync --delete` of a directory of this machine and a server that serves it: they are one tree, whatever the server
//! tells of its files, and nothing is deleted.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::binary::longhaul;
use interop::matrix::TestStore;
use interop::peer::{self, PeerServer};
use interop::require;
use interop::run;

/// Files and directories that anybody may change.
fn create_tree(top: &Path) -> Result<()> {
    std::fs::create_dir_all(top.join("d/e"))?;
    for directory in ["", "d", "d/e"] {
        let path = top.join(directory);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777))?;
        for n in 0..3 {
            let file = path.join(format!("{directory}{n}").replace('/', "-"));
            std::fs::write(&file, directory)?;
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666))?;
        }
    }
    Ok(())
}

fn count(top: &Path) -> usize {
    let entries = std::fs::read_dir(top).unwrap().flatten();
    let counts = entries.map(|entry| match entry.path().is_dir() {
        true => 1 + count(&entry.path()),
        false => 1,
    });
    counts.sum()
}

fn check_same_tree(
    name: &str,
    found: Result<PathBuf, String>,
    start: impl FnOnce(&TestStore) -> Result<PeerServer>,
) {
    require!(found);
    let store = TestStore::new().unwrap();
    let server = start(&store).unwrap();
    let top = store.path("up/t");
    create_tree(&top).unwrap();
    let before = count(&top);
    let mut cells = MatrixRow::new(format!("sync of one tree, {name}"));
    for (local, served) in [("", ""), ("", "/d"), ("d", ""), ("d/e", ""), ("d", "/d")] {
        let here = top.join(local).display().to_string();
        let there = server.url(&format!("up/t{served}"));
        for (from, to) in [(&here, &there), (&there, &here)] {
            cells.check(format!("{local:?} and {served:?}, from {from}"), || {
                let finished = run::run(longhaul()?.args(["sync", "--delete", from, to]))?;
                ensure!(count(&top) == before, "{finished}");
                ensure!(
                    finished.stderr_text().contains("are one tree"),
                    "{finished}"
                );
                Ok(())
            });
        }
    }
    cells.finish();
}

#[test]
fn a_tree_served_by_vsftpd_is_not_synced_with_itself() {
    use peer::vsftpd;
    check_same_tree("vsftpd", vsftpd::find(), vsftpd::start);
}

#[test]
fn a_tree_served_by_proftpd_is_not_synced_with_itself() {
    use peer::proftpd;
    check_same_tree("proftpd", proftpd::find(), proftpd::start);
}

#[test]
fn a_tree_served_by_pure_ftpd_is_not_synced_with_itself() {
    use peer::pure_ftpd;
    check_same_tree("pure-ftpd", pure_ftpd::find(), pure_ftpd::start);
}

#[test]
fn a_tree_served_by_globus_gridftp_server_is_not_synced_with_itself() {
    use peer::globus_gridftp_server as globus;
    check_same_tree("globus-gridftp-server", globus::find(), globus::start);
}
