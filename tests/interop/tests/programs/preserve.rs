//! Permissions, times and checksum files of trees on real servers.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

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

/// Metadata of a tree that a server keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kept {
    modes: bool,
    file_times: bool,
    directory_times: bool,
}

const ALL: Kept = Kept {
    modes: true,
    file_times: true,
    directory_times: true,
};

/// Names with the permissions that they get; the first one is a directory.
const ENTRIES: [(&str, u32); 4] = [("d", 0o750), ("d/a", 0o640), ("d/b", 0o755), ("c", 0o604)];

/// Whole seconds since 1970.
const TIME: u64 = 1_500_000_000;

fn make_tree(top: &Path) -> Result<()> {
    fs::create_dir_all(top.join("d"))?;
    for (name, mode) in ENTRIES.into_iter().rev() {
        let path = top.join(name);
        if !path.is_dir() {
            fs::write(&path, name)?;
        }
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(TIME);
        fs::File::open(&path)?.set_modified(time)?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
    }
    Ok(())
}

fn kept(top: &Path) -> Result<Kept> {
    let mut kept = ALL;
    for (name, mode) in ENTRIES {
        let meta = fs::metadata(top.join(name))?;
        kept.modes &= meta.mode() & 0o777 == mode;
        let is_same = u64::try_from(meta.mtime()).is_ok_and(|time| time == TIME);
        match meta.is_dir() {
            true => kept.directory_times &= is_same,
            false => kept.file_times &= is_same,
        }
    }
    Ok(kept)
}

fn whole_round(name: &str, store: &TestStore, url: &dyn Fn(&str) -> String, expected: Kept) {
    let mut cells = MatrixRow::new(format!("kept metadata, {name}"));
    let (from, back) = (store.scratch().join("from"), store.scratch().join("back"));
    let there = url("up/kept");
    cells.check("put", || {
        make_tree(&from)?;
        let arguments = ["cp", "-r", "--preserve", "all", text(&from), &there];
        let finished = verb(&arguments)?.expect_success()?;
        let found = kept(&store.path("up/kept"))?;
        ensure!(found == expected, "{found:?}\n{finished}");
        let is_told = finished.stderr_text().contains("did not take all");
        ensure!(is_told == (expected != ALL), "{finished}");
        Ok(())
    });
    cells.check("get with a checksum file", || {
        let sums = store.scratch().join("SHA256SUMS");
        let arguments = [
            "cp",
            "-r",
            "--preserve",
            "modes",
            "--write-sums",
            text(&sums),
        ];
        verb(&[&arguments[..], &[&there, text(&back)]].concat())?.expect_success()?;
        let mut sha256sum = std::process::Command::new("sha256sum");
        run::run(sha256sum.args(["-c", text(&sums)]).current_dir(&back))?.expect_success()?;
        // The server computes the checksums, or the files are read.
        verb(&["cksum", "-c", text(&sums), &there])?.expect_success()?;
        fs::write(store.path("up/kept/c"), "other")?;
        verb(&["cksum", "-c", text(&sums), &there])?.expect_code(6)?;
        fs::remove_file(store.path("up/kept/c"))?;
        verb(&["cksum", "-c", text(&sums), &there])?.expect_code(4)?;
        Ok(())
    });
    cells.check("rm --dry-run", || {
        let listed = verb(&["rm", "-r", "--dry-run", &there])?.expect_success()?;
        ensure!(listed.stdout_text().lines().count() == 4, "{listed}");
        ensure!(store.path("up/kept/d/a").is_file(), "removed");
        Ok(())
    });
    cells.finish();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

fn on_peer(
    name: &str,
    found: Result<PathBuf, String>,
    start: impl FnOnce(&TestStore) -> Result<PeerServer>,
    expected: Kept,
) {
    require!(found);
    let store = TestStore::new().unwrap();
    let server = start(&store).unwrap();
    whole_round(name, &store, &|served| server.url(served), expected);
}

#[test]
fn longhaul_serve_keeps_permissions_and_times() {
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    whole_round("longhaul", &store, &|served| server.url(served), ALL);
}

#[test]
fn proftpd_keeps_permissions_and_times() {
    on_peer("proftpd", peer::proftpd::find(), peer::proftpd::start, ALL);
}

#[test]
fn pure_ftpd_keeps_permissions_and_times() {
    let (found, start) = (peer::pure_ftpd::find(), peer::pure_ftpd::start);
    on_peer("pure-ftpd", found, start, ALL);
}

#[test]
fn vsftpd_keeps_no_permissions_for_anonymous_users() {
    let expected = Kept {
        modes: false,
        file_times: false,
        directory_times: false,
    };
    let (found, start) = (peer::vsftpd::find(), peer::vsftpd::start);
    on_peer("vsftpd", found, start, expected);
}
