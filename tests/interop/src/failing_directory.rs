//! A directory whose reading fails in the middle, as one on a damaged disk: a FUSE file system with one directory of empty
//! files.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation,
    INodeNo, MountOption, ReplyAttr, ReplyDirectory, ReplyEntry, Request,
};

const TTL: Duration = Duration::from_secs(3600);
const TOP: INodeNo = INodeNo(1);
/// All files are one.
const FILE: INodeNo = INodeNo(2);

/// A mounted directory.
pub struct FailingDirectory {
    _session: BackgroundSession,
}

impl FailingDirectory {
    /// Mounts over `folder` a directory of which `readable` names can be read, and then nothing but EIO. Needs root and
    /// /dev/fuse.
    pub fn mount(folder: &Path, readable: u64) -> Result<Self> {
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("failing-directory".to_owned())];
        let session = fuser::spawn_mount(FailingNames { readable }, folder, &config)
            .context("cannot mount a FUSE file system")?;
        Ok(Self { _session: session })
    }
}

/// Attributes of a file or directory in which nothing ever changes.
#[must_use]
pub(crate) fn attributes(ino: INodeNo, kind: FileType, size: u64) -> FileAttr {
    FileAttr {
        ino,
        size,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: match kind {
            FileType::Directory => 0o755,
            _ => 0o600,
        },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        flags: 0,
        blksize: 4096,
    }
}

struct FailingNames {
    readable: u64,
}

fn found(ino: INodeNo) -> FileAttr {
    let kind = match ino {
        TOP => FileType::Directory,
        _ => FileType::RegularFile,
    };
    attributes(ino, kind, 0)
}

impl Filesystem for FailingNames {
    fn lookup(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.entry(&TTL, &found(FILE), Generation(0));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &found(ino));
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if offset >= self.readable {
            return reply.error(Errno::EIO);
        }
        for number in offset..self.readable {
            let name = format!("file-{number:08}");
            if reply.add(FILE, number + 1, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }
}
