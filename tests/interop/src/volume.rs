//! File systems in image files, mounted for the calling thread and the programs that it starts.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::mount::MsFlags;
use nix::sched::{CloneFlags, unshare};

use crate::power::machine;
use crate::run;
use crate::scratch::ScratchFolder;

/// Size of the XFS image, bytes: about the smallest that mkfs.xfs accepts.
const SIZE: u64 = 320 << 20;

/// A scratch folder in a new mount namespace: later mounts are visible only to this thread and the programs
/// that it starts.
pub fn private_mount_scratch() -> Result<ScratchFolder> {
    unshare(CloneFlags::CLONE_NEWNS).context("no mount namespace")?;
    let none = None::<&str>;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    // Without MS_PRIVATE, mounts would propagate to the parent namespace (mount_namespaces(7)).
    nix::mount::mount(none, "/", none, private, none)?;
    ScratchFolder::new()
}

/// Creates a file system in the file `image`. `program` is the mkfs program with its options.
pub fn make_file_system(program: &[&str], image: &Path) -> Result<()> {
    let (name, options) = program.split_first().context("no program")?;
    run::run(Command::new(name).args(options).arg(image))?.expect_success()?;
    Ok(())
}

/// Mounts `image` on `folder`.
pub fn mount(image: &Path, folder: &Path, options: &str) -> Result<()> {
    let mut mount = Command::new("mount");
    mount.args(["-o", options]).arg(image).arg(folder);
    run::run(&mut mount)?.expect_success()?;
    Ok(())
}

/// Kind of a [`FullVolume`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FullVolumeKind {
    /// In memory.
    Tmpfs,
    /// ext4 in an image file, which finds out late that it is full.
    Ext4,
}

/// A mounted file system in which a ballast file leaves little room.
pub struct FullVolume {
    scratch: ScratchFolder,
}

impl FullVolume {
    /// Size of the file system where no other is said, bytes.
    const SIZE: u64 = 24 << 20;

    /// Whether this machine can mount such volumes; the error says why not.
    pub fn is_supported() -> Result<(), String> {
        machine::is_supported()
    }

    /// Mounts a volume with about `free` bytes of room. Its mount namespace ends with the calling thread.
    pub fn new(kind: FullVolumeKind, free: u64) -> Result<Self> {
        Self::of_size(kind, Self::SIZE, free)
    }

    /// As [`FullVolume::new`], with the size of the whole file system in bytes.
    pub fn of_size(kind: FullVolumeKind, size: u64, free: u64) -> Result<Self> {
        let scratch = private_mount_scratch()?;
        let (image, disk) = (scratch.join("image"), scratch.folder("disk")?);
        match kind {
            FullVolumeKind::Tmpfs => {
                let mut mount = Command::new("mount");
                let size = format!("size={size}");
                mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&disk);
                run::run(&mut mount)?.expect_success()?;
            }
            FullVolumeKind::Ext4 => {
                File::create(&image)?.set_len(size)?;
                make_file_system(&["mkfs.ext4", "-q", "-m", "0", "-N", "8192"], &image)?;
                mount(&image, &disk, "loop")?;
            }
        }
        let volume = Self { scratch };
        std::fs::create_dir(volume.folder())?;
        volume.fill(free)?;
        Ok(volume)
    }

    /// A folder of the volume.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.scratch.join("disk/folder")
    }

    /// A folder on another file system.
    #[must_use]
    pub fn other_file_system(&self) -> &ScratchFolder {
        &self.scratch
    }

    /// Waits until others have stored so many bytes.
    pub fn wait_until_stored(&self, bytes: u64) -> Result<()> {
        let free = || -> Result<u64> {
            let now = rustix::fs::statvfs(self.folder())?;
            Ok(now.f_bavail * now.f_frsize)
        };
        let (begin, deadline) = (free()?, Instant::now() + run::LIMIT);
        while free()?.saturating_add(bytes) > begin {
            ensure!(Instant::now() < deadline, "nothing is stored");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Takes all the room that is left.
    pub fn fill_up(&self) -> Result<()> {
        let mut ballast = File::options()
            .append(true)
            .create(true)
            .open(self.ballast())?;
        let block = [1; 4096];
        while ballast.write_all(&block).is_ok() {}
        Ok(())
    }

    /// Makes room.
    pub fn make_room(&self) -> Result<()> {
        std::fs::remove_file(self.ballast()).context("cannot remove the ballast")
    }

    fn ballast(&self) -> PathBuf {
        self.scratch.join("disk/ballast")
    }

    fn fill(&self, free: u64) -> Result<()> {
        let mut ballast = File::create(self.ballast())?;
        let block = [1; 4096];
        let mut written = 0;
        while ballast.write_all(&block).is_ok() {
            written += block.len() as u64;
        }
        ballast.set_len(written.saturating_sub(free))?;
        ballast.sync_all().context("cannot fill the volume")
    }
}

impl Drop for FullVolume {
    fn drop(&mut self) {
        unmount(&self.scratch.join("disk"));
    }
}

/// Unmounts a folder, or detaches it until it is no longer in use (lazy unmount).
pub fn unmount(folder: &Path) {
    let _ = Command::new("umount").arg("-l").arg(folder).output();
}

/// A mounted XFS, whose files can share blocks (reflink).
pub struct ReflinkVolume {
    scratch: ScratchFolder,
}

impl ReflinkVolume {
    /// Whether this machine can mount XFS; the error says why not.
    pub fn is_supported() -> Result<(), String> {
        machine::is_supported()?;
        let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        if !known.split_whitespace().any(|name| name == "xfs") {
            return Err("this kernel has no XFS".into());
        }
        let probe = Command::new("mkfs.xfs").arg("-V").output();
        probe
            .map(drop)
            .map_err(|_| "no mkfs.xfs (package xfsprogs)".into())
    }

    /// Mounts a volume. Its mount namespace ends with the calling thread.
    pub fn new() -> Result<Self> {
        let scratch = private_mount_scratch()?;
        let (image, folder) = (scratch.join("image"), scratch.folder("disk")?);
        File::create(&image)?.set_len(SIZE)?;
        make_file_system(&["mkfs.xfs", "-q", "-m", "reflink=1"], &image)?;
        mount(&image, &folder, "loop")?;
        Ok(Self { scratch })
    }

    /// Folder where the volume is mounted.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.scratch.join("disk")
    }

    /// A folder on another file system.
    #[must_use]
    pub fn other_file_system(&self) -> &Path {
        self.scratch.path()
    }
}

impl Drop for ReflinkVolume {
    fn drop(&mut self) {
        unmount(&self.folder());
    }
}
