//! The bytes of a batch journal: groups of records, each with its length and its CRC-32C, in memory or in a file.
//!
//! A group that is torn or damaged ends the journal: it and everything after it are not believed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use data::checksum::ChecksumHasher;
use proto::checksum::ChecksumAlgorithm;

/// Largest group, bytes: no other is written, and none is believed.
pub(crate) const MAX_GROUP: usize = 1 << 20;
/// Length and checksum of a group, bytes.
const HEADER: usize = 8;
/// A journal without a file of its own goes to a temporary file from this size on, bytes.
const MAX_IN_MEMORY: usize = 1 << 20;

/// An append-only sequence of groups.
#[derive(Debug, Default)]
pub(crate) struct GroupStore {
    file: Option<File>,
    /// Bytes in the file. Those after them are in memory.
    in_file: u64,
    memory: Vec<u8>,
    /// The file cannot be written any more, or no temporary file can be made.
    stays_in_memory: bool,
}

/// The result of an append.
#[derive(Debug)]
#[must_use]
pub(crate) enum Appended {
    /// The group is where it belongs.
    Kept,
    /// The file failed: this group and the next ones are in memory.
    FileFailed(io::Error),
    /// The group is larger than any that can be read back. It is nowhere.
    TooLarge,
}

impl GroupStore {
    /// A store in a file whose first `length` bytes are whole groups.
    pub(crate) fn in_file(file: File, length: u64) -> Self {
        Self {
            file: Some(file),
            in_file: length,
            ..Self::default()
        }
    }

    /// End of the last group.
    pub(crate) fn length(&self) -> u64 {
        self.in_file + self.memory.len() as u64
    }

    /// Appends one group. The file keeps whole groups only, also when it cannot take this one.
    pub(crate) fn append(&mut self, records: &[u8]) -> Appended {
        if records.len() > MAX_GROUP {
            return Appended::TooLarge;
        }
        let mut group = Vec::with_capacity(HEADER + records.len());
        let length = u32::try_from(records.len()).unwrap_or(u32::MAX);
        group.extend_from_slice(&length.to_le_bytes());
        group.extend_from_slice(&crc32c(records).to_le_bytes());
        group.extend_from_slice(records);
        if let (Some(file), true) = (&self.file, self.memory.is_empty() && !self.stays_in_memory) {
            match file.write_all_at(&group, self.in_file) {
                Ok(()) => {
                    self.in_file += group.len() as u64;
                    return Appended::Kept;
                }
                Err(error) => {
                    // A part of the group is no group; its checksum would show it, too.
                    let _ = file.set_len(self.in_file);
                    self.stays_in_memory = true;
                    self.memory.extend_from_slice(&group);
                    return Appended::FileFailed(error);
                }
            }
        }
        self.memory.extend_from_slice(&group);
        if self.memory.len() > MAX_IN_MEMORY && !self.stays_in_memory {
            self.move_to_temporary_file();
        }
        Appended::Kept
    }

    /// The records of the group at `offset`, and the offset of the next one. `None` at the end, and where no intact group is.
    pub(crate) fn read(&self, offset: u64) -> io::Result<Option<(Vec<u8>, u64)>> {
        let mut header = [0; HEADER];
        if !self.read_at(&mut header, offset)? {
            return Ok(None);
        }
        let [a, b, c, d, checksum @ ..] = header;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        // Zeros, which a power cut may leave, are no group, although the checksum of nothing is zero.
        if length == 0 || length > MAX_GROUP {
            return Ok(None);
        }
        let mut records = vec![0; length];
        let start = offset + HEADER as u64;
        if !self.read_at(&mut records, start)? {
            return Ok(None);
        }
        let is_intact = crc32c(&records) == u32::from_le_bytes(checksum);
        Ok(is_intact.then(|| (records, start + length as u64)))
    }

    /// Cuts the store to `length` bytes, the end of a group.
    pub(crate) fn truncate(&mut self, length: u64) -> io::Result<()> {
        if let Some(file) = &self.file {
            file.set_len(length)?;
            self.in_file = length;
        }
        Ok(())
    }

    /// Whether the first bytes of the file are zeros, as after a power cut.
    pub(crate) fn is_zero(&self) -> bool {
        let mut start = [0; HEADER];
        let read = self.file.as_ref().map(|file| file.read_at(&mut start, 0));
        matches!(read, Some(Ok(length)) if start.iter().take(length).all(|byte| *byte == 0))
    }

    /// The file, to be synced.
    pub(crate) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Fills `buffer`; `false` if there are fewer bytes.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
        if let Some(in_memory) = offset.checked_sub(self.in_file) {
            let start = usize::try_from(in_memory).unwrap_or(usize::MAX);
            let found = self
                .memory
                .get(start..)
                .and_then(|rest| rest.get(..buffer.len()));
            return Ok(found.is_some_and(|found| {
                buffer.copy_from_slice(found);
                true
            }));
        }
        // A group is whole in the file or whole in memory.
        match &self.file {
            Some(file) if offset + buffer.len() as u64 <= self.in_file => {
                file.read_exact_at(buffer, offset).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    fn move_to_temporary_file(&mut self) {
        let moved = temporary_file().and_then(|file| {
            file.write_all_at(&self.memory, 0)?;
            Ok(file)
        });
        match moved {
            Ok(file) => {
                self.file = Some(file);
                self.in_file = self.memory.len() as u64;
                self.memory = Vec::new();
            }
            Err(error) => {
                tracing::debug!(%error, "the plan stays in memory");
                self.stays_in_memory = true;
            }
        }
    }
}

/// A file without a name, on disk if possible: /tmp is often memory.
fn temporary_file() -> io::Result<File> {
    let named = std::env::var_os("TMPDIR").map(PathBuf::from);
    let usual = named.unwrap_or_else(|| PathBuf::from("/var/tmp"));
    tempfile::tempfile_in(&usual).or_else(|_| tempfile::tempfile())
}

fn crc32c(bytes: &[u8]) -> u32 {
    let mut hasher = ChecksumHasher::new(ChecksumAlgorithm::Crc32c);
    hasher.update(bytes);
    // Eight hex digits.
    u32::from_str_radix(&hasher.finish(), 16).unwrap_or_default()
}
