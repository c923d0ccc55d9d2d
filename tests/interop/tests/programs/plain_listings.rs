//! Listings of plain FTP servers: what they leave out, and times that they do not show exactly.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::binary::longhaul;
use interop::longhaul::rows::{ServerUnderTest, path_argument};
use interop::matrix::TestStore;
use interop::peer::{PeerServer, proftpd, pure_ftpd, vsftpd};
use interop::run::{self, FinishedProgram};

fn sync(from: &str, to: &Path, options: &[&str]) -> Result<FinishedProgram> {
    let mut command = longhaul()?;
    command
        .arg("sync")
        .args(options)
        .arg(from)
        .arg(path_argument(to));
    run::run(&mut command)
}

/// Starts a server, if it is installed here.
type StartedServer = (
    &'static str,
    Result<PathBuf, String>,
    fn(&TestStore) -> Result<PeerServer>,
);

/// A directory that the server may enter and not read, beside one with many files.
fn store() -> Result<TestStore> {
    let store = TestStore::new()?;
    for n in 0..40 {
        let path = store.path(&format!("src/t/many/f{n:02}"));
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        fs::write(path, "12345")?;
    }
    let closed = store.path("src/t/closed");
    fs::create_dir_all(&closed)?;
    fs::write(closed.join("f"), "12345")?;
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o711))?;
    Ok(store)
}

/// The local tree has files of each directory, as an earlier sync made them, and an extra one.
fn earlier_copy(store: &TestStore) -> Result<PathBuf> {
    let local = store.local();
    for name in ["closed/f", "many/f39", "extra"] {
        let path = local.join(name);
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        fs::write(path, "1234567")?;
    }
    Ok(local)
}

#[test]
fn directories_that_servers_list_in_part_or_not_at_all_fail_and_lose_nothing() {
    let servers: [StartedServer; 3] = [
        ("vsftpd", vsftpd::find(), vsftpd::start),
        ("ProFTPD", proftpd::find(), proftpd::start),
        ("Pure-FTPd -L", pure_ftpd::find(), |store| {
            pure_ftpd::start_with_short_listings(store, 20)
        }),
    ];
    let mut cells = MatrixRow::new("listings that lack something");
    for (name, found, start) in servers {
        if found.is_err() {
            continue;
        }
        cells.check(name, || {
            let store = store()?;
            let server = start(&store)?;
            let url = ServerUnderTest::new(&store, &server).url("src/t");
            let local = earlier_copy(&store)?;
            let finished = sync(&url, &local, &["--delete"])?.expect_code(1)?;
            let messages = finished.stderr_text();
            let closed = messages
                .lines()
                .filter(|line| line.contains("/src/t/closed"));
            ensure!(closed.count() == 1, "said once: {messages}");
            let is_limited = name.contains("-L");
            ensure!(
                messages.contains("Output truncated to 20 matches") == is_limited,
                "{messages}"
            );
            for kept in ["closed/f", "many/f39", "extra"] {
                ensure!(local.join(kept).exists(), "{kept} is gone: {messages}");
            }
            ensure!(fs::read(local.join("many/f00"))? == b"12345");
            Ok(())
        });
    }
    cells.finish();
}

#[test]
fn files_of_one_size_are_compared_by_the_times_that_servers_tell() {
    let servers: [StartedServer; 3] = [
        ("vsftpd", vsftpd::find(), vsftpd::start),
        ("ProFTPD", proftpd::find(), proftpd::start),
        ("Pure-FTPd", pure_ftpd::find(), pure_ftpd::start),
    ];
    let mut cells = MatrixRow::new("times of files in listings");
    for (name, found, start) in servers {
        if found.is_err() {
            continue;
        }
        cells.check(name, || {
            let store = TestStore::new()?;
            let file = store.path("src/t/d/f");
            fs::create_dir_all(store.path("src/t/d"))?;
            fs::write(&file, "12345")?;
            let server = start(&store)?;
            let url = ServerUnderTest::new(&store, &server).url("src/t");
            let local = store.local();
            sync(&url, &local, &[])?.expect_success()?;
            let time = |path: &Path| -> Result<_> { Ok(fs::metadata(path)?.modified()?) };
            let copied = time(&local.join("d/f"))?;
            let off = time(&file)?.duration_since(copied)?;
            ensure!(
                off.as_secs() == 0,
                "the time is kept to the second: {off:?}"
            );
            // Another content of the same size, an hour later.
            fs::write(&file, "54321")?;
            let later = copied + std::time::Duration::from_secs(3600);
            fs::File::options()
                .write(true)
                .open(&file)?
                .set_modified(later)?;
            sync(&url, &local, &[])?.expect_success()?;
            ensure!(
                fs::read(local.join("d/f"))? == b"54321",
                "the change is not seen"
            );
            Ok(())
        });
    }
    cells.finish();
}
