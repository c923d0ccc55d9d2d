//! The memory of paths: asked before a transfer, told after it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tune::forecast::ExpectedRate;
use tune::{Evidence, Prior, is_other_round_trip};

use crate::known_server::KnownServer;
use crate::path_key::PathKey;
use crate::record_file::{self, FileStamp, KnownPaths};
use crate::recorded_evidence::RecordedEvidence;
use crate::session_limit::SessionLimit;

/// Time after a record in which short transfers teach nothing more, seconds.
const SHORT_ONES_COUNT_AGAIN_AFTER: u64 = 60;
/// A firewall changes rarely, and each run searches again, with less patience alone: how long closed ports count, seconds.
const CLOSED_PORTS_EXPIRE_AFTER: u64 = 7 * 86_400;

/// The memory in one file. Clones share what they have read of it.
///
/// Reading it again costs one stat(2) while the file stays the same, and less than a millisecond otherwise.
#[derive(Debug, Clone)]
pub struct PathHistory {
    file: PathBuf,
    read: Arc<Mutex<Option<ReadRecords>>>,
}

/// The records of a file that was read, and its stamp then.
#[derive(Debug)]
struct ReadRecords {
    stamp: FileStamp,
    known: Arc<KnownPaths>,
}

impl PathHistory {
    /// The memory in `file`, which need not exist.
    pub fn at(file: PathBuf) -> Self {
        Self {
            file,
            read: Arc::default(),
        }
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Knowledge of a path. Nothing ([`Prior::default`]) if no transfer is recorded, or too long ago, or
    /// with another round trip than `rtt`, that of the control connection (zero: unknown): the path is another one now.
    pub fn prior(&self, key: &PathKey, rtt: Duration) -> Prior {
        let known = self.prior_at(key, now());
        match is_other_path(&known, rtt) {
            true => Prior::default(),
            false => known,
        }
    }

    /// The goodput of the last transfer that taught something about a path, whatever limited it, for a forecast. As
    /// [`PathHistory::prior`] otherwise.
    pub fn goodput(&self, key: &PathKey, rtt: Duration) -> Option<ExpectedRate> {
        self.goodput_at(key, rtt, now())
    }

    /// Records a finished transfer. Nothing is recorded of a transfer of fewer than 4 MiB, two seconds or
    /// twenty round trips, because its settings had no time to prove themselves. A transfer that something at its ends
    /// limited (a disk, a program, a processor) does not replace the record of one that the path limited.
    pub fn record(&self, key: PathKey, evidence: &Evidence) {
        self.record_at(key, evidence, now());
    }

    /// Sessions that the server at this end of a path and this port was seen to allow, not long ago.
    pub fn session_limit(&self, key: &PathKey, port: u16) -> Option<usize> {
        self.session_limit_at(key, port, now())
    }

    /// Records that a server allows no more than `sessions` sessions.
    pub fn record_session_limit(&self, key: PathKey, port: u16, sessions: usize) {
        self.record_session_limit_at((key, port), sessions, now());
    }

    /// Whether no port of the host at this end of a path could be reached beside that of ssh, not long ago.
    pub fn were_ports_closed(&self, key: &PathKey, port: u16) -> bool {
        self.were_ports_closed_at(key, port, now())
    }

    /// Records whether a port of a host could be reached beside that of ssh.
    pub fn record_ports(&self, key: PathKey, port: u16, are_closed: bool) {
        self.record_ports_at((key, port), are_closed, now());
    }

    fn were_ports_closed_at(&self, key: &PathKey, port: u16, now: u64) -> bool {
        let known = self.known();
        let mut closed = known.closed.iter();
        closed.any(|host| host.is_of(key, port) && host.is_of_last(CLOSED_PORTS_EXPIRE_AFTER, now))
    }

    fn record_ports_at(&self, (key, port): (PathKey, u16), are_closed: bool, now: u64) {
        // Most hosts have open ports, and nothing to forget.
        if !are_closed && !self.were_ports_closed_at(&key, port, now) {
            return;
        }
        let recorded = record_file::update(&self.file, |known| {
            let others = |host: &KnownServer| {
                !host.is_of(&key, port) && host.is_of_last(CLOSED_PORTS_EXPIRE_AFTER, now)
            };
            known.closed.retain(others);
            if are_closed {
                known.closed.insert(
                    0,
                    KnownServer {
                        key,
                        port,
                        time: now,
                    },
                );
            }
        });
        if let Err(error) = recorded {
            tracing::debug!(file = %self.file.display(), %error, "the ports of a host are not kept");
        }
    }

    fn session_limit_at(&self, key: &PathKey, port: u16, now: u64) -> Option<usize> {
        let known = self.known();
        let limit = known
            .limits
            .iter()
            .find(|limit| limit.server.is_of(key, port));
        let limit = limit.filter(|limit| limit.counts_at(now))?;
        usize::try_from(limit.sessions).ok()
    }

    fn record_session_limit_at(&self, (key, port): (PathKey, u16), sessions: usize, now: u64) {
        let limit = SessionLimit {
            server: KnownServer {
                key,
                port,
                time: now,
            },
            sessions: sessions as u64,
        };
        if !limit.is_sound() {
            return;
        }
        let recorded = record_file::update(&self.file, |known| {
            let others =
                |limit: &SessionLimit| !limit.server.is_of(&key, port) && limit.counts_at(now);
            known.limits.retain(others);
            known.limits.insert(0, limit);
        });
        if let Err(error) = recorded {
            tracing::debug!(file = %self.file.display(), %error, "a limit of a server is not kept");
        }
    }

    /// Makes the directory of the file, if it is missing, and says whether a file can be written there. A
    /// program that confines itself calls this before.
    pub fn is_writable(&self) -> bool {
        record_file::is_writable(&self.file)
    }

    fn prior_at(&self, key: &PathKey, now: u64) -> Prior {
        let known = self.known();
        let known = known.records.iter().find(|record| record.key == *key);
        known
            .and_then(|record| Some(record.prior(age(record, now)?)))
            .unwrap_or_default()
    }

    fn goodput_at(&self, key: &PathKey, rtt: Duration, now: u64) -> Option<ExpectedRate> {
        let known = self.known();
        let record = known.records.iter().find(|record| record.key == *key)?;
        let prior = record.prior(age(record, now)?);
        record.goodput().filter(|_| !is_other_path(&prior, rtt))
    }

    fn record_at(&self, key: PathKey, evidence: &Evidence, now: u64) {
        let Some(record) = RecordedEvidence::of(key, evidence, now) else {
            return;
        };
        // The small files of a batch teach the same, one after the other.
        let is_fresh = |known: &RecordedEvidence| {
            known.key == key && now.saturating_sub(known.time) < SHORT_ONES_COUNT_AGAIN_AFTER
        };
        if record.is_short() && self.known().records.iter().any(is_fresh) {
            return;
        }
        let recorded =
            record_file::update(&self.file, |known| merge(&mut known.records, record, now));
        if let Err(error) = recorded {
            tracing::debug!(file = %self.file.display(), %error, "a record of a path is not kept");
        }
    }

    /// The content of the file as it is now.
    fn known(&self) -> Arc<KnownPaths> {
        let stamp = FileStamp::of(&self.file);
        let mut read = self.read.lock();
        match (&*read, stamp) {
            (_, None) => Arc::default(),
            (Some(known), Some(stamp)) if known.stamp == stamp => Arc::clone(&known.known),
            _ => {
                let (stamp, known) = record_file::read(&self.file);
                let known = Arc::new(known);
                *read = stamp.map(|stamp| ReadRecords {
                    stamp,
                    known: Arc::clone(&known),
                });
                known
            }
        }
    }
}

/// Whether the round trip `rtt` (zero: unknown) is that of another path.
fn is_other_path(known: &Prior, rtt: Duration) -> bool {
    let is_other = |then| is_other_round_trip(then, rtt);
    !rtt.is_zero() && known.min_rtt.is_some_and(is_other)
}

/// Puts the record first and drops those that have expired.
fn merge(records: &mut Vec<RecordedEvidence>, new: RecordedEvidence, now: u64) {
    records.retain(|record| age(record, now).is_some());
    let known = records.iter().position(|record| record.key == new.key);
    if let Some(known) = known {
        if records[known].teaches() > new.teaches() {
            return;
        }
        let before = records.remove(known);
        return records.insert(0, new.after(&before));
    }
    records.insert(0, new);
}

/// Age of a record that has not expired. One from the future was written before the clock was set back: its
/// age is unknown.
fn age(record: &RecordedEvidence, now: u64) -> Option<Duration> {
    let age = Duration::from_secs(now.checked_sub(record.time)?);
    (age <= tune::path::EVIDENCE_EXPIRES_AFTER).then_some(age)
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
