//! Fair queueing of expensive work.
//!
//! A [`FairQueue`] has a number of places. A client is a key ([`super::client_key`]): it holds at
//! most a share of the places, and at most a bounded number of its requests wait. A free place goes
//! to the client that holds the fewest, among equals to the one whose turn is longest ago (round
//! robin), so that a thousand requests of one client delay another client by one of them.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::client_key;

/// Places for one kind of work, shared by clients.
#[derive(Debug)]
pub struct FairQueue {
    state: Mutex<QueueState>,
}

/// The right to work; given back when dropped.
#[derive(Debug)]
pub struct QueuePermit {
    queue: Arc<FairQueue>,
    key: IpAddr,
}

/// A request that waits. Dropping it gives it up.
#[derive(Debug)]
struct PendingPermit {
    queue: Arc<FairQueue>,
    key: IpAddr,
    id: u64,
    granted: oneshot::Receiver<QueuePermit>,
}

/// Bounds of a queue, and of each client in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueBounds {
    /// Places in all, at least 1.
    pub permits: usize,
    /// Places of one client, at least 1.
    pub per_client: usize,
    /// Requests of one client that may wait.
    pub waiting: usize,
}

/// So many requests of this client wait already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many requests from your address wait already (limit {0})")]
pub struct ClientQueueFull(pub usize);

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoPermit {
    /// It may not even wait.
    #[error(transparent)]
    QueueFull(#[from] ClientQueueFull),
    /// It waited for so long.
    #[error("too many such requests on this server: no place {}", timeout_text(*.0))]
    Timeout(Duration),
}

/// The words for a wait that was in vain.
fn timeout_text(patience: Duration) -> String {
    match patience.as_secs() {
        0 => "is free".to_owned(),
        seconds => format!("within {seconds} s"),
    }
}

#[derive(Debug)]
struct QueueState {
    bounds: QueueBounds,
    taken: usize,
    next_id: u64,
    /// Places of each client that has any.
    held: HashMap<IpAddr, usize>,
    /// Clients with requests that wait, the one whose turn is next first. None is empty.
    clients: VecDeque<ClientQueue>,
}

#[derive(Debug)]
struct ClientQueue {
    key: IpAddr,
    waiting: VecDeque<WaitingRequest>,
}

#[derive(Debug)]
struct WaitingRequest {
    id: u64,
    grant: oneshot::Sender<QueuePermit>,
}

impl FairQueue {
    /// All places free.
    pub fn new(bounds: QueueBounds) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(QueueState {
                bounds: bounds.bounded(),
                taken: 0,
                next_id: 0,
                held: HashMap::new(),
                clients: VecDeque::new(),
            }),
        })
    }

    /// A place for work of `peer`, at once or in its turn.
    ///
    /// # Errors
    /// As many requests of this client wait as may.
    pub async fn acquire(self: &Arc<Self>, peer: IpAddr) -> Result<QueuePermit, ClientQueueFull> {
        let most = self.state().bounds.waiting;
        self.join(client_key(peer), most)?
            .wait_for_permit(most)
            .await
    }

    /// The same, but not after a wait of `patience`.
    ///
    /// # Errors
    /// See [`NoPermit`].
    pub async fn acquire_within(
        self: &Arc<Self>,
        peer: IpAddr,
        patience: Duration,
    ) -> Result<QueuePermit, NoPermit> {
        let waited = timeout(patience, self.acquire(peer)).await;
        Ok(waited.map_err(|_| NoPermit::Timeout(patience))??)
    }

    /// Joins the queue, unless `most` requests of this client wait.
    fn join(self: &Arc<Self>, key: IpAddr, most: usize) -> Result<PendingPermit, ClientQueueFull> {
        let (grant, granted) = oneshot::channel();
        let id = {
            let mut state = self.state();
            let id = state.next_id;
            state.next_id += 1;
            let known = state.clients.iter().position(|client| client.key == key);
            match known.map(|at| &mut state.clients[at].waiting) {
                Some(waiting) if waiting.len() >= most => return Err(ClientQueueFull(most)),
                Some(waiting) => waiting.push_back(WaitingRequest { id, grant }),
                None => state.clients.push_back(ClientQueue {
                    key,
                    waiting: VecDeque::from([WaitingRequest { id, grant }]),
                }),
            }
            id
        };
        let turn = PendingPermit {
            queue: Arc::clone(self),
            key,
            id,
            granted,
        };
        self.grant_free_permits();
        Ok(turn)
    }

    /// Changes the bounds. Places above a smaller bound are given back as their work ends.
    pub fn set_bounds(self: &Arc<Self>, bounds: QueueBounds) {
        self.state().bounds = bounds.bounded();
        self.grant_free_permits();
    }

    /// Places taken now.
    pub fn permits_in_use(&self) -> usize {
        self.state().taken
    }

    /// Requests that wait now.
    pub fn requests_waiting(&self) -> usize {
        let state = self.state();
        state
            .clients
            .iter()
            .map(|client| client.waiting.len())
            .sum()
    }

    /// Gives free places to those who wait. A place is sent outside of the lock: when nobody takes
    /// it any more it comes back by its drop, which locks.
    fn grant_free_permits(self: &Arc<Self>) {
        loop {
            let next = self.state().next_grant();
            let Some((key, grant)) = next else { return };
            let place = QueuePermit {
                queue: Arc::clone(self),
                key,
            };
            drop(grant.send(place));
        }
    }

    /// Each change leaves the state whole, so a panic elsewhere is no reason to stop.
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueuePermit {
    /// Gives the place to whoever is due, and waits for the next one. Work that has begun is not
    /// refused for want of room in the queue.
    ///
    /// # Errors
    /// None in practice: a request that waits keeps its end of the queue.
    pub async fn requeue(self) -> Result<Self, ClientQueueFull> {
        let turn = self.queue.join(self.key, usize::MAX)?;
        drop(self);
        turn.wait_for_permit(0).await
    }
}

impl PendingPermit {
    /// The sender is kept until it is used, so the wait never ends without a place.
    async fn wait_for_permit(mut self, most: usize) -> Result<QueuePermit, ClientQueueFull> {
        (&mut self.granted).await.map_err(|_| ClientQueueFull(most))
    }
}

impl QueueBounds {
    fn bounded(self) -> Self {
        Self {
            permits: self.permits.max(1),
            per_client: self.per_client.max(1),
            waiting: self.waiting.max(1),
        }
    }
}

impl QueueState {
    /// Takes the next place for the client that is due.
    fn next_grant(&mut self) -> Option<(IpAddr, oneshot::Sender<QueuePermit>)> {
        if self.taken >= self.bounds.permits {
            return None;
        }
        let held = |client: &ClientQueue| self.held.get(&client.key).copied().unwrap_or(0);
        let due = (0..self.clients.len())
            .filter(|&at| held(&self.clients[at]) < self.bounds.per_client)
            .min_by_key(|&at| held(&self.clients[at]))?;
        let mut client = self.clients.remove(due)?;
        let first = client.waiting.pop_front()?;
        let key = client.key;
        if !client.waiting.is_empty() {
            self.clients.push_back(client);
        }
        self.taken += 1;
        *self.held.entry(key).or_default() += 1;
        Some((key, first.grant))
    }
}

impl Drop for QueuePermit {
    fn drop(&mut self) {
        {
            let mut state = self.queue.state();
            state.taken -= 1;
            super::decrement(&mut state.held, &self.key);
            // It had its turn: others come first.
            if let Some(at) = state.clients.iter().position(|c| c.key == self.key)
                && let Some(client) = state.clients.remove(at)
            {
                state.clients.push_back(client);
            }
        }
        self.queue.grant_free_permits();
    }
}

impl Drop for PendingPermit {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        let Some(at) = state.clients.iter().position(|c| c.key == self.key) else {
            return;
        };
        let waiting = &mut state.clients[at].waiting;
        waiting.retain(|request| request.id != self.id);
        if waiting.is_empty() {
            state.clients.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use proptest::prelude::*;

    use super::*;

    fn ip(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    fn queue(places: usize, per_client: usize, waiting: usize) -> Arc<FairQueue> {
        FairQueue::new(QueueBounds {
            permits: places,
            per_client,
            waiting,
        })
    }

    fn join(queue: &Arc<FairQueue>, client: u8) -> Result<PendingPermit, ClientQueueFull> {
        let most = queue.state().bounds.waiting;
        queue.join(ip(client), most)
    }

    /// The place, if it was granted already.
    fn granted(turn: &mut PendingPermit) -> Option<QueuePermit> {
        turn.granted.try_recv().ok()
    }

    #[test]
    fn a_thousand_requests_of_one_client_delay_another_by_one() {
        let queue = queue(1, 1, 1000);
        let mut greedy: Vec<PendingPermit> = (0..1000).map(|_| join(&queue, 1).unwrap()).collect();
        let running = granted(&mut greedy[0]).unwrap();
        let mut other = join(&queue, 2).unwrap();
        assert!(granted(&mut other).is_none());
        drop(running);
        assert!(granted(&mut other).is_some());
    }

    #[test]
    fn a_refusal_tells_that_others_have_the_places() {
        let told = |patience| NoPermit::Timeout(patience).to_string();
        let others = "too many such requests on this server: no place";
        assert_eq!(
            told(Duration::from_secs(30)),
            format!("{others} within 30 s")
        );
        assert_eq!(
            told(Duration::from_millis(300)),
            format!("{others} is free")
        );
    }

    #[test]
    fn one_client_never_holds_more_than_its_share() {
        let queue = queue(4, 3, 10);
        let mut turns: Vec<PendingPermit> = (0..10).map(|_| join(&queue, 1).unwrap()).collect();
        let places: Vec<QueuePermit> = turns.iter_mut().filter_map(granted).collect();
        assert_eq!(places.len(), 3);
        let mut other = join(&queue, 2).unwrap();
        assert!(granted(&mut other).is_some());
    }

    #[test]
    fn places_go_round_among_clients() {
        let queue = queue(1, 1, 10);
        let mut turns: Vec<(u8, PendingPermit)> = [1, 1, 1, 2, 2, 3]
            .into_iter()
            .map(|n| (n, join(&queue, n).unwrap()))
            .collect();
        let mut order = Vec::new();
        while !turns.is_empty() {
            let mut place = None;
            turns.retain_mut(|(n, turn)| match granted(turn) {
                Some(got) => {
                    order.push(*n);
                    place = Some(got);
                    false
                }
                None => true,
            });
            assert!(place.is_some(), "{order:?}");
        }
        assert_eq!(order, [1, 2, 3, 1, 2, 1]);
    }

    #[test]
    fn the_bound_on_waiting_requests_holds_per_client() {
        let queue = queue(1, 1, 2);
        let mut first = join(&queue, 1).unwrap();
        let _place = granted(&mut first).unwrap();
        let _two = [join(&queue, 1).unwrap(), join(&queue, 1).unwrap()];
        assert_eq!(join(&queue, 1).unwrap_err(), ClientQueueFull(2));
        assert!(join(&queue, 2).is_ok());
    }

    #[test]
    fn a_request_that_is_given_up_leaves_nothing() {
        let queue = queue(1, 1, 10);
        let mut first = join(&queue, 1).unwrap();
        let place = granted(&mut first).unwrap();
        {
            let mut waits = pin!(queue.acquire(ip(2)));
            let polled = waits.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Pending));
            assert_eq!(queue.requests_waiting(), 1);
        }
        assert_eq!(queue.requests_waiting(), 0);
        // Granted, and then given up before it was looked at.
        let unread = join(&queue, 3).unwrap();
        drop(place);
        assert_eq!(queue.permits_in_use(), 1);
        drop(unread);
        assert_eq!(queue.permits_in_use(), 0);
    }

    #[test]
    fn work_that_begun_makes_way_and_is_not_refused() {
        let queue = queue(1, 1, 1);
        let mut first = join(&queue, 1).unwrap();
        let running = granted(&mut first).unwrap();
        let mut same = join(&queue, 1).unwrap();
        let mut other = join(&queue, 2).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let mut again = pin!(running.requeue());
        assert!(again.as_mut().poll(&mut context).is_pending());
        drop(granted(&mut other).unwrap());
        drop(granted(&mut same).unwrap());
        assert!(again.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn a_larger_bound_lets_in_who_waits() {
        let queue = queue(1, 1, 10);
        let mut turns = [join(&queue, 1).unwrap(), join(&queue, 2).unwrap()];
        let first = granted(&mut turns[0]);
        assert!(first.is_some() && granted(&mut turns[1]).is_none());
        queue.set_bounds(QueueBounds {
            permits: 2,
            per_client: 1,
            waiting: 1,
        });
        assert!(granted(&mut turns[1]).is_some());
    }

    proptest! {
        #[test]
        fn bounds_hold_and_no_place_is_lost(
            places in 1usize..4,
            per_client in 1usize..4,
            steps in proptest::collection::vec((0u8..4, 0u8..3), 0..200),
        ) {
            let queue = queue(places, per_client, 5);
            let mut turns: Vec<PendingPermit> = Vec::new();
            let mut held: Vec<QueuePermit> = Vec::new();
            for (client, step) in steps {
                match step {
                    0 => turns.extend(join(&queue, client)),
                    1 if !held.is_empty() => drop(held.remove(usize::from(client) % held.len())),
                    2 if !turns.is_empty() => drop(turns.remove(usize::from(client) % turns.len())),
                    _ => {}
                }
                held.extend(turns.iter_mut().filter_map(granted));
                prop_assert!(queue.permits_in_use() <= places);
                for n in 0..4 {
                    let of = held.iter().filter(|place| place.key == ip(n)).count();
                    prop_assert!(of <= per_client);
                }
                // Work waits only while nothing is free for it.
                if queue.requests_waiting() > 0 {
                    prop_assert!(queue.permits_in_use() == places || per_client < places);
                }
            }
            drop((turns, held));
            prop_assert_eq!((queue.permits_in_use(), queue.requests_waiting()), (0, 0));
            prop_assert!(queue.state().held.is_empty() && queue.state().clients.is_empty());
        }
    }
}
