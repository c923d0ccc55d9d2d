//! Unfinished files of an earlier run, beside files that have now come in a bundle or a series: such files are not resumed.

use std::sync::Arc;

use data::store::durability::SyncPolicy;

use crate::batch::BatchContext;
use crate::local::journal;
use crate::local::local_name::LocalName;
use crate::local::lock_file::remove_if_same;
use crate::local::partial::{WriteTarget, lock_remote_destination, partial_path, upload_journal};
use crate::plan::PlannedFile;
use ftp::location::Location;

/// Removes the partial files and journals of files that are in place. One that another copy writes stays. Nothing fails:
/// the names of leftovers show what they are.
/// `continues`: there was an earlier run.
pub(crate) async fn remove(ctx: &BatchContext, continues: bool, files: &[&PlannedFile]) {
    if !(continues || ctx.options.file.resume) {
        return;
    }
    let mut here = Vec::new();
    for file in files {
        match &file.destination {
            Location::Local(path) => here.push(path.clone()),
            Location::Remote { .. } => remove_at_server(ctx, file).await,
            Location::StandardStreams => {}
        }
    }
    let trees = Arc::clone(&ctx.trees);
    let removing = move || {
        let names = here.iter().filter_map(|path| trees.name(path).ok());
        names.for_each(|name| remove_here(&name));
    };
    let _ = tokio::task::spawn_blocking(removing).await;
}

fn remove_here(destination: &LocalName) {
    let Ok(WriteTarget::File(partial)) = WriteTarget::for_name(destination) else {
        return;
    };
    if !partial.name.is_taken() && !partial.journal.is_taken() {
        return;
    }
    if let Ok(locked) = partial.lock(SyncPolicy::None) {
        journal::remove_file_and_temporary(&partial.journal);
        remove_if_same(&partial.name, locked.sink.file());
    }
}

/// The journal on this machine says that there may be a partial file at the server.
async fn remove_at_server(ctx: &BatchContext, file: &PlannedFile) {
    let source = ctx.place_key(&file.source);
    let destination = ctx.place_key(&file.destination);
    let journal = upload_journal(&source, &destination);
    let Some(journal) = journal.filter(LocalName::is_taken) else {
        return;
    };
    let Ok(_lock) = lock_remote_destination(&destination, &file.destination.display()) else {
        return;
    };
    let id = file.destination.storage_id();
    if let Ok(mut session) = ctx.pool.acquire(&id).await {
        let removed = session.remove(&partial_path(file.destination.path())).await;
        ctx.return_session(&id, session, &removed);
        journal::remove_file_and_temporary(&journal);
    }
}
