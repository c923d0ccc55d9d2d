//! Delays that slow down password guessing.
//!
//! Each failed login counts for the client's address and for the account name, whether the account
//! exists or not. One failure is forgotten per minute. A successful login clears none: otherwise an
//! attacker with an account could reset the count between guesses. Attempts in progress count as
//! failures until they end, so guessing in parallel gains nothing.
//!
//! The count per account limits guesses from many addresses. It cannot lock the owner out: it only
//! delays, by a few seconds, and not at all from an address where this account has logged in before.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use tune::admission::ClientKey;

/// Delay after the first failure that is not free; it doubles with each further failure.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Longest wait in the queue; longer waits are refused at once. Otherwise a flood of logins would
/// lock out everybody behind the same address for hours and hold as many sessions open.
const MAX_QUEUE: Duration = Duration::from_secs(64);
/// Time without a new failure in which one failure is forgotten.
const DECAY: Duration = Duration::from_secs(60);
/// Upper bound of the failure count: after so many minutes without failures every record is clear.
const MAX_FAILURES: u32 = 12;
/// Largest number of addresses, and of accounts, that are remembered. The least recently active one
/// is evicted.
const MAX_RECORDS: usize = 65_536;

/// Failures of an address that cause no delay: people mistype.
pub(crate) const FREE_FAILURES: u32 = 3;

/// Penalty per address.
const ADDRESS: Penalty = Penalty {
    free: FREE_FAILURES,
    longest: Duration::from_secs(32),
};

/// Penalty per account. It is milder, because guesses of others delay the owner, too.
const ACCOUNT: Penalty = Penalty {
    free: 10,
    longest: Duration::from_secs(4),
};

/// The delay as a function of the number of failures.
#[derive(Debug, Clone, Copy)]
struct Penalty {
    /// Failures that cause no delay.
    free: u32,
    /// Longest time between two checks.
    longest: Duration,
}

/// The failures of all addresses and accounts, and when each may try the next login. Pure: time is
/// an argument.
///
/// However many sessions try at once, the password checks are spread over time: each call of
/// [`LoginPenalties::begin`] reserves the next free time.
#[derive(Debug, Default)]
pub struct LoginPenalties {
    addresses: HashMap<ClientKey, FailureRecord>,
    accounts: HashMap<u64, FailureRecord>,
    /// Pairs of address and account that have logged in, with the time of the last login.
    known_pairs: HashMap<(ClientKey, u64), Instant>,
    /// Account names are kept as hashes, because a client may send long names.
    hasher: RandomState,
}

/// A login in progress; it must be passed to [`LoginPenalties::end`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginAttempt {
    address: ClientKey,
    account: u64,
    /// Wait before the password may be checked.
    pub wait: Duration,
}

/// Too many logins are waiting; this one must not be checked at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginQueueFull;

/// The result of a login attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptResult {
    /// The password was right.
    Granted,
    /// The password was wrong, or the client left before the answer.
    Failed,
    /// The password was not checked.
    Unchecked,
}

#[derive(Debug)]
struct FailureRecord {
    /// Failures at the time `last`.
    failures: u32,
    last: Instant,
    in_progress: u32,
    /// Earliest time of the next check.
    next_check: Instant,
}

impl LoginPenalties {
    /// Counts an attempt and reserves a time for its password check.
    ///
    /// # Errors
    /// The check would be more than 64 s away.
    pub fn begin(
        &mut self,
        peer: IpAddr,
        user: &str,
        now: Instant,
    ) -> Result<LoginAttempt, LoginQueueFull> {
        let address = ClientKey::from(peer);
        let account = self.hasher.hash_one(user);
        let address_record = record(&mut self.addresses, address, now);
        let first = address_record.wait(now).ok_or(LoginQueueFull)?;
        let account_record = record(&mut self.accounts, account, now);
        let second = if self.known_pairs.contains_key(&(address, account)) {
            Duration::ZERO
        } else {
            account_record.wait(now).ok_or(LoginQueueFull)?
        };
        let wait = first.max(second);
        address_record.reserve(now + wait, &ADDRESS);
        account_record.reserve(now + wait, &ACCOUNT);
        Ok(LoginAttempt {
            address,
            account,
            wait,
        })
    }

    /// Records the result of an attempt.
    pub fn end(&mut self, attempt: LoginAttempt, end: AttemptResult, now: Instant) {
        let LoginAttempt {
            address, account, ..
        } = attempt;
        end_attempt(&mut self.addresses, &address, &ADDRESS, end, now);
        end_attempt(&mut self.accounts, &account, &ACCOUNT, end, now);
        // Remembering the pair exempts this address from the account's penalty, so that an attacker
        // who guesses from elsewhere cannot delay the owner.
        if end == AttemptResult::Granted {
            if self.known_pairs.len() >= MAX_RECORDS {
                let oldest = self.known_pairs.iter().min_by_key(|(_, time)| **time);
                if let Some(&pair) = oldest.map(|(pair, _)| pair) {
                    self.known_pairs.remove(&pair);
                }
            }
            self.known_pairs.insert((address, account), now);
        }
    }
}

impl FailureRecord {
    /// Failures that are not forgotten at `now`.
    fn failures_at(&self, now: Instant) -> u32 {
        let minutes = now.saturating_duration_since(self.last).as_secs() / DECAY.as_secs();
        self.failures
            .saturating_sub(u32::try_from(minutes).unwrap_or(u32::MAX))
    }

    fn is_blank(&self, now: Instant) -> bool {
        self.in_progress == 0 && self.failures_at(now) == 0 && self.next_check <= now
    }

    /// Time until the next check; `None` if it is longer than [`MAX_QUEUE`].
    fn wait(&self, now: Instant) -> Option<Duration> {
        let wait = self.next_check.saturating_duration_since(now);
        (wait <= MAX_QUEUE).then_some(wait)
    }

    /// Reserves a check at `turn`; the attempt counts as failed until it ends.
    fn reserve(&mut self, turn: Instant, penalty: &Penalty) {
        self.in_progress = self.in_progress.saturating_add(1);
        let count = self.failures_at(turn).saturating_add(self.in_progress);
        self.next_check = self.next_check.max(turn + penalty.step(count));
    }

    fn end(&mut self, end: AttemptResult, penalty: &Penalty, now: Instant) {
        self.in_progress = self.in_progress.saturating_sub(1);
        if end == AttemptResult::Failed {
            self.failures = (self.failures_at(now) + 1).min(MAX_FAILURES);
            self.last = now;
        }
        let next = now + penalty.step(self.failures_at(now));
        if end == AttemptResult::Failed {
            self.next_check = self.next_check.max(next);
        } else if self.in_progress == 0 {
            // The reservation assumed a failure. It was none, so the next attempt may come earlier.
            self.next_check = self.next_check.min(next);
        }
    }
}

impl Penalty {
    /// Time between two checks after `failures` failures.
    fn step(&self, failures: u32) -> Duration {
        match failures.checked_sub(self.free + 1) {
            None => Duration::ZERO,
            Some(doublings) => FIRST_WAIT
                .saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX))
                .min(self.longest),
        }
    }
}

/// Returns the record of `key`, and creates it if needed.
fn record<K: Hash + Eq + Copy>(
    records: &mut HashMap<K, FailureRecord>,
    key: K,
    now: Instant,
) -> &mut FailureRecord {
    if records.len() >= MAX_RECORDS && !records.contains_key(&key) {
        // Blank records say nothing, so all of them go first: the next scan comes only when the table is
        // full again.
        records.retain(|_, record| !record.is_blank(now));
        if records.len() >= MAX_RECORDS {
            let quiet = records
                .iter()
                .min_by_key(|(_, record)| (record.in_progress, record.last));
            if let Some(&key) = quiet.map(|(key, _)| key) {
                records.remove(&key);
            }
        }
    }
    records.entry(key).or_insert(FailureRecord {
        failures: 0,
        last: now,
        in_progress: 0,
        next_check: now,
    })
}

/// Ends an attempt in the record of `key`, and removes the record if it is blank.
fn end_attempt<K: Hash + Eq>(
    records: &mut HashMap<K, FailureRecord>,
    key: &K,
    penalty: &Penalty,
    end: AttemptResult,
    now: Instant,
) {
    let Some(record) = records.get_mut(key) else {
        return; // evicted meanwhile
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

    /// Makes an attempt that is checked when its time comes; returns the wait in seconds.
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
    fn parallel_guesses_count_as_failures_before_they_end() {
        let mut penalties = LoginPenalties::default();
        let now = Instant::now();
        let attempts: Vec<Result<LoginAttempt, LoginQueueFull>> = (0..100)
            .map(|n| penalties.begin(PEER, &format!("user {n}"), now))
            .collect();
        let waits: Vec<u64> = attempts
            .iter()
            .flatten()
            .map(|a| a.wait.as_secs())
            .collect();
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
    fn successful_logins_are_not_delayed_and_leave_no_record() {
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
    fn guesses_from_many_addresses_are_slowed_down_by_the_account_penalty() {
        let mut penalties = LoginPenalties::default();
        let mut now = Instant::now();
        let start = now;
        for n in 0..100 {
            fail(&mut penalties, host(n), "ann", &mut now);
        }
        assert!(now - start > Duration::from_secs(300), "{:?}", now - start);
        assert_eq!(fail(&mut penalties, host(100), "bob", &mut now), 0);
    }

    #[test]
    fn guesses_of_others_do_not_delay_the_owner_at_a_known_address() {
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
            // All at the same time: most are refused.
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
        // The owner's own failures count for the address, like those of others.
        for _ in 0..4 {
            fail(&mut penalties, home, "ann", &mut now);
        }
        assert_eq!(fail(&mut penalties, home, "ann", &mut now), 1);
    }

    #[test]
    fn a_flood_of_logins_is_refused_and_does_not_lengthen_the_queue() {
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
    fn the_number_of_records_is_bounded() {
        let mut penalties = LoginPenalties::default();
        let now = Instant::now();
        // Filled directly, because `begin` scans all records when the map is full.
        for n in 0..u32::try_from(MAX_RECORDS).unwrap() {
            let record = FailureRecord {
                failures: 1,
                last: now + Duration::from_nanos(u64::from(n)),
                in_progress: 0,
                next_check: now,
            };
            penalties.addresses.insert(host(n).into(), record);
            penalties.known_pairs.insert((host(n).into(), 0), now);
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
        assert_eq!(penalties.known_pairs.len(), MAX_RECORDS);
        assert!(!penalties.addresses.contains_key(&host(0).into()));
    }
}
