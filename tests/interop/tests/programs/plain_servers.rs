//! `longhaul cp` against the plain FTP servers, which have no MODE E and no checksums.

use std::path::PathBuf;

use anyhow::Result;
use interop::cells::Cells;
use interop::longhaul::rows::{self, Target};
use interop::matrix::Store;
use interop::need;
use interop::peer::{Running, proftpd, pure_ftpd, pyftpdlib, vsftpd};
use interop::sample;
use interop::tree::Tree;

fn everything(
    name: &str,
    found: Result<PathBuf, String>,
    start: impl FnOnce(&Store) -> Result<Running>,
) {
    need!(found);
    let store = Store::new().unwrap();
    let server = start(&store).unwrap();
    let target = Target::new(&store, &server);
    let mut cells = Cells::new(format!("longhaul cp, {name}"));
    rows::get_and_put(&mut cells, &target, &[], &sample::SIZES);
    // MODE E is not there: one stream and a warning.
    rows::get_and_put(&mut cells, &target, &["-p", "4"], &sample::SIZES);
    rows::right_sizing_is_declined(&mut cells, &target);
    rows::parts(&mut cells, &target, &[]);
    rows::resume(&mut cells, &target, &[]);
    rows::trees(&mut cells, &target, &Tree::thousand(), &[]);
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
