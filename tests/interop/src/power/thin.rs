//! A thin volume: a file system that is larger than what is left for it, so that write() succeeds and
//! the disk refuses at write-back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::run;
use crate::scratch::Scratch;

/// Size that the file system believes to have, bytes.
const CLAIMED: u64 = 192 << 20;
/// Size of the real volume.
const REAL: &str = "size=32m";

/// A mounted thin volume; see [`super::machine::possible`] for what it takes.
pub struct Thin {
    scratch: Scratch,
}

impl Thin {
    /// Mounts one for the calling thread and the programs that it starts; it ends with them.
    pub fn new() -> Result<Self> {
        unshare(CloneFlags::CLONE_NEWNS).context("no mount namespace")?;
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        let scratch = Scratch::new()?;
        let (pool, folder) = (scratch.folder("pool")?, scratch.folder("disk")?);
        mount(none, &pool, Some("tmpfs"), MsFlags::empty(), Some(REAL))?;
        let image = pool.join("image");
        fs::File::create(&image)?.set_len(CLAIMED)?;
        let mut mkfs = Command::new("mkfs.ext4");
        mkfs.args(["-q", "-F", "-J", "size=4"]);
        run::run(mkfs.arg(&image))?.success()?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext4", "-o", "loop,noinit_itable"]);
        run::run(mount.arg(&image).arg(folder))?.success()?;
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

impl Drop for Thin {
    fn drop(&mut self) {
        for name in ["disk", "pool"] {
            let _ = Command::new("umount")
                .arg("-l")
                .arg(self.scratch.join(name))
                .output();
        }
    }
}
