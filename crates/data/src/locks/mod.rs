//! Locks over plain data. A panic of another thread leaves plain data whole, so that the others go on with
//! it: nothing here is poisoned.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The data, locked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The data, which nobody else can reach any more.
pub(crate) fn into_unlocked<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The data, locked again after a notice (or without one: condition variables wake for no reason, too).
pub(crate) fn wait_notified<'t, T>(
    notice: &Condvar,
    guard: MutexGuard<'t, T>,
) -> MutexGuard<'t, T> {
    notice.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
