//! `--write-sums`: the checksum of each complete file, for a checksum file.
//!
//! The checksum is that of the end of the copy on this machine, read when the file is complete: mostly its bytes are
//! still in memory. Between two servers, the destination computes it.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use data::store::durability::SyncPolicy;
use parking_lot::Mutex;
use proto::checksum::ChecksumAlgorithm;

use crate::batch::BatchContext;
use crate::options::CopyOptions;
use crate::plan::{
    CopyPlan, NextEntry, PlanReader, PlannedEntry, PlannedFile, is_same_file, last_component,
    trim_trailing_slashes,
};
use crate::storage::entry_names::parents;
use crate::sums::writer::{SumsWriter, read_earlier};
use ftp::Failure;
use ftp::failure::Sentence;
use ftp::location::{Location, StorageId};

/// The checksum file of a batch.
#[derive(Debug)]
pub(crate) struct BatchSums {
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
    pub(crate) fn create(options: &CopyOptions, top: &Location) -> Result<Option<Self>, Failure> {
        let Some(wanted) = options.write_sums.as_ref().filter(|_| !options.dry_run) else {
            return Ok(None);
        };
        if *top == Location::StandardStreams {
            let message = "--write-sums needs a destination with a name, not standard output";
            return Err(Failure::usage(message));
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
        name_below(&self.top, destination)
            .unwrap_or_else(|| last_component(destination).unwrap_or_default())
    }

    /// Adds a file that is complete and verified.
    ///
    /// # Errors
    /// No end of the copy can tell its checksum; `Local`.
    pub(crate) async fn add(&self, ctx: &BatchContext, file: &PlannedFile) -> Result<(), Failure> {
        if is_same_file(&file.destination, &self.path) || is_same_file(&file.source, &self.path) {
            self.is_taken.store(true, Ordering::Relaxed);
            return Err(Failure::usage(format!(
                "{} is a file of this copy: write the checksums to another file",
                self.path.display()
            )));
        }
        let digest = digest_of(ctx, file, self.writer.algorithm()).await;
        let (checksum, _) = digest.inspect_err(|_| {
            self.unknown.lock().insert(self.name_of(&file.destination));
        })?;
        self.writer.add(&checksum, &self.name_of(&file.destination))
    }

    /// The checksums that the file of an earlier run has.
    pub(crate) fn earlier(&self) -> Result<HashMap<Vec<u8>, String>, Failure> {
        let path = Path::new(OsStr::from_bytes(self.path.path()));
        read_earlier(path, self.writer.algorithm())
    }

    /// Adds the files of a plan, which a sync found the same at both ends: with the checksum of an earlier run, or a new one.
    ///
    /// # Errors
    /// As [`BatchSums::add`].
    pub(crate) async fn add_unchanged(
        &self,
        ctx: &BatchContext,
        unchanged: &CopyPlan,
        earlier: &HashMap<Vec<u8>, String>,
    ) -> Result<(), Failure> {
        let mut reader = PlanReader::of(unchanged);
        while let Some(file) = reader.next_file(unchanged)? {
            let name = self.name_of(&file.destination);
            match earlier.get(&name) {
                Some(checksum) => self.writer.add(checksum, &name)?,
                None => self.add(ctx, &file).await?,
            }
        }
        Ok(())
    }

    /// Adds the checksums of an earlier run for files that a sync did not copy: what the destination has of them is as it was.
    ///
    /// # Errors
    /// `Local`.
    pub(crate) fn add_left(
        &self,
        plan: &CopyPlan,
        earlier: &HashMap<Vec<u8>, String>,
    ) -> Result<(), Failure> {
        if earlier.is_empty() {
            return Ok(());
        }
        let mut left = HashSet::new();
        let mut reader = PlanReader::of(plan);
        loop {
            let next = reader.next(plan).map_err(|error| {
                Failure::local(format!("the plan of the copy cannot be read: {error}"))
            })?;
            let destination = match next {
                NextEntry::Entry(PlannedEntry::File(item)) => item.destination,
                NextEntry::Entry(PlannedEntry::HardLink(link)) => link.file.destination,
                NextEntry::Entry(PlannedEntry::Unlisted { destination, .. }) => destination,
                NextEntry::Entry(PlannedEntry::Directory { .. } | PlannedEntry::Link(_)) => {
                    continue;
                }
                NextEntry::Pending | NextEntry::End => break,
            };
            left.insert(self.name_of(&destination));
        }
        let unknown = self.unknown.lock();
        let is_left = |name: &[u8]| {
            !unknown.contains(name)
                && (left.contains(name) || parents(name).any(|above| left.contains(above)))
        };
        let mut kept: Vec<_> = earlier.iter().filter(|(name, _)| is_left(name)).collect();
        kept.sort();
        for (name, checksum) in kept {
            self.writer.add(checksum, name)?;
        }
        Ok(())
    }

    /// Gives the checksum file its name.
    ///
    /// # Errors
    /// `Local`.
    pub(crate) fn finish(&self, policy: SyncPolicy) -> Result<(), Failure> {
        match self.is_taken.load(Ordering::Relaxed) {
            true => Ok(()),
            false => self.writer.finish(policy),
        }
    }
}

/// The name of a file of the destination `top`. `None`: it is the destination itself.
pub(super) fn name_below(top: &Location, destination: &Location) -> Option<Vec<u8>> {
    let top = trim_trailing_slashes(top.path());
    let below = destination.path().strip_prefix(top)?;
    let name = below.strip_prefix(b"/").unwrap_or(below);
    (!name.is_empty()).then(|| name.to_vec())
}

/// The checksum of a file that is complete, and which storage computed it.
///
/// # Errors
/// No end of the copy can tell it.
pub(super) async fn digest_of(
    ctx: &BatchContext,
    file: &PlannedFile,
    algorithm: ChecksumAlgorithm,
) -> Result<(String, StorageId), Failure> {
    let options = &ctx.options.file;
    let is_local = |at: &Location| at.storage_id() == StorageId::LocalFiles;
    // The part that was copied is the whole of the destination.
    let (at, offset, length) = match is_local(&file.source) && !is_local(&file.destination) {
        true => (&file.source, options.offset.unwrap_or(0), options.length),
        false => (&file.destination, 0, None),
    };
    let id = at.storage_id();
    let sum = ctx.checksum(&id, at.path(), algorithm, offset, length);
    let sum = sum.await.map_err(|failure| {
        let copied = Sentence::about(file.destination.display());
        failure.within(copied.words(" was copied, but its checksum is unknown"))
    })?;
    Ok((sum, id))
}
