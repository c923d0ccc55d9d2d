//! Number of sessions of a batch: how many files, or groups of files, move at a time.
//!
//! Sessions, commands ahead (`proto::client::SeriesWindow`) and streams of each file share one budget. Where commands go
//! ahead of replies without limit, few sessions fill the path; where each file costs round trips, their number makes up
//! for it. What a server or the user allows is a bound, and a number that gains nothing is not raised.

use std::time::Duration;

/// Most sessions with a server.
pub const MAX_SESSIONS: usize = 64;
/// Sessions for whole files, and for bundles of tiny ones: each has the streams that its path needs.
const FEW: usize = 4;
/// Mean size of files, bytes, from which on each is fetched or stored over several connections: a few of them fill the path.
const SEVERAL_CONNECTIONS_FROM: u64 = 16 << 20;
/// Mean size of files, bytes, from which on one session's bundles fill a long path. The streams of several sessions would meet
/// in its queue, and each would make room for the others.
const FILLING_SIZE: u64 = 16 << 10;
/// Bytes of all files up to which one session is done on a long path before others have logged in and sped up.
pub const SOON_DONE: u64 = 64 << 20;
/// On paths with a shorter round trip, bundles wait for processors and disks, not for the path.
pub const LONG_RTT: Duration = Duration::from_millis(5);
/// Most sessions for files that share data connections. Between a login and a full window of commands ahead lie ten
/// round trips, which so many sessions share; more of them take the files from those that are up to speed.
const MAX_SHARED: usize = 16;
/// Sessions to begin with for files from [`FILLING_SIZE`] on that share data connections: each has one stream, and what
/// one loses between two files the others must make up for.
const FIRST_STREAMS: usize = 8;
/// Most sessions for them: more streams than that gain nothing even with loss.
const MAX_STREAMS: usize = 32;
/// Bytes for which another one of them is worth its login and slow start. With less, the others would be done before it
/// is up to speed, and wait for its files.
const STREAM_BYTES: u64 = 16 << 20;
/// Files per second from which on the disks and processors of servers are the limit more often than sessions are.
const AIM: f64 = 400.0;
/// A session with fewer files is not worth its login, which takes several round trips.
const MIN_FILES: usize = 8;
/// Gain in files or bytes per second that shows that more sessions help.
const WORTHWHILE: f64 = 1.1;

/// Shortest interval between two looks at how many files have moved.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// The same in round trips: so long, a new session has moved some files.
const INTERVAL_ROUND_TRIPS: u32 = 12;

/// How small files move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileMovement {
    /// Each by itself.
    Whole,
    /// Each by itself, by requests on the kept connections of the session. Servers of this kind bear
    /// `most` sessions of one client.
    Requests {
        /// Most sessions.
        most: usize,
    },
    /// Many as one transfer, which has the streams that its path needs.
    Bundles,
    /// Beside each other within the connection of the session, with requests ahead of replies.
    OneConnection,
    /// One after the other on kept data connections, with commands ahead of replies.
    SharedConnections,
    /// One after the other, each with a data connection of its own.
    OwnConnections,
}

/// Facts of a batch before it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchFacts {
    /// How its files move.
    pub movement: FileMovement,
    /// Number of files; `usize::MAX` while they are listed.
    pub files: usize,
    /// Their mean size, bytes.
    pub mean_size: u64,
    /// Round-trip time of the longest path.
    pub rtt: Duration,
}

/// Bounds on the number of sessions; the servers' are independent of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConcurrencyBounds {
    /// The user's: exact.
    pub user: Option<usize>,
    /// That of the source server.
    pub source: Option<usize>,
    /// That of the destination server.
    pub destination: Option<usize>,
}

impl ConcurrencyBounds {
    fn most(self) -> usize {
        let servers = self.source.into_iter().chain(self.destination);
        servers
            .chain([self.user.unwrap_or(MAX_SESSIONS)])
            .min()
            .unwrap_or(MAX_SESSIONS)
            .clamp(1, MAX_SESSIONS)
    }
}

/// Sessions of a batch while it runs: begins with a part of what its facts suggest, and adds as long as that gains.
#[derive(Debug, Clone)]
pub struct SessionRamp {
    sessions: usize,
    most: usize,
    /// Bytes that must be left for each session when others join.
    least_each: u64,
    /// Files and bytes per second before the last addition.
    before: Option<(f64, f64)>,
    settled: bool,
    interval: Duration,
}

impl SessionRamp {
    /// Begins a batch.
    pub fn new(facts: &BatchFacts, limits: ConcurrencyBounds) -> Self {
        if let Some(user) = limits.user {
            // The user's number is used at once.
            let sessions = limits.most().min(user.max(1));
            return Self::settled_at(sessions);
        }
        let most = wanted(facts).min(limits.most());
        let first = match facts.movement {
            // Logins that end when the files do gain nothing.
            FileMovement::Bundles if facts.rtt >= LONG_RTT => 1,
            FileMovement::SharedConnections if facts.mean_size >= FILLING_SIZE => {
                by_round_trips(facts.rtt).max(FIRST_STREAMS).min(most)
            }
            // A later session has its first files when those of the others are done.
            FileMovement::SharedConnections => most,
            _ => most.div_ceil(2).max(FEW.min(most)),
        };
        let has_streams =
            facts.movement == FileMovement::SharedConnections && facts.mean_size >= FILLING_SIZE;
        Self {
            sessions: first,
            most,
            least_each: if has_streams { STREAM_BYTES } else { 0 },
            before: None,
            settled: false,
            interval: MIN_INTERVAL.max(facts.rtt * INTERVAL_ROUND_TRIPS),
        }
    }

    fn settled_at(sessions: usize) -> Self {
        Self {
            sessions,
            most: sessions,
            least_each: 0,
            before: None,
            settled: true,
            interval: MIN_INTERVAL,
        }
    }

    /// Time between two looks at what the sessions did.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Sessions to have now.
    pub fn sessions(&self) -> usize {
        self.sessions
    }

    /// Most sessions that the batch may have.
    pub fn most(&self) -> usize {
        self.most
    }

    /// A server allows only `sessions`.
    pub fn on_limit(&mut self, sessions: usize) {
        self.most = self.most.min(sessions.max(1));
        self.sessions = self.sessions.min(self.most);
        self.settled = true;
    }

    /// Takes the files and bytes of an interval with the present sessions, and the bytes that are left, if they are known. Returns
    /// whether to add sessions.
    pub fn on_interval(
        &mut self,
        files: u64,
        bytes: u64,
        elapsed: Duration,
        left: Option<u64>,
    ) -> bool {
        if self.settled || self.sessions >= self.most || elapsed.is_zero() {
            return false;
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "rates need no more than 52 bits"
        )]
        let per_second = |count: u64| count as f64 / elapsed.as_secs_f64();
        let now = (per_second(files), per_second(bytes));
        // Nothing has ended yet: the interval was too short to judge.
        if now == (0.0, 0.0) {
            return false;
        }
        let gained = self
            .before
            .is_none_or(|before| now.0 >= before.0 * WORTHWHILE || now.1 >= before.1 * WORTHWHILE);
        self.before = Some(now);
        if !gained {
            self.settled = true;
            return false;
        }
        let mut to = self.sessions.saturating_mul(2).min(self.most);
        // While files are listed nobody knows whether the last ones are not already on their way.
        if let Some(each) = left.unwrap_or(0).checked_div(self.least_each) {
            to = to.min(usize::try_from(each).unwrap_or(usize::MAX));
        }
        let adds = to > self.sessions;
        self.sessions = self.sessions.max(to);
        adds
    }
}

/// Sessions that a batch can use.
fn wanted(facts: &BatchFacts) -> usize {
    let by_path = match facts.movement {
        FileMovement::Whole => return FEW,
        FileMovement::Requests { .. } if facts.mean_size >= SEVERAL_CONNECTIONS_FROM => return FEW,
        // The facts of the file, the first byte of it, and as much again for what the window of a kept connection does not hold.
        FileMovement::Requests { most } => {
            round_trips(facts.rtt, 3.0).clamp(FEW, most.clamp(FEW, MAX_SESSIONS))
        }
        FileMovement::Bundles if facts.rtt >= LONG_RTT && is_enough_for_one(facts) => 1,
        FileMovement::Bundles => return FEW,
        // A server forces the files of one session to disk one after the other.
        FileMovement::OneConnection => FEW,
        FileMovement::SharedConnections if facts.mean_size >= FILLING_SIZE => {
            let by_bytes = usize::try_from(total_bytes(facts) / STREAM_BYTES);
            by_bytes.unwrap_or(usize::MAX).clamp(FEW, MAX_STREAMS)
        }
        FileMovement::SharedConnections => by_round_trips(facts.rtt),
        FileMovement::OwnConnections => round_trips(facts.rtt, 2.0).clamp(FEW, MAX_SESSIONS),
    };
    let by_files = (facts.files / MIN_FILES).max(1);
    by_path.min(by_files)
}

/// Whether the bundles of one session move so fast as those of several.
fn is_enough_for_one(facts: &BatchFacts) -> bool {
    facts.mean_size >= FILLING_SIZE || total_bytes(facts) <= SOON_DONE
}

fn total_bytes(facts: &BatchFacts) -> u64 {
    let files = u64::try_from(facts.files).unwrap_or(u64::MAX);
    files.saturating_mul(facts.mean_size)
}

/// Sessions for files that share data connections, by their commands alone.
fn by_round_trips(rtt: Duration) -> usize {
    round_trips(rtt, 0.5).clamp(FEW, MAX_SHARED)
}

/// Sessions for [`AIM`] if a file takes `count` round trips.
fn round_trips(rtt: Duration, count: f64) -> usize {
    let sessions = rtt.as_secs_f64() * count * AIM;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bounded below, and never negative"
    )]
    let sessions = sessions.ceil().min(1000.0) as usize;
    sessions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(movement: FileMovement, rtt: u64) -> BatchFacts {
        BatchFacts {
            movement,
            files: 10_000,
            mean_size: 1_000,
            rtt: Duration::from_millis(rtt),
        }
    }

    fn most(facts: &BatchFacts, limits: ConcurrencyBounds) -> usize {
        let mut ramp = SessionRamp::new(facts, limits);
        let mut rate = 100;
        while ramp.on_interval(rate, 0, Duration::from_secs(1), None) {
            rate *= 2;
        }
        ramp.sessions()
    }

    #[test]
    fn long_paths_and_own_connections_need_more_sessions() {
        let none = ConcurrencyBounds::default();
        let own = |rtt| most(&facts(FileMovement::OwnConnections, rtt), none);
        assert_eq!((own(0), own(20), own(100), own(262)), (4, 16, 64, 64));
        let shared = |rtt| most(&facts(FileMovement::SharedConnections, rtt), none);
        assert_eq!((shared(0), shared(20), shared(100)), (4, 4, 16));
        assert_eq!(most(&facts(FileMovement::Whole, 262), none), 4);
        assert_eq!(most(&facts(FileMovement::OneConnection, 262), none), 4);
        // All of them from the start.
        let ramp = SessionRamp::new(&facts(FileMovement::SharedConnections, 100), none);
        assert_eq!(ramp.sessions(), 16);
    }

    #[test]
    fn larger_files_on_shared_connections_get_more_sessions_while_that_gains() {
        let ramp_of = |rtt, files| {
            let facts = BatchFacts {
                files,
                mean_size: 1_000_000,
                ..facts(FileMovement::SharedConnections, rtt)
            };
            SessionRamp::new(&facts, ConcurrencyBounds::default())
        };
        let ramp = |rtt| ramp_of(rtt, 10_000);
        let begun = |rtt| (ramp(rtt).sessions(), ramp(rtt).most());
        let few = ramp_of(100, 300);
        assert_eq!((few.sessions(), few.most()), (16, 17), "300 MB");
        assert_eq!(
            (begun(0), begun(20), begun(100)),
            ((8, 32), (8, 32), (16, 32))
        );
        let mut ramp = ramp(20);
        let second = Duration::from_secs(1);
        assert!(ramp.on_interval(60, 60_000_000, second, Some(1 << 34)));
        assert!(ramp.on_interval(90, 90_000_000, second, Some(1 << 34)));
        assert_eq!(ramp.sessions(), 32);
        // The last files are for those that are there.
        for left in [None, Some(20 << 24)] {
            let mut ramp = ramp_of(100, usize::MAX);
            ramp.on_interval(60, 60_000_000, second, left);
            assert_eq!(ramp.sessions(), left.map_or(16, |_| 20));
        }
    }

    #[test]
    fn small_objects_get_a_session_for_each_that_is_under_way() {
        let none = ConcurrencyBounds::default();
        let requests = |bound, rtt| facts(FileMovement::Requests { most: bound }, rtt);
        let all = |bound, rtt| most(&requests(bound, rtt), none);
        assert_eq!((all(64, 0), all(64, 10), all(64, 100)), (4, 12, 64));
        assert_eq!(all(16, 50), 16);
        assert_eq!(SessionRamp::new(&requests(64, 100), none).sessions(), 32);
        let large = BatchFacts {
            mean_size: 64 << 20,
            ..requests(64, 50)
        };
        assert_eq!(most(&large, none), 4);
    }

    #[test]
    fn few_files_get_few_sessions() {
        let none = ConcurrencyBounds::default();
        let mut few = facts(FileMovement::OwnConnections, 100);
        few.files = 20;
        assert_eq!(most(&few, none), 2);
    }

    #[test]
    fn the_limit_of_each_server_and_of_the_user_is_obeyed() {
        let path = facts(FileMovement::OwnConnections, 100);
        let limits = ConcurrencyBounds {
            user: None,
            source: Some(10),
            destination: Some(3),
        };
        assert_eq!(most(&path, limits), 3);
        let limits = ConcurrencyBounds {
            user: Some(17),
            ..ConcurrencyBounds::default()
        };
        let ramp = SessionRamp::new(&path, limits);
        assert_eq!(ramp.sessions(), 17);
        let mut ramp = SessionRamp::new(&path, ConcurrencyBounds::default());
        ramp.on_limit(5);
        assert_eq!(ramp.sessions(), 5);
        assert!(!ramp.on_interval(1000, 0, Duration::from_secs(1), None));
    }

    #[test]
    fn sessions_are_added_only_while_they_gain() {
        let mut ramp = SessionRamp::new(
            &facts(FileMovement::OwnConnections, 100),
            ConcurrencyBounds::default(),
        );
        let start = ramp.sessions();
        assert!(!ramp.on_interval(0, 0, Duration::from_secs(1), None));
        assert!(start < 64 && ramp.on_interval(100, 0, Duration::from_secs(1), None));
        let raised = ramp.sessions();
        assert!(raised > start);
        assert!(!ramp.on_interval(101, 0, Duration::from_secs(1), None));
        assert!(!ramp.on_interval(500, 0, Duration::from_secs(1), None));
        assert_eq!(ramp.sessions(), raised);
    }

    #[test]
    fn bundles_that_fill_a_long_path_have_one_session() {
        let sessions = |rtt, files, mean_size| {
            let facts = BatchFacts {
                files,
                mean_size,
                ..facts(FileMovement::Bundles, rtt)
            };
            let ramp = SessionRamp::new(&facts, ConcurrencyBounds::default());
            (ramp.sessions(), ramp.most())
        };
        assert_eq!(sessions(100, 10_000, 1_000_000), (1, 1));
        assert_eq!(sessions(100, 10_000, 1_000), (1, 1), "10 MB");
        assert_eq!(sessions(100, 1_000_000, 1_000), (1, FEW));
        assert_eq!(sessions(100, usize::MAX, 1_000), (1, FEW), "still listed");
        assert_eq!(sessions(0, 10_000, 1_000_000), (FEW, FEW));
    }
}
