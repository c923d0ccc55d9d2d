//! How far the files in flight are: totals for progress lines and samples for traces.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use data::job::Control;
use data::os::TcpInfo;

/// All files of a batch.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    active: Mutex<Vec<Arc<FileMeter>>>,
    /// Bytes moved for files that are no longer active.
    moved: AtomicU64,
    /// Safe bytes of files that are no longer active.
    safe: AtomicU64,
}

/// Totals at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Bytes moved in this run.
    pub(crate) moved: u64,
    /// Bytes safe in all.
    pub(crate) safe: u64,
    /// Streams open.
    pub(crate) streams: u64,
}

/// One file in flight.
#[derive(Debug)]
pub(crate) struct FileMeter {
    /// For traces.
    pub(crate) name: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Safe before the running attempt.
    base: u64,
    /// Moved by earlier attempts.
    earlier: u64,
    /// The running attempt.
    control: Option<Arc<Control>>,
    /// Bytes that the servers of a third-party transfer reported.
    reported: u64,
}

impl Meter {
    /// A file begins; it is in the totals until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>, name: String) -> Metered {
        let file = Arc::new(FileMeter {
            name,
            state: Mutex::default(),
        });
        lock(&self.active).push(Arc::clone(&file));
        Metered {
            meter: Arc::clone(self),
            file,
        }
    }

    /// Totals now.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals {
            moved: self.moved.load(Ordering::Relaxed),
            safe: self.safe.load(Ordering::Relaxed),
            streams: 0,
        };
        for file in lock(&self.active).iter() {
            totals.moved += file.moved();
            totals.safe += file.safe();
            totals.streams += file.streams();
        }
        totals
    }

    /// The files in flight now.
    pub(crate) fn active(&self) -> Vec<Arc<FileMeter>> {
        lock(&self.active).clone()
    }
}

/// A file's place in the totals.
#[derive(Debug)]
pub(crate) struct Metered {
    meter: Arc<Meter>,
    file: Arc<FileMeter>,
}

impl std::ops::Deref for Metered {
    type Target = FileMeter;

    fn deref(&self) -> &FileMeter {
        &self.file
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        let mut active = lock(&self.meter.active);
        active.retain(|file| !Arc::ptr_eq(file, &self.file));
        let relaxed = Ordering::Relaxed;
        self.meter.moved.fetch_add(self.file.moved(), relaxed);
        self.meter.safe.fetch_add(self.file.safe(), relaxed);
    }
}

impl FileMeter {
    /// An attempt begins; `base` bytes are safe already.
    pub(crate) fn attempt(&self, control: Arc<Control>, base: u64) {
        let mut state = lock(&self.state);
        state.earlier += state.current();
        state.reported = 0;
        state.base = base;
        state.control = Some(control);
    }

    /// A third-party or local copy has moved so much in this attempt.
    pub(crate) fn report(&self, bytes: u64) {
        lock(&self.state).reported = bytes;
    }

    /// Bytes moved by all attempts.
    pub(crate) fn moved(&self) -> u64 {
        let state = lock(&self.state);
        state.earlier + state.current()
    }

    fn safe(&self) -> u64 {
        let state = lock(&self.state);
        state.base + state.current()
    }

    fn streams(&self) -> u64 {
        let state = lock(&self.state);
        state.control.as_ref().map_or(0, |c| c.streams())
    }

    /// The kernel's view of this file's streams.
    pub(crate) fn sample(&self) -> Vec<TcpInfo> {
        let control = lock(&self.state).control.clone();
        control.map_or_else(Vec::new, |c| c.sample())
    }
}

impl State {
    fn current(&self) -> u64 {
        let local = self.control.as_ref().map_or(0, |c| c.bytes());
        local.max(self.reported)
    }
}

/// Counters are whole after every statement, so a panic elsewhere does not spoil them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_outlive_files_and_count_every_attempt() {
        let meter = Arc::new(Meter::default());
        let one = meter.begin("one".to_owned());
        one.attempt(Arc::new(Control::new()), 100);
        one.report(30);
        let totals = meter.totals();
        assert_eq!((totals.moved, totals.safe), (30, 130));
        one.attempt(Arc::new(Control::new()), 120);
        one.report(5);
        let totals = meter.totals();
        assert_eq!((totals.moved, totals.safe), (35, 125));
        drop(one);
        assert_eq!(meter.totals(), totals);
        assert!(meter.active().is_empty());
    }
}
