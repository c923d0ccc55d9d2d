//! Carries out a plan: several workers take files, and bundles of files, from one queue.

use std::sync::{Arc, Mutex};

use super::bundle::{self, BatchWork, SmallFileServer};
use super::plan::{self, CopyPlan, PlannedFile};
use super::totals::BatchTotals;
use super::{BatchContext, FileOutcome, file, lock, progress, workers};
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
    make_links(ctx, plan.links, totals).await;
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
            lock(totals).file_done(bytes, &verified, measured.map(|m| *m));
            report_finished(ctx, item, bytes, verified);
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
    for (index, item) in files.into_iter().enumerate() {
        if moved.failed.contains(&index) {
            left.push(item);
            continue;
        }
        let bytes = item.facts.size.unwrap_or(0);
        others = others.saturating_sub(bytes);
        lock(totals).file_done(bytes, &moved.verified, measured.take());
        report_finished(ctx, &item, bytes, moved.verified.clone());
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

fn report_finished(ctx: &BatchContext, item: &PlannedFile, bytes: u64, verified: String) {
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
