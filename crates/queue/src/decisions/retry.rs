//! The next state of a job, by the end of its attempt.

use std::time::Duration;

use units::Exit;
use units::splitmix::SplitMix64;

/// Time before the first repetition; it doubles with each failure.
const FIRST_WAIT: Duration = Duration::from_secs(30);
/// Longest time before a repetition.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Most attempts of a job that may end with their worker: a job that kills its workers must not do so for ever.
pub const MOST_LOSSES: u32 = 100;

/// Why a worker ended a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// Somebody cancelled the job.
    Cancelled,
    /// The lease could not be renewed.
    Lease,
    /// The hours of an endpoint are over.
    Hours,
    /// The worker ends.
    WorkerEnds,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptEnd {
    /// The program ended by itself, with this exit code.
    Exited(u8),
    /// A signal ended it that did not come from the worker.
    Killed(i32),
    /// The worker ended it.
    Stopped(StopReason),
    /// It could not be started: the credential, the disk or the program of this worker.
    NotStarted,
}

/// The next state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobVerdict {
    /// Everything was copied and verified.
    Done,
    /// It waits for another attempt.
    Again {
        /// Time until then.
        after: Duration,
        /// Whether this attempt counts as a failure.
        is_failure: bool,
    },
    /// It failed for good.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// The counts of a job before this attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobCounts {
    /// The job.
    pub id: i64,
    /// Failures so far.
    pub failures: u32,
    /// Failures that are repeated.
    pub retries: u32,
    /// Somebody has cancelled it.
    pub is_cancelled: bool,
}

/// Judges the end of an attempt. A result that says that all is done counts, whatever was asked of the child meanwhile.
pub fn verdict(end: AttemptEnd, counts: JobCounts) -> JobVerdict {
    if end == AttemptEnd::Exited(Exit::Done as u8) {
        return JobVerdict::Done;
    }
    if counts.is_cancelled {
        return JobVerdict::Cancelled;
    }
    match end {
        AttemptEnd::Stopped(_) => JobVerdict::Again {
            after: Duration::ZERO,
            is_failure: false,
        },
        AttemptEnd::Exited(code) if is_final(code) => JobVerdict::Failed,
        AttemptEnd::Exited(_) | AttemptEnd::Killed(_) | AttemptEnd::NotStarted => {
            let failures = counts.failures.saturating_add(1);
            match failures > counts.retries {
                true => JobVerdict::Failed,
                false => JobVerdict::Again {
                    after: backoff(counts.id, failures),
                    is_failure: true,
                },
            }
        }
    }
}

/// Whether the same command would end the same way again: its words are wrong, there is no such file, or the login is
/// refused, which a retry could only turn into a locked account.
fn is_final(code: u8) -> bool {
    [Exit::Usage, Exit::Refused, Exit::NotFound]
        .into_iter()
        .any(|exit| exit as u8 == code)
}

/// Time before the next attempt after that many failures, at least one: doubled with each, and up to a fifth longer or shorter,
/// so that jobs that failed together do not come back together.
fn backoff(id: i64, failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let wait = FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
    let seed = id.unsigned_abs() ^ (u64::from(failures) << 48);
    let share = SplitMix64::new(seed).next_u64() % 401;
    wait.mul_f64(0.8 + share as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: JobCounts = JobCounts {
        id: 7,
        failures: 0,
        retries: 2,
        is_cancelled: false,
    };

    #[test]
    fn wrong_commands_missing_files_and_refused_logins_are_not_repeated() {
        for code in [2, 3, 4] {
            assert_eq!(
                verdict(AttemptEnd::Exited(code), COUNTS),
                JobVerdict::Failed
            );
        }
        for code in [1, 5, 6, 7, 8, 130, 101] {
            let verdict = verdict(AttemptEnd::Exited(code), COUNTS);
            let is_failure = matches!(verdict, JobVerdict::Again { is_failure, .. } if is_failure);
            assert!(is_failure, "{code}: {verdict:?}");
        }
    }

    #[test]
    fn failures_beyond_the_retries_are_the_end() {
        let last = JobCounts {
            failures: 2,
            ..COUNTS
        };
        assert_eq!(verdict(AttemptEnd::Killed(9), last), JobVerdict::Failed);
        assert_eq!(verdict(AttemptEnd::NotStarted, last), JobVerdict::Failed);
    }

    #[test]
    fn an_attempt_that_the_worker_ended_is_no_failure() {
        for reason in [StopReason::Lease, StopReason::Hours, StopReason::WorkerEnds] {
            let again = JobVerdict::Again {
                after: Duration::ZERO,
                is_failure: false,
            };
            assert_eq!(verdict(AttemptEnd::Stopped(reason), COUNTS), again);
        }
        let cancelled = JobCounts {
            is_cancelled: true,
            ..COUNTS
        };
        let stopped = AttemptEnd::Stopped(StopReason::Cancelled);
        assert_eq!(verdict(stopped, cancelled), JobVerdict::Cancelled);
        assert_eq!(
            verdict(AttemptEnd::Exited(5), cancelled),
            JobVerdict::Cancelled
        );
        assert_eq!(verdict(AttemptEnd::Exited(0), cancelled), JobVerdict::Done);
    }

    #[test]
    fn waits_double_up_to_an_hour_and_differ_between_jobs() {
        for (failures, seconds) in [
            (1, 30.0),
            (2, 60.0),
            (5, 480.0),
            (8, 3600.0),
            (4000, 3600.0),
        ] {
            let wait = backoff(7, failures).as_secs_f64();
            assert!((wait / seconds - 1.0).abs() <= 0.21, "{failures}: {wait}");
        }
        assert_ne!(backoff(7, 1), backoff(8, 1));
    }
}
