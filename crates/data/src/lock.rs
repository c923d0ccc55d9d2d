//! Locks over plain data.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A panic of another thread leaves plain data whole; go on with it.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
