//! Requests whose replies are lost with the connection: they are made again, and count once.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use copy::{Exit, Preserve, PreservedTimes, SymlinkPolicy, SyncOptions};

use crate::control_proxy::losing_proxy;
use crate::listing_server::ListingServer;
use crate::support::{EndToEndServer, copy, options, paths};
use crate::sync::{sync, syncing};

/// A URL of `server` through a connection that is lost with `commands`, and those of them that are still to come.
async fn losing(
    server: SocketAddr,
    commands: &[&'static str],
) -> (String, Arc<Mutex<Vec<&'static str>>>) {
    let (port, to_come) = losing_proxy(server, commands).await;
    (format!("ftp://127.0.0.1:{port}"), to_come)
}

/// A time with seconds: a server that keeps minutes alone would keep that of one file in sixty by chance.
const WRITTEN: Duration = Duration::from_secs(1_600_000_007);

fn source(files: &[&str]) -> tempfile::TempDir {
    let source = tempfile::tempdir().unwrap();
    for name in files {
        let path = source.path().join(name);
        fs::write(&path, "12345").unwrap();
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + WRITTEN).unwrap();
    }
    source
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_links_and_times_are_set_although_connections_are_lost() {
    let server = EndToEndServer::start().await;
    let from = source(&["f"]);
    std::os::unix::fs::symlink("f", from.path().join("link")).unwrap();
    let commands = ["MKD", "SITE SYMLINK", "SITE CHMOD"];
    let (url, to_come) = losing(server.address(), &commands).await;
    let keeping = options().with(|o| {
        o.tree.recursive = true;
        o.tree.symlinks = SymlinkPolicy::Copy;
        o.file.preserve = Preserve {
            times: PreservedTimes::FilesAndDirectories,
            modes: true,
            ..Preserve::default()
        };
    });
    let (summary, recorder) = copy(&[text(from.path())], &format!("{url}/t"), &keeping).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(recorder.warnings(), Vec::<String>::new());
    assert_eq!(*to_come.lock().unwrap(), Vec::<&str>::new());
    let link = fs::read_link(server.root().join("t/link")).unwrap();
    assert_eq!(link, Path::new("f"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_deletes_although_connections_are_lost() {
    let server = EndToEndServer::start().await;
    for path in ["t/f", "t/extra", "t/old/a"] {
        server.store(path, b"12345");
    }
    let from = source(&["f"]);
    // Of the marker, of a file, and of a directory.
    let commands = ["MKD", "RMD", "DELE /t/extra", "RMD /t/old"];
    let (url, to_come) = losing(server.address(), &commands).await;
    let deleting = SyncOptions {
        delete: true,
        ..syncing()
    };
    let (summary, recorder) = sync(text(from.path()), &format!("{url}/t"), &deleting).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", recorder.failures());
    assert_eq!(*to_come.lock().unwrap(), Vec::<&str>::new());
    assert_eq!(paths(&server.root().join("t")), ["f"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_compares_checksums_although_a_connection_is_lost() {
    let server = EndToEndServer::start().await;
    server.store("t/f", b"12345");
    server.store("t/g", b"54321");
    let from = source(&["f", "g"]);
    let (url, to_come) = losing(server.address(), &["CKSM"]).await;
    let comparing = SyncOptions {
        checksum: true,
        ..syncing()
    };
    let (summary, _) = sync(text(from.path()), &format!("{url}/t"), &comparing).await;
    let done = (summary.exit, summary.files);
    assert_eq!(done, (Exit::Done, 1), "{:?}", summary.first_failure);
    assert_eq!(*to_come.lock().unwrap(), Vec::<&str>::new());
    assert_eq!(server.read("t/g"), b"12345");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_destination_keep_their_times_although_a_trial_of_times_is_lost() {
    let mut server = ListingServer::with(&[]);
    server.keeps = |time| Some(format!("{}00", &time[..12]));
    server.has_mlsd = true;
    let url = server.start();
    let from = source(&["f"]);
    let (summary, _) = sync(text(from.path()), &format!("{url}/t"), &syncing()).await;
    assert_eq!((summary.exit, summary.files), (Exit::Done, 1));
    let before = server.files.lock().unwrap().clone();
    server.received.lock().unwrap().clear();
    let address = url.trim_start_matches("ftp://").parse().unwrap();
    let (url, to_come) = losing(address, &["MFMT", "DELE"]).await;
    let (summary, _) = sync(text(from.path()), &format!("{url}/t"), &syncing()).await;
    let done = (summary.exit, summary.files);
    assert_eq!(done, (Exit::Done, 0), "{:?}", summary.first_failure);
    assert_eq!(*to_come.lock().unwrap(), Vec::<&str>::new());
    assert_eq!(*server.files.lock().unwrap(), before);
    let tried = server.commands("MFMT");
    assert!(tried.iter().all(|line| line.ends_with(".longhaul-partial")));
}
