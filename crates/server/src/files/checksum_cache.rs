//! Checksums of whole files that are known already.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use data::store::root::FileIdentity;
use proto::checksum::ChecksumAlgorithm;

/// Files remembered; the one that came first gives way.
const MAX_FILES: usize = 16_384;

/// Remembered checksums, shared by all sessions. An entry answers only for a file that is in the
/// very state it was summed in, and only such states are kept that every later write changes
/// ([`FileIdentity::detects_changes_since`]): whoever writes the file makes its entry void.
#[derive(Debug, Default)]
pub struct ChecksumCache {
    known: Mutex<CacheEntries>,
}

#[derive(Debug, Default)]
struct CacheEntries {
    files: HashMap<(u64, u64), CachedFile>,
    /// The keys of `files`, first come first.
    order: VecDeque<(u64, u64)>,
}

#[derive(Debug)]
struct CachedFile {
    state: FileIdentity,
    sums: Vec<(ChecksumAlgorithm, String)>,
}

impl ChecksumCache {
    /// The checksum of a file in this state, if known.
    pub(super) fn get(&self, state: &FileIdentity, algorithm: ChecksumAlgorithm) -> Option<String> {
        let known = self.known();
        let entry = known.files.get(&state.inode)?;
        if entry.state != *state {
            return None;
        }
        let found = entry.sums.iter().find(|(of, _)| *of == algorithm);
        found.map(|(_, hex)| hex.clone())
    }

    /// Remembers what was summed; `clock` is [`data::store::root::file_clock`] from before the file
    /// was seen in this state. A sum of a state that does not tell every change is not kept: the
    /// file is read when it is asked for.
    pub(super) fn insert(
        &self,
        state: FileIdentity,
        clock: (i64, u64),
        algorithm: ChecksumAlgorithm,
        hex: String,
    ) {
        if !state.detects_changes_since(clock) {
            return;
        }
        let mut known = self.known();
        known.evict_oldest(state.inode);
        let entry = known.files.entry(state.inode).or_insert(CachedFile {
            state,
            sums: Vec::new(),
        });
        if entry.state != state {
            entry.state = state;
            entry.sums.clear();
        }
        entry.sums.retain(|(of, _)| *of != algorithm);
        entry.sums.push((algorithm, hex));
    }

    /// Remembers what was read and summed, unless the file changed meanwhile; `clock` as for
    /// [`ChecksumCache::insert`], from before `before`.
    pub(super) fn insert_if_unchanged(
        &self,
        before: FileIdentity,
        after: &FileIdentity,
        clock: (i64, u64),
        algorithm: ChecksumAlgorithm,
        hex: &str,
    ) {
        if before == *after {
            self.insert(before, clock, algorithm, hex.to_owned());
        }
    }

    /// Forgets a file, because it is about to be written.
    pub(super) fn invalidate(&self, state: &FileIdentity) {
        if let Some(entry) = self.known().files.get_mut(&state.inode) {
            entry.sums.clear();
        }
    }

    /// The file's name or rights were changed, not its content: what is known of `before` holds for
    /// `after`, if no write came between the two. A write would show in the time of modification,
    /// which must be older than `clock`, read before `before` was.
    pub(super) fn carry_over(&self, before: &FileIdentity, after: FileIdentity, clock: (i64, u64)) {
        let untouched = before.inode == after.inode
            && before.size == after.size
            && before.modified == after.modified
            && before.modified < clock;
        if untouched
            && let Some(entry) = self.known().files.get_mut(&after.inode)
            && entry.state == *before
        {
            entry.state = after;
        }
    }

    fn known(&self) -> MutexGuard<'_, CacheEntries> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheEntries {
    fn evict_oldest(&mut self, inode: (u64, u64)) {
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
            modified: (changed, 0),
            changed: (changed, 0),
        }
    }

    /// The clock that many seconds after 1970.
    fn at(seconds: i64) -> (i64, u64) {
        (seconds, 0)
    }

    #[test]
    fn answers_for_the_very_state() {
        let sums = ChecksumCache::default();
        sums.insert(
            state(1, 100),
            at(200),
            ChecksumAlgorithm::Md5,
            "aa".to_owned(),
        );
        assert_eq!(
            sums.get(&state(1, 100), ChecksumAlgorithm::Md5).as_deref(),
            Some("aa")
        );
        assert_eq!(sums.get(&state(1, 100), ChecksumAlgorithm::Sha1), None);
        assert_eq!(sums.get(&state(1, 101), ChecksumAlgorithm::Md5), None);
        assert_eq!(sums.get(&state(2, 100), ChecksumAlgorithm::Md5), None);
        sums.insert(
            state(1, 101),
            at(200),
            ChecksumAlgorithm::Sha1,
            "bb".to_owned(),
        );
        assert_eq!(
            sums.get(&state(1, 101), ChecksumAlgorithm::Md5),
            None,
            "of the old content"
        );
    }

    #[test]
    fn forgets_and_carries() {
        let sums = ChecksumCache::default();
        sums.insert(
            state(1, 100),
            at(200),
            ChecksumAlgorithm::Md5,
            "aa".to_owned(),
        );
        let renamed = FileIdentity {
            changed: (105, 0),
            ..state(1, 100)
        };
        sums.carry_over(&state(1, 100), renamed, at(102));
        assert_eq!(
            sums.get(&renamed, ChecksumAlgorithm::Md5).as_deref(),
            Some("aa")
        );
        sums.carry_over(&state(1, 100), state(1, 106), at(102));
        assert_eq!(sums.get(&state(1, 106), ChecksumAlgorithm::Md5), None);
        sums.invalidate(&state(1, 99));
        assert_eq!(sums.get(&renamed, ChecksumAlgorithm::Md5), None);
    }

    #[test]
    fn a_write_beside_a_rename_makes_the_sum_void() {
        let sums = ChecksumCache::default();
        let old = state(1, 100);
        sums.insert(old, at(101), ChecksumAlgorithm::Md5, "aa".to_owned());
        sums.carry_over(&old, state(1, 102), at(102));
        assert_eq!(sums.get(&state(1, 102), ChecksumAlgorithm::Md5), None);
        // Within the tick of the last write, another would not show in its time.
        let renamed = FileIdentity {
            changed: (102, 0),
            ..old
        };
        sums.carry_over(&old, renamed, at(100));
        assert_eq!(sums.get(&renamed, ChecksumAlgorithm::Md5), None);
    }

    #[test]
    fn fresh_changes_are_not_trusted() {
        let sums = ChecksumCache::default();
        let (old, new) = (state(1, 100), state(1, 101));
        sums.insert(old, at(100), ChecksumAlgorithm::Md5, "aa".to_owned());
        assert_eq!(sums.get(&old, ChecksumAlgorithm::Md5), None);
        sums.insert_if_unchanged(old, &old, at(100), ChecksumAlgorithm::Md5, "aa");
        assert_eq!(sums.get(&old, ChecksumAlgorithm::Md5), None);
        sums.insert_if_unchanged(old, &new, at(200), ChecksumAlgorithm::Md5, "aa");
        assert_eq!(sums.get(&old, ChecksumAlgorithm::Md5), None);
        sums.insert_if_unchanged(old, &old, at(200), ChecksumAlgorithm::Md5, "aa");
        assert_eq!(
            sums.get(&old, ChecksumAlgorithm::Md5).as_deref(),
            Some("aa")
        );
    }

    #[test]
    fn memory_is_bounded() {
        let sums = ChecksumCache::default();
        for inode in 0..MAX_FILES as u64 + 10 {
            sums.insert(
                state(inode, 1),
                at(2),
                ChecksumAlgorithm::Md5,
                String::new(),
            );
            sums.invalidate(&state(inode, 1));
            sums.insert(
                state(inode, 1),
                at(2),
                ChecksumAlgorithm::Md5,
                String::new(),
            );
        }
        let known = sums.known();
        assert_eq!(
            (known.files.len(), known.order.len()),
            (MAX_FILES, MAX_FILES)
        );
    }
}
