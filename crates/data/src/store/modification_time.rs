//! Modification times, as far as a file system keeps them: Linux clamps a time that is out of its range without an error
//! (ext4 ends in 2446, or in 2038), and a coarse one rounds it.

use std::os::fd::AsFd;

use proto::timestamp::Timestamp;
use rustix::io::Errno;

use crate::os::{attributes, stat};

/// Largest difference that is the rounding of a file system, seconds: that of FAT.
const COARSEST: u64 = 2;

/// Sets the modification time of an open or located (O_PATH) file, and returns the one that the file has then. The access
/// time stays.
///
/// # Errors
/// Those of utimensat(2). The file system cannot keep such a time: ERANGE; the file has the one that it had.
pub fn set_modified(file: impl AsFd, time: Timestamp) -> Result<Timestamp, Errno> {
    let before = rustix::fs::fstat(&file)?;
    attributes::set_modified(&file, time.0, 0)?;
    let kept = rustix::fs::fstat(&file)?.st_mtime;
    if kept.abs_diff(time.0) <= COARSEST {
        return Ok(Timestamp(kept));
    }
    let (seconds, nanoseconds) = stat::modified(&before);
    attributes::set_modified(&file, seconds, nanoseconds)?;
    Err(Errno::RANGE)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_time_is_kept_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create_new(dir.path().join("f")).unwrap();
        let modified = || rustix::fs::fstat(&file).unwrap().st_mtime;
        for seconds in [
            0,
            -1000,
            1_000_000_001,
            i64::from(i32::MAX) + 1,
            253_402_300_799,
        ] {
            let before = modified();
            match set_modified(&file, Timestamp(seconds)) {
                Ok(kept) => {
                    assert_eq!(kept.0, modified());
                    assert!(kept.0.abs_diff(seconds) <= COARSEST, "{seconds}");
                }
                Err(error) => {
                    assert_eq!(error, Errno::RANGE);
                    assert_eq!(modified(), before, "{seconds}");
                }
            }
        }
    }
}
