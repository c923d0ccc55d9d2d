//! Attributes of files as calls take them.

use rustix::fs::{Timespec, Timestamps, UTIME_OMIT};

/// A modification time, seconds since 1970 and nanoseconds, without a change of the access time.
pub(in crate::os) fn modified_alone(seconds: i64, nanoseconds: u64) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: seconds,
            tv_nsec: i64::try_from(nanoseconds).unwrap_or(0),
        },
    }
}
