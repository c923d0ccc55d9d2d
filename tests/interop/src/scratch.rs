//! A folder that servers running under another account can use, removed when dropped.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A temporary folder of one test.
#[derive(Debug)]
pub struct ScratchFolder {
    folder: tempfile::TempDir,
}

impl ScratchFolder {
    /// A new empty folder below the system's temporary folder.
    pub fn new() -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("longhaul-interop-")
            .tempdir()
            .context("cannot make a scratch folder")?;
        // A server started by root serves as another account, which must be able to walk in.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        Ok(Self { folder })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Path of `name` inside.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Makes the folder `name` (and those above it) writable by every account.
    pub fn folder(&self, name: impl AsRef<Path>) -> Result<PathBuf> {
        let path = self.join(name);
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o777))?;
        Ok(path)
    }

    /// Writes a file of this content, readable by every account.
    pub fn file(&self, name: impl AsRef<Path>, content: &[u8]) -> Result<PathBuf> {
        let path = self.join(name);
        std::fs::write(&path, content)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}
