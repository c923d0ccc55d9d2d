//! Locks over plain data. A panic of another thread leaves plain data intact, so lock poisoning is
//! ignored.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks the data.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
