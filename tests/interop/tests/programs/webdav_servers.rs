//! longhaul with WebDAV servers: trees, and that nothing is destroyed that a command does not name.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::binary::longhaul;
use interop::longhaul::copy;
use interop::longhaul::rows::path_argument;
use interop::matrix::{self, TestStore};
use interop::peer::{PeerServer, apache, nginx, rclone_webdav, wsgidav};
use interop::require;
use interop::run::{self, FinishedProgram};
use interop::test_files;
use interop::tree::{ASCII, TestTree, UNICODE};

/// A WebDAV server with its files.
struct WebDavPeer {
    store: TestStore,
    server: PeerServer,
}

impl WebDavPeer {
    fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.server.address())
    }

    fn verb(&self, verb: &[&str], paths: &[&str]) -> Result<FinishedProgram> {
        let urls = paths.iter().map(|path| self.url(path));
        run::run(longhaul()?.args(verb).args(urls))
    }

    /// Makes `up/NAME` with a file and a tree in it.
    fn make_collection(&self, name: &str) -> Result<()> {
        let local = self.store.local();
        std::fs::create_dir_all(local.join("deep"))?;
        for file in ["precious", "deep/more"] {
            std::fs::write(local.join(file), file)?;
        }
        let to = self.url(&format!("up/{name}"));
        copy::cp(&["-r", &path_argument(&local), &to]).map(drop)
    }

    /// Fails unless everything of [`WebDavPeer::make_collection`] is there.
    fn ensure_whole(&self, name: &str) -> Result<()> {
        for file in ["precious", "deep/more"] {
            let path = self.store.path(&format!("up/{name}/{file}"));
            ensure!(
                std::fs::read(&path).is_ok_and(|bytes| bytes == file.as_bytes()),
                "{} is gone",
                path.display()
            );
        }
        Ok(())
    }

    /// A local file with this text.
    fn file(&self, text: &str) -> Result<PathBuf> {
        let path = self.store.local();
        std::fs::write(&path, text)?;
        Ok(path)
    }
}

fn moves_files_and_trees(cells: &mut MatrixRow, peer: &WebDavPeer) {
    let store = &peer.store;
    for options in [&[][..], &["-p", "4"]] {
        matrix::get(cells, store, &test_files::SIZES, |from, to| {
            let from = peer.url(from);
            copy::cp(&[options, &[&from, &path_argument(to)]].concat()).map(drop)
        });
    }
    matrix::put(cells, store, &test_files::SIZES, |from, to| {
        copy::cp(&[path_argument(from), peer.url(to)]).map(drop)
    });
    cells.check("a tree there and back", || {
        let names = [ASCII, UNICODE].concat().into_iter();
        let names: Vec<_> = names.filter(|name| !name.contains(';')).collect();
        let tree = TestTree::generate(60, &names);
        let (local, back) = (store.local(), store.local());
        tree.write(&local)?;
        let there = peer.url("up/tree");
        copy::cp(&["-r", &path_argument(&local), &there])?;
        copy::cp(&["-r", &there, &path_argument(&back)])?;
        tree.ensure_same_as(&back)?;
        peer.verb(&["rm", "-r"], &["up/tree"])?.expect_success()?;
        ensure!(!store.path("up/tree").exists(), "the tree is still there");
        Ok(())
    });
    cells.check("a name with delimiters", || {
        let served = "up/a%3Bb%3Fc";
        let put = |options: &[&str], text: &str| {
            let paths = [path_argument(&peer.file(text)?), peer.url(served)];
            let [from, to] = paths.each_ref().map(String::as_str);
            copy::cp(&[options, &[from, to]].concat())?;
            let stored = std::fs::read(store.path("up/a;b?c"))?;
            ensure!(stored == text.as_bytes(), "{text} is not there");
            Ok(())
        };
        put(&[], "text")?;
        // wsgidav gives a renamed file the name that ends before the first of them.
        if store.path("up/a").exists() {
            std::fs::remove_file(store.path("up/a"))?;
        }
        peer.verb(&["mkdir", "-p"], &["up/a/deep"])?
            .expect_success()?;
        let other = path_argument(&peer.file("other")?);
        run::run(longhaul()?.arg("cp").arg(other).arg(peer.url(served)))?.expect_failure()?;
        put(&["--in-place"], "newer")?;
        ensure!(store.path("up/a/deep").is_dir(), "the directory is gone");
        peer.verb(&["rm", "-r"], &["up/a"])?.expect_success()?;
        let partial = format!("{served}.longhaul-partial");
        peer.verb(&["rm"], &[served, &partial])?.expect_success()?;
        matrix::ensure_only(&store.path("up"), &[])
    });
    cells.check("a file takes the place of a file", || {
        for text in ["old", "newer"] {
            let file = peer.file(text)?;
            copy::cp(&[path_argument(&file), peer.url("up/file")])?;
            let stored = std::fs::read(store.path("up/file"))?;
            ensure!(stored == text.as_bytes(), "{text} is not there");
        }
        let other = peer.file("other")?;
        copy::cp(&[path_argument(&other), peer.url("up/other")])?;
        peer.verb(&["mv"], &["up/other", "up/file"])?
            .expect_success()?;
        ensure!(
            std::fs::read(store.path("up/file"))? == b"other",
            "not moved"
        );
        peer.verb(&["rm"], &["up/file"])?.expect_success()?;
        matrix::ensure_only(&store.path("up"), &[])
    });
}

fn destroys_nothing_else(cells: &mut MatrixRow, peer: &WebDavPeer) {
    let store = &peer.store;
    cells.check("rm of a collection", || {
        peer.make_collection("a")?;
        peer.verb(&["rm"], &["up/a"])?.expect_code(2)?;
        peer.verb(&["rm"], &["up/*"])?.expect_failure()?;
        peer.ensure_whole("a")
    });
    cells.check("cp of a file onto a collection", || {
        let file = peer.file("file")?;
        copy::cp(&[path_argument(&file), peer.url("up/a")])?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        ensure!(store.path(&format!("up/a/{name}")).is_file(), "not in it");
        peer.verb(&["rm"], &[&format!("up/a/{name}")])?
            .expect_success()?;
        peer.ensure_whole("a")
    });
    cells.check("cp of a collection without -r", || {
        let to = store.local();
        run::run(longhaul()?.arg("cp").arg(peer.url("up/a")).arg(&to))?.expect_code(2)?;
        ensure!(!to.exists(), "the collection became a file");
        Ok(())
    });
    cells.check("mv onto and of a collection", || {
        let file = peer.file("file")?;
        copy::cp(&[path_argument(&file), peer.url("up/f")])?;
        peer.verb(&["mv"], &["up/f", "up/a"])?.expect_code(2)?;
        peer.ensure_whole("a")?;
        peer.verb(&["mv"], &["up/a", "up/f"])?.expect_code(2)?;
        ensure!(std::fs::read(store.path("up/f"))? == b"file", "it is gone");
        peer.verb(&["mv"], &["up/a", "up/b"])?.expect_success()?;
        peer.ensure_whole("b")?;
        peer.verb(&["rm"], &["up/f"])?.expect_success().map(drop)
    });
    cells.check("sync of a file where a collection is", || {
        let tree = store.local();
        std::fs::create_dir(&tree)?;
        std::fs::write(tree.join("b"), "a file")?;
        for options in [&["sync"][..], &["sync", "--delete"]] {
            let mut command = longhaul()?;
            command.args(options).arg(&tree).arg(peer.url("up"));
            run::run(&mut command)?.expect_failure()?;
            peer.ensure_whole("b")?;
        }
        Ok(())
    });
}

fn check(name: &str, start: impl FnOnce(&TestStore) -> Result<PeerServer>) {
    let store = TestStore::new().unwrap();
    let server = start(&store).unwrap();
    let peer = WebDavPeer { store, server };
    let mut cells = MatrixRow::new(format!("WebDAV, {name}"));
    moves_files_and_trees(&mut cells, &peer);
    destroys_nothing_else(&mut cells, &peer);
    cells.finish();
}

#[test]
fn wsgidav_keeps_what_a_command_does_not_name() {
    require!(wsgidav::find());
    check("wsgidav", wsgidav::start);
}

#[test]
fn rclone_keeps_what_a_command_does_not_name() {
    require!(rclone_webdav::find());
    check("rclone serve webdav", rclone_webdav::start);
}

#[test]
fn nginx_keeps_what_a_command_does_not_name() {
    require!(nginx::find());
    check("nginx", |store| nginx::start(store, None));
}

#[test]
fn apache_keeps_what_a_command_does_not_name() {
    require!(apache::find());
    check("apache", apache::start);
}
