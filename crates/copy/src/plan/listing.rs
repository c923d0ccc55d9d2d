//! Lists sources into a plan: trees by several sessions at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use proto::client::CommandLead;
use proto::path::MAX_NAME;
use tokio::task::JoinSet;
use tune::sessions::{LONG_RTT, MAX_SESSIONS};

use super::conflicts::StreamedNames;
use super::copy_plan::CopyPlan;
use super::entries::{NewEntry, PlanTop, PlannedFile};
use super::expand::FoundSource;
use super::hard_links::HardLinkNames;
use super::outline::{PlanOutline, PlannedDestination, UNFINISHED};
use super::paths::{
    entry_path, is_same_file, join_location, last_component, trim_trailing_slashes,
};
use super::reader::PlanReader;
use super::selecting::SelectedEntries;
use crate::batch::BatchContext;
use crate::batch::retry::RetryBudget;
use crate::batch::totals::{BatchTotals, report_failure};
use crate::events::CopyEvent;
use crate::local::partial::is_unfinished;
use crate::options::PreservedTimes;
use crate::options::SymlinkPolicy;
use crate::plan::batch_journal::BatchJournal;
use crate::storage::entry_names::{check_sendable, join_path};
use crate::tree::{TreeEntry, TreeVisitor, TreeWalk};
use ftp::answers::SourceFacts;
use ftp::failure::Sentence;
use ftp::location::{Location, StorageId};
use ftp::{Failure, FailureKind};

/// Most sessions that list one tree at a time.
const MAX_LISTERS: usize = 8;

/// Adds what sources hold to a plan, and reports what cannot be copied.
pub(crate) struct PlanFiller {
    ctx: Arc<BatchContext>,
    plan: Arc<CopyPlan>,
    totals: Arc<Mutex<BatchTotals>>,
    /// The files that were added, where they are copied while others are still listed.
    streamed: Option<Mutex<StreamedNames>>,
    /// A later run has to list again.
    incomplete: AtomicBool,
    /// Files of archives, of which a copy may be restored or not.
    archived: CopyPlan,
    /// The size that was reported last.
    announced: Mutex<Option<(u64, u64)>>,
}

impl PlanFiller {
    /// A filler of `plan`. `streams`: entries are copied before all are known, so each is compared with those before it.
    pub(crate) fn new(
        ctx: &Arc<BatchContext>,
        plan: &Arc<CopyPlan>,
        totals: &Arc<Mutex<BatchTotals>>,
        streams: bool,
    ) -> Self {
        Self {
            ctx: Arc::clone(ctx),
            plan: Arc::clone(plan),
            totals: Arc::clone(totals),
            streamed: streams.then(|| Mutex::new(StreamedNames::of(&ctx.trees))),
            incomplete: AtomicBool::new(false),
            archived: CopyPlan::in_journal(BatchJournal::unnamed(), &[]),
            announced: Mutex::default(),
        }
    }

    /// See [`BatchContext::name_one_of_many`].
    pub(crate) fn name_one_of_many(&self, at: &Location) {
        self.ctx.name_one_of_many(at);
    }

    /// Begins a source and its destination.
    pub(crate) fn add_top(&self, source: &Location, destination: &Location) -> PlanTop {
        self.plan.add_top(source, destination)
    }

    /// Adds one file or link of a tree, or a directory. A file of an archive is added at the end, if it can be read then.
    ///
    /// # Errors
    /// It cannot be copied to its destination.
    pub(crate) fn add(
        &self,
        top: &PlanTop,
        directory: &[u8],
        name: &[u8],
        entry: NewEntry,
    ) -> Result<(), Failure> {
        let relative = entry_path(directory, name);
        let at = |top: &Location| join_location(top, &relative);
        let destination = at(&top.destination);
        if let NewEntry::File(facts) = &entry
            && facts.is_archived
            && !self.plan.has_done(top, directory, name, &entry)
        {
            let alone = self.add_top(&at(&top.source), &destination);
            return match self.plan.has_done(&alone, b"", b"", &entry) {
                true => self.add(&alone, b"", b"", entry),
                false => self.archived.add(&alone, b"", b"", entry).map(drop),
            };
        }
        if let NewEntry::File(_) | NewEntry::HardLink { .. } = entry {
            check_file(&at(&top.source), &destination)?;
        }
        if let Some(streamed) = &self.streamed {
            let mut streamed = streamed.lock();
            match entry {
                NewEntry::Directory(_) => streamed.add_directory(&destination)?,
                NewEntry::File(_) | NewEntry::HardLink { .. } => {
                    streamed.add_file(&at(&top.source), &destination)?;
                }
                NewEntry::Link(_) => streamed.add_link(&at(&top.source), &destination)?,
                NewEntry::ExistingDirectory(_) | NewEntry::Unlisted { .. } => {}
            }
        }
        if self.plan.add(top, directory, name, entry)? {
            self.announce();
        }
        Ok(())
    }

    /// Reports a source that cannot be copied. It stays in the plan as not done.
    pub(crate) fn fail(&self, top: &PlanTop, place: (&[u8], &[u8]), failure: Failure) {
        self.fail_as(top, place.0, place.1, failure, false);
    }

    /// Reports a directory that cannot be listed. It stays in the plan as not done.
    pub(crate) fn fail_directory(&self, top: &PlanTop, place: (&[u8], &[u8]), failure: Failure) {
        self.fail_as(top, place.0, place.1, failure, true);
    }

    fn fail_as(
        &self,
        top: &PlanTop,
        directory: &[u8],
        name: &[u8],
        failure: Failure,
        is_directory: bool,
    ) {
        let path = join_location(&top.source, &entry_path(directory, name));
        let place = path.display();
        self.incomplete.store(true, Ordering::Relaxed);
        let entry = NewEntry::Unlisted { is_directory };
        // A path that is too long is reported all the same.
        let _ = self.plan.add(top, directory, name, entry);
        self.report(place, failure);
    }

    /// Reports a failure.
    pub(crate) fn report(&self, source: String, failure: Failure) {
        self.incomplete.store(true, Ordering::Relaxed);
        report_failure(&self.ctx.observer, &self.totals, source, failure);
    }

    /// Reports a source that is left out.
    pub(crate) fn skip(&self, source: &Location, reason: &str) {
        self.totals.lock().file_skipped();
        self.ctx.observer.on_event(CopyEvent::Skipped {
            source: source.display(),
            reason: reason.to_owned(),
        });
    }

    /// Reports how large the plan is, if it has grown.
    pub(crate) fn announce(&self) {
        let (files, bytes) = self.plan.size();
        let size = Some((files, bytes));
        if std::mem::replace(&mut *self.announced.lock(), size) == size {
            return;
        }
        let event = CopyEvent::Planned { files, bytes };
        self.ctx.observer.on_event(event);
    }

    /// The listing is over. Where entries were not compared when they were added, [`PlanFiller::accept`] follows the check.
    pub(crate) async fn end(&self) {
        if let Err(failure) = self.add_archived().await {
            self.report(String::new(), failure);
        }
        self.plan.end(self.streamed.is_some() && self.is_complete());
        self.announce();
        if self.streamed.is_none() {
            self.ctx.observer.on_event(CopyEvent::Listed);
        }
    }

    /// Examines the files of archives, many at a time. Adds those that can be read, and reports the others.
    ///
    /// # Errors
    /// `Local`: some cannot be examined.
    async fn add_archived(&self) -> Result<(), Failure> {
        self.archived.end(true);
        let most = self.ctx.options.concurrency.unwrap_or(MAX_SESSIONS).max(1);
        let mut reader = PlanReader::of(&self.archived);
        let mut examined = JoinSet::new();
        loop {
            let next = match examined.len() < most {
                true => reader.next_file(&self.archived)?,
                false => None,
            };
            if let Some(file) = next {
                let ctx = Arc::clone(&self.ctx);
                examined.spawn(async move { (check_readable(&ctx, &file).await, file) });
                continue;
            }
            let Some(ended) = examined.join_next().await else {
                return Ok(());
            };
            let (readable, file) = ended.map_err(|error| Failure::local(error.to_string()))?;
            let top = self.add_top(&file.source, &file.destination);
            let facts = SourceFacts {
                is_archived: false,
                ..file.facts
            };
            let added = readable.and_then(|()| self.add(&top, b"", b"", NewEntry::File(facts)));
            if let Err(failure) = added {
                self.fail(&top, (b"", b""), failure);
            }
        }
    }

    /// The plan that was listed has no conflicts.
    pub(crate) fn accept(&self) {
        if self.is_complete() {
            self.plan.note_complete();
        }
    }

    fn is_complete(&self) -> bool {
        !self.incomplete.load(Ordering::Relaxed)
    }
}

/// Refuses a file of an archive that is not restored, unless its copy is there and stays.
async fn check_readable(ctx: &BatchContext, file: &PlannedFile) -> Result<(), Failure> {
    let (from, to) = (&file.source, &file.destination);
    if ctx.options.file.keep_existing && ctx.stat(&to.storage_id(), to.path()).await.is_ok() {
        return Ok(());
    }
    let read = ctx.stat_to_read(&from.storage_id(), from.path()).await;
    read.map(drop).map_err(|failure| match failure.kind() {
        FailureKind::Refused => failure.remark("--exclude leaves it out"),
        _ => failure,
    })
}

/// Refuses a file that cannot be copied to its destination.
fn check_file(source: &Location, destination: &Location) -> Result<(), Failure> {
    if is_same_file(source, destination) {
        let both = Sentence::about(source.display())
            .words(" and ")
            .name(destination.display());
        let reason = both.words(" are the same file");
        return Err(Failure::usage(reason));
    }
    if let Location::Remote { path, server } = destination
        && !server.scheme.takes_any_name()
    {
        check_sendable(path)?;
        // Local file systems report a name that is too long when the partial file is opened.
        check_name_length(destination)?;
    }
    Ok(())
}

/// Refuses a name that is too long for file systems before its bytes are moved under a shorter,
/// hashed name. The limit is in characters, because some servers' file systems do not count bytes.
fn check_name_length(destination: &Location) -> Result<(), Failure> {
    let name = last_component(destination).unwrap_or_default();
    if String::from_utf8_lossy(&name).chars().count() <= MAX_NAME {
        return Ok(());
    }
    let reason =
        format_args!("the name is longer than the {MAX_NAME} characters that file systems allow");
    Err(Failure::about(
        FailureKind::Usage,
        destination.display(),
        reason,
    ))
}

/// Lists the sources of an outline into the plan, up to its end.
pub(crate) async fn list_sources(filler: &Arc<PlanFiller>, outline: PlanOutline) {
    let plan = &filler.plan;
    for (source, failure) in outline.failed {
        let target = outline.destination.of_file(&source);
        match target {
            Ok(target) => filler.fail(&plan.add_top(&source, &target), (b"", b""), failure),
            Err(_) => filler.report(source.display(), failure),
        }
    }
    for (source, reason) in outline.skipped {
        filler.skip(&source, reason);
    }
    let mut made = false;
    for found in outline.found {
        if let (PlannedDestination::Directory { at, make: true }, false) =
            (&outline.destination, made)
        {
            made = true;
            let top = plan.add_top(&found.location, at);
            let added = filler.add(&top, b"", b"", NewEntry::Directory(SourceFacts::default()));
            if let Err(failure) = added {
                filler.report(at.display(), failure);
            }
        }
        let place = found.location.display();
        if let Err(failure) = list_source(filler, found, &outline.destination).await {
            filler.report(place, failure);
        }
        filler.announce();
    }
    filler.end().await;
}

/// Adds one source: a file, or with `-r` a tree.
pub(crate) async fn list_source(
    filler: &Arc<PlanFiller>,
    found: FoundSource,
    destination: &PlannedDestination,
) -> Result<(), Failure> {
    let (ctx, plan) = (&filler.ctx, &filler.plan);
    destination.name(ctx);
    if !found.is_directory {
        ctx.name_one_of_many(&found.location);
        let target = destination.of_file(&found.location)?;
        let top = plan.add_top(&found.location, &target);
        return filler.add(&top, b"", b"", NewEntry::File(found.facts));
    }
    if !ctx.options.tree.recursive {
        let reason = Sentence::about(found.location.display())
            .words(" is a directory: use -r to copy it with its content");
        return Err(Failure::usage(reason));
    }
    let top = plan.add_top(&found.location, &destination.of_tree(&found.location)?);
    ctx.name_tree(&top.source, &top.destination);
    filler.add(&top, b"", b"", NewEntry::Directory(found.facts))?;
    let visitor = Arc::new(TreeFiller {
        filler: Arc::clone(filler),
        top: top.clone(),
        selected: Mutex::new(SelectedEntries::of(&ctx.options.tree)),
        names: HardLinkNames::of(ctx, &top.source, &top.destination),
    });
    open_copying_session(filler, &top.source.storage_id()).await;
    let shared = Arc::clone(&visitor) as Arc<dyn TreeVisitor>;
    let walked = walk_tree(ctx, &found.location, ctx.options.tree.symlinks, shared).await;
    if let Err(failure) = walked {
        let is_directory = true;
        plan.add(&top, b"", b"", NewEntry::Unlisted { is_directory })?;
        return Err(failure);
    }
    let selected = visitor.selected.lock();
    for (path, failure) in selected.missing() {
        filler.fail(&top, (b"", &path), failure);
    }
    if let Some((path, failure)) = selected.undecided() {
        filler.fail(&top, (b"", &path), failure);
    }
    Ok(())
}

/// Begins to open a session for the files of a server on a long path, which are copied while its tree is listed. The login
/// takes as long as the listing of some thousand files.
async fn open_copying_session(filler: &PlanFiller, id: &StorageId) {
    let ctx = &filler.ctx;
    let may_have_two = ctx.options.concurrency.is_none_or(|most| most > 1);
    if filler.streamed.is_none() || !id.is_server() || !may_have_two {
        return;
    }
    let Ok(session) = ctx.session(id).await else {
        return;
    };
    let capabilities = session.capabilities();
    ctx.pool.release(id, session);
    let is_fast = capabilities.bundles || capabilities.small_files.is_some();
    if is_fast && capabilities.rtt >= LONG_RTT {
        let (ctx, id) = (Arc::clone(ctx), id.clone());
        tokio::spawn(async move { ctx.pool.open_ahead(&id).await });
    }
}

/// Adds the entries of one tree that are selected.
struct TreeFiller {
    filler: Arc<PlanFiller>,
    top: PlanTop,
    selected: Mutex<SelectedEntries>,
    names: HardLinkNames,
}

impl TreeVisitor for TreeFiller {
    fn needs_time(&self, directory: &[u8], name: &[u8], facts: SourceFacts) -> bool {
        let selected = self.selected.lock();
        let is_kept = self.filler.ctx.options.file.preserve.times != PreservedTimes::None;
        selected.needs_time(&join_path(directory, name), facts, is_kept)
    }

    fn visit(&self, directory: &[u8], name: &[u8], entry: TreeEntry) -> Result<(), Failure> {
        let mut selected = self.selected.lock();
        let Some(directories) = selected.admit(directory, name, &entry) else {
            return Ok(());
        };
        let (filler, top) = (&self.filler, &self.top);
        // Under the lock: another lister may not add files to a directory before it is added.
        for (needed, facts) in directories {
            let added = filler.add(top, &needed, b"", NewEntry::Directory(facts));
            if let Err(failure) = added {
                filler.fail(top, (&needed, b""), failure);
            }
        }
        drop(selected);
        let source = || join_location(&top.source, &join_path(directory, name));
        let added = match entry {
            TreeEntry::Directory(facts) => {
                let path = join_path(directory, name);
                filler.add(top, &path, b"", NewEntry::Directory(facts))
            }
            TreeEntry::File(_) | TreeEntry::LinkedFile(..) | TreeEntry::Link(_)
                if is_unfinished(name) =>
            {
                filler.skip(&source(), UNFINISHED);
                Ok(())
            }
            TreeEntry::File(facts) => filler.add(top, directory, name, NewEntry::File(facts)),
            TreeEntry::LinkedFile(facts, identity) => {
                let path = join_path(directory, name);
                let entry = self.names.entry(path, facts, identity);
                filler.add(top, directory, name, entry)
            }
            TreeEntry::Link(target) => filler.add(top, directory, name, NewEntry::Link(target)),
            TreeEntry::Skipped(reason) => {
                filler.skip(&source(), &reason);
                Ok(())
            }
            TreeEntry::Failed(failure) => Err(failure),
            TreeEntry::Unlisted(failure) => {
                filler.fail_directory(top, (directory, name), failure);
                Ok(())
            }
        };
        if let Err(failure) = added {
            filler.fail(top, (directory, name), failure);
        }
        Ok(())
    }
}

/// Walks through the tree at `top`, with more sessions while there are more directories than one can list. A lost connection is
/// retried.
///
/// # Errors
/// Nothing of the top can be listed, or the storage is lost after all retries; the visitor's failure.
pub(crate) async fn walk_tree(
    ctx: &Arc<BatchContext>,
    top: &Location,
    links: SymlinkPolicy,
    visitor: Arc<dyn TreeVisitor>,
) -> Result<(), Failure> {
    let (id, path) = (top.storage_id(), trim_trailing_slashes(top.path()));
    let may_go_ahead = ctx.pool.series_lead(&id) > CommandLead::Lockstep;
    let walk = TreeWalk::new(path, links, visitor)
        .going_ahead(may_go_ahead)
        .retrying(ctx.options.retry.retries);
    let walk = Arc::new(begin_with_retries(ctx, &id, walk).await?);
    let mut most = ctx
        .options
        .concurrency
        .unwrap_or(MAX_LISTERS)
        .clamp(1, MAX_LISTERS);
    let mut helpers = JoinSet::new();
    let listing = list_with_retries(ctx, &id, &walk);
    tokio::pin!(listing);
    loop {
        tokio::select! {
            biased;
            listed = &mut listing => {
                if may_go_ahead && !walk.may_go_ahead() {
                    ctx.pool.limit_series_lead(&id, CommandLead::Lockstep);
                }
                return listed;
            }
            () = walk.wants_help(), if helpers.len() + 1 < most => {
                let (ctx, id, walk) = (Arc::clone(ctx), id.clone(), Arc::clone(&walk));
                helpers.spawn(async move { help(&ctx, &id, &walk).await });
            }
            Some(helped) = helpers.join_next(), if !helpers.is_empty() => {
                // The server lets no further session in.
                if matches!(helped, Ok(false)) {
                    most = helpers.len() + 1;
                }
            }
        }
    }
}

/// Begins a walk, over one session after the other.
async fn begin_with_retries(
    ctx: &BatchContext,
    id: &StorageId,
    mut walk: TreeWalk,
) -> Result<TreeWalk, Failure> {
    let mut request = ctx.request(id);
    loop {
        let mut session = request.session().await?;
        let begun = walk.begin(&mut *session).await;
        if request.end(session, begun).await?.is_some() {
            return Ok(walk);
        }
    }
}

/// Lists until the walk is over, over one session after the other.
async fn list_with_retries(
    ctx: &BatchContext,
    id: &StorageId,
    walk: &TreeWalk,
) -> Result<(), Failure> {
    let new_budget = || RetryBudget::new(ctx.options.retry, ctx.seed);
    let mut retries = new_budget();
    let mut progress = walk.progress();
    loop {
        let mut session = ctx.session(id).await?;
        let result = walk.run(&mut *session).await;
        let now = walk.progress();
        if now > progress {
            (retries, progress) = (new_budget(), now);
        }
        ctx.return_session(id, session, &result);
        match result {
            Ok(()) => return Ok(()),
            Err(failure) => {
                ctx.wait_for_storage(id, &mut retries, failure).await?;
            }
        }
    }
}

/// Lists over one more session. Servers may refuse it, and what it leaves is listed by others.
/// Returns whether there was a session.
async fn help(ctx: &BatchContext, id: &StorageId, walk: &TreeWalk) -> bool {
    match ctx.pool.acquire_further(id).await {
        Ok(mut session) => {
            let result = walk.run(&mut *session).await;
            ctx.return_session(id, session, &result);
            true
        }
        Err(failure) => {
            tracing::debug!(%failure, "no further session to list directories");
            false
        }
    }
}
