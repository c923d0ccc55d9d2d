//! Slows down the guessing of passwords.
//!
//! Failures count for the client's address and for the account that was named, whether it exists or
//! not, and are forgotten one a minute; a login that succeeds clears none, or an account of one's
//! own would buy free guesses. Attempts under way count as failures until they end.
//!
//! The account's count stops guesses from many addresses. It is no weapon against its owner: it only
//! delays, by seconds, and not at all from an address where this account logged in before.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::client_key;

/// Wait after the first failure that is not free; doubles with each.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Longest wait in the queue; who would wait longer is refused at once, or a flood of logins would
/// shut out everybody behind its address for hours and hold as many sessions.
const MAX_QUEUE: Duration = Duration::from_secs(64);
/// One failure is forgotten in this time without another.
const DECAY: Duration = Duration::from_secs(60);
/// Most failures counted: so many minutes of quiet clear any record.
const MAX_FAILURES: u32 = 12;
/// Addresses and accounts remembered, each; the one that was quiet for longest gives way.
const MAX_RECORDS: usize = 65_536;

/// Failures of an address that cost nothing: people mistype.
pub(crate) const FREE_FAILURES: u32 = 3;

/// Of an address.
const ADDRESS: Penalty = Penalty {
    free: FREE_FAILURES,
    longest: Duration::from_secs(32),
};

/// Of an account: its owner may have to wait for guesses of others.
const ACCOUNT: Penalty = Penalty {
    free: 10,
    longest: Duration::from_secs(4),
};

/// How failures become waits.
#[derive(Debug, Clone, Copy)]
struct Penalty {
    /// Failures that cost nothing.
    free: u32,
    /// Longest time between two checks.
    longest: Duration,
}

/// How soon each address and account may try the next login. Pure: time is an argument.
///
/// Checks are spread over time however many sessions ask at once: each [`LoginPenalties::begin`]
/// takes a turn in the queue.
#[derive(Debug, Default)]
pub struct LoginPenalties {
    addresses: HashMap<IpAddr, FailureRecord>,
    accounts: HashMap<u64, FailureRecord>,
    /// Logins that succeeded, with the time of the last one.
    known: HashMap<(IpAddr, u64), Instant>,
    /// Names of accounts are kept as their hashes: a client may send long ones.
    hasher: RandomState,
}

/// A login under way; [`LoginPenalties::end`] takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginAttempt {
    address: IpAddr,
    account: u64,
    /// How long to wait before the password is checked.
    pub wait: Duration,
}

/// Too many logins wait already; this one is not to be checked at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginQueueFull;

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptResult {
    /// The password is right.
    Granted,
    /// It is wrong, or the client did not wait for the answer.
    Failed,
    /// It was never checked.
    Unchecked,
}

#[derive(Debug)]
struct FailureRecord {
    /// As of `last`.
    failures: u32,
    last: Instant,
    under_way: u32,
    /// When the next check may run.
    free_at: Instant,
}

impl LoginPenalties {
    /// Counts an attempt and takes its turn.
    ///
    /// # Errors
    /// Its turn would be more than a minute away.
    pub fn begin(
        &mut self,
        peer: IpAddr,
        user: &str,
        now: Instant,
    ) -> Result<LoginAttempt, LoginQueueFull> {
        let address = client_key(peer);
        let account = self.hasher.hash_one(user);
        let at_address = record(&mut self.addresses, address, now);
        let first = at_address.wait(now).ok_or(LoginQueueFull)?;
        let at_account = record(&mut self.accounts, account, now);
        let second = if self.known.contains_key(&(address, account)) {
            Duration::ZERO
        } else {
            at_account.wait(now).ok_or(LoginQueueFull)?
        };
        let wait = first.max(second);
        at_address.take_turn(now + wait, &ADDRESS);
        at_account.take_turn(now + wait, &ACCOUNT);
        Ok(LoginAttempt {
            address,
            account,
            wait,
        })
    }

    /// Notes how an attempt ended.
    pub fn end(&mut self, attempt: LoginAttempt, end: AttemptResult, now: Instant) {
        let LoginAttempt {
            address, account, ..
        } = attempt;
        settle(&mut self.addresses, &address, &ADDRESS, end, now);
        settle(&mut self.accounts, &account, &ACCOUNT, end, now);
        if end == AttemptResult::Granted {
            if self.known.len() >= MAX_RECORDS {
                let oldest = self.known.iter().min_by_key(|(_, time)| **time);
                if let Some(&pair) = oldest.map(|(pair, _)| pair) {
                    self.known.remove(&pair);
                }
            }
            self.known.insert((address, account), now);
        }
    }
}

impl FailureRecord {
    /// Failures that are not forgotten yet.
    fn failures_at(&self, now: Instant) -> u32 {
        let minutes = now.saturating_duration_since(self.last).as_secs() / DECAY.as_secs();
        self.failures
            .saturating_sub(u32::try_from(minutes).unwrap_or(u32::MAX))
    }

    fn is_blank(&self, now: Instant) -> bool {
        self.under_way == 0 && self.failures_at(now) == 0 && self.free_at <= now
    }

    /// Time until the next turn, unless that is too long.
    fn wait(&self, now: Instant) -> Option<Duration> {
        let wait = self.free_at.saturating_duration_since(now);
        (wait <= MAX_QUEUE).then_some(wait)
    }

    /// An attempt is checked at `turn`; until it ends it counts as failed.
    fn take_turn(&mut self, turn: Instant, penalty: &Penalty) {
        self.under_way = self.under_way.saturating_add(1);
        let count = self.failures_at(turn).saturating_add(self.under_way);
        self.free_at = self.free_at.max(turn + penalty.step(count));
    }

    fn end(&mut self, end: AttemptResult, penalty: &Penalty, now: Instant) {
        self.under_way = self.under_way.saturating_sub(1);
        if end == AttemptResult::Failed {
            self.failures = (self.failures_at(now) + 1).min(MAX_FAILURES);
            self.last = now;
        }
        let next = now + penalty.step(self.failures_at(now));
        if end == AttemptResult::Failed {
            self.free_at = self.free_at.max(next);
        } else if self.under_way == 0 {
            // What it was feared to be does not hold up the next one.
            self.free_at = self.free_at.min(next);
        }
    }
}

impl Penalty {
    /// Time between two checks after so many failures.
    fn step(&self, failures: u32) -> Duration {
        match failures.checked_sub(self.free + 1) {
            None => Duration::ZERO,
            Some(doublings) => FIRST_WAIT
                .saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX))
                .min(self.longest),
        }
    }
}

/// The record of `key`, made if there is none.
fn record<K: Hash + Eq + Copy>(
    records: &mut HashMap<K, FailureRecord>,
    key: K,
    now: Instant,
) -> &mut FailureRecord {
    if records.len() >= MAX_RECORDS && !records.contains_key(&key) {
        records.retain(|_, record| !record.is_blank(now));
        if records.len() >= MAX_RECORDS {
            let quiet = records
                .iter()
                .min_by_key(|(_, record)| (record.under_way, record.last));
            if let Some(&key) = quiet.map(|(key, _)| key) {
                records.remove(&key);
            }
        }
    }
    records.entry(key).or_insert(FailureRecord {
        failures: 0,
        last: now,
        under_way: 0,
        free_at: now,
    })
}

/// Ends an attempt in its record, and drops a record that says nothing.
fn settle<K: Hash + Eq>(
    records: &mut HashMap<K, FailureRecord>,
    key: &K,
    penalty: &Penalty,
    end: AttemptResult,
    now: Instant,
) {
    let Some(record) = records.get_mut(key) else {
        return; // gave way to others
    };
    record.end(end, penalty, now);
    if record.is_blank(now) {
        records.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn host(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    /// An attempt that is checked when its turn comes; the wait in seconds.
    fn attempt(
        penalties: &mut LoginPenalties,
        peer: IpAddr,
        user: &str,
        end: AttemptResult,
        now: &mut Instant,
    ) -> Option<u64> {
        let attempt = penalties.begin(peer, user, *now).ok()?;
        *now += attempt.wait;
        penalties.end(attempt, end, *now);
        Some(attempt.wait.as_secs())
    }

    fn fail(penalties: &mut LoginPenalties, peer: IpAddr, user: &str, now: &mut Instant) -> u64 {
        attempt(penalties, peer, user, AttemptResult::Failed, now).unwrap()
    }

    #[test]
    fn waits_grow_with_failures_and_shrink_with_time() {
        let mut penalties = LoginPenalties::default();
        let mut now = Instant::now();
        let waits: Vec<u64> = (0..11)
            .map(|n| fail(&mut penalties, PEER, &format!("user {n}"), &mut now))
            .collect();
        assert_eq!(waits, [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 32]);
        now += DECAY * 6;
        assert_eq!(fail(&mut penalties, PEER, "a", &mut now), 0);
        assert_eq!(fail(&mut penalties, PEER, "b", &mut now), 4, "not cleared");
        now += DECAY * MAX_FAILURES;
        fail(&mut penalties, PEER, "c", &mut now);
        assert_eq!(fail(&mut penalties, PEER, "d", &mut now), 0, "forgotten");
    }

    #[test]
    fn guesses_at_once_count_before_any_of_them_has_failed() {
        let mut penalties = LoginPenalties::default();
        let now = Instant::now();
        let begun: Vec<Result<LoginAttempt, LoginQueueFull>> = (0..100)
            .map(|n| penalties.begin(PEER, &format!("user {n}"), now))
            .collect();
        let waits: Vec<u64> = begun.iter().flatten().map(|a| a.wait.as_secs()).collect();
        assert_eq!(waits, [0, 0, 0, 0, 1, 3, 7, 15, 31, 63]);
        let other = penalties.begin(host(9), "ann", now).unwrap();
        assert_eq!(other.wait, Duration::ZERO);
    }

    #[test]
    fn a_success_clears_no_failures() {
        let mut penalties = LoginPenalties::default();
        let mut now = Instant::now();
        for n in 0..6 {
            fail(&mut penalties, PEER, &format!("user {n}"), &mut now);
        }
        let own = attempt(
            &mut penalties,
            PEER,
            "mine",
            AttemptResult::Granted,
            &mut now,
        );
        assert_eq!(own, Some(4));
        assert_eq!(fail(&mut penalties, PEER, "ann", &mut now), 4);
    }

    #[test]
    fn logins_that_succeed_cost_nothing_and_leave_no_record() {
        let mut penalties = LoginPenalties::default();
        let mut now = Instant::now();
        for _ in 0..1000 {
            let wait = attempt(
                &mut penalties,
                PEER,
                "ann",
                AttemptResult::Granted,
                &mut now,
            );
            assert_eq!(wait, Some(0));
        }
        assert!(penalties.addresses.is_empty() && penalties.accounts.is_empty());
    }

    #[test]
    fn guesses_from_many_addresses_slow_down_for_their_account() {
        let mut penalties = LoginPenalties::default();
        let mut now = Instant::now();
        let begun = now;
        for n in 0..100 {
            fail(&mut penalties, host(n), "ann", &mut now);
        }
        assert!(now - begun > Duration::from_secs(300), "{:?}", now - begun);
        assert_eq!(fail(&mut penalties, host(100), "bob", &mut now), 0);
    }

    #[test]
    fn guesses_of_others_never_delay_an_owner_where_the_account_logged_in_before() {
        let mut penalties = LoginPenalties::default();
        let mut now = Instant::now();
        let home = host(1 << 24);
        attempt(
            &mut penalties,
            home,
            "ann",
            AttemptResult::Granted,
            &mut now,
        )
        .unwrap();
        let flood = now;
        for n in 0..1000 {
            // All at once: most are refused.
            let _ = penalties.begin(host(n), "ann", flood);
        }
        assert_eq!(
            penalties.begin(host(2000), "ann", flood),
            Err(LoginQueueFull)
        );
        let owner = attempt(
            &mut penalties,
            home,
            "ann",
            AttemptResult::Granted,
            &mut now,
        );
        assert_eq!(owner, Some(0));
        // The owner's own failures count for the address, as anybody's.
        for _ in 0..4 {
            fail(&mut penalties, home, "ann", &mut now);
        }
        assert_eq!(fail(&mut penalties, home, "ann", &mut now), 1);
    }

    #[test]
    fn a_flood_is_refused_and_does_not_lengthen_the_queue() {
        let mut penalties = LoginPenalties::default();
        let mut now = Instant::now();
        for n in 0..20 {
            fail(&mut penalties, PEER, &format!("user {n}"), &mut now);
        }
        let waiting: Vec<LoginAttempt> = (0..1000)
            .filter_map(|_| penalties.begin(PEER, "x", now).ok())
            .collect();
        assert!(waiting.len() <= 3, "{}", waiting.len());
        for attempt in waiting {
            penalties.end(attempt, AttemptResult::Unchecked, now);
        }
        let later = now + MAX_QUEUE + ADDRESS.longest;
        assert!(penalties.begin(PEER, "x", later).is_ok());
    }

    #[test]
    fn memory_is_bounded() {
        let mut penalties = LoginPenalties::default();
        let now = Instant::now();
        // Filled directly: the last one alone looks through all before it.
        for n in 0..u32::try_from(MAX_RECORDS).unwrap() {
            let record = FailureRecord {
                failures: 1,
                last: now + Duration::from_nanos(u64::from(n)),
                under_way: 0,
                free_at: now,
            };
            penalties.addresses.insert(host(n), record);
            penalties.known.insert((host(n), 0), now);
        }
        let mut later = now + Duration::from_secs(1);
        let peer = "192.0.2.9".parse().unwrap();
        fail(&mut penalties, peer, "ann", &mut later);
        attempt(
            &mut penalties,
            peer,
            "ann",
            AttemptResult::Granted,
            &mut later,
        )
        .unwrap();
        assert_eq!(penalties.addresses.len(), MAX_RECORDS);
        assert_eq!(penalties.known.len(), MAX_RECORDS);
        assert!(!penalties.addresses.contains_key(&host(0)));
    }
}
