//! The operations every client and server is put through, over the sizes of [`sample`].

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};

use crate::cells::Cells;
use crate::sample;
use crate::scratch::Scratch;
use crate::tree::Tree;

/// Store of one server: `src` with the samples, `up` to write to, and beside them `local`, the
/// client's own folder.
#[derive(Debug)]
pub struct Store {
    scratch: Scratch,
    names: AtomicU64,
}

impl Store {
    /// A store with `src/f0`, `src/f1`... for all of [`sample::sizes`].
    pub fn new() -> Result<Self> {
        let store = Self {
            scratch: Scratch::new()?,
            names: AtomicU64::new(0),
        };
        for folder in ["src", "up", "local"] {
            store.scratch.folder(folder)?;
        }
        for size in sample::sizes() {
            let name = sample::name(size);
            link_or_copy(&sample::shared(size)?, &store.path(&format!("src/{name}")))?;
        }
        Ok(store)
    }

    /// The folder that servers take as their root.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.scratch.path()
    }

    /// The scratch folder, for configuration files.
    #[must_use]
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Where a served path such as `up/a` is on this machine.
    #[must_use]
    pub fn path(&self, served: &str) -> PathBuf {
        self.scratch.join(served)
    }

    /// A local path that no other cell uses.
    pub fn local(&self) -> PathBuf {
        self.path(&format!("local/{}", self.fresh()))
    }

    /// A served path below `up` that no other cell uses.
    pub fn upload(&self) -> String {
        format!("up/{}", self.fresh())
    }

    /// Adds the tree as `src/NAME`.
    pub fn plant(&self, name: &str, tree: &Tree) -> Result<()> {
        tree.write(&self.path(&format!("src/{name}")))
    }

    fn fresh(&self) -> String {
        format!("n{}", self.names.fetch_add(1, Ordering::Relaxed))
    }
}

/// One cell per size: `get(served, local)` brings a file here.
pub fn get(
    cells: &mut Cells,
    store: &Store,
    sizes: &[u64],
    get: impl Fn(&str, &Path) -> Result<()>,
) {
    for &size in sizes {
        cells.check(format!("get {size} bytes"), || {
            let local = store.local();
            get(&format!("src/{}", sample::name(size)), &local)?;
            arrived(&sample::shared(size)?, &local)
        });
    }
}

/// One cell per size: `put(local, served)` sends a file there.
pub fn put(
    cells: &mut Cells,
    store: &Store,
    sizes: &[u64],
    put: impl Fn(&Path, &str) -> Result<()>,
) {
    for &size in sizes {
        cells.check(format!("put {size} bytes"), || {
            let served = store.upload();
            let source = sample::shared(size)?;
            put(&source, &served)?;
            arrived(&source, &store.path(&served))
        });
    }
}

/// One cell per size: `copy(served in from, served in to)` moves a file between two servers.
pub fn third_party(
    cells: &mut Cells,
    to: &Store,
    sizes: &[u64],
    copy: impl Fn(&str, &str) -> Result<()>,
) {
    for &size in sizes {
        cells.check(format!("third party {size} bytes"), || {
            let served = to.upload();
            copy(&format!("src/{}", sample::name(size)), &served)?;
            arrived(&sample::shared(size)?, &to.path(&served))
        });
    }
}

/// Offsets and lengths of parts of the large sample: the start, the middle, across a block
/// boundary, and one byte.
pub const PARTS: [(u64, u64); 4] = [
    (0, 1),
    (0, 1_000_000),
    (65_535, 2),
    (12_345_678, 50_000_001),
];

/// One cell per part: `get(served, offset, length, local)` brings a part of the large sample.
pub fn get_parts(
    cells: &mut Cells,
    store: &Store,
    get: impl Fn(&str, u64, u64, &Path) -> Result<()>,
) {
    for (offset, length) in PARTS {
        cells.check(format!("get {length} bytes from {offset}"), || {
            let local = store.local();
            get(
                &format!("src/{}", sample::name(sample::LARGE)),
                offset,
                length,
                &local,
            )?;
            let source = sample::shared(sample::LARGE)?;
            sample::same_part(&source, offset, length, &local)?;
            discard(&local)
        });
    }
}

/// Checks what arrived and removes it, so that a row needs little disk.
pub fn arrived(expected: &Path, actual: &Path) -> Result<()> {
    sample::same(expected, actual)?;
    discard(actual)
}

/// An error when `folder` has entries besides `names`.
pub fn only(folder: &Path, names: &[&str]) -> Result<()> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("no {}", folder.display()))? {
        found.push(entry?.file_name().to_string_lossy().into_owned());
    }
    found.retain(|name| !names.contains(&name.as_str()));
    ensure!(
        found.is_empty(),
        "left in {}: {}",
        folder.display(),
        found.join(", ")
    );
    Ok(())
}

fn discard(path: &Path) -> Result<()> {
    std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
}

fn link_or_copy(from: &Path, to: &Path) -> Result<()> {
    if std::fs::hard_link(from, to).is_err() {
        std::fs::copy(from, to)
            .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    }
    Ok(())
}
