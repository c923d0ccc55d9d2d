//! Where the journal of a batch is, and which batch it belongs to.

use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use data::checksum::ChecksumHasher;
use data::store::durability::SyncPolicy;
use proto::checksum::ChecksumAlgorithm;

use super::{abandoned, done_marks};
use crate::batch::BatchContext;
use crate::events::CopyEvent;
use crate::local::partial::{local_failure, name_hash};
use crate::options::{BatchJournalLocation, CopyOptions};
use crate::plan::CopyPlan;
use crate::plan::batch_journal::BatchJournal;
use crate::plan::pairs::{PairSource, open_failure};
use ftp::location::Location;
use ftp::{Failure, FailureKind};

/// Bytes of a file of pairs that are read at a time.
const READ_BLOCK: usize = 64 << 10;

/// The journal of one command.
#[derive(Debug, Clone)]
pub(crate) struct JournalOpening {
    /// `None`: the plan is forgotten at the end.
    path: Option<PathBuf>,
    /// A hash of everything that must be equal in a later run that goes on. A command may be longer than a record.
    command: Vec<u8>,
    /// The user has named the file.
    is_named: bool,
    durable: bool,
    /// Locations whose storages the journal may name.
    known: Vec<Location>,
}

impl JournalOpening {
    /// For a copy of arguments.
    pub(crate) fn of_copy(
        ctx: &BatchContext,
        sources: &[Location],
        destination: &Location,
    ) -> Self {
        let options = &ctx.options;
        let all = sources.iter().chain([destination]);
        let mut command = b"cp".to_vec();
        for location in all.clone() {
            command.push(b'\n');
            let key = match location.server() {
                Some(_) => ctx.place_key(location),
                None => absolute(location).identity_key(),
            };
            command.extend_from_slice(key.as_bytes());
        }
        if all.clone().any(is_relative) {
            command.extend_from_slice(&working_directory());
        }
        command.push(b'\n');
        command.extend_from_slice(identity_of(options).as_bytes());
        Self::new(
            options,
            &command,
            is_durable(options.file.sync_policy, destination),
            all.cloned().collect(),
        )
    }

    /// For a copy of the pairs of a file.
    ///
    /// # Errors
    /// `NotFound`, `Local`: the file cannot be read.
    pub(crate) fn of_pairs(options: &CopyOptions, pairs: &PairSource) -> Result<Self, Failure> {
        let mut command = b"from\n".to_vec();
        if let PairSource::File(path) = pairs {
            let place = absolute(&Location::Local(path.clone())).identity_key();
            let content = content_hash(path).map_err(|error| open_failure(path, &error))?;
            command.extend_from_slice(format!("{place} {content}\n").as_bytes());
        }
        // Any pair may be relative.
        command.extend_from_slice(&working_directory());
        command.extend_from_slice(identity_of(options).as_bytes());
        let durable = options.file.sync_policy == SyncPolicy::File;
        Ok(Self::new(options, &command, durable, Vec::new()))
    }

    /// The same with these storages.
    pub(crate) fn knowing(&self, known: Vec<Location>) -> Self {
        Self {
            known,
            ..self.clone()
        }
    }

    /// Whether this run goes on with a journal of an earlier one.
    pub(crate) fn may_continue(&self, ctx: &BatchContext) -> bool {
        let options = &ctx.options;
        let exists = self.path.as_ref().is_some_and(|path| path.exists());
        // A checksum file needs a complete run: what the user does not ask for gives way.
        let wants_all =
            options.file.restart || (options.write_sums.is_some() && !options.file.resume);
        exists && !wants_all
    }

    /// For a batch that `command` identifies, with these storages. `durable`: see [`BatchJournal::open`].
    pub(crate) fn new(
        options: &CopyOptions,
        command: &[u8],
        durable: bool,
        known: Vec<Location>,
    ) -> Self {
        let command = name_hash(command);
        let (path, is_named) = match &options.journal {
            _ if options.dry_run => (None, false),
            BatchJournalLocation::Off => (None, false),
            BatchJournalLocation::File(path) => (Some(path.clone()), true),
            BatchJournalLocation::Directory(directory) => {
                let name = format!("{command}.{}", abandoned::EXTENSION);
                (Some(directory.join(name)), false)
            }
        };
        Self {
            path,
            command: command.into_bytes(),
            is_named,
            durable,
            known,
        }
    }

    /// The plan that an earlier run of the command has left, as far as it still holds; without `--resume`, everything is listed again.
    ///
    /// # Errors
    /// Busy: the command runs already. `Usage`, `Local`: the file that the user named cannot be used.
    pub(crate) async fn open_earlier(
        &self,
        ctx: &Arc<BatchContext>,
    ) -> Result<Option<CopyPlan>, Failure> {
        if !self.may_continue(ctx) {
            return Ok(None);
        }
        let plan = self.open(ctx, true).await?;
        if plan.has_earlier_run() {
            let relist = !ctx.options.file.resume;
            let files = done_marks::check(ctx, &plan, relist).await?;
            let undated = plan.take_over(relist, files)?;
            if undated > 0 {
                ctx.warn(format!(
                    "{undated} files of an earlier run are copied again: their source tells no time, so nothing shows that \
                     they are the same"
                ));
            }
            let files = files - undated;
            ctx.observer.on_event(CopyEvent::Continuing { files });
        }
        Ok(Some(plan))
    }

    /// An empty plan; its journal is kept if the batch is of `many` files, or the user has named it. The journal of one file is
    /// [`crate::local::journal`].
    ///
    /// # Errors
    /// As [`JournalOpening::open_earlier`].
    pub(crate) async fn open_new(
        &self,
        ctx: &BatchContext,
        many: bool,
    ) -> Result<CopyPlan, Failure> {
        match many || self.is_named {
            true => self.open(ctx, false).await,
            false => Ok(CopyPlan::in_journal(BatchJournal::unnamed(), &self.known)),
        }
    }

    async fn open(&self, ctx: &BatchContext, resume: bool) -> Result<CopyPlan, Failure> {
        let mut waited = 0;
        let journal = loop {
            match self.try_open(resume) {
                Err(failure)
                    if failure.kind() == FailureKind::DestinationBusy && ctx.options.file.wait =>
                {
                    ctx.wait_for_other_copy(&failure, waited).await;
                    waited += 1;
                }
                Err(failure) if failure.kind() == FailureKind::DestinationBusy || self.is_named => {
                    return Err(failure);
                }
                Err(failure) => {
                    ctx.warn(format!(
                        "{failure}: the batch has no journal, so a later run copies everything again"
                    ));
                    break BatchJournal::unnamed();
                }
                Ok(journal) => break journal,
            }
        };
        Ok(CopyPlan::in_journal(journal, &self.known))
    }

    fn try_open(&self, resume: bool) -> Result<BatchJournal, Failure> {
        let Some(path) = &self.path else {
            return Ok(BatchJournal::unnamed());
        };
        if let (false, Some(directory)) = (self.is_named, path.parent()) {
            let made = DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory);
            made.map_err(|error| local_failure(directory, error))?;
        }
        let journal = BatchJournal::open(path, &self.command, resume, self.durable)?;
        if let (false, Some(directory)) = (self.is_named, path.parent()) {
            // After this journal is locked, which may be as old.
            abandoned::remove_some(directory, SystemTime::now());
        }
        Ok(journal)
    }
}

/// Options that decide which files belong to a copy, and what a file has when it is done. Ages (`--newer 2d`) are those of
/// the first run.
fn identity_of(options: &CopyOptions) -> String {
    let listed = options.tree.files_from.as_ref().map(|paths| {
        let text = paths.join(&b'\n');
        name_hash(&text)
    });
    format!(
        "{} {:?} {listed:?} {:?}\n{} {:?} {:?} {:?} {:?}",
        options.tree.recursive,
        options.tree.symlinks,
        options.tree.selection.identity(),
        options.file.keep_existing,
        options.file.verify,
        options.file.preserve,
        options.file.sparse,
        options.write_sums
    )
}

/// Whether what a run reports as done survives a power cut of this machine.
fn is_durable(policy: SyncPolicy, destination: &Location) -> bool {
    // A server reports what is stored by its own policy.
    policy == SyncPolicy::File || matches!(destination, Location::Remote { .. })
}

/// A checksum of the bytes of a file.
fn content_hash(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = ChecksumHasher::new(ChecksumAlgorithm::Blake3);
    let mut block = vec![0; READ_BLOCK];
    loop {
        let length = file.read(&mut block)?;
        match block.get(..length) {
            Some(bytes) if length > 0 => hasher.update(bytes),
            _ => return Ok(hasher.finish()),
        }
    }
}

/// A relative path names another file in another directory.
fn absolute(location: &Location) -> Location {
    match location {
        Location::Local(path) => {
            Location::Local(std::path::absolute(path).unwrap_or_else(|_| path.clone()))
        }
        other => other.clone(),
    }
}

/// Whether the journal names a location as it is seen from the working directory.
fn is_relative(location: &Location) -> bool {
    matches!(location, Location::Local(path) if path.is_relative())
}

/// The working directory, after a line end.
fn working_directory() -> Vec<u8> {
    let directory = std::env::current_dir().unwrap_or_default();
    [b"\n", directory.as_os_str().as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::options::VerifyMode;
    use crate::options::WriteSums;
    use crate::options::{Preserve, SparseFiles};
    use crate::run::tests::options;

    #[test]
    fn a_run_with_other_demands_on_a_file_has_another_journal() {
        let all = [
            options(),
            options().with(|o| o.file.keep_existing = true),
            options().with(|o| o.file.verify = VerifyMode::None),
            options().with(|o| {
                o.file.preserve = Preserve {
                    hard_links: true,
                    ..Preserve::default()
                }
            }),
            options().with(|o| o.file.sparse = SparseFiles::Always),
            options().with(|o| o.write_sums = Some(WriteSums::new("sums".into(), None))),
        ];
        let identities: HashSet<String> = all.iter().map(identity_of).collect();
        assert_eq!(identities.len(), all.len());
        let resumed = options().with(|o| {
            o.file.resume = true;
            o.retry.retries = 9;
        });
        assert_eq!(identity_of(&resumed), identity_of(&options()));
    }

    #[test]
    fn a_list_of_pairs_with_another_content_has_another_journal() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pairs");
        let opening = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
            let pairs = PairSource::File(path.clone());
            JournalOpening::of_pairs(&options(), &pairs)
                .unwrap()
                .command
        };
        assert_ne!(opening("/a /b"), opening("/a /c"));
        assert_eq!(opening("/a /b"), opening("/a /b"));
    }
}
