//! `--write-sums`: the checksum of each complete file, for a checksum file.
//!
//! The checksum is that of the end of the copy on this machine, read when the file is complete: mostly its bytes are
//! still in memory. Between two servers, the destination computes it.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::plan::{
    CopyPlan, NextEntry, PlanReader, PlannedEntry, PlannedFile, is_same_file, last_component,
    trim_trailing_slashes,
};
use super::{BatchContext, lock};
use crate::failure::Sentence;
use crate::location::{Location, StorageId};
use crate::sums::writer::{SumsWriter, read_earlier};
use crate::tree::parents;
use crate::{CopyFailure, CopyOptions};

/// The checksum file of a batch.
#[derive(Debug)]
pub(super) struct BatchSums {
    writer: SumsWriter,
    /// Names are relative to it.
    top: Location,
    /// Its path.
    path: Location,
    /// A file of the copy has the path, and keeps it.
    is_taken: AtomicBool,
    /// Names of files that were copied, and whose checksums are unknown.
    unknown: Mutex<HashSet<Vec<u8>>>,
}

impl BatchSums {
    /// The file that the options ask for, if any.
    ///
    /// # Errors
    /// `Local`; `Usage` for a destination without names.
    pub(super) fn create(
        options: &CopyOptions,
        top: &Location,
    ) -> Result<Option<Self>, CopyFailure> {
        let Some(wanted) = options.write_sums.as_ref().filter(|_| !options.dry_run) else {
            return Ok(None);
        };
        if *top == Location::StandardStreams {
            let message = "--write-sums needs a destination with a name, not standard output";
            return Err(CopyFailure::usage(message));
        }
        Ok(Some(Self {
            writer: SumsWriter::create(&wanted.path, wanted.algorithm)?,
            top: top.clone(),
            path: Location::Local(wanted.path.clone()),
            is_taken: AtomicBool::new(false),
            unknown: Mutex::default(),
        }))
    }

    /// The name of a file of the destination.
    fn name_of(&self, destination: &Location) -> Vec<u8> {
        let below = destination
            .path()
            .strip_prefix(trim_trailing_slashes(self.top.path()));
        let below = below.map(|below| below.strip_prefix(b"/").unwrap_or(below));
        match below {
            Some(name) if !name.is_empty() => name.to_vec(),
            // The file is the destination itself.
            _ => last_component(destination).unwrap_or_default(),
        }
    }
}

/// Adds a file that is complete and verified.
///
/// # Errors
/// No end of the copy can tell its checksum; `Local`.
pub(super) async fn add(ctx: &BatchContext, file: &PlannedFile) -> Result<(), CopyFailure> {
    let Some(sums) = &ctx.sums else {
        return Ok(());
    };
    if is_same_file(&file.destination, &sums.path) || is_same_file(&file.source, &sums.path) {
        sums.is_taken.store(true, Ordering::Relaxed);
        return Err(CopyFailure::usage(format!(
            "{} is a file of this copy: write the checksums to another file",
            sums.path.display()
        )));
    }
    let (offset, length) = (ctx.options.offset.unwrap_or(0), ctx.options.length);
    let is_local = |at: &Location| at.storage_id() == StorageId::LocalFiles;
    // The part that was copied is the whole of the destination.
    let (at, offset, length) = match is_local(&file.source) && !is_local(&file.destination) {
        true => (&file.source, offset, length),
        false => (&file.destination, 0, None),
    };
    let algorithm = sums.writer.algorithm();
    let (id, part) = (at.storage_id(), (offset, length));
    let result = ctx.checksum((&id, at.path()), algorithm, part).await;
    let checksum = result.map_err(|failure| {
        lock(&sums.unknown).insert(sums.name_of(&file.destination));
        let copied = Sentence::about(file.destination.display());
        failure.within(copied.words(" was copied, but its checksum is unknown"))
    })?;
    sums.writer.add(&checksum, &sums.name_of(&file.destination))
}

/// The checksums that the file of an earlier run has.
pub(super) fn earlier(ctx: &BatchContext) -> Result<HashMap<Vec<u8>, String>, CopyFailure> {
    match (&ctx.options.write_sums, &ctx.sums) {
        (Some(wanted), Some(_)) => read_earlier(&wanted.path, wanted.algorithm),
        _ => Ok(HashMap::new()),
    }
}

/// Adds the files of a plan, which a sync found the same at both ends: with the checksum of an earlier run, or a new one.
///
/// # Errors
/// As [`add`].
pub(super) async fn add_unchanged(
    ctx: &BatchContext,
    unchanged: &CopyPlan,
    earlier: &HashMap<Vec<u8>, String>,
) -> Result<(), CopyFailure> {
    let Some(sums) = &ctx.sums else {
        return Ok(());
    };
    let mut reader = PlanReader::of(unchanged);
    while let Some(file) = reader.next_file(unchanged)? {
        let name = sums.name_of(&file.destination);
        match earlier.get(&name) {
            Some(checksum) => sums.writer.add(checksum, &name)?,
            None => add(ctx, &file).await?,
        }
    }
    Ok(())
}

/// Adds the checksums of an earlier run for files that a sync did not copy: what the destination has of them is as it was.
///
/// # Errors
/// `Local`.
pub(super) fn add_left(
    ctx: &BatchContext,
    plan: &CopyPlan,
    earlier: &HashMap<Vec<u8>, String>,
) -> Result<(), CopyFailure> {
    let Some(sums) = ctx.sums.as_ref().filter(|_| !earlier.is_empty()) else {
        return Ok(());
    };
    let mut left = HashSet::new();
    let mut reader = PlanReader::of(plan);
    loop {
        let next = reader.next(plan).map_err(|error| {
            CopyFailure::local(format!("the plan of the copy cannot be read: {error}"))
        })?;
        let destination = match next {
            NextEntry::Entry(PlannedEntry::File(item)) => item.destination,
            NextEntry::Entry(PlannedEntry::HardLink(link)) => link.file.destination,
            NextEntry::Entry(PlannedEntry::Unlisted { destination, .. }) => destination,
            NextEntry::Entry(PlannedEntry::Directory { .. } | PlannedEntry::Link(_)) => continue,
            NextEntry::Pending | NextEntry::End => break,
        };
        left.insert(sums.name_of(&destination));
    }
    let unknown = lock(&sums.unknown);
    let is_left = |name: &[u8]| {
        !unknown.contains(name)
            && (left.contains(name) || parents(name).any(|above| left.contains(above)))
    };
    let mut kept: Vec<_> = earlier.iter().filter(|(name, _)| is_left(name)).collect();
    kept.sort();
    for (name, checksum) in kept {
        sums.writer.add(checksum, name)?;
    }
    Ok(())
}

/// Gives the checksum file its name.
///
/// # Errors
/// `Local`.
pub(super) fn finish(ctx: &BatchContext) -> Result<(), CopyFailure> {
    match &ctx.sums {
        Some(sums) if sums.is_taken.load(Ordering::Relaxed) => Ok(()),
        Some(sums) => sums.writer.finish(ctx.options.sync_policy),
        None => Ok(()),
    }
}
