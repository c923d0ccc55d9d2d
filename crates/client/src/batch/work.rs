//! The work of a batch: a window of the plan at a time, arranged as single files and bundles, for workers that each take what is
//! next.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::BatchContext;
use super::bundle::{self, BatchWork};
use super::plan::{self, CopyPlan, NextEntry, PlanReader, PlannedEntry, PlannedFile};
use crate::location::{Location, StorageId};
use crate::{CopyFailure, Exit};

/// Files of the plan that are in memory at a time. Within a window, large ones come first.
const WINDOW: usize = 4096;
/// A window that is not full is used after this time, so that a slow listing does not hold back its first files.
const PATIENCE: Duration = Duration::from_millis(200);

/// The work of a plan, for several workers.
pub(super) struct WorkQueue {
    ctx: Arc<BatchContext>,
    plan: Arc<CopyPlan>,
    workers: usize,
    supply: tokio::sync::Mutex<WorkSupply>,
}

struct WorkSupply {
    reader: PlanReader,
    ready: VecDeque<BatchWork>,
    /// Servers that were asked whether they take bundles, with the answer.
    asked: Vec<(StorageId, bool)>,
}

/// A part of the plan.
#[derive(Default)]
struct PlanWindow {
    directories: Vec<(u32, Location)>,
    files: Vec<PlannedFile>,
    is_last: bool,
}

/// Receives failures of entries that are not files.
pub(super) type FailureReport<'r> = dyn Fn(String, CopyFailure) + Send + Sync + 'r;

impl WorkQueue {
    /// The work of `plan` for so many workers.
    pub(super) fn new(ctx: &Arc<BatchContext>, plan: &Arc<CopyPlan>, workers: usize) -> Self {
        Self {
            ctx: Arc::clone(ctx),
            plan: Arc::clone(plan),
            workers,
            supply: tokio::sync::Mutex::new(WorkSupply {
                reader: PlanReader::of(plan),
                ready: VecDeque::new(),
                asked: Vec::new(),
            }),
        }
    }

    /// Prepares the first window. Returns how many workers can have work: no more than there is, if nothing follows.
    pub(super) async fn first(&self, report: &FailureReport<'_>) -> usize {
        let mut supply = self.supply.lock().await;
        let is_last = !self.refill(&mut supply, report).await;
        match is_last {
            true => self.workers.min(supply.ready.len()),
            false => self.workers,
        }
    }

    /// The next piece of work, as soon as there is one. `None`: the plan is carried out.
    pub(super) async fn next(&self, report: &FailureReport<'_>) -> Option<BatchWork> {
        let mut supply = self.supply.lock().await;
        loop {
            if let Some(work) = supply.ready.pop_front() {
                return Some(work);
            }
            if !self.refill(&mut supply, report).await {
                return supply.ready.pop_front();
            }
        }
    }

    /// Creates the directories of the next window, and arranges its files. Returns whether another window may follow.
    async fn refill(&self, supply: &mut WorkSupply, report: &FailureReport<'_>) -> bool {
        let window = match self.read_window(&mut supply.reader).await {
            Ok(window) => window,
            Err(error) => {
                let message = format!("the plan of the copy cannot be read: {error}");
                report(String::new(), CopyFailure::new(Exit::Local, message));
                return false;
            }
        };
        // Parents come first, and before the files that they will hold.
        self.make_directories(&window.directories, report).await;
        self.ask_for_bundles(&mut supply.asked, &window.files).await;
        let takers: Vec<StorageId> = supply
            .asked
            .iter()
            .filter(|(_, takes_bundles)| *takes_bundles)
            .map(|(id, _)| id.clone())
            .collect();
        let options = &self.ctx.options;
        let vouched = self.plan.continues();
        supply.ready = bundle::arrange((options, vouched), window.files, self.workers, &takers);
        !window.is_last
    }

    async fn read_window(&self, reader: &mut PlanReader) -> std::io::Result<PlanWindow> {
        let mut window = PlanWindow::default();
        let deadline = Instant::now() + PATIENCE;
        while window.files.len() < WINDOW && window.directories.len() < WINDOW {
            let mut next = reader.next(&self.plan)?;
            let grown = self.plan.grown();
            tokio::pin!(grown);
            if matches!(next, NextEntry::Pending) {
                // Registered before the second look, so that no change is missed.
                grown.as_mut().enable();
                next = reader.next(&self.plan)?;
            }
            match next {
                NextEntry::Entry(PlannedEntry::File(item)) => window.files.push(item),
                NextEntry::Entry(PlannedEntry::Directory { at, entry }) => {
                    window.directories.push((entry, at));
                }
                // Links are created at the end.
                NextEntry::Entry(PlannedEntry::Link(_) | PlannedEntry::Unlisted { .. }) => {}
                NextEntry::End => {
                    window.is_last = true;
                    break;
                }
                NextEntry::Pending if window.files.is_empty() && window.directories.is_empty() => {
                    // There is nothing to do. The time is for a notice that came between two windows.
                    let _ = tokio::time::timeout(PATIENCE, grown).await;
                }
                NextEntry::Pending if timeout_at(deadline, grown).await.is_err() => break,
                NextEntry::Pending => {}
            }
        }
        Ok(window)
    }

    async fn make_directories(&self, directories: &[(u32, Location)], report: &FailureReport<'_>) {
        let locations: Vec<Location> = directories.iter().map(|(_, at)| at.clone()).collect();
        let failed = plan::make_directories(&self.ctx, &locations).await;
        let is_made = |position: &usize| !failed.iter().any(|(other, _)| other == position);
        let made = directories.iter().enumerate();
        let made: Vec<u32> = made
            .filter(|(position, _)| is_made(position))
            .map(|(_, (entry, _))| *entry)
            .collect();
        self.plan.mark_done(&made);
        for (position, failure) in failed {
            let shown = locations.get(position).map(Location::display);
            report(shown.unwrap_or_default(), failure);
        }
    }

    /// Asks the servers of these files, once, whether they take bundles. One that cannot be asked counts as one that does not:
    /// the copy of its files shows why.
    async fn ask_for_bundles(&self, asked: &mut Vec<(StorageId, bool)>, files: &[PlannedFile]) {
        let options = (&self.ctx.options, self.plan.continues());
        for id in bundle::servers_to_ask(options, files) {
            if asked.iter().any(|(known, _)| *known == id) {
                continue;
            }
            let mut takes_bundles = false;
            if let Ok(session) = self.ctx.session(&id).await {
                takes_bundles = session.capabilities().bundles;
                self.ctx.pool.release(&id, session);
            }
            asked.push((id, takes_bundles));
        }
    }
}
