//! Large files whose parts are moved by several nodes at the same time, into one unfinished file that all of them see. The process
//! that has the plan holds that file's lock and journal, verifies it as a whole, and gives it its name.

use std::sync::Arc;

use async_trait::async_trait;
use proto::ranges::RangeSet;

use super::divided::DividedFile;
use super::messages::MoveKind;
use super::pieces::{Piece, Pieces};
use crate::batch::parts_elsewhere::{MissingParts, PartMover};
use crate::plan::{PartInPlace, PlannedFile};
use ftp::Failure;
use ftp::location::{Location, Scheme};

/// Smallest part, bytes: below, a part ends before its connections have reached their speed.
const MIN_PART: u64 = 16 << 20;
/// Size from which a file is divided, bytes.
const DIVIDED_FROM: u64 = 128 << 20;
/// Largest part, bytes: so much moves again when a node is lost.
const MAX_PART: u64 = 1 << 30;
/// Parts that each node gets of a file, if it is large enough: a slow one then takes fewer.
const PARTS_FOR_EACH: u64 = 8;

/// Divides files among nodes.
pub(super) struct FileParts {
    pieces: Arc<Pieces>,
    nodes: usize,
}

impl FileParts {
    pub(super) fn new(pieces: &Arc<Pieces>, nodes: usize) -> Self {
        Self {
            pieces: Arc::clone(pieces),
            nodes,
        }
    }

    /// Cuts ranges into parts, each of a multiple of `unit` bytes if it does not end with its range.
    fn parts(&self, missing: &RangeSet, unit: u64) -> Vec<PartInPlace> {
        let shares = (self.nodes as u64).saturating_mul(PARTS_FOR_EACH).max(1);
        let most = (missing.byte_count() / shares).clamp(MIN_PART, MAX_PART);
        let most = most.next_multiple_of(unit.max(1));
        let mut parts = Vec::new();
        for range in missing.iter() {
            let mut offset = range.start;
            while offset < range.end {
                let length = most.min(range.end - offset);
                parts.push(PartInPlace { offset, length });
                offset += length;
            }
        }
        parts
    }
}

#[async_trait]
impl PartMover for FileParts {
    fn divides(&self, source: &Location, destination: &Location, size: u64) -> bool {
        let is_divisible = match destination {
            Location::Local(_) => *source != Location::StandardStreams,
            // The nodes see the source, which this process has open.
            Location::Remote { .. } => {
                let scheme = destination.server().map(|server| server.scheme);
                let is_shared = scheme.is_some_and(|s| s == Scheme::S3 || s.is_ftp());
                is_shared && matches!(source, Location::Local(_))
            }
            Location::StandardStreams => false,
        };
        is_divisible && self.nodes > 1 && size >= DIVIDED_FROM
    }

    async fn move_parts(&self, parts: MissingParts<'_>) -> Result<(), Failure> {
        let unit = parts.upload.as_ref().map_or(1, |upload| upload.part);
        let planned = self.parts(&parts.missing, unit);
        let divided = Arc::new(DividedFile::new(parts.control, parts.stored, planned.len()));
        for part in planned {
            let file = PlannedFile {
                source: parts.source.clone(),
                destination: parts.destination.clone(),
                facts: parts.facts,
                entry: 0,
                part: Some(part),
                upload: parts.upload.clone(),
                takes_over: false,
            };
            self.pieces.add(Piece {
                kind: MoveKind::Single,
                files: vec![file],
                part_of: Some(Arc::clone(&divided)),
                losses: 0,
            });
        }
        divided.ended(|| self.pieces.take_parts(&divided)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_into_parts_that_cover_them() {
        let parts = FileParts::new(&Arc::default(), 2);
        let mut missing = RangeSet::new();
        missing.insert(0, 3 * MIN_PART + 5);
        missing.insert(10 * MIN_PART, 11 * MIN_PART);
        let cut = parts.parts(&missing, 1);
        assert_eq!(cut.len(), 5);
        let (mut covered, mut bytes) = (RangeSet::new(), 0);
        for part in cut {
            assert!(part.length <= MIN_PART);
            covered.insert(part.offset, part.offset + part.length);
            bytes += part.length;
        }
        // None twice.
        assert_eq!((covered, bytes), (missing.clone(), missing.byte_count()));
        let mut large = RangeSet::new();
        large.insert(0, 1 << 50);
        assert!(
            parts
                .parts(&large, 1)
                .iter()
                .all(|part| part.length <= MAX_PART)
        );
    }

    #[test]
    fn parts_of_an_upload_are_whole_parts_of_it() {
        const UNIT: u64 = 17 << 20;
        let parts = FileParts::new(&Arc::default(), 2);
        let mut missing = RangeSet::new();
        missing.insert(0, 40 * UNIT);
        let cut = parts.parts(&missing, UNIT);
        assert!(cut.len() > 2);
        let is_whole = |part: &PartInPlace| {
            part.offset.is_multiple_of(UNIT) && part.length.is_multiple_of(UNIT)
        };
        assert!(cut.iter().all(is_whole), "{cut:?}");
    }
}
