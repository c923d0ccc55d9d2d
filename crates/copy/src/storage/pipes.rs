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
use super::contract::{FactsUse, FilePart, RemovedKind, Storage};
use super::files::LOCAL_CAPABILITIES;
use super::local_copy;
use super::open_source::OpenSource;
use super::optional::{LocalAccess, OptionalContracts};
use crate::local::partial::{WriteTarget, local_failure};
use ftp::Failure;
use ftp::answers::MetadataChange;
use ftp::answers::{ListingVisitor, RenameFailure, SymlinkCheckScope};
use ftp::transfer::{TransferAttempt, TransferSpec};

/// Standard input and output.
#[derive(Debug)]
pub(crate) struct StandardStreams;

impl StandardStreams {
    fn no_files<T>() -> Result<T, Failure> {
        Err(Failure::usage("standard input and output hold no files"))
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

    async fn facts(&mut self, _path: &[u8], _purpose: FactsUse) -> Result<ListedEntry, Failure> {
        Self::no_files()
    }

    async fn list(
        &mut self,
        _path: &[u8],
        _scope: SymlinkCheckScope,
        _visit: &mut ListingVisitor<'_>,
    ) -> Result<(), Failure> {
        Self::no_files()
    }

    async fn available_checksums(&mut self, _path: &[u8]) -> Result<AvailableChecksums, Failure> {
        Ok(AvailableChecksums::all())
    }

    async fn checksums(
        &mut self,
        _algorithm: ChecksumAlgorithm,
        _parts: &[FilePart],
        _path: &[u8],
    ) -> Result<Vec<String>, Failure> {
        Self::no_files()
    }

    async fn fetch(
        &mut self,
        path: &[u8],
        sink: Arc<dyn Sink>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, Failure> {
        let opened = self.open(path).await?;
        local_copy::copy_local(opened.source, sink, spec, control).await
    }

    async fn store(
        &mut self,
        source: Arc<dyn Source>,
        path: &[u8],
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, Failure> {
        match self.write_target(path).await? {
            WriteTarget::Direct { sink } => {
                local_copy::copy_local(source, sink, spec, control).await
            }
            _ => Self::no_files(),
        }
    }

    async fn make_dir(&mut self, _path: &[u8]) -> Result<bool, Failure> {
        Self::no_files()
    }

    async fn remove_entry(&mut self, _path: &[u8], _kind: RemovedKind) -> Result<(), Failure> {
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

    async fn set_metadata(
        &mut self,
        _changes: &[MetadataChange<'_>],
    ) -> Result<Vec<bool>, Failure> {
        Self::no_files()
    }

    async fn set_modified(&mut self, _path: &[u8], _time: Timestamp) -> Result<bool, Failure> {
        Self::no_files()
    }
}

impl OptionalContracts for StandardStreams {
    fn local_access(&mut self) -> Option<&mut dyn LocalAccess> {
        Some(self)
    }
}

#[async_trait]
impl LocalAccess for StandardStreams {
    async fn open(&mut self, _path: &[u8]) -> Result<OpenSource, Failure> {
        let name = "standard input";
        // A duplicate, so that closing the source leaves standard input open.
        let stdin = io::stdin().as_fd().try_clone_to_owned().map(File::from);
        let stdin = stdin.map_err(|e| local_failure(Path::new(name), e))?;
        // Sequential: a redirected file may be partly read, and the next reader of the descriptor
        // continues after this copy.
        Ok(OpenSource {
            source: Arc::new(FileSource::sequential(stdin, name)),
            facts: None,
            identity: None,
        })
    }

    async fn write_target(&mut self, _path: &[u8]) -> Result<WriteTarget, Failure> {
        WriteTarget::stdout()
    }
}
