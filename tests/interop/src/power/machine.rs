//! A machine whose power can be cut: a file system on a [`VolatileDisk`], and its own boot ID.

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
/// File with the boot ID, which differs after each boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The programs that make and mount file systems.
const PROGRAMS: [&str; 3] = ["mkfs.ext4", "mount", "umount"];

/// Order in which a file system writes data and metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOrdering {
    /// The default of ext4 (data=ordered).
    Default,
    /// Data and metadata in any order, and no automatic flush after a rename (noauto_da_alloc).
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

/// Whether this machine allows such tests; the error says why not.
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

/// Disk and boot ID of a machine, visible to the calling thread and the programs that it starts.
pub struct CrashableMachine {
    scratch: ScratchFolder,
    ordering: WriteOrdering,
    boots: u64,
    device: Option<VolatileDisk>,
}

impl CrashableMachine {
    /// Creates a disk. The calling thread gets its own mount namespace, which ends with the thread and the
    /// programs that it started, so that nothing stays mounted.
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

    /// A folder on another disk, which keeps its power.
    #[must_use]
    pub fn scratch(&self) -> &ScratchFolder {
        &self.scratch
    }

    /// Boots the machine; its power is cut after this many disk writes and flushes. Returns the folder
    /// where the disk is mounted.
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

    /// Cuts the power and boots again from the data that survived. The programs that used the disk must
    /// have been killed before. Returns the folder where the disk is mounted, which stays the same.
    pub fn reboot(&mut self) -> Result<PathBuf> {
        let device = self.device.take().context("not booted")?;
        device.cut()?;
        // A lazy unmount: a normal one would try to write to the disk, which has no power.
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
        // The power is cut first, so that the unmount does not wait for the disk.
        if let Some(device) = &self.device {
            let _ = device.cut();
        }
        let folder = self.scratch.join("disk");
        let _ = Command::new("umount").arg("-l").arg(folder).output();
    }
}
