//! A session's files: what the state machine asks for, done inside the session's root.
//!
//! Everything here blocks; the driver calls it on a blocking thread.

use std::sync::Arc;

use data::job::Report;
use data::recv::RecvPlan;
use data::send::SendPlan;
use data::store::root::Root;
use data::store::{Sink, Source};
use proto::path::VPath;
use proto::server::{FileAnswer, FileError, FileRequest, Rights, TransferError, TransferRequest};

mod sums;

pub use sums::Sums;

/// The files of one session.
#[derive(Debug, Clone)]
pub struct Files {
    root: Arc<Root>,
    rights: Rights,
    sums: Arc<Sums>,
}

/// A transfer whose file is open.
#[derive(Debug)]
pub enum Opened {
    /// RETR, ERET and listings: the server sends.
    Send(Sending),
    /// STOR, APPE, STOU, ESTO: the server receives.
    Receive(Storing),
}

/// Something to send.
#[derive(Debug)]
pub struct Sending {
    /// What is read.
    pub source: Arc<dyn Source>,
    /// Which bytes of it.
    pub plan: SendPlan,
    /// The file as the log shall name it.
    pub path: VPath,
}

/// A file that is open to be stored.
#[derive(Debug)]
pub struct Storing {
    /// Where bytes go.
    pub sink: Arc<dyn Sink>,
    /// Where on it.
    pub plan: RecvPlan,
    /// The file; for STOU the unique name.
    pub path: VPath,
    /// STOU made the name.
    pub unique: bool,
    /// What [`data::job::Settings::sum`] should be.
    pub sum: Option<proto::checksum::Algorithm>,
}

impl Files {
    /// The files below `root`, used with `rights`; `sums` is shared by all sessions.
    pub fn new(root: Arc<Root>, rights: Rights, sums: Arc<Sums>) -> Self {
        Self { root, rights, sums }
    }

    /// Carries out a request. `progress` is called now and then during a checksum with the bytes
    /// summed so far; `false` stops it ([`proto::server::FileErrorKind::Other`], "aborted").
    pub fn run(
        &self,
        request: &FileRequest,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<FileAnswer, FileError> {
        let _ = (request, progress);
        todo!()
    }

    /// Opens what a transfer reads or writes. A listing is written to memory here.
    pub fn open(&self, request: &TransferRequest) -> Result<Opened, FileError> {
        let _ = request;
        todo!()
    }
}

impl Storing {
    /// Ends a store that arrived whole: cuts the file where that is due, verifies an announced
    /// checksum, sets the announced time, and remembers the sum. Returns the file's checksum if it
    /// is known. A store that failed is just dropped: what arrived stays for a restart.
    pub fn finish(self, report: &Report) -> Result<Option<String>, TransferError> {
        let _ = report;
        todo!()
    }
}
