//! lftp against `longhaul serve`.

use std::path::Path;

use anyhow::Result;
use interop::cells::MatrixRow;
use interop::longhaul::serve::{LonghaulServer, ServeCommand};
use interop::matrix::{self, TestStore};
use interop::peer::lftp::Lftp;
use interop::require;
use interop::test_files;
use interop::tree::TestTree;

/// Quotes a path for an lftp command.
fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.display())
}

fn script(lftp: &Lftp, server: &LonghaulServer, commands: &str) -> Result<()> {
    server
        .explain(lftp.script(server.address(), commands))
        .map(drop)
}

#[test]
fn lftp_transfers_files_with_get_put_and_pget() {
    let lftp = require!(Lftp::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let mut cells = MatrixRow::new("lftp");
    matrix::get(&mut cells, &store, &test_files::SIZES, |from, to| {
        script(&lftp, &server, &format!("get /{from} -o {}", quoted(to)))
    });
    matrix::put(&mut cells, &store, &test_files::SIZES, |from, to| {
        script(&lftp, &server, &format!("put {} -o /{to}", quoted(from)))
    });
    matrix::get(&mut cells, &store, &test_files::SIZES, |from, to| {
        script(
            &lftp,
            &server,
            &format!("pget -n 4 /{from} -o {}", quoted(to)),
        )
    });
    let active = "set ftp:passive-mode no";
    matrix::get(&mut cells, &store, &test_files::SIZES, |from, to| {
        script(
            &lftp,
            &server,
            &format!("{active}; get /{from} -o {}", quoted(to)),
        )
    });
    cells.finish();
}

#[test]
fn lftp_mirrors_trees_in_both_directions() {
    let lftp = require!(Lftp::find());
    let store = TestStore::new().unwrap();
    let tree = TestTree::thousand();
    store.add_tree("tree", &tree).unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let mut cells = MatrixRow::new("lftp mirror");
    for options in ["", "--parallel=4"] {
        cells.check(format!("down {options}"), || {
            let local = store.local();
            script(
                &lftp,
                &server,
                &format!("mirror {options} /src/tree {}", quoted(&local)),
            )?;
            tree.ensure_same_as(&local)
        });
        cells.check(format!("up {options}"), || {
            let served = store.upload();
            let from = quoted(&store.path("src/tree"));
            script(
                &lftp,
                &server,
                &format!("mirror -R {options} {from} /{served}"),
            )?;
            tree.ensure_same_as(&store.path(&served))
        });
    }
    cells.finish();
}

#[test]
fn lftp_resumes_an_interrupted_get() {
    let lftp = require!(Lftp::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let source = test_files::shared(test_files::LARGE).unwrap();
    let local = store.local();
    let content = std::fs::read(&source).unwrap();
    std::fs::write(&local, &content[..12_345_678]).unwrap();
    let name = test_files::name(test_files::LARGE);
    script(
        &lftp,
        &server,
        &format!("get -c /src/{name} -o {}", quoted(&local)),
    )
    .unwrap();
    matrix::check_and_remove(&source, &local).unwrap();
}

#[test]
fn lftp_renames_and_removes_files_and_folders() {
    let lftp = require!(Lftp::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    std::fs::write(store.path("up/a"), "x").unwrap();
    let commands = "mkdir -p \"/up/d e/ü\"; mv /up/a \"/up/d e/ü/b\"; chmod 600 \"/up/d e/ü/b\"; \
                    cls -l \"/up/d e/ü\"; rm \"/up/d e/ü/b\"; rmdir \"/up/d e/ü\"; rm -r \"/up/d e\"";
    let finished = server
        .explain(lftp.script(server.address(), commands))
        .unwrap();
    assert!(finished.stdout_text().contains('b'), "{finished}");
    matrix::ensure_only(&store.path("up"), &[]).unwrap();
}
