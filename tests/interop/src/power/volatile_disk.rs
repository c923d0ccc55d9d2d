//! A disk with a volatile write cache. A power cut loses any part of the data that was written and not
//! flushed, in any order.
//!
//! The disk is a FUSE file system with one file, `disk`, which a loop device turns into a block device.
//! The loop driver passes a flush of the block device on as fsync. Data written before it is stable. Each
//! page written after it may survive a power cut or not.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

use crate::failing_directory::attributes;
use crate::seeded_random::SeededRandom;

/// Unit that survives a power cut completely or not at all, bytes.
const PAGE: u64 = 4096;
/// Cache time of attributes. They never change.
const TTL: Duration = Duration::from_secs(3600);
/// Inode of the file `disk`.
const DISK: INodeNo = INodeNo(2);

type DiskPage = Box<[u8]>;

#[derive(Debug)]
struct VolatileDiskState {
    stable: File,
    size: u64,
    /// Writes since the last flush: all versions of each page, oldest first.
    cached: BTreeMap<u64, Vec<DiskPage>>,
    /// Number of writes and flushes so far.
    requests: u64,
    /// The power is cut before this request.
    cut_before: Option<u64>,
    seed: SeededRandom,
    off: bool,
}

impl VolatileDiskState {
    fn page(&self, number: u64) -> io::Result<DiskPage> {
        if let Some(page) = self.cached.get(&number).and_then(|v| v.last()) {
            return Ok(page.clone());
        }
        let mut page = vec![0; usize::try_from(PAGE).unwrap_or(0)];
        let mut done = 0;
        while done < page.len() {
            let n = self
                .stable
                .read_at(&mut page[done..], number * PAGE + done as u64)?;
            if n == 0 {
                break;
            }
            done += n;
        }
        Ok(page.into())
    }

    fn read(&self, offset: u64, len: u64) -> io::Result<Vec<u8>> {
        let end = (offset + len).min(self.size);
        let mut bytes = Vec::new();
        let mut at = offset;
        while at < end {
            let (page, from) = (self.page(at / PAGE)?, at % PAGE);
            let to = (from + end - at).min(PAGE);
            bytes.extend_from_slice(&page[index(from)..index(to)]);
            at += to - from;
        }
        Ok(bytes)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut left = bytes;
        let mut at = offset;
        while !left.is_empty() {
            let from = index(at % PAGE);
            let n = left.len().min(index(PAGE) - from);
            let mut page = self.page(at / PAGE)?;
            page[from..from + n].copy_from_slice(&left[..n]);
            self.cached.entry(at / PAGE).or_default().push(page);
            (left, at) = (&left[n..], at + n as u64);
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        for (number, versions) in std::mem::take(&mut self.cached) {
            if let Some(page) = versions.last() {
                self.stable.write_all_at(page, number * PAGE)?;
            }
        }
        Ok(())
    }

    /// Counts a request, and cuts the power if it is time.
    fn on_request(&mut self) -> Result<(), Errno> {
        if !self.off && self.cut_before == Some(self.requests) {
            self.cut().map_err(|_| Errno::EIO)?;
        }
        self.requests += 1;
        if self.off { Err(Errno::EIO) } else { Ok(()) }
    }

    /// Cuts the power. A seeded part of the cached pages survives (none, some or all), each in any of its
    /// versions.
    fn cut(&mut self) -> io::Result<()> {
        self.off = true;
        let quarters = self.seed.below(5);
        for (number, versions) in std::mem::take(&mut self.cached) {
            if self.seed.below(4) < quarters {
                let version = self.seed.below(versions.len() as u64);
                self.stable
                    .write_all_at(&versions[index(version)], number * PAGE)?;
            }
        }
        self.stable.sync_all()
    }
}

fn index(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

#[derive(Debug)]
struct SharedDiskState {
    state: Mutex<VolatileDiskState>,
    went_off: Condvar,
}

impl SharedDiskState {
    fn locked(&self) -> MutexGuard<'_, VolatileDiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a request that changes the disk.
    fn change(
        &self,
        run: impl FnOnce(&mut VolatileDiskState) -> io::Result<()>,
    ) -> Result<(), Errno> {
        let mut state = self.locked();
        let done = state
            .on_request()
            .and_then(|()| run(&mut state).map_err(|_| Errno::EIO));
        if state.off {
            self.went_off.notify_all();
        }
        done
    }
}

struct DiskFileSystem(Arc<SharedDiskState>);

impl DiskFileSystem {
    fn attributes(&self, ino: INodeNo) -> FileAttr {
        match ino {
            DISK => attributes(ino, FileType::RegularFile, self.0.locked().size),
            _ => attributes(ino, FileType::Directory, 0),
        }
    }
}

impl Filesystem for DiskFileSystem {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "disk" {
            reply.entry(&TTL, &self.attributes(DISK), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Direct I/O: otherwise the kernel would cache writes to this file, and `cut` would miss them.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.0.locked().read(offset, size.into());
        match read {
            Ok(bytes) => reply.data(&bytes),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let len = u32::try_from(data.len()).unwrap_or(0);
        match self.0.change(|state| state.write(offset, data)) {
            Ok(()) => reply.written(len),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // FUSE sends this for close(2), which does not flush a disk.
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.0.change(VolatileDiskState::flush) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }
}

/// A mounted disk with a volatile write cache.
pub struct VolatileDisk {
    shared: Arc<SharedDiskState>,
    file: PathBuf,
    _session: BackgroundSession,
}

impl VolatileDisk {
    /// Mounts the content of `stable` as the file `disk` in `folder`. After a power cut `stable` contains
    /// what survived. Needs root and /dev/fuse.
    pub fn start(stable: &Path, folder: &Path, seed: SeededRandom) -> Result<Self> {
        let stable = File::options().read(true).write(true).open(stable)?;
        let size = stable.metadata()?.len();
        let shared = Arc::new(SharedDiskState {
            state: Mutex::new(VolatileDiskState {
                stable,
                size,
                cached: BTreeMap::new(),
                requests: 0,
                cut_before: None,
                seed,
                off: false,
            }),
            went_off: Condvar::new(),
        });
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("volatile-disk".to_owned())];
        let session = fuser::spawn_mount(DiskFileSystem(Arc::clone(&shared)), folder, &config)
            .context("cannot mount a FUSE file system")?;
        Ok(Self {
            shared,
            file: folder.join("disk"),
            _session: session,
        })
    }

    /// The file for the loop device.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Cuts the power after `more` further writes and flushes.
    pub fn cut_after(&self, more: u64) {
        let mut state = self.shared.locked();
        state.cut_before = Some(state.requests.saturating_add(more));
    }

    /// Whether the power is off.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.shared.locked().off
    }

    /// Waits for the power cut, at most `limit`; returns whether the power is off.
    #[must_use]
    pub fn wait_off(&self, limit: Duration) -> bool {
        let state = self.shared.locked();
        let waited = self
            .shared
            .went_off
            .wait_timeout_while(state, limit, |state| !state.off);
        waited.unwrap_or_else(PoisonError::into_inner).0.off
    }

    /// Cuts the power now, if it is still on.
    pub fn cut(&self) -> Result<()> {
        let mut state = self.shared.locked();
        if !state.off {
            state.cut()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(seed: u64) -> VolatileDiskState {
        let stable = tempfile::tempfile().unwrap();
        stable.set_len(16 * PAGE).unwrap();
        VolatileDiskState {
            stable,
            size: 16 * PAGE,
            cached: BTreeMap::new(),
            requests: 0,
            cut_before: None,
            seed: SeededRandom::new(seed),
            off: false,
        }
    }

    #[test]
    fn flushed_data_survives_and_other_data_survives_in_any_version() {
        let mut fates = [0; 3];
        for seed in 0..50 {
            let mut state = state(seed);
            state.write(100, b"flushed").unwrap();
            state.flush().unwrap();
            state.write(PAGE, b"first").unwrap();
            state.write(PAGE, b"later").unwrap();
            assert_eq!(state.read(PAGE, 5).unwrap(), b"later");
            state.cut().unwrap();
            assert_eq!(state.on_request(), Err(Errno::EIO));
            assert_eq!(state.read(100, 7).unwrap(), b"flushed");
            let fate = match state.read(PAGE, 5).unwrap().as_slice() {
                b"\0\0\0\0\0" => 0,
                b"first" => 1,
                b"later" => 2,
                other => panic!("{other:?}"),
            };
            fates[fate] += 1;
        }
        assert!(fates.iter().all(|n| *n > 0), "{fates:?}");
    }
}
