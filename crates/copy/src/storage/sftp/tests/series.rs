//! Series with OpenSSH's sftp-server, and with servers that are made up.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use data::job::TransferControl;
use data::store::Sink;
use data::store::bundle::{BundleMember, BundleSource};
use data::store::memory::MemorySink;
use ftp::transfer::series::files::{FileSeries, SeriesEnd, SeriesFile, SeriesReport};
use proto::client::CommandLead;
use proto::timestamp::Timestamp;

use super::{bytes_of, made_up, packet, session, status};
use crate::storage::conformance::{content, spec};
use crate::storage::sftp::series::{EndedSeries, SeriesJob};
use crate::storage::sftp::{SftpStorage, settings_of};

const TIME: Timestamp = Timestamp(1_000_000_000);

/// Files `f0`, `f1`, ... of these sizes in a directory of the server, and their bytes.
fn files(dir: &Path, sizes: &[usize]) -> (Vec<SeriesFile>, Vec<u8>) {
    let mut bytes = Vec::new();
    let mut file = |(index, size): (usize, &usize)| {
        let start = bytes.len() as u64;
        bytes.extend(content(index as u64, *size));
        SeriesFile {
            index,
            start,
            size: *size as u64,
            path: bytes_of(&dir.join(format!("f{index}"))),
            partial: bytes_of(&dir.join(format!("partial{index}"))),
            modified: Some(TIME),
        }
    };
    (sizes.iter().enumerate().map(&mut file).collect(), bytes)
}

/// The source of files, which are in a directory of this machine.
fn source(dir: &Path, files: &[SeriesFile], bytes: &[u8]) -> SeriesEnd {
    std::fs::create_dir_all(dir).unwrap();
    for file in files {
        let from = usize::try_from(file.start).unwrap();
        let to = from + usize::try_from(file.size).unwrap();
        std::fs::write(dir.join(file.index.to_string()), &bytes[from..to]).unwrap();
    }
    let member = |file: &SeriesFile| BundleMember {
        size: file.size,
        modified: None,
    };
    let dir = PathBuf::from(dir);
    let members = files.iter().map(member).collect();
    let open = move |index: usize| File::open(dir.join(index.to_string()));
    SeriesEnd::Send(Arc::new(BundleSource::new(members, open)))
}

async fn moved(storage: &mut SftpStorage, files: Vec<SeriesFile>, end: SeriesEnd) -> SeriesReport {
    let series = FileSeries {
        files,
        end,
        stale: Vec::new(),
        lead: CommandLead::default(),
    };
    let (control, mut report) = (Arc::new(TransferControl::new()), SeriesReport::default());
    let spec = spec(None);
    let storage: &mut dyn crate::storage::contract::Storage = storage;
    let mover = storage.series_mover().unwrap();
    let moved = mover.move_series(&series, &spec, &control, &mut report);
    moved.await.unwrap();
    assert!(storage.is_usable());
    report.moved.sort_unstable();
    report
}

fn failed(report: &SeriesReport) -> Vec<usize> {
    let mut failed: Vec<_> = report.failed.iter().map(|failed| failed.index).collect();
    failed.sort_unstable();
    failed
}

#[tokio::test]
async fn files_of_a_series_get_their_bytes_names_and_times_and_each_fails_alone() {
    // Also without a rename that replaces.
    for options in ["", "-P posix-rename,fsync"] {
        let dir = tempfile::tempdir().unwrap();
        let Some(mut storage) = session(dir.path(), options).await else {
            return;
        };
        let mut sizes = vec![1000; 600];
        sizes[..5].copy_from_slice(&[0, 3_000_000, 261_120, 1, 5]);
        let (files, bytes) = files(dir.path(), &sizes);
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("f1"), "old").unwrap();
        // Of an earlier copy, which may be that of another machine.
        std::fs::write(at("partial0"), "left").unwrap();
        let left = File::open(at("partial0")).unwrap();
        std::fs::create_dir(at("f3")).unwrap();
        let from = source(&at("here"), &files, &bytes);
        // It has changed since it was listed.
        std::fs::write(at("here").join("4"), "other bytes").unwrap();
        let report = moved(&mut storage, files.clone(), from).await;
        assert_eq!(failed(&report), [3, 4], "{report:?}");
        assert_eq!(report.moved.len(), 598);
        assert_eq!(left.metadata().unwrap().len(), 4);
        for file in &files {
            let (from, name) = (
                usize::try_from(file.start).unwrap(),
                format!("f{}", file.index),
            );
            assert!(!at(&format!("partial{}", file.index)).exists());
            if ![3, 4].contains(&file.index) {
                let wanted = &bytes[from..from + usize::try_from(file.size).unwrap()];
                assert!(std::fs::read(at(&name)).unwrap() == wanted, "{name}");
                let metadata = std::fs::metadata(at(&name)).unwrap();
                assert_eq!(Timestamp(metadata.mtime()), TIME);
            }
        }
        // And back: one is missing, one has other bytes by now, one is longer.
        std::fs::write(at("f5"), vec![0; 1000]).unwrap();
        std::fs::write(at("f6"), vec![0; 1001]).unwrap();
        let sink = MemorySink::new(bytes.len(), "sink");
        let end = SeriesEnd::Receive(Arc::new(sink.clone()) as Arc<dyn Sink>);
        let report = moved(&mut storage, files.clone(), end).await;
        assert_eq!(failed(&report), [3, 4, 5, 6], "{report:?}");
        assert_eq!(report.moved.len(), 596);
        let mut wanted = bytes;
        let from = usize::try_from(files[3].start).unwrap();
        wanted[from..from + 6 + 2000].fill(0);
        assert!(sink.take() == wanted);
    }
}

/// A series of `count` files of ten bytes that are fetched of a server that is made up.
async fn fetched(
    count: usize,
    limits: Option<u32>,
    answer: impl FnMut(u8, u32) -> Option<Vec<u8>> + Send + 'static,
) -> EndedSeries {
    let (mut connection, _server) = made_up(answer);
    if let Some(handles) = limits {
        connection.limits.handles = handles;
    }
    let (files, bytes) = files(Path::new("/"), &vec![10; count]);
    let spec = spec(None);
    let job = SeriesJob {
        server: "h".to_owned(),
        files,
        end: SeriesEnd::Receive(Arc::new(MemorySink::new(bytes.len(), "sink"))),
        stale: Vec::new(),
        syncs: true,
        settings: settings_of(&spec, Duration::from_secs(1)),
        spec,
    };
    let run = move || job.run(connection, &Arc::new(TransferControl::new()));
    tokio::task::spawn_blocking(run).await.unwrap()
}

/// Ten bytes, and what shows that these are all.
fn file_of_ten(kind: u8, id: u32) -> Vec<u8> {
    match kind {
        3 => packet(102, id, &[0, 0, 0, 1, b'h']),
        5 => packet(103, id, &[&[0, 0, 0, 10][..], &[7; 10]].concat()),
        8 => packet(105, id, &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 10]),
        _ => status(id, 0),
    }
}

#[tokio::test]
async fn no_more_files_are_open_than_the_server_allows() {
    for limit in [None, Some(3), Some(0), Some(1000)] {
        let most = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&most);
        let mut open = 0;
        let ended = fetched(200, limit, move |kind, id| {
            match kind {
                3 => open += 1,
                4 => open -= 1,
                _ => {}
            }
            seen.fetch_max(open, Ordering::Relaxed);
            Some(file_of_ten(kind, id))
        });
        let ended = ended.await;
        ended.result.unwrap();
        assert_eq!(ended.outcome.moved.len(), 200);
        let most = most.load(Ordering::Relaxed);
        assert!(most <= limit.unwrap_or(64).max(1), "{most} of {limit:?}");
    }
}

#[tokio::test]
async fn a_block_that_comes_short_fails_its_file_alone() {
    let mut reads = 0;
    let ended = fetched(3, None, move |kind, id| {
        reads += u32::from(kind == 5);
        Some(match (kind, reads) {
            (5, 2) => packet(103, id, &[0, 0, 0, 2, 7, 7]),
            _ => file_of_ten(kind, id),
        })
    });
    let ended = ended.await;
    ended.result.unwrap();
    assert_eq!(ended.outcome.moved, [0, 2]);
    assert_eq!(ended.outcome.failed[0].index, 1);
}

#[tokio::test]
async fn files_that_are_proved_count_when_the_connection_is_lost() {
    let mut closed = 0;
    let ended = fetched(30, Some(1), move |kind, id| {
        closed += u32::from(kind == 4);
        (closed <= 9).then(|| file_of_ten(kind, id))
    });
    let ended = ended.await;
    assert!(ended.result.unwrap_err().may_retry());
    assert!(ended.connection.is_none());
    assert_eq!(ended.outcome.begun.len(), 10);
    // The close that is not answered leaves nothing open of a file that has come.
    assert!(ended.outcome.moved.len() >= 8, "{:?}", ended.outcome);
    assert!(ended.outcome.failed.is_empty());
}
