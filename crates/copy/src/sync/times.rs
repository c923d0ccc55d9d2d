//! Compares files by their times, and finds out how exactly a destination keeps them.

use std::sync::Arc;

use data::job::TransferControl;
use data::store::memory::MemorySource;
use proto::ranges::RangeSet;
use proto::timestamp::Timestamp;

use super::index::{FileThere, TimeThere};
use crate::batch::BatchContext;
use crate::file::stream_plan::{CopyRange, StreamPlan, new_transfer_spec};
use crate::local::replacement::temporary_name;
use crate::storage::contract::Storage;
use ftp::Failure;
use ftp::answers::SourceFacts;
use ftp::location::Location;

/// Times of servers and file systems are rounded by less than this, seconds: FAT keeps two seconds, some servers minutes.
const COARSEST: i64 = 60;
/// Steps to which times are rounded, seconds.
const STEPS: [i64; 2] = [2, 60];
/// Most times that are tried.
const MAX_TRIALS: u32 = 4;
/// Distance of the time that is tried from that of the source, seconds. It is a multiple of all steps, so that both are
/// rounded alike.
const TRIAL_DISTANCE: i64 = 86_400;

/// Two files of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeComparison {
    /// The source was not modified since it was copied.
    Same,
    /// It was, or nobody knows.
    Different,
    /// They are the same if the destination keeps times less exactly than the source has them, or not at all.
    SameIfRounded,
}

/// Compares the times of two files of one size. A destination that does not keep times (`keeps_times`) has the time of the
/// copy, which is later.
pub(crate) fn compare_times(
    source: SourceFacts,
    there: FileThere,
    keeps_times: bool,
) -> TimeComparison {
    let is_same = match (source.modified, there.time) {
        (_, TimeThere::Unknown) => false,
        (Some(source), TimeThere::Exact(there)) if keeps_times => {
            return match source.0 - there.0 {
                0 => TimeComparison::Same,
                1..COARSEST | ..0 => TimeComparison::SameIfRounded,
                _ => TimeComparison::Different,
            };
        }
        // The copy is later than the source's last modification, in whatever zone a listing shows that. Within one second
        // the order of both is unknown.
        (_, TimeThere::Exact(there) | TimeThere::NotBefore(there)) => source
            .modified_between()
            .is_some_and(|(_, latest)| latest < there),
    };
    match is_same {
        true => TimeComparison::Same,
        false => TimeComparison::Different,
    }
}

/// The times that a destination keeps, as far as trials showed.
#[derive(Debug)]
pub(crate) struct KeptTimes {
    trials: u32,
    /// Whether times are kept at all, or are those of the copies.
    keeps_any: Option<bool>,
    /// Times are rounded to multiples of this, seconds.
    step: Option<i64>,
    /// They are rounded up, too.
    rounds_up: bool,
}

impl KeptTimes {
    /// Nothing is known yet, but that file systems of this machine keep times.
    pub(crate) fn unknown(is_server: bool) -> Self {
        Self {
            trials: 0,
            keeps_any: (!is_server).then_some(true),
            step: None,
            rounds_up: false,
        }
    }

    /// Whether the file `at` is the same as its source, given that it is [`TimeComparison::SameIfRounded`]. Tries a time on a
    /// file of its own beside it to find out.
    ///
    /// # Errors
    /// The destination is lost.
    pub(crate) async fn is_same(
        &mut self,
        ctx: &BatchContext,
        at: &Location,
        source: Timestamp,
        there: Timestamp,
    ) -> Result<bool, Failure> {
        if self.explains(source, there) {
            return Ok(true);
        }
        let may_be_rounded = (source.0 - there.0).abs() < COARSEST;
        let may_be_later = self.keeps_any.is_none() && source < there;
        if self.trials >= MAX_TRIALS || !(may_be_rounded || may_be_later) {
            return Ok(false);
        }
        self.trials += 1;
        let trial = Timestamp(source.0.saturating_sub(TRIAL_DISTANCE));
        if let Some(kept) = kept_of(ctx, at, trial).await? {
            self.learn(source, there, trial, kept);
        }
        Ok(self.explains(source, there))
    }

    fn explains(&self, source: Timestamp, there: Timestamp) -> bool {
        if self.keeps_any == Some(false) {
            return source < there;
        }
        let rounded_down = source.0 - there.0;
        self.step.is_some_and(|step| {
            let in_step = match self.rounds_up {
                true => rounded_down.abs() < step,
                false => (0..step).contains(&rounded_down),
            };
            there.0 % step == 0 && in_step
        })
    }

    /// Learns from a time that was set and the one that was kept.
    fn learn(&mut self, source: Timestamp, there: Timestamp, trial: Timestamp, kept: Timestamp) {
        self.keeps_any = Some((trial.0 - kept.0).abs() < COARSEST);
        let rounded_down = source.0 - there.0;
        if trial.0 - kept.0 != rounded_down {
            return;
        }
        let holds = |step: &&i64| there.0 % **step == 0 && rounded_down.abs() < **step;
        let step = STEPS.iter().find(holds).copied();
        self.step = self.step.max(step);
        self.rounds_up |= rounded_down < 0;
    }
}

/// The time that a new file beside `at` has after `time` was set. `None`: the storage refuses one of the steps. A user's file
/// would have a wrong time if the sync ended here; this one is known as unfinished by its name.
async fn kept_of(
    ctx: &BatchContext,
    at: &Location,
    time: Timestamp,
) -> Result<Option<Timestamp>, Failure> {
    let id = at.storage_id();
    let name = temporary_name("longhaul-time").into_bytes();
    let parent = at.path().iter().rposition(|byte| *byte == b'/');
    let path = [&at.path()[..parent.map_or(0, |slash| slash + 1)], &name].concat();
    let mut request = ctx.request(&id);
    loop {
        let mut session = request.session().await?;
        let mut kept = store_and_read(ctx, &mut *session, &path, time).await;
        if kept
            .as_ref()
            .err()
            .is_none_or(|failure| !failure.may_retry())
            && let Err(failure) = session.remove(&path).await
            && failure.may_retry()
        {
            kept = Err(failure);
        }
        match request.end(session, kept).await {
            Ok(None) => {}
            Err(failure) if failure.may_retry() => return Err(failure),
            kept => return Ok(kept.unwrap_or_default()),
        }
    }
}

/// Stores an empty file, sets its time, and reads the time back.
async fn store_and_read(
    ctx: &BatchContext,
    storage: &mut dyn Storage,
    path: &[u8],
    time: Timestamp,
) -> Result<Timestamp, Failure> {
    let range = CopyRange {
        part: None,
        size: Some(0),
    };
    let spec = new_transfer_spec(ctx, range, &RangeSet::new(), StreamPlan::single());
    let source = Arc::new(MemorySource::new([], "an empty file"));
    let control = Arc::new(TransferControl::new());
    storage.store(source, path, &spec, &control).await?;
    storage.set_modified(path, time).await?;
    let found = storage.stat(path).await?;
    found
        .modified
        .ok_or_else(|| Failure::protocol(format!("{} tells no times", storage.name())))
}

#[cfg(test)]
mod tests {
    use proto::listing::CoarseTime;

    use super::*;
    use crate::run::tests::{IgnoringObserver, options};
    use crate::storage::memory::MemoryStore;

    const SOURCE: SourceFacts = SourceFacts {
        size: Some(1),
        modified: Some(Timestamp(1_000_000)),
        coarse_time: None,
        mode: None,
        version: None,
        identity: None,
        is_archived: false,
    };

    fn there(time: TimeThere) -> FileThere {
        FileThere {
            size: Some(1),
            time,
        }
    }

    #[test]
    fn times_of_destinations_that_keep_them_are_equal_or_may_be_rounded() {
        for (seconds, compared) in [
            (1_000_000, TimeComparison::Same),
            (999_941, TimeComparison::SameIfRounded),
            (999_940, TimeComparison::Different),
            (1_000_001, TimeComparison::SameIfRounded),
            (9_000_000, TimeComparison::SameIfRounded),
        ] {
            let there = there(TimeThere::Exact(Timestamp(seconds)));
            assert_eq!(compare_times(SOURCE, there, true), compared, "{seconds}");
        }
    }

    #[test]
    fn a_copy_is_the_same_if_it_is_surely_later_than_its_source() {
        let coarse = SourceFacts {
            modified: None,
            coarse_time: Some(CoarseTime {
                start: Timestamp(1_000_000),
                span: 60,
            }),
            ..SOURCE
        };
        let unknown = SourceFacts {
            modified: None,
            ..SOURCE
        };
        let half_a_day = 12 * 3600 + 59;
        for (source, seconds, is_same) in [
            (SOURCE, 1_000_000, false),
            (SOURCE, 1_000_001, true),
            (coarse, 1_000_000 + half_a_day, false),
            (coarse, 1_000_001 + half_a_day, true),
            (unknown, 9_000_000, false),
        ] {
            let expected = match is_same {
                true => TimeComparison::Same,
                false => TimeComparison::Different,
            };
            for time in [
                TimeThere::Exact(Timestamp(seconds)),
                TimeThere::NotBefore(Timestamp(seconds)),
            ] {
                assert_eq!(compare_times(source, there(time), false), expected);
            }
            let nothing = there(TimeThere::Unknown);
            assert_eq!(
                compare_times(source, nothing, false),
                TimeComparison::Different
            );
        }
        // Coarse times are never equal to exact ones.
        let equal = there(TimeThere::Exact(Timestamp(1_000_000)));
        assert_eq!(
            compare_times(coarse, equal, true),
            TimeComparison::Different
        );
    }

    #[tokio::test]
    async fn a_refused_time_is_not_taken_for_one_that_is_not_kept() {
        let at = Location::parse("http://refused.time.memory.invalid/f").unwrap();
        let ctx = BatchContext::new(options(), Arc::new(IgnoringObserver)).unwrap();
        let time = Timestamp(1_000_000_000);
        assert_eq!(kept_of(&ctx, &at, time).await.unwrap(), Some(time));
        MemoryStore::named("refused.time").refuse_times();
        assert_eq!(kept_of(&ctx, &at, time).await.unwrap(), None);
    }
}
