//! Standard input and output as source and destination (`-`). The bytes are transferred in order over one
//! stream, whatever number of streams was requested.

use std::process::Command;

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::binary::longhaul;
use interop::longhaul::copy;
use interop::longhaul::serve::{LonghaulServer, ServeCommand};
use interop::matrix::TestStore;
use interop::peer::{globus_gridftp_server as globus, vsftpd};
use interop::require;
use interop::run::{self, LIMIT};

/// Sizes, bytes: empty, one byte, one and four blocks of 64 KiB, and many blocks with a part of one.
const SIZES: [usize; 5] = [0, 1, 65_536, 262_144, 5_000_001];
const ROWS: [&[&str]; 4] = [
    &["-p", "1"],
    &["-p", "4"],
    &["--mode", "s"],
    &["--mode", "e"],
];

/// Test data that depends on the offset.
fn content(size: usize) -> Vec<u8> {
    (0..size)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16)).to_le_bytes()[0])
        .collect()
}

/// `cp` to standard output, which must contain only the data.
fn to_stdout(options: &[&str], url: &str) -> Result<Command> {
    let mut command = longhaul()?;
    command.arg("cp").args(options).args([url, "-"]);
    Ok(command)
}

fn both_ways(
    cells: &mut MatrixRow,
    store: &TestStore,
    options: &[&str],
    url: &dyn Fn(&str) -> String,
) {
    let row = options.join(" ");
    for size in SIZES {
        let bytes = content(size);
        cells.check(format!("put {row}, {size} bytes"), || {
            let served = store.upload();
            let to = url(&served);
            let arguments = [options, &["-", &to]].concat();
            let mut command = copy::command(&arguments)?;
            let finished = run::run_with_input(&mut command, &bytes, LIMIT)?.expect_success()?;
            let summary = copy::summary(&finished)?;
            ensure!(summary.bytes == size as u64, "{summary:?}");
            ensure!(
                summary.streams <= 1,
                "a pipe cannot be divided: {summary:?}"
            );
            let stored = std::fs::read(store.path(&served))?;
            ensure!(stored == bytes, "{} bytes were stored", stored.len());
            Ok(std::fs::remove_file(store.path(&served))?)
        });
        cells.check(format!("get {row}, {size} bytes"), || {
            let source = store.path("src/piped");
            std::fs::write(&source, &bytes)?;
            let mut command = to_stdout(options, &url("src/piped"))?;
            let finished = run::run(&mut command)?.expect_success()?;
            let came = finished.stdout.len();
            ensure!(finished.stdout == bytes, "{came} bytes came, or others");
            Ok(())
        });
    }
}

fn all(name: &str, store: &TestStore, url: &dyn Fn(&str) -> String) {
    let mut cells = MatrixRow::new(format!("pipes, {name}"));
    for options in ROWS {
        both_ways(&mut cells, store, options, url);
    }
    cells.finish();
}

fn longhaul_server() -> (TestStore, LonghaulServer) {
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    (store, server)
}

#[test]
fn pipes_work_with_longhaul() {
    let (store, server) = longhaul_server();
    all("longhaul", &store, &|served| server.url(served));
}

#[test]
fn pipes_work_with_globus() {
    require!(globus::find());
    let store = TestStore::new().unwrap();
    let server = globus::start(&store).unwrap();
    all("globus-gridftp-server", &store, &|served| {
        server.url(served)
    });
}

#[test]
fn pipes_work_with_vsftpd() {
    require!(vsftpd::find());
    let store = TestStore::new().unwrap();
    let server = vsftpd::start(&store).unwrap();
    let mut cells = MatrixRow::new("pipes, vsftpd");
    both_ways(&mut cells, &store, &["-p", "4"], &|served| {
        server.url(served)
    });
    cells.finish();
}

#[test]
fn a_failed_copy_writes_nothing_to_standard_output() {
    let (_store, server) = longhaul_server();
    let mut command = to_stdout(&[], &server.url("src/missing")).unwrap();
    let finished = run::run(&mut command).unwrap().expect_code(4).unwrap();
    assert_eq!(finished.stdout_text(), "");
    assert!(!finished.stderr_text().is_empty());
}
