//! `longhaul cp` against the plain FTP servers, which have no MODE E and no checksums.

use std::path::PathBuf;

use anyhow::Result;
use interop::cells::MatrixRow;
use interop::longhaul::rows::{self, ServerUnderTest};
use interop::matrix::TestStore;
use interop::need;
use interop::peer::{PeerServer, proftpd, pure_ftpd, pyftpdlib, vsftpd};
use interop::test_files;
use interop::tree::TestTree;

fn everything(
    name: &str,
    found: Result<PathBuf, String>,
    start: impl FnOnce(&TestStore) -> Result<PeerServer>,
) {
    need!(found);
    let store = TestStore::new().unwrap();
    let server = start(&store).unwrap();
    let target = ServerUnderTest::new(&store, &server);
    let mut cells = MatrixRow::new(format!("longhaul cp, {name}"));
    rows::get_and_put(&mut cells, &target, &[], &test_files::SIZES);
    // MODE E is not there: one stream and a warning.
    rows::get_and_put(&mut cells, &target, &["-p", "4"], &test_files::SIZES);
    rows::drs_is_declined(&mut cells, &target);
    rows::parts(&mut cells, &target, &[]);
    rows::resume_after_kill(&mut cells, &target, &[]);
    rows::trees(&mut cells, &target, &TestTree::thousand(), &[]);
    cells.finish();
}

#[test]
fn vsftpd() {
    everything("vsftpd", vsftpd::find(), vsftpd::start);
}

#[test]
fn proftpd() {
    everything("proftpd", proftpd::find(), proftpd::start);
}

#[test]
fn pure_ftpd() {
    everything("pure-ftpd", pure_ftpd::find(), pure_ftpd::start);
}

#[test]
fn pyftpdlib() {
    everything("pyftpdlib", pyftpdlib::find(), pyftpdlib::start);
}
