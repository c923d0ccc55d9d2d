//! Small files of a server that takes no bundles: a series of transfers over one session
//! ([`ftp::transfer::series`]).

use std::sync::Arc;

use data::job::TransferControl;
use data::store::Sink;
use data::store::bundle::{BundleMember, BundleSink, BundleSource};
use proto::bundle::{BundleFailure, partial_name};
use proto::client::CommandLead;
use proto::ranges::RangeSet;
use tune::Prior;

use super::super::plan::PlannedFile;
use super::local_files::LocalBundle;
use super::members::{ServerEnd, members, modes, server_of};
use super::{MovedBundle, begin_together};
use crate::batch::BatchContext;
use crate::batch::measurement::TransferMeasurement;
use crate::batch::meter::{FileMeter, SafeByteCount};
use crate::batch::retry::RetryBudget;
use crate::file::stream_plan::{CopyRange, StreamPlan, new_transfer_spec};
use crate::file::verify::{ChecksumAbility, Verification, choose_verification};
use crate::local::replacement::random_token;
use crate::storage::capabilities::AvailableChecksums;
use crate::storage::contract::Storage;
use ftp::location::StorageId;
use ftp::transfer::TransferSpec;
use ftp::transfer::series::files::{FileSeries, SeriesEnd, SeriesFile, SeriesReport};
use ftp::{Failure, ModeChoice};

/// A series over all its attempts.
struct SeriesCopy<'a> {
    ctx: &'a BatchContext,
    files: &'a [PlannedFile],
    id: StorageId,
    end: ServerEnd,
    members: Vec<BundleMember>,
    local: LocalBundle,
    /// Fetched files, over all attempts.
    sink: Arc<BundleSink>,
    /// All files as the server names them.
    named: Vec<SeriesFile>,
    /// Partial files at the server that earlier attempts have begun.
    stale: Vec<Vec<u8>>,
    moved: Vec<bool>,
    failed: Vec<BundleFailure>,
    /// Name of the comparison.
    verified: String,
    measured: Option<TransferMeasurement>,
}

/// Moves files of one server, and of this machine, with retries. Comes back with the bytes that were moved.
pub(crate) async fn copy_series(
    ctx: &BatchContext,
    files: &[PlannedFile],
) -> Result<MovedBundle, (u64, Failure)> {
    let meter = &begin_together(ctx, files);
    let mut copy = SeriesCopy::new(ctx, files).map_err(|failure| (0, failure))?;
    let result = copy.run(meter).await;
    let moved_bytes = meter.moved();
    let lost = match result {
        Ok(()) => None,
        Err(failure) if !copy.moved.contains(&true) => return Err((moved_bytes, failure)),
        Err(failure) => Some(failure).filter(Failure::is_lost),
    };
    copy.finish(moved_bytes, lost)
        .await
        .map_err(|failure| (moved_bytes, failure))
}

impl<'a> SeriesCopy<'a> {
    fn new(ctx: &'a BatchContext, files: &'a [PlannedFile]) -> Result<Self, Failure> {
        let (id, end) = server_of(files)?;
        let has_final_names = |file: &PlannedFile| {
            let refusal = ctx.renames.refusal(&id, file.destination.path());
            ctx.options.file.in_place || refusal.is_some()
        };
        if end == ServerEnd::Destination && files.iter().any(has_final_names) {
            return Err(Failure::local("the files get their final names at once"));
        }
        let members = members(files);
        let here = |file: &'a PlannedFile| match end {
            ServerEnd::Source => &file.destination,
            ServerEnd::Destination => &file.source,
        };
        let local = LocalBundle::new(&ctx.trees, files.iter().map(here));
        let local = local.with_modes(modes(ctx.options.file.preserve, files));
        let policy = ctx.options.file.sync_policy;
        let sink = BundleSink::new(members.clone(), local.clone(), policy);
        Ok(Self {
            named: named_files(files, end, local.token()),
            stale: Vec::new(),
            moved: vec![false; files.len()],
            failed: Vec::new(),
            verified: Verification::ByteCount.label(),
            measured: None,
            sink: Arc::new(sink),
            ctx,
            files,
            id,
            end,
            members,
            local,
        })
    }

    /// Attempts, until every file is moved or has failed.
    async fn run(&mut self, meter: &FileMeter) -> Result<(), Failure> {
        let mut retries = RetryBudget::new(self.ctx.options.retry, self.ctx.seed);
        loop {
            let before = self.left().len();
            let lead = self.ctx.pool.series_lead(&self.id);
            let Err(failure) = self.attempt(meter, lead).await else {
                return Ok(());
            };
            let goes_on = self.left().len() < before;
            // Another session does better, or the next one is more careful.
            if failure.may_retry() && (goes_on || self.ctx.pool.series_lead(&self.id) < lead) {
                retries = RetryBudget::new(self.ctx.options.retry, self.ctx.seed);
                tracing::debug!(%failure, "a series goes on over another session");
                continue;
            }
            let source = format!("{} files", self.files.len());
            self.ctx
                .wait_for_retry(
                    &source,
                    std::slice::from_ref(&self.id),
                    &mut retries,
                    0,
                    failure,
                )
                .await?;
        }
    }

    /// Positions of files that have neither moved nor failed.
    fn left(&self) -> Vec<usize> {
        let failed = |index: usize| self.failed.iter().any(|failure| failure.index == index);
        (0..self.files.len())
            .filter(|index| !self.moved[*index] && !failed(*index))
            .collect()
    }

    async fn attempt(&mut self, meter: &FileMeter, lead: CommandLead) -> Result<(), Failure> {
        let left = self.left();
        if left.is_empty() {
            return Ok(());
        }
        let mut session = self.ctx.pool.acquire(&self.id).await?;
        let local = self.ctx.pool.acquire(&StorageId::LocalFiles).await?;
        let first = &self.named[left[0]];
        if self.end == ServerEnd::Destination {
            let renames = &self.ctx.renames;
            let refusal = renames.find_refusal(&self.id, &mut *session, &first.path);
            if let Some(refusal) = refusal.await? {
                self.ctx.pool.release(&self.id, session);
                return Err(refusal);
            }
        }
        let theirs = session.available_checksums(&first.path).await?;
        let (spec, check) = self.specification(&*session, &*local, &theirs)?;
        self.verified = check.label();
        let end = self.local_end(&left);
        let series = FileSeries {
            files: left
                .iter()
                .map(|index| self.named[*index].clone())
                .collect(),
            end,
            stale: self.stale.clone(),
            lead,
        };
        let control = Arc::new(TransferControl::new());
        let counted = Arc::clone(&control);
        meter.begin_attempt(
            Arc::clone(&control),
            SafeByteCount::from_fn(move || counted.safe().byte_count()),
        );
        let mut report = SeriesReport::default();
        let result = session
            .series_mover()?
            .move_series(&series, &spec, &control, &mut report)
            .await;
        let begun = std::mem::take(&mut report.begun);
        self.take_report(report);
        if result.is_err() {
            self.rename_partials(&begun);
        }
        if result.is_ok() {
            self.stale.clear();
            meter.confirm_attempt();
            self.ctx.pool.release(&self.id, session);
        }
        result
    }

    /// Gives the files that are not moved other partial names: the lost session may still write to the old ones, which
    /// must not come to what the next attempt has verified.
    fn rename_partials(&mut self, begun: &[usize]) {
        if self.end == ServerEnd::Source {
            return;
        }
        let begun = begun.iter().filter(|index| !self.moved[**index]);
        let old = begun.map(|index| self.named[*index].partial.clone());
        self.stale.extend(old);
        let token = random_token();
        for file in &mut self.named {
            file.partial = partial_path(&file.path, token, file.index);
        }
    }

    /// This machine's end of an attempt.
    fn local_end(&self, left: &[usize]) -> SeriesEnd {
        match self.end {
            ServerEnd::Source => {
                for index in left {
                    self.sink.begin_again(*index);
                }
                SeriesEnd::Receive(Arc::clone(&self.sink) as Arc<dyn Sink>)
            }
            ServerEnd::Destination => {
                let local = self.local.clone();
                let source =
                    BundleSource::new(self.members.clone(), move |index| local.open_source(index));
                SeriesEnd::Send(Arc::new(source))
            }
        }
    }

    fn take_report(&mut self, mut report: SeriesReport) {
        self.ctx.pool.limit_series_lead(&self.id, report.lead);
        for index in report.moved {
            self.moved[index] = true;
            if self.end == ServerEnd::Destination {
                let renames = &self.ctx.renames;
                renames.permitted(&self.id, &self.named[index].path);
            }
        }
        self.failed.append(&mut report.failed);
        let warnings = std::mem::take(&mut report.attempt.warnings);
        self.ctx.warn_all(warnings);
        self.measured = Some(match self.end {
            ServerEnd::Source => TransferMeasurement::of_received(report.attempt),
            ServerEnd::Destination => TransferMeasurement::of_sent(report.attempt),
        });
    }

    fn specification(
        &self,
        session: &dyn Storage,
        local: &dyn Storage,
        theirs: &AvailableChecksums,
    ) -> Result<(TransferSpec, Verification), Failure> {
        let ours = AvailableChecksums::all();
        let ability = |checksums| ChecksumAbility {
            checksums,
            is_whole_file: true,
        };
        let abilities = [ability(theirs), ability(&ours)];
        let check = choose_verification(self.ctx.options.file.verify, &abilities)?;
        if let Some(algorithm) = check.algorithm()
            && !theirs.ranges.contains(&algorithm)
        {
            return Err(Failure::local("the server's checksums have a command each"));
        }
        // Each file is small: one stream carries it.
        let none = Prior::default();
        let plan = match self.end {
            ServerEnd::Source => {
                StreamPlan::for_transfer(self.ctx, Some(0), false, &none, session, local)
            }
            ServerEnd::Destination => {
                StreamPlan::for_transfer(self.ctx, Some(0), false, &none, local, session)
            }
        };
        let range = CopyRange {
            part: None,
            size: None,
        };
        let mut spec = new_transfer_spec(self.ctx, range, &RangeSet::new(), plan);
        spec.checksum = check.algorithm();
        spec.chunks = None;
        spec.adapt = false;
        if spec.mode == ModeChoice::Auto && session.capabilities().parallel {
            // Its connections stay open for the next file.
            spec.mode = ModeChoice::Extended;
        }
        Ok((spec, check))
    }

    /// Puts fetched files in place. Returns what was moved.
    async fn finish(self, bytes: u64, lost: Option<Failure>) -> Result<MovedBundle, Failure> {
        let missing = self.left().into_iter().map(|index| BundleFailure {
            index,
            reason: "the session was lost before".to_owned(),
        });
        let mut failures: Vec<BundleFailure> = missing.collect();
        failures.extend(self.failed);
        if self.end == ServerEnd::Source {
            let sink = self.sink;
            sink.drop_members(&failures);
            failures = match tokio::task::spawn_blocking(move || sink.finish()).await {
                Ok(Ok(failures)) => failures,
                Ok(Err(error)) => {
                    let message = format!("the files of a series are not on disk: {error}");
                    return Err(Failure::local(&message));
                }
                Err(error) => return Err(Failure::local(error.to_string())),
            };
        }
        for failure in &failures {
            let name = self.files[failure.index].source.display();
            tracing::debug!(name, reason = failure.reason, "not moved with its series");
        }
        let Some(measured) = self.measured else {
            return Err(Failure::local("a series without files"));
        };
        Ok(MovedBundle {
            bytes,
            failed: failures.into_iter().map(|failure| failure.index).collect(),
            lost,
            verified: self.verified,
            measured,
        })
    }
}

/// The files as the server names them. `token` makes the partial names those of this copy.
fn named_files(files: &[PlannedFile], end: ServerEnd, token: u64) -> Vec<SeriesFile> {
    let mut start = 0_u64;
    let named = files.iter().enumerate().map(|(index, file)| {
        let path = match end {
            ServerEnd::Source => file.source.path(),
            ServerEnd::Destination => file.destination.path(),
        };
        let size = file.facts.size.unwrap_or(0);
        let named = SeriesFile {
            index,
            start,
            size,
            path: path.to_vec(),
            partial: partial_path(path, token, index),
            modified: file.facts.modified,
        };
        start = start.saturating_add(size);
        named
    });
    named.collect()
}

/// The path of a file until it is complete, in the directory of its final one.
fn partial_path(path: &[u8], token: u64, index: usize) -> Vec<u8> {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    let directory = slash.map_or(0, |at| at + 1);
    [&path[..directory], &partial_name(token, index)].concat()
}
