//! Cache of checksums of whole files.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;

use data::store::root::{FileIdentity, FileTime, file_clock};
use parking_lot::Mutex;
use proto::checksum::ChecksumAlgorithm;

/// Largest number of files; the oldest entry is evicted first.
const MAX_FILES: usize = 16_384;

/// Cached checksums, shared by all sessions. An entry is valid only while the file's state (inode,
/// size, mtime, ctime) is unchanged. A state is cached only if every later write must change it
/// ([`FileIdentity::detects_changes_since`]), so a write by any program makes the entry invalid.
#[derive(Debug, Default)]
pub struct ChecksumCache {
    entries: Mutex<CacheEntries>,
}

#[derive(Debug, Default)]
struct CacheEntries {
    files: HashMap<(u64, u64), CachedFile>,
    /// The keys of `files` in order of insertion.
    order: VecDeque<(u64, u64)>,
}

#[derive(Debug)]
struct CachedFile {
    state: FileIdentity,
    checksums: Vec<(ChecksumAlgorithm, String)>,
}

/// A file that is about to be read, and its state before that.
#[derive(Debug)]
pub(super) struct UnreadFile {
    pub(super) file: File,
    pub(super) state: FileIdentity,
    /// The file system's clock, read before `state`: only then a state older than the clock is surely
    /// complete.
    clock: FileTime,
}

impl UnreadFile {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let clock = file_clock();
        let state = FileIdentity::of(&file)?;
        Ok(Self { file, state, clock })
    }
}

impl ChecksumCache {
    /// The cached checksum of a file in this state.
    pub(super) fn get(&self, state: &FileIdentity, algorithm: ChecksumAlgorithm) -> Option<String> {
        let entries = self.entries.lock();
        let entry = entries.files.get(&state.inode)?;
        if entry.state != *state {
            return None;
        }
        let found = entry.checksums.iter().find(|(of, _)| *of == algorithm);
        found.map(|(_, hex)| hex.clone())
    }

    /// Caches a checksum. `clock` is [`data::store::root::file_clock`], read before the file's `state`. If
    /// a later write might leave the state unchanged, the checksum is not cached.
    pub(super) fn insert(
        &self,
        state: FileIdentity,
        clock: FileTime,
        algorithm: ChecksumAlgorithm,
        hex: String,
    ) {
        // A write within the same clock tick would leave the state as it is.
        if !state.detects_changes_since(clock) {
            return;
        }
        let mut entries = self.entries.lock();
        entries.evict_oldest(state.inode);
        let entry = entries.files.entry(state.inode).or_insert(CachedFile {
            state,
            checksums: Vec::new(),
        });
        // The file has changed: checksums of the old content must not survive.
        if entry.state != state {
            entry.state = state;
            entry.checksums.clear();
        }
        entry.checksums.retain(|(of, _)| *of != algorithm);
        entry.checksums.push((algorithm, hex));
    }

    /// Caches the checksum of a file that was read as a whole, unless the file changed meanwhile.
    pub(super) fn insert_if_unchanged(
        &self,
        before: &UnreadFile,
        algorithm: ChecksumAlgorithm,
        hex: &str,
    ) {
        if FileIdentity::of(&before.file).is_ok_and(|after| after == before.state) {
            self.insert(before.state, before.clock, algorithm, hex.to_owned());
        }
    }

    /// Removes a file's checksums, because the file is about to be written.
    pub(super) fn invalidate(&self, state: &FileIdentity) {
        // The entry stays in place, because `order` must hold each key exactly once.
        if let Some(entry) = self.entries.lock().files.get_mut(&state.inode) {
            entry.checksums.clear();
        }
    }

    /// Keeps the checksums of `before` for `after`, when the file's name or rights were changed and its
    /// content was not. A write in between would show in the mtime; that is certain only if the mtime is
    /// older than `clock`, which was read before `before`.
    pub(super) fn carry_over(&self, before: &FileIdentity, after: FileIdentity, clock: FileTime) {
        let content_unchanged = before.inode == after.inode
            && before.size == after.size
            && before.modified == after.modified
            && before.modified < clock;
        if content_unchanged
            && let Some(entry) = self.entries.lock().files.get_mut(&after.inode)
            && entry.state == *before
        {
            entry.state = after;
        }
    }
}

impl CacheEntries {
    fn evict_oldest(&mut self, inode: (u64, u64)) {
        // A known file takes no further space.
        if self.files.contains_key(&inode) {
            return;
        }
        if self.order.len() >= MAX_FILES
            && let Some(first) = self.order.pop_front()
        {
            self.files.remove(&first);
        }
        self.order.push_back(inode);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(inode: u64, changed: i64) -> FileIdentity {
        FileIdentity {
            inode: (1, inode),
            size: 5,
            modified: at(changed),
            changed: at(changed),
        }
    }

    /// The clock at so many seconds after 1970.
    fn at(seconds: i64) -> FileTime {
        FileTime {
            seconds,
            nanoseconds: 0,
        }
    }

    #[test]
    fn only_the_exact_state_has_a_checksum() {
        let checksums = ChecksumCache::default();
        checksums.insert(
            state(1, 100),
            at(200),
            ChecksumAlgorithm::Md5,
            "aa".to_owned(),
        );
        assert_eq!(
            checksums
                .get(&state(1, 100), ChecksumAlgorithm::Md5)
                .as_deref(),
            Some("aa")
        );
        assert_eq!(checksums.get(&state(1, 100), ChecksumAlgorithm::Sha1), None);
        assert_eq!(checksums.get(&state(1, 101), ChecksumAlgorithm::Md5), None);
        assert_eq!(checksums.get(&state(2, 100), ChecksumAlgorithm::Md5), None);
        checksums.insert(
            state(1, 101),
            at(200),
            ChecksumAlgorithm::Sha1,
            "bb".to_owned(),
        );
        assert_eq!(
            checksums.get(&state(1, 101), ChecksumAlgorithm::Md5),
            None,
            "of the old content"
        );
    }

    #[test]
    fn checksums_are_carried_over_a_rename_and_invalidated() {
        let checksums = ChecksumCache::default();
        checksums.insert(
            state(1, 100),
            at(200),
            ChecksumAlgorithm::Md5,
            "aa".to_owned(),
        );
        let renamed = FileIdentity {
            changed: at(105),
            ..state(1, 100)
        };
        checksums.carry_over(&state(1, 100), renamed, at(102));
        assert_eq!(
            checksums.get(&renamed, ChecksumAlgorithm::Md5).as_deref(),
            Some("aa")
        );
        checksums.carry_over(&state(1, 100), state(1, 106), at(102));
        assert_eq!(checksums.get(&state(1, 106), ChecksumAlgorithm::Md5), None);
        checksums.invalidate(&state(1, 99));
        assert_eq!(checksums.get(&renamed, ChecksumAlgorithm::Md5), None);
    }

    #[test]
    fn a_write_during_a_rename_invalidates_the_checksum() {
        let checksums = ChecksumCache::default();
        let old = state(1, 100);
        checksums.insert(old, at(101), ChecksumAlgorithm::Md5, "aa".to_owned());
        checksums.carry_over(&old, state(1, 102), at(102));
        assert_eq!(checksums.get(&state(1, 102), ChecksumAlgorithm::Md5), None);
        // Within the clock tick of the last write another write would not change the mtime.
        let renamed = FileIdentity {
            changed: at(102),
            ..old
        };
        checksums.carry_over(&old, renamed, at(100));
        assert_eq!(checksums.get(&renamed, ChecksumAlgorithm::Md5), None);
    }

    #[test]
    fn files_changed_within_the_clock_tick_or_while_they_are_read_are_not_cached() {
        let checksums = ChecksumCache::default();
        let file = tempfile::tempfile().unwrap();
        let state = FileIdentity::of(&file).unwrap();
        let known = || checksums.get(&state, ChecksumAlgorithm::Md5);
        let mut unread = UnreadFile {
            file,
            state,
            clock: state.changed,
        };
        checksums.insert_if_unchanged(&unread, ChecksumAlgorithm::Md5, "aa");
        assert_eq!(known(), None);
        unread.clock.seconds += 1;
        checksums.insert_if_unchanged(&unread, ChecksumAlgorithm::Md5, "aa");
        assert_eq!(known().as_deref(), Some("aa"));
        checksums.invalidate(&state);
        unread.file.set_len(1).unwrap();
        checksums.insert_if_unchanged(&unread, ChecksumAlgorithm::Md5, "aa");
        assert_eq!(known(), None);
    }

    #[test]
    fn the_number_of_files_is_bounded() {
        let checksums = ChecksumCache::default();
        for inode in 0..MAX_FILES as u64 + 10 {
            checksums.insert(
                state(inode, 1),
                at(2),
                ChecksumAlgorithm::Md5,
                String::new(),
            );
            checksums.invalidate(&state(inode, 1));
            checksums.insert(
                state(inode, 1),
                at(2),
                ChecksumAlgorithm::Md5,
                String::new(),
            );
        }
        let entries = checksums.entries.lock();
        assert_eq!(
            (entries.files.len(), entries.order.len()),
            (MAX_FILES, MAX_FILES)
        );
    }
}
