//! A memory budget for announced bundles, shared by all sessions. A client holds the memory of its announcements for as
//! long as it likes, and compressed announcements cost it next to nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory of the announcements of all sessions together, bytes.
const BUDGET: usize = 1 << 30;
/// Memory that each session has besides, bytes: large bundles never make small ones fail.
const FREE: usize = 256 << 10;
/// Memory of a file besides its path, until its bundle has ended.
const PER_FILE: usize = 128;

/// The memory that is left, bytes.
#[derive(Debug, Clone)]
pub struct AnnouncementMemory(Arc<AtomicUsize>);

impl Default for AnnouncementMemory {
    fn default() -> Self {
        Self::new(BUDGET)
    }
}

impl AnnouncementMemory {
    /// A budget of so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    fn take(&self, bytes: usize) -> bool {
        // Relaxed: the number alone is shared.
        let left = |left: usize| left.checked_sub(bytes);
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        taken.is_ok()
    }
}

/// The memory of one bundle; dropping it returns what was taken of the budget.
#[derive(Debug, Default)]
pub(super) struct AnnouncementShare {
    /// Bytes of the bundle.
    used: usize,
    /// The part of them that is above the free one, and the budget that it was taken from.
    taken: Option<(AnnouncementMemory, usize)>,
}

impl AnnouncementShare {
    /// Extends the share by a file with a path of so many bytes; `false` if the budget is exhausted.
    pub(super) fn add_file(&mut self, memory: &AnnouncementMemory, path_bytes: usize) -> bool {
        self.used += PER_FILE + path_bytes;
        let (_, taken) = self.taken.get_or_insert_with(|| (memory.clone(), 0));
        let more = self.used.saturating_sub(FREE).saturating_sub(*taken);
        let has_room = memory.take(more);
        *taken += if has_room { more } else { 0 };
        has_room
    }
}

impl Drop for AnnouncementShare {
    fn drop(&mut self) {
        if let Some((memory, taken)) = &self.taken {
            memory.0.fetch_add(*taken, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_above_the_free_memory_come_from_one_budget_and_return_to_it() {
        let memory = AnnouncementMemory::new(2 * PER_FILE);
        // A share that has used its free memory.
        let share = || {
            let mut share = AnnouncementShare::default();
            assert!(share.add_file(&memory, FREE - PER_FILE));
            share
        };
        let mut shares = [share(), share(), share()];
        let added = shares.each_mut().map(|share| share.add_file(&memory, 0));
        assert_eq!(added, [true, true, false]);
        assert_eq!(memory.0.load(Ordering::Relaxed), 0);
        let [first, _second, third] = shares;
        drop((first, third));
        assert_eq!(memory.0.load(Ordering::Relaxed), PER_FILE);
        assert!(share().add_file(&memory, 0));
    }
}
