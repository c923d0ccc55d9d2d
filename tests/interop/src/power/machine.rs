//! A place whose power can be cut: a file system on a [`VolatileDisk`], and a boot id of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::volatile_disk::VolatileDisk;
use crate::peer::is_root;
use crate::run;
use crate::scratch::ScratchFolder;
use crate::seeded_random::SeededRandom;

/// Size of the disk, bytes.
const DISK: u64 = 192 << 20;
/// Names this boot to every program.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The programs that make and mount file systems.
const PROGRAMS: [&str; 3] = ["mkfs.ext4", "mount", "umount"];

/// How a file system orders what it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOrdering {
    /// As ext4 is mounted by default.
    Default,
    /// Data and metadata in any order, and nothing done for programs that forget to sync.
    Loose,
}

impl WriteOrdering {
    fn options(self) -> &'static str {
        match self {
            Self::Default => "commit=1",
            Self::Loose => "commit=1,data=writeback,noauto_da_alloc,nodelalloc",
        }
    }
}

/// Whether this machine lets the tests do that.
pub fn is_supported() -> Result<(), String> {
    if !is_root() {
        return Err("only root can mount a disk whose power can be cut".into());
    }
    for path in ["/dev/fuse", "/dev/loop-control"] {
        if !Path::new(path).exists() {
            return Err(format!("no {path}"));
        }
    }
    for program in PROGRAMS {
        let probe = Command::new(program).arg("-V").output();
        if probe.is_err() {
            return Err(format!("no {program}"));
        }
    }
    Ok(())
}

/// A machine's disk and boots, seen by the calling thread and the programs that it starts.
pub struct CrashableMachine {
    scratch: ScratchFolder,
    ordering: WriteOrdering,
    boots: u64,
    device: Option<VolatileDisk>,
}

impl CrashableMachine {
    /// A new disk. The calling thread gets a mount namespace of its own, which ends with it and what
    /// it has started: nothing stays mounted, whatever happens.
    pub fn new(ordering: WriteOrdering) -> Result<Self> {
        unshare(CloneFlags::CLONE_NEWNS).context("no mount namespace")?;
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        let scratch = ScratchFolder::new()?;
        let image = scratch.join("image");
        fs::File::create(&image)?.set_len(DISK)?;
        let mut mkfs = Command::new("mkfs.ext4");
        mkfs.args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]);
        run::run(mkfs.arg(&image))?.expect_success()?;
        for folder in ["fuse", "disk"] {
            scratch.folder(folder)?;
        }
        fs::write(scratch.join("boot"), "boot 0\n")?;
        mount(
            Some(&scratch.join("boot")),
            BOOT_ID,
            none,
            MsFlags::MS_BIND,
            none,
        )?;
        Ok(Self {
            scratch,
            ordering,
            boots: 0,
            device: None,
        })
    }

    /// A folder on another disk, whose power stays.
    #[must_use]
    pub fn scratch(&self) -> &ScratchFolder {
        &self.scratch
    }

    /// Boots with power that goes after so many further writes and flushes of the disk. Returns the
    /// folder where the disk is mounted.
    pub fn boot(&mut self, seed: SeededRandom, cut_after: u64) -> Result<PathBuf> {
        let fuse = self.scratch.join("fuse");
        let device = VolatileDisk::start(&self.scratch.join("image"), &fuse, seed)?;
        let folder = self.mount(device.file())?;
        device.cut_after(cut_after);
        self.device = Some(device);
        Ok(folder)
    }

    /// The disk of the running boot.
    pub fn device(&self) -> Result<&VolatileDisk> {
        self.device.as_ref().context("not booted")
    }

    /// Cuts the power, and boots again from what survived. The programs that used the disk must have
    /// been killed. It is mounted in the same folder, which is returned.
    pub fn reboot(&mut self) -> Result<PathBuf> {
        let device = self.device.take().context("not booted")?;
        device.cut()?;
        // The old file system has no disk any more and can save nothing.
        let mut umount = Command::new("umount");
        run::run(umount.arg("-l").arg(self.scratch.join("disk")))?.expect_success()?;
        drop(device);
        self.boots += 1;
        fs::write(self.scratch.join("boot"), format!("boot {}\n", self.boots))?;
        self.mount(&self.scratch.join("image"))
    }

    fn mount(&self, disk: &Path) -> Result<PathBuf> {
        let folder = self.scratch.join("disk");
        let mut mount = Command::new("mount");
        let options = format!("loop,{}", self.ordering.options());
        mount.args(["-t", "ext4", "-o", &options]).arg(disk);
        run::run(mount.arg(&folder))?.expect_success()?;
        ensure!(
            folder.join("lost+found").exists(),
            "{} is not mounted",
            disk.display()
        );
        Ok(folder)
    }
}

impl Drop for CrashableMachine {
    fn drop(&mut self) {
        // The disk goes off first, so that nothing waits for it.
        if let Some(device) = &self.device {
            let _ = device.cut();
        }
        let folder = self.scratch.join("disk");
        let _ = Command::new("umount").arg("-l").arg(folder).output();
    }
}
