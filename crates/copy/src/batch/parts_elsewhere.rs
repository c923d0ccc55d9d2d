//! Parts of a file that other processes move.

use std::sync::Arc;

use async_trait::async_trait;
use data::job::TransferControl;
use parking_lot::Mutex;
use proto::ranges::RangeSet;

use crate::storage::optional::SharedUpload;
use ftp::Failure;
use ftp::answers::SourceFacts;
use ftp::location::Location;

/// The part of a file that is missing at an unfinished destination which other processes can write, too.
pub(crate) struct MissingParts<'a> {
    pub(crate) source: &'a Location,
    pub(crate) facts: SourceFacts,
    /// The unfinished destination.
    pub(crate) destination: Location,
    /// The upload of the destination that the parts belong to, if it is at a storage that keeps uploads.
    pub(crate) upload: Option<SharedUpload>,
    pub(crate) missing: RangeSet,
    /// Counts what is stored.
    pub(crate) control: Arc<TransferControl>,
    /// Gets the ranges that are stored.
    pub(crate) stored: Arc<Mutex<RangeSet>>,
}

/// Other processes that move parts of files.
#[async_trait]
pub(crate) trait PartMover: Send + Sync {
    /// Whether a file of this size is divided.
    fn divides(&self, source: &Location, destination: &Location, size: u64) -> bool;

    /// Has the parts moved, each to disk as the options ask. The caller verifies the whole.
    ///
    /// # Errors
    /// That of the first part that failed; nobody writes to the destination any more.
    async fn move_parts(&self, parts: MissingParts<'_>) -> Result<(), Failure>;
}

/// The processes that move parts of the files of a batch, if there are any.
#[derive(Default)]
pub(crate) struct PartMovers(Mutex<Option<Arc<dyn PartMover>>>);

impl PartMovers {
    pub(crate) fn set(&self, mover: Arc<dyn PartMover>) {
        *self.0.lock() = Some(mover);
    }

    /// The processes have ended: whatever is copied from now on moves here.
    pub(crate) fn end(&self) {
        *self.0.lock() = None;
    }

    /// The processes, if they divide this file.
    pub(crate) fn dividing(
        &self,
        source: &Location,
        destination: &Location,
        size: Option<u64>,
    ) -> Option<Arc<dyn PartMover>> {
        let mover = self.0.lock().clone()?;
        let divides = size.is_some_and(|size| mover.divides(source, destination, size));
        divides.then_some(mover)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Willing;

    #[async_trait]
    impl PartMover for Willing {
        fn divides(&self, _: &Location, _: &Location, size: u64) -> bool {
            size > 0
        }

        async fn move_parts(&self, _: MissingParts<'_>) -> Result<(), Failure> {
            Ok(())
        }
    }

    #[test]
    fn nobody_divides_a_file_after_the_processes_have_ended() {
        let movers = PartMovers::default();
        let (from, to) = (Location::Local("a".into()), Location::Local("b".into()));
        let divides = |size| movers.dividing(&from, &to, size).is_some();
        assert!(!divides(Some(1)));
        movers.set(Arc::new(Willing));
        assert!(divides(Some(1)) && !divides(Some(0)) && !divides(None));
        movers.end();
        assert!(!divides(Some(1)));
    }
}
