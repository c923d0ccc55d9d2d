//! The process-wide limit on data connections, and each client's share of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tune::admission::{ClientKey, HeldCounts};

use crate::error::DataError;

/// Limits the data connections that may be open at once over all channels that share the budget:
/// those in use and those cached for a next transfer. Accepted connections that have sent nothing
/// yet are counted separately, with the same limit but at least 1024.
///
/// A handle made with [`StreamBudget::for_client`] belongs to one client. A client may always have
/// one connection while any is free, and more as long as it holds less than half of what the other
/// clients leave. Some permits therefore remain for the next client. Streams beyond the first of a
/// transfer get at most half of this share, so that some remain for the client's next transfer, too.
///
/// At the limit: a transfer that gets no permit fails with [`DataError::TooManyStreams`]; one that
/// gets fewer than it wants uses fewer streams; a receiver leaves further connections in the queue
/// until one of its streams ends, and does not cache all of them for the next transfer.
#[derive(Debug, Clone)]
pub struct StreamBudget {
    shared: Arc<BudgetState>,
    client: Option<ClientKey>,
}

#[derive(Debug)]
struct BudgetState {
    limit: AtomicUsize,
    streams: Mutex<PermitCount>,
    unidentified: Mutex<PermitCount>,
}

/// Least limit of connections that have sent nothing yet. Each costs only a descriptor.
const MIN_UNIDENTIFIED_LIMIT: usize = 1024;

/// Permits in use, in total and per client.
#[derive(Debug, Default)]
struct PermitCount {
    used: usize,
    clients: HeldCounts<ClientKey>,
}

/// The kind of connection that a permit is for.
#[derive(Debug, Clone, Copy)]
enum PermitKind {
    /// A connection that takes part in transfers.
    Open,
    /// The same, beyond the first of a transfer.
    Further,
    /// A connection that has sent nothing yet.
    Unidentified,
}

impl StreamBudget {
    /// A budget of at most `limit` connections.
    pub fn new(limit: usize) -> Self {
        Self {
            shared: Arc::new(BudgetState {
                limit: AtomicUsize::new(limit),
                streams: Mutex::default(),
                unidentified: Mutex::default(),
            }),
            client: None,
        }
    }

    /// The same budget for the connections of one client.
    pub fn for_client(&self, client: ClientKey) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            client: Some(client),
        }
    }

    /// Changes the limit. Connections above a smaller limit stay open.
    pub fn set_limit(&self, limit: usize) {
        self.shared.limit.store(limit, Ordering::Relaxed);
    }

    /// Open connections over all clients: in use or cached.
    pub fn used(&self) -> usize {
        self.shared.streams.lock().used
    }

    /// Takes one permit, or fails with [`DataError::TooManyStreams`].
    pub(crate) fn take(&self) -> Result<StreamPermit, DataError> {
        self.take_for(PermitKind::Open)
    }

    /// Takes one permit for a connection beyond the first of a transfer, or fails as [`take`](Self::take).
    pub(crate) fn take_further(&self) -> Result<StreamPermit, DataError> {
        self.take_for(PermitKind::Further)
    }

    /// Takes one permit for a connection that has sent nothing yet.
    pub(crate) fn take_unidentified(&self) -> Result<StreamPermit, DataError> {
        self.take_for(PermitKind::Unidentified)
    }

    fn take_for(&self, kind: PermitKind) -> Result<StreamPermit, DataError> {
        // Relaxed: the limit is a single value, and a change may take effect a moment later.
        let limit = self.shared.limit.load(Ordering::Relaxed);
        let limit = match kind {
            PermitKind::Open | PermitKind::Further => limit,
            PermitKind::Unidentified => limit.max(MIN_UNIDENTIFIED_LIMIT),
        };
        let is_further = matches!(kind, PermitKind::Further);
        let mut permits = self.shared.count(kind).lock();
        let taken = permits.take(limit, self.client, is_further);
        drop(permits);
        if taken {
            let held_permit = HeldPermit {
                shared: Arc::clone(&self.shared),
                kind,
                client: self.client,
            };
            Ok(StreamPermit(Some(held_permit)))
        } else {
            Err(DataError::TooManyStreams { limit })
        }
    }
}

impl BudgetState {
    fn count(&self, kind: PermitKind) -> &Mutex<PermitCount> {
        match kind {
            PermitKind::Open | PermitKind::Further => &self.streams,
            PermitKind::Unidentified => &self.unidentified,
        }
    }
}

impl PermitCount {
    /// Takes one permit if the limit and the client's share allow it.
    fn take(&mut self, limit: usize, client: Option<ClientKey>, is_further: bool) -> bool {
        // Checked before the share: the total limit holds for every client.
        if self.used >= limit {
            return false;
        }
        if let Some(client) = client {
            let held = self.clients.of(&client);
            let others = self.used - held;
            // Half of the remainder, rounded up: n clients in turn get 1/2, 1/4, 1/8 ... of the
            // limit.
            let share = limit.saturating_sub(others).div_ceil(2);
            let share = match is_further {
                true => share.div_ceil(2),
                false => share,
            };
            // `held > 0`: a client without a connection always gets one.
            if held > 0 && held >= share {
                return false;
            }
            self.clients.add(client);
        }
        self.used += 1;
        true
    }

    fn release(&mut self, client: Option<ClientKey>) {
        self.used -= 1;
        if let Some(client) = client {
            self.clients.remove(&client);
        }
    }
}

/// The right to have one connection open. Dropping it returns the permit.
#[derive(Debug)]
pub(crate) struct StreamPermit(Option<HeldPermit>);

#[derive(Debug)]
struct HeldPermit {
    shared: Arc<BudgetState>,
    kind: PermitKind,
    client: Option<ClientKey>,
}

impl StreamPermit {
    /// A permit for channels without a budget.
    pub(crate) fn unlimited() -> Self {
        Self(None)
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        if let Some(held_permit) = &self.0 {
            held_permit
                .shared
                .count(held_permit.kind)
                .lock()
                .release(held_permit.client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(n: u8) -> ClientKey {
        std::net::IpAddr::from([192, 0, 2, n]).into()
    }

    /// Takes all permits that a handle can get.
    fn take_all(budget: &StreamBudget) -> Vec<StreamPermit> {
        std::iter::from_fn(|| budget.take().ok()).collect()
    }

    #[test]
    fn permits_are_counted_and_returned() {
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
    fn a_client_leaves_half_of_the_free_permits_to_others() {
        let budget = StreamBudget::new(100);
        let held: Vec<_> = (0..8)
            .map(|n| take_all(&budget.for_client(client(n))))
            .collect();
        let counts: Vec<_> = held.iter().map(Vec::len).collect();
        assert_eq!(counts, [50, 25, 13, 6, 3, 2, 1, 0]);
        drop(held);
        assert_eq!(budget.used(), 0);
        assert!(budget.shared.streams.lock().clients.is_empty());
    }

    #[test]
    fn further_streams_leave_half_of_a_clients_share_to_its_next_transfers() {
        let budget = StreamBudget::new(100);
        let one = budget.for_client(client(1));
        let _first = one.take().unwrap();
        let further: Vec<_> = std::iter::from_fn(|| one.take_further().ok()).collect();
        assert_eq!(further.len(), 24);
        assert_eq!(take_all(&one).len(), 25);
        drop(further);
        assert!(one.take_further().is_ok());
        // Nobody's share: the limit is the only bound.
        let all: Vec<_> = std::iter::from_fn(|| budget.take_further().ok()).collect();
        assert_eq!(all.len(), 99);
    }

    #[test]
    fn a_smaller_limit_applies_to_new_permits() {
        let budget = StreamBudget::new(4);
        let held = take_all(&budget);
        budget.set_limit(1);
        assert!(budget.for_client(client(1)).take().is_err());
        drop(held);
        let _one = budget.for_client(client(1)).take().unwrap();
        assert!(budget.take().is_err());
    }

    #[test]
    fn every_client_gets_one_permit_while_one_is_free() {
        let budget = StreamBudget::new(3);
        let one = budget.for_client(client(1));
        let _two = take_all(&one);
        assert_eq!(budget.used(), 2);
        let _other = budget.for_client(client(2)).take().unwrap();
        assert!(budget.for_client(client(3)).take().is_err());
    }

    #[test]
    fn silent_connections_use_no_permit_of_streams() {
        let budget = StreamBudget::new(1);
        let unidentified: Vec<_> = std::iter::from_fn(|| budget.take_unidentified().ok()).collect();
        assert_eq!(
            (unidentified.len(), budget.used()),
            (MIN_UNIDENTIFIED_LIMIT, 0)
        );
        let _open = budget.take().unwrap();
        drop(unidentified);
        assert!(budget.take_unidentified().is_ok());
    }
}
