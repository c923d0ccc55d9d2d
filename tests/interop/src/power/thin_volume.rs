//! A thin volume: a file system that is larger than its backing store, so that write(2) succeeds and the
//! error comes at write-back.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use nix::mount::{MsFlags, mount};

use crate::scratch::ScratchFolder;
use crate::volume;

/// Nominal size of the file system, bytes.
const NOMINAL_SIZE: u64 = 192 << 20;
/// Size of the backing store, as a tmpfs option.
const BACKING_SIZE_OPTION: &str = "size=32m";

/// A mounted thin volume; see [`super::machine::is_supported`] for its prerequisites.
pub struct ThinVolume {
    scratch: ScratchFolder,
}

impl ThinVolume {
    /// Mounts a volume for the calling thread and the programs that it starts.
    pub fn new() -> Result<Self> {
        let scratch = volume::private_mount_scratch()?;
        let none = None::<&str>;
        let (pool, folder) = (scratch.folder("pool")?, scratch.folder("disk")?);
        mount(
            none,
            &pool,
            Some("tmpfs"),
            MsFlags::empty(),
            Some(BACKING_SIZE_OPTION),
        )?;
        let image = pool.join("image");
        fs::File::create(&image)?.set_len(NOMINAL_SIZE)?;
        // A small journal, because its blocks take space of the backing store.
        volume::make_file_system(&["mkfs.ext4", "-q", "-F", "-J", "size=4"], &image)?;
        // Lazy initialization of inode tables would fill the backing store in the background.
        volume::mount(&image, &folder, "loop,noinit_itable")?;
        Ok(Self { scratch })
    }

    /// Folder where the volume is mounted.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.scratch.join("disk")
    }

    /// A folder on another file system, with enough space.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }
}

impl Drop for ThinVolume {
    fn drop(&mut self) {
        // The image is in the pool, so the pool goes last.
        for name in ["disk", "pool"] {
            volume::unmount(&self.scratch.join(name));
        }
    }
}
