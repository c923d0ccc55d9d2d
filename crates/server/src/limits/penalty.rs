//! Slows down the guessing of passwords.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::client_key;

/// Failures that cost nothing: people mistype.
const FREE_FAILURES: u32 = 3;
/// Wait after one failure more; doubles with each.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Longest step between two checks.
const MAX_WAIT: Duration = Duration::from_secs(32);
/// Longest wait in the queue; who would wait longer is refused at once, or a flood of logins would
/// shut out everybody behind its address for hours and hold as many sessions.
const MAX_QUEUE: Duration = Duration::from_secs(64);
/// Failures are forgotten when nothing came for this long.
const MEMORY: Duration = Duration::from_secs(600);
/// Addresses remembered; the one that was quiet for longest gives way.
const MAX_ADDRESSES: usize = 65_536;

/// How soon each address may try the next login. Pure: time is an argument.
///
/// Checks for one address are spread over time however many sessions ask at once: each
/// [`LoginPenalties::delay`] takes a turn in the queue. A login that succeeds clears the record.
#[derive(Debug, Default)]
pub struct LoginPenalties {
    addresses: HashMap<IpAddr, Record>,
}

#[derive(Debug)]
struct Record {
    failures: u32,
    last: Instant,
    /// When the next check may run.
    free_at: Instant,
}

impl LoginPenalties {
    /// How long to wait before the next login from `peer` is checked. Takes the turn; `None`: too
    /// many wait already, and it is not to be checked at all.
    pub fn delay(&mut self, peer: IpAddr, now: Instant) -> Option<Duration> {
        let Some(record) = self.addresses.get_mut(&client_key(peer)) else {
            return Some(Duration::ZERO);
        };
        let turn = record.free_at.max(now);
        let wait = turn - now;
        if wait > MAX_QUEUE {
            return None;
        }
        record.free_at = turn + step(record.failures);
        Some(wait)
    }

    /// Notes the result of a login.
    pub fn note(&mut self, peer: IpAddr, granted: bool, now: Instant) {
        let key = client_key(peer);
        if granted {
            self.addresses.remove(&key);
            return;
        }
        self.make_room(now);
        let record = self.addresses.entry(key).or_insert(Record {
            failures: 0,
            last: now,
            free_at: now,
        });
        record.failures = record.failures.saturating_add(1);
        record.last = now;
        record.free_at = record.free_at.max(now + step(record.failures));
    }

    fn make_room(&mut self, now: Instant) {
        let is_alive = |record: &Record| {
            now.saturating_duration_since(record.last) < MEMORY || record.free_at > now
        };
        self.addresses.retain(|_, record| is_alive(record));
        if self.addresses.len() >= MAX_ADDRESSES {
            let quiet = self.addresses.iter().min_by_key(|(_, record)| record.last);
            if let Some(&address) = quiet.map(|(address, _)| address) {
                self.addresses.remove(&address);
            }
        }
    }
}

/// Time between two checks after so many failures.
fn step(failures: u32) -> Duration {
    match failures.checked_sub(FREE_FAILURES + 1) {
        None => Duration::ZERO,
        Some(doublings) => FIRST_WAIT
            .saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX))
            .min(MAX_WAIT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn grows_and_is_forgotten() {
        let mut penalties = LoginPenalties::default();
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..11 {
            let wait = penalties.delay(PEER, now).unwrap();
            waits.push(wait.as_secs());
            now += wait;
            penalties.note(PEER, false, now);
        }
        assert_eq!(waits, [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 32]);
        now += MEMORY;
        penalties.note(PEER, false, now);
        assert_eq!(penalties.delay(PEER, now), Some(Duration::ZERO));
    }

    #[test]
    fn sessions_at_once_take_turns() {
        let mut penalties = LoginPenalties::default();
        let now = Instant::now();
        for _ in 0..5 {
            penalties.note(PEER, false, now);
        }
        let waits: Vec<u64> = (0..3)
            .map(|_| penalties.delay(PEER, now).unwrap().as_secs())
            .collect();
        assert_eq!(waits, [2, 4, 6]);
        assert_eq!(
            penalties.delay("192.0.2.9".parse().unwrap(), now),
            Some(Duration::ZERO)
        );
    }

    #[test]
    fn a_flood_is_refused_and_does_not_lengthen_the_queue() {
        let mut penalties = LoginPenalties::default();
        let now = Instant::now();
        for _ in 0..20 {
            penalties.note(PEER, false, now);
        }
        let waiting = (0..1000)
            .filter(|_| penalties.delay(PEER, now).is_some())
            .count();
        assert!(waiting <= 3, "{waiting}");
        let later = now + MAX_QUEUE + MAX_WAIT;
        assert!(penalties.delay(PEER, later).is_some());
    }

    #[test]
    fn success_clears() {
        let mut penalties = LoginPenalties::default();
        let now = Instant::now();
        for _ in 0..9 {
            penalties.note(PEER, false, now);
        }
        penalties.note(PEER, true, now);
        assert_eq!(penalties.delay(PEER, now), Some(Duration::ZERO));
    }

    #[test]
    fn memory_is_bounded() {
        let mut penalties = LoginPenalties::default();
        let now = Instant::now();
        // Filled directly: noting each would look through all before it.
        for n in 0..u32::try_from(MAX_ADDRESSES).unwrap() {
            let record = Record {
                failures: 1,
                last: now + Duration::from_nanos(u64::from(n)),
                free_at: now,
            };
            penalties
                .addresses
                .insert(IpAddr::from(n.to_be_bytes()), record);
        }
        penalties.note(
            "192.0.2.9".parse().unwrap(),
            false,
            now + Duration::from_secs(1),
        );
        assert_eq!(penalties.addresses.len(), MAX_ADDRESSES);
        assert!(
            !penalties
                .addresses
                .contains_key(&IpAddr::from([0, 0, 0, 0]))
        );
    }
}
