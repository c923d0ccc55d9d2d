//! Checksums of objects that the server itself has computed, by their versions.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use proto::checksum::ChecksumAlgorithm;
use proto::path::VPath;

use crate::files::ChecksumUse;

/// Largest number of objects; the oldest entry is evicted first.
const MAX_OBJECTS: usize = 16_384;

/// A version of an object.
pub(super) type ObjectVersion = (VPath, String);

/// The checksums of versions that were read or stored as a whole, shared by all sessions.
#[derive(Debug, Default)]
pub(crate) struct VersionSums(Mutex<KnownVersions>);

#[derive(Debug, Default)]
struct KnownVersions {
    sums: HashMap<ObjectVersion, Vec<(ChecksumAlgorithm, String)>>,
    /// The keys of `sums` in order of insertion.
    order: VecDeque<ObjectVersion>,
}

impl VersionSums {
    /// A checksum of a version, if it is known.
    pub(super) fn get(
        &self,
        version: &ObjectVersion,
        algorithm: ChecksumAlgorithm,
    ) -> Option<String> {
        let known = self.0.lock();
        let mut sums = known.sums.get(version)?.iter();
        let (_, hex) = sums.find(|(of, _)| *of == algorithm)?;
        Some(hex.clone())
    }

    pub(super) fn insert(&self, version: ObjectVersion, algorithm: ChecksumAlgorithm, hex: &str) {
        let mut known = self.0.lock();
        if !known.sums.contains_key(&version) {
            if known.order.len() >= MAX_OBJECTS
                && let Some(oldest) = known.order.pop_front()
            {
                known.sums.remove(&oldest);
            }
            known.order.push_back(version.clone());
        }
        let sums = known.sums.entry(version).or_default();
        sums.retain(|(of, _)| *of != algorithm);
        sums.push((algorithm, hex.to_owned()));
    }
}

/// Keeps the checksum of a version that is read.
#[derive(Debug)]
pub(super) struct VersionChecksum {
    /// `None`: nothing would tell another version from it.
    pub(super) version: Option<ObjectVersion>,
    pub(super) sums: Arc<VersionSums>,
}

impl ChecksumUse for VersionChecksum {
    fn keep(&self, algorithm: ChecksumAlgorithm, hex: &str) {
        // The bytes that were read are of this version, or the read has failed.
        if let Some(version) = &self.version {
            self.sums.insert(version.clone(), algorithm, hex);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_one_version_and_the_oldest_are_forgotten() {
        let sums = VersionSums::default();
        let of = |tag: &str| (VPath::root(), tag.to_owned());
        let md5 = ChecksumAlgorithm::Md5;
        sums.insert(of("1"), md5, "a");
        assert_eq!(sums.get(&of("1"), md5).as_deref(), Some("a"));
        assert_eq!(sums.get(&of("2"), md5), None);
        assert_eq!(sums.get(&of("1"), ChecksumAlgorithm::Sha1), None);
        for n in 0..MAX_OBJECTS {
            sums.insert(of(&format!("n{n}")), md5, "b");
        }
        assert_eq!(sums.get(&of("1"), md5), None);
        assert_eq!(sums.0.lock().sums.len(), MAX_OBJECTS);
    }
}
