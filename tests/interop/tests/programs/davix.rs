//! davix and longhaul with the same HTTP servers: third-party copies by COPY, gets, puts and listings.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use interop::cells::MatrixRow;
use interop::http_relay::HttpRelay;
use interop::longhaul::binary::longhaul;
use interop::longhaul::copy;
use interop::longhaul::rows::path_argument;
use interop::matrix::{self, TestStore};
use interop::peer::davix::Davix;
use interop::peer::{PeerServer, apache, xrootd};
use interop::pki::PeerPki;
use interop::require;
use interop::run;
use interop::test_files;
use serde_json::Value;

/// Sizes of files that XRootD copies: it fetches no empty one.
const SIZES: &[u64] = test_files::SIZES.split_at(1).1;

/// Bytes per second of a source that is slow enough for performance markers, of which XRootD sends one every 5 s.
const SLOW: u64 = 12_000_000;
/// Bytes per second of a server that nothing slows down.
const FAST: u64 = 10_000_000_000;

fn http(server: &PeerServer, served: &str) -> String {
    format!("http://{}/{served}", server.address())
}

/// Has davix ask one of two servers for a copy: the destination for a pull, the source for a push.
fn davix_copies(davix: Davix, mode: &str, from: &str, to: &str) -> Result<()> {
    let words = ["--copy-mode", mode, "-H", "Credential: none", from, to];
    davix.run("cp", &words).map(drop)
}

#[test]
fn davix_and_longhaul_have_the_same_servers_copy() {
    let davix = require!(Davix::find());
    require!(xrootd::find());
    let pki = require!(PeerPki::find());
    let stores = [(); 2].map(|()| TestStore::new().unwrap());
    let [one, two] = [&stores[0], &stores[1]].map(|store| xrootd::start(store, &pki).unwrap());
    for mode in ["pull", "push"] {
        let mut cells = MatrixRow::new(format!("davix-cp {mode}, xrootd to xrootd"));
        matrix::third_party(&mut cells, &stores[1], SIZES, |source, to| {
            davix_copies(davix, mode, &http(&one, source), &http(&two, to))
        });
        cells.finish();
    }
    let mut cells = MatrixRow::new("longhaul, the same servers");
    matrix::third_party(&mut cells, &stores[1], SIZES, |source, to| {
        let done = copy::run(&[one.url(source), two.url(to)])?.expect_success()?;
        ensure!(copy::warnings(&done).is_empty(), "{done}");
        Ok(())
    });
    cells.finish();
}

#[test]
fn davix_and_longhaul_read_what_the_other_has_stored() {
    let davix = require!(Davix::find());
    require!(xrootd::find());
    require!(apache::find());
    let pki = require!(PeerPki::find());
    let stores = [(); 2].map(|()| TestStore::new().unwrap());
    let servers = [
        ("xrootd", xrootd::start(&stores[0], &pki).unwrap()),
        ("apache", apache::start(&stores[1]).unwrap().scheme("dav")),
    ];
    for ((name, server), store) in servers.iter().zip(&stores) {
        let mut cells = MatrixRow::new(format!("davix and longhaul at {name}"));
        matrix::put(&mut cells, store, SIZES, |local, served| {
            // Another name for each program, and both names get the same content.
            let (first, second) = (store.upload(), store.local());
            copy::cp(&[path_argument(local), server.url(&first)])?;
            let second = path_argument(&second);
            davix.run("get", &[&http(server, &first), &second])?;
            davix.run("put", &[&second, &http(server, served)])?;
            let back = store.local();
            copy::cp(&[server.url(served), path_argument(&back)])?;
            matrix::check_and_remove(local, &back)
        });
        cells.check("ls", || {
            let url = server.url("src/");
            let theirs = davix.run("ls", &[http(server, "src/")])?;
            let ours = run::run(longhaul()?.args(["ls", &url]))?.expect_success()?;
            let names = |text: &str| -> BTreeSet<String> {
                let names = text
                    .lines()
                    .filter_map(|line| line.trim_end_matches('/').rsplit('/').next());
                names.map(str::to_owned).collect()
            };
            let (theirs, ours) = (theirs.stdout_text(), ours.stdout_text());
            ensure!(names(&ours).len() == test_files::sizes().count(), "{ours}");
            ensure!(names(&theirs) == names(&ours), "{theirs}\n{ours}");
            Ok(())
        });
        cells.finish();
    }
}

/// Bytes that the performance markers of a report tell of.
fn markers(report: &str) -> Result<Vec<u64>> {
    let fields = report
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Stripe Bytes Transferred:"));
    fields
        .map(|bytes| bytes.trim().parse().context(bytes.to_owned()))
        .collect()
}

/// The events of progress in the output of `cp --json`.
fn progress(output: &str) -> Vec<u64> {
    let events = output
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let progress = events.filter(|event: &Value| event["event"] == "progress");
    progress
        .filter_map(|event| event["bytes"].as_u64())
        .collect()
}

/// Both see the markers of the server that fetches, and longhaul shows them.
#[test]
fn davix_and_longhaul_get_the_same_performance_markers() {
    let davix = require!(Davix::find());
    require!(xrootd::find());
    let pki = require!(PeerPki::find());
    let stores = [(); 2].map(|()| TestStore::new().unwrap());
    let [one, two] = [&stores[0], &stores[1]].map(|store| xrootd::start(store, &pki).unwrap());
    let source = HttpRelay::start(one.address(), SLOW).unwrap();
    let name = test_files::name(test_files::LARGE);
    let from = format!("http://{}/src/{name}", source.address());
    let mut cells = MatrixRow::new("performance markers, xrootd to xrootd");
    let check = |report: &str| -> Result<Vec<u64>> {
        let bytes = markers(report)?;
        ensure!(report.contains("success:"), "{report}");
        ensure!(bytes.iter().any(|bytes| *bytes > 0), "{report}");
        ensure!(
            bytes.is_sorted() && bytes.iter().all(|bytes| *bytes <= test_files::LARGE),
            "{report}"
        );
        Ok(bytes)
    };
    cells.check("davix-cp", || {
        let active = HttpRelay::start(two.address(), FAST)?;
        let to = format!("http://{}/up/davix", active.address());
        davix_copies(davix, "pull", &from, &to)?;
        check(&active.responses())?;
        matrix::check_and_remove(
            &stores[0].path(&format!("src/{name}")),
            &stores[1].path("up/davix"),
        )
    });
    cells.check("longhaul", || {
        let active = HttpRelay::start(two.address(), FAST)?;
        let to = format!("http://{}/up/longhaul", active.address());
        let done = copy::run(&["--retries", "0", &from, &to])?.expect_success()?;
        ensure!(copy::warnings(&done).is_empty(), "{done}");
        let shown = progress(&done.stdout_text());
        for bytes in check(&active.responses())? {
            ensure!(
                bytes == 0 || shown.contains(&bytes),
                "{bytes} is not in {shown:?}"
            );
        }
        matrix::check_and_remove(
            &stores[0].path(&format!("src/{name}")),
            &stores[1].path("up/longhaul"),
        )
    });
    cells.finish();
}
