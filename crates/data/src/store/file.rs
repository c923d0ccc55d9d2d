//! Regular files, pipes and devices as source and sink.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use proto::ranges::RangeSet;
use rustix::fs::OFlags;

use super::durability::{FileDurability, SyncPolicy};
use super::holes::{HoleChoice, HoleWriter};
use super::{Sink, Source, unwritten_pages};
use crate::os::stat::is_null;

/// The next offset of a file that can be read or written only in order.
#[derive(Debug, Default)]
struct NextOffset(Mutex<u64>);

impl NextOffset {
    /// Locks the file for one step at `offset`.
    fn at(&self, offset: u64, name: &str) -> io::Result<MutexGuard<'_, u64>> {
        let position = self.0.lock();
        if *position == offset {
            return Ok(position);
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{name} is sequential: got offset {offset}, expected {position}"),
        ))
    }
}

/// Which offsets an open file accepts.
#[derive(Debug)]
enum OffsetAccess {
    /// Any offset at any time.
    Random,
    /// Ascending, gapless offsets only.
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
    /// Wraps an open file. Files that cannot be read at an offset (pipe, socket, terminal) are
    /// sequential.
    pub fn new(file: File, name: impl Into<String>) -> io::Result<Self> {
        let kind = file.metadata()?.file_type();
        // Block devices accept offsets, too.
        if kind.is_file() || kind.is_block_device() {
            let name = name.into();
            let access = OffsetAccess::Random;
            return Ok(Self { file, name, access });
        }
        Ok(Self::sequential(file, name))
    }

    /// Reads an open file from its present position, whatever its type: a part of standard input
    /// may have been read already.
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
            // Several threads read at once, so the file position is not used.
            OffsetAccess::Random => retry_on_interrupt(|| self.file.read_at(buf, offset)),
            OffsetAccess::Sequential(position) => {
                let mut position = position.at(offset, &self.name)?;
                let n = retry_on_interrupt(|| (&self.file).read(buf))?;
                *position += n as u64;
                Ok(n)
            }
        }
    }

    fn len(&self) -> io::Result<Option<u64>> {
        // The length may change while the file is sent, so it is not cached.
        match self.access {
            OffsetAccess::Random => self.file.metadata().map(|m| Some(m.len())),
            OffsetAccess::Sequential(_) => Ok(None),
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        matches!(self.access, OffsetAccess::Random).then(|| self.file.as_fd())
    }
}

fn retry_on_interrupt(mut step: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
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
    holes: HoleWriter,
    /// Offset in the file of the sink's first byte.
    origin: u64,
}

impl FileSink {
    /// Wraps an open file. `/dev/null` accepts any offset, a pipe only ascending ones. A file
    /// opened to append is sequential, because the kernel ignores offsets there (pwrite(2), BUGS).
    pub fn new(file: File, name: impl Into<String>) -> io::Result<Self> {
        Self::wrap(file, name).map_err(|(_, error)| error)
    }

    /// As [`FileSink::new`].
    ///
    /// # Errors
    /// The file's metadata cannot be read; returns the file, too.
    pub fn wrap(file: File, name: impl Into<String>) -> Result<Self, (File, io::Error)> {
        match takes_any_offset(&file) {
            Err(error) => Err((file, error)),
            Ok(false) => Ok(Self::sequential(file, name)),
            Ok(true) => Ok(Self {
                file,
                name: name.into(),
                access: OffsetAccess::Random,
                durability: None,
                holes: HoleWriter::default(),
                origin: 0,
            }),
        }
    }

    /// Writes to an open file from its present position, whatever its type: standard output may be
    /// a regular file with earlier output.
    pub fn sequential(file: File, name: impl Into<String>) -> Self {
        Self {
            file,
            name: name.into(),
            access: OffsetAccess::Sequential(NextOffset::default()),
            durability: None,
            holes: HoleWriter::default(),
            origin: 0,
        }
    }

    /// The sink of a part of the file, whose first byte is at `origin`. Bytes are written to it by [`Sink::write_at`] alone.
    #[must_use]
    pub fn from_origin(mut self, origin: u64) -> Self {
        self.origin = origin;
        self
    }

    /// Forces the file to disk by `policy` from now on. `directory` holds the file's name; the
    /// first sync forces it to disk, too. Only regular files are synced.
    #[must_use]
    pub fn with_policy(mut self, policy: SyncPolicy, directory: Option<File>) -> Self {
        let regular = self.file.metadata().is_ok_and(|meta| meta.is_file());
        self.durability = regular.then(|| FileDurability::new(policy, directory));
        self
    }

    /// Removes the bytes that were written through this sink and not forced to disk since, and
    /// drops the rest of the file from memory. For a file whose disk returned an error: the kernel
    /// keeps pages that it could not write, so readers and checksums would take them for stored.
    /// `alone`: nobody else writes to the file, so that its end may be truncated.
    ///
    /// # Errors
    /// The file system can neither punch holes nor write. The remaining bytes may not be on disk.
    pub fn forget_unsynced(&self, alone: bool) -> io::Result<()> {
        let Some(durability) = &self.durability else {
            return Ok(());
        };
        unwritten_pages::take_out(&self.file, &durability.unsynced(), alone)
    }

    /// Drops the file's clean pages from memory, also those that the disk refused. Later reads read
    /// the disk.
    pub fn forget_pages(&self) {
        unwritten_pages::forget_pages(&self.file);
    }

    /// Removes all but `kept` from a file that nobody else writes to, and drops the rest from
    /// memory. As [`FileSink::forget_unsynced`], but also for bytes of earlier runs.
    ///
    /// # Errors
    /// As there.
    pub fn keep_only(&self, kept: &RangeSet) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        unwritten_pages::take_out(&self.file, &kept.gaps(0, length), true)
    }

    /// Leaves runs of zeros as holes from now on, if this is a regular file that is written in any order.
    pub fn leave_holes(&self, choice: HoleChoice) {
        let regular = self.file.metadata().is_ok_and(|meta| meta.is_file());
        if regular && self.is_seekable() {
            self.holes.leave(choice);
        }
    }

    /// The file, to sync, truncate or stat it.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl FileSink {
    /// Writes `len` bytes at `offset` by `write`, so that a sync knows of them.
    fn write_noted(
        &self,
        offset: u64,
        len: u64,
        write: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        if let Some(durability) = &self.durability {
            durability.note_write(offset, len);
        }
        let written = write();
        if let (Err(_), Some(durability)) = (&written, &self.durability) {
            // A second time, because a sync since the write began may have come before the part that
            // it left.
            durability.note_write(offset, len);
        }
        written?;
        self.spliced(offset, len)
    }
}

/// Whether a file can be written in any order.
fn takes_any_offset(file: &File) -> io::Result<bool> {
    let meta = file.metadata()?;
    let kind = meta.file_type();
    let null = kind.is_char_device() && is_null(meta.rdev());
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
                let offset = self.origin.saturating_add(offset);
                self.write_noted(offset, buf.len() as u64, || match self.holes.is_wanted() {
                    true => self.holes.write(&self.file, buf, offset),
                    false => self.file.write_all_at(buf, offset),
                })
            }
            OffsetAccess::Sequential(position) => {
                let mut position = position.at(offset, &self.name)?;
                (&self.file).write_all(buf)?;
                *position += buf.len() as u64;
                Ok(())
            }
        }
    }

    fn leave_hole(&self, offset: u64, len: u64) -> io::Result<bool> {
        if !self.holes.is_wanted() || !self.is_seekable() {
            return Ok(false);
        }
        let offset = self.origin.saturating_add(offset);
        let end = offset.saturating_add(len);
        self.write_noted(offset, len, || {
            self.holes.leave_hole(&self.file, offset, end)
        })?;
        Ok(true)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        // A splice into a sequential file would bypass the position, one into a part its origin, and no splice sees zeros.
        let takes_splices = !self.holes.is_wanted() && self.is_seekable() && self.origin == 0;
        takes_splices.then(|| self.file.as_fd())
    }

    fn clone_target(&self) -> Option<BorrowedFd<'_>> {
        let may_share = self.holes.permits_clone() && self.is_seekable() && self.origin == 0;
        may_share.then(|| self.file.as_fd())
    }

    fn is_seekable(&self) -> bool {
        matches!(self.access, OffsetAccess::Random)
    }

    fn open_reader(&self) -> Option<Arc<dyn Source>> {
        let regular = self.file.metadata().ok()?.is_file();
        // A file opened write-only cannot be read back.
        let mode = rustix::fs::fcntl_getfl(&self.file).ok()? & OFlags::RWMODE;
        if !regular || mode != OFlags::RDWR || !self.is_seekable() || self.origin > 0 {
            return None;
        }
        let file = self.file.try_clone().ok()?;
        let source = FileSource::new(file, self.name.clone()).ok()?;
        Some(Arc::new(source))
    }

    fn spliced(&self, offset: u64, len: u64) -> io::Result<()> {
        let durability = self.durability.as_ref();
        durability.map_or(Ok(()), |d| d.note_written(&self.file, offset, len))
    }

    fn is_durable(&self) -> bool {
        self.durability
            .as_ref()
            .is_some_and(FileDurability::is_forcing)
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
    fn a_regular_file_conforms_as_source() {
        check_source(
            |bytes| Arc::new(FileSource::new(file_with(bytes), "f").unwrap()),
            true,
        );
    }

    #[test]
    fn a_pipe_conforms_as_source() {
        check_source(
            |bytes| Arc::new(FileSource::new(pipe_with(bytes), "p").unwrap()),
            false,
        );
    }

    #[test]
    fn a_regular_file_conforms_as_sink() {
        check_random_sink(&FileSink::new(tempfile::tempfile().unwrap(), "f").unwrap());
    }

    #[test]
    fn a_part_is_written_from_its_origin() {
        let file = file_with(b"abcdef");
        let sink = FileSink::new(file.try_clone().unwrap(), "f").unwrap();
        let sink = sink.from_origin(2);
        sink.write_at(1, b"XY").unwrap();
        assert!(sink.fd().is_none());
        let mut all = [0; 6];
        file.read_exact_at(&mut all, 0).unwrap();
        assert_eq!(&all, b"abcXYf");
    }

    #[test]
    fn a_pipe_conforms_as_sink() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let sink = FileSink::new(File::from(write), "p").unwrap();
        check_sequential_sink(sink, || {
            let mut all = Vec::new();
            File::from(read).read_to_end(&mut all).unwrap();
            all
        });
    }

    #[test]
    fn a_file_opened_to_append_is_sequential_and_keeps_its_content() {
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
    fn a_sequential_source_starts_at_the_file_position() {
        let mut file = file_with(b"abcdef");
        file.read_exact(&mut [0; 2]).unwrap();
        let source = FileSource::sequential(file, "standard input");
        let mut buf = [0; 8];
        assert_eq!(source.read_at(0, &mut buf).unwrap(), 4);
        assert_eq!(&buf[..4], b"cdef");
    }
}
