//! Contents of files that are read again when the files change.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::x509::TrustError;

/// Time for which a content counts without a look at its file.
#[cfg(not(test))]
const FRESH: Duration = Duration::from_secs(1);
/// Tests change files and see the effect at once.
#[cfg(test)]
const FRESH: Duration = Duration::ZERO;

/// Age of a change, seconds, from which on another change has another time: that of a file system
/// has steps of up to 2 s.
const SETTLED: i64 = 2;

/// The content of files, read again when a file is another one or has changed. Each file is read by
/// one thread at a time; the others wait for it.
#[derive(Debug)]
pub(super) struct FileCache<T> {
    files: Mutex<HashMap<PathBuf, Arc<ContentSlot<T>>>>,
    fresh: Duration,
}

type ContentSlot<T> = Mutex<Option<CachedContent<T>>>;

#[derive(Debug)]
struct CachedContent<T> {
    content: Arc<T>,
    version: FileVersion,
    /// The file was changed long enough before it was read: with this version it is the same.
    is_settled: bool,
    checked: Instant,
}

/// The version of a file: device, inode, size, time of modification and
/// change (seconds, nanoseconds).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileVersion {
    fn of(metadata: &Metadata) -> Self {
        Self {
            file: (metadata.dev(), metadata.ino()),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    fn is_settled(&self) -> bool {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(0));
        now - self.changed.0 > SETTLED
    }
}

impl<T> Default for FileCache<T> {
    fn default() -> Self {
        Self::with_freshness(FRESH)
    }
}

impl<T> FileCache<T> {
    /// Looks at a file at most once in `fresh`.
    fn with_freshness(fresh: Duration) -> Self {
        Self {
            files: Mutex::default(),
            fresh,
        }
    }

    /// The content of a file; `None` if there is no file of this name.
    pub(super) fn get(
        &self,
        path: &Path,
        read: impl FnOnce(&Path) -> Result<T, TrustError>,
    ) -> Result<Option<Arc<T>>, TrustError> {
        let known = self.files.lock().get(path).cloned();
        if let Some(known) = known
            && let Some(known) = &*known.lock()
            && known.checked.elapsed() < self.fresh
        {
            return Ok(Some(Arc::clone(&known.content)));
        }
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // Peers choose the names: nothing is kept of those without a file.
                self.files.lock().remove(path);
                return Ok(None);
            }
            Err(error) => return Err(TrustError::of_file(path, "read", &error)),
        };
        let version = FileVersion::of(&metadata);
        let file = Arc::clone(self.files.lock().entry(path.to_owned()).or_default());
        let mut file = file.lock();
        if let Some(known) = &mut *file
            && known.version == version
            && (known.is_settled || known.checked.elapsed() < self.fresh)
        {
            known.checked = Instant::now();
            return Ok(Some(Arc::clone(&known.content)));
        }
        let is_settled = version.is_settled();
        let content = Arc::new(read(path)?);
        *file = Some(CachedContent {
            content: Arc::clone(&content),
            version,
            is_settled,
            checked: Instant::now(),
        });
        Ok(Some(content))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    /// The content of a file, and whether it was read for that.
    fn get(cache: &FileCache<Vec<u8>>, path: &Path) -> (Option<Vec<u8>>, bool) {
        let mut is_read = false;
        let content = cache.get(path, |path| {
            is_read = true;
            Ok(fs::read(path).unwrap())
        });
        (content.unwrap().map(|content| content.to_vec()), is_read)
    }

    /// Gives a file a change that is long ago.
    fn settle(cache: &FileCache<Vec<u8>>, path: &Path) {
        let file = cache.files.lock().get(path).cloned().unwrap();
        file.lock().as_mut().unwrap().is_settled = true;
    }

    #[test]
    fn a_file_is_read_again_only_if_it_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let cache = FileCache::with_freshness(Duration::ZERO);
        assert_eq!(get(&cache, &path), (None, false));
        assert!(cache.files.lock().is_empty());
        fs::write(&path, "one").unwrap();
        assert_eq!(get(&cache, &path), (Some(b"one".to_vec()), true));
        // A change in the same tick of the clock would not be seen.
        assert_eq!(get(&cache, &path), (Some(b"one".to_vec()), true));
        settle(&cache, &path);
        assert_eq!(get(&cache, &path), (Some(b"one".to_vec()), false));
        fs::write(&path, "other").unwrap();
        assert_eq!(get(&cache, &path), (Some(b"other".to_vec()), true));
        fs::remove_file(&path).unwrap();
        assert_eq!(get(&cache, &path), (None, false));
        assert!(cache.files.lock().is_empty());
    }

    #[test]
    fn a_fresh_content_counts_without_a_look_at_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "one").unwrap();
        let mut cache = FileCache::with_freshness(LONG);
        get(&cache, &path);
        fs::remove_file(&path).unwrap();
        assert_eq!(get(&cache, &path), (Some(b"one".to_vec()), false));
        cache.fresh = Duration::ZERO;
        assert_eq!(get(&cache, &path), (None, false));
    }

    #[test]
    fn only_a_change_of_some_seconds_ago_is_settled() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let metadata = File::open(file.path()).unwrap().metadata().unwrap();
        let mut version = FileVersion::of(&metadata);
        assert!(!version.is_settled());
        version.changed.0 -= 10;
        assert!(version.is_settled());
    }
}
