//! The process-wide bound on data connections, and each client's share of it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::error::DataError;
use crate::locks::lock;

/// Counts the data connections that may be open at once over all channels that share it: those at
/// work and those kept for a next transfer. Connections that were accepted and have sent nothing
/// yet are counted apart, up to the same number, but at least 1024.
///
/// A handle made with [`StreamBudget::for_client`] is one client's. A client may always have one
/// connection while any is left, and further ones as long as it has fewer than half of what the
/// others leave: there is something left for the next client, whoever comes first.
///
/// At the bound: a transfer that gets no permit at all fails with
/// [`DataError::TooManyStreams`]; one that gets fewer than it wants sends over fewer streams; a
/// receiver leaves further connections waiting until one of its streams ends, and does not keep
/// them all for the next transfer.
#[derive(Debug, Clone)]
pub struct StreamBudget {
    shared: Arc<BudgetState>,
    client: Option<IpAddr>,
}

#[derive(Debug)]
struct BudgetState {
    limit: AtomicUsize,
    open: Mutex<PermitCount>,
    silent: Mutex<PermitCount>,
}

/// Connections that may wait silently, however few may be at work: a descriptor each.
const SILENT: usize = 1024;

/// Permits given out, in all and by client.
#[derive(Debug, Default)]
struct PermitCount {
    used: usize,
    clients: HashMap<IpAddr, usize>,
}

/// The kind of connection that a permit is for.
#[derive(Debug, Clone, Copy)]
enum PermitKind {
    /// A connection that takes part in transfers.
    Open,
    /// One that has sent nothing yet.
    Unidentified,
}

impl StreamBudget {
    /// At most `limit` connections.
    pub fn new(limit: usize) -> Self {
        Self {
            shared: Arc::new(BudgetState {
                limit: AtomicUsize::new(limit),
                open: Mutex::default(),
                silent: Mutex::default(),
            }),
            client: None,
        }
    }

    /// The same budget, for the connections of one client. What counts as one client is the
    /// caller's to say, by mapping its addresses to one.
    pub fn for_client(&self, client: IpAddr) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            client: Some(client),
        }
    }

    /// Changes the bound; connections above a smaller one stay.
    pub fn set_limit(&self, limit: usize) {
        self.shared.limit.store(limit, Ordering::Relaxed);
    }

    /// Connections open now, over all clients: at work or kept.
    pub fn used(&self) -> usize {
        lock(&self.shared.open).used
    }

    /// One permit, or [`DataError::TooManyStreams`].
    pub(crate) fn take(&self) -> Result<StreamPermit, DataError> {
        self.take_for(PermitKind::Open)
    }

    /// One permit for a connection that has sent nothing yet, likewise.
    pub(crate) fn take_unidentified(&self) -> Result<StreamPermit, DataError> {
        self.take_for(PermitKind::Unidentified)
    }

    fn take_for(&self, kind: PermitKind) -> Result<StreamPermit, DataError> {
        let limit = self.shared.limit.load(Ordering::Relaxed);
        let limit = match kind {
            PermitKind::Open => limit,
            PermitKind::Unidentified => limit.max(SILENT),
        };
        let taken = lock(self.shared.count(kind)).take(limit, self.client);
        if taken {
            let place = HeldPermit {
                shared: Arc::clone(&self.shared),
                kind,
                client: self.client,
            };
            Ok(StreamPermit(Some(place)))
        } else {
            Err(DataError::TooManyStreams { limit })
        }
    }
}

impl BudgetState {
    fn count(&self, kind: PermitKind) -> &Mutex<PermitCount> {
        match kind {
            PermitKind::Open => &self.open,
            PermitKind::Unidentified => &self.silent,
        }
    }
}

impl PermitCount {
    /// Counts one more, if the limit and the client's share allow it.
    fn take(&mut self, limit: usize, client: Option<IpAddr>) -> bool {
        if self.used >= limit {
            return false;
        }
        if let Some(client) = client {
            let own = self.clients.get(&client).copied().unwrap_or(0);
            let others = self.used - own;
            let share = limit.saturating_sub(others).div_ceil(2);
            if own > 0 && own >= share {
                return false;
            }
            self.clients.insert(client, own + 1);
        }
        self.used += 1;
        true
    }

    fn give_back(&mut self, client: Option<IpAddr>) {
        self.used -= 1;
        if let Some(client) = client
            && let Some(own) = self.clients.get_mut(&client)
        {
            *own -= 1;
            if *own == 0 {
                self.clients.remove(&client);
            }
        }
    }
}

/// The right to have one connection; given back when dropped.
#[derive(Debug)]
pub(crate) struct StreamPermit(Option<HeldPermit>);

#[derive(Debug)]
struct HeldPermit {
    shared: Arc<BudgetState>,
    kind: PermitKind,
    client: Option<IpAddr>,
}

impl StreamPermit {
    /// For channels without a budget.
    pub(crate) fn unlimited() -> Self {
        Self(None)
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        if let Some(place) = &self.0 {
            lock(place.shared.count(place.kind)).give_back(place.client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(n: u8) -> IpAddr {
        [192, 0, 2, n].into()
    }

    /// As many permits as a handle can have.
    fn all_of(budget: &StreamBudget) -> Vec<StreamPermit> {
        std::iter::from_fn(|| budget.take().ok()).collect()
    }

    #[test]
    fn permits_are_counted_and_given_back() {
        let budget = StreamBudget::new(2);
        let first = budget.take().unwrap();
        let _second = budget.clone().take().unwrap();
        assert!(matches!(
            budget.take(),
            Err(DataError::TooManyStreams { limit: 2 })
        ));
        drop(first);
        assert_eq!(budget.used(), 1);
        assert!(budget.take().is_ok());
    }

    #[test]
    fn a_client_leaves_half_of_what_is_free_to_others() {
        let budget = StreamBudget::new(100);
        let held: Vec<_> = (0..8)
            .map(|n| all_of(&budget.for_client(client(n))))
            .collect();
        let counts: Vec<_> = held.iter().map(Vec::len).collect();
        assert_eq!(counts, [50, 25, 13, 6, 3, 2, 1, 0]);
        drop(held);
        assert_eq!(budget.used(), 0);
        assert!(lock(&budget.shared.open).clients.is_empty());
    }

    #[test]
    fn a_smaller_bound_holds_from_now_on() {
        let budget = StreamBudget::new(4);
        let held = all_of(&budget);
        budget.set_limit(1);
        assert!(budget.for_client(client(1)).take().is_err());
        drop(held);
        let _one = budget.for_client(client(1)).take().unwrap();
        assert!(budget.take().is_err());
    }

    #[test]
    fn every_client_has_one_while_one_is_left() {
        let budget = StreamBudget::new(3);
        let one = budget.for_client(client(1));
        let _two = all_of(&one);
        assert_eq!(budget.used(), 2);
        let _other = budget.for_client(client(2)).take().unwrap();
        assert!(budget.for_client(client(3)).take().is_err());
    }

    #[test]
    fn silent_connections_take_no_place_of_those_at_work() {
        let budget = StreamBudget::new(1);
        let silent: Vec<_> = std::iter::from_fn(|| budget.take_unidentified().ok()).collect();
        assert_eq!((silent.len(), budget.used()), (SILENT, 0));
        let _open = budget.take().unwrap();
        drop(silent);
        assert!(budget.take_unidentified().is_ok());
    }
}
