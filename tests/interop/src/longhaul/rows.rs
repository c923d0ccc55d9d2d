//! Rows that `longhaul cp` is put through against every server.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::copy::{self, cp};
use super::serve::Server;
use super::unfinished;
use crate::cells::Cells;
use crate::matrix::{self, Store};
use crate::peer::Running;
use crate::sample;
use crate::tree::Tree;

/// A running server, whichever it is.
pub trait Served {
    /// URL of a served path.
    fn url(&self, served: &str) -> String;

    /// All that the server has said so far, for messages.
    fn log(&self) -> String;
}

impl Served for Running {
    fn url(&self, served: &str) -> String {
        self.url(served)
    }

    fn log(&self) -> String {
        self.log()
    }
}

impl Served for Server {
    fn url(&self, served: &str) -> String {
        self.url(served)
    }

    fn log(&self) -> String {
        self.log()
    }
}

/// A server as the rows see it.
pub struct Target<'a> {
    /// Its store.
    pub store: &'a Store,
    server: &'a dyn Served,
}

impl<'a> Target<'a> {
    /// A server that serves this store.
    pub fn new(store: &'a Store, server: &'a dyn Served) -> Self {
        Self { store, server }
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

/// Get and put of every size with these options.
pub fn get_and_put(cells: &mut Cells, target: &Target<'_>, options: &[&str], sizes: &[u64]) {
    matrix::get(cells, target.store, sizes, |from, to| {
        let (url, to) = (target.url(from), text(to));
        target
            .explain(cp(&[options, &[&url, &to]].concat()))
            .map(drop)
    });
    matrix::put(cells, target.store, sizes, |from, to| {
        let (from, url) = (text(from), target.url(to));
        target
            .explain(cp(&[options, &[&from, &url]].concat()))
            .map(drop)
    });
}

/// Parts of the large sample with these options.
pub fn parts(cells: &mut Cells, target: &Target<'_>, options: &[&str]) {
    matrix::get_parts(cells, target.store, |from, offset, length, to| {
        let part = [offset.to_string(), length.to_string()];
        let (url, local) = (target.url(from), text(to));
        let arguments = ["--offset", &part[0], "--length", &part[1], &url, &local];
        let summary = target.explain(cp(&[options, &arguments].concat()))?;
        sample::same_part(&sample::shared(sample::LARGE)?, offset, length, to)?;
        ensure!(
            summary.bytes == length,
            "the file is right, but {summary:?} is not"
        );
        Ok(())
    });
}

/// The tree both ways with these options.
pub fn trees(cells: &mut Cells, target: &Target<'_>, tree: &Tree, options: &[&str]) {
    let store = target.store;
    let row = options.join(" ");
    cells.check(format!("get of a tree {row}"), || {
        store.plant("tree", tree)?;
        let local = store.local();
        let (url, to) = (target.url("src/tree"), text(&local));
        let summary = target.explain(cp(&[&["-r"], options, &[&url, &to]].concat()))?;
        ensure!(summary.files == tree.len() as u64, "{summary:?}");
        tree.same_as(&local)
    });
    cells.check(format!("put of a tree {row}"), || {
        let served = store.upload();
        let (from, url) = (text(&store.path("src/tree")), target.url(&served));
        let summary = target.explain(cp(&[&["-r"], options, &[&from, &url]].concat()))?;
        ensure!(summary.files == tree.len() as u64, "{summary:?}");
        tree.same_as(&store.path(&served))
    });
}

/// The right-sizing of the papers, which the server has no part in: every size arrives, and the
/// user is told once.
pub fn right_sizing_is_declined(cells: &mut Cells, target: &Target<'_>) {
    for name in ["drs", "drs1"] {
        let options = ["--buffer", name];
        get_and_put(cells, target, &options, &[0, 65_536, sample::LARGE]);
        cells.check(format!("{name} is declined"), || {
            let url = target.url(&format!("src/{}", sample::name(65_536)));
            let to = text(&target.store.local());
            let copied = copy::run(&[&options[..], &[&url, &to]].concat())?.success()?;
            let summary = copy::summary(&copied)?;
            ensure!(summary.buffer == "auto", "{summary:?}");
            let warnings = copy::warnings(&copied);
            let about = warnings.iter().filter(|w| w.contains("right-sizing"));
            ensure!(about.count() == 1, "{warnings:?}");
            Ok(())
        });
    }
}

/// A copy is killed when a part is safe and then resumed: the file is right, and the part is not
/// moved again.
pub fn resume(cells: &mut Cells, target: &Target<'_>, options: &[&str]) {
    let store = target.store;
    let row = options.join(" ");
    cells.check(format!("resumed get {row}"), || {
        let local = store.local();
        let url = target.url(&format!("src/{}", sample::name(sample::LARGE)));
        target.explain(interrupted(options, &url, &text(&local)))?;
        matrix::arrived(&sample::shared(sample::LARGE)?, &local)
    });
    cells.check(format!("resumed put {row}"), || {
        let served = store.upload();
        let source = sample::shared(sample::LARGE)?;
        target.explain(interrupted(options, &text(&source), &target.url(&served)))?;
        matrix::arrived(&source, &store.path(&served))
    });
}

/// Bytes that have been safe for [`JOURNAL`] when a copy is killed.
const KILL_AT: u64 = 30_000_000;
/// Age of safe bytes at a kill from which on they are not moved again: a state is journalled at most 200 ms after
/// it was reached, and as much for a busy machine.
const JOURNAL: Duration = Duration::from_millis(400);

fn interrupted(options: &[&str], from: &str, to: &str) -> Result<()> {
    // 30 MB/s
    let slow = [options, &["--limit-rate", "240M", from, to]].concat();
    let safe = unfinished::kill_when_safe(copy::command(&slow)?, KILL_AT, JOURNAL)?;
    let summary = cp(&[options, &["--resume", from, to]].concat())?;
    ensure!(
        summary.bytes <= sample::LARGE - safe,
        "{} bytes moved again, {safe} were safe",
        summary.bytes
    );
    Ok(())
}

/// A path as an argument.
#[must_use]
pub fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
