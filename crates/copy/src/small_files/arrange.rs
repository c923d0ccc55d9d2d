//! Which files of a batch travel alone, and which in bundles.

use std::collections::VecDeque;

use proto::bundle::{CHECKSUM, MAX_FILES, MAX_PATH_BYTES};
use tune::sessions::FileMovement;

use super::super::plan::PlannedFile;
use crate::options::{FileOptions, Parallelism, PreservedTimes, SparseFiles, VerifyMode};
use ftp::location::{Location, StorageId};

/// A larger file gains nothing from company, bytes.
const MAX_BUNDLED: u64 = 16 << 20;
/// Most files of a bundle: what fails together is copied again together.
const MAX_BUNDLE_FILES: usize = 10_000;
/// Most bytes of a bundle, for the same reason. A server reads no more again to find what arrived wrong.
const MAX_BUNDLE_BYTES: u64 = 1 << 30;
/// A bundle of so many bytes is never split.
const SPLIT_FROM_BYTES: u64 = 256 << 20;
/// Fewer files do not pay for the further round trip that a bundle needs at its end.
const MIN_BUNDLE_FILES: usize = 3;
/// A bundle takes at least so many bytes or files before there are more bundles: below, each ends before its connection
/// has reached its speed.
const MIN_BUNDLE_BYTES: u64 = 4 << 20;
const MIN_FILES_BEFORE_SPLIT: usize = 128;

/// Files of a series: fewer do not pay for its round trips, and for forcing them to disk together, ...
const MIN_SERIES_FILES: usize = 16;
/// ...and more save nothing.
const MAX_SERIES_FILES: usize = 256;

/// The next work of a worker.
#[derive(Debug)]
pub(crate) enum BatchWork {
    /// One file.
    File(Box<PlannedFile>),
    /// Small files between this machine and one server, or between two servers, as one transfer.
    Bundle(Vec<PlannedFile>),
    /// Small files between this machine and one server, as a series of transfers.
    Series(Vec<PlannedFile>),
}

/// A server that takes many files at a time, or small ones fast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SmallFileServer {
    pub(crate) id: StorageId,
    /// As [`FileMovement::Bundles`], each alone (as [`FileMovement::Requests`]), or as a series of transfers.
    pub(crate) movement: FileMovement,
}

impl SmallFileServer {
    pub(crate) fn takes_bundles(&self) -> bool {
        self.movement == FileMovement::Bundles
    }

    fn takes_series(&self) -> bool {
        !self.takes_bundles() && !matches!(self.movement, FileMovement::Requests { .. })
    }
}

/// Arranges files for `workers` that run at the same time; large files come first, because they take longest.
/// `servers`: the servers that take many files at a time.
pub(crate) fn arrange(
    files: Vec<PlannedFile>,
    workers: usize,
    servers: &[SmallFileServer],
) -> VecDeque<BatchWork> {
    let is_bundled = |file: &PlannedFile| {
        let takes = |id: &StorageId, bundles: bool| {
            let mut taking = servers
                .iter()
                .filter(|server| server.takes_bundles() || !bundles && server.takes_series());
            taking.any(|server| server.id == *id)
        };
        let offered = match servers_of(file).as_slice() {
            [] => false,
            [server] => takes(server, false),
            // A series has one end here.
            both => both.iter().all(|id| takes(id, true)),
        };
        offered && file.facts.size.is_some_and(|size| size <= MAX_BUNDLED)
    };
    let (small, large): (Vec<_>, Vec<_>) = files.into_iter().partition(is_bundled);
    let mut work: VecDeque<BatchWork> = large.into_iter().map(alone).collect();
    let takes_bundles = !servers.iter().any(SmallFileServer::takes_series);
    let mut all = BundleUse::default();
    small.iter().for_each(|file| all.add(file));
    let limits = |left: u64| match takes_bundles {
        true => BundleLimits::share(&all, workers),
        false => BundleLimits::share_series(&all, left, workers),
    };
    let mut left = all.bytes;
    let mut bundle: Vec<PlannedFile> = Vec::new();
    let mut used = BundleUse::default();
    for file in small {
        let same_ends = bundle
            .first()
            .is_none_or(|first| ends(first) == ends(&file));
        if !same_ends || !used.has_room(&limits(left), &file) {
            push_bundle(&mut work, std::mem::take(&mut bundle), servers);
            left = left.saturating_sub(used.bytes);
            used = BundleUse::default();
        }
        used.add(&file);
        bundle.push(file);
    }
    push_bundle(&mut work, bundle, servers);
    work
}

/// Splits off what is more than `bytes` of a large bundle.
pub(crate) fn split(work: BatchWork, bytes: u64) -> (BatchWork, Option<BatchWork>) {
    let BatchWork::Bundle(mut files) = work else {
        return (work, None);
    };
    let limit = bytes.max(SPLIT_FROM_BYTES);
    let mut used = 0_u64;
    let is_beyond = |file: &PlannedFile| {
        used = used.saturating_add(file.facts.size.unwrap_or(0));
        used > limit
    };
    let beyond = files.iter().position(is_beyond).unwrap_or(files.len());
    let rest = files.split_off(beyond.max(1));
    let rest = (!rest.is_empty()).then_some(BatchWork::Bundle(rest));
    (BatchWork::Bundle(files), rest)
}

/// Servers of files that may be bundled.
pub(crate) fn servers_to_ask(files: &[PlannedFile]) -> Vec<StorageId> {
    let mut servers: Vec<StorageId> = Vec::new();
    if files.len() < MIN_BUNDLE_FILES {
        return servers;
    }
    for file in files {
        for id in servers_of(file) {
            // Mostly they are all the same ones.
            if !servers.contains(&id) {
                servers.push(id);
            }
        }
    }
    servers
}

/// Whether what the user asked for can be had in a bundle. `journal_knows_done`: a journal of the batch vouches for what is
/// done, so `--resume` asks nothing about the other files.
pub(crate) fn may_bundle(
    options: &FileOptions,
    parallelism: Parallelism,
    journal_knows_done: bool,
) -> bool {
    let verified = match options.verify {
        VerifyMode::Auto | VerifyMode::None => true,
        VerifyMode::With(algorithm) => algorithm == CHECKSUM,
    };
    let streams = match parallelism {
        Parallelism::Auto | Parallelism::Fixed(_) => true,
        Parallelism::Chunked(_) => false,
    };
    let whole = options.offset.is_none() && options.length.is_none();
    // Bundled files have the times of their announcements.
    let keeps_times = options.preserve.times != PreservedTimes::None;
    let any_holes = options.sparse != SparseFiles::Always;
    let asks_nothing = (journal_knows_done || !options.resume) && !options.keep_existing;
    verified && streams && whole && keeps_times && any_holes && asks_nothing
}

/// The servers of a file that can be in a bundle: its other end is a file of this machine or another server.
fn servers_of(file: &PlannedFile) -> Vec<StorageId> {
    let (from, to) = (&file.source, &file.destination);
    if [from, to].contains(&&Location::StandardStreams) {
        return Vec::new();
    }
    let servers = [from, to].map(|end| Some(end.storage_id()).filter(StorageId::is_server));
    servers.into_iter().flatten().collect()
}

fn ends(file: &PlannedFile) -> (StorageId, StorageId) {
    (file.source.storage_id(), file.destination.storage_id())
}

fn alone(file: PlannedFile) -> BatchWork {
    BatchWork::File(Box::new(file))
}

fn push_bundle(
    work: &mut VecDeque<BatchWork>,
    files: Vec<PlannedFile>,
    servers: &[SmallFileServer],
) {
    if files.len() < MIN_BUNDLE_FILES {
        work.extend(files.into_iter().map(alone));
        return;
    }
    // All of them have the same servers.
    let ids = files.first().map(servers_of).unwrap_or_default();
    let takes_bundles = |id: &StorageId| {
        let mut takers = servers.iter().filter(|server| server.takes_bundles());
        takers.any(|server| server.id == *id)
    };
    work.push_back(match ids.iter().all(takes_bundles) {
        true => BatchWork::Bundle(files),
        false => BatchWork::Series(files),
    });
}

/// Sizes at which a bundle is full.
#[derive(Debug, Clone, Copy)]
struct BundleLimits {
    files: usize,
    bytes: u64,
}

impl BundleLimits {
    /// So that all workers have something to do, as far as bundles do not become too small.
    fn share(all: &BundleUse, workers: usize) -> Self {
        let workers = workers.max(1);
        let most_files = MAX_BUNDLE_FILES.min(MAX_FILES);
        Self {
            files: all
                .files
                .div_ceil(workers)
                .clamp(MIN_FILES_BEFORE_SPLIT, most_files),
            bytes: all
                .bytes
                .div_ceil(workers as u64)
                .clamp(MIN_BUNDLE_BYTES, MAX_BUNDLE_BYTES),
        }
    }

    /// For series, whose files have round trips of their own: the last series must not keep one worker busy while all
    /// others have ended. Each takes a part of the bytes that are `left`, so that they become shorter towards the end: sessions
    /// of one path may differ tenfold in speed, and the files of a slow one are not given to others.
    fn share_series(all: &BundleUse, left: u64, workers: usize) -> Self {
        let workers = workers.max(1);
        Self {
            files: all
                .files
                .div_ceil(workers)
                .clamp(MIN_SERIES_FILES, MAX_SERIES_FILES),
            bytes: left
                .div_ceil(2 * workers as u64)
                .clamp(MIN_BUNDLE_BYTES, MAX_BUNDLE_BYTES),
        }
    }
}

/// How full a bundle is.
#[derive(Debug, Default)]
struct BundleUse {
    files: usize,
    bytes: u64,
    path_bytes: usize,
}

impl BundleUse {
    fn has_room(&self, limits: &BundleLimits, file: &PlannedFile) -> bool {
        let size = file.facts.size.unwrap_or(0);
        self.files == 0
            || self.files < limits.files
                && self.bytes.saturating_add(size) <= limits.bytes
                // The server resolves paths, which does not make these longer: they are absolute.
                && self.path_bytes + path_bytes(file) <= MAX_PATH_BYTES
    }

    fn add(&mut self, file: &PlannedFile) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(file.facts.size.unwrap_or(0));
        self.path_bytes += path_bytes(file);
    }
}

fn path_bytes(file: &PlannedFile) -> usize {
    file.source.path().len().max(file.destination.path().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: usize, bytes: u64) -> BundleUse {
        BundleUse {
            files,
            bytes,
            ..BundleUse::default()
        }
    }

    #[test]
    fn series_of_large_files_become_shorter_towards_the_end() {
        let all = files(320, 320 << 20);
        let mut left = all.bytes;
        let mut series = Vec::new();
        while left > 0 {
            let bytes = BundleLimits::share_series(&all, left, 16).bytes;
            series.push(bytes.min(left));
            left -= bytes.min(left);
        }
        assert_eq!(series.first(), Some(&(10 << 20)), "half of a share");
        assert!(series.is_sorted_by(|before, after| before >= after));
        assert!(series.last().is_some_and(|last| *last <= MIN_BUNDLE_BYTES));
        assert!(series.len() > 3 * 16, "{}", series.len());
    }

    #[test]
    fn series_of_small_files_have_equal_numbers_of_them() {
        let all = files(2000, 2_000_000);
        let limits = BundleLimits::share_series(&all, all.bytes, 16);
        assert_eq!(limits.files, 125);
        assert!(limits.bytes >= all.bytes);
    }
}
