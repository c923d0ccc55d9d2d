//! `longhaul ls`, `stat`, `mkdir`, `mv`, `cksum` and `rm` against every server.

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::binary::longhaul;
use interop::longhaul::serve::ServeCommand;
use interop::matrix::{self, TestStore};
use interop::peer::{self, PeerServer};
use interop::require;
use interop::run::{self, FinishedProgram};

fn verb(arguments: &[&str]) -> Result<FinishedProgram> {
    run::run(longhaul()?.args(arguments))
}

/// Runs all verbs with one server. `checksums`: the server has CKSM.
fn all_verbs(name: &str, store: &TestStore, url: &dyn Fn(&str) -> String, checksums: bool) {
    let mut cells = MatrixRow::new(format!("verbs, {name}"));
    cells.check("ls", || {
        for options in [&["ls"][..], &["ls", "-l"]] {
            let folder = url("src/");
            let listed = verb(&[options, &[&folder]].concat())?.expect_success()?;
            ensure!(listed.stdout_text().contains("f65535"), "{listed}");
        }
        Ok(())
    });
    cells.check("stat", || {
        let finished = verb(&["stat", &url("src/f65535")])?.expect_success()?;
        ensure!(finished.stdout_text().contains("65535"), "{finished}");
        verb(&["stat", &url("src/none")])?.expect_code(4).map(drop)
    });
    cells.check("mkdir, mv and rm", || {
        verb(&["mkdir", "-p", &url("up/a b/c")])?.expect_success()?;
        std::fs::write(store.path("up/file"), "x")?;
        verb(&["mv", &url("up/file"), &url("up/a b/c/moved")])?.expect_success()?;
        ensure!(store.path("up/a b/c/moved").is_file(), "not moved");
        verb(&["rm", &url("up/a b/c/moved")])?.expect_success()?;
        ensure!(!store.path("up/a b/c/moved").exists(), "not removed");
        verb(&["rm", "-r", &url("up/a b")])?.expect_success()?;
        matrix::ensure_only(&store.path("up"), &[])
    });
    cells.check("ls and rm of patterns", || {
        verb(&["mkdir", "-p", &url("up/p/d1")])?.expect_success()?;
        for name in ["p/f1", "p/f2", "p/g", "p/d1/x"] {
            std::fs::write(store.path("up").join(name), "x")?;
        }
        let listed = verb(&["ls", &url("up/p/{f,d}?")])?.expect_success()?;
        ensure!(listed.stdout_text() == "d1\nf1\nf2\n", "{listed}");
        let tree = verb(&["ls", "-r", &url("up/p/d*")])?.expect_success()?;
        ensure!(tree.stdout_text() == "d1\nd1/x\n", "{tree}");
        verb(&["rm", &url("up/p/f*")])?.expect_success()?;
        matrix::ensure_only(&store.path("up/p"), &["d1", "g"])?;
        verb(&["rm", "-r", &url("up/p*")])?.expect_success()?;
        matrix::ensure_only(&store.path("up"), &[])
    });
    cells.check("rm of a missing file", || {
        verb(&["rm", &url("up/none")])?.expect_code(4).map(drop)
    });
    if checksums {
        cells.check("cksum", || {
            let sum = verb(&["cksum", "-a", "md5", &url("src/f0")])?.expect_success()?;
            ensure!(
                sum.stdout_text()
                    .contains("d41d8cd98f00b204e9800998ecf8427e"),
                "{sum}"
            );
            Ok(())
        });
    }
    cells.finish();
}

fn on_peer(
    name: &str,
    found: Result<std::path::PathBuf, String>,
    start: impl FnOnce(&TestStore) -> Result<PeerServer>,
    checksums: bool,
) {
    require!(found);
    let store = TestStore::new().unwrap();
    let server = start(&store).unwrap();
    all_verbs(name, &store, &|served| server.url(served), checksums);
}

#[test]
fn file_verbs_work_with_longhaul_serve() {
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    all_verbs("longhaul", &store, &|served| server.url(served), true);
}

#[test]
fn file_verbs_work_with_globus_gridftp_server() {
    use peer::globus_gridftp_server as globus;
    on_peer("globus-gridftp-server", globus::find(), globus::start, true);
}

#[test]
fn file_verbs_work_with_vsftpd() {
    on_peer("vsftpd", peer::vsftpd::find(), peer::vsftpd::start, false);
}

#[test]
fn file_verbs_work_with_proftpd() {
    on_peer(
        "proftpd",
        peer::proftpd::find(),
        peer::proftpd::start,
        false,
    );
}

#[test]
fn file_verbs_work_with_pure_ftpd() {
    on_peer(
        "pure-ftpd",
        peer::pure_ftpd::find(),
        peer::pure_ftpd::start,
        false,
    );
}

#[test]
fn file_verbs_work_with_pyftpdlib() {
    on_peer(
        "pyftpdlib",
        peer::pyftpdlib::find(),
        peer::pyftpdlib::start,
        false,
    );
}
