//! Limits that hold for all data nodes of a transfer together: rates and quotas.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::binary::longhaul;
use interop::longhaul::copy::{self, cp};
use interop::longhaul::rows::path_argument;
use interop::longhaul::serve::ServeCommand;
use interop::matrix::TestStore;
use interop::peer::globus_url_copy::{GlobusUrlCopy, file_url};
use interop::pki::PeerPki;
use interop::require;
use interop::run;
use interop::test_files;

use super::{LARGE, StripedServer, parts};

#[test]
fn a_limit_of_the_rate_holds_for_all_data_nodes_together() {
    let pki = require!(PeerPki::find());
    let mut cells = MatrixRow::new("longhaul cp, striped longhaul with a limit of the rate");
    let file = test_files::shared(LARGE).unwrap();
    for direction in ["get", "put"] {
        cells.check(direction, || {
            let store = TestStore::new()?;
            let limited = |front: ServeCommand| front.option("--limit-rate", "200M");
            let server = StripedServer::start_with(store.root(), &pki, 3, limited)?;
            std::fs::copy(&file, store.path("served"))?;
            let local = store.local();
            let (from, to, stored) = match direction {
                "get" => (server.front.url("served"), path_argument(&local), local),
                _ => (
                    path_argument(&file),
                    server.front.url("stored"),
                    store.path("stored"),
                ),
            };
            let begin = Instant::now();
            server.explain(cp(&["-p", "2", "--verify", "none", &from, &to]))?;
            let taken = begin.elapsed();
            test_files::ensure_same(&file, &stored)?;
            ensure!(
                parts(&server.nodes) == 3,
                "not all nodes have moved something"
            );
            // Four seconds at this rate, less the bursts.
            ensure!(taken >= Duration::from_millis(3200), "it took {taken:?}");
            Ok(())
        });
    }
    cells.finish();
}

#[test]
fn a_quota_holds_for_all_data_nodes_together() {
    let pki = require!(PeerPki::find());
    let mut cells = MatrixRow::new("longhaul cp, striped longhaul with a quota");
    cells.check("puts until it is reached", || fill_quota(&pki));
    cells.finish();
}

fn fill_quota(pki: &PeerPki) -> Result<()> {
    let store = TestStore::new()?;
    // The tests' own files are below the root, too.
    let bound = move |front: ServeCommand| front.option("--quota", "350M");
    let server = StripedServer::start_with(store.root(), pki, 2, bound)?;
    let file = test_files::shared(LARGE)?;
    let put = |name: &str| {
        let (from, to) = (path_argument(&file), server.front.url(name));
        copy::run(&["-p", "2", "--retries", "0", &from, &to])
    };
    let mut stored = 0;
    let refused = loop {
        let finished = put(&format!("stored{stored}"))?;
        if finished.code != Some(0) {
            break finished.expect_code(7)?;
        }
        test_files::ensure_same(&file, &store.path(&format!("stored{stored}")))?;
        stored += 1;
        ensure!(stored <= 3, "nothing is refused");
    };
    ensure!(stored >= 1, "nothing is stored: {refused}");
    ensure!(
        parts(&server.nodes) == 2,
        "not all nodes have stored something"
    );
    let said = copy::failure_message(&refused).unwrap_or_default();
    ensure!(said.contains("quota"), "{refused}");
    // Room for one more.
    let mut remove = longhaul()?;
    remove.args(["rm", &server.front.url("stored0")]);
    run::run(&mut remove)?.expect_success()?;
    server.explain(put("again")?.expect_success())?;
    test_files::ensure_same(&file, &store.path("again"))
}

#[test]
fn a_store_without_a_size_ends_where_the_quota_does() {
    let client = require!(GlobusUrlCopy::find());
    let pki = require!(PeerPki::find());
    let mut cells = MatrixRow::new("globus-url-copy from a pipe, striped longhaul with a quota");
    for (quota, is_enough) in [("350M", true), ("180M", false)] {
        cells.check(quota, || {
            let store = TestStore::new()?;
            let bound = |front: ServeCommand| front.option("--quota", quota);
            let server = StripedServer::start_with(store.root(), &pki, 2, bound)?;
            let (pipe, file) = (store.local(), test_files::shared(LARGE)?);
            run::run(Command::new("mkfifo").arg(&pipe))?.expect_success()?;
            let copied = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let to = std::fs::File::options().write(true).open(&pipe);
                    let from = std::fs::File::open(&file);
                    // It breaks where the quota ends.
                    if let (Ok(mut from), Ok(mut to)) = (from, to) {
                        let _ = std::io::copy(&mut from, &mut to);
                    }
                });
                client.copy(&["-stripe"], &file_url(&pipe), &server.front.url("stored"))
            });
            let stored = store.path("stored");
            match (copied, is_enough) {
                (Ok(_), true) => test_files::ensure_same(&file, &stored),
                (Err(error), false) => {
                    ensure!(format!("{error:#}").contains("quota"), "{error:#}");
                    ensure!(!stored.exists(), "a part of the file is left");
                    Ok(())
                }
                (copied, _) => server
                    .explain(copied.map(drop))
                    .and_then(|()| anyhow::bail!("more than the quota is stored")),
            }
        });
    }
    cells.finish();
}
