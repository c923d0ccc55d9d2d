//! When a job that waits will be done, as far as earlier ones tell.

use std::time::Duration;

/// The facts that an estimate rests on.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueFacts {
    /// Jobs of the same owner that wait and are older.
    pub own_before: u64,
    /// Jobs that wait, of each other owner.
    pub others: Vec<u64>,
    /// Jobs that all workers together run at a time.
    pub slots: u64,
    /// Mean time of the attempts that ended well lately; `None`: there are none.
    pub mean: Option<Duration>,
}

/// Time until the job is done; `None`: unknown, because nothing ended lately or no worker runs.
pub fn time_left(facts: &QueueFacts) -> Option<Duration> {
    if facts.slots == 0 {
        return None;
    }
    // Owners take turns: before this one's job number n, each of the others has had at most n.
    let turns = facts.own_before.saturating_add(1);
    let others = facts.others.iter().map(|jobs| (*jobs).min(turns));
    let before = others.fold(facts.own_before, u64::saturating_add);
    let rounds = before as f64 / facts.slots as f64 + 1.0;
    Duration::try_from_secs_f64(facts.mean?.as_secs_f64() * rounds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_with_many_jobs_delay_others_by_their_turns_only() {
        let mut facts = QueueFacts {
            own_before: 0,
            others: vec![10_000, 3],
            slots: 2,
            mean: Some(Duration::from_secs(10)),
        };
        assert_eq!(time_left(&facts), Some(Duration::from_secs(20)));
        facts.own_before = 9;
        // 9 own, 10 of the first, 3 of the second.
        assert_eq!(time_left(&facts), Some(Duration::from_secs(120)));
        // Nothing is told without history or workers.
        facts.mean = None;
        assert_eq!(time_left(&facts), None);
        (facts.mean, facts.slots) = (Some(Duration::ZERO), 0);
        assert_eq!(time_left(&facts), None);
    }
}
