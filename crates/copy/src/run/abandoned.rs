//! Journals of batches that nobody will continue: a command that ended early and is never repeated leaves its journal.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::local::local_name::LocalName;
use crate::local::lock_file::{lock_existing, remove_if_same};

/// Extension of the names of journals of batches.
pub(crate) const EXTENSION: &str = "batch";
/// Time since the last change after which a journal is abandoned. A list of files so old says little about the files.
const ABANDONED_AFTER: Duration = Duration::from_secs(60 * 24 * 3600);
/// Most journals that are removed when a batch begins.
const MAX_REMOVED: usize = 8;
/// Most names that are looked at.
const MAX_LOOKED_AT: usize = 1000;

/// Removes some abandoned journals from a directory. One that is locked belongs to a batch that runs, and stays. Errors are
/// ignored: the next batch tries again.
pub(crate) fn remove_some(directory: &Path, now: SystemTime) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    let journals = entries
        .take(MAX_LOOKED_AT)
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|found| found == EXTENSION));
    let removed = journals
        .filter(|path| is_removed(path, now))
        .take(MAX_REMOVED);
    let count = removed.count();
    if count > 0 {
        tracing::debug!(count, "abandoned journals of batches removed");
    }
}

/// Removes a journal if it is abandoned.
fn is_removed(path: &Path, now: SystemTime) -> bool {
    let is_old = |found: fs::Metadata| {
        let changed = found.modified().ok();
        changed.is_some_and(|changed| {
            now.duration_since(changed)
                .is_ok_and(|age| age > ABANDONED_AFTER)
        })
    };
    // Most journals are not locked for a look.
    if !fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && is_old(found)) {
        return false;
    }
    let Ok(name) = LocalName::at(path) else {
        return false;
    };
    let Ok(Some(file)) = lock_existing(&name) else {
        return false;
    };
    // Its batch may have gone on, and ended, since the look.
    let is_abandoned = file.metadata().is_ok_and(is_old);
    if is_abandoned {
        remove_if_same(&name, &file);
    }
    is_abandoned
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::PathBuf;

    use super::*;
    use crate::local::lock_file::{LockedOpen, open_locked};

    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// A file that was changed so many days ago.
    fn aged(directory: &Path, name: &str, days: u32) -> PathBuf {
        let path = directory.join(name);
        fs::write(&path, "journal").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - DAY * days).unwrap();
        path
    }

    #[test]
    fn journals_that_nobody_holds_are_removed_after_sixty_days() {
        let dir = tempfile::tempdir().unwrap();
        let old = aged(dir.path(), "old.batch", 61);
        let kept = [
            aged(dir.path(), "recent.batch", 59),
            aged(dir.path(), "held.batch", 100),
            aged(dir.path(), "other", 100),
            aged(dir.path(), "other.journal", 100),
        ];
        let link = dir.path().join("link.batch");
        std::os::unix::fs::symlink("other", &link).unwrap();
        let name = LocalName::at(&kept[1]).unwrap();
        let LockedOpen::Locked(held) = open_locked(&name).unwrap() else {
            panic!("no locks here");
        };
        remove_some(dir.path(), SystemTime::now());
        assert!(!old.exists());
        assert!(kept.iter().all(|path| path.exists()) && link.exists());
        // The lock was all that kept it.
        drop(held);
        remove_some(dir.path(), SystemTime::now());
        assert!(!kept[1].exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4);
    }

    #[test]
    fn some_abandoned_journals_are_removed_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..MAX_REMOVED + 3 {
            aged(dir.path(), &format!("{n}.batch"), 61);
        }
        remove_some(dir.path(), SystemTime::now());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
        remove_some(&dir.path().join("missing"), SystemTime::now());
    }

    #[test]
    fn a_clock_that_was_wrong_removes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = aged(dir.path(), "future.batch", 0);
        remove_some(dir.path(), SystemTime::now() - DAY * 100);
        assert!(path.exists());
    }
}
