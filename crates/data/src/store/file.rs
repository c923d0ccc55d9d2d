//! Regular files, pipes and devices as source and sink.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::sync::{Arc, Mutex, MutexGuard};

use proto::ranges::RangeSet;
use rustix::fs::OFlags;

use super::durability::{FileDurability, SyncPolicy};
use super::{Sink, Source, unwritten_pages};
use crate::locks::lock;

/// Position of a file that cannot be read or written at an offset: the next one that may come.
#[derive(Debug, Default)]
struct NextOffset(Mutex<u64>);

impl NextOffset {
    /// Locks the file for one step at `offset`.
    fn at(&self, offset: u64, name: &str) -> io::Result<MutexGuard<'_, u64>> {
        let position = lock(&self.0);
        if *position == offset {
            return Ok(position);
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{name} is sequential: offset {offset} came when {position} was due"),
        ))
    }
}

/// How offsets apply to an open file.
#[derive(Debug)]
enum OffsetAccess {
    /// Any offset at any time.
    Random,
    /// In order only.
    Sequential(NextOffset),
}

/// A file or pipe to send.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    name: String,
    access: OffsetAccess,
}

impl FileSource {
    /// Wraps an open file; anything that cannot be read at an offset (pipe, socket, terminal) is
    /// sequential.
    pub fn new(file: File, name: impl Into<String>) -> io::Result<Self> {
        let kind = file.metadata()?.file_type();
        if kind.is_file() || kind.is_block_device() {
            let name = name.into();
            let access = OffsetAccess::Random;
            return Ok(Self { file, name, access });
        }
        Ok(Self::sequential(file, name))
    }

    /// Reads an open file from where it stands, whatever it is: standard input may be a regular
    /// file that somebody has read a part of.
    pub fn sequential(file: File, name: impl Into<String>) -> Self {
        Self {
            file,
            name: name.into(),
            access: OffsetAccess::Sequential(NextOffset::default()),
        }
    }
}

impl Source for FileSource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        match &self.access {
            OffsetAccess::Random => retry(|| self.file.read_at(buf, offset)),
            OffsetAccess::Sequential(position) => {
                let mut position = position.at(offset, &self.name)?;
                let n = retry(|| (&self.file).read(buf))?;
                *position += n as u64;
                Ok(n)
            }
        }
    }

    fn len(&self) -> io::Result<Option<u64>> {
        match self.access {
            OffsetAccess::Random => self.file.metadata().map(|m| Some(m.len())),
            OffsetAccess::Sequential(_) => Ok(None),
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        matches!(self.access, OffsetAccess::Random).then(|| self.file.as_fd())
    }
}

fn retry(mut step: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match step() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// A file, device or pipe to store into.
#[derive(Debug)]
pub struct FileSink {
    file: File,
    name: String,
    access: OffsetAccess,
    durability: Option<FileDurability>,
}

impl FileSink {
    /// Wraps an open file; `/dev/null` takes any offset, a pipe only ascending ones. A file opened
    /// to append is sequential too, because the kernel ignores offsets there (pwrite(2), BUGS).
    pub fn new(file: File, name: impl Into<String>) -> io::Result<Self> {
        Self::wrap(file, name).map_err(|(_, error)| error)
    }

    /// As [`FileSink::new`].
    ///
    /// # Errors
    /// What the file says of itself, with the file.
    pub fn wrap(file: File, name: impl Into<String>) -> Result<Self, (File, io::Error)> {
        match takes_any_offset(&file) {
            Err(error) => Err((file, error)),
            Ok(false) => Ok(Self::sequential(file, name)),
            Ok(true) => Ok(Self {
                file,
                name: name.into(),
                access: OffsetAccess::Random,
                durability: None,
            }),
        }
    }

    /// Writes to an open file from where it stands, whatever it is: standard output may be a
    /// regular file that holds somebody else's output already.
    pub fn sequential(file: File, name: impl Into<String>) -> Self {
        Self {
            file,
            name: name.into(),
            access: OffsetAccess::Sequential(NextOffset::default()),
            durability: None,
        }
    }

    /// Gets to disk by `policy` from now on; `directory` holds the file's name, which the first sync
    /// forces to disk, too. Nothing but regular files is synced.
    #[must_use]
    pub fn with_policy(mut self, policy: SyncPolicy, directory: Option<File>) -> Self {
        let regular = self.file.metadata().is_ok_and(|meta| meta.is_file());
        self.durability = regular.then(|| FileDurability::new(policy, directory));
        self
    }

    /// Takes out of the file what was written through this sink and not forced to disk since, and drops
    /// the rest of it from memory: for a file whose disk refused something. The kernel keeps pages that
    /// it could not write as if it had, so that whoever reads or sums them takes them for stored.
    /// `alone`: nobody else writes to the file, so that its end may be cut off.
    ///
    /// # Errors
    /// The file system can neither make holes nor write; what is left may not be on disk.
    pub fn forget_unsynced(&self, alone: bool) -> io::Result<()> {
        let Some(durability) = &self.durability else {
            return Ok(());
        };
        unwritten_pages::take_out(&self.file, &durability.unsynced(), alone)
    }

    /// Drops the file's clean pages from memory, those that the disk refused among them: who reads the
    /// file again reads the disk.
    pub fn forget_pages(&self) {
        unwritten_pages::forget_pages(&self.file);
    }

    /// Takes all but `kept` out of a file that nobody else writes to, and drops the rest of it from
    /// memory: as [`FileSink::forget_unsynced`], for those who know of what earlier runs left, too.
    ///
    /// # Errors
    /// As there.
    pub fn keep_only(&self, kept: &RangeSet) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        unwritten_pages::take_out(&self.file, &kept.gaps(0, length), true)
    }

    /// The file, to sync, truncate or stat it.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// Whether a file can be written in any order.
fn takes_any_offset(file: &File) -> io::Result<bool> {
    let meta = file.metadata()?;
    let kind = meta.file_type();
    let null = kind.is_char_device() && meta.rdev() == rustix::fs::makedev(1, 3);
    let appends = rustix::fs::fcntl_getfl(file)?.contains(OFlags::APPEND);
    Ok((kind.is_file() || kind.is_block_device() || null) && !appends)
}

impl Sink for FileSink {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        match &self.access {
            OffsetAccess::Random => {
                let len = buf.len() as u64;
                if let Some(durability) = &self.durability {
                    durability.writes(offset, len);
                }
                let written = self.file.write_all_at(buf, offset);
                if let (Err(_), Some(durability)) = (&written, &self.durability) {
                    // Again: a sync since the write began may have come before the part that it left.
                    durability.writes(offset, len);
                }
                written?;
                self.spliced(offset, len)
            }
            OffsetAccess::Sequential(position) => {
                let mut position = position.at(offset, &self.name)?;
                (&self.file).write_all(buf)?;
                *position += buf.len() as u64;
                Ok(())
            }
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        // In-order splices would pass the position by.
        matches!(self.access, OffsetAccess::Random).then(|| self.file.as_fd())
    }

    fn is_seekable(&self) -> bool {
        matches!(self.access, OffsetAccess::Random)
    }

    fn open_reader(&self) -> Option<Arc<dyn Source>> {
        let regular = self.file.metadata().ok()?.is_file();
        let mode = rustix::fs::fcntl_getfl(&self.file).ok()? & OFlags::RWMODE;
        if !regular || mode != OFlags::RDWR || !self.is_seekable() {
            return None;
        }
        let file = self.file.try_clone().ok()?;
        let source = FileSource::new(file, self.name.clone()).ok()?;
        Some(Arc::new(source))
    }

    fn spliced(&self, offset: u64, len: u64) -> io::Result<()> {
        let durability = self.durability.as_ref();
        durability.map_or(Ok(()), |d| d.wrote(&self.file, offset, len))
    }

    fn is_durable(&self) -> bool {
        self.durability.as_ref().is_some_and(FileDurability::forces)
    }

    fn sync(&self) -> io::Result<()> {
        let durability = self.durability.as_ref();
        durability.map_or(Ok(()), |d| d.sync(&self.file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::conformance::{check_random_sink, check_sequential_sink, check_source};
    use std::fs::OpenOptions;
    use std::io::Seek;

    fn file_with(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        file
    }

    fn pipe_with(bytes: &[u8]) -> File {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut write = File::from(write);
        write.write_all(bytes).unwrap();
        File::from(read)
    }

    #[test]
    fn regular_file_as_source() {
        check_source(
            |bytes| Arc::new(FileSource::new(file_with(bytes), "f").unwrap()),
            true,
        );
    }

    #[test]
    fn pipe_as_source() {
        check_source(
            |bytes| Arc::new(FileSource::new(pipe_with(bytes), "p").unwrap()),
            false,
        );
    }

    #[test]
    fn regular_file_as_sink() {
        check_random_sink(&FileSink::new(tempfile::tempfile().unwrap(), "f").unwrap());
    }

    #[test]
    fn pipe_as_sink() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let sink = FileSink::new(File::from(write), "p").unwrap();
        check_sequential_sink(sink, || {
            let mut all = Vec::new();
            File::from(read).read_to_end(&mut all).unwrap();
            all
        });
    }

    #[test]
    fn a_file_opened_to_append_is_sequential_and_keeps_what_it_had() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, b"old ").unwrap();
        let file = OpenOptions::new().append(true).open(&path).unwrap();
        let sink = FileSink::new(file, "log").unwrap();
        check_sequential_sink(sink, || std::fs::read(&path).unwrap()[4..].to_vec());
    }

    #[test]
    fn dev_null_takes_any_offset() {
        let file = OpenOptions::new().write(true).open("/dev/null").unwrap();
        let sink = FileSink::new(file, "/dev/null").unwrap();
        assert!(sink.is_seekable());
        sink.write_at(1 << 40, b"x").unwrap();
        sink.write_at(0, b"x").unwrap();
        assert!(sink.open_reader().is_none());
    }

    #[test]
    fn a_sequential_source_starts_where_the_file_stands() {
        let mut file = file_with(b"abcdef");
        file.read_exact(&mut [0; 2]).unwrap();
        let source = FileSource::sequential(file, "standard input");
        let mut buf = [0; 8];
        assert_eq!(source.read_at(0, &mut buf).unwrap(), 4);
        assert_eq!(&buf[..4], b"cdef");
    }
}
