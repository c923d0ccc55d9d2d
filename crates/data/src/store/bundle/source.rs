//! The files of a bundle as one source.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use proto::bundle::BundleFailure;

use super::{BundleLayout, BundleMember, FileState, MemberFailures};
use crate::locks::lock;
use crate::store::Source;

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
    state: FileState,
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

    fn open_as_announced(&self, index: usize) -> io::Result<(File, FileState)> {
        let file = (self.open)(index)?;
        let state = FileState::of(&file)?;
        let member = self.members[index];
        let same_time = member.modified.is_none_or(|time| time.0 == state.seconds);
        if state.size != member.size || !same_time {
            return Err(io::Error::other("it has changed since it was listed"));
        }
        Ok((file, state))
    }

    fn read_whole(&self, index: usize, buffer: &mut [u8]) -> io::Result<()> {
        let (file, state) = self.open_as_announced(index)?;
        file.read_exact_at(buffer, 0)?;
        require_unchanged(&file, state)
    }

    fn read_part(&self, index: usize, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let file = {
            let mut begun = lock(&self.begun);
            match begun.get(&index) {
                Some(member) => Arc::clone(&member.file),
                None => {
                    let (file, state) = self.open_as_announced(index)?;
                    let file = Arc::new(file);
                    let member = HalfRead {
                        file: Arc::clone(&file),
                        state,
                        left: state.size,
                    };
                    begun.insert(index, member);
                    file
                }
            }
        };
        file.read_exact_at(buffer, offset)?;
        let mut begun = lock(&self.begun);
        let Some(member) = begun.get_mut(&index) else {
            return Ok(());
        };
        member.left = member.left.saturating_sub(buffer.len() as u64);
        if member.left > 0 {
            return Ok(());
        }
        let state = member.state;
        begun.remove(&index);
        drop(begun);
        require_unchanged(&file, state)
    }
}

/// Fails if the file was written since `before`: what was read may be of two versions.
fn require_unchanged(file: &File, before: FileState) -> io::Result<()> {
    match FileState::of(file)? == before {
        true => Ok(()),
        false => Err(io::Error::other("it was changed while it was read")),
    }
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
                    lock(&self.begun).remove(&part.index);
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
