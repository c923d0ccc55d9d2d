//! Checksums of whole files that are known already.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use data::store::root::Identity;
use proto::checksum::Algorithm;

/// Files remembered; the one that came first gives way.
const MAX_FILES: usize = 16_384;

/// Remembered checksums, shared by all sessions. An entry answers only for a file that is in the
/// very state it was summed in, and only such states are kept that every later write changes
/// ([`Identity::tells_changes`]): whoever writes the file makes its entry void.
#[derive(Debug, Default)]
pub struct Sums {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    files: HashMap<(u64, u64), Entry>,
    /// The keys of `files`, first come first.
    order: VecDeque<(u64, u64)>,
}

#[derive(Debug)]
struct Entry {
    state: Identity,
    sums: Vec<(Algorithm, String)>,
}

impl Sums {
    /// The checksum of a file in this state, if known.
    pub(super) fn get(&self, state: &Identity, algorithm: Algorithm) -> Option<String> {
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
    pub(super) fn put(
        &self,
        state: Identity,
        clock: (i64, u64),
        algorithm: Algorithm,
        hex: String,
    ) {
        if !state.tells_changes(clock) {
            return;
        }
        let mut known = self.known();
        known.make_room(state.inode);
        let entry = known.files.entry(state.inode).or_insert(Entry {
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
    /// [`Sums::put`], from before `before`.
    pub(super) fn put_read(
        &self,
        before: Identity,
        after: &Identity,
        clock: (i64, u64),
        algorithm: Algorithm,
        hex: &str,
    ) {
        if before == *after {
            self.put(before, clock, algorithm, hex.to_owned());
        }
    }

    /// Forgets a file, because it is about to be written.
    pub(super) fn forget(&self, state: &Identity) {
        if let Some(entry) = self.known().files.get_mut(&state.inode) {
            entry.sums.clear();
        }
    }

    /// The file's name or rights were changed, not its content: what is known of `before` holds for
    /// `after`, if no write came between the two. A write would show in the time of modification,
    /// which must be older than `clock`, read before `before` was.
    pub(super) fn carry(&self, before: &Identity, after: Identity, clock: (i64, u64)) {
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

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn make_room(&mut self, inode: (u64, u64)) {
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

    fn state(inode: u64, changed: i64) -> Identity {
        Identity {
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
        let sums = Sums::default();
        sums.put(state(1, 100), at(200), Algorithm::Md5, "aa".to_owned());
        assert_eq!(
            sums.get(&state(1, 100), Algorithm::Md5).as_deref(),
            Some("aa")
        );
        assert_eq!(sums.get(&state(1, 100), Algorithm::Sha1), None);
        assert_eq!(sums.get(&state(1, 101), Algorithm::Md5), None);
        assert_eq!(sums.get(&state(2, 100), Algorithm::Md5), None);
        sums.put(state(1, 101), at(200), Algorithm::Sha1, "bb".to_owned());
        assert_eq!(
            sums.get(&state(1, 101), Algorithm::Md5),
            None,
            "of the old content"
        );
    }

    #[test]
    fn forgets_and_carries() {
        let sums = Sums::default();
        sums.put(state(1, 100), at(200), Algorithm::Md5, "aa".to_owned());
        let renamed = Identity {
            changed: (105, 0),
            ..state(1, 100)
        };
        sums.carry(&state(1, 100), renamed, at(102));
        assert_eq!(sums.get(&renamed, Algorithm::Md5).as_deref(), Some("aa"));
        sums.carry(&state(1, 100), state(1, 106), at(102));
        assert_eq!(sums.get(&state(1, 106), Algorithm::Md5), None);
        sums.forget(&state(1, 99));
        assert_eq!(sums.get(&renamed, Algorithm::Md5), None);
    }

    #[test]
    fn a_write_beside_a_rename_makes_the_sum_void() {
        let sums = Sums::default();
        let old = state(1, 100);
        sums.put(old, at(101), Algorithm::Md5, "aa".to_owned());
        sums.carry(&old, state(1, 102), at(102));
        assert_eq!(sums.get(&state(1, 102), Algorithm::Md5), None);
        // Within the tick of the last write, another would not show in its time.
        let renamed = Identity {
            changed: (102, 0),
            ..old
        };
        sums.carry(&old, renamed, at(100));
        assert_eq!(sums.get(&renamed, Algorithm::Md5), None);
    }

    #[test]
    fn fresh_changes_are_not_trusted() {
        let sums = Sums::default();
        let (old, new) = (state(1, 100), state(1, 101));
        sums.put(old, at(100), Algorithm::Md5, "aa".to_owned());
        assert_eq!(sums.get(&old, Algorithm::Md5), None);
        sums.put_read(old, &old, at(100), Algorithm::Md5, "aa");
        assert_eq!(sums.get(&old, Algorithm::Md5), None);
        sums.put_read(old, &new, at(200), Algorithm::Md5, "aa");
        assert_eq!(sums.get(&old, Algorithm::Md5), None);
        sums.put_read(old, &old, at(200), Algorithm::Md5, "aa");
        assert_eq!(sums.get(&old, Algorithm::Md5).as_deref(), Some("aa"));
    }

    #[test]
    fn memory_is_bounded() {
        let sums = Sums::default();
        for inode in 0..MAX_FILES as u64 + 10 {
            sums.put(state(inode, 1), at(2), Algorithm::Md5, String::new());
            sums.forget(&state(inode, 1));
            sums.put(state(inode, 1), at(2), Algorithm::Md5, String::new());
        }
        let known = sums.known();
        assert_eq!(
            (known.files.len(), known.order.len()),
            (MAX_FILES, MAX_FILES)
        );
    }
}
