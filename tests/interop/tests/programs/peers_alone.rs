//! Programs of other projects with each other. These tests check the harness, so that a failing cell
//! elsewhere is a defect of longhaul.

use interop::cells::MatrixRow;
use interop::matrix::{self, TestStore};
use interop::peer::globus_url_copy::{GlobusUrlCopy, file_url};
use interop::peer::{self, curl::Curl};
use interop::require;
use interop::test_files::HARNESS_SIZES;
use interop::tree::{ASCII, TestTree};

#[test]
fn globus_url_copy_works_with_globus_gridftp_server() {
    let client = require!(GlobusUrlCopy::find());
    require!(peer::globus_gridftp_server::find());
    let store = TestStore::new().unwrap();
    let server = peer::globus_gridftp_server::start(&store).unwrap();
    let mut cells = MatrixRow::new("globus-url-copy, globus-gridftp-server");
    for options in [&[][..], &["-p", "4"], &["-fast"]] {
        matrix::get(&mut cells, &store, &HARNESS_SIZES, |from, to| {
            client
                .copy(options, &server.url(from), &file_url(to))
                .map(drop)
        });
        matrix::put(&mut cells, &store, &HARNESS_SIZES, |from, to| {
            client
                .copy(options, &file_url(from), &server.url(to))
                .map(drop)
        });
        matrix::third_party(&mut cells, &store, &HARNESS_SIZES, |from, to| {
            client
                .copy(options, &server.url(from), &server.url(to))
                .map(drop)
        });
    }
    cells.finish();
}

#[test]
fn globus_url_copy_logs_in_to_globus_gridftp_server() {
    let client = require!(GlobusUrlCopy::find());
    require!(peer::globus_gridftp_server::find());
    let store = TestStore::new().unwrap();
    let server = peer::globus_gridftp_server::start_with_password(&store).unwrap();
    let mut cells = MatrixRow::new("globus-url-copy, globus-gridftp-server with login");
    matrix::get(&mut cells, &store, &HARNESS_SIZES, |from, to| {
        client
            .copy::<&str>(&[], &server.url(from), &file_url(to))
            .map(drop)
    });
    cells.finish();
}

#[test]
fn a_missing_file_gives_an_error() {
    let client = require!(GlobusUrlCopy::find());
    require!(peer::globus_gridftp_server::find());
    let store = TestStore::new().unwrap();
    let server = peer::globus_gridftp_server::start(&store).unwrap();
    let to = file_url(&store.local());
    let error = client
        .copy::<&str>(&[], &server.url("src/none"), &to)
        .unwrap_err();
    assert!(error.to_string().contains("No such file"), "{error}");
}

/// Starts a server that serves the store.
type StartPeer = fn(&TestStore) -> anyhow::Result<peer::PeerServer>;

#[test]
fn curl_works_with_every_plain_ftp_server() {
    let curl = require!(Curl::find());
    let servers: [(&str, Result<_, String>, StartPeer); 4] = [
        ("vsftpd", peer::vsftpd::find(), peer::vsftpd::start),
        ("proftpd", peer::proftpd::find(), peer::proftpd::start),
        ("pure-ftpd", peer::pure_ftpd::find(), peer::pure_ftpd::start),
        ("pyftpdlib", peer::pyftpdlib::find(), peer::pyftpdlib::start),
    ];
    for (name, found, start) in servers {
        require!(found);
        let store = TestStore::new().unwrap();
        let server = start(&store).unwrap();
        let mut cells = MatrixRow::new(format!("curl, {name}"));
        matrix::get(&mut cells, &store, &HARNESS_SIZES, |from, to| {
            let to = to.to_str().unwrap_or_default();
            curl.run(&[server.url(from).as_str(), "-o", to])?
                .expect_success()
                .map(drop)
        });
        matrix::put(&mut cells, &store, &HARNESS_SIZES, |from, to| {
            let from = from.to_str().unwrap_or_default();
            curl.run(&["-T", from, &server.url(to)])?
                .expect_success()
                .map(drop)
        });
        cells.finish();
    }
}

#[test]
fn globus_url_copy_gets_a_complete_tree_from_globus_gridftp_server() {
    let client = require!(GlobusUrlCopy::find());
    require!(peer::globus_gridftp_server::find());
    let store = TestStore::new().unwrap();
    let server = peer::globus_gridftp_server::start(&store).unwrap();
    let tree = TestTree::generate(50, ASCII);
    store.add_tree("tree", &tree).unwrap();
    let local = store.local();
    client
        .copy(
            &["-r", "-cd"],
            &server.url("src/tree/"),
            &format!("{}/", file_url(&local)),
        )
        .unwrap();
    tree.ensure_same_as(&local).unwrap();
}
