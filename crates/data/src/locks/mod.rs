//! Locks over plain data. A panic of another thread leaves plain data intact, so lock poisoning is
//! ignored.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Locks the data.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the data out of a mutex that nobody else can reach any more.
pub(crate) fn into_unlocked<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a notification and locks the data again. The wait may also end without a notification
/// (spurious wake-up).
pub(crate) fn wait_notified<'t, T>(
    notice: &Condvar,
    guard: MutexGuard<'t, T>,
) -> MutexGuard<'t, T> {
    notice.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
