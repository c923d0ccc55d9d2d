//! `longhaul cp` against plain FTP servers, which have neither MODE E nor checksums.

use std::path::PathBuf;

use anyhow::Result;
use interop::cells::MatrixRow;
use interop::longhaul::copy;
use interop::longhaul::rows::{self, ServerUnderTest, path_argument};
use interop::matrix::{self, TestStore};
use interop::peer::{PeerServer, proftpd, pure_ftpd, pyftpdlib, vsftpd};
use interop::require;
use interop::test_files;
use interop::tree::TestTree;

fn run_all_rows(
    name: &str,
    found: Result<PathBuf, String>,
    start: impl FnOnce(&TestStore) -> Result<PeerServer>,
) {
    require!(found);
    let store = TestStore::new().unwrap();
    let server = start(&store).unwrap();
    let target = ServerUnderTest::new(&store, &server);
    let mut cells = MatrixRow::new(format!("longhaul cp, {name}"));
    rows::get_and_put(&mut cells, &target, &[], &test_files::SIZES);
    // Without MODE E the copy uses one stream and prints a warning.
    rows::get_and_put(&mut cells, &target, &["-p", "4"], &test_files::SIZES);
    rows::drs_is_declined(&mut cells, &target);
    rows::parts(&mut cells, &target, &[]);
    rows::resume_after_kill(&mut cells, &target, &[]);
    rows::trees(&mut cells, &target, &TestTree::thousand(), &[]);
    cells.finish();
}

#[test]
fn cp_works_with_vsftpd() {
    run_all_rows("vsftpd", vsftpd::find(), vsftpd::start);
}

#[test]
fn cp_works_with_proftpd() {
    run_all_rows("proftpd", proftpd::find(), proftpd::start);
}

#[test]
fn cp_works_with_pure_ftpd() {
    run_all_rows("pure-ftpd", pure_ftpd::find(), pure_ftpd::start);
}

#[test]
fn cp_works_with_pyftpdlib() {
    run_all_rows("pyftpdlib", pyftpdlib::find(), pyftpdlib::start);
}

#[test]
fn the_checksums_of_proftpd_verify_copies() {
    require!(proftpd::find());
    let store = TestStore::new().unwrap();
    let server = proftpd::start_with_checksums(&store).unwrap();
    let target = ServerUnderTest::new(&store, &server);
    // A reply has two lines, and words of this name look like checksums.
    for name in ["plain", "cafe 1 b"] {
        let original = store.path("src").join(name);
        test_files::write(&original, 300_000, 7).unwrap();
        let local = store.local();
        let url = |folder: &str| target.url(&format!("{folder}/{}", name.replace(' ', "%20")));
        for (from, to) in [
            (url("src"), path_argument(&local)),
            (path_argument(&local), url("up")),
        ] {
            let summary = copy::cp(&[from, to]).unwrap();
            assert_eq!(summary.verified, "crc32", "{name}");
        }
        test_files::ensure_same(&original, &store.path("up").join(name)).unwrap();
    }
}

#[test]
fn a_drop_box_gets_each_file_once_under_its_own_name() {
    require!(vsftpd::find());
    let store = TestStore::new().unwrap();
    let server = vsftpd::start_as_drop_box(&store).unwrap();
    let target = ServerUnderTest::new(&store, &server);
    let original = store.local();
    test_files::write(&original, 300_000, 7).unwrap();
    let put = [path_argument(&original), target.url("up/new")];
    let finished = copy::run(&put).unwrap().expect_success().unwrap();
    let warnings = copy::warnings(&finished);
    let warned = |warning: &String| warning.contains("stored under their final names");
    assert!(warnings.iter().any(warned), "{warnings:?}");
    matrix::ensure_only(&store.path("up"), &["new"]).unwrap();
    test_files::ensure_same(&original, &store.path("up/new")).unwrap();
    // The file that is there stays.
    let refused = copy::run(&put).unwrap().expect_code(3).unwrap();
    let message = copy::failure_message(&refused).unwrap();
    assert!(message.contains("--in-place"), "{message}");
    matrix::ensure_only(&store.path("up"), &["new"]).unwrap();
}

#[test]
fn a_server_that_allows_three_sessions_is_obeyed() {
    require!(vsftpd::find());
    let store = TestStore::new().unwrap();
    let server = vsftpd::start_with_max_sessions(&store, 3).unwrap();
    let target = ServerUnderTest::new(&store, &server);
    let tree = TestTree::thousand();
    store.add_tree("tree", &tree).unwrap();
    let local = store.local();
    let arguments = ["-r", &target.url("src/tree"), &path_argument(&local)];
    let finished = copy::run(&arguments).unwrap().expect_success().unwrap();
    let summary = copy::summary(&finished).unwrap();
    assert_eq!((summary.files, summary.failed), (tree.len() as u64, 0));
    tree.ensure_same_as(&local).unwrap();
    // Whether a worker meets the limit depends on when the sessions of the listing become free.
    let warnings = copy::warnings(&finished);
    assert!(warnings.len() <= 1, "{warnings:?}");
    let tells = |warning: &String| warning.contains("sessions");
    assert!(warnings.iter().all(tells), "{warnings:?}");
}
