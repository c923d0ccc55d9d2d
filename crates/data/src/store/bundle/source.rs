//! The files of a bundle as one source.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use parking_lot::Mutex;
use proto::bundle::BundleFailure;
use proto::timestamp::Timestamp;

use super::sums::checksum_of;
use super::{BundleLayout, BundleMember, MemberFailures};
use crate::store::Source;
use crate::store::root::{FileChange, FileIdentity, file_clock};

/// Opens a file of a bundle, by its position, to read it.
type OpenMember = Box<dyn Fn(usize) -> io::Result<File> + Send + Sync>;

/// The content of the files of a bundle.
pub struct BundleSource {
    members: Vec<BundleMember>,
    layout: BundleLayout,
    open: OpenMember,
    /// Files of which a part was read.
    begun: Mutex<HashMap<usize, HalfRead>>,
    failures: MemberFailures,
}

/// A file of which a part was read.
#[derive(Debug)]
struct HalfRead {
    file: Arc<File>,
    identity: FileIdentity,
    /// Bytes not read yet.
    left: u64,
}

impl BundleSource {
    /// The bundle of `members`. Each is opened when its first byte is needed, and closed after its last.
    pub fn new(
        members: Vec<BundleMember>,
        open: impl Fn(usize) -> io::Result<File> + Send + Sync + 'static,
    ) -> Self {
        Self {
            layout: BundleLayout::new(&members),
            members,
            open: Box::new(open),
            begun: Mutex::default(),
            failures: MemberFailures::default(),
        }
    }

    /// Bytes of all files.
    pub fn total(&self) -> u64 {
        self.layout.total()
    }

    /// The files that were not sent as they are. Call it at the end of the transfer.
    pub fn finish(&self) -> Vec<BundleFailure> {
        for index in 0..self.members.len() {
            self.open_if_empty(index);
        }
        self.failures.list()
    }

    /// Why a file was not sent as it is. Call it when all bytes of the file are sent.
    pub fn fault(&self, index: usize) -> Option<String> {
        self.open_if_empty(index);
        self.failures.reason(index)
    }

    /// Nothing else opens an empty file.
    fn open_if_empty(&self, index: usize) {
        if self
            .members
            .get(index)
            .is_some_and(|member| member.size == 0)
            && let Err(error) = self.open_as_announced(index)
        {
            self.failures.note(index, &error);
        }
    }

    /// The checksum of each file, read again ([`proto::bundle::CHECKSUM`]). `None`: it cannot be read as announced.
    pub fn checksums(&self) -> Vec<Option<String>> {
        let checksum = |index: usize| checksum_of(self.open_as_announced(index));
        (0..self.members.len()).map(checksum).collect()
    }

    fn open_as_announced(&self, index: usize) -> io::Result<File> {
        let file = (self.open)(index)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        let member = self.members[index];
        let is_same_time = |time: Timestamp| time.0 == metadata.mtime();
        if metadata.len() != member.size || !member.modified.is_none_or(is_same_time) {
            return Err(io::Error::other("it has changed since it was listed"));
        }
        Ok(file)
    }

    fn read_whole(&self, index: usize, buffer: &mut [u8]) -> io::Result<()> {
        let file = self.open_as_announced(index)?;
        let clock = file_clock();
        let before = FileIdentity::of(&file)?;
        file.read_exact_at(buffer, 0)?;
        require_unchanged(&file, before, before.detects_changes_since(clock), buffer)
    }

    fn read_part(&self, index: usize, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let file = {
            let mut begun = self.begun.lock();
            match begun.get(&index) {
                Some(member) => Arc::clone(&member.file),
                None => {
                    let file = Arc::new(self.open_as_announced(index)?);
                    let member = HalfRead {
                        identity: FileIdentity::once_settled(&file)?,
                        file: Arc::clone(&file),
                        left: self.members[index].size,
                    };
                    begun.insert(index, member);
                    file
                }
            }
        };
        file.read_exact_at(buffer, offset)?;
        let mut begun = self.begun.lock();
        let Some(member) = begun.get_mut(&index) else {
            return Ok(());
        };
        member.left = member.left.saturating_sub(buffer.len() as u64);
        if member.left > 0 {
            return Ok(());
        }
        let before = member.identity;
        begun.remove(&index);
        drop(begun);
        match before.change_until(&FileIdentity::of(&file)?) {
            FileChange::None => Ok(()),
            // The bytes that were sent are gone, so that nothing can be compared. Alone, the file can.
            FileChange::Attributes | FileChange::Content => Err(changed()),
        }
    }
}

/// Fails if `read` may be of two versions of the file, whose identity was `before`. `is_certain`: a change would show.
fn require_unchanged(
    file: &File,
    before: FileIdentity,
    is_certain: bool,
    read: &[u8],
) -> io::Result<()> {
    match before.change_until(&FileIdentity::of(file)?) {
        FileChange::None if is_certain => return Ok(()),
        FileChange::Content => return Err(changed()),
        FileChange::None | FileChange::Attributes => {}
    }
    // Bytes of two versions are not those that are there afterwards.
    let mut again = vec![0; read.len()];
    file.read_exact_at(&mut again, 0)?;
    match again == read {
        true => Ok(()),
        false => Err(changed()),
    }
}

fn changed() -> io::Error {
    io::Error::other("it was changed while it was read")
}

impl std::fmt::Debug for BundleSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BundleSource")
            .field("files", &self.members.len())
            .finish_non_exhaustive()
    }
}

impl Source for BundleSource {
    fn name(&self) -> String {
        format!("{} files", self.members.len())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        for part in self.layout.parts(offset, buf.len()) {
            let piece = &mut buf[part.start..part.end];
            let read = match () {
                () if self.failures.contains(part.index) => Err(None),
                () if part.is_whole => self.read_whole(part.index, piece).map_err(Some),
                () => self.read_part(part.index, part.offset, piece).map_err(Some),
            };
            if let Err(error) = read {
                if let Some(error) = error {
                    self.failures.note(part.index, &error);
                    self.begun.lock().remove(&part.index);
                }
                piece.fill(0);
            }
            filled = part.end;
        }
        Ok(filled)
    }

    fn len(&self) -> io::Result<Option<u64>> {
        Ok(Some(self.layout.total()))
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_whose_attributes_alone_changed_while_it_was_read_is_looked_at_again() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"bytes", 0).unwrap();
        let before = FileIdentity::once_settled(&file).unwrap();
        file.set_permissions(Permissions::from_mode(0o640)).unwrap();
        let check = |read: &[u8]| require_unchanged(&file, before, true, read);
        check(b"bytes").unwrap();
        check(b"mixed").unwrap_err();
        file.write_all_at(b"other", 0).unwrap();
        check(b"other").unwrap_err();
    }
}
