//! `--resume` onto a destination that has its final name and the source's size: a run that was
//! killed after the rename, or a copy made before. It is compared, not moved again.

use super::super::sums::End;
use crate::Failure;
use crate::tree::Facts;
use crate::verify::Check;

/// What is copied, and what has the destination's name.
pub(super) struct Candidate {
    /// Size of what is copied, time of the source.
    pub(super) wanted: Facts,
    /// Of the destination.
    pub(super) there: Facts,
    /// Length of the part that is copied; `None`: the whole source.
    pub(super) part: Option<u64>,
}

impl Candidate {
    /// What was compared when both are the same: checksums where they are to be had, else size and
    /// time. `None` when they differ or nothing tells.
    pub(super) async fn compare(
        &self,
        check: Check,
        source: &mut End<'_>,
        destination: &mut End<'_>,
    ) -> Result<Option<String>, Failure> {
        if self.wanted.size.is_none() || self.wanted.size != self.there.size {
            return Ok(None);
        }
        let Some(algorithm) = check.algorithm() else {
            let known = self.wanted.modified.is_some();
            let same = known && self.wanted.modified == self.there.modified;
            return Ok(same.then(|| check.size_label(true)));
        };
        let (source, copy) = tokio::join!(
            source.total(algorithm, self.part),
            destination.total(algorithm, None)
        );
        match (source, copy) {
            (Ok(source), Ok(copy)) => {
                let same = source.eq_ignore_ascii_case(&copy);
                Ok(same.then(|| check.label()))
            }
            (Err(failure), _) | (_, Err(failure)) if failure.transient => Err(failure),
            _ => Ok(None),
        }
    }
}
