//! Storages of a batch that are away, and those that ask to be left alone.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use ftp::Failure;
use ftp::location::StorageId;

/// The reachability of a batch's storages, as far as known.
#[derive(Debug, Default)]
pub(crate) struct KnownOutages(Mutex<HashMap<StorageId, Reachability>>);

#[derive(Debug, Default)]
struct Reachability {
    was_reached: bool,
    /// Why it cannot be reached at all. It was never reached.
    not_there: Option<Failure>,
    outage: Option<Outage>,
    /// The storage asks to be left alone until then.
    asked_until: Option<Instant>,
}

/// The time for which a storage is away.
#[derive(Debug)]
struct Outage {
    since: Instant,
    reason: Failure,
    /// Nobody waits for it any more.
    is_given_up: bool,
}

impl KnownOutages {
    /// Whether this run has reached a storage before.
    pub(crate) fn was_reached(&self, id: &StorageId) -> bool {
        self.0.lock().get(id).is_some_and(|known| known.was_reached)
    }

    /// A connection with a storage was made.
    pub(crate) fn reached(&self, id: &StorageId) {
        let mut storages = self.0.lock();
        let known = storages.entry(id.clone()).or_default();
        known.was_reached = true;
        known.not_there = None;
        known.outage = None;
    }

    /// No connection with a storage could be made. One that was never reached is not away.
    pub(crate) fn missed(&self, id: &StorageId, reason: &Failure) {
        let mut storages = self.0.lock();
        if let Some(known) = storages.get_mut(id).filter(|known| known.was_reached) {
            known.outage.get_or_insert_with(|| Outage {
                since: Instant::now(),
                reason: reason.clone(),
                is_given_up: false,
            });
        }
    }

    /// A storage that was never reached cannot be: nobody waits for it.
    pub(crate) fn not_there(&self, id: &StorageId, reason: &Failure) {
        let mut storages = self.0.lock();
        let known = storages.entry(id.clone()).or_default();
        if !known.was_reached {
            known.not_there.get_or_insert_with(|| reason.clone());
        }
    }

    /// The longest time for which one of `storages` is away; `None`: all can be reached, as far as known.
    pub(crate) fn longest_of(&self, storages: &[StorageId]) -> Option<Duration> {
        let known = self.0.lock();
        let outages = storages.iter().filter_map(|id| known.get(id));
        longest(outages)
    }

    /// The longest time for which any storage is away.
    pub(crate) fn longest(&self) -> Option<Duration> {
        longest(self.0.lock().values())
    }

    /// Nobody waits any more for those of `storages` that are away for `patience`: who needs one of them fails at once.
    pub(crate) fn give_up(&self, storages: &[StorageId], patience: Duration) {
        let mut known = self.0.lock();
        for id in storages {
            let outage = known.get_mut(id).and_then(|known| known.outage.as_mut());
            if let Some(outage) = outage {
                outage.is_given_up |= !patience.is_zero() && outage.since.elapsed() >= patience;
            }
        }
    }

    /// Why a storage cannot be reached, if nobody waits for it any more.
    pub(crate) fn given_up(&self, id: &StorageId) -> Option<Failure> {
        let known = self.0.lock();
        let known = known.get(id)?;
        let outage = known.outage.as_ref().filter(|outage| outage.is_given_up);
        let outage = outage.map(|outage| outage.reason.clone().retried(false));
        outage.or_else(|| known.not_there.clone())
    }

    /// A storage asks to be left alone for `wait`.
    pub(crate) fn asked_to_wait(&self, id: &StorageId, wait: Duration) {
        let mut storages = self.0.lock();
        let known = storages.entry(id.clone()).or_default();
        known.asked_until = Instant::now().checked_add(wait).max(known.asked_until);
    }

    /// How long `storages` ask to be left alone from now on.
    pub(crate) fn wait_asked_for(&self, storages: &[StorageId]) -> Duration {
        let known = self.0.lock();
        let until = storages
            .iter()
            .filter_map(|id| known.get(id)?.asked_until)
            .max();
        until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        })
    }
}

fn longest<'k>(known: impl Iterator<Item = &'k Reachability>) -> Option<Duration> {
    let outages = known.filter_map(|known| known.outage.as_ref());
    outages.map(|outage| outage.since.elapsed()).max()
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;
    use ftp::location::Location;

    fn id(url: &str) -> StorageId {
        Location::parse(url).unwrap().storage_id()
    }

    fn lost(message: &str) -> Failure {
        Failure::unreachable(message)
    }

    #[test]
    fn the_outage_of_one_server_is_not_that_of_another() {
        let outages = KnownOutages::default();
        let [a, b] = ["ftp://a/", "ftp://b/"].map(id);
        outages.reached(&b);
        outages.missed(&b, &lost("b is away"));
        // `a` was never reached: its name may be misspelled.
        outages.missed(&a, &lost("a is away"));
        assert_eq!(outages.longest_of(from_ref(&a)), None);
        outages.reached(&a);
        outages.missed(&a, &lost("a is away"));
        let away = [a.clone(), b.clone()].map(|id| outages.longest_of(&[id]).unwrap());
        assert!(away[0] <= away[1]);
        outages.reached(&a);
        assert_eq!(outages.longest_of(&[a]), None);
        assert!(outages.longest_of(&[b]).is_some());
    }

    #[test]
    fn a_server_is_given_up_by_itself_and_for_its_own_reason() {
        let outages = KnownOutages::default();
        let [a, b] = ["ftp://a/", "ftp://b/"].map(id);
        for (id, message) in [(&a, "a is away"), (&b, "b is away")] {
            outages.reached(id);
            outages.missed(id, &lost(message));
        }
        let patience = Duration::from_nanos(1);
        while outages.longest_of(from_ref(&a)) < Some(patience) {}
        outages.give_up(from_ref(&a), patience);
        let given_up = outages.given_up(&a).unwrap();
        assert_eq!(
            (given_up.to_string().as_str(), given_up.may_retry()),
            ("a is away", false)
        );
        assert_eq!(outages.given_up(&b), None);
    }

    #[test]
    fn a_wait_that_one_server_asks_for_is_not_for_another() {
        let outages = KnownOutages::default();
        let [a, b] = ["http://a/", "http://b/"].map(id);
        outages.asked_to_wait(&a, Duration::from_secs(100));
        outages.asked_to_wait(&a, Duration::from_secs(1));
        assert_eq!(outages.wait_asked_for(from_ref(&b)), Duration::ZERO);
        assert!(outages.wait_asked_for(&[b, a]) > Duration::from_secs(90));
    }
}
