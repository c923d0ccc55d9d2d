//! The work of a batch: a window of the plan at a time, arranged as single files and bundles, for workers that each take what is
//! next.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tune::sessions::{FileMovement, LONG_RTT, SessionRamp};

use super::session_plan::{KnownSessionLimits, plan_sessions};
use crate::batch::BatchContext;
use crate::plan::{CopyPlan, NextEntry, PlanReader, PlannedEntry, PlannedFile};
use crate::small_files::{BatchWork, SmallFileServer};
use crate::{plan, small_files};
use ftp::Failure;
use ftp::location::{Location, StorageId};

/// Files of the plan that are in memory at a time. Within a window, large ones come first.
const WINDOW: usize = 4096;
/// The same on a long path, where one bundle moves sooner than two.
const LONG_WINDOW: usize = 10_240;
/// Files by which the number of sessions is decided, if there are as many.
const FIRST_FILES: usize = 64;
/// Bundles that take longer are split: between two of them nothing moves for some round trips, but what fails together is copied
/// again together.
const BUNDLE_TIME: Duration = Duration::from_secs(15);
/// Round trips for which the first files of a listing wait for others, from the begin of the copy. The listing takes one or two, and
/// a text of some hundred kilobytes five.
const FIRST_ROUND_TRIPS: u32 = 6;
/// A window that is not full is used after this time, so that a slow listing does not hold back its first files.
const PATIENCE: Duration = Duration::from_millis(200);

/// The work of a plan, for several workers.
pub(crate) struct WorkQueue {
    ctx: Arc<BatchContext>,
    plan: Arc<CopyPlan>,
    report: FailureReport,
    /// The directory that will hold everything, if there is one.
    root: Option<Location>,
    /// Why it cannot be made.
    refused: parking_lot::Mutex<Option<Failure>>,
    begun: Instant,
    supply: tokio::sync::Mutex<WorkSupply>,
    /// Pieces of work that are ready.
    ready: AtomicUsize,
    /// Nothing follows them.
    is_last: AtomicBool,
}

struct WorkSupply {
    reader: PlanReader,
    ready: VecDeque<BatchWork>,
    /// Most workers at a time.
    workers: usize,
    /// Longest round trip of the servers that take bundles, as far as known.
    rtt: Duration,
    /// Servers that were asked whether they take many files at a time.
    asked: Vec<StorageId>,
    /// Those that do.
    servers: Vec<SmallFileServer>,
}

/// A part of the plan.
#[derive(Default)]
struct PlanWindow {
    directories: Vec<(u32, Location)>,
    files: Vec<PlannedFile>,
    is_last: bool,
}

/// Receives the failures of directories, or of the plan itself (`None`).
pub(crate) type FailureReport = Box<dyn Fn(Option<&Location>, Failure) + Send + Sync>;

impl WorkSupply {
    /// How long the first files may wait for more.
    fn first_wait(&self) -> Duration {
        match self.moves_one_by_one() {
            true => Duration::ZERO,
            false => self.rtt * FIRST_ROUND_TRIPS,
        }
    }

    /// Whether each file moves by itself, as far as the servers have been asked, so that nothing is gained by knowing more of them.
    fn moves_one_by_one(&self) -> bool {
        let mut movements = self.servers.iter().map(|server| server.movement);
        !self.servers.is_empty()
            && movements.all(|movement| matches!(movement, FileMovement::Requests { .. }))
    }

    /// Most files of a window.
    fn window(&self) -> usize {
        match self.rtt >= LONG_RTT {
            true => LONG_WINDOW,
            false => WINDOW,
        }
    }
}

impl WorkQueue {
    /// The work of `plan`.
    pub(crate) fn new(
        ctx: &Arc<BatchContext>,
        plan: &Arc<CopyPlan>,
        root: Option<Location>,
        report: FailureReport,
    ) -> Self {
        Self {
            ctx: Arc::clone(ctx),
            plan: Arc::clone(plan),
            report,
            root,
            refused: parking_lot::Mutex::default(),
            begun: Instant::now(),
            supply: tokio::sync::Mutex::new(WorkSupply {
                reader: PlanReader::of(plan),
                ready: VecDeque::new(),
                workers: 1,
                rtt: Duration::ZERO,
                asked: Vec::new(),
                servers: Vec::new(),
            }),
            ready: AtomicUsize::new(0),
            is_last: AtomicBool::new(false),
        }
    }

    /// Prepares the first window, and decides by its files how many sessions to use.
    pub(crate) async fn first(&self) -> (SessionRamp, KnownSessionLimits) {
        let mut supply = self.supply.lock().await;
        // All directories of a window are made in one go.
        supply.rtt = self.ctx.pool.longest_idle_rtt();
        let mut window = self.load(&mut supply).await;
        // On a long path a listing begins with directories: nothing can be decided by those. And a bundle that begins before the
        // listing of a small tree ends leaves a second one, which costs more round trips than the wait.
        while !window.is_last
            && (window.files.len() < FIRST_FILES
                || window.files.len() < supply.window()
                    && self.begun.elapsed() < supply.first_wait())
        {
            let next = self.load(&mut supply).await;
            window.files.extend(next.files);
            window.is_last = next.is_last;
        }
        self.ask_servers(&mut supply, &window.files).await;
        let expected = match window.is_last {
            true => window.files.len(),
            // The listing goes on.
            false => usize::MAX,
        };
        let files = (window.files.as_slice(), expected);
        let sessions = plan_sessions(&self.ctx, files.0, files.1, &supply.servers).await;
        supply.workers = match supply.servers.iter().all(SmallFileServer::takes_bundles) {
            // More come while bundles move, and find those of later windows.
            true => sessions.0.sessions(),
            false => sessions.0.most(),
        };
        supply.workers *= self.ctx.options.nodes.nodes.len().max(1);
        self.arrange(&mut supply, window);
        sessions
    }

    /// The next piece of work, as soon as there is one. `None`: nothing is left of the plan.
    pub(crate) async fn next(&self) -> Option<BatchWork> {
        let mut supply = self.supply.lock().await;
        loop {
            if let Some(work) = supply.ready.pop_front() {
                let (work, rest) = small_files::split(work, self.bytes_at_a_time());
                if let Some(rest) = rest {
                    supply.ready.push_front(rest);
                }
                self.ready.store(supply.ready.len(), Ordering::Relaxed);
                return Some(work);
            }
            if self.is_last.load(Ordering::Relaxed) {
                return None;
            }
            let window = self.load(&mut supply).await;
            self.arrange(&mut supply, window);
        }
    }

    /// Bytes that move in [`BUNDLE_TIME`] at the speed of this copy so far.
    fn bytes_at_a_time(&self) -> u64 {
        let moved = self.ctx.meter.totals().moved;
        let elapsed = self.begun.elapsed().max(Duration::from_millis(1));
        let moved = u128::from(moved) * BUNDLE_TIME.as_millis() / elapsed.as_millis();
        u64::try_from(moved).unwrap_or(u64::MAX)
    }

    /// Takes back a piece of work that was not begun.
    pub(crate) async fn put_back(&self, work: BatchWork) {
        let mut supply = self.supply.lock().await;
        supply.ready.push_front(work);
        self.ready.store(supply.ready.len(), Ordering::Relaxed);
    }

    /// For how many further workers there may be work.
    pub(crate) fn waiting(&self) -> usize {
        match self.is_last.load(Ordering::Relaxed) {
            true => self.ready.load(Ordering::Relaxed),
            false => usize::MAX,
        }
    }

    /// Bytes of all files, as soon as they are listed.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.plan.is_listed().then(|| self.plan.size().1)
    }

    /// Reads the next window, and creates its directories.
    async fn load(&self, supply: &mut WorkSupply) -> PlanWindow {
        let window = match self.read_window(supply).await {
            Ok(window) => window,
            Err(error) => {
                let message = format!("the plan of the copy cannot be read: {error}");
                (self.report)(None, Failure::local(message));
                PlanWindow {
                    is_last: true,
                    ..PlanWindow::default()
                }
            }
        };
        // Parents come first, and before the files that they will hold.
        if let Err(failure) = self.make_directories(&window.directories).await {
            *self.refused.lock() = Some(failure);
            return PlanWindow {
                is_last: true,
                ..PlanWindow::default()
            };
        }
        self.ask_servers(supply, &window.files).await;
        window
    }

    fn arrange(&self, supply: &mut WorkSupply, window: PlanWindow) {
        supply.ready = small_files::arrange(window.files, supply.workers, &supply.servers);
        self.ready.store(supply.ready.len(), Ordering::Relaxed);
        self.is_last.store(window.is_last, Ordering::Relaxed);
    }

    async fn read_window(&self, supply: &mut WorkSupply) -> std::io::Result<PlanWindow> {
        let most = supply.window();
        let mut window = PlanWindow::default();
        let deadline = Instant::now() + PATIENCE;
        let mut has_asked = false;
        while window.files.len() < most && window.directories.len() < most {
            let mut next = supply.reader.next(&self.plan)?;
            let grown = self.plan.grown();
            tokio::pin!(grown);
            if matches!(next, NextEntry::Pending) {
                // Registered before the second look, so that no change is missed.
                grown.as_mut().enable();
                next = supply.reader.next(&self.plan)?;
            }
            if matches!(next, NextEntry::Pending) && !window.files.is_empty() {
                if !std::mem::replace(&mut has_asked, true) {
                    self.ask_servers(supply, &window.files).await;
                }
                if supply.moves_one_by_one() {
                    break;
                }
            }
            match next {
                NextEntry::Entry(PlannedEntry::File(item)) => window.files.push(item),
                NextEntry::Entry(PlannedEntry::Directory { at, entry, .. }) => {
                    window.directories.push((entry, at));
                }
                // Links are created at the end.
                NextEntry::Entry(
                    PlannedEntry::HardLink(_)
                    | PlannedEntry::Link(_)
                    | PlannedEntry::Unlisted { .. },
                ) => {}
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

    /// Makes directories, and reports those that cannot be made.
    ///
    /// # Errors
    /// That of the root: nothing can be copied.
    async fn make_directories(&self, directories: &[(u32, Location)]) -> Result<(), Failure> {
        let locations: Vec<Location> = directories.iter().map(|(_, at)| at.clone()).collect();
        let failed = plan::make_directories(&self.ctx, &locations).await;
        if let Some((0, Some(failure))) = failed.first()
            && locations.first() == self.root.as_ref()
        {
            return Err(failure.clone());
        }
        let is_made = |position: &usize| !failed.iter().any(|(other, _)| other == position);
        let made = directories.iter().enumerate();
        let made: Vec<u32> = made
            .filter(|(position, _)| is_made(position))
            .map(|(_, (entry, _))| *entry)
            .collect();
        self.plan.mark_done(&made);
        for (position, failure) in failed {
            if let Some(failure) = failure {
                (self.report)(locations.get(position), failure);
            }
        }
        Ok(())
    }

    /// Why nothing was copied: the directory that was to hold everything cannot be made.
    pub(crate) fn refusal(&self) -> Option<Failure> {
        self.refused.lock().clone()
    }

    /// Asks the servers of these files, once, whether they take many files at a time. One that cannot be asked counts as one
    /// that does not: the copy of its files shows why.
    async fn ask_servers(&self, supply: &mut WorkSupply, files: &[PlannedFile]) {
        let options = &self.ctx.options;
        let parallelism = options.streams.parallelism;
        let continues = self.plan.continues();
        let may_bundle = small_files::may_bundle(&options.file, parallelism, continues);
        for id in small_files::servers_to_ask(files) {
            if supply.asked.contains(&id) {
                continue;
            }
            if let Ok(session) = self.ctx.session(&id).await {
                supply.asked.push(id.clone());
                let capabilities = session.capabilities();
                self.ctx.pool.release(&id, session);
                let bundles = capabilities.bundles.then_some(FileMovement::Bundles);
                let movement = bundles.or(capabilities.small_files);
                let is_usable =
                    |way: &FileMovement| may_bundle || matches!(way, FileMovement::Requests { .. });
                if let Some(movement) = movement.filter(is_usable) {
                    let server = SmallFileServer { id, movement };
                    if server.takes_bundles() {
                        supply.rtt = supply.rtt.max(capabilities.rtt);
                    }
                    supply.servers.push(server);
                }
            }
        }
    }
}
