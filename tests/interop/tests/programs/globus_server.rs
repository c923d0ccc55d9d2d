//! `longhaul cp` against globus-gridftp-server.

use std::os::unix::fs::PermissionsExt;

use anyhow::Result;
use interop::cells::MatrixRow;
use interop::longhaul::copy;
use interop::longhaul::rows::{self, ServerUnderTest};
use interop::matrix::TestStore;
use interop::peer::{PeerServer, globus_gridftp_server as globus};
use interop::require;
use interop::test_files;
use interop::tree::TestTree;

fn with_server(
    name: &str,
    start: impl FnOnce(&TestStore) -> Result<PeerServer>,
    fill: impl FnOnce(&mut MatrixRow, &ServerUnderTest<'_>),
) {
    require!(globus::find());
    let store = TestStore::new().unwrap();
    let server = start(&store).unwrap();
    let target = ServerUnderTest::new(&store, &server);
    let mut cells = MatrixRow::new(format!("longhaul cp, globus-gridftp-server: {name}"));
    fill(&mut cells, &target);
    cells.finish();
}

#[test]
fn cp_transfers_files() {
    with_server("files", globus::start, |cells, target| {
        let rows: [&[&str]; 6] = [
            &[],
            &["-p", "4"],
            &["--mode", "e", "-p", "1"],
            &["--verify", "sha256"],
            &["-p", "4", "--buffer", "1Mi"],
            &["-p", "4", "--buffer", "drs"],
        ];
        for options in rows {
            rows::get_and_put(cells, target, options, &test_files::SIZES);
        }
        rows::drs_is_declined(cells, target);
    });
}

#[test]
fn cp_transfers_files_with_a_login() {
    with_server("login", globus::start_with_password, |cells, target| {
        for options in [&[][..], &["-p", "4"]] {
            rows::get_and_put(cells, target, options, &test_files::SIZES);
        }
    });
}

#[test]
fn cp_gets_parts_and_resumes() {
    with_server("parts and resume", globus::start, |cells, target| {
        for options in [&["-p", "1"][..], &["-p", "4"]] {
            rows::parts(cells, target, options);
            rows::resume_after_kill(cells, target, options);
        }
    });
}

#[test]
fn cp_transfers_trees() {
    with_server("trees", globus::start, |cells, target| {
        for options in [&[][..], &["-p", "2"]] {
            rows::trees(cells, target, &TestTree::thousand_ascii(), options);
        }
    });
}

#[test]
fn a_wrong_password_exits_with_3() {
    require!(globus::find());
    let store = TestStore::new().unwrap();
    let server = globus::start_with_password(&store).unwrap();
    let url = server.url("src/f1").replace("secret", "wrong");
    let to = rows::path_argument(&store.local());
    copy::run(&["--retries", "0", &url, &to])
        .unwrap()
        .expect_code(3)
        .unwrap();
}

/// The bytes of refused files are on their way before the server refuses them, and it takes them for those of others.
#[test]
fn refused_files_of_a_tree_change_no_other_file() {
    require!(globus::find());
    let store = TestStore::new().unwrap();
    let server = globus::start(&store).unwrap();
    let tree = store.local();
    let served = store.upload();
    // The tree goes into the folder that exists.
    let at_server = store.path(&served).join(tree.file_name().unwrap());
    for folder in ["a", "closed", "z"] {
        std::fs::create_dir_all(tree.join(folder)).unwrap();
        for file in 0..150 {
            // All of one size, so that only the content tells them apart.
            let content = format!("{folder:<9}{file:>9}").repeat(50);
            std::fs::write(tree.join(folder).join(format!("f{file}")), content).unwrap();
        }
        std::fs::create_dir_all(at_server.join(folder)).unwrap();
        let mode = if folder == "closed" { 0o555 } else { 0o777 };
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(at_server.join(folder), permissions).unwrap();
    }
    let (from, url) = (rows::path_argument(&tree), server.url(&served));
    let options = ["-r", "--retries", "1", &from, &url];
    let finished = copy::run(&options).unwrap();
    finished.expect_code(1).unwrap();
    let closed = std::fs::read_dir(at_server.join("closed")).unwrap();
    assert_eq!(closed.count(), 0);
    for folder in ["a", "z"] {
        for file in 0..150 {
            let name = format!("{folder}/f{file}");
            let stored = std::fs::read(at_server.join(&name)).unwrap();
            let sent = std::fs::read(tree.join(&name)).unwrap();
            assert_eq!(stored, sent, "{name}");
        }
    }
}
