//! Bandwidth budgets of the server, of addresses and of users.

use std::collections::HashMap;

use data::rate::RateLimit;
use parking_lot::Mutex;
use tune::admission::ClientKey;

/// Number of budgets above which unused ones are removed.
const FIRST_SWEEP: usize = 64;

/// The holder of a budget.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum BudgetHolder {
    /// All transfers together.
    Server,
    /// A client.
    Address(ClientKey),
    /// An account.
    User(String),
}

/// The budgets that exist. One that nobody uses is kept until its burst is earned again, so that a client which
/// connects anew does not get a new burst.
#[derive(Debug)]
pub(crate) struct BandwidthBudgets {
    budgets: Mutex<KnownBudgets>,
}

#[derive(Debug)]
struct KnownBudgets {
    /// By rate, too: after a reload, sessions that began before have the old one.
    of: HashMap<(BudgetHolder, u64), RateLimit>,
    /// Number at which unused ones are removed next.
    sweep_at: usize,
}

impl Default for BandwidthBudgets {
    fn default() -> Self {
        Self {
            budgets: Mutex::new(KnownBudgets {
                of: HashMap::new(),
                sweep_at: FIRST_SWEEP,
            }),
        }
    }
}

impl BandwidthBudgets {
    /// The budget of a transfer that counts for these holders, each with its rate in bytes per second; `None`
    /// without holders. A holder whose rate has changed gets one more budget, which the sessions share that begin from then
    /// on.
    pub(crate) fn share(
        &self,
        holders: impl IntoIterator<Item = (BudgetHolder, u64)>,
    ) -> Option<RateLimit> {
        let mut known = self.budgets.lock();
        let shares = holders
            .into_iter()
            .map(|(holder, rate)| known.of_holder(holder, rate));
        shares.reduce(RateLimit::within)
    }
}

impl KnownBudgets {
    fn of_holder(&mut self, holder: BudgetHolder, rate: u64) -> RateLimit {
        if self.of.len() >= self.sweep_at {
            self.of.retain(|_, budget| !budget.is_unused());
            // Twice as many, so that each new budget costs a bounded number of visits.
            self.sweep_at = FIRST_SWEEP.max(2 * self.of.len());
        }
        let budget = self
            .of
            .entry((holder, rate))
            .or_insert_with(|| RateLimit::new(rate));
        budget.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn user(name: &str) -> BudgetHolder {
        BudgetHolder::User(name.to_owned())
    }

    #[test]
    fn transfers_of_one_holder_share_its_budget() {
        let budgets = BandwidthBudgets::default();
        let address = BudgetHolder::Address(std::net::IpAddr::from([192, 0, 2, 1]).into());
        let first = budgets.share([(user("ann"), 1000)]).unwrap();
        let second = budgets
            .share([
                (user("ann"), 1000),
                (address, 5000),
                (BudgetHolder::Server, 9000),
            ])
            .unwrap();
        let other = budgets.share([(user("bob"), 1000)]).unwrap();
        assert_eq!(second.rate(), 1000);
        first.take(100_000);
        assert!(second.is_exhausted() && !other.is_exhausted());
        assert!(budgets.share([]).is_none());
    }

    #[test]
    fn a_holder_that_returns_gets_no_new_burst() {
        let budgets = BandwidthBudgets::default();
        let first = budgets.share([(user("ann"), 1000)]).unwrap();
        first.take(1_000_000);
        drop(first);
        for n in 0..10 * FIRST_SWEEP {
            budgets.share([(user(&format!("user {n}")), 1000)]).unwrap();
        }
        let again = budgets.share([(user("ann"), 1000)]).unwrap();
        assert!(again.take(1) > Duration::from_secs(500));
        let known = budgets.budgets.lock().of.len();
        assert!(known < 3 * FIRST_SWEEP, "{known} budgets are kept");
    }

    #[test]
    fn a_new_rate_is_a_new_budget() {
        let budgets = BandwidthBudgets::default();
        budgets.share([(user("ann"), 1000)]).unwrap();
        assert_eq!(budgets.share([(user("ann"), 2000)]).unwrap().rate(), 2000);
    }

    #[test]
    fn sessions_from_before_and_after_a_reload_get_no_new_bursts_from_each_other() {
        let budgets = BandwidthBudgets::default();
        for rate in [1000, 2000] {
            budgets
                .share([(user("ann"), rate)])
                .unwrap()
                .take(1_000_000);
        }
        for rate in [1000, 2000] {
            let again = budgets.share([(user("ann"), rate)]).unwrap();
            assert!(again.is_exhausted(), "{rate}");
        }
    }
}
