//! Memory for bytes on their way: one budget of all transfers of a server.
//!
//! A transfer begins when it has the memory without which it could not go on, and waits until then. So each one that has begun
//! comes to its end, whatever the others hold. With more it goes ahead: it gets that while it holds less than is free, so that
//! a later one gets as much (the dynamic threshold by which switches share a buffer, Choudhury and Hahne 1998).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use data::served::ServedClient;
use parking_lot::{Condvar, Mutex};
use proto::server::{FileError, FileErrorKind};

/// Memory of all transfers together, bytes.
const TOTAL: u64 = 1 << 30;
/// A transfer that needs more than this part of the memory keeps no other one waiting.
const MAX_WAITED_FOR: u64 = 16;
/// Longest wait of a transfer for the memory with which it begins.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// How often a transfer that waits looks whether it was cancelled.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The memory of all transfers.
#[derive(Debug)]
pub(super) struct TransferMemoryBudget {
    max_wait: Duration,
    state: Mutex<MemoryBudgetState>,
}

#[derive(Debug)]
struct MemoryBudgetState {
    total: u64,
    free: u64,
    /// Bytes with which the transfers of each client have begun, if they have any.
    begun: HashMap<String, u64>,
    /// In the order in which they came.
    waiting: Vec<WaitingTransfer>,
}

#[derive(Debug)]
struct WaitingTransfer {
    client: String,
    bytes: u64,
    turn: Arc<Turn>,
}

#[derive(Debug, Default)]
struct Turn {
    /// Changed and read under the lock of the budget.
    has_come: AtomicBool,
    comes: Condvar,
}

/// The memory of one transfer. Dropping it gives all of it back.
#[derive(Debug)]
pub(super) struct TransferMemoryShare {
    budget: Arc<TransferMemoryBudget>,
    client: String,
    /// Bytes with which it has begun.
    own: u64,
    /// Further ones, changed under the lock of the budget.
    more: AtomicU64,
}

impl Default for TransferMemoryBudget {
    fn default() -> Self {
        Self::of(TOTAL, MAX_WAIT)
    }
}

impl TransferMemoryBudget {
    /// A budget of so many bytes. A transfer waits so long at most.
    pub(super) fn of(total: u64, max_wait: Duration) -> Self {
        Self {
            max_wait,
            state: Mutex::new(MemoryBudgetState {
                total,
                free: total,
                begun: HashMap::new(),
                waiting: Vec::new(),
            }),
        }
    }

    /// The memory with which a transfer begins, as soon as it is free: `bytes`, which it keeps to its end.
    ///
    /// # Errors
    /// `Busy`: others have it. `Aborted`: the transfer was cancelled.
    pub(super) fn begin(
        self: &Arc<Self>,
        bytes: u64,
        by: &ServedClient,
    ) -> Result<TransferMemoryShare, FileError> {
        let deadline = match by.may_wait {
            true => Instant::now() + self.max_wait,
            false => Instant::now(),
        };
        let turn = Arc::new(Turn::default());
        let mut state = self.state.lock();
        state.waiting.push(WaitingTransfer {
            client: by.name.clone(),
            bytes,
            turn: Arc::clone(&turn),
        });
        state.grant();
        while !turn.has_come.load(Ordering::Relaxed) {
            let now = Instant::now();
            let is_cancelled = by.control.is_cancelled();
            if is_cancelled || now >= deadline {
                state
                    .waiting
                    .retain(|waiting| !Arc::ptr_eq(&waiting.turn, &turn));
                // Those behind it may need less.
                state.grant();
                return Err(match is_cancelled {
                    true => FileError::new(FileErrorKind::Aborted, "aborted"),
                    false => used_up(state.total),
                });
            }
            turn.comes
                .wait_until(&mut state, deadline.min(now + CHECK_INTERVAL));
        }
        drop(state);
        Ok(TransferMemoryShare {
            budget: Arc::clone(self),
            client: by.name.clone(),
            own: bytes,
            more: AtomicU64::new(0),
        })
    }
}

impl MemoryBudgetState {
    /// Lets transfers begin while there is memory for the next one.
    fn grant(&mut self) {
        while let Some(at) = self.next()
            && self.waiting[at].bytes <= self.free
        {
            let next = self.waiting.remove(at);
            self.free -= next.bytes;
            *self.begun.entry(next.client).or_default() += next.bytes;
            next.turn.has_come.store(true, Ordering::Relaxed);
            next.turn.comes.notify_one();
        }
    }

    /// The transfer that begins next: of the client that has least, the first that came. A client that has some gets at most half of
    /// what the others leave, so that there is always some for the next client. For one that needs much nobody waits: it begins when
    /// that much happens to be free.
    fn next(&self) -> Option<usize> {
        let all: u64 = self.begun.values().sum();
        let has = |client: &str| self.begun.get(client).copied().unwrap_or_default();
        let may_begin = |waiting: &WaitingTransfer| {
            let has = has(&waiting.client);
            let left = self.total - (all - has);
            let may_be_waited_for =
                waiting.bytes <= self.total / MAX_WAITED_FOR || waiting.bytes <= self.free;
            may_be_waited_for && (has == 0 || has + waiting.bytes <= left / 2)
        };
        let waiting = self.waiting.iter().enumerate();
        let waiting = waiting.filter(|(_, waiting)| may_begin(waiting));
        let next = waiting.min_by_key(|(_, waiting)| has(&waiting.client));
        next.map(|(at, _)| at)
    }
}

impl TransferMemoryShare {
    /// Bytes with which the transfer has begun.
    pub(super) fn own(&self) -> u64 {
        self.own
    }

    /// Takes memory with which the transfer goes ahead; `false`: it holds its share already, or others wait for theirs.
    pub(super) fn try_take(&self, bytes: u64) -> bool {
        let mut state = self.budget.state.lock();
        let holds = self.own + self.more.load(Ordering::Relaxed);
        let may_take = state.next().is_none() && holds + 2 * bytes <= state.free;
        if may_take {
            state.free -= bytes;
            self.more.fetch_add(bytes, Ordering::Relaxed);
        }
        may_take
    }

    /// Gives such memory back.
    pub(super) fn give_back(&self, bytes: u64) {
        let mut state = self.budget.state.lock();
        self.more.fetch_sub(bytes, Ordering::Relaxed);
        state.free += bytes;
        state.grant();
    }
}

impl Drop for TransferMemoryShare {
    fn drop(&mut self) {
        let mut state = self.budget.state.lock();
        state.free += self.own + self.more.load(Ordering::Relaxed);
        if let Some(begun) = state.begun.get_mut(&self.client) {
            *begun -= self.own;
            if *begun == 0 {
                state.begun.remove(&self.client);
            }
        }
        state.grant();
    }
}

fn used_up(total: u64) -> FileError {
    let text = format!(
        "other transfers use all of the {} MiB of memory that this server has for bytes on their way: try again later",
        total >> 20
    );
    FileError::new(FileErrorKind::Busy, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: &str) -> ServedClient {
        ServedClient {
            name: name.to_owned(),
            may_wait: true,
            ..ServedClient::default()
        }
    }

    fn budget(total: u64, max_wait: Duration) -> Arc<TransferMemoryBudget> {
        Arc::new(TransferMemoryBudget::of(total, max_wait))
    }

    const NO_WAIT: Duration = Duration::ZERO;
    const LONG: Duration = Duration::from_secs(60);

    fn free(budget: &TransferMemoryBudget) -> u64 {
        budget.state.lock().free
    }

    #[test]
    fn a_transfer_begins_when_others_have_ended_and_in_its_turn() {
        let budget = budget(160, LONG);
        let first = budget.begin(155, &client("a")).unwrap();
        std::thread::scope(|scope| {
            let waiting: Vec<_> = ["b", "c"]
                .iter()
                .map(|name| {
                    let count = || budget.state.lock().waiting.len();
                    let before = count();
                    let begin = scope.spawn(|| budget.begin(8, &client(name)).map(drop));
                    while count() == before && !begin.is_finished() {
                        std::thread::yield_now();
                    }
                    begin
                })
                .collect();
            // Enough is free, but it is for those that came earlier.
            assert!(!first.try_take(1));
            drop(first);
            for begun in waiting {
                begun.join().unwrap().unwrap();
            }
        });
        assert_eq!(free(&budget), 160);
    }

    #[test]
    fn one_that_finds_no_memory_is_refused_and_leaves_nothing_behind() {
        let budget = budget(10, NO_WAIT);
        let all = budget.begin(10, &client("a")).unwrap();
        let error = budget.begin(1, &client("b")).unwrap_err();
        assert_eq!(error.kind, FileErrorKind::Busy, "{}", error.text);
        drop(all);
        assert!(budget.begin(10, &client("b")).is_ok());
        assert!(budget.state.lock().begun.is_empty() && free(&budget) == 10);
    }

    #[test]
    fn a_cancelled_transfer_waits_no_longer() {
        let budget = budget(10, LONG);
        let _all = budget.begin(10, &client("a")).unwrap();
        let cancelled = client("b");
        cancelled.control.cancel();
        let error = budget.begin(1, &cancelled).unwrap_err();
        assert_eq!(error.kind, FileErrorKind::Aborted);
    }

    #[test]
    fn nobody_waits_for_one_that_needs_much() {
        let budget = budget(160, NO_WAIT);
        let first = budget.begin(100, &client("a")).unwrap();
        budget.state.lock().waiting.push(WaitingTransfer {
            client: "b".to_owned(),
            bytes: 80,
            turn: Arc::default(),
        });
        assert!(budget.begin(5, &client("c")).is_ok());
        drop(first);
        assert!(budget.state.lock().waiting.is_empty());
    }

    #[test]
    fn one_client_leaves_memory_for_the_next() {
        let budget = budget(16, NO_WAIT);
        let mut held = Vec::new();
        while let Ok(memory) = budget.begin(2, &client("a")) {
            held.push(memory);
        }
        assert_eq!(held.len(), 4);
        held.push(budget.begin(2, &client("b")).unwrap());
        // A client without any transfer begins even with more than half.
        assert!(budget.begin(6, &client("c")).is_ok());
    }

    #[test]
    fn of_several_clients_the_one_with_least_begins_first() {
        let budget = budget(64, NO_WAIT);
        let _held = [("a", 6), ("b", 9)].map(|(name, bytes)| budget.begin(bytes, &client(name)));
        let mut state = budget.state.lock();
        for name in ["b", "a"] {
            state.waiting.push(WaitingTransfer {
                client: name.to_owned(),
                bytes: 1,
                turn: Arc::default(),
            });
        }
        let next = state.next().unwrap();
        assert_eq!(state.waiting[next].client, "a");
    }

    #[test]
    fn transfers_go_ahead_while_there_is_more_than_they_hold() {
        let budget = budget(16, NO_WAIT);
        let first = budget.begin(1, &client("a")).unwrap();
        let mut taken = 0;
        while first.try_take(1) {
            taken += 1;
        }
        assert_eq!(taken, 7);
        // A later one gets as much in the end.
        let second = budget.begin(1, &client("b")).unwrap();
        assert!(second.try_take(1));
        first.give_back(1);
        assert!(!first.try_take(1));
        drop((first, second));
        assert_eq!(free(&budget), 16);
    }
}
