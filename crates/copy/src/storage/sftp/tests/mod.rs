//! Sessions with OpenSSH's sftp-server, which a script starts in the place of ssh, and with servers that are made up.

mod series;

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use data::options::TransferOptions;
use data::store::memory::{MemorySink, MemorySource};
use ftp::location::Location;
use ftp::{ConnectionSecurity, SecurityOptions};
use parking_lot::Mutex;
use proto::listing::EntryKind;
use proto::ranges::RangeSet;
use proto::sftp::SftpExtensions;

use super::*;
use crate::storage::conformance::{self, content, spec};

/// The server's program, where the system has one.
fn program() -> Option<PathBuf> {
    let places = [
        "/usr/lib/openssh/sftp-server",
        "/usr/libexec/openssh/sftp-server",
        "/usr/lib/ssh/sftp-server",
    ];
    places.map(PathBuf::from).into_iter().find(|at| at.exists())
}

/// The server that the program is, with these options. A login beside the shared one is refused, and counted in a file.
fn server(dir: &Path, options: &str) -> Option<Server> {
    server_by(dir, &format!("exec {} {options}", program()?.display()))
}

/// The server that this line of a script starts.
fn server_by(dir: &Path, line: &str) -> Option<Server> {
    let script = dir.join("ssh");
    let text = format!(
        "#!/bin/sh\nfor argument in \"$@\"; do\ncase $argument in -G) echo hostname h; exit;; -O) exit 1;;\n\
         -oControlPath=none) echo >>{0}/refused; echo 'h: Permission denied (publickey).' >&2; exit 255;; esac\ndone\n\
         {line}\n",
        dir.display(),
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let options = SecurityOptions {
        ssh: vec![script.to_str().unwrap().to_owned()],
        ..SecurityOptions::default()
    };
    let security = ConnectionSecurity::new(options, Arc::new(|_: &str| ())).unwrap();
    let location = Location::parse_secured("sftp://h/", &security).unwrap();
    Some(location.server().unwrap().clone())
}

async fn open(server: &Server) -> Result<SftpStorage, Failure> {
    let timeout = Duration::from_secs(60);
    SftpStorage::open(server, timeout, SyncPolicy::File, None).await
}

/// A session with the program, which gets these options; `None`: the system has none.
async fn session(dir: &Path, options: &str) -> Option<SftpStorage> {
    Some(open(&server(dir, options)?).await.unwrap())
}

fn bytes_of(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes().to_vec()
}

#[tokio::test]
async fn an_sftp_server_conforms() {
    for options in ["", "-P posix-rename,fsync,limits"] {
        let dir = tempfile::tempdir().unwrap();
        let Some(mut storage) = session(dir.path(), options).await else {
            return;
        };
        let extensions = storage.connection.as_ref().unwrap().extensions;
        assert_eq!(extensions.posix_rename, options.is_empty());
        let top = dir.path().join("top");
        std::fs::create_dir(&top).unwrap();
        conformance::check(&mut storage, &bytes_of(&top)).await;
    }
}

/// Only OpenSSH is known not to mix the packets of several sessions in one login.
#[tokio::test]
async fn sessions_share_a_login_only_with_a_server_that_does_not_mix_them() {
    for (options, may_share) in [("", true), ("-P limits", false)] {
        let dir = tempfile::tempdir().unwrap();
        let Some(server) = server(dir.path(), options) else {
            return;
        };
        let first = open(&server).await.unwrap();
        assert!((&first as &dyn Storage).has_connected());
        for _ in 0..2 {
            match open(&server).await {
                Ok(_) => assert!(may_share),
                Err(failure) => {
                    assert!(!may_share && failure.may_retry());
                    assert_eq!(failure.kind(), FailureKind::SessionLimit, "{failure}");
                }
            }
        }
        // A refusal is known afterwards.
        let refused = std::fs::read(dir.path().join("refused")).unwrap_or_default();
        assert_eq!(refused.len(), usize::from(!may_share));
        drop(first);
        open(&server).await.unwrap();
    }
}

#[tokio::test]
async fn links_names_and_times_are_those_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut storage) = session(dir.path(), "").await else {
        return;
    };
    let at = |name: &str| bytes_of(&dir.path().join(name));
    assert!(storage.make_dir(&at("a\nb")).await.unwrap());
    let link = at("link");
    for target in ["elsewhere", "a\nb"] {
        assert!(
            storage
                .make_link(target.as_bytes(), b"", &link)
                .await
                .unwrap()
        );
    }
    assert_eq!(
        std::fs::read_link(dir.path().join("link")).unwrap(),
        Path::new("a\nb")
    );
    storage.make_link(b"x", b"", &at("a\nb")).await.unwrap_err();
    let mut entries = Vec::new();
    let mut visit = |checked: ftp::answers::SymlinkCheckedEntry| {
        entries.push(checked.entry);
        ControlFlow::Continue(())
    };
    let scope = SymlinkCheckScope::Everything;
    storage.list(&at(""), scope, &mut visit).await.unwrap();
    let found = entries.iter().find(|entry| entry.name == b"link").unwrap();
    assert_eq!(found.kind, EntryKind::SymLink);
    assert_eq!(found.link_target.as_deref(), Some(&b"a\nb"[..]));
    assert_eq!(
        storage.facts(&link, FactsUse::Decision).await.unwrap().kind,
        EntryKind::Dir
    );
    // Not what it leads to.
    storage
        .remove_entry(&link, RemovedKind::Tree)
        .await
        .unwrap();
    assert!(dir.path().join("a\nb").exists());
    let kept = ftp::answers::KeptMetadata {
        modified: Some(Timestamp(1_000_000_000)),
        mode: Some(0o500),
    };
    let (path, missing) = (at("a\nb"), at("missing"));
    let changes = [&path, &missing].map(|path| MetadataChange { path, kept });
    assert_eq!(storage.set_metadata(&changes).await.unwrap(), [true, false]);
    let entry = storage.facts(&path, FactsUse::Decision).await.unwrap();
    assert_eq!((entry.modified, entry.mode), (kept.modified, kept.mode));
}

/// Several connections move a file, also one of unknown length, with holes.
#[tokio::test]
async fn further_connections_join_a_transfer() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut storage) = session(dir.path(), "").await else {
        return;
    };
    let length = 60_000_000;
    let bytes = content(3, length);
    let path = bytes_of(&dir.path().join("file"));
    let many = TransferSpec {
        streams: 3,
        max_streams: 3,
        completed_ranges: RangeSet::parse("1000000-2000000").unwrap(),
        options: TransferOptions::default(),
        ..spec(Some(length))
    };
    let control = Arc::new(TransferControl::new());
    let source: Arc<dyn Source> = Arc::new(MemorySource::new(bytes.clone(), "source"));
    let stored = storage.store(source, &path, &many, &control).await.unwrap();
    assert!(stored.streams > 1, "{}", stored.streams);
    let mut wanted = bytes;
    wanted[1_000_000..2_000_000].fill(0);
    assert!(std::fs::read(dir.path().join("file")).unwrap() == wanted);
    let missing = many.completed_ranges.gaps(0, length as u64);
    assert_eq!(*many.stored_ranges.lock(), missing);
    assert_eq!(stored.report.evidence.bytes, missing.byte_count());
    let unknown = TransferSpec {
        completed_ranges: RangeSet::new(),
        size: None,
        ..many
    };
    let sink = MemorySink::new(length, "sink");
    let shared: Arc<dyn Sink> = Arc::new(sink.clone());
    storage
        .fetch(&path, shared, &unknown, &control)
        .await
        .unwrap();
    assert!(sink.take() == wanted);
    assert!(storage.connection.is_some() && !storage.spares.is_empty());
}

/// A connection with a server that answers each request so; without an answer it ends.
fn made_up(
    mut answer: impl FnMut(u8, u32) -> Option<Vec<u8>> + Send + 'static,
) -> (SftpConnection, JoinHandle<()>) {
    made_up_of(move |kind, id, _| answer(kind, id))
}

/// The same; the answer depends on the whole request.
fn made_up_of(
    mut answer: impl FnMut(u8, u32, &[u8]) -> Option<Vec<u8>> + Send + 'static,
) -> (SftpConnection, JoinHandle<()>) {
    let (near, mut far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    let timeout = Duration::from_millis(300);
    let connection = SftpConnection::new(near, SftpExtensions::default(), timeout);
    let server = std::thread::spawn(move || {
        let mut head = [0; 9];
        while far.read_exact(&mut head).is_ok() {
            let length = u32::from_be_bytes(*head.first_chunk().unwrap());
            let mut rest = vec![0; length as usize - 5];
            far.read_exact(&mut rest).unwrap();
            let id = u32::from_be_bytes(*head.last_chunk().unwrap());
            match answer(head[4], id, &rest) {
                Some(packet) => far.write_all(&packet).unwrap(),
                None => return,
            }
        }
    });
    (connection, server)
}

#[test]
fn bytes_that_were_sent_are_not_kept() {
    const BLOCK: usize = 1 << 18;
    let (near, mut far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    let timeout = Duration::from_secs(1);
    let mut connection = SftpConnection::new(near, SftpExtensions::default(), timeout);
    // There is always something that is not sent yet.
    for round in 0..64 {
        let fill = |out: &mut Vec<u8>| {
            out.resize(out.len() + BLOCK, 7);
            Ok::<(), ()>(())
        };
        connection.send_write(b"h", 0, fill).unwrap();
        connection.exchange().unwrap();
        let mut left = if round < 4 { 0 } else { BLOCK };
        while left > 0 {
            left -= far.read(&mut vec![0; left]).unwrap();
            connection.exchange().unwrap();
        }
    }
    assert!(connection.held() < 20 * BLOCK, "{}", connection.held());
}

fn packet(kind: u8, id: u32, rest: &[u8]) -> Vec<u8> {
    let length = u32::try_from(rest.len() + 5).unwrap();
    [&length.to_be_bytes()[..], &[kind], &id.to_be_bytes(), rest].concat()
}

fn status(id: u32, code: u32) -> Vec<u8> {
    packet(101, id, &code.to_be_bytes())
}

fn opener() -> SftpOpener {
    let location = Location::parse("sftp://h/").unwrap();
    SftpOpener {
        server: location.server().unwrap().clone(),
        name: "h".to_owned(),
        timeout: Duration::from_secs(1),
    }
}

#[tokio::test]
async fn an_algorithm_that_is_refused_is_not_asked_for_again() {
    // The server knows no algorithm; the file has another length than asked for.
    let (mut connection, _server) = made_up(|kind, id| {
        Some(match kind {
            17 => packet(105, id, &[0; 4]),
            _ => status(id, 4),
        })
    });
    connection.extensions.check_file = true;
    let mut storage = SftpStorage {
        opener: opener(),
        home: b"/".to_vec(),
        connection: Some(connection),
        spares: Vec::new(),
        refused_checksums: Vec::new(),
        computed_checksums: Vec::new(),
        rtt: Duration::ZERO,
        sync_policy: SyncPolicy::File,
        _lease: None,
    };
    let part = FilePart {
        offset: 0,
        length: None,
    };
    for (tried, algorithm) in CHECKED.into_iter().enumerate() {
        let left = storage.available_checksums(b"/f").await.unwrap().ranges;
        assert_eq!(left, CHECKED[tried..]);
        storage
            .checksums(algorithm, &[part], b"/f")
            .await
            .unwrap_err();
    }
    let left = storage.available_checksums(b"/f").await.unwrap().ranges;
    assert!(left.is_empty());
}

#[tokio::test]
async fn a_refusal_for_lack_of_space_has_a_kind_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut mounted = std::process::Command::new("unshare");
    let mounts = mounted.args(["-Urm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]);
    let (Some(program), true) = (program(), mounts.status().is_ok_and(|done| done.success()))
    else {
        return;
    };
    let disk = dir.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let line = format!(
        "exec unshare -Urm sh -c 'mount -t tmpfs -o size=1m,nr_inodes=4 tmpfs {} && exec {}'",
        disk.display(),
        program.display()
    );
    let mut storage = open(&server_by(dir.path(), &line).unwrap()).await.unwrap();
    let at = |name: &str| bytes_of(&disk.join(name));
    let mut sizes = Vec::new();
    for (name, size) in [
        ("large", 3_000_000),
        ("small", 10),
        ("b", 10),
        ("c", 10),
        ("d", 10),
    ] {
        let source: Arc<dyn Source> = Arc::new(MemorySource::new(vec![1; size], "source"));
        let control = Arc::new(TransferControl::new());
        let stored = storage
            .store(source, &at(name), &spec(Some(size)), &control)
            .await;
        sizes.push(stored.map(|_| ()).map_err(|failure| failure.kind()));
        assert!(storage.connection.is_some());
        if name == "large" {
            storage
                .remove_entry(&at(name), RemovedKind::File)
                .await
                .unwrap();
        }
    }
    let full = Err(FailureKind::ServerDiskFull);
    // There is room for one directory and three files.
    assert_eq!(sizes, [full, Ok(()), Ok(()), Ok(()), full]);
    let made = storage.make_dir(&at("directory")).await.unwrap_err();
    assert_eq!(made.kind(), FailureKind::ServerDiskFull, "{made}");
    // Another refusal on a disk with room.
    storage
        .remove_entry(&at("b"), RemovedKind::File)
        .await
        .unwrap();
    let made = storage.make_dir(&at("c")).await.unwrap_err();
    assert_eq!(made.kind(), FailureKind::Protocol, "{made}");
}

#[tokio::test]
async fn a_tree_is_listed_at_once_with_directories_before_their_content() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().join("top");
    let mut wanted = Vec::new();
    let mut make = |relative: &str, is_dir: bool| {
        let at = top.join(relative);
        match is_dir {
            true => std::fs::create_dir_all(at).unwrap(),
            false => std::fs::write(at, relative).unwrap(),
        }
        wanted.push(relative.as_bytes().to_vec());
    };
    std::fs::create_dir(&top).unwrap();
    for number in 0..70 {
        make(&format!("d{number}"), true);
        make(&format!("d{number}/file"), false);
    }
    // More than in one reply.
    for number in 0..350 {
        make(&format!("d0/{number}"), false);
    }
    make("d1/e", true);
    make("d1/e/f", true);
    make("d1/e/link", false);
    std::fs::remove_file(top.join("d1/e/link")).unwrap();
    std::os::unix::fs::symlink("f", top.join("d1/e/link")).unwrap();
    for options in ["", "-P limits"] {
        let Some(mut storage) = session(dir.path(), options).await else {
            return;
        };
        let mut entries = Vec::new();
        let mut visit = |entry| {
            entries.push(entry);
            ControlFlow::Continue(())
        };
        assert!(
            storage
                .list_tree(&bytes_of(&top), &mut visit)
                .await
                .unwrap()
        );
        let place = |name: &[u8]| entries.iter().position(|entry| entry.name == name);
        for entry in &entries {
            let above = directory_of(&entry.name);
            assert!(above.is_empty() || place(above) < place(&entry.name));
        }
        let link = entries.iter().find(|entry| entry.name == b"d1/e/link");
        assert_eq!(link.unwrap().link_target.as_deref(), Some(&b"f"[..]));
        let mut names: Vec<_> = entries.iter().map(|entry| entry.name.clone()).collect();
        names.sort_unstable();
        wanted.sort_unstable();
        assert!(names == wanted);
        // Replies that nobody needs are no obstacle.
        storage
            .facts(&bytes_of(&top), FactsUse::Decision)
            .await
            .unwrap();
        assert!(storage.connection.is_some());
    }
}

#[test]
fn replies_of_before_the_end_count_although_nothing_can_be_sent() {
    let mut answered = 0;
    let (mut connection, server) = made_up(move |_, id| {
        answered += 1;
        (answered <= 3).then(|| status(id, 0))
    });
    for _ in 0..4 {
        connection.send(&SftpRequest::Close(b"h"));
    }
    connection.exchange().unwrap();
    server.join().unwrap();
    connection.send(&SftpRequest::Close(b"h"));
    let mut taken = 0;
    while connection.exchange().is_ok() {
        while connection.take().unwrap().is_some() {
            taken += 1;
        }
    }
    assert_eq!(taken, 3);
}

/// One connection with a file open.
fn lanes(connection: SftpConnection, flags: OpenFlags, is_durable: bool) -> Lanes {
    let opener = opener();
    let plan = LanePlan {
        path: b"/f".to_vec(),
        flags,
        most: 1,
        wants_all: true,
        is_marked: false,
        is_durable,
        rtt: Duration::ZERO,
    };
    let opened = Lanes::open(connection, Vec::new(), &opener, &Handle::current(), plan);
    opened.map_err(|(failed, _)| failed).unwrap()
}

/// Bytes of the prefix that count after a server takes so many blocks and then answers `last`, or ends.
async fn counted(has_fsync: bool, is_durable: bool, taken: u32, last: Option<u32>) -> u64 {
    let mut writes = 0;
    let server = made_up(move |kind, id| {
        writes += u32::from(kind == 6);
        match kind {
            3 => Some(packet(102, id, &[0, 0, 0, 1, b'h'])),
            6 if writes > taken => last.map(|code| status(id, code)),
            _ => Some(status(id, 0)),
        }
    });
    counted_of(server.0, has_fsync, is_durable).await
}

/// The same of any server.
async fn counted_of(mut connection: SftpConnection, has_fsync: bool, is_durable: bool) -> u64 {
    connection.extensions.fsync = has_fsync;
    let mut lanes = lanes(connection, OpenFlags::Replace, is_durable);
    let size = 70 << 20;
    let spec = spec(Some(size));
    let stored = Arc::clone(&spec.stored_ranges);
    let done = tokio::task::spawn_blocking(move || {
        let job = store::StoreJob {
            server: "h",
            operation: &Operation::from("test"),
            source: &MemorySource::new(vec![1; size], "source"),
            settings: &settings_of(&spec, Duration::from_secs(1)),
            spec: &spec,
            size: Some(size as u64),
        };
        job.run(&mut lanes, &Arc::new(TransferControl::new()))
    });
    done.await.unwrap().unwrap_err();
    stored.lock().prefix_len()
}

#[tokio::test]
async fn blocks_that_were_taken_count_beside_one_that_was_refused_at_the_same_time() {
    let mut held = Vec::new();
    let server = made_up(move |kind, id| match kind {
        3 => Some(packet(102, id, &[0, 0, 0, 1, b'h'])),
        6 => {
            let is_last = held.len() == 3;
            held.push(status(id, if is_last { 4 } else { 0 }));
            Some(if is_last { held.concat() } else { Vec::new() })
        }
        _ => Some(status(id, 0)),
    });
    assert_eq!(counted_of(server.0, false, true).await, 3 * (32 << 10));
}

#[tokio::test]
async fn bytes_count_when_a_crash_of_the_server_cannot_lose_them() {
    const BLOCK: u64 = 32 << 10;
    // Forced to disk after 64 MiB, or 2 s.
    let synced = counted(true, true, 2200, None).await / BLOCK;
    assert!((1..=2200).contains(&synced), "{synced}");
    assert_eq!(counted(true, true, 9, Some(4)).await, 0);
    // The server may have crashed, or lives.
    assert_eq!(counted(false, true, 9, None).await, 0);
    assert_eq!(counted(false, true, 9, Some(4)).await, 9 * BLOCK);
    // Nobody has asked for it.
    assert_eq!(counted(true, false, 9, None).await, 9 * BLOCK);
}

/// Two connections with a file open, of which the second one ends after some blocks; the offsets of the blocks that each has
/// answered.
fn two_lanes(
    flags: OpenFlags,
    is_durable: bool,
    answered_by_second: usize,
) -> (Lanes, [Arc<Mutex<Vec<u64>>>; 2]) {
    let answered = [(); 2].map(|()| Arc::new(Mutex::new(Vec::new())));
    let limits = [usize::MAX, answered_by_second];
    let mut connections = Vec::new();
    // The first one answers no block before the second one has ended.
    let (lives, has_ended) = std::sync::mpsc::channel::<()>();
    let mut ends = [(None, Some(has_ended)), (Some(lives), None)].into_iter();
    for (answered, limit) in answered.iter().zip(limits) {
        let (lives, has_ended) = ends.next().unwrap();
        let answered = Arc::clone(answered);
        let (mut connection, _server) = made_up_of(move |kind, id, rest| match kind {
            3 => Some(packet(102, id, &[0, 0, 0, 1, b'h'])),
            5 | 6 => {
                let offset = u64::from_be_bytes(*rest[5..].first_chunk().unwrap());
                let _held = &lives;
                if let Some(has_ended) = &has_ended {
                    let _ = has_ended.recv();
                }
                let mut answered = answered.lock();
                answered.push(offset);
                (answered.len() <= limit).then(|| match kind {
                    6 => status(id, 0),
                    _ => {
                        let length = u32::from_be_bytes(*rest[13..].first_chunk().unwrap());
                        let bytes = content(offset, length as usize);
                        packet(103, id, &[&length.to_be_bytes(), bytes.as_slice()].concat())
                    }
                })
            }
            _ => Some(status(id, 0)),
        });
        connection.extensions.fsync = true;
        connections.push(connection);
    }
    let spare = connections.pop().unwrap();
    let plan = LanePlan {
        path: b"/f".to_vec(),
        flags,
        most: 2,
        wants_all: true,
        is_marked: false,
        is_durable,
        rtt: Duration::ZERO,
    };
    let (first, opener) = (connections.pop().unwrap(), opener());
    let lanes = Lanes::open(first, vec![spare], &opener, &Handle::current(), plan);
    (lanes.map_err(|(failed, _)| failed).unwrap(), answered)
}

#[tokio::test]
async fn the_blocks_of_a_connection_that_is_lost_are_stored_over_another_one() {
    const BLOCK: usize = 32 << 10;
    let size = 16 << 20;
    let all: Vec<u64> = (0..size).step_by(BLOCK).map(|at| at as u64).collect();
    for is_durable in [true, false] {
        let (mut lanes, answered) = two_lanes(OpenFlags::Replace, is_durable, 20);
        let spec = spec(Some(size));
        let stored = Arc::clone(&spec.stored_ranges);
        let done = tokio::task::spawn_blocking(move || {
            let job = store::StoreJob {
                server: "h",
                operation: &Operation::from("test"),
                source: &MemorySource::new(vec![1; size], "source"),
                settings: &settings_of(&spec, Duration::from_secs(1)),
                spec: &spec,
                size: Some(size as u64),
            };
            let report = job.run(&mut lanes, &Arc::new(TransferControl::new()));
            (report, lanes.count())
        });
        let (report, left) = done.await.unwrap();
        assert_eq!(report.unwrap().evidence.bytes, size as u64);
        assert_eq!(left, 1);
        let [first, second] = answered.map(|answered| answered.lock().clone());
        assert!(second.len() > 20, "{}", second.len());
        // Bytes that are not on disk may be lost with the machine that has them.
        let mut kept = first;
        if !is_durable {
            kept.extend(&second[..20]);
            assert_eq!(stored.lock().prefix_len(), size as u64);
        }
        kept.sort_unstable();
        kept.dedup();
        assert!(kept == all, "{} of {}", kept.len(), all.len());
    }
}

#[tokio::test]
async fn the_blocks_of_a_connection_that_is_lost_are_fetched_over_another_one() {
    const BLOCK: usize = 32 << 10;
    let size = 16 << 20;
    let (lanes, answered) = two_lanes(OpenFlags::Read, true, 20);
    let sink = MemorySink::new(size, "sink");
    let shared: Arc<dyn Sink> = Arc::new(sink.clone());
    let done = tokio::task::spawn_blocking(move || {
        let spec = spec(Some(size));
        let job = fetch::FetchJob {
            server: "h",
            operation: Operation::from("test"),
            sink: &shared,
            settings: &settings_of(&spec, Duration::from_secs(1)),
            spec: &spec,
            size: Some(size as u64),
        };
        let (report, lanes) = job.run(lanes, &Arc::new(TransferControl::new()));
        (report, lanes.unwrap().count())
    });
    let (report, left) = done.await.unwrap();
    report.unwrap();
    assert_eq!(left, 1);
    assert!(answered[1].lock().len() > 20);
    let wanted = (0..size).step_by(BLOCK).map(|at| content(at as u64, BLOCK));
    assert!(sink.take() == wanted.collect::<Vec<_>>().concat());
}

#[test]
fn codes_of_a_status_decide_about_the_exit_code() {
    for (code, kind) in [
        (2, FailureKind::NotFound),
        (3, FailureKind::Refused),
        (4, FailureKind::Protocol),
        (7, FailureKind::Unreachable),
        (8, FailureKind::Protocol),
    ] {
        let (mut connection, _server) = made_up(move |_, id| Some(status(id, code)));
        let refused = connection.done(&SftpRequest::Remove(b"/x")).unwrap_err();
        let failure = refused.failure("h", &Operation::on_path("remove", b"/x"));
        assert_eq!(failure.kind(), kind, "{failure}");
        assert!(connection.is_usable());
    }
}

#[test]
fn what_was_not_asked_for_ends_a_connection() {
    let other_request: fn(u8, u32) -> Option<Vec<u8>> = |_, id| Some(status(id.wrapping_add(1), 0));
    let too_long: fn(u8, u32) -> Option<Vec<u8>> = |_, _| Some(vec![255; 9]);
    let silence: fn(u8, u32) -> Option<Vec<u8>> = |_, _| Some(Vec::new());
    let end: fn(u8, u32) -> Option<Vec<u8>> = |_, _| None;
    for (answer, may_retry) in [
        (other_request, false),
        (too_long, false),
        (silence, true),
        (end, true),
    ] {
        let (mut connection, _server) = made_up(answer);
        let failed = connection.done(&SftpRequest::Remove(b"/x")).unwrap_err();
        assert!(failed.code().is_none());
        let failure = failed.failure("h", &Operation::from("test"));
        assert_eq!(failure.may_retry(), may_retry, "{failure}");
        assert!(!connection.is_usable());
    }
}

#[test]
fn a_listing_is_complete_only_at_its_end() {
    // `end` answers the second READDIR, and `own` the question for the directory itself.
    let listed = |name: u8, end: u32, own: u32| {
        let mut asked = 0;
        let (mut connection, _server) = made_up(move |kind, id| {
            asked += u32::from(kind == 12);
            Some(match (kind, asked) {
                (11, _) => packet(102, id, &[0, 0, 0, 1, b'h']),
                (12, 1) => packet(
                    104,
                    id,
                    &[0, 0, 0, 1, 0, 0, 0, 1, name, 0, 0, 0, 0, 0, 0, 0, 0],
                ),
                (12, _) => status(id, end),
                (7, _) if own == 0 => packet(105, id, &[0; 4]),
                (7, _) => status(id, own),
                _ => status(id, 0),
            })
        });
        let mut found = 0;
        let listed = changes::list(&mut connection, b"/d", |_, entries| {
            found += entries.len();
            Ok(ControlFlow::Continue(()))
        });
        assert!(connection.is_usable());
        (found, listed.is_ok())
    };
    assert_eq!(listed(b'f', 1, 0), (1, true));
    assert_eq!(listed(b'f', 4, 0), (1, false));
    // A directory that may be read but not searched shows nothing, not even itself.
    assert_eq!(listed(b'f', 1, 3), (1, false));
    assert_eq!(listed(b'.', 1, 3), (0, true));
}

#[test]
fn targets_of_links_are_asked_for_some_at_a_time_and_bounded() {
    for (length, is_read) in [(1000, true), (MAX_PATH + 1, false)] {
        let target = [
            &[0, 0, 0, 1][..],
            &u32::try_from(length).unwrap().to_be_bytes(),
            &vec![b't'; length],
            &[0; 8],
        ]
        .concat();
        let (mut connection, _server) = made_up(move |_, id| Some(packet(104, id, &target)));
        let link = ListedEntry::new(b"link", EntryKind::SymLink);
        let mut entries = vec![link; 200];
        let read = changes::read_links(&mut connection, b"/d", &mut entries);
        assert_eq!(read.is_ok(), is_read);
        let are_read = entries.iter().all(|entry| entry.link_target.is_some());
        assert_eq!(are_read, is_read);
    }
}

/// The end of a file has a status of its own.
#[tokio::test]
async fn a_reply_without_bytes_is_not_the_end_of_a_file() {
    for (is_status, is_fetched) in [(true, true), (false, false)] {
        let (connection, _server) = made_up(move |kind, id| {
            Some(match kind {
                3 => packet(102, id, &[0, 0, 0, 1, b'h']),
                5 if !is_status => packet(103, id, &[0; 4]),
                5 => status(id, 1),
                _ => status(id, 0),
            })
        });
        let lanes = lanes(connection, OpenFlags::Read, false);
        let spec = spec(None);
        let sink: Arc<dyn Sink> = Arc::new(MemorySink::new(0, "sink"));
        let fetched = tokio::task::spawn_blocking(move || {
            let job = fetch::FetchJob {
                server: "h",
                operation: Operation::from("test"),
                sink: &sink,
                settings: &settings_of(&spec, Duration::from_secs(1)),
                spec: &spec,
                size: None,
            };
            job.run(lanes, &Arc::new(TransferControl::new())).0
        });
        let fetched = fetched.await.unwrap();
        assert_eq!(fetched.is_ok(), is_fetched, "{fetched:?}");
    }
}

#[test]
fn a_rename_that_replaces_nothing_never_loses_the_old_file() {
    // 18 is RENAME: the second one moves the old file aside, the third one takes its name and fails, the fourth one moves it back.
    for (third, fourth, is_renamed) in [(0, 0, true), (4, 0, false), (4, 4, false)] {
        let kinds = Arc::new(Mutex::new(Vec::new()));
        let (asked, mut renames) = (Arc::clone(&kinds), 0);
        let (mut connection, _server) = made_up(move |kind, id| {
            asked.lock().push(kind);
            renames += u32::from(kind == 18);
            Some(match (kind, renames) {
                (7, _) => packet(105, id, &0u32.to_be_bytes()),
                (18, 1) => status(id, 4),
                (18, 3) => status(id, third),
                (18, 4) => status(id, fourth),
                _ => status(id, 0),
            })
        });
        let renamed = changes::rename(&mut connection, "h", b"/new", b"/name", None);
        assert_eq!(renamed.is_ok(), is_renamed);
        let said = renamed.map_or_else(|refused| refused.failure.to_string(), |()| String::new());
        assert_eq!(
            said.contains("/name.longhaul-replaced-"),
            fourth != 0,
            "{said}"
        );
        // The old file is removed after the new one is there, or has its name again.
        let last = if is_renamed { 13 } else { 18 };
        assert_eq!(*kinds.lock(), [18, 7, 18, 18, last]);
    }
}

/// An entry of a listing: a name, and a mode.
fn named(name: &[u8], mode: u32) -> Vec<u8> {
    let length = u32::try_from(name.len()).unwrap().to_be_bytes();
    [
        &length,
        name,
        &[0; 4],
        &4u32.to_be_bytes(),
        &mode.to_be_bytes(),
    ]
    .concat()
}

#[test]
fn a_directory_that_fails_hides_no_other_one_and_paths_are_bounded() {
    const DIRECTORY: u32 = 0o40755;
    let mut read = HashSet::new();
    let (mut connection, _server) = made_up_of(move |kind, id, rest| {
        let of = &rest[4..];
        let names = |names: &[Vec<u8>]| {
            let count = u32::try_from(names.len() + 1).unwrap().to_be_bytes();
            let all = [&[count.to_vec(), named(b".", DIRECTORY)], names].concat();
            packet(104, id, &all.concat())
        };
        Some(match (kind, of) {
            (11, _) => packet(102, id, rest),
            (12, b"/t/bad") => status(id, 4),
            (12, _) if !read.insert(of.to_vec()) => status(id, 1),
            (12, b"/t") => names(&[named(b"bad", DIRECTORY), named(b"good", DIRECTORY)]),
            (12, _) => {
                let long = vec![b'd'; MAX_PATH];
                names(&[named(b"file", 0o100_644), named(&long, DIRECTORY)])
            }
            _ => status(id, 0),
        })
    });
    let mut shown = Vec::new();
    let listed = tree::list_tree(&mut connection, b"/t", |entries| {
        shown.extend(entries);
        ControlFlow::Continue(())
    });
    assert!(matches!(listed, Err(SftpFailed::Refused(_))), "{listed:?}");
    assert!(connection.is_usable());
    let found = |name: &[u8]| shown.iter().find(|entry| entry.name == name);
    assert!(found(b"bad").is_some() && found(b"good/file").is_some());
    let long = [b"good/", vec![b'd'; MAX_PATH].as_slice()].concat();
    assert_eq!(found(&long).unwrap().may_list, Some(false));
}

#[tokio::test]
async fn a_further_connection_finds_the_file_and_no_other_one() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut storage) = session(dir.path(), "").await else {
        return;
    };
    let file = dir.path().join("file");
    let path = bytes_of(&file);
    let mut connection = storage.connection.take().unwrap();
    tokio::task::spawn_blocking(move || {
        let opened = connection.open(&SftpRequest::Open(&path, OpenFlags::New));
        let handle = opened.unwrap();
        let mark = lanes::mark(&mut connection, &handle).unwrap();
        assert!(mark.is_some());
        let mut again =
            || opening::open_again(&mut connection, &path, OpenFlags::WriteExisting, mark);
        std::fs::write(&file, "bytes").unwrap();
        again().unwrap();
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, "those of another copy").unwrap();
        assert!(matches!(again(), Err(SftpFailed::Other(_))));
    })
    .await
    .unwrap();
}
