//! globus-url-copy against `longhaul serve`, with its options.

use std::path::Path;

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::serve::{LonghaulServer, ServeCommand};
use interop::matrix::{self, TestStore};
use interop::net;
use interop::peer::globus_url_copy::{GlobusUrlCopy, file_url};
use interop::require;
use interop::test_files;
use interop::tree::{ASCII, TestTree, UNICODE};

/// Runs get and put of every size with these options.
fn both_ways(name: &str, options: &[&str], sizes: &[u64]) {
    let client = require!(GlobusUrlCopy::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let mut cells = MatrixRow::new(format!("globus-url-copy {name}"));
    let served = ServedTestStore::in_clear(&store, &server);
    served.get_and_put(&mut cells, &client, options, sizes);
    cells.finish();
}

/// A store behind a server, as globus-url-copy reaches it.
pub(super) struct ServedTestStore<'a> {
    store: &'a TestStore,
    server: &'a LonghaulServer,
    url: fn(&LonghaulServer, &str) -> String,
}

impl<'a> ServedTestStore<'a> {
    pub(super) fn in_clear(store: &'a TestStore, server: &'a LonghaulServer) -> Self {
        let url = LonghaulServer::url;
        Self { store, server, url }
    }

    pub(super) fn over_gsi(store: &'a TestStore, server: &'a LonghaulServer) -> Self {
        let url = LonghaulServer::gsi_url;
        Self { store, server, url }
    }

    fn url(&self, path: &str) -> String {
        (self.url)(self.server, path)
    }

    /// Gets and puts files of these sizes.
    pub(super) fn get_and_put(
        &self,
        cells: &mut MatrixRow,
        client: &GlobusUrlCopy,
        options: &[&str],
        sizes: &[u64],
    ) {
        matrix::get(cells, self.store, sizes, |from, to| {
            let copied = client.copy(options, &self.url(from), &file_url(to));
            self.server.explain(copied).map(drop)
        });
        matrix::put(cells, self.store, sizes, |from, to| {
            let copied = client.copy(options, &file_url(from), &self.url(to));
            self.server.explain(copied).map(drop)
        });
    }

    /// Gets and puts the store's tree `src/tree`.
    pub(super) fn get_and_put_tree(
        &self,
        cells: &mut MatrixRow,
        client: &GlobusUrlCopy,
        options: &[&str],
        tree: &TestTree,
    ) {
        let all = [&["-r", "-cd"], options].concat();
        cells.check(format!("get {}", options.join(" ")), || {
            let local = self.store.local();
            let to = format!("{}/", file_url(&local));
            let copied = client.copy(&all, &self.url("src/tree/"), &to);
            self.server.explain(copied)?;
            tree.ensure_same_as(&local)
        });
        cells.check(format!("put {}", options.join(" ")), || {
            let served = self.store.upload();
            let from = format!("{}/", file_url(&self.store.path("src/tree")));
            let copied = client.copy(&all, &from, &self.url(&format!("{served}/")));
            self.server.explain(copied)?;
            tree.ensure_same_as(&self.store.path(&served))
        });
    }
}

#[test]
fn globus_url_copy_transfers_files() {
    both_ways("without options", &[], &test_files::SIZES);
}

#[test]
fn globus_url_copy_transfers_files_over_four_streams() {
    both_ways("-p 4", &["-p", "4"], &test_files::SIZES);
}

#[test]
fn globus_url_copy_reuses_data_connections() {
    both_ways("-fast", &["-fast"], &test_files::SIZES);
}

#[test]
fn globus_url_copy_reuses_data_connections_over_four_streams() {
    both_ways("-fast -p 4", &["-fast", "-p", "4"], &test_files::SIZES);
}

#[test]
fn globus_url_copy_sets_socket_buffers() {
    both_ways("-tcp-bs", &["-tcp-bs", "1048576"], &test_files::SIZES);
    both_ways(
        "-tcp-bs -p 4",
        &["-tcp-bs", "262144", "-p", "4"],
        &test_files::SIZES,
    );
}

#[test]
fn globus_url_copy_may_name_the_default_driver_stacks() {
    both_ways("-fsstack", &["-fsstack", "file"], &[0, 65_536]);
    both_ways("-dcstack", &["-dcstack", "tcp"], &[0, 65_536]);
}

#[test]
fn globus_url_copy_may_request_stripes() {
    both_ways("-stripe", &["-stripe", "-p", "2"], &test_files::SIZES);
}

#[test]
fn globus_url_copy_transfers_files_over_ipv6() {
    let client = require!(GlobusUrlCopy::find());
    require!(
        net::has_ipv6()
            .then_some(())
            .ok_or_else(|| "no IPv6 loopback".to_owned())
    );
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root())
        .listen("[::1]:0")
        .start()
        .unwrap();
    let mut cells = MatrixRow::new("globus-url-copy -ipv6");
    for options in [&["-ipv6"][..], &["-ipv6", "-p", "4"]] {
        ServedTestStore::in_clear(&store, &server).get_and_put(
            &mut cells,
            &client,
            options,
            &test_files::SIZES,
        );
    }
    cells.finish();
}

#[test]
fn globus_url_copy_transfers_trees() {
    let client = require!(GlobusUrlCopy::find());
    let store = TestStore::new().unwrap();
    let tree = TestTree::thousand();
    store.add_tree("tree", &tree).unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let mut cells = MatrixRow::new("globus-url-copy of a tree");
    let rows: [&[&str]; 4] = [&[], &["-cc", "4"], &["-pp"], &["-fast", "-p", "2"]];
    let served = ServedTestStore::in_clear(&store, &server);
    for row in rows {
        served.get_and_put_tree(&mut cells, &client, row, &tree);
    }
    cells.finish();
}

#[test]
fn globus_url_copy_transfers_a_tree_between_two_servers() {
    let client = require!(GlobusUrlCopy::find());
    let (from, to) = (TestStore::new().unwrap(), TestStore::new().unwrap());
    let tree = TestTree::thousand();
    from.add_tree("tree", &tree).unwrap();
    let source = ServeCommand::anonymous(from.root()).start().unwrap();
    let destination = ServeCommand::anonymous(to.root()).start().unwrap();
    let mut cells = MatrixRow::new("globus-url-copy of a tree, third party");
    let rows: [&[&str]; 3] = [&["-cc", "4"], &["-pp"], &["-fast", "-pp"]];
    for row in rows {
        cells.check(row.join(" "), || {
            let served = to.upload();
            let options = [&["-r", "-cd"], row].concat();
            let url = destination.url(&format!("{served}/"));
            let copied = client.copy(&options, &source.url("src/tree/"), &url);
            source.explain(destination.explain(copied))?;
            tree.ensure_same_as(&to.path(&served))
        });
    }
    cells.finish();
}

#[test]
fn globus_url_copy_transfers_parts_of_files() {
    let client = require!(GlobusUrlCopy::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    for streams in [&[][..], &["-p", "4"]] {
        let mut cells = MatrixRow::new(format!("globus-url-copy -off -len {}", streams.join(" ")));
        matrix::get_parts(&mut cells, &store, |from, offset, length, to| {
            let (offset, length) = (offset.to_string(), length.to_string());
            let options = [streams, &["-off", &offset, "-len", &length]].concat();
            // The client writes a part at its offset in the source, after a hole.
            let whole = store.local();
            server.explain(client.copy(&options, &server.url(from), &file_url(&whole)))?;
            cut(&whole, to, length.parse()?)
        });
        cells.check("put of a part", || {
            let (served, part) = (store.upload(), "1000000");
            let options = [streams, &["-off", "65535", "-len", part]].concat();
            let source = test_files::shared(test_files::LARGE)?;
            let url = server.url(&served);
            server.explain(client.copy(&options, &file_url(&source), &url))?;
            let arrived = store.local();
            cut(&store.path(&served), &arrived, 1_000_000)?;
            test_files::ensure_same_part(&source, 65_535, 1_000_000, &arrived)
        });
        cells.finish();
    }
}

/// The client sends ERET P to one server and ESTO A to the other.
#[test]
fn globus_url_copy_transfers_a_part_between_two_servers() {
    let client = require!(GlobusUrlCopy::find());
    let (from, to) = (TestStore::new().unwrap(), TestStore::new().unwrap());
    let source = ServeCommand::anonymous(from.root()).start().unwrap();
    let destination = ServeCommand::anonymous(to.root()).start().unwrap();
    let mut cells = MatrixRow::new("globus-url-copy -off -len, third party");
    for streams in [&[][..], &["-p", "4"]] {
        cells.check(streams.join(" "), || {
            let (served, length) = (to.upload(), 1_000_000);
            let options = [streams, &["-off", "65535", "-len", "1000000"]].concat();
            let name = format!("src/{}", test_files::name(test_files::LARGE));
            let copied = client.copy(&options, &source.url(&name), &destination.url(&served));
            source.explain(destination.explain(copied))?;
            let arrived = to.local();
            cut(&to.path(&served), &arrived, length)?;
            test_files::ensure_same_part(
                &test_files::shared(test_files::LARGE)?,
                65_535,
                length as u64,
                &arrived,
            )
        });
    }
    cells.finish();
}

/// Writes the last `length` bytes of `whole` to `part`.
fn cut(whole: &Path, part: &Path, length: usize) -> Result<()> {
    let content = std::fs::read(whole)?;
    ensure!(
        content.len() >= length,
        "{} bytes instead of {length}",
        content.len()
    );
    std::fs::write(part, &content[content.len() - length..])?;
    Ok(())
}

#[test]
fn globus_url_copy_transfers_files_with_restarts_enabled() {
    let client = require!(GlobusUrlCopy::find());
    let (from, to) = (TestStore::new().unwrap(), TestStore::new().unwrap());
    let source = ServeCommand::anonymous(from.root()).start().unwrap();
    let destination = ServeCommand::anonymous(to.root()).start().unwrap();
    let mut cells = MatrixRow::new("globus-url-copy -rst");
    for streams in ["1", "4"] {
        let options = [
            "-rst",
            "-rst-retries",
            "2",
            "-rst-interval",
            "1",
            "-p",
            streams,
        ];
        matrix::third_party(&mut cells, &to, &test_files::SIZES, |from, to| {
            let copied = client.copy(&options, &source.url(from), &destination.url(to));
            source.explain(destination.explain(copied)).map(drop)
        });
    }
    cells.finish();
}

#[test]
fn globus_url_copy_sync_transfers_only_files_that_differ() {
    let client = require!(GlobusUrlCopy::find());
    let store = TestStore::new().unwrap();
    let tree = TestTree::generate(60, &[ASCII, UNICODE].concat());
    store.add_tree("tree", &tree).unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let mut cells = MatrixRow::new("globus-url-copy -sync");
    for level in ["0", "1", "2", "3"] {
        cells.check(format!("level {level}"), || {
            let served = store.upload();
            let from = format!("{}/", file_url(&store.path("src/tree")));
            let to = server.url(&format!("{served}/"));
            server.explain(client.copy(&["-r", "-cd"], &from, &to))?;
            let victim = TestTree::read(&store.path(&served))?.longest();
            std::fs::remove_file(store.path(&served).join(&victim))?;
            let options = ["-r", "-cd", "-sync", "-sync-level", level];
            let copied = server.explain(client.copy(&options, &from, &to))?;
            let stores = copied
                .stderr_text()
                .lines()
                .filter(|line| line.starts_with("STOR "))
                .count();
            ensure!(stores < tree.len(), "all {stores} files were sent again");
            tree.ensure_same_as(&store.path(&served))
        });
    }
    cells.finish();
}

#[test]
fn globus_url_copy_verifies_checksums() {
    let client = require!(GlobusUrlCopy::find());
    let (from, to) = (TestStore::new().unwrap(), TestStore::new().unwrap());
    let source = ServeCommand::anonymous(from.root()).start().unwrap();
    let destination = ServeCommand::anonymous(to.root()).start().unwrap();
    for algorithm in ["MD5", "ADLER32", "SHA1", "SHA256", "SHA512"] {
        let mut cells = MatrixRow::new(format!("globus-url-copy -verify-checksum {algorithm}"));
        let options = ["-verify-checksum", "-checksum-alg", algorithm];
        matrix::third_party(&mut cells, &to, &test_files::SIZES, |from, to| {
            let copied = client.copy(&options, &source.url(from), &destination.url(to));
            let copied = source.explain(destination.explain(copied))?;
            let asked = format!("CKSM {algorithm}");
            ensure!(
                copied.stderr_text().contains(&asked),
                "no {asked} in {copied}"
            );
            Ok(())
        });
        cells.finish();
    }
    // With a local file the client supports only MD5.
    both_ways(
        "-verify-checksum",
        &["-verify-checksum"],
        &test_files::SIZES,
    );
}

#[test]
fn globus_url_copy_reports_a_missing_file() {
    let client = require!(GlobusUrlCopy::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    for streams in ["1", "4"] {
        let to = file_url(&store.local());
        let error = client
            .copy(&["-p", streams], &server.url("src/none"), &to)
            .unwrap_err();
        assert!(error.to_string().contains("No such file"), "{error}");
    }
}
