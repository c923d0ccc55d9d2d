use std::collections::BTreeMap;
use std::io;

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use data::job::TransferReport;
use data::served::{JoinedSink, ServedClient, ServedFile, ServedSink, ServedStore, ServedVisitor};
use data::store::memory::{MemorySink, MemorySource};
use data::store::{Sink, Source};
use parking_lot::Mutex;
use proto::checksum::ChecksumAlgorithm;
use proto::command::{DataType, TransferMode};
use proto::listing::{EntryKind, FactSet, ListedEntry};
use proto::ranges::RangeSet;
use proto::server::{
    AccountRights, FileErrorKind, ListFormat, StoreDisposition, TransferError, TransferKind,
};
use proto::timestamp::Timestamp;

use super::*;
use crate::files::{ControlSocket, ListingMemory, OpenedStore, Uploader};

/// Content of an object, and the number of its version.
type VersionedContent = (Vec<u8>, usize);

/// Objects in memory.
#[derive(Debug, Clone, Default)]
struct MemoryObjects(Arc<Mutex<BTreeMap<VPath, VersionedContent>>>);

fn missing(path: &VPath) -> FileError {
    FileError::new(FileErrorKind::NotFound, format!("no object {path}"))
}

impl MemoryObjects {
    fn put(&self, path: &VPath, bytes: &[u8]) -> String {
        let mut objects = self.0.lock();
        let version = objects
            .values()
            .map(|(_, version)| *version)
            .max()
            .unwrap_or(0)
            + 1;
        objects.insert(path.clone(), (bytes.to_vec(), version));
        version.to_string()
    }

    fn get(&self, path: &str) -> Option<Vec<u8>> {
        self.0.lock().get(&v(path)).map(|(bytes, _)| bytes.clone())
    }
}

impl ServedStore for MemoryObjects {
    fn name(&self) -> &str {
        "memory:"
    }

    fn check(&self) -> Result<(), FileError> {
        Ok(())
    }

    fn stat(&self, path: &VPath) -> Result<ListedEntry, FileError> {
        let objects = self.0.lock();
        match objects.get(path) {
            Some((bytes, version)) => Ok(ListedEntry {
                size: Some(bytes.len() as u64),
                version: Some(version.to_string()),
                ..ListedEntry::new(path.name(), EntryKind::File)
            }),
            None if path.is_root() => Ok(ListedEntry::new(b"", EntryKind::Dir)),
            None => Err(missing(path)),
        }
    }

    fn enter(&self, path: &VPath) -> Result<(), FileError> {
        match (path.is_root(), self.stat(path)) {
            (true, _) => Ok(()),
            (_, Ok(_)) => Err(FileError::new(FileErrorKind::NotADirectory, "a file")),
            (_, Err(error)) => Err(error),
        }
    }

    fn list(&self, path: &VPath, visit: &mut ServedVisitor<'_>) -> Result<(), FileError> {
        let paths: Vec<_> = self.0.lock().keys().cloned().collect();
        for object in paths {
            if (path.is_root() || object == *path) && visit(self.stat(&object)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn walk(&self, path: &VPath, visit: &mut ServedVisitor<'_>) -> Result<(), FileError> {
        self.list(path, visit)
    }

    fn open(&self, path: &VPath) -> Result<Arc<dyn ServedFile>, FileError> {
        let found = self.0.lock().get(path).cloned();
        let (bytes, version) = found.ok_or_else(|| missing(path))?;
        Ok(Arc::new(MemoryObjectFile(bytes, version.to_string())))
    }

    fn create(
        &self,
        path: &VPath,
        _announced: Option<u64>,
        _by: &ServedClient,
    ) -> Result<Arc<dyn ServedSink>, FileError> {
        Ok(Arc::new(MemoryUpload {
            objects: self.clone(),
            path: path.clone(),
            bytes: MemorySink::new(1 << 20, "upload"),
        }))
    }

    fn join(
        &self,
        path: &VPath,
        _shared: &str,
        _by: &ServedClient,
    ) -> Result<Arc<dyn JoinedSink>, FileError> {
        Err(missing(path))
    }

    fn make_dir(&self, _path: &VPath) -> Result<(), FileError> {
        Ok(())
    }

    fn remove_dir(&self, path: &VPath) -> Result<(), FileError> {
        Err(missing(path))
    }

    fn remove_file(&self, path: &VPath) -> Result<(), FileError> {
        let removed = self.0.lock().remove(path);
        removed.map(drop).ok_or_else(|| missing(path))
    }

    fn remove_tree(&self, path: &VPath) -> Result<(), FileError> {
        self.remove_file(path)
    }

    fn rename(&self, from: &VPath, to: &VPath) -> Result<(), FileError> {
        let moved = self.0.lock().remove(from).ok_or_else(|| missing(from))?;
        self.0.lock().insert(to.clone(), moved);
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryObjectFile(Vec<u8>, String);

impl ServedFile for MemoryObjectFile {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn version(&self) -> Option<&str> {
        Some(&self.1)
    }

    fn checksum(&self, algorithm: ChecksumAlgorithm) -> Option<String> {
        // One that nobody could compute of the bytes.
        (algorithm == ChecksumAlgorithm::Sha1).then(|| "kept".to_owned())
    }

    fn piece(&self) -> u64 {
        1
    }

    fn source(&self, _wanted: &RangeSet, _by: &ServedClient) -> Result<Arc<dyn Source>, FileError> {
        Ok(Arc::new(MemorySource::new(self.0.clone(), "object")))
    }
}

#[derive(Debug)]
struct MemoryUpload {
    objects: MemoryObjects,
    path: VPath,
    bytes: MemorySink,
}

impl Sink for MemoryUpload {
    fn name(&self) -> String {
        "upload".to_owned()
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.bytes.write_at(offset, buf)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_seekable(&self) -> bool {
        true
    }
}

impl ServedSink for MemoryUpload {
    fn finish(&self, _length: Option<u64>) -> Result<Option<String>, FileError> {
        Ok(Some(self.objects.put(&self.path, &self.bytes.take())))
    }

    fn abandon(&self) {
        self.bytes.take();
    }

    fn share(&self, _algorithm: Option<ChecksumAlgorithm>) -> Result<String, FileError> {
        Err(missing(&self.path))
    }

    fn take_over(&self, _parts: &[String]) -> Result<(), FileError> {
        Err(missing(&self.path))
    }

    fn checksum(&self, _algorithm: ChecksumAlgorithm) -> Option<String> {
        None
    }
}

fn v(path: &str) -> VPath {
    VPath::root().resolve(path.as_bytes()).unwrap()
}

struct StoreFixture {
    objects: MemoryObjects,
    files: SessionFiles,
    client: UploadClient,
    _theirs: UnixStream,
}

impl StoreFixture {
    fn new(write: bool) -> Self {
        let objects = MemoryObjects::default();
        let rights = AccountRights {
            write,
            third_party: false,
        };
        let store: Arc<dyn ServedStore> = Arc::new(objects.clone());
        let memory = ListingMemory::new(1);
        let (ours, theirs) = UnixStream::pair().unwrap();
        Self {
            objects,
            files: SessionFiles::Served(ServedFiles::new(
                store,
                rights,
                Arc::default(),
                Arc::default(),
                memory,
            )),
            client: UploadClient {
                uploader: Uploader::User("ann".to_owned()),
                control_socket: Arc::new(ControlSocket::of(ours.as_fd()).unwrap()),
                control: Arc::default(),
                bytes: data::served::ServedBytes::All,
            },
            _theirs: theirs,
        }
    }

    /// The store of a file, by the session of this account.
    fn begin(&self, path: &str, account: &str) -> Result<OpenedStore, FileError> {
        let client = UploadClient {
            uploader: Uploader::User(account.to_owned()),
            control: Arc::default(),
            ..self.client.clone()
        };
        let kind = TransferKind::Store {
            path: v(path),
            disposition: StoreDisposition::Truncate,
            announced_size: None,
            checksum_algorithm: None,
            expected_checksum: None,
            modified: None,
        };
        match self.open_by(kind, &client)? {
            OpenedTransfer::Receive(store) => Ok(store),
            _ => panic!("no store"),
        }
    }

    fn run(&self, request: &FileRequest) -> Result<FileResponse, FileError> {
        self.files.run(request, &mut |_| true)
    }

    fn open(&self, kind: TransferKind) -> Result<OpenedTransfer, FileError> {
        self.open_by(kind, &self.client)
    }

    fn open_by(
        &self,
        kind: TransferKind,
        client: &UploadClient,
    ) -> Result<OpenedTransfer, FileError> {
        let request = TransferRequest {
            kind,
            mode: TransferMode::Stream,
            type_: DataType::Image,
            streams: proto::streams::ParallelismRange::fixed(1),
            layout: Default::default(),
            congestion_control: String::new(),
            delayed_passive: None,
            buffers: Default::default(),
            perf_marker_seconds: 0,
            range_marker_seconds: 0,
            protection: Default::default(),
        };
        self.files.open(&request, client)
    }

    /// Stores bytes, of which `announced` is the checksum.
    fn store(
        &self,
        bytes: &[u8],
        size: Option<u64>,
        announced: Option<(ChecksumAlgorithm, &str)>,
        computed: Option<&str>,
    ) -> Result<Option<String>, TransferError> {
        let opened = self.open(TransferKind::Store {
            path: v("/f"),
            disposition: StoreDisposition::Truncate,
            announced_size: size,
            checksum_algorithm: Some(ChecksumAlgorithm::Crc32c),
            expected_checksum: announced.map(|(algorithm, sum)| (algorithm, sum.to_owned())),
            modified: None,
        });
        let Ok(OpenedTransfer::Receive(store)) = opened else {
            panic!("no store");
        };
        store.sink.write_at(0, bytes).unwrap();
        let mut report = TransferReport::default();
        report.evidence.bytes = bytes.len() as u64;
        report.stored.insert(0, bytes.len() as u64);
        report.checksum = computed.map(str::to_owned);
        store.finish(&report, &mut |_| true)
    }

    fn sum(&self, algorithm: ChecksumAlgorithm) -> String {
        let request = FileRequest::Checksum {
            algorithm,
            path: v("/f"),
            offset: 0,
            length: None,
            marker_seconds: 0,
        };
        match self.run(&request) {
            Ok(FileResponse::Checksum(hex)) => hex,
            other => panic!("{other:?}"),
        }
    }

    fn list(&self, pattern: Option<&str>, format: ListFormat) -> Vec<String> {
        let request = ListRequest {
            path: VPath::root(),
            pattern: pattern.map(|pattern| pattern.as_bytes().to_vec()),
            prefix: Vec::new(),
            format,
            recursive: false,
            deflate: false,
        };
        let (FileResponse::Lines(lines), _) = self.files.list(&request).unwrap() else {
            panic!("no lines");
        };
        let lines = lines.into_iter().map(String::from_utf8);
        lines.map(Result::unwrap).collect()
    }
}

fn kind<T>(result: Result<T, FileError>) -> FileErrorKind {
    match result {
        Ok(_) => panic!("not refused"),
        Err(error) => error.kind,
    }
}

#[test]
fn objects_are_listed_as_files() {
    let store = StoreFixture::new(false);
    store.objects.put(&v("/a"), b"12");
    store.objects.put(&v("/b"), b"123");
    assert_eq!(store.list(None, ListFormat::Names), ["a", "b"]);
    assert_eq!(store.list(Some("b*"), ListFormat::Names), ["b"]);
    let facts = FactSet::parse("type;size;perm;");
    let lines = store.list(None, ListFormat::Facts(facts));
    assert!(
        lines[0].contains("cdir") && lines[0].ends_with(" ."),
        "{lines:?}"
    );
    assert!(
        lines[2].contains("file") && lines[2].contains('3'),
        "{lines:?}"
    );
    let long = store.list(None, ListFormat::LsLong);
    assert!(long[0].starts_with("-r--r--r--"), "{long:?}");
    let entry = store.run(&FileRequest::Stat(v("/b"))).unwrap();
    assert!(
        matches!(entry, FileResponse::Entry(entry) if entry.size == 3 && !entry.permissions.write)
    );
    assert_eq!(
        kind(store.run(&FileRequest::ChangeDir(v("/b")))),
        FileErrorKind::NotADirectory
    );
}

#[test]
fn a_session_that_may_only_read_changes_nothing() {
    let store = StoreFixture::new(false);
    store.objects.put(&v("/f"), b"1");
    assert_eq!(
        kind(store.run(&FileRequest::Delete(v("/f")))),
        FileErrorKind::Denied
    );
    let put = store.open(TransferKind::Store {
        path: v("/f"),
        disposition: StoreDisposition::Truncate,
        announced_size: None,
        checksum_algorithm: None,
        expected_checksum: None,
        modified: None,
    });
    assert_eq!(kind(put), FileErrorKind::Denied);
}

#[test]
fn what_objects_do_not_have_is_unsupported() {
    let store = StoreFixture::new(true);
    store.objects.put(&v("/f"), b"1");
    for request in [
        FileRequest::SetModified(v("/f"), Timestamp(0)),
        FileRequest::Chmod(v("/f"), 0o600),
        FileRequest::Truncate(v("/f"), 0),
        FileRequest::EndBundle(None),
    ] {
        assert_eq!(
            kind(store.run(&request)),
            FileErrorKind::Unsupported,
            "{request:?}"
        );
    }
    let mut already_stored = RangeSet::new();
    already_stored.insert(0, 1);
    for disposition in [
        StoreDisposition::Append,
        StoreDisposition::Unique,
        StoreDisposition::AtOffset(0),
        StoreDisposition::Resume { already_stored },
    ] {
        let put = store.open(TransferKind::Store {
            path: v("/f"),
            disposition,
            announced_size: None,
            checksum_algorithm: None,
            expected_checksum: None,
            modified: None,
        });
        assert_eq!(kind(put), FileErrorKind::Unsupported);
    }
    assert_eq!(store.objects.get("/f").unwrap(), b"1");
}

#[test]
fn a_file_is_stored_when_its_size_and_checksum_are_the_announced_ones() {
    let store = StoreFixture::new(true);
    let md5 = ChecksumAlgorithm::Md5;
    let cut = store.store(b"abc", Some(4), None, None);
    assert!(matches!(cut, Err(TransferError::Broken(_))), "{cut:?}");
    let other = store.store(b"abc", Some(3), Some((md5, "aa")), Some("bb"));
    assert!(
        matches!(other, Err(TransferError::Checksum { .. })),
        "{other:?}"
    );
    let unknown = store.store(b"abc", Some(3), Some((md5, "aa")), None);
    assert!(
        matches!(unknown, Err(TransferError::File(_))),
        "{unknown:?}"
    );
    assert_eq!(store.objects.get("/f"), None);
    store
        .store(b"abc", Some(3), Some((md5, "aa")), Some("AA"))
        .unwrap();
    assert_eq!(store.objects.get("/f").unwrap(), b"abc");
}

#[test]
fn a_checksum_is_the_kept_one_or_that_of_the_upload_or_is_read() {
    let store = StoreFixture::new(true);
    // The number shows from where it is.
    store.store(b"abc", None, None, Some("computed")).unwrap();
    assert_eq!(store.sum(ChecksumAlgorithm::Crc32c), "computed");
    assert_eq!(store.sum(ChecksumAlgorithm::Sha1), "kept");
    assert_eq!(
        store.sum(ChecksumAlgorithm::Md5),
        "900150983cd24fb0d6963f7d28e17f72"
    );
    // Another version is another content.
    store.objects.put(&v("/f"), b"abc");
    assert_eq!(store.sum(ChecksumAlgorithm::Crc32c), "364b3fb7");
}

#[test]
fn ranges_of_an_object_are_sent() {
    let store = StoreFixture::new(false);
    store.objects.put(&v("/f"), b"0123456789");
    let opened = store.open(TransferKind::Retrieve {
        path: v("/f"),
        partial: Some((3, 4)),
        already_received: RangeSet::new(),
        checksum_algorithm: None,
    });
    let Ok(OpenedTransfer::Send(sending)) = opened else {
        panic!("no source");
    };
    assert_eq!(
        (sending.plan.ranges.to_string(), sending.plan.origin),
        ("3-7".to_owned(), 3)
    );
}

#[test]
fn a_second_upload_of_a_name_is_refused_while_the_first_one_runs() {
    let store = StoreFixture::new(true);
    let first = store.begin("/f", "ann").unwrap();
    assert_eq!(kind(store.begin("/f", "bob")), FileErrorKind::InUse);
    let other = store.begin("/g", "bob").unwrap();
    other.abandon();
    // Nor does another object get the name meanwhile.
    store.objects.put(&v("/h"), b"1");
    let rename = FileRequest::Rename {
        from: v("/h"),
        to: v("/f"),
    };
    assert_eq!(kind(store.run(&rename)), FileErrorKind::InUse);
    first
        .finish(&TransferReport::default(), &mut |_| true)
        .unwrap();
    store.begin("/f", "bob").unwrap().abandon();
    store.run(&rename).unwrap();
}

#[test]
fn the_upload_of_a_client_that_has_gone_makes_way() {
    let store = StoreFixture::new(true);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let gone = UploadClient {
        control_socket: Arc::new(ControlSocket::of(ours.as_fd()).unwrap()),
        ..store.client.clone()
    };
    let SessionFiles::Served(files) = &store.files else {
        panic!("no store");
    };
    let lease = files.uploads.own_object(&v("/f"), &gone).unwrap();
    drop(theirs);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| store.begin("/f", "bob").map(OpenedStore::abandon));
        while !gone.control.is_cancelled() {
            std::thread::yield_now();
        }
        assert!(lease.upload().was_taken_over());
        drop(lease);
        second.join().unwrap().unwrap();
    });
}
