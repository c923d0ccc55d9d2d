//! Standard input and output as a storage.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use data::job::Control;
use data::store::file::FileSource;
use data::store::{Sink, Source};
use proto::checksum::Algorithm;
use proto::listing::RemoteEntry;
use proto::timestamp::Timestamp;

use super::contract::{Capabilities, Opened, Storage, Sums};
use super::files::HERE;
use super::within;
use crate::answers::{Marked, NotRenamed};
use crate::partial::{Target, local};
use crate::transfer::{Attempt, TransferSpec};
use crate::{Exit, Failure};

/// Standard input and output.
#[derive(Debug)]
pub(crate) struct Pipes;

impl Pipes {
    fn nothing<T>() -> Result<T, Failure> {
        Err(Failure::new(
            Exit::Usage,
            "standard input and output hold no files",
        ))
    }
}

#[async_trait]
impl Storage for Pipes {
    fn name(&self) -> &str {
        "this machine"
    }

    fn capabilities(&self) -> Capabilities {
        HERE
    }

    async fn stat(&mut self, _path: &[u8]) -> Result<RemoteEntry, Failure> {
        Self::nothing()
    }

    async fn list(&mut self, _path: &[u8]) -> Result<Vec<Marked>, Failure> {
        Self::nothing()
    }

    async fn sums(&mut self, _path: &[u8]) -> Result<Sums, Failure> {
        Ok(Sums::all())
    }

    async fn checksum(
        &mut self,
        _algorithm: Algorithm,
        _offset: u64,
        _length: Option<u64>,
        _path: &[u8],
    ) -> Result<String, Failure> {
        Self::nothing()
    }

    async fn open(&mut self, _path: &[u8]) -> Result<Option<Opened>, Failure> {
        let name = "standard input";
        let stdin = io::stdin().as_fd().try_clone_to_owned().map(File::from);
        let stdin = stdin.map_err(|e| local(Path::new(name), e))?;
        // A redirected file may have been read in part, and whoever has it goes on after this copy.
        Ok(Some(Opened {
            source: Arc::new(FileSource::sequential(stdin, name)),
            facts: None,
        }))
    }

    fn target(&mut self, _path: &[u8]) -> Result<Option<Target>, Failure> {
        Target::stdout().map(Some)
    }

    async fn fetch(
        &mut self,
        path: &[u8],
        sink: Arc<dyn Sink>,
        spec: &TransferSpec,
        control: &Arc<Control>,
    ) -> Result<Attempt, Failure> {
        match self.open(path).await? {
            Some(opened) => within::copy(opened.source, sink, spec, control).await,
            None => Self::nothing(),
        }
    }

    async fn store(
        &mut self,
        source: Arc<dyn Source>,
        path: &[u8],
        spec: &TransferSpec,
        control: &Arc<Control>,
    ) -> Result<Attempt, Failure> {
        match self.target(path)? {
            Some(Target::Direct { sink }) => within::copy(source, sink, spec, control).await,
            _ => Self::nothing(),
        }
    }

    async fn make_dir(&mut self, _path: &[u8]) -> Result<bool, Failure> {
        Self::nothing()
    }

    async fn remove(&mut self, _path: &[u8]) -> Result<(), Failure> {
        Self::nothing()
    }

    async fn remove_tree(&mut self, _path: &[u8]) -> Result<(), Failure> {
        Self::nothing()
    }

    async fn rename(
        &mut self,
        _from: &[u8],
        _to: &[u8],
        _modified: Option<Timestamp>,
    ) -> Result<(), NotRenamed> {
        Ok(Self::nothing()?)
    }

    async fn set_modified(&mut self, _path: &[u8], _time: Timestamp) -> Result<bool, Failure> {
        Self::nothing()
    }
}
