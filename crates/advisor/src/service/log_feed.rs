//! The logs of the settings, read into the service as they grow.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Advisor;
use crate::config::{AdvisorConfig, LogSource, StoreUrl, state_directory};
use crate::hosts::HostSource;
use crate::log_reader::LogReader;
use crate::log_reader::entry::LogEntry;
use crate::log_reader::follower::{FollowFrom, FollowLimits, LogFollower, PositionFile};
use crate::log_reader::format::host_zone;

/// Time between two looks at a log.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The thread that follows the logs. It ends when this is dropped.
#[derive(Debug)]
pub struct LogFeed {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl LogFeed {
    /// Follows the logs of the service's settings, from where the last run ended; without logs, nothing.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(advisor: &Advisor) -> io::Result<Self> {
        let config = advisor.config();
        if config.log.is_empty() {
            return Ok(Self {
                stop: None,
                thread: None,
            });
        }
        let (stop, stopped) = channel();
        let mut followed = FollowedLogs::open(config, advisor.clone());
        let thread = std::thread::Builder::new()
            .name("logs".to_owned())
            .spawn(move || followed.run(&stopped))?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for LogFeed {
    fn drop(&mut self) {
        // The closed channel ends the thread.
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

struct FollowedLogs {
    advisor: Advisor,
    readers: Vec<LogReader>,
    positions: PositionFile,
    /// The trouble of each log that was told.
    failing: Vec<Option<String>>,
}

impl FollowedLogs {
    fn open(config: &AdvisorConfig, advisor: Advisor) -> Self {
        let positions = PositionFile::new(&positions_path(config));
        let known = positions.load().unwrap_or_else(|error| {
            tracing::warn!(%error, "the positions in the logs are unknown; the logs are read again");
            BTreeMap::new()
        });
        let zone = host_zone();
        let reader = |log: &LogSource| {
            let follower = match known.get(&log.path) {
                Some(position) => {
                    LogFollower::resume(&log.path, position.clone(), FollowLimits::default())
                }
                None => LogFollower::new(&log.path, FollowFrom::Beginning, FollowLimits::default()),
            };
            LogReader::new(follower, Some(log.format), zone.clone())
        };
        Self {
            advisor,
            readers: config.log.iter().map(reader).collect(),
            positions,
            failing: vec![None; config.log.len()],
        }
    }

    fn run(&mut self, stopped: &Receiver<()>) {
        loop {
            let more = self.turn();
            let wait = if more { Duration::ZERO } else { LOOK_AGAIN };
            if stopped.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }

    /// Reads what is new in each log; `true` if a log has more.
    fn turn(&mut self) -> bool {
        let (mut more, mut lines) = (false, 0);
        let mut entries = Vec::new();
        for (reader, failing) in self.readers.iter_mut().zip(&mut self.failing) {
            let trouble = match reader.turn(&mut entries) {
                Ok(turn) => {
                    more |= turn.more;
                    lines += turn.lines;
                    turn.missing.then(|| "the file does not exist".to_owned())
                }
                Err(error) => Some(error.to_string()),
            };
            if *failing == trouble {
                continue;
            }
            let path = reader.follower().path();
            let log = path.display();
            match &trouble {
                Some(trouble) => {
                    tracing::error!(%log, trouble, "a log cannot be read; it is tried again");
                }
                None => tracing::info!(%log, "the log is read now"),
            }
            self.advisor.note_log(path, trouble.clone());
            *failing = trouble;
        }
        for entry in &entries {
            self.record(entry);
        }
        if lines > 0 {
            self.save();
        }
        more
    }

    fn record(&self, entry: &LogEntry) {
        if let Err(refused) = self.advisor.add_host(entry.client, HostSource::Log) {
            tracing::debug!(%refused, "a client of a log is not monitored");
            return;
        }
        if let Some(measured) = entry.measurement()
            && let Err(invalid) = self.advisor.report(HostSource::Log, measured)
        {
            tracing::debug!(%invalid, "a transfer of a log is left out");
        }
    }

    fn save(&self) {
        let positions = self.readers.iter().filter_map(|reader| {
            let follower = reader.follower();
            Some((follower.path().to_owned(), follower.position()?))
        });
        if let Err(error) = self.positions.save(&positions.collect()) {
            tracing::warn!(%error, "the positions in the logs cannot be saved");
        }
    }
}

/// The file with the positions: beside the database if that is a file.
fn positions_path(config: &AdvisorConfig) -> PathBuf {
    match &config.store {
        StoreUrl::Sqlite(path) => path.with_extension("logs.json"),
        StoreUrl::Postgres(_) => state_directory().join("advisor.logs.json"),
    }
}
