//! Opens a path component by component, for kernels without openat2(2). No symbolic link is followed.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

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
            Some(above) => open_one(above, name, OFlags::PATH | OFlags::DIRECTORY, mode),
            None => open_one(&directory, name, OFlags::PATH | OFlags::DIRECTORY, mode),
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
    let wants_link = flags.contains(OFlags::PATH | OFlags::NOFOLLOW);
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
    if flags.contains(OFlags::PATH) && !wants_link && is_link(rustix::fs::fstat(&opened)?.st_mode) {
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
                let wanted = rustix::fs::openat2(&top, name, flags, Mode::empty(), resolve);
                let found = open_without_links(&top, name.as_bytes(), flags, Mode::empty());
                assert_eq!(inode(found), inode(wanted), "{name} {flags:?}");
            }
        }
    }
}
