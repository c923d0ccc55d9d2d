mod listings;
mod refusals;
mod requests;
mod sums;
mod transfers;
mod uploads;

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use data::job::Report;
use proto::checksum::Algorithm;
use proto::command::{Mode, Type};
use proto::listing::{Fact, FactSet, Kind};
use proto::ranges::RangeSet;
use proto::server::{
    Disposition, ListForm, ListRequest, TransferError, TransferKind, TransferRequest,
};
use proto::timestamp::Timestamp;
use tempfile::TempDir;
use tune::Evidence;

use super::*;

struct Session {
    dir: TempDir,
    files: Files,
    client: Client,
}

/// Somebody who stores.
struct Client {
    storer: Storer,
    /// The client's end of the control connection.
    line: UnixStream,
}

impl Client {
    fn named(user: &str) -> Self {
        let (line, server) = UnixStream::pair().unwrap();
        Self {
            storer: Storer {
                uploader: Uploader::User(user.to_owned()),
                line: Arc::new(ControlLine::of(server.as_fd()).unwrap()),
                control: Arc::default(),
            },
            line,
        }
    }

    /// Ends its control connection.
    fn go(&self) {
        self.line.shutdown(std::net::Shutdown::Both).unwrap();
    }
}

impl Session {
    fn new() -> Self {
        Self::with_rights(true)
    }

    fn with_rights(write: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let rights = Rights {
            write,
            third_party: false,
        };
        Self {
            client: Client::named("ann"),
            dir,
            files: Files::new(root, rights, Arc::default(), Arc::default(), Room::new(1)),
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

    fn run(&self, request: &FileRequest) -> Result<FileAnswer, FileError> {
        self.files.run(request, &mut |_| true)
    }

    fn sum(&self, path: &str, algorithm: Algorithm) -> Result<String, FileError> {
        let request = FileRequest::Checksum {
            algorithm,
            path: v(path),
            offset: 0,
            length: None,
            marker_seconds: 0,
        };
        match self.run(&request)? {
            FileAnswer::Digest(hex) => Ok(hex),
            other => panic!("{other:?}"),
        }
    }

    /// Checksum known without reading.
    fn known(&self, path: &str, algorithm: Algorithm) -> Option<String> {
        let state = self.files.root.identity(&v(path)).unwrap();
        self.files.sums.get(&state, algorithm)
    }

    fn lines(&self, request: ListRequest) -> Vec<String> {
        match self.run(&FileRequest::List(request)).unwrap() {
            FileAnswer::Lines(lines) => lines
                .into_iter()
                .map(|line| String::from_utf8_lossy(&line).into_owned())
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    fn open(&self, what: TransferKind, mode: Mode, type_: Type) -> Result<Opened, FileError> {
        self.open_by(&self.client, what, mode, type_)
    }

    fn open_by(
        &self,
        client: &Client,
        what: TransferKind,
        mode: Mode,
        type_: Type,
    ) -> Result<Opened, FileError> {
        let request = TransferRequest {
            what,
            mode,
            type_,
            streams: proto::streams::StreamRange::fixed(1),
            congestion: String::new(),
            delayed_passive: None,
            buffers: proto::sizing::Buffers::default(),
            perf_marker_seconds: 0,
            range_marker_seconds: 0,
        };
        self.files.open(&request, &client.storer)
    }

    /// Opens a store in MODE S by another client.
    fn storing_by(&self, client: &Client, what: TransferKind) -> Result<Storing, FileError> {
        match self.open_by(client, what, Mode::Stream, Type::Image)? {
            Opened::Receive(storing) => Ok(storing),
            other @ Opened::Send(_) => panic!("{other:?}"),
        }
    }

    fn storing(&self, what: TransferKind, mode: Mode) -> Storing {
        match self.open(what, mode, Type::Image).unwrap() {
            Opened::Receive(storing) => storing,
            other @ Opened::Send(_) => panic!("{other:?}"),
        }
    }

    /// Stores `content` in MODE S as the driver does.
    fn store(&self, what: TransferKind, content: &str) -> Result<Option<String>, TransferError> {
        let storing = self.storing(what, Mode::Stream);
        let plan = storing.plan;
        storing
            .sink
            .write_at(plan.origin + plan.stream_start, content.as_bytes())
            .unwrap();
        let mut stored = RangeSet::new();
        let start = plan.stream_start;
        stored.insert(start, start + content.len() as u64);
        let digest = storing
            .sum
            .filter(|_| start == 0)
            .map(|algorithm| digest(algorithm, content));
        let report = Report {
            evidence: Evidence {
                bytes: content.len() as u64,
                ..Evidence::default()
            },
            stored,
            digest,
            ..Report::default()
        };
        storing.finish(&report, &mut |_| true)
    }
}

fn v(path: &str) -> VPath {
    VPath::root().resolve(path.as_bytes()).unwrap()
}

fn digest(algorithm: Algorithm, text: &str) -> String {
    let mut digest = data::digest::Digest::new(algorithm);
    digest.update(text.as_bytes());
    digest.finish()
}

fn store(path: &str, disposition: Disposition) -> TransferKind {
    TransferKind::Store {
        path: v(path),
        disposition,
        allocate: None,
        sum: None,
        expect: None,
        modify: None,
    }
}

fn summed(path: &str, algorithm: Algorithm) -> TransferKind {
    TransferKind::Store {
        path: v(path),
        disposition: Disposition::Truncate,
        allocate: None,
        sum: Some(algorithm),
        expect: None,
        modify: None,
    }
}

fn list(path: &str, form: ListForm) -> ListRequest {
    ListRequest {
        path: v(path),
        pattern: None,
        form,
        recursive: false,
    }
}
