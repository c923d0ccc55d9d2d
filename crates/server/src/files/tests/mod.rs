mod checksums;
mod listings;
mod moved_rights;
mod path_rights;
mod quotas;
mod refusals;
mod requests;
mod shown_rights;
mod transfers;
mod uploads;

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use data::job::TransferReport;
use proto::checksum::ChecksumAlgorithm;
use proto::command::{DataType, TransferMode};
use proto::listing::{EntryKind, Fact, FactSet};
use proto::ranges::RangeSet;
use proto::server::{
    ListFormat, ListRequest, StoreDisposition, TransferError, TransferKind, TransferRequest,
};
use proto::timestamp::Timestamp;
use tempfile::TempDir;
use tune::Evidence;

use super::*;

struct FilesFixture {
    dir: TempDir,
    files: DirectoryFiles,
    client: UploadingClient,
}

/// A client that uploads files.
struct UploadingClient {
    storer: UploadClient,
    /// The client's end of the control connection.
    line: UnixStream,
}

impl UploadingClient {
    fn named(user: &str) -> Self {
        let (line, server) = UnixStream::pair().unwrap();
        Self {
            storer: UploadClient {
                uploader: Uploader::User(user.to_owned()),
                control_socket: Arc::new(ControlSocket::of(server.as_fd()).unwrap()),
                control: Arc::default(),
                bytes: data::served::ServedBytes::All,
            },
            line,
        }
    }

    /// Closes the client's control connection.
    fn disconnect(&self) {
        self.line.shutdown(std::net::Shutdown::Both).unwrap();
    }
}

impl FilesFixture {
    fn new() -> Self {
        Self::with_rights(true)
    }

    fn with_rights(write: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let rights = AccountRights {
            write,
            third_party: false,
        };
        Self {
            client: UploadingClient::named("ann"),
            dir,
            files: DirectoryFiles::new(
                root,
                rights,
                Arc::default(),
                Arc::default(),
                ListingMemory::new(1),
            ),
        }
    }

    fn host(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn file(&self, path: &str, content: &str) {
        fs::write(self.host(path), content).unwrap();
    }

    fn content(&self, path: &str) -> String {
        fs::read_to_string(self.host(path)).unwrap()
    }

    fn run(&self, request: &FileRequest) -> Result<FileResponse, FileError> {
        self.files.run(request, &mut |_| true)
    }

    fn sum(&self, path: &str, algorithm: ChecksumAlgorithm) -> Result<String, FileError> {
        let request = FileRequest::Checksum {
            algorithm,
            path: v(path),
            offset: 0,
            length: None,
            marker_seconds: 0,
        };
        match self.run(&request)? {
            FileResponse::Checksum(hex) => Ok(hex),
            other => panic!("{other:?}"),
        }
    }

    /// The cached checksum of a file.
    fn known(&self, path: &str, algorithm: ChecksumAlgorithm) -> Option<String> {
        let state = self.files.root.identity(&v(path)).unwrap();
        self.files.checksums.get(&state, algorithm)
    }

    fn lines(&self, request: ListRequest) -> Vec<String> {
        match self.run(&FileRequest::List(request)).unwrap() {
            FileResponse::Lines(lines) => lines
                .into_iter()
                .map(|line| String::from_utf8_lossy(&line).into_owned())
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    fn open(
        &self,
        what: TransferKind,
        mode: TransferMode,
        type_: DataType,
    ) -> Result<OpenedTransfer, FileError> {
        self.open_by(&self.client, what, mode, type_)
    }

    fn open_by(
        &self,
        client: &UploadingClient,
        what: TransferKind,
        mode: TransferMode,
        type_: DataType,
    ) -> Result<OpenedTransfer, FileError> {
        let request = TransferRequest {
            kind: what,
            mode,
            type_,
            streams: proto::streams::ParallelismRange::fixed(1),
            layout: Default::default(),
            congestion_control: String::new(),
            delayed_passive: None,
            buffers: proto::sizing::SocketBuffers::default(),
            perf_marker_seconds: 0,
            range_marker_seconds: 0,
            protection: proto::security::DataChannelProtection::default(),
        };
        self.files.open(&request, &client.storer)
    }

    /// Opens a store in MODE S for a client.
    fn storing_by(
        &self,
        client: &UploadingClient,
        what: TransferKind,
    ) -> Result<OpenedStore, FileError> {
        match self.open_by(client, what, TransferMode::Stream, DataType::Image)? {
            OpenedTransfer::Receive(storing) => Ok(storing),
            other => panic!("{other:?}"),
        }
    }

    fn storing(&self, what: TransferKind, mode: TransferMode) -> OpenedStore {
        match self.open(what, mode, DataType::Image).unwrap() {
            OpenedTransfer::Receive(storing) => storing,
            other => panic!("{other:?}"),
        }
    }

    /// Stores `content` in MODE S, as the driver does.
    fn store(&self, what: TransferKind, content: &str) -> Result<Option<String>, TransferError> {
        let storing = self.storing(what, TransferMode::Stream);
        let plan = storing.plan;
        storing
            .sink
            .write_at(plan.origin + plan.stream_start, content.as_bytes())
            .unwrap();
        let mut stored = RangeSet::new();
        let start = plan.stream_start;
        stored.insert(start, start + content.len() as u64);
        let digest = storing
            .checksum_algorithm
            .filter(|_| start == 0)
            .map(|algorithm| digest(algorithm, content));
        let report = TransferReport {
            evidence: Evidence {
                bytes: content.len() as u64,
                ..Evidence::default()
            },
            stored,
            checksum: digest,
            ..TransferReport::default()
        };
        storing.finish(&report, &mut |_| true)
    }
}

fn v(path: &str) -> VPath {
    VPath::root().resolve(path.as_bytes()).unwrap()
}

fn digest(algorithm: ChecksumAlgorithm, text: &str) -> String {
    let mut digest = data::checksum::ChecksumHasher::new(algorithm);
    digest.update(text.as_bytes());
    digest.finish()
}

fn store(path: &str, disposition: StoreDisposition) -> TransferKind {
    TransferKind::Store {
        path: v(path),
        disposition,
        announced_size: None,
        checksum_algorithm: None,
        expected_checksum: None,
        modified: None,
    }
}

fn summed(path: &str, algorithm: ChecksumAlgorithm) -> TransferKind {
    TransferKind::Store {
        path: v(path),
        disposition: StoreDisposition::Truncate,
        announced_size: None,
        checksum_algorithm: Some(algorithm),
        expected_checksum: None,
        modified: None,
    }
}

/// A checksum of the whole file.
fn checksum(path: &str) -> FileRequest {
    FileRequest::Checksum {
        algorithm: ChecksumAlgorithm::Md5,
        path: v(path),
        offset: 0,
        length: None,
        marker_seconds: 0,
    }
}

fn list(path: &str, form: ListFormat) -> ListRequest {
    ListRequest {
        path: v(path),
        pattern: None,
        prefix: Vec::new(),
        format: form,
        recursive: false,
        deflate: false,
    }
}

/// A bundle of one file of 14 bytes, to be sent and to be stored.
fn bundles(path: &str) -> [TransferKind; 2] {
    let (path, size, modified) = (VPath::root().resolve(path.as_bytes()).unwrap(), 14, None);
    let file = proto::bundle::BundleFile {
        path,
        size,
        modified,
    };
    let (directory, files) = (VPath::root(), vec![file]);
    let (there, same) = (directory.clone(), files.clone());
    [
        TransferKind::RetrieveBundle { directory, files },
        TransferKind::StoreBundle {
            directory: there,
            files: same,
        },
    ]
}
