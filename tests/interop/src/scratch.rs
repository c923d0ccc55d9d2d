//! A temporary folder that servers of another account can use.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A temporary folder of one test, removed on drop.
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
            .context("cannot create a scratch folder")?;
        // Servers started by root serve as another account, which must be able to enter the folder.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        Ok(Self { folder })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Path of `name` in the folder.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Creates the folder `name` and its parents, writable by every account.
    pub fn folder(&self, name: impl AsRef<Path>) -> Result<PathBuf> {
        let path = self.join(name);
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o777))?;
        Ok(path)
    }

    /// Writes a file with this content, readable by every account.
    pub fn file(&self, name: impl AsRef<Path>, content: &[u8]) -> Result<PathBuf> {
        let path = self.join(name);
        std::fs::write(&path, content)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}
