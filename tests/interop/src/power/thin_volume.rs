//! A thin volume: a file system that is larger than what is left for it, so that write() succeeds and
//! the disk refuses at write-back.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use nix::mount::{MsFlags, mount};

use crate::scratch::ScratchFolder;
use crate::volume;

/// Size that the file system believes to have, bytes.
const CLAIMED: u64 = 192 << 20;
/// Size of the real volume.
const REAL: &str = "size=32m";

/// A mounted thin volume; see [`super::machine::possible`] for what it takes.
pub struct ThinVolume {
    scratch: ScratchFolder,
}

impl ThinVolume {
    /// Mounts one for the calling thread and the programs that it starts; it ends with them.
    pub fn new() -> Result<Self> {
        let scratch = volume::private_mount_scratch()?;
        let none = None::<&str>;
        let (pool, folder) = (scratch.folder("pool")?, scratch.folder("disk")?);
        mount(none, &pool, Some("tmpfs"), MsFlags::empty(), Some(REAL))?;
        let image = pool.join("image");
        fs::File::create(&image)?.set_len(CLAIMED)?;
        volume::make_file_system(&["mkfs.ext4", "-q", "-F", "-J", "size=4"], &image)?;
        volume::mount(&image, &folder, "loop,noinit_itable")?;
        Ok(Self { scratch })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.scratch.join("disk")
    }

    /// A folder with room.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }
}

impl Drop for ThinVolume {
    fn drop(&mut self) {
        for name in ["disk", "pool"] {
            volume::unmount(&self.scratch.join(name));
        }
    }
}
