//! Forces file systems to disk, once for all bundles that ask at the same time.
//!
//! syncfs(2) takes long and writes what everybody has written before. So one that begins after a bundle has asked serves
//! this bundle and all others that have asked by then.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex};

use crate::os::disk;

/// The file systems on which bundles are being stored, by device.
static IN_USE: Mutex<BTreeMap<u64, Weak<SharedSync>>> = Mutex::new(BTreeMap::new());

/// A file system on which bundles are being stored.
#[derive(Debug)]
pub(super) struct SharedSync {
    /// A file of the first of these bundles. The kernel reports a failed write to those files that were open then; this
    /// one was opened before any other of these bundles wrote.
    file: File,
    rounds: SharedRounds,
}

impl SharedSync {
    /// The file system of `file`, which is on `device`. It is forgotten when the last bundle has dropped it, or when it
    /// has failed.
    ///
    /// # Errors
    /// Those of dup(2).
    pub(super) fn of(file: &File, device: u64) -> io::Result<Arc<Self>> {
        let mut in_use = IN_USE.lock();
        let known = in_use.get(&device).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| !known.rounds.has_failed()) {
            return Ok(known);
        }
        let shared = Arc::new(Self {
            file: file.try_clone()?,
            rounds: SharedRounds::default(),
        });
        in_use.retain(|_, known| known.strong_count() > 0);
        in_use.insert(device, Arc::downgrade(&shared));
        Ok(shared)
    }

    /// Returns when everything that this thread has written there before the call is on the disk.
    ///
    /// # Errors
    /// The disk. All bundles that share this get the error, since nobody knows whose bytes are lost.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.rounds.join(|| disk::sync_file_system(&self.file))
    }
}

/// An action that serves all callers who wait when it begins.
#[derive(Debug, Default)]
struct SharedRounds {
    state: Mutex<RoundState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct RoundState {
    /// Rounds that have begun; at most one of them has not ended.
    begun: u64,
    ended: u64,
    /// Callers that wait for a round of another one.
    waiting: usize,
    /// The error of the last round. There is none after it.
    failed: Option<(io::ErrorKind, String)>,
}

impl SharedRounds {
    /// Returns after a round that began after this call, which runs `action` on the thread of one of the callers.
    fn join(&self, action: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state.lock();
        // The round that is running has begun before.
        let needed = state.begun + 1;
        while state.failed.is_none() && state.ended < needed {
            if state.begun > state.ended {
                state.waiting += 1;
                self.ended.wait(&mut state);
                state.waiting -= 1;
                continue;
            }
            state.begun += 1;
            tracing::trace!(others = state.waiting, "bundles are forced to disk");
            drop(state);
            let result = action();
            state = self.state.lock();
            state.ended = state.begun;
            state.failed = result.err().map(|error| (error.kind(), error.to_string()));
            self.ended.notify_all();
            break;
        }
        match &state.failed {
            None => Ok(()),
            Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
        }
    }

    fn has_failed(&self) -> bool {
        self.state.lock().failed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_caller_returns_after_a_round_that_began_after_its_call() {
        let rounds = SharedRounds::default();
        let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let before = begun.load(Ordering::SeqCst);
                        let round = || {
                            begun.fetch_add(1, Ordering::SeqCst);
                            thread::yield_now();
                            ended.fetch_add(1, Ordering::SeqCst);
                            Ok(())
                        };
                        rounds.join(round).unwrap();
                        assert!(ended.load(Ordering::SeqCst) > before);
                    }
                });
            }
        });
        assert!(begun.load(Ordering::SeqCst) <= 400);
    }

    #[test]
    fn callers_that_wait_for_a_running_round_share_the_next_one() {
        let rounds = SharedRounds::default();
        let count = AtomicU64::new(0);
        let (has_begun, begins) = mpsc::channel();
        let (go_on, may_end) = mpsc::channel::<()>();
        let counted = || {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                rounds.join(move || {
                    has_begun.send(()).unwrap();
                    may_end.recv().unwrap();
                    Ok(())
                })
            });
            begins.recv().unwrap();
            let callers: Vec<_> = (0..5)
                .map(|_| scope.spawn(|| rounds.join(counted)))
                .collect();
            while rounds.state.lock().waiting < callers.len() {
                thread::yield_now();
            }
            go_on.send(()).unwrap();
            for caller in callers {
                caller.join().unwrap().unwrap();
            }
        });
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn an_error_is_that_of_all_who_share_it_and_a_new_bundle_begins_anew() {
        let directory = tempfile::tempdir().unwrap();
        let file = File::create(directory.path().join("f")).unwrap();
        // No device has this number, so that other tests do not share it.
        let device = u64::MAX;
        let shared = SharedSync::of(&file, device).unwrap();
        let also = SharedSync::of(&file, device).unwrap();
        assert!(Arc::ptr_eq(&shared, &also));
        shared.sync().unwrap();
        let full = || Err(io::Error::from(io::ErrorKind::StorageFull));
        let kind = |result: io::Result<()>| result.unwrap_err().kind();
        assert_eq!(kind(shared.rounds.join(full)), io::ErrorKind::StorageFull);
        assert_eq!(kind(also.sync()), io::ErrorKind::StorageFull);
        let fresh = SharedSync::of(&file, device).unwrap();
        assert!(!Arc::ptr_eq(&fresh, &shared));
        fresh.sync().unwrap();
    }
}
