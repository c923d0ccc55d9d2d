//! `--receipt`: what was copied, for whoever wants to prove it later.
//!
//! Each file has the digest of the complete file, read again when it is verified. Files that an earlier run of the same command
//! has copied are read at the end. The receipt has its name when the batch has ended; an interrupted one has none.

use std::collections::HashSet;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ftp::Failure;
use ftp::location::{Location, StorageId};
use jiff::Timestamp as Instant;
use parking_lot::Mutex;

use super::sums::{digest_of, name_below};
use crate::batch::BatchContext;
use crate::local::partial::local_failure;
use crate::local::replacement::Replacement;
use crate::options::{CopyOptions, WriteSums};
use crate::plan::{
    CopyPlan, NextEntry, PlanReader, PlannedEntry, PlannedFile, is_same_file, last_component,
};
use crate::sums::receipt::{FORMAT, ReceiptBegin, ReceiptEnd, ReceiptFile, ReceiptLine};

/// The receipt of a batch.
#[derive(Debug)]
pub(crate) struct BatchReceipt {
    wanted: WriteSums,
    out: Mutex<Replacement>,
    /// The destination of the command.
    top: Location,
    /// Entries of the plan of which this run has said everything.
    told: Mutex<HashSet<u32>>,
    files: AtomicU64,
    bytes: AtomicU64,
    /// The destination of the command is a file itself.
    is_one_file: AtomicBool,
}

impl BatchReceipt {
    /// The receipt that the options ask for, if any.
    ///
    /// # Errors
    /// `Local`; `Usage` for a destination without names.
    pub(crate) fn create(options: &CopyOptions, top: &Location) -> Result<Option<Self>, Failure> {
        let Some(wanted) = options.receipt.as_ref().filter(|_| !options.dry_run) else {
            return Ok(None);
        };
        if *top == Location::StandardStreams {
            let message = "--receipt needs a destination with a name, not standard output";
            return Err(Failure::usage(message));
        }
        let out = Replacement::create(&wanted.path, "receipt", 0o666)
            .map_err(|error| local_failure(&wanted.path, error))?;
        let receipt = Self {
            wanted: wanted.clone(),
            out: Mutex::new(out),
            top: top.clone(),
            told: Mutex::default(),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            is_one_file: AtomicBool::new(false),
        };
        let host = rustix::system::uname();
        receipt.write(&ReceiptLine::Receipt(ReceiptBegin {
            format: FORMAT,
            program: format!("longhaul {}", env!("CARGO_PKG_VERSION")),
            host: host.nodename().to_string_lossy().into_owned(),
            started: now(),
            destination: absolute(top).display(),
            sync: options.file.sync_policy.name().to_owned(),
        }))?;
        Ok(Some(receipt))
    }

    fn write(&self, line: &ReceiptLine) -> Result<(), Failure> {
        let mut out = self.out.lock();
        out.write_all(&line.format())
            .map_err(|error| local_failure(&self.wanted.path, error))
    }

    /// Adds a file that is complete and verified, as `verified` says.
    ///
    /// # Errors
    /// No end of the copy can tell its digest; `Local`.
    pub(crate) async fn add(
        &self,
        ctx: &BatchContext,
        file: &PlannedFile,
        verified: &str,
    ) -> Result<(), Failure> {
        let path = Location::Local(self.wanted.path.clone());
        if is_same_file(&file.destination, &path) || is_same_file(&file.source, &path) {
            return Err(Failure::usage(format!(
                "{} is a file of this copy: write the receipt to another file",
                path.display()
            )));
        }
        let algorithm = self.wanted.algorithm;
        let (digest, at) = digest_of(ctx, file, algorithm).await?;
        let name = name_below(&self.top, &file.destination).unwrap_or_else(|| {
            self.is_one_file.store(true, Ordering::Relaxed);
            last_component(&file.destination).unwrap_or_default()
        });
        let (name, name_hex) = ReceiptFile::name_fields(&name);
        self.write(&ReceiptLine::File(ReceiptFile {
            name,
            name_hex,
            source: absolute(&file.source).display(),
            destination: absolute(&file.destination).display(),
            bytes: file.facts.size,
            modified: file.facts.modified.and_then(|time| time_text(time.0)),
            algorithm: algorithm.name().to_ascii_lowercase(),
            digest,
            digest_by: match at {
                StorageId::Server(server) => server.to_string(),
                StorageId::LocalFiles | StorageId::StandardStreams => "this machine".to_owned(),
            },
            verified: verified.to_owned(),
        }))?;
        self.files.fetch_add(1, Ordering::Relaxed);
        let bytes = file.facts.size.unwrap_or(0);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.note(file.entry);
        Ok(())
    }

    /// The directory that the names are below.
    fn base(&self) -> Location {
        let top = absolute(&self.top);
        match self.is_one_file.load(Ordering::Relaxed) {
            true => directory_of(&top),
            false => top,
        }
    }

    /// Notes an entry that is done and not to be told of: it was left alone.
    pub(crate) fn note(&self, entry: u32) {
        self.told.lock().insert(entry);
    }

    /// Adds the files that an earlier run of the command has copied.
    ///
    /// # Errors
    /// As [`BatchReceipt::add`].
    pub(crate) async fn add_earlier(
        &self,
        ctx: &BatchContext,
        plan: &CopyPlan,
    ) -> Result<(), Failure> {
        if plan.earlier_files() == 0 {
            return Ok(());
        }
        let mut reader = PlanReader::of_all(plan);
        loop {
            let next = reader.next(plan).map_err(|error| {
                Failure::local(format!("the plan of the copy cannot be read: {error}"))
            })?;
            let file = match next {
                NextEntry::Entry(PlannedEntry::File(file)) => file,
                NextEntry::Entry(PlannedEntry::HardLink(link)) => link.file,
                NextEntry::Entry(_) => continue,
                NextEntry::Pending | NextEntry::End => return Ok(()),
            };
            let is_new = !self.told.lock().contains(&file.entry);
            if is_new && plan.is_done(file.entry) {
                self.add(ctx, &file, "by an earlier run").await?;
            }
        }
    }

    /// Writes the end, and gives the receipt its name.
    ///
    /// # Errors
    /// `Local`.
    pub(crate) fn finish(&self, options: &CopyOptions, failed: u64) -> Result<(), Failure> {
        self.write(&ReceiptLine::End(ReceiptEnd {
            base: self.base().display(),
            ended: now(),
            files: self.files.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            failed,
            servers: options.security.identities(),
        }))?;
        let mut out = self.out.lock();
        out.put_in_place(options.file.sync_policy)
            .map_err(|error| local_failure(&self.wanted.path, error))
    }
}

/// The directory of a file.
fn directory_of(file: &Location) -> Location {
    let path = file.path();
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    file.with_path(path[..end.max(1)].to_vec())
}

/// The same location, whatever the working directory is.
fn absolute(at: &Location) -> Location {
    match at {
        Location::Local(path) => {
            Location::Local(std::path::absolute(path).unwrap_or_else(|_| path.clone()))
        }
        other => other.clone(),
    }
}

fn now() -> String {
    time_text(Instant::now().as_second()).unwrap_or_default()
}

fn time_text(seconds: i64) -> Option<String> {
    Instant::from_second(seconds)
        .ok()
        .map(|time| time.to_string())
}
