//! A session's file requests, carried out by a store of objects.
//!
//! All functions here block; the driver calls them on a blocking thread.

use std::sync::Arc;

use data::send::SendPlan;
use data::served::{ServedClient, ServedFile, ServedStore};
use parking_lot::Mutex;
use proto::checksum::ChecksumAlgorithm;
use proto::path::VPath;
use proto::ranges::RangeSet;
use proto::server::{
    AccountRights, FileError, FileErrorKind, FileRequest, FileResponse, TransferKind,
    TransferRequest,
};

use super::sums::{ObjectVersion, VersionChecksum, VersionSums};
use crate::files::{
    Access, ChecksumContent, ChecksumPart, ListingMemory, ListingSource, OpenedSource,
    OpenedTransfer, PassingChecksum, PathRights, RunningChecksum, UploadClient, UploadRegistry,
    aborted_error, in_use_error, list_lines, send_plan,
};

/// The files of one session, which are objects.
#[derive(Debug, Clone)]
pub(crate) struct ServedFiles {
    pub(super) store: Arc<dyn ServedStore>,
    pub(super) rights: AccountRights,
    pub(super) paths: PathRights,
    pub(super) sums: Arc<VersionSums>,
    pub(super) uploads: Arc<UploadRegistry>,
    pub(super) listing_memory: ListingMemory,
    /// The object that this session has stored last, if the store tells versions.
    pub(super) last_upload: Arc<Mutex<Option<ObjectVersion>>>,
}

impl ServedFiles {
    /// The objects of `store`, accessed with `rights`. All sessions share `sums`, `uploads` and `listing_memory`.
    pub(crate) fn new(
        store: Arc<dyn ServedStore>,
        rights: AccountRights,
        sums: Arc<VersionSums>,
        uploads: Arc<UploadRegistry>,
        listing_memory: ListingMemory,
    ) -> Self {
        Self {
            store,
            rights,
            paths: PathRights::default(),
            sums,
            uploads,
            listing_memory,
            last_upload: Arc::default(),
        }
    }

    /// The same with rights that depend on the path.
    pub(super) fn with_path_rights(self, paths: PathRights) -> Self {
        Self { paths, ..self }
    }

    pub(super) fn run(
        &self,
        request: &FileRequest,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<FileResponse, FileError> {
        match request {
            FileRequest::Stat(path) => Ok(FileResponse::Entry(Box::new(self.stat(path)?))),
            FileRequest::ChangeDir(path) => {
                self.paths.check(Access::Look, path)?;
                self.store.enter(path)?;
                Ok(FileResponse::Done)
            }
            FileRequest::List(request) => {
                let (lines, _) = list_lines(self, request)?;
                Ok(FileResponse::Lines(lines))
            }
            FileRequest::Checksum {
                algorithm,
                path,
                offset,
                length,
                marker_seconds: _,
            } => self
                .begin_checksum(*algorithm, path, *offset, *length)?
                .advance(progress)?
                .map(FileResponse::Checksum)
                .ok_or_else(aborted_error),
            change => self.run_change(change),
        }
    }

    /// Carries out a request that needs the right to write.
    fn run_change(&self, request: &FileRequest) -> Result<FileResponse, FileError> {
        self.require_write()?;
        self.paths
            .check_change(request, |path| self.is_own_upload(path))?;
        match request {
            FileRequest::MakeDir(path) => self.store.make_dir(path)?,
            FileRequest::RemoveDir(path) => self.store.remove_dir(path)?,
            FileRequest::Delete(path) => self.store.remove_file(path)?,
            FileRequest::RemoveTree(path) => self.store.remove_tree(path)?,
            FileRequest::Rename { from, to } => self.rename(from, to)?,
            FileRequest::SetModified(..)
            | FileRequest::Chmod(..)
            | FileRequest::Chgrp(..)
            | FileRequest::Symlink { .. }
            | FileRequest::SymlinkAmong(_)
            | FileRequest::Truncate(..)
            | FileRequest::EndBundle(_) => return Err(unsupported()),
            // `run` handles these.
            FileRequest::Stat(_)
            | FileRequest::ChangeDir(_)
            | FileRequest::List(_)
            | FileRequest::Checksum { .. } => {}
        }
        Ok(FileResponse::Done)
    }

    pub(super) fn require_write(&self) -> Result<(), FileError> {
        if self.rights.write {
            return Ok(());
        }
        Err(FileError::new(
            FileErrorKind::Denied,
            "Permission denied: this session may only read",
        ))
    }

    fn rename(&self, from: &VPath, to: &VPath) -> Result<(), FileError> {
        // One that ends later would replace what gets the name now.
        let _lease = self.uploads.exclude_uploads(to).ok_or_else(in_use_error)?;
        if !self.paths.may_overwrite(to) && self.exists(to)? {
            return Err(FileError::new(
                FileErrorKind::Denied,
                format!("Permission denied: the token gives no right to change {to}"),
            ));
        }
        self.store.rename(from, to)
    }

    /// Whether anything is at a path.
    pub(super) fn exists(&self, path: &VPath) -> Result<bool, FileError> {
        match self.store.stat(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind == FileErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a path leads to the version that this session has stored last.
    fn is_own_upload(&self, path: &VPath) -> bool {
        let own = self.last_upload.lock().clone();
        let is_there = |(_, version): ObjectVersion| {
            let there = self.store.stat(path);
            there.is_ok_and(|there| there.version.as_ref() == Some(&version))
        };
        own.filter(|(at, _)| at == path).is_some_and(is_there)
    }

    pub(super) fn begin_checksum(
        &self,
        algorithm: ChecksumAlgorithm,
        path: &VPath,
        offset: u64,
        length: Option<u64>,
    ) -> Result<RunningChecksum, FileError> {
        if let Err(denied) = self.paths.check(Access::Read, path) {
            // Who may store a file may also verify what was stored.
            if self.paths.check(Access::Create, path).is_err() || !self.is_own_upload(path) {
                return Err(denied);
            }
        }
        let file = self.store.open(path)?;
        let size = file.size();
        let end = length.map_or(size, |length| offset.saturating_add(length).min(size));
        let is_whole = offset == 0 && end == size;
        let version = version_of(path, &*file);
        let known = match is_whole {
            true => {
                let own = || self.sums.get(version.as_ref()?, algorithm);
                file.checksum(algorithm).or_else(own)
            }
            false => None,
        };
        let mut wanted = RangeSet::new();
        if offset < end {
            wanted.insert(offset, end);
        }
        let part = ChecksumPart {
            path: path.clone(),
            algorithm,
            offset,
            length,
            is_kept: is_whole,
        };
        let content = match known {
            Some(known) => ChecksumContent::Known(known),
            // It ends when it is dropped.
            None => ChecksumContent::Of(file.source(&wanted, &of_checksums())?),
        };
        let purpose = VersionChecksum {
            version,
            sums: Arc::clone(&self.sums),
        };
        Ok(RunningChecksum::new(part, content, Box::new(purpose)))
    }

    pub(super) fn open(
        &self,
        request: &TransferRequest,
        by: &UploadClient,
    ) -> Result<OpenedTransfer, FileError> {
        match &request.kind {
            TransferKind::List(list) => Ok(OpenedTransfer::Send(OpenedSource {
                source: Arc::new(ListingSource::start(self, list)?),
                // A listing is sent in order to its end; its length is not known.
                plan: SendPlan::new(RangeSet::new(), 0),
                path: list.path.clone(),
                object: None,
                checksum: None,
            })),
            TransferKind::Retrieve {
                path,
                partial,
                already_received,
                checksum_algorithm,
            } => {
                let algorithm = *checksum_algorithm;
                let opened = self.open_retrieve(path, *partial, already_received, algorithm, by);
                opened.map(OpenedTransfer::Send)
            }
            TransferKind::Store { .. } => self.open_store(request, by).map(OpenedTransfer::Receive),
            TransferKind::RetrieveBundle { .. } | TransferKind::StoreBundle { .. } => {
                Err(unsupported())
            }
        }
    }

    fn open_retrieve(
        &self,
        path: &VPath,
        partial: Option<(u64, u64)>,
        already_received: &RangeSet,
        algorithm: Option<ChecksumAlgorithm>,
        by: &UploadClient,
    ) -> Result<OpenedSource, FileError> {
        self.paths.check(Access::Read, path)?;
        let file = self.store.open(path)?;
        let plan = send_plan(file.size(), partial, already_received);
        Ok(OpenedSource {
            checksum: self.passing_checksum(path, &*file, algorithm),
            source: file.source(&plan.ranges, &by.served())?,
            plan,
            path: path.clone(),
            object: file
                .version()
                .map(|version| (version.to_owned(), file.piece())),
        })
    }

    /// The checksum to compute of what is sent; `None`: it is known, or would be read a second time.
    fn passing_checksum(
        &self,
        path: &VPath,
        file: &dyn ServedFile,
        algorithm: Option<ChecksumAlgorithm>,
    ) -> Option<PassingChecksum> {
        let algorithm = algorithm.filter(|algorithm| algorithm.is_combinable())?;
        let version = version_of(path, file)?;
        let is_known =
            file.checksum(algorithm).is_some() || self.sums.get(&version, algorithm).is_some();
        let purpose = VersionChecksum {
            version: Some(version),
            sums: Arc::clone(&self.sums),
        };
        (!is_known).then(|| PassingChecksum::new(algorithm, file.size(), Box::new(purpose)))
    }
}

/// All checksums that are computed count as one client. None waits: it would keep its permit from one that could go on.
fn of_checksums() -> ServedClient {
    ServedClient {
        name: "checksums".to_owned(),
        ..ServedClient::default()
    }
}

fn version_of(path: &VPath, file: &dyn ServedFile) -> Option<ObjectVersion> {
    Some((path.clone(), file.version()?.to_owned()))
}

/// The error of a request that no store of objects can carry out.
pub(super) fn unsupported() -> FileError {
    FileError::new(
        FileErrorKind::Unsupported,
        "the files of this server are objects, which are stored as a whole: they have no times, permissions or links that can \
         be set, and no bytes are written into one that is there",
    )
}
