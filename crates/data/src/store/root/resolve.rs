//! Resolves paths to descriptors, by the kernel, inside the root; component by component for kernels without
//! openat2(2).

use std::os::fd::{AsFd, OwnedFd};

use proto::path::VPath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{Root, StoreError};
use crate::os::lookup::{LOCATE, ResolveFlags, openat2};

/// Attempts of a lookup while directories are renamed (EAGAIN, openat2(2)).
const MAX_LOOKUPS: u32 = 64;

/// Magic links (`/proc/PID/fd/N`, `/proc/PID/root`) lead to files outside every path.
const RESOLVE_FLAGS: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

/// Flags of a directory whose names are read. A symbolic link is not followed.
const READ_NAMES: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

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
        retry_lookup(|| openat2(&self.dir, relative, flags, mode, resolve))
    }

    /// Whether the symbolic link content `target`, in the directory `directory`, leads to a place inside this root, as far as
    /// it leads anywhere yet. The kernel follows what links are on the way.
    pub fn holds_target(&self, directory: &VPath, target: &[u8]) -> bool {
        let path = [directory.relative(), target].join(&b'/');
        let path = path.strip_prefix(b"/").unwrap_or(&path);
        let flags = LOCATE | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let found = retry_lookup(|| openat2(&self.dir, path, flags, Mode::empty(), resolve));
        match found {
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => !target.starts_with(b"/"),
            // Only the text of the link is known then.
            Err(_) => !self.has_openat2,
        }
    }

    /// A descriptor that names the file without opening it (O_PATH).
    pub(super) fn locate(&self, path: &VPath) -> Result<OwnedFd, Errno> {
        self.resolve(path, LOCATE, Mode::empty())
    }

    /// The directory that holds `path`'s last component. The root itself has none: EBUSY.
    pub(super) fn parent_of(&self, path: &VPath) -> Result<OwnedFd, Errno> {
        if path.is_root() {
            return Err(Errno::BUSY);
        }
        let flags = LOCATE | OFlags::DIRECTORY;
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
    match retry_lookup(|| openat2(parent, name, READ_NAMES, Mode::empty(), resolve)) {
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

/// Opens the directory `name` in `parent` for reading. A symbolic link is not followed (ENOTDIR or
/// ELOOP).
pub(super) fn subdirectory(parent: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(parent, name, READ_NAMES, Mode::empty())
}

/// As openat2(2) with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS. No component of `path` is `..`.
pub(super) fn open_without_links(
    directory: impl AsFd,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let (above, last) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&b""[..], path),
    };
    let mut at: Option<OwnedFd> = None;
    for name in above.split(|byte| *byte == b'/').filter(|n| !n.is_empty()) {
        let below = match &at {
            Some(above) => open_one(above, name, LOCATE | OFlags::DIRECTORY, mode),
            None => open_one(&directory, name, LOCATE | OFlags::DIRECTORY, mode),
        };
        at = Some(below?);
    }
    match &at {
        Some(above) => open_one(above, last, flags, mode),
        None => open_one(&directory, last, flags, mode),
    }
}

/// Opens a name. A symbolic link is ELOOP, unless the link itself is asked for (O_PATH and O_NOFOLLOW).
fn open_one(
    directory: impl AsFd,
    name: &[u8],
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let wants_link = flags.contains(LOCATE | OFlags::NOFOLLOW);
    let all = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let is_link = |mode| FileType::from_raw_mode(mode) == FileType::Symlink;
    let opened = match rustix::fs::openat(&directory, name, all, mode) {
        // Without O_DIRECTORY, O_PATH opens the link itself.
        Err(Errno::NOTDIR) => {
            let there = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
            return Err(match there {
                Ok(there) if is_link(there.st_mode) => Errno::LOOP,
                _ => Errno::NOTDIR,
            });
        }
        opened => opened?,
    };
    if flags.contains(LOCATE) && !wants_link && is_link(rustix::fs::fstat(&opened)?.st_mode) {
        return Err(Errno::LOOP);
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, ResolveFlags};

    use super::*;

    #[test]
    fn a_path_leads_to_what_openat2_finds() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/f"), "x").unwrap();
        symlink("b", at("a/l")).unwrap();
        symlink("f", at("a/b/m")).unwrap();
        symlink("/", at("out")).unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let top = rustix::fs::openat(CWD, dir.path(), flags, Mode::empty()).unwrap();
        let inode = |opened: Result<OwnedFd, Errno>| {
            let stat = rustix::fs::fstat(opened?).unwrap();
            Ok::<_, Errno>(stat.st_ino)
        };
        let read = OFlags::RDONLY | OFlags::CLOEXEC;
        let path = OFlags::PATH | OFlags::CLOEXEC;
        for flags in [
            read,
            path,
            path | OFlags::NOFOLLOW,
            path | OFlags::DIRECTORY,
        ] {
            for name in [
                "a/b/f", "a/b", "a/l", "a/l/f", "a/b/m", "out/etc", "out", "a/b/f/g", "a/none", ".",
            ] {
                let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
                let wanted = openat2(&top, name, flags, Mode::empty(), resolve);
                let found = open_without_links(&top, name.as_bytes(), flags, Mode::empty());
                assert_eq!(inode(found), inode(wanted), "{name} {flags:?}");
            }
        }
    }
}
