//! Connections that are lost in the middle of the listing of a tree (MLSR of a longhaul server): the copy is complete, and has
//! nothing twice.

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::copy::cp;
use interop::longhaul::rows::path_argument;
use interop::longhaul::serve::ServeCommand;
use interop::matrix::TestStore;
use interop::proxy::FtpProxy;
use interop::tree::TestTree;

/// The listing of the tree, also a compressed one, is several times longer than what passes before the cut.
const FILES: usize = 6_000;
const FOLDERS: usize = 40;
const CUT_AFTER: u64 = 50_000;

fn copy_through(
    proxy: &FtpProxy,
    store: &TestStore,
    tree: &TestTree,
    options: &[&str],
) -> Result<()> {
    let (url, to) = (proxy.url("src/tree"), store.local());
    let to_argument = path_argument(&to);
    let summary = cp(&[&["-r"], options, &[url.as_str(), to_argument.as_str()]].concat())?;
    ensure!(proxy.cuts() == 1, "{} cuts", proxy.cuts());
    ensure!(summary.files == FILES as u64, "{summary:?}");
    ensure!(summary.bytes == 0, "{summary:?}");
    tree.ensure_same_as(&to)
}

#[test]
fn a_tree_whose_listing_was_cut_is_complete_and_has_nothing_twice() {
    let store = TestStore::new().unwrap();
    // Only the listing is longer than what passes before the cut: the files are empty.
    let tree = TestTree::empty_files(FOLDERS, FILES / FOLDERS);
    store.add_tree("tree", &tree).unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let mut cells = MatrixRow::new("a listing that is cut");
    for options in [&[][..], &["--concurrency", "1"]] {
        let row = options.join(" ");
        cells.check(format!("data connection {row}"), || {
            let proxy = FtpProxy::cutting(server.address(), CUT_AFTER, 1)?;
            server.explain(copy_through(&proxy, &store, &tree, options))
        });
        cells.check(format!("session {row}"), || {
            let proxy = FtpProxy::cutting_sessions(server.address(), CUT_AFTER, 1)?;
            server.explain(copy_through(&proxy, &store, &tree, options))
        });
    }
    cells.finish();
}
