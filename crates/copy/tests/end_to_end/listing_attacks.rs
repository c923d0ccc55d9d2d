//! Somebody on the path changes what data connections carry, while nobody can change the commands of GSI.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use copy::{DataProtectionChoice, Exit, RemoteOptions, SyncOptions};
use server::config::RequiredProtection;

use crate::protection::TestGrid;
use crate::support::{EndToEndServer, EventRecorder};

/// Where the clients believe the server to be.
const PATH: [u8; 4] = [127, 0, 0, 2];
const SERVER: [u8; 4] = [127, 0, 0, 1];
/// Data ports of a server.
const PORTS: u16 = 8;

/// Attack on the bytes of a data connection on their way to the client.
#[derive(Clone, Copy)]
enum Attack {
    /// They are changed; `None`: left as they are.
    Change(fn(&str) -> Option<String>),
    /// The connection ends after a TLS record, when it has carried this many bytes.
    Cut(usize),
}

/// A server, and somebody on the path to it.
struct AttackedServer {
    server: EndToEndServer,
    address: SocketAddr,
    /// Pieces that were changed.
    changed: Arc<AtomicUsize>,
}

impl AttackedServer {
    async fn new(grid: &TestGrid, attack: Attack) -> Self {
        let changed = Arc::new(AtomicUsize::new(0));
        let (first, on_path) = free_ports();
        let server = grid
            .server_with(|config| {
                config.security.require_protection = RequiredProtection::None;
                config.data_ports = Some((first, first + PORTS - 1));
            })
            .await;
        for listener in on_path {
            let port = listener.local_addr().unwrap().port();
            relay(
                listener,
                (SERVER, port).into(),
                Some((attack, Arc::clone(&changed))),
            );
        }
        let control = TcpListener::bind(SocketAddr::from((PATH, 0))).unwrap();
        let address = control.local_addr().unwrap();
        relay(control, server.address(), None);
        Self {
            server,
            address,
            changed,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("gsiftp://{}/{path}", self.address)
    }

    fn changes(&self) -> usize {
        self.changed.swap(0, Ordering::SeqCst)
    }
}

/// Ports in a row that are free on both sides, and listeners for them on the path.
fn free_ports() -> (u16, Vec<TcpListener>) {
    for _ in 0..1000 {
        let probe = TcpListener::bind(SocketAddr::from((PATH, 0))).unwrap();
        let first = probe.local_addr().unwrap().port();
        drop(probe);
        let range = first..first.saturating_add(PORTS);
        let bind = |side: [u8; 4]| {
            let listeners = range
                .clone()
                .map(|port| TcpListener::bind(SocketAddr::from((side, port))));
            listeners.collect::<Result<Vec<_>, _>>().ok()
        };
        if let (Some(on_path), Some(_)) = (bind(PATH), bind(SERVER))
            && on_path.len() == usize::from(PORTS)
        {
            return (first, on_path);
        }
    }
    panic!("no free ports in a row");
}

/// Passes connections on, and attacks what the server sends.
fn relay(listener: TcpListener, to: SocketAddr, attack: Option<(Attack, Arc<AtomicUsize>)>) {
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let Ok(server) = TcpStream::connect(to) else {
                continue;
            };
            let (from, back) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let attack = attack.clone();
            thread::spawn(move || pass(from, back, None));
            thread::spawn(move || pass(server, client, attack));
        }
    });
}

fn pass(mut from: TcpStream, mut to: TcpStream, attack: Option<(Attack, Arc<AtomicUsize>)>) {
    if let Some((Attack::Cut(after), changed)) = attack {
        return pass_records(from, to, after, &changed);
    }
    let mut bytes = vec![0; 1 << 16];
    while let Ok(read) = from.read(&mut bytes)
        && read > 0
    {
        let mut piece = bytes[..read].to_vec();
        if let Some((Attack::Change(change), changed)) = &attack
            && let Some(other) = std::str::from_utf8(&piece).ok().and_then(change)
        {
            changed.fetch_add(1, Ordering::SeqCst);
            piece = other.into_bytes();
        }
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Passes TLS records on, at most the first `limit` bytes and the record in which they end; the rest disappears.
fn pass_records(mut from: TcpStream, mut to: TcpStream, limit: usize, cuts: &AtomicUsize) {
    let mut passed = 0;
    let mut record = vec![0; 5];
    while from.read_exact(&mut record[..5]).is_ok() {
        let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
        record.resize(5 + length, 0);
        if from.read_exact(&mut record[5..]).is_err() || to.write_all(&record).is_err() {
            break;
        }
        passed += record.len();
        if passed > limit {
            let _ = to.shutdown(Shutdown::Write);
            // The server learns nothing of it.
            let rest = std::io::copy(&mut from, &mut std::io::sink());
            cuts.fetch_add(usize::from(rest.is_ok_and(|n| n > 0)), Ordering::SeqCst);
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Hides a file; the length stays.
fn without_file(listing: &str) -> Option<String> {
    let lines = listing.split_inclusive('\n');
    let kept: String = lines
        .map(|line| match line.ends_with(" kept\r\n") {
            true => "\n".repeat(line.len()),
            false => line.to_owned(),
        })
        .collect();
    (kept != listing).then_some(kept)
}

/// Makes a directory of a link; the length stays.
fn without_link(listing: &str) -> Option<String> {
    let changed = listing.replace("UNIX.slink=../keep;", "UNIX.plink=../keep;");
    (changed != listing).then_some(changed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_hidden_on_the_way_deletes_nothing() {
    let grid = TestGrid::new();
    let attacked = AttackedServer::new(&grid, Attack::Change(without_file)).await;
    attacked.server.store("d/kept", b"1");
    attacked.server.store("d/other", b"2");
    let sync = async |asked| {
        let here = tempfile::tempdir().unwrap();
        std::fs::write(here.path().join("kept"), "1").unwrap();
        let options = SyncOptions {
            copy: grid
                .options(|security| security.data_protection = asked)
                .with(|o| o.tree.recursive = true),
            delete: true,
            checksum: false,
        };
        let to = here.path().to_str().unwrap();
        let observer = Arc::new(EventRecorder::default());
        let summary = copy::sync(&attacked.url("d"), to, &options, observer).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        (here.path().join("kept").exists(), attacked.changes())
    };
    for asked in [
        DataProtectionChoice::Auto,
        DataProtectionChoice::Authenticated,
        DataProtectionChoice::Private,
    ] {
        assert_eq!(sync(asked).await, (true, 0), "{asked:?}");
    }
    // Clear data by name trusts the path.
    let (is_kept, changes) = sync(DataProtectionChoice::Clear).await;
    assert!(!is_kept && changes > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_shown_as_a_directory_on_the_way_is_not_entered() {
    let grid = TestGrid::new();
    let attacked = AttackedServer::new(&grid, Attack::Change(without_link)).await;
    attacked.server.store("keep/precious", b"1");
    for (asked, is_changed) in [
        (DataProtectionChoice::Auto, false),
        // The control connection says what an entry is.
        (DataProtectionChoice::Clear, true),
    ] {
        attacked.server.store("t/sub/f", b"2");
        std::os::unix::fs::symlink("../keep", attacked.server.root().join("t/link")).unwrap();
        let copy = grid.options(|security| security.data_protection = asked);
        let options = RemoteOptions {
            timeout: Duration::from_secs(60),
            security: copy.security,
        };
        let removed = copy::remove(&attacked.url("t"), true, &options).await;
        assert_eq!(removed, Ok(()), "{asked:?}");
        assert_eq!(attacked.changes() > 0, is_changed, "{asked:?}");
        assert!(!attacked.server.root().join("t").exists());
        assert_eq!(attacked.server.read("keep/precious"), b"1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_is_cut_on_the_way_is_an_error_and_deletes_nothing() {
    let grid = TestGrid::new();
    let attacked = AttackedServer::new(&grid, Attack::Cut(32 << 10)).await;
    let padding = "x".repeat(100);
    for n in 0..500 {
        attacked.server.store(&format!("d/{n:03}{padding}"), b"");
    }
    let copy = grid
        .options(|security| security.data_protection = DataProtectionChoice::Auto)
        .with(|o| {
            o.tree.recursive = true;
            o.retry.retries = 0;
        });
    let options = RemoteOptions {
        timeout: Duration::from_secs(60),
        security: copy.security.clone(),
    };
    let listed = copy::list(&attacked.url("d"), &options).await;
    let refused = listed.map(|entries| entries.len()).unwrap_err();
    assert_eq!(refused.exit(), Exit::Unreachable);
    assert!(refused.to_string().contains("was cut"), "{refused}");
    assert_eq!(attacked.changes(), 1);
    let here = tempfile::tempdir().unwrap();
    for n in 0..500 {
        std::fs::write(here.path().join(format!("{n:03}{padding}")), "").unwrap();
    }
    let options = SyncOptions {
        copy,
        delete: true,
        checksum: false,
    };
    let to = here.path().to_str().unwrap();
    let observer = Arc::new(EventRecorder::default());
    let summary = copy::sync(&attacked.url("d"), to, &options, observer).await;
    assert_ne!(summary.exit, Exit::Done);
    assert!(attacked.changes() > 0);
    assert_eq!(std::fs::read_dir(here.path()).unwrap().count(), 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_a_listing_whose_end_is_not_proved_are_copied_and_the_copy_fails() {
    let grid = TestGrid::new();
    let attacked = AttackedServer::new(&grid, Attack::Cut(6 << 10)).await;
    let padding = "x".repeat(100);
    // Directories, whose own listings are shorter than that.
    for n in 0..40 {
        let directory = format!("d/{n:03}{padding}");
        std::fs::create_dir_all(attacked.server.root().join(directory)).unwrap();
    }
    let copy = grid.options(|_| ()).with(|o| o.tree.recursive = true);
    let here = tempfile::tempdir().unwrap();
    let url = format!("ftps://alice:secret@{}/d", attacked.address);
    let to = here.path().join("d");
    let observer = Arc::new(EventRecorder::default());
    let summary = copy::copy(&[url], to.to_str().unwrap(), &copy, observer).await;
    let reason = summary.first_failure.unwrap();
    assert_eq!(summary.exit, Exit::Protocol, "{reason}");
    assert!(
        reason.to_string().contains("without close_notify"),
        "{reason}"
    );
    let copied = std::fs::read_dir(to).unwrap().count();
    assert!((1..=40).contains(&copied), "{copied}");
}
