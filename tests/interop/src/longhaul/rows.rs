//! Rows of the matrix that test `longhaul cp` against any server.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::copy::{self, CpSummary};
use super::running_copy;
use super::serve::LonghaulServer;
use crate::cells::MatrixRow;
use crate::matrix::{self, TestStore};
use crate::peer::PeerServer;
use crate::pki::environment::GridEnvironment;
use crate::test_files;
use crate::tree::TestTree;

/// A running server of any program.
pub trait TestServer {
    /// URL of a served path.
    fn url(&self, served: &str) -> String;

    /// The server's output so far, for error messages.
    fn log(&self) -> String;
}

impl TestServer for PeerServer {
    fn url(&self, served: &str) -> String {
        self.url(served)
    }

    fn log(&self) -> String {
        self.log()
    }
}

impl TestServer for LonghaulServer {
    fn url(&self, served: &str) -> String {
        self.url(served)
    }

    fn log(&self) -> String {
        self.log()
    }
}

/// The server that a row tests, with its files.
pub struct ServerUnderTest<'a> {
    /// The files that it serves.
    pub store: &'a TestStore,
    server: &'a dyn TestServer,
    environment: GridEnvironment,
}

impl<'a> ServerUnderTest<'a> {
    /// A server that serves this store.
    pub fn new(store: &'a TestStore, server: &'a dyn TestServer) -> Self {
        Self {
            store,
            server,
            environment: GridEnvironment::default(),
        }
    }

    /// The same server for a client with these credentials.
    #[must_use]
    pub fn with(mut self, environment: &GridEnvironment) -> Self {
        self.environment.clone_from(environment);
        self
    }

    fn cp(&self, arguments: &[&str]) -> Result<CpSummary> {
        self.explain(copy::cp_in(&self.environment, arguments))
    }

    /// URL of a served path.
    #[must_use]
    pub fn url(&self, served: &str) -> String {
        self.server.url(served)
    }

    fn explain<T>(&self, result: Result<T>) -> Result<T> {
        result.with_context(|| format!("server log:\n{}\nclient", self.server.log()))
    }
}

/// Cells for get and put of every size with these options.
pub fn get_and_put(
    cells: &mut MatrixRow,
    target: &ServerUnderTest<'_>,
    options: &[&str],
    sizes: &[u64],
) {
    matrix::get(cells, target.store, sizes, |from, to| {
        let (url, to) = (target.url(from), path_argument(to));
        target.cp(&[options, &[&url, &to]].concat()).map(drop)
    });
    matrix::put(cells, target.store, sizes, |from, to| {
        let (from, url) = (path_argument(from), target.url(to));
        target.cp(&[options, &[&from, &url]].concat()).map(drop)
    });
}

/// Cells for gets of parts of the large test file with these options.
pub fn parts(cells: &mut MatrixRow, target: &ServerUnderTest<'_>, options: &[&str]) {
    matrix::get_parts(cells, target.store, |from, offset, length, to| {
        let part = [offset.to_string(), length.to_string()];
        let (url, local) = (target.url(from), path_argument(to));
        let arguments = ["--offset", &part[0], "--length", &part[1], &url, &local];
        let summary = target.cp(&[options, &arguments].concat())?;
        test_files::ensure_same_part(&test_files::shared(test_files::LARGE)?, offset, length, to)?;
        ensure!(
            summary.bytes == length,
            "the file is right, but {summary:?} is not"
        );
        Ok(())
    });
}

/// Cells for get and put of a tree with these options.
pub fn trees(
    cells: &mut MatrixRow,
    target: &ServerUnderTest<'_>,
    tree: &TestTree,
    options: &[&str],
) {
    let store = target.store;
    let row = options.join(" ");
    cells.check(format!("get of a tree {row}"), || {
        store.add_tree("tree", tree)?;
        let local = store.local();
        let (url, to) = (target.url("src/tree"), path_argument(&local));
        let summary = target.cp(&[&["-r"], options, &[&url, &to]].concat())?;
        ensure!(summary.files == tree.len() as u64, "{summary:?}");
        tree.ensure_same_as(&local)
    });
    cells.check(format!("put of a tree {row}"), || {
        let served = store.upload();
        let (from, url) = (path_argument(&store.path("src/tree")), target.url(&served));
        let summary = target.cp(&[&["-r"], options, &[&from, &url]].concat())?;
        ensure!(summary.files == tree.len() as u64, "{summary:?}");
        tree.ensure_same_as(&store.path(&served))
    });
}

/// Cells for `--buffer drs` and `drs1` with a server that does not support them: files arrive, and the
/// user gets one warning.
pub fn drs_is_declined(cells: &mut MatrixRow, target: &ServerUnderTest<'_>) {
    for name in ["drs", "drs1"] {
        let options = ["--buffer", name];
        get_and_put(cells, target, &options, &[0, 65_536, test_files::LARGE]);
        cells.check(format!("{name} is declined"), || {
            let url = target.url(&format!("src/{}", test_files::name(65_536)));
            let to = path_argument(&target.store.local());
            let copied = copy::run(&[&options[..], &[&url, &to]].concat())?.expect_success()?;
            let summary = copy::summary(&copied)?;
            ensure!(summary.buffer == "auto", "{summary:?}");
            let warnings = copy::warnings(&copied);
            let about = warnings.iter().filter(|w| w.contains("buffer sizing"));
            ensure!(about.count() == 1, "{warnings:?}");
            Ok(())
        });
    }
}

/// Cells for copies that are killed and resumed: the file is correct, and data that was safe is not
/// transferred again.
pub fn resume_after_kill(cells: &mut MatrixRow, target: &ServerUnderTest<'_>, options: &[&str]) {
    let store = target.store;
    let row = options.join(" ");
    cells.check(format!("resumed get {row}"), || {
        let local = store.local();
        let url = target.url(&format!("src/{}", test_files::name(test_files::LARGE)));
        // A server without checksums that tells no fractions of times does not show that the file is the same.
        target.explain(kill_and_resume(
            target,
            (options, &["--resume"]),
            &url,
            &path_argument(&local),
        ))?;
        matrix::check_and_remove(&test_files::shared(test_files::LARGE)?, &local)
    });
    cells.check(format!("resumed put {row}"), || {
        let served = store.upload();
        let source = test_files::shared(test_files::LARGE)?;
        // The same command goes on.
        target.explain(kill_and_resume(
            target,
            (options, &[]),
            &path_argument(&source),
            &target.url(&served),
        ))?;
        matrix::check_and_remove(&source, &store.path(&served))
    });
}

/// A copy is killed when this many bytes have been safe for [`JOURNAL`].
const KILL_AT: u64 = 30_000_000;
/// Time after which safe bytes are in the journal: the client writes it every 200 ms; the rest is for a
/// busy machine.
const JOURNAL: Duration = Duration::from_millis(400);

/// Kills a copy with these options. `later`: further options of the second run.
fn kill_and_resume(
    target: &ServerUnderTest<'_>,
    (options, later): (&[&str], &[&str]),
    from: &str,
    to: &str,
) -> Result<()> {
    // 30 MB/s
    let slow = [options, &["--limit-rate", "240M", from, to]].concat();
    let slow = copy::command_in(&target.environment, &slow)?;
    let safe = running_copy::kill_when_safe(slow, KILL_AT, JOURNAL)?;
    let resumed = [options, later, &[from, to]].concat();
    let summary = copy::cp_in(&target.environment, &resumed)?;
    ensure!(
        summary.bytes <= test_files::LARGE - safe,
        "{} bytes moved again, {safe} were safe",
        summary.bytes
    );
    Ok(())
}

/// A path as a command-line argument.
#[must_use]
pub fn path_argument(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
