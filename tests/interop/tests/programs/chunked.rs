//! `longhaul cp -p mi`, `mi+` and `aimd` with real servers: transfers in chunks by ERET and ESTO.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::copy;
use interop::longhaul::rows::{self, ServerUnderTest, path_argument};
use interop::longhaul::serve::ServeCommand;
use interop::matrix::{self, TestStore};
use interop::peer::globus_gridftp_server as globus;
use interop::require;
use interop::test_files;
use serde_json::Value;

const MODES: [&str; 3] = ["mi", "mi+", "aimd"];
/// Parameters with short chunks, so that test files take several chunks on any machine.
const SHORT: &str = "n0=2,delta=100ms,most=8";

fn options(mode: &str) -> [&str; 4] {
    ["-p", mode, "--autopar", SHORT]
}

/// Number of streams of each chunk, from the trace.
fn chunks(trace: &Path) -> Result<Vec<u64>> {
    let lines = std::fs::read_to_string(trace)?;
    let mut streams = Vec::new();
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).context("a trace line")?;
        let change = line["change"].as_str().unwrap_or_default();
        if let Some(number) = change.strip_prefix("streams ") {
            ensure!(
                line["reason"].as_str().is_some_and(|r| !r.is_empty()),
                "{line}"
            );
            streams.push(number.parse()?);
        }
    }
    Ok(streams)
}

/// A cell that copies a large file up and down: complete, verified by checksum, in several chunks, with at
/// most 8 streams.
fn large(cells: &mut MatrixRow, target: &ServerUnderTest<'_>, mode: &str) {
    let source = test_files::shared(test_files::LARGE);
    cells.check(format!("-p {mode}: a large file up and down"), || {
        let source = source?;
        let trace = target.store.local();
        let up = target.store.upload();
        let down = target.store.local();
        for (from, to) in [
            (path_argument(&source), target.url(&up)),
            (target.url(&up), path_argument(&down)),
        ] {
            let trace_at = path_argument(&trace);
            // Slow enough for several chunks.
            let more = ["--limit-rate", "200M", "--trace", &trace_at, &from, &to];
            let summary = copy::cp(&[&options(mode)[..], &more].concat())?;
            ensure!(summary.bytes == test_files::LARGE, "{summary:?}");
            ensure!(
                !["none", "size"].contains(&summary.verified.as_str()),
                "{summary:?}"
            );
            ensure!((1..=8).contains(&summary.streams), "{summary:?}");
            let chunks = chunks(&trace)?;
            ensure!(
                chunks.len() >= 3 && chunks[0] == 2,
                "chunks of {chunks:?} streams"
            );
            ensure!(chunks.iter().all(|n| (1..=8).contains(n)), "{chunks:?}");
        }
        test_files::ensure_same(&source, &target.store.path(&up))?;
        test_files::ensure_same(&source, &down)
    });
}

fn all(name: &str, target: &ServerUnderTest<'_>) {
    let mut cells = MatrixRow::new(format!("longhaul cp in chunks, {name}"));
    for mode in MODES {
        large(&mut cells, target, mode);
    }
    for mode in MODES {
        rows::get_and_put(&mut cells, target, &options(mode), &test_files::SMALL);
    }
    rows::parts(&mut cells, target, &options("mi"));
    rows::resume_after_kill(&mut cells, target, &options("mi"));
    rows::get_and_put(
        &mut cells,
        target,
        &[
            "-p",
            "mi",
            "--autopar",
            "delta=100ms,rtt=between",
            "--buffer",
            "64Ki",
        ],
        &[test_files::LARGE],
    );
    cells.finish();
}

#[test]
fn chunked_modes_work_with_globus() {
    require!(globus::find());
    let store = TestStore::new().unwrap();
    let server = globus::start(&store).unwrap();
    all(
        "globus-gridftp-server",
        &ServerUnderTest::new(&store, &server),
    );
}

#[test]
fn chunked_modes_work_with_longhaul() {
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    all("longhaul", &ServerUnderTest::new(&store, &server));
}

/// Third-party transfers in chunks, where the client knows the socket buffers of neither server.
#[test]
fn chunked_modes_work_between_two_servers() {
    require!(globus::find());
    let (here, there) = (TestStore::new().unwrap(), TestStore::new().unwrap());
    let ours = ServeCommand::anonymous(here.root()).start().unwrap();
    let globus = globus::start(&there).unwrap();
    let mut cells = MatrixRow::new("chunks between servers");
    for mode in MODES {
        matrix::third_party(
            &mut cells,
            &there,
            &test_files::SIZES,
            |source, destination| {
                let (from, to) = (ours.url(source), globus.url(destination));
                copy::cp(&[&options(mode)[..], &[&from, &to]].concat()).map(drop)
            },
        );
        matrix::third_party(
            &mut cells,
            &here,
            &test_files::SIZES,
            |source, destination| {
                let (from, to) = (globus.url(source), ours.url(destination));
                copy::cp(&[&options(mode)[..], &[&from, &to]].concat()).map(drop)
            },
        );
    }
    cells.finish();
}
