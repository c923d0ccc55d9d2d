//! Carries out a plan: several workers take files, and bundles of files, from one queue.

use std::sync::{Arc, Mutex};

use super::bundle::{self, BatchWork, SmallFileServer};
use super::plan::{self, CopyPlan, PlannedFile};
use super::totals::BatchTotals;
use super::{
    BatchContext, FileOutcome, TransferMeasurement, file, hard_links, lock, preserve, progress,
    sums, workers,
};
use crate::{CopyEvent, CopyFailure, CopyObserver, Exit};

/// Executes a plan.
pub(super) async fn execute(
    ctx: &Arc<BatchContext>,
    plan: CopyPlan,
    totals: &Arc<Mutex<BatchTotals>>,
) {
    for (source, failure) in plan.failed {
        report_failure(&ctx.observer, totals, source, failure);
    }
    for (source, reason) in plan.skipped {
        lock(totals).file_skipped();
        ctx.observer.on_event(CopyEvent::Skipped { source, reason });
    }
    if ctx.options.dry_run {
        for item in &plan.items {
            ctx.observer.on_event(CopyEvent::WouldCopy {
                source: item.source.display(),
                destination: item.destination.display(),
                bytes: item.facts.size,
            });
        }
        let links = plan.hard_links.iter();
        for link in links.filter(|link| !hard_links::is_in_place(link)) {
            ctx.observer.on_event(CopyEvent::WouldCopy {
                source: link.file.source.display(),
                destination: link.file.destination.display(),
                bytes: Some(0),
            });
        }
        return;
    }
    // Parents come first, and before the files that they will hold.
    for (directory, failure) in plan::make_directories(ctx, &plan.directories).await {
        report_failure(&ctx.observer, totals, directory, failure);
    }
    let servers = ask_for_bundles(ctx, &plan.items).await;
    let (ramp, limits) = workers::plan_sessions(ctx, &plan.items, &servers).await;
    let work = bundle::arrange(&ctx.options, plan.items, ramp.most(), &servers);
    let worker = {
        let (ctx, totals) = (Arc::clone(ctx), Arc::clone(totals));
        move |work| {
            let (ctx, totals) = (Arc::clone(&ctx), Arc::clone(&totals));
            async move { carry_out(&ctx, work, &totals).await }
        }
    };
    let workers = async {
        for message in workers::run(ctx, work, (ramp, limits), totals, worker).await {
            // A panic in one copy must not be mistaken for success.
            let failure = CopyFailure::new(Exit::Local, message);
            report_failure(&ctx.observer, totals, String::new(), failure);
        }
    };
    progress::report_while(ctx, workers, totals).await;
    lock(totals).set_resent(ctx.meter.resent());
    make_hard_links(ctx, plan.hard_links, totals).await;
    make_links(ctx, plan.links, totals).await;
}

/// Gives files their further names. One that a file system does not give is copied as a file of its own.
async fn make_hard_links(
    ctx: &BatchContext,
    links: Vec<plan::PlannedHardLink>,
    totals: &Mutex<BatchTotals>,
) {
    for link in links {
        let file = &link.file;
        let outcome = match hard_links::make(ctx, &link).await {
            Ok(outcome) => outcome,
            Err(failure) => {
                ctx.warn(format!("{}; copied as a file of its own", failure.message));
                copy_one(ctx, file, totals).await;
                continue;
            }
        };
        if let Err(failure) = sums::add(ctx, file).await {
            report_failure(&ctx.observer, totals, file.source.display(), failure);
        } else if outcome == hard_links::LinkOutcome::Made {
            lock(totals).file_linked();
            ctx.observer.on_event(CopyEvent::Finished {
                source: file.source.display(),
                destination: file.destination.display(),
                bytes: 0,
                verified: "hard link".to_owned(),
            });
        }
    }
}

/// Creates the links of a plan. This happens after the files are written, so that no file is
/// written through a link.
async fn make_links(
    ctx: &BatchContext,
    links: Vec<plan::PlannedLink>,
    totals: &Arc<Mutex<BatchTotals>>,
) {
    for link in links {
        let source = link.source.display();
        match plan::make_link(ctx, &link).await {
            Ok(None) => {}
            Ok(Some(reason)) => {
                lock(totals).file_skipped();
                ctx.observer.on_event(CopyEvent::Skipped { source, reason });
            }
            Err(failure) => report_failure(&ctx.observer, totals, source, failure),
        }
    }
}

/// Which servers of these files take many files at a time. One that cannot be asked counts as one that does not: the
/// copy of its files shows why.
async fn ask_for_bundles(ctx: &BatchContext, files: &[PlannedFile]) -> Vec<SmallFileServer> {
    let mut takers = Vec::new();
    for id in bundle::servers_to_ask(&ctx.options, files) {
        if let Ok(session) = ctx.session(&id).await {
            let capabilities = session.capabilities();
            ctx.pool.release(&id, session);
            if capabilities.bundles || capabilities.series {
                let bundles = capabilities.bundles;
                takers.push(SmallFileServer { id, bundles });
            }
        }
    }
    takers
}

async fn carry_out(ctx: &BatchContext, work: BatchWork, totals: &Mutex<BatchTotals>) {
    match work {
        BatchWork::File(item) => copy_one(ctx, &item, totals).await,
        BatchWork::Bundle(files) => copy_bundle(ctx, files, totals).await,
    }
}

async fn copy_one(ctx: &BatchContext, item: &PlannedFile, totals: &Mutex<BatchTotals>) {
    let source = item.source.display();
    match file::copy_file(ctx, item).await {
        Ok(FileOutcome::Done {
            bytes,
            verified,
            measured,
        }) => {
            preserve::finish_files(ctx, &[item]).await;
            report_complete(ctx, item, totals, (bytes, verified, measured.map(|m| *m))).await;
        }
        Ok(FileOutcome::Kept) => {
            lock(totals).file_kept();
            let destination = item.destination.display();
            ctx.observer.on_event(CopyEvent::Kept {
                source,
                destination,
            });
        }
        Err((bytes, failure)) => {
            lock(totals).add_bytes(bytes);
            report_failure(&ctx.observer, totals, source, failure);
        }
    }
}

/// Moves a bundle, and then the files that it could not move, one after the other.
async fn copy_bundle(ctx: &BatchContext, files: Vec<PlannedFile>, totals: &Mutex<BatchTotals>) {
    for item in &files {
        ctx.report_started(item, item.facts.size, 0);
    }
    let moved = match bundle::copy_bundle(ctx, &files).await {
        Ok(moved) => moved,
        Err((bytes, failure)) => {
            lock(totals).add_bytes(bytes);
            // After all retries: each file alone would wait for the same server again.
            let is_lost = failure.transient && failure.exit == Exit::Unreachable;
            tracing::debug!(%failure, "a bundle of files was not moved");
            for item in files {
                match is_lost {
                    true => {
                        let source = item.source.display();
                        report_failure(&ctx.observer, totals, source, failure.clone());
                    }
                    false => copy_one(ctx, &item, totals).await,
                }
            }
            return;
        }
    };
    // Measured once, for all of its files.
    let mut measured = Some(moved.measured);
    // Bytes of files that failed have moved, too.
    let mut others = moved.bytes;
    let mut left = Vec::new();
    let stored = files.iter().enumerate();
    let stored = stored.filter(|(index, _)| !moved.failed.contains(index));
    let stored: Vec<_> = stored.map(|(_, item)| item).collect();
    preserve::finish_files(ctx, &stored).await;
    for (index, item) in files.into_iter().enumerate() {
        if moved.failed.contains(&index) {
            left.push(item);
            continue;
        }
        let bytes = item.facts.size.unwrap_or(0);
        others = others.saturating_sub(bytes);
        let outcome = (bytes, moved.verified.clone(), measured.take());
        report_complete(ctx, &item, totals, outcome).await;
    }
    lock(totals).add_bytes(others);
    for item in left {
        match &moved.lost {
            Some(failure) => {
                let source = item.source.display();
                report_failure(&ctx.observer, totals, source, failure.clone());
            }
            None => copy_one(ctx, &item, totals).await,
        }
    }
}

/// Reports a file that is in place. One whose checksum is asked for and unknown has failed.
async fn report_complete(
    ctx: &BatchContext,
    item: &PlannedFile,
    totals: &Mutex<BatchTotals>,
    (bytes, verified, measured): (u64, String, Option<TransferMeasurement>),
) {
    if let Err(failure) = sums::add(ctx, item).await {
        lock(totals).add_bytes(bytes);
        report_failure(&ctx.observer, totals, item.source.display(), failure);
        return;
    }
    lock(totals).file_done(bytes, &verified, measured);
    ctx.observer.on_event(CopyEvent::Finished {
        source: item.source.display(),
        destination: item.destination.display(),
        bytes,
        verified,
    });
}

pub(super) fn report_failure(
    observer: &Arc<dyn CopyObserver>,
    totals: &Mutex<BatchTotals>,
    source: String,
    failure: CopyFailure,
) {
    lock(totals).file_failed(&failure);
    observer.on_event(CopyEvent::Failed { source, failure });
}
