//! Files in memory as a storage: what the batch does with a storage can be watched and disturbed there.
//!
//! `memory://NAME/path` names a file on the shelf NAME of this process.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use data::checksum::checksum_source;
use data::job::TransferControl;
use data::store::memory::MemorySource;
use data::store::{Sink, Source};
use proto::checksum::ChecksumAlgorithm;
use proto::listing::{EntryKind, ListedEntry};
use proto::timestamp::Timestamp;

use super::contract::{AvailableChecksums, Capabilities, Storage};
use super::local_copy;
use crate::answers::{RefusedRenameStep, RenameFailure, SymlinkCheckedEntry};
use crate::transfer::{TransferAttempt, TransferSpec};
use crate::{CopyFailure, Exit};

/// Largest file.
const MOST: usize = 64 << 20;

/// Files by their paths.
#[derive(Debug, Default)]
pub(crate) struct MemoryStore {
    state: Mutex<MemoryStoreState>,
}

#[derive(Debug, Default)]
struct MemoryStoreState {
    files: BTreeMap<Vec<u8>, MemoryFile>,
    directories: BTreeSet<Vec<u8>>,
    /// Nothing but whole files, stored in order: no ranges, sums, renaming or times.
    plain: bool,
    /// The next transfers break when so many bytes have moved in them.
    breaks: Vec<u64>,
    /// The next stored file has another byte at this offset.
    corrupts: Option<u64>,
    /// The next file that is fetched comes with another byte at this offset.
    garbles: Option<u64>,
    /// From this offset on nothing comes of the next file that is fetched.
    stalls: Option<u64>,
    /// Bytes that were moved from and to here.
    moved: u64,
}

#[derive(Debug, Clone, Default)]
struct MemoryFile {
    bytes: Vec<u8>,
    modified: Option<Timestamp>,
}

impl MemoryStore {
    /// The shelf of this name, the same one each time.
    pub(crate) fn named(name: &str) -> Arc<Self> {
        static SHELVES: Mutex<BTreeMap<String, Arc<MemoryStore>>> = Mutex::new(BTreeMap::new());
        let mut shelves = SHELVES.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(shelves.entry(name.to_owned()).or_default())
    }

    fn state(&self) -> MutexGuard<'_, MemoryStoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Can do as little as a storage may.
    pub(crate) fn make_plain(&self) {
        self.state().plain = true;
    }

    /// Breaks the transfers that come, each after so many bytes.
    pub(crate) fn break_after(&self, bytes: &[u64]) {
        self.state().breaks = bytes.to_vec();
    }

    /// Stores the next file with a wrong byte.
    pub(crate) fn corrupt_at(&self, offset: u64) {
        self.state().corrupts = Some(offset);
    }

    /// Sends the next file with a wrong byte.
    pub(crate) fn garble_at(&self, offset: u64) {
        self.state().garbles = Some(offset);
    }

    /// Sends the next file up to a byte, and then nothing.
    pub(crate) fn stall_at(&self, offset: u64) {
        self.state().stalls = Some(offset);
    }

    /// Puts a file there.
    pub(crate) fn put(&self, path: &str, bytes: &[u8], modified: i64) {
        let stored = MemoryFile {
            bytes: bytes.to_vec(),
            modified: Some(Timestamp(modified)),
        };
        self.state().files.insert(path.as_bytes().to_vec(), stored);
    }

    /// A file's content.
    pub(crate) fn get(&self, path: &str) -> Option<Vec<u8>> {
        let state = self.state();
        let stored = state.files.get(path.as_bytes())?;
        Some(stored.bytes.clone())
    }

    /// All paths.
    pub(crate) fn paths(&self) -> Vec<String> {
        let state = self.state();
        let shown = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
        state.files.keys().map(shown).collect()
    }

    /// Bytes moved so far.
    pub(crate) fn moved(&self) -> u64 {
        self.state().moved
    }
}

/// A session with a shelf.
#[derive(Debug)]
pub(crate) struct MemoryStorage {
    name: String,
    shelf: Arc<MemoryStore>,
}

impl MemoryStorage {
    /// With the shelf of this name.
    pub(crate) fn open(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            shelf: MemoryStore::named(name),
        }
    }

    fn missing(&self, path: &[u8]) -> CopyFailure {
        let path = String::from_utf8_lossy(path);
        CopyFailure::new(Exit::NotFound, format!("{path}: not on {}", self.name))
    }

    fn stored(&self, path: &[u8]) -> Result<MemoryFile, CopyFailure> {
        let found = self.shelf.state().files.get(path).cloned();
        found.ok_or_else(|| self.missing(path))
    }

    /// How a transfer that counted on `wire` ended.
    fn ended(
        &self,
        wire: &FaultyConnection,
        moved: Result<TransferAttempt, CopyFailure>,
    ) -> Result<TransferAttempt, CopyFailure> {
        let state = wire.lock();
        self.shelf.state().moved += state.moved;
        match (state.broken, moved) {
            (true, Err(_)) => Err(CopyFailure::transient(
                Exit::Unreachable,
                format!("{} was lost", self.name),
            )),
            (_, moved) => moved,
        }
    }

    fn wire(&self) -> Arc<FaultyConnection> {
        let mut state = self.shelf.state();
        let breaks = match state.breaks.is_empty() {
            true => u64::MAX,
            false => state.breaks.remove(0),
        };
        Arc::new(FaultyConnection(Mutex::new(FaultyConnectionState {
            breaks,
            moved: 0,
            broken: false,
            wrong: None,
            stalls: None,
        })))
    }
}

/// The connection of one transfer, up to where it breaks.
#[derive(Debug)]
struct FaultyConnection(Mutex<FaultyConnectionState>);

#[derive(Debug)]
struct FaultyConnectionState {
    breaks: u64,
    moved: u64,
    broken: bool,
    /// Offset of a byte that becomes another one on the way.
    wrong: Option<u64>,
    /// Offset of the first byte that does not come.
    stalls: Option<u64>,
}

impl FaultyConnection {
    fn lock(&self) -> MutexGuard<'_, FaultyConnectionState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self, bytes: usize) -> io::Result<()> {
        let mut state = self.lock();
        if state.moved >= state.breaks {
            state.broken = true;
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        state.moved += bytes as u64;
        Ok(())
    }
}

/// A file that is read over a wire.
#[derive(Debug)]
struct MemoryDownloadSource(MemorySource, Arc<FaultyConnection>);

impl Source for MemoryDownloadSource {
    fn name(&self) -> String {
        self.0.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let step = buf.len().min(64 << 10);
        let n = self.0.read_at(offset, &mut buf[..step])?;
        if self.1.lock().stalls.is_some_and(|at| at <= offset) {
            std::thread::sleep(Duration::from_millis(5));
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let wrong = self.1.lock().wrong;
        let wrong = wrong.and_then(|at| usize::try_from(at.checked_sub(offset)?).ok());
        if let Some(byte) = wrong.and_then(|at| buf[..n].get_mut(at)) {
            *byte ^= 1;
        }
        self.1.pass(n).map(|()| n)
    }

    fn len(&self) -> io::Result<Option<u64>> {
        self.0.len()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A file that is written over a wire.
#[derive(Debug)]
struct MemoryUploadSink {
    shelf: Arc<MemoryStore>,
    path: Vec<u8>,
    wire: Arc<FaultyConnection>,
}

impl Sink for MemoryUploadSink {
    fn name(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        // As a network would: in small steps, of which the last ones are lost.
        for (n, step) in buf.chunks(64 << 10).enumerate() {
            self.wire.pass(step.len())?;
            let from = usize::try_from(offset).unwrap_or(usize::MAX);
            let from = from.saturating_add(n * (64 << 10));
            let end = from.saturating_add(step.len());
            if end > MOST {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            let mut state = self.shelf.state();
            let wrong = state.corrupts;
            let stored = state.files.entry(self.path.clone()).or_default();
            if stored.bytes.len() < end {
                stored.bytes.resize(end, 0);
            }
            stored.bytes[from..end].copy_from_slice(step);
            let wrong = wrong.and_then(|at| usize::try_from(at).ok());
            if let Some(at) = wrong.filter(|at| (from..end).contains(at)) {
                stored.bytes[at] ^= 1;
                state.corrupts = None;
            }
        }
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_seekable(&self) -> bool {
        true
    }
}

fn above(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
    &path[..end.max(1)]
}

fn name_of(path: &[u8]) -> &[u8] {
    let start = path.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
    &path[start..]
}

fn entry(path: &[u8], stored: &MemoryFile) -> ListedEntry {
    ListedEntry {
        size: Some(stored.bytes.len() as u64),
        modified: stored.modified,
        ..ListedEntry::new(name_of(path), EntryKind::File)
    }
}

#[async_trait]
impl Storage for MemoryStorage {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        let able = !self.shelf.state().plain;
        Capabilities {
            ranges: able,
            partial_writes: able,
            resumes_uploads: able,
            parallel: able,
            any_order: able,
            markers: able,
            adapts_streams: false,
            checksums_while_storing: false,
            sets_time: able,
            third_party: None,
            concurrency: if able { 16 } else { 1 },
            is_here: false,
            rtt: Duration::from_millis(1),
        }
    }

    async fn stat(&mut self, path: &[u8]) -> Result<ListedEntry, CopyFailure> {
        if path == b"/" || self.shelf.state().directories.contains(path) {
            return Ok(ListedEntry::new(name_of(path), EntryKind::Dir));
        }
        self.stored(path).map(|stored| entry(path, &stored))
    }

    async fn list(&mut self, path: &[u8]) -> Result<Vec<SymlinkCheckedEntry>, CopyFailure> {
        if self.stat(path).await?.kind != EntryKind::Dir {
            return Err(CopyFailure::new(Exit::Protocol, "not a directory"));
        }
        let state = self.shelf.state();
        let files = state
            .files
            .iter()
            .map(|(at, stored)| (at, entry(at, stored)));
        let directories = state.directories.iter();
        let directories = directories.map(|at| (at, ListedEntry::new(name_of(at), EntryKind::Dir)));
        let inside = files.chain(directories).filter(|(at, _)| above(at) == path);
        let marked = inside.map(|(_, entry)| SymlinkCheckedEntry {
            entry,
            is_certain: true,
        });
        Ok(marked.collect())
    }

    async fn available_checksums(
        &mut self,
        _path: &[u8],
    ) -> Result<AvailableChecksums, CopyFailure> {
        Ok(match self.shelf.state().plain {
            true => AvailableChecksums::default(),
            false => AvailableChecksums::all(),
        })
    }

    async fn checksum(
        &mut self,
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        path: &[u8],
    ) -> Result<String, CopyFailure> {
        let source = MemorySource::new(self.stored(path)?.bytes, "stored");
        checksum_source(algorithm, &source, offset, length, &mut |_| true)
            .map_err(|e| CopyFailure::new(Exit::Protocol, e.to_string()))
    }

    async fn fetch(
        &mut self,
        path: &[u8],
        sink: Arc<dyn Sink>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, CopyFailure> {
        let source = MemorySource::new(self.stored(path)?.bytes, "stored");
        let wire = self.wire();
        wire.lock().wrong = self.shelf.state().garbles.take();
        wire.lock().stalls = self.shelf.state().stalls.take();
        let source = MemoryDownloadSource(source, Arc::clone(&wire));
        let moved = local_copy::copy(Arc::new(source), sink, spec, control).await;
        self.ended(&wire, moved)
    }

    async fn store(
        &mut self,
        source: Arc<dyn Source>,
        path: &[u8],
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, CopyFailure> {
        {
            let mut state = self.shelf.state();
            if above(path) != b"/" && !state.directories.contains(above(path)) {
                return Err(self.missing(above(path)));
            }
            if spec.completed_ranges.is_empty() || state.plain {
                state.files.insert(path.to_vec(), MemoryFile::default());
            }
        }
        let wire = self.wire();
        let sink = MemoryUploadSink {
            shelf: Arc::clone(&self.shelf),
            path: path.to_vec(),
            wire: Arc::clone(&wire),
        };
        let moved = local_copy::copy(source, Arc::new(sink), spec, control).await;
        if !self.shelf.state().plain {
            crate::transfer::control_messages::add_stored_ranges(
                &spec.stored_ranges,
                &control.stored(),
            );
        }
        self.ended(&wire, moved)
    }

    async fn make_dir(&mut self, path: &[u8]) -> Result<bool, CopyFailure> {
        let mut state = self.shelf.state();
        if above(path) != b"/" && !state.directories.contains(above(path)) {
            drop(state);
            return Err(self.missing(above(path)));
        }
        Ok(state.directories.insert(path.to_vec()))
    }

    async fn remove(&mut self, path: &[u8]) -> Result<(), CopyFailure> {
        let removed = self.shelf.state().files.remove(path);
        removed.map(drop).ok_or_else(|| self.missing(path))
    }

    async fn remove_tree(&mut self, path: &[u8]) -> Result<(), CopyFailure> {
        self.stat(path).await?;
        let below = [path, b"/"].concat();
        let stays = |at: &Vec<u8>| at != path && !at.starts_with(&below);
        let mut state = self.shelf.state();
        state.files.retain(|at, _| stays(at));
        state.directories.retain(stays);
        Ok(())
    }

    async fn rename(
        &mut self,
        from: &[u8],
        to: &[u8],
        modified: Option<Timestamp>,
    ) -> Result<(), RenameFailure> {
        let mut state = self.shelf.state();
        if state.plain {
            let failure = CopyFailure::new(Exit::Protocol, "nothing is renamed here");
            let refused = RefusedRenameStep::RnfrRefused;
            return Err(RenameFailure {
                failure,
                refused_step: refused,
            });
        }
        let Some(mut stored) = state.files.remove(from) else {
            drop(state);
            return Err(self.missing(from).into());
        };
        stored.modified = modified.or(stored.modified);
        state.files.insert(to.to_vec(), stored);
        Ok(())
    }

    async fn set_modified(&mut self, path: &[u8], time: Timestamp) -> Result<bool, CopyFailure> {
        let mut state = self.shelf.state();
        if state.plain {
            return Ok(false);
        }
        match state.files.get_mut(path) {
            Some(stored) => stored.modified = Some(time),
            None => {
                drop(state);
                return Err(self.missing(path));
            }
        }
        Ok(true)
    }
}
