//! Uploads to a store of objects.

use std::sync::Arc;

use data::job::TransferReport;
use data::recv::ReceivePlan;
use data::served::ServedSink;
use data::store::Sink;
use proto::checksum::ChecksumAlgorithm;
use proto::command::DataType;
use proto::path::VPath;
use proto::server::{
    FileError, FileErrorKind, StoreDisposition, TransferError, TransferKind, TransferRequest,
};

use super::served::{ServedFiles, unsupported};
use crate::files::{
    Access, ActiveUpload, OpenedStore, StoreEnd, UploadClient, UploadLease, announced_end,
    require_announced_size,
};

impl ServedFiles {
    /// Begins a new object, which replaces one of its name when all of it is there.
    pub(super) fn open_store(
        &self,
        request: &TransferRequest,
        by: &UploadClient,
    ) -> Result<OpenedStore, FileError> {
        let TransferKind::Store {
            path,
            disposition,
            announced_size,
            checksum_algorithm,
            expected_checksum,
            modified: _,
        } = &request.kind
        else {
            return Err(unsupported());
        };
        self.require_write()?;
        self.paths.check(Access::Create, path)?;
        self.require_new_content(path, disposition)?;
        let lease = self.uploads.own_object(path, by)?;
        if !self.paths.may_overwrite(path) && self.exists(path)? {
            self.paths.check(Access::Modify, path)?;
        }
        let sink = self.store.create(path, *announced_size, &by.served())?;
        let is_text = request.type_ == DataType::Ascii;
        let expected = expected_checksum.as_ref();
        let algorithm = expected.map(|(algorithm, _)| *algorithm);
        let algorithm = algorithm.or(*checksum_algorithm);
        Ok(OpenedStore {
            sink: Arc::clone(&sink) as Arc<dyn Sink>,
            plan: ReceivePlan {
                origin: 0,
                stream_start: 0,
                limit: None,
            },
            path: path.clone(),
            has_unique_name: false,
            // In TYPE A the received bytes are not the stored ones.
            checksum_algorithm: algorithm.filter(|_| !is_text),
            shared: Some(Arc::clone(&sink)),
            end: Box::new(ObjectCompletion {
                files: self.clone(),
                path: path.clone(),
                sink,
                is_text,
                announced_end: announced_end(request, disposition, *announced_size),
                algorithm,
                expected: expected.map(|(_, hex)| hex.clone()),
                lease,
            }),
        })
    }

    /// Refuses a store that would keep a part of an object. What was received of an upload that has failed is gone, so a restart
    /// has nothing to go on with.
    fn require_new_content(
        &self,
        path: &VPath,
        disposition: &StoreDisposition,
    ) -> Result<(), FileError> {
        match disposition {
            StoreDisposition::Truncate => Ok(()),
            StoreDisposition::Resume { already_stored } if already_stored.is_empty() => Ok(()),
            StoreDisposition::Append if !self.exists(path)? => Ok(()),
            StoreDisposition::Append
            | StoreDisposition::Resume { .. }
            | StoreDisposition::AtOffset(_)
            | StoreDisposition::Unique => Err(FileError::new(
                FileErrorKind::Unsupported,
                "the files of this server are objects, which are stored as a whole: send the whole file with STOR",
            )),
        }
    }
}

/// The work that remains when all bytes have been received.
#[derive(Debug)]
struct ObjectCompletion {
    files: ServedFiles,
    path: VPath,
    sink: Arc<dyn ServedSink>,
    is_text: bool,
    /// See [`require_announced_size`].
    announced_end: Option<u64>,
    algorithm: Option<ChecksumAlgorithm>,
    /// The checksum that the client announced (SCKS).
    expected: Option<String>,
    /// Ends after the sink, which the fields before it hold.
    lease: UploadLease,
}

impl ObjectCompletion {
    fn complete(
        &self,
        plan: &ReceivePlan,
        report: &TransferReport,
    ) -> Result<Option<String>, TransferError> {
        require_announced_size(self.announced_end, plan, report)?;
        self.lease.upload().mark_received();
        let length = match self.is_text {
            // Its line ends have another length.
            true => None,
            false => Some(report.stored.end()),
        };
        let is_whole = report.evidence.bytes == report.stored.end();
        let of_parts = || self.sink.checksum(self.algorithm?);
        let computed = report.checksum.clone().or_else(of_parts);
        let computed = computed.filter(|_| is_whole);
        match (&self.expected, &computed) {
            (Some(expected), Some(computed)) if !computed.eq_ignore_ascii_case(expected) => {
                return Err(TransferError::Checksum {
                    computed: computed.clone(),
                    expected: expected.clone(),
                });
            }
            // Nothing may get its name before it is verified.
            (Some(_), None) => return Err(TransferError::File(not_computed())),
            _ => {}
        }
        let version = self.sink.finish(length).map_err(TransferError::File)?;
        let version = version.map(|version| (self.path.clone(), version));
        if let (Some(version), Some(algorithm), Some(computed)) =
            (&version, self.algorithm, &computed)
        {
            self.files.sums.insert(version.clone(), algorithm, computed);
        }
        *self.files.last_upload.lock() = version;
        Ok(computed)
    }
}

impl StoreEnd for ObjectCompletion {
    fn finish(
        self: Box<Self>,
        plan: &ReceivePlan,
        report: &TransferReport,
        _progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<String>, TransferError> {
        let completed = self.complete(plan, report);
        if completed.is_err() {
            self.sink.abandon();
        }
        completed
    }

    fn abandon(self: Box<Self>) {
        self.sink.abandon();
    }

    fn upload(&self) -> &Arc<ActiveUpload> {
        self.lease.upload()
    }
}

fn not_computed() -> FileError {
    FileError::new(
        FileErrorKind::Unsupported,
        "a checksum of this kind is computed only of bytes that come in order: send them in one stream, or announce CRC32C or \
         ADLER32",
    )
}
