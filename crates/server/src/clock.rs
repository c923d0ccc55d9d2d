//! The time of day that markers carry.

use std::time::SystemTime;

/// Seconds since 1970 (UTC), with a fraction; 0 before.
pub(crate) fn seconds_since_1970() -> f64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}
