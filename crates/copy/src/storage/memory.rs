//! In-memory storage for tests, with injected faults. `http://NAME.memory.invalid/path`: a file in this process's store NAME.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use data::checksum::checksum_source;
use data::job::TransferControl;
use data::store::memory::MemorySource;
use data::store::{Sink, Source};
use parking_lot::{Mutex, MutexGuard};
use proto::checksum::ChecksumAlgorithm;
use proto::listing::{EntryKind, ListedEntry};
use proto::timestamp::Timestamp;

use super::capabilities::{AvailableChecksums, Capabilities};
use super::contract::{FactsUse, FilePart, RemovedKind, Storage};
use super::faulty_connection::{FaultyConnection, MemoryDownloadSource};
use super::local_copy;
use super::optional::OptionalContracts;
use ftp::answers::MetadataChange;
use ftp::answers::{
    ListingVisitor, RefusedRenameStep, RenameFailure, SymlinkCheckScope, SymlinkCheckedEntry,
};
use ftp::transfer::{TransferAttempt, TransferSpec};
use ftp::{Failure, FailureKind};

/// The hosts that are stores of this process. No real host has such a name (RFC 2606 section 2).
pub(crate) const DOMAIN: &str = ".memory.invalid";

/// Largest file, bytes.
const MAX_FILE_BYTES: usize = 64 << 20;

/// Files by path.
#[derive(Debug, Default)]
pub(crate) struct MemoryStore {
    state: Mutex<MemoryStoreState>,
}

#[derive(Debug, Default)]
struct MemoryStoreState {
    files: BTreeMap<Vec<u8>, MemoryFile>,
    directories: BTreeSet<Vec<u8>>,
    /// Only whole files, stored in order: no ranges, checksums, renames or times.
    minimal: bool,
    /// No checksums.
    checksums_removed: bool,
    /// Nothing is told of a single file.
    hides_facts: bool,
    /// Times are refused.
    refuses_times: bool,
    /// The fraction of each time that is told, nanoseconds.
    fraction: Option<u32>,
    /// Each of the next transfers breaks after so many bytes.
    cut_after: Vec<u64>,
    /// The next writes over these offsets store a wrong byte there, one each.
    corrupts: Vec<u64>,
    /// Each of the next fetches has a wrong byte at one of these offsets.
    garbles: Vec<u64>,
    /// The next fetched file stalls at this offset.
    stalls: Option<u64>,
    /// Files of an archive, and whether a copy of each is restored.
    archived: BTreeMap<Vec<u8>, bool>,
    /// Bytes moved from and to this store.
    moved: u64,
}

#[derive(Debug, Clone, Default)]
struct MemoryFile {
    bytes: Vec<u8>,
    modified: Option<Timestamp>,
}

impl MemoryStore {
    /// The store of this name, the same one for each call.
    pub(crate) fn named(name: &str) -> Arc<Self> {
        static SHELVES: Mutex<BTreeMap<String, Arc<MemoryStore>>> = Mutex::new(BTreeMap::new());
        let mut shelves = SHELVES.lock();
        Arc::clone(shelves.entry(name.to_owned()).or_default())
    }

    /// Refuses to set times, as a server does that forbids it.
    pub(crate) fn refuse_times(&self) {
        self.state().refuses_times = true;
    }

    fn state(&self) -> MutexGuard<'_, MemoryStoreState> {
        self.state.lock()
    }

    /// Removes all optional capabilities.
    pub(crate) fn remove_capabilities(&self) {
        self.state().minimal = true;
    }

    /// Removes checksums alone. All times have this fraction from now on, nanoseconds.
    pub(crate) fn remove_checksums(&self, fraction: Option<u32>) {
        let mut state = self.state();
        (state.checksums_removed, state.fraction) = (true, fraction);
    }

    /// Refuses to tell anything of a single file, which can be listed and read.
    pub(crate) fn hide_facts(&self) {
        self.state().hides_facts = true;
    }

    /// Breaks the next transfers, each after so many bytes.
    pub(crate) fn break_after(&self, bytes: &[u64]) {
        self.state().cut_after = bytes.to_vec();
    }

    /// Stores wrong bytes at these offsets. An offset that is named twice is wrong twice.
    pub(crate) fn corrupt_at(&self, offsets: &[u64]) {
        self.state().corrupts = offsets.to_vec();
    }

    /// Sends each of the next files with a wrong byte at one of these offsets.
    pub(crate) fn garble_at(&self, offsets: &[u64]) {
        self.state().garbles = offsets.to_vec();
    }

    /// Stalls the next fetch at an offset.
    pub(crate) fn stall_at(&self, offset: u64) {
        self.state().stalls = Some(offset);
    }

    /// Puts a file into an archive.
    pub(crate) fn archive(&self, path: &str, is_restored: bool) {
        let path = path.as_bytes().to_vec();
        self.state().archived.insert(path, is_restored);
    }

    /// Adds a file.
    pub(crate) fn put(&self, path: &str, bytes: &[u8], modified: i64) {
        let stored = MemoryFile {
            bytes: bytes.to_vec(),
            modified: Some(Timestamp(modified)),
        };
        self.state().files.insert(path.as_bytes().to_vec(), stored);
    }

    /// Content of a file.
    pub(crate) fn get(&self, path: &str) -> Option<Vec<u8>> {
        let state = self.state();
        let stored = state.files.get(path.as_bytes())?;
        Some(stored.bytes.clone())
    }

    /// Paths of all files.
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

/// A session with an in-memory store.
#[derive(Debug)]
pub(crate) struct MemoryStorage {
    name: String,
    store: Arc<MemoryStore>,
}

impl MemoryStorage {
    /// Opens the store of this name.
    pub(crate) fn open(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            store: MemoryStore::named(name),
        }
    }

    fn missing_failure(&self, path: &[u8]) -> Failure {
        let path = String::from_utf8_lossy(path);
        Failure::new(
            FailureKind::NotFound,
            format!("{path}: not on {}", self.name),
        )
    }

    fn stored(&self, path: &[u8]) -> Result<MemoryFile, Failure> {
        let found = self.store.state().files.get(path).cloned();
        found.ok_or_else(|| self.missing_failure(path))
    }

    /// Result of a transfer over `wire`.
    fn attempt_result(
        &self,
        wire: &FaultyConnection,
        moved: Result<TransferAttempt, Failure>,
    ) -> Result<TransferAttempt, Failure> {
        let state = wire.lock();
        self.store.state().moved += state.moved;
        match (state.broken, moved) {
            (true, Err(_)) => Err(Failure::unreachable(format!("{} was lost", self.name))),
            (_, moved) => moved,
        }
    }

    fn next_connection(&self) -> Arc<FaultyConnection> {
        let mut state = self.store.state();
        let breaks = match state.cut_after.is_empty() {
            true => u64::MAX,
            false => state.cut_after.remove(0),
        };
        Arc::new(FaultyConnection::breaking_after(breaks))
    }
}

/// A file that is written over a faulty connection.
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
        // In small steps, as from a network, so that a break loses the last ones.
        for (n, step) in buf.chunks(64 << 10).enumerate() {
            self.wire.pass(step.len())?;
            let from = usize::try_from(offset).unwrap_or(usize::MAX);
            let from = from.saturating_add(n * (64 << 10));
            let end = from.saturating_add(step.len());
            if end > MAX_FILE_BYTES {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            let mut state = self.shelf.state();
            let within = |at: &u64| usize::try_from(*at).is_ok_and(|at| (from..end).contains(&at));
            let wrong = state.corrupts.iter().position(within);
            let wrong = wrong.map(|index| state.corrupts.swap_remove(index));
            let stored = state.files.entry(self.path.clone()).or_default();
            if stored.bytes.len() < end {
                stored.bytes.resize(end, 0);
            }
            stored.bytes[from..end].copy_from_slice(step);
            if let Some(at) = wrong.and_then(|at| usize::try_from(at).ok()) {
                stored.bytes[at] ^= 1;
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

fn parent(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
    &path[..end.max(1)]
}

fn file_name(path: &[u8]) -> &[u8] {
    let start = path.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
    &path[start..]
}

fn listed_entry(path: &[u8], stored: &MemoryFile) -> ListedEntry {
    ListedEntry {
        size: Some(stored.bytes.len() as u64),
        modified: stored.modified,
        ..ListedEntry::new(file_name(path), EntryKind::File)
    }
}

#[async_trait]
impl Storage for MemoryStorage {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        let able = !self.store.state().minimal;
        Capabilities {
            ranges: able,
            several_sessions: false,
            connects_here: true,
            partial_writes: able,
            resumes_uploads: able,
            stores_whole: false,
            takes_any_name: true,
            parallel: able,
            stores_any_order: able,
            sends_markers: able,
            adapts_streams: false,
            is_carried: false,
            checksums_while_storing: false,
            checksums_while_sending: false,
            sets_time: able,
            third_party: None,
            bundles: false,
            small_files: None,
            max_queries: if able { 16 } else { 1 },
            is_local: false,
            length_shows_content: true,
            rtt: Duration::from_millis(1),
        }
    }

    async fn facts(&mut self, path: &[u8], purpose: FactsUse) -> Result<ListedEntry, Failure> {
        let is_frozen = self.store.state().archived.get(path) == Some(&false);
        if is_frozen && purpose == FactsUse::Reading {
            return Err(Failure::refused("it is in an archive"));
        }
        match (self.told(path), purpose) {
            (Err(failure), FactsUse::Reading) if failure.kind() == FailureKind::Protocol => {
                Ok(ListedEntry::new(file_name(path), EntryKind::File))
            }
            (told, _) => told,
        }
    }

    async fn list(
        &mut self,
        path: &[u8],
        _scope: SymlinkCheckScope,
        visit: &mut ListingVisitor<'_>,
    ) -> Result<(), Failure> {
        if self.told(path)?.kind != EntryKind::Dir {
            return Err(Failure::protocol("not a directory"));
        }
        let state = self.store.state();
        let files = state.files.iter().filter(|(at, _)| parent(at) == path);
        let files = files.map(|(at, stored)| ListedEntry {
            is_archived: state.archived.contains_key(at),
            ..listed_entry(at, stored)
        });
        let directories = state.directories.iter().filter(|at| parent(at) == path);
        let directories = directories.map(|at| ListedEntry::new(file_name(at), EntryKind::Dir));
        let mut all = files.chain(directories).map(SymlinkCheckedEntry::certain);
        let _ = all.try_for_each(visit);
        Ok(())
    }

    async fn available_checksums(&mut self, _path: &[u8]) -> Result<AvailableChecksums, Failure> {
        let state = self.store.state();
        Ok(match state.minimal || state.checksums_removed {
            true => AvailableChecksums::default(),
            false => AvailableChecksums::all(),
        })
    }

    async fn checksums(
        &mut self,
        algorithm: ChecksumAlgorithm,
        parts: &[FilePart],
        path: &[u8],
    ) -> Result<Vec<String>, Failure> {
        let source = MemorySource::new(self.stored(path)?.bytes, "stored");
        let sum = |part: &FilePart| {
            checksum_source(algorithm, &source, part.offset, part.length, &mut |_| true)
                .map_err(|e| Failure::protocol(e.to_string()))
        };
        parts.iter().map(sum).collect()
    }

    async fn fetch(
        &mut self,
        path: &[u8],
        sink: Arc<dyn Sink>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, Failure> {
        let source = MemorySource::new(self.stored(path)?.bytes, "stored");
        let wire = self.next_connection();
        wire.lock().wrong = self.store.state().garbles.pop();
        wire.lock().stalls = self.store.state().stalls.take();
        let source = MemoryDownloadSource(source, Arc::clone(&wire));
        let moved = local_copy::copy_local(Arc::new(source), sink, spec, control).await;
        self.attempt_result(&wire, moved)
    }

    async fn store(
        &mut self,
        source: Arc<dyn Source>,
        path: &[u8],
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, Failure> {
        {
            let mut state = self.store.state();
            if parent(path) != b"/" && !state.directories.contains(parent(path)) {
                return Err(self.missing_failure(parent(path)));
            }
            if spec.completed_ranges.is_empty() || state.minimal {
                let stored = MemoryFile {
                    // It keeps times of its own.
                    modified: state.refuses_times.then_some(Timestamp(2_000_000_000)),
                    ..MemoryFile::default()
                };
                state.files.insert(path.to_vec(), stored);
            }
        }
        let wire = self.next_connection();
        let sink = MemoryUploadSink {
            shelf: Arc::clone(&self.store),
            path: path.to_vec(),
            wire: Arc::clone(&wire),
        };
        let moved = local_copy::copy_local(source, Arc::new(sink), spec, control).await;
        if !self.store.state().minimal {
            ftp::transfer::control_messages::add_stored_ranges(
                &spec.stored_ranges,
                &control.stored(),
            );
        }
        self.attempt_result(&wire, moved)
    }

    async fn make_dir(&mut self, path: &[u8]) -> Result<bool, Failure> {
        let mut state = self.store.state();
        if parent(path) != b"/" && !state.directories.contains(parent(path)) {
            return Err(self.missing_failure(parent(path)));
        }
        Ok(state.directories.insert(path.to_vec()))
    }

    async fn remove_entry(&mut self, path: &[u8], kind: RemovedKind) -> Result<(), Failure> {
        match kind {
            RemovedKind::File => self.remove_file(path),
            RemovedKind::EmptyDirectory => self.remove_empty(path),
            RemovedKind::Tree => self.remove_all(path),
        }
    }

    async fn rename(
        &mut self,
        from: &[u8],
        to: &[u8],
        modified: Option<Timestamp>,
    ) -> Result<(), RenameFailure> {
        let mut state = self.store.state();
        if state.minimal {
            return Err(RenameFailure {
                failure: Failure::protocol("nothing is renamed here"),
                refused_step: RefusedRenameStep::Unsupported,
            });
        }
        let stored = state.files.remove(from);
        let mut stored = stored.ok_or_else(|| self.missing_failure(from))?;
        stored.modified = modified.or(stored.modified);
        state.files.insert(to.to_vec(), stored);
        Ok(())
    }

    async fn set_metadata(&mut self, changes: &[MetadataChange<'_>]) -> Result<Vec<bool>, Failure> {
        let mut state = self.store.state();
        let is_able = !state.minimal;
        let mut set = |change: &MetadataChange<'_>| {
            let stored = state.files.get_mut(change.path).filter(|_| is_able);
            let set =
                stored.map(|stored| stored.modified = change.kept.modified.or(stored.modified));
            set.is_some() && change.kept.mode.is_none()
        };
        Ok(changes.iter().map(&mut set).collect())
    }

    async fn set_modified(&mut self, path: &[u8], time: Timestamp) -> Result<bool, Failure> {
        let mut state = self.store.state();
        if state.minimal {
            return Ok(false);
        }
        if state.refuses_times {
            return Err(Failure::new(FailureKind::Refused, "no times are set here"));
        }
        let stored = state.files.get_mut(path);
        let stored = stored.ok_or_else(|| self.missing_failure(path))?;
        stored.modified = Some(time);
        Ok(true)
    }
}

impl OptionalContracts for MemoryStorage {}

impl MemoryStorage {
    fn told(&self, path: &[u8]) -> Result<ListedEntry, Failure> {
        if path == b"/" || self.store.state().directories.contains(path) {
            return Ok(ListedEntry::new(file_name(path), EntryKind::Dir));
        }
        let stored = self.stored(path)?;
        let state = self.store.state();
        if state.hides_facts {
            return Err(Failure::protocol("nothing is told"));
        }
        Ok(ListedEntry {
            modified_fraction: state.fraction,
            ..listed_entry(path, &stored)
        })
    }

    fn remove_file(&self, path: &[u8]) -> Result<(), Failure> {
        let removed = self.store.state().files.remove(path);
        removed.map(drop).ok_or_else(|| self.missing_failure(path))
    }

    fn remove_all(&self, path: &[u8]) -> Result<(), Failure> {
        self.told(path)?;
        let below = [path, b"/"].concat();
        let stays = |at: &Vec<u8>| at != path && !at.starts_with(&below);
        let mut state = self.store.state();
        state.files.retain(|at, _| stays(at));
        state.directories.retain(stays);
        Ok(())
    }

    fn remove_empty(&self, path: &[u8]) -> Result<(), Failure> {
        let mut state = self.store.state();
        let mut all = state.files.keys().chain(&state.directories);
        let is_empty = !all.any(|at| parent(at) == path);
        let removed = is_empty && state.directories.remove(path);
        removed
            .then_some(())
            .ok_or_else(|| self.missing_failure(path))
    }
}
