//! Standard input and output as a storage.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use data::job::TransferControl;
use data::store::file::FileSource;
use data::store::{Sink, Source};
use proto::checksum::ChecksumAlgorithm;
use proto::listing::ListedEntry;
use proto::timestamp::Timestamp;

use super::capabilities::{AvailableChecksums, Capabilities};
use super::contract::Storage;
use super::files::LOCAL_CAPABILITIES;
use super::local_copy;
use super::open_source::OpenSource;
use crate::CopyFailure;
use crate::answers::{ListingVisitor, RenameFailure, SymlinkCheckScope};
use crate::partial::{WriteTarget, local_failure};
use crate::transfer::{TransferAttempt, TransferSpec};

/// Standard input and output.
#[derive(Debug)]
pub(crate) struct StandardStreams;

impl StandardStreams {
    fn no_files<T>() -> Result<T, CopyFailure> {
        Err(CopyFailure::usage(
            "standard input and output hold no files",
        ))
    }
}

#[async_trait]
impl Storage for StandardStreams {
    fn name(&self) -> &str {
        "this machine"
    }

    fn capabilities(&self) -> Capabilities {
        LOCAL_CAPABILITIES
    }

    async fn stat(&mut self, _path: &[u8]) -> Result<ListedEntry, CopyFailure> {
        Self::no_files()
    }

    async fn list(
        &mut self,
        _path: &[u8],
        _scope: SymlinkCheckScope,
        _visit: &mut ListingVisitor<'_>,
    ) -> Result<(), CopyFailure> {
        Self::no_files()
    }

    async fn available_checksums(
        &mut self,
        _path: &[u8],
    ) -> Result<AvailableChecksums, CopyFailure> {
        Ok(AvailableChecksums::all())
    }

    async fn checksum(
        &mut self,
        _algorithm: ChecksumAlgorithm,
        _offset: u64,
        _length: Option<u64>,
        _path: &[u8],
    ) -> Result<String, CopyFailure> {
        Self::no_files()
    }

    async fn open(&mut self, _path: &[u8]) -> Result<Option<OpenSource>, CopyFailure> {
        let name = "standard input";
        // A duplicate, so that closing the source leaves standard input open.
        let stdin = io::stdin().as_fd().try_clone_to_owned().map(File::from);
        let stdin = stdin.map_err(|e| local_failure(Path::new(name), e))?;
        // Sequential: a redirected file may be partly read, and the next reader of the descriptor
        // continues after this copy.
        Ok(Some(OpenSource {
            source: Arc::new(FileSource::sequential(stdin, name)),
            facts: None,
            identity: None,
        }))
    }

    async fn write_target(&mut self, _path: &[u8]) -> Result<Option<WriteTarget>, CopyFailure> {
        WriteTarget::stdout().map(Some)
    }

    async fn fetch(
        &mut self,
        path: &[u8],
        sink: Arc<dyn Sink>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, CopyFailure> {
        match self.open(path).await? {
            Some(opened) => local_copy::copy_local(opened.source, sink, spec, control).await,
            None => Self::no_files(),
        }
    }

    async fn store(
        &mut self,
        source: Arc<dyn Source>,
        path: &[u8],
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, CopyFailure> {
        match self.write_target(path).await? {
            Some(WriteTarget::Direct { sink }) => {
                local_copy::copy_local(source, sink, spec, control).await
            }
            _ => Self::no_files(),
        }
    }

    async fn make_dir(&mut self, _path: &[u8]) -> Result<bool, CopyFailure> {
        Self::no_files()
    }

    async fn remove(&mut self, _path: &[u8]) -> Result<(), CopyFailure> {
        Self::no_files()
    }

    async fn remove_tree(&mut self, _path: &[u8]) -> Result<(), CopyFailure> {
        Self::no_files()
    }

    async fn remove_dir(&mut self, _path: &[u8]) -> Result<(), CopyFailure> {
        Self::no_files()
    }

    async fn rename(
        &mut self,
        _from: &[u8],
        _to: &[u8],
        _modified: Option<Timestamp>,
    ) -> Result<(), RenameFailure> {
        Ok(Self::no_files()?)
    }

    async fn set_modified(&mut self, _path: &[u8], _time: Timestamp) -> Result<bool, CopyFailure> {
        Self::no_files()
    }
}
