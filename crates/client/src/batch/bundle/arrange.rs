//! Which files of a batch travel alone, and which in bundles.

use std::collections::VecDeque;

use proto::bundle::{CHECKSUM, MAX_FILES, MAX_PATH_BYTES};

use super::super::plan::PlannedFile;
use crate::location::{Location, StorageId};
use crate::{CopyOptions, Parallelism, VerifyMode};

/// A larger file gains nothing from company, bytes.
const MAX_BUNDLED: u64 = 16 << 20;
/// Most files of a bundle: what fails together is copied again together.
const MAX_BUNDLE_FILES: usize = 2500;
/// Most bytes of a bundle, for the same reason.
const MAX_BUNDLE_BYTES: u64 = 256 << 20;
/// Fewer files do not pay for the further round trip that a bundle needs at its end.
const MIN_BUNDLE_FILES: usize = 3;
/// A bundle takes at least so many bytes or files before there are more bundles: below, each ends before its connection
/// has reached its speed.
const MIN_BUNDLE_BYTES: u64 = 4 << 20;
const MIN_FILES_BEFORE_SPLIT: usize = 128;

/// The next work of a worker.
#[derive(Debug)]
pub(in crate::batch) enum BatchWork {
    /// One file.
    File(Box<PlannedFile>),
    /// Small files between this machine and one server.
    Bundle(Vec<PlannedFile>),
}

/// Arranges files for `workers` that run at the same time; large files come first, because they take longest.
/// `takes_bundles`: the servers that take bundles.
pub(in crate::batch) fn arrange(
    options: &CopyOptions,
    files: Vec<PlannedFile>,
    workers: usize,
    takes_bundles: &[StorageId],
) -> VecDeque<BatchWork> {
    let is_bundled = |file: &PlannedFile| {
        let server = server_of(file);
        let offered = server.is_some_and(|id| takes_bundles.contains(&id));
        offered && file.facts.size.is_some_and(|size| size <= MAX_BUNDLED)
    };
    let may_bundle = options_allow(options);
    let (small, large): (Vec<_>, Vec<_>) = files
        .into_iter()
        .partition(|file| may_bundle && is_bundled(file));
    let mut work: VecDeque<BatchWork> = large.into_iter().map(alone).collect();
    let limits = BundleLimits::share(&small, workers);
    let mut bundle: Vec<PlannedFile> = Vec::new();
    let mut used = BundleUse::default();
    for file in small {
        let same_ends = bundle
            .first()
            .is_none_or(|first| ends(first) == ends(&file));
        if !same_ends || !used.has_room(&limits, &file) {
            push_bundle(&mut work, std::mem::take(&mut bundle));
            used = BundleUse::default();
        }
        used.add(&file);
        bundle.push(file);
    }
    push_bundle(&mut work, bundle);
    work
}

/// Servers of files that may be bundled.
pub(in crate::batch) fn servers_to_ask(
    options: &CopyOptions,
    files: &[PlannedFile],
) -> Vec<StorageId> {
    let mut servers: Vec<StorageId> = Vec::new();
    if files.len() < MIN_BUNDLE_FILES || !options_allow(options) {
        return servers;
    }
    for file in files {
        // Mostly they are all the same one.
        if let Some(id) = server_of(file)
            && !servers.contains(&id)
        {
            servers.push(id);
        }
    }
    servers
}

/// Whether what the user asked for can be had in a bundle.
fn options_allow(options: &CopyOptions) -> bool {
    let verified = match options.verify {
        VerifyMode::Auto | VerifyMode::None => true,
        VerifyMode::With(algorithm) => algorithm == CHECKSUM,
    };
    let streams = match options.parallelism {
        Parallelism::Auto | Parallelism::Fixed(_) => true,
        Parallelism::Chunked(_) => false,
    };
    let whole = options.offset.is_none() && options.length.is_none();
    verified && streams && whole && !options.resume && !options.keep_existing
}

/// The server of a file whose other end is a file of this machine.
fn server_of(file: &PlannedFile) -> Option<StorageId> {
    match (&file.source, &file.destination) {
        (Location::Remote { .. }, Location::Local(_)) => Some(file.source.storage_id()),
        (Location::Local(_), Location::Remote { .. }) => Some(file.destination.storage_id()),
        _ => None,
    }
}

fn ends(file: &PlannedFile) -> (StorageId, StorageId) {
    (file.source.storage_id(), file.destination.storage_id())
}

fn alone(file: PlannedFile) -> BatchWork {
    BatchWork::File(Box::new(file))
}

fn push_bundle(work: &mut VecDeque<BatchWork>, files: Vec<PlannedFile>) {
    match files.len() < MIN_BUNDLE_FILES {
        true => work.extend(files.into_iter().map(alone)),
        false => work.push_back(BatchWork::Bundle(files)),
    }
}

/// Sizes at which a bundle is full.
#[derive(Debug, Clone, Copy)]
struct BundleLimits {
    files: usize,
    bytes: u64,
}

impl BundleLimits {
    /// So that all workers have something to do, as far as bundles do not become too small.
    fn share(files: &[PlannedFile], workers: usize) -> Self {
        let workers = workers.max(1);
        let bytes: u64 = files.iter().filter_map(|file| file.facts.size).sum();
        let most_files = MAX_BUNDLE_FILES.min(MAX_FILES);
        Self {
            files: files
                .len()
                .div_ceil(workers)
                .clamp(MIN_FILES_BEFORE_SPLIT, most_files),
            bytes: bytes
                .div_ceil(workers as u64)
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
