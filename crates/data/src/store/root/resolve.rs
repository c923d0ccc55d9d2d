//! Resolves paths to descriptors, by the kernel, inside the root.

use std::os::fd::{AsFd, OwnedFd};

use proto::path::VPath;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::components::open_without_links;
use super::{Root, StoreError};

/// Attempts of a lookup while directories are renamed (EAGAIN, openat2(2)).
const MAX_LOOKUPS: u32 = 64;

/// Magic links (`/proc/PID/fd/N`, `/proc/PID/root`) lead to files outside every path.
const RESOLVE_FLAGS: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

impl Root {
    /// Opens `path`, following symbolic links inside the root (see [`Root::without_links`]).
    pub(super) fn resolve(
        &self,
        path: &VPath,
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, Errno> {
        let relative = if path.is_root() {
            b".".as_slice()
        } else {
            path.relative()
        };
        let flags = flags | OFlags::CLOEXEC;
        if !self.has_openat2 {
            return open_without_links(&self.dir, relative, flags, mode);
        }
        let resolve = match self.follows_links {
            true => RESOLVE_FLAGS,
            false => RESOLVE_FLAGS.union(ResolveFlags::NO_SYMLINKS),
        };
        // EAGAIN: a component was renamed during the lookup (openat2(2)).
        retry_lookup(|| rustix::fs::openat2(&self.dir, relative, flags, mode, resolve))
    }

    /// Whether the symbolic link content `target`, in the directory `directory`, leads to a place inside this root, as far as
    /// it leads anywhere yet. The kernel follows what links are on the way.
    pub fn holds_target(&self, directory: &VPath, target: &[u8]) -> bool {
        let path = [directory.relative(), target].join(&b'/');
        let path = path.strip_prefix(b"/").unwrap_or(&path);
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let found =
            retry_lookup(|| rustix::fs::openat2(&self.dir, path, flags, Mode::empty(), resolve));
        match found {
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => !target.starts_with(b"/"),
            // Only the text of the link is known then.
            Err(_) => !self.has_openat2,
        }
    }

    /// A descriptor that names the file without opening it (O_PATH).
    pub(super) fn locate(&self, path: &VPath) -> Result<OwnedFd, Errno> {
        self.resolve(path, OFlags::PATH, Mode::empty())
    }

    /// The directory that holds `path`'s last component. The root itself has none: EBUSY.
    pub(super) fn parent_of(&self, path: &VPath) -> Result<OwnedFd, Errno> {
        if path.is_root() {
            return Err(Errno::BUSY);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        self.resolve(&path.parent(), flags, Mode::empty())
    }

    /// Runs `change` on the parent directory and last component of `path`.
    pub(super) fn at_parent<T>(
        &self,
        op: &'static str,
        path: &VPath,
        change: impl FnOnce(&OwnedFd, &[u8]) -> Result<T, Errno>,
    ) -> Result<T, StoreError> {
        self.parent_of(path)
            .and_then(|parent| change(&parent, path.name()))
            .map_err(|errno| StoreError::new(op, path, errno))
    }
}

/// Repeats a lookup that a concurrent renaming disturbed.
pub(super) fn retry_lookup(
    mut lookup: impl FnMut() -> Result<OwnedFd, Errno>,
) -> Result<OwnedFd, Errno> {
    let mut result = Err(Errno::AGAIN);
    for _ in 0..MAX_LOOKUPS {
        result = lookup();
        if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    result
}

/// As [`subdirectory`], unless a file system is mounted there, or a directory of one (mount(8), `--bind`): EXDEV.
pub(super) fn subdirectory_of_same_mount(parent: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let parent = parent.as_fd();
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    match retry_lookup(|| rustix::fs::openat2(parent, name, READ_NAMES, Mode::empty(), resolve)) {
        // A kernel before 5.6, or a seccomp filter of an older container runtime. Only devices differ then.
        Err(Errno::NOSYS | Errno::PERM) => {
            let found = subdirectory(parent, name)?;
            match rustix::fs::fstat(&found)?.st_dev == rustix::fs::fstat(parent)?.st_dev {
                true => Ok(found),
                false => Err(Errno::XDEV),
            }
        }
        opened => opened,
    }
}

/// Flags of a directory whose names are read. A symbolic link is not followed.
const READ_NAMES: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Opens the directory `name` in `parent` for reading. A symbolic link is not followed (ENOTDIR or
/// ELOOP).
pub(super) fn subdirectory(parent: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(parent, name, READ_NAMES, Mode::empty())
}
