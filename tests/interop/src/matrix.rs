//! Operations of the matrix that run with every client and server, for all sizes of [`test_files`].

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};

use crate::cells::MatrixRow;
use crate::scratch::ScratchFolder;
use crate::test_files;
use crate::tree::TestTree;

/// The files of one server: `src` with the test files, `up` for uploads, and `local` for the client.
#[derive(Debug)]
pub struct TestStore {
    scratch: ScratchFolder,
    names: AtomicU64,
}

impl TestStore {
    /// Creates a store with `src/f0`, `src/f1`, ... for all of [`test_files::sizes`].
    pub fn new() -> Result<Self> {
        let store = Self {
            scratch: ScratchFolder::new()?,
            names: AtomicU64::new(0),
        };
        for folder in ["src", "up", "local"] {
            store.scratch.folder(folder)?;
        }
        for size in test_files::sizes() {
            let name = test_files::name(size);
            link_or_copy(
                &test_files::shared(size)?,
                &store.path(&format!("src/{name}")),
            )?;
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
    pub fn scratch(&self) -> &ScratchFolder {
        &self.scratch
    }

    /// Local path of a served path such as `up/a`.
    #[must_use]
    pub fn path(&self, served: &str) -> PathBuf {
        self.scratch.join(served)
    }

    /// An unused path of the client.
    pub fn local(&self) -> PathBuf {
        self.path(&format!("local/{}", self.unused_name()))
    }

    /// An unused served path below `up`.
    pub fn upload(&self) -> String {
        format!("up/{}", self.unused_name())
    }

    /// Writes a tree to `src/NAME`.
    pub fn add_tree(&self, name: &str, tree: &TestTree) -> Result<()> {
        tree.write(&self.path(&format!("src/{name}")))
    }

    fn unused_name(&self) -> String {
        format!("n{}", self.names.fetch_add(1, Ordering::Relaxed))
    }
}

/// One cell per size: `get(served, local)` downloads a file.
pub fn get(
    cells: &mut MatrixRow,
    store: &TestStore,
    sizes: &[u64],
    get: impl Fn(&str, &Path) -> Result<()>,
) {
    for &size in sizes {
        cells.check(format!("get {size} bytes"), || {
            let local = store.local();
            get(&format!("src/{}", test_files::name(size)), &local)?;
            check_and_remove(&test_files::shared(size)?, &local)
        });
    }
}

/// One cell per size: `put(local, served)` uploads a file.
pub fn put(
    cells: &mut MatrixRow,
    store: &TestStore,
    sizes: &[u64],
    put: impl Fn(&Path, &str) -> Result<()>,
) {
    for &size in sizes {
        cells.check(format!("put {size} bytes"), || {
            let served = store.upload();
            let source = test_files::shared(size)?;
            put(&source, &served)?;
            check_and_remove(&source, &store.path(&served))
        });
    }
}

/// One cell per size: `copy(source, destination)` copies a file between two servers.
pub fn third_party(
    cells: &mut MatrixRow,
    to: &TestStore,
    sizes: &[u64],
    copy: impl Fn(&str, &str) -> Result<()>,
) {
    for &size in sizes {
        cells.check(format!("third party {size} bytes"), || {
            let served = to.upload();
            copy(&format!("src/{}", test_files::name(size)), &served)?;
            check_and_remove(&test_files::shared(size)?, &to.path(&served))
        });
    }
}

/// Offsets and lengths of parts of the large test file: one byte, the start, across a block boundary, and
/// the middle.
pub const PARTS: [(u64, u64); 4] = [
    (0, 1),
    (0, 1_000_000),
    (65_535, 2),
    (12_345_678, 50_000_001),
];

/// One cell per part: `get(served, offset, length, local)` downloads a part of the large test file.
pub fn get_parts(
    cells: &mut MatrixRow,
    store: &TestStore,
    get: impl Fn(&str, u64, u64, &Path) -> Result<()>,
) {
    for (offset, length) in PARTS {
        cells.check(format!("get {length} bytes from {offset}"), || {
            let local = store.local();
            get(
                &format!("src/{}", test_files::name(test_files::LARGE)),
                offset,
                length,
                &local,
            )?;
            let source = test_files::shared(test_files::LARGE)?;
            test_files::ensure_same_part(&source, offset, length, &local)?;
            discard(&local)
        });
    }
}

/// Compares a copy with its source and removes it, to save disk space.
pub fn check_and_remove(expected: &Path, actual: &Path) -> Result<()> {
    test_files::ensure_same(expected, actual)?;
    discard(actual)
}

/// Fails if `folder` has entries other than `names`.
pub fn ensure_only(folder: &Path, names: &[&str]) -> Result<()> {
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
    // Hard links save 120 MB per store; they fail across file systems.
    if std::fs::hard_link(test_files::linkable(from)?, to).is_err() {
        std::fs::copy(from, to)
            .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    }
    Ok(())
}
