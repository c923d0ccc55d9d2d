//! Fair queueing of expensive work.
//!
//! A [`FairQueue`] has a number of permits. A client is a [`ClientKey`]: it holds at
//! most its share of the permits, and a bounded number of its requests may wait. A free permit goes
//! to the client that holds the fewest; among equals to the one that was served least recently (round
//! robin). So a thousand requests of one client delay another client by one of them.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tune::admission::{ClientKey, HeldCounts};

/// The permits for one kind of work, shared fairly by clients.
#[derive(Debug)]
pub struct FairQueue {
    state: Mutex<QueueState>,
}

/// The right to do one piece of work; dropping it returns the permit to the queue.
#[derive(Debug)]
pub struct QueuePermit {
    queue: Arc<FairQueue>,
    key: ClientKey,
}

/// A request that waits for its permit. Dropping it withdraws the request.
#[derive(Debug)]
struct PendingPermit {
    queue: Arc<FairQueue>,
    key: ClientKey,
    id: u64,
    granted: oneshot::Receiver<QueuePermit>,
}

/// Bounds of a queue and of each client in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueBounds {
    /// Permits of all clients together, at least 1.
    pub permits: usize,
    /// Permits of one client, at least 1.
    pub per_client: usize,
    /// Waiting requests of one client.
    pub waiting: usize,
}

/// This client has as many waiting requests as it may; the value is that limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many requests from your address wait already (limit {0})")]
pub struct ClientQueueFull(pub usize);

/// The reason why no permit was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoPermit {
    /// The client has too many waiting requests.
    #[error(transparent)]
    QueueFull(#[from] ClientQueueFull),
    /// No permit was free within this time.
    #[error("too many such requests on this server: none could start {}", timeout_text(*.0))]
    Timeout(Duration),
}

/// The end of the message about a wait that timed out.
fn timeout_text(max_wait: Duration) -> String {
    match max_wait.as_secs() {
        0 => "now".to_owned(),
        seconds => format!("within {seconds} s"),
    }
}

#[derive(Debug)]
struct QueueState {
    bounds: QueueBounds,
    taken: usize,
    next_id: u64,
    /// Number of permits of each client that holds any.
    held: HeldCounts<ClientKey>,
    /// Clients with waiting requests, the least recently served first. No entry is empty.
    clients: VecDeque<ClientQueue>,
}

#[derive(Debug)]
struct ClientQueue {
    key: ClientKey,
    waiting: VecDeque<WaitingRequest>,
}

#[derive(Debug)]
struct WaitingRequest {
    id: u64,
    grant: oneshot::Sender<QueuePermit>,
}

impl FairQueue {
    /// A queue with all permits free.
    pub fn new(bounds: QueueBounds) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(QueueState {
                bounds: bounds.bounded(),
                taken: 0,
                next_id: 0,
                held: HeldCounts::default(),
                clients: VecDeque::new(),
            }),
        })
    }

    /// Waits for a permit for work of `peer`.
    ///
    /// # Errors
    /// The client has as many waiting requests as it may.
    pub async fn acquire(self: &Arc<Self>, peer: IpAddr) -> Result<QueuePermit, ClientQueueFull> {
        let max_waiting = self.state.lock().bounds.waiting;
        self.join(peer.into(), max_waiting)?
            .wait_for_permit(max_waiting)
            .await
    }

    /// Waits for a permit for at most `max_wait`.
    ///
    /// # Errors
    /// See [`NoPermit`].
    pub async fn acquire_within(
        self: &Arc<Self>,
        peer: IpAddr,
        max_wait: Duration,
    ) -> Result<QueuePermit, NoPermit> {
        let waited = timeout(max_wait, self.acquire(peer)).await;
        Ok(waited.map_err(|_| NoPermit::Timeout(max_wait))??)
    }

    /// Joins the queue, unless `max_waiting` requests of this client are waiting.
    fn join(
        self: &Arc<Self>,
        key: ClientKey,
        max_waiting: usize,
    ) -> Result<PendingPermit, ClientQueueFull> {
        let (grant, granted) = oneshot::channel();
        let id = {
            let mut state = self.state.lock();
            let id = state.next_id;
            state.next_id += 1;
            let known = state.clients.iter().position(|client| client.key == key);
            match known.map(|at| &mut state.clients[at].waiting) {
                Some(waiting) if waiting.len() >= max_waiting => {
                    return Err(ClientQueueFull(max_waiting));
                }
                Some(waiting) => waiting.push_back(WaitingRequest { id, grant }),
                None => state.clients.push_back(ClientQueue {
                    key,
                    waiting: VecDeque::from([WaitingRequest { id, grant }]),
                }),
            }
            id
        };
        let pending = PendingPermit {
            queue: Arc::clone(self),
            key,
            id,
            granted,
        };
        self.grant_free_permits();
        Ok(pending)
    }

    /// Changes the bounds. Permits above a smaller bound are withdrawn as their work ends.
    pub fn set_bounds(self: &Arc<Self>, bounds: QueueBounds) {
        self.state.lock().bounds = bounds.bounded();
        self.grant_free_permits();
    }

    /// Number of permits in use.
    pub fn permits_in_use(&self) -> usize {
        self.state.lock().taken
    }

    /// Number of waiting requests.
    pub fn requests_waiting(&self) -> usize {
        let state = self.state.lock();
        state
            .clients
            .iter()
            .map(|client| client.waiting.len())
            .sum()
    }

    /// Grants free permits to waiting requests.
    fn grant_free_permits(self: &Arc<Self>) {
        loop {
            let next = self.state.lock().next_grant();
            let Some((key, grant)) = next else { return };
            // The lock must not be held here: if the request was withdrawn, the failed send drops the
            // permit, and `QueuePermit::drop` takes the lock.
            let permit = QueuePermit {
                queue: Arc::clone(self),
                key,
            };
            drop(grant.send(permit));
        }
    }
}

impl QueuePermit {
    /// Returns the permit and waits for another one, so that long work lets others run in between.
    /// Work that has begun is never refused because the queue is full.
    ///
    /// # Errors
    /// None in practice: the queue keeps the sender of every waiting request.
    pub async fn requeue(self) -> Result<Self, ClientQueueFull> {
        // Joining before the drop keeps this request ahead of those that come later. It does not count
        // against the client's limit of waiting requests.
        let pending = self.queue.join(self.key, usize::MAX)?;
        drop(self);
        pending.wait_for_permit(0).await
    }
}

impl PendingPermit {
    /// The queue keeps the sender until it is used, so the wait always ends with a permit.
    async fn wait_for_permit(mut self, max_waiting: usize) -> Result<QueuePermit, ClientQueueFull> {
        (&mut self.granted)
            .await
            .map_err(|_| ClientQueueFull(max_waiting))
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
    /// Takes the next waiting request that may get a permit, and counts the permit.
    fn next_grant(&mut self) -> Option<(ClientKey, oneshot::Sender<QueuePermit>)> {
        if self.taken >= self.bounds.permits {
            return None;
        }
        let held = |client: &ClientQueue| self.held.of(&client.key);
        let next = (0..self.clients.len())
            .filter(|&at| held(&self.clients[at]) < self.bounds.per_client)
            .min_by_key(|&at| held(&self.clients[at]))?;
        let mut client = self.clients.remove(next)?;
        let first = client.waiting.pop_front()?;
        let key = client.key;
        if !client.waiting.is_empty() {
            self.clients.push_back(client);
        }
        self.taken += 1;
        self.held.add(key);
        Some((key, first.grant))
    }
}

impl Drop for QueuePermit {
    fn drop(&mut self) {
        {
            let mut state = self.queue.state.lock();
            state.taken -= 1;
            state.held.remove(&self.key);
            // Round robin: a client that was just served goes behind the others.
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
        let mut state = self.queue.state.lock();
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

    fn queue(permits: usize, per_client: usize, waiting: usize) -> Arc<FairQueue> {
        FairQueue::new(QueueBounds {
            permits,
            per_client,
            waiting,
        })
    }

    fn join(queue: &Arc<FairQueue>, client: u8) -> Result<PendingPermit, ClientQueueFull> {
        let max_waiting = queue.state.lock().bounds.waiting;
        queue.join(ip(client).into(), max_waiting)
    }

    /// Returns the permit if it was granted already.
    fn granted(pending: &mut PendingPermit) -> Option<QueuePermit> {
        pending.granted.try_recv().ok()
    }

    #[test]
    fn a_thousand_requests_of_one_client_delay_another_client_by_one_request() {
        let queue = queue(1, 1, 1000);
        let mut greedy: Vec<PendingPermit> = (0..1000).map(|_| join(&queue, 1).unwrap()).collect();
        let running = granted(&mut greedy[0]).unwrap();
        let mut other = join(&queue, 2).unwrap();
        assert!(granted(&mut other).is_none());
        drop(running);
        assert!(granted(&mut other).is_some());
    }

    #[test]
    fn the_timeout_message_says_how_long_the_request_waited() {
        let message = |max_wait| NoPermit::Timeout(max_wait).to_string();
        let others = "too many such requests on this server: none could start";
        assert_eq!(
            message(Duration::from_secs(30)),
            format!("{others} within 30 s")
        );
        assert_eq!(message(Duration::from_millis(300)), format!("{others} now"));
    }

    #[test]
    fn a_client_never_holds_more_permits_than_its_share() {
        let queue = queue(4, 3, 10);
        let mut pending_permits: Vec<PendingPermit> =
            (0..10).map(|_| join(&queue, 1).unwrap()).collect();
        let permits: Vec<QueuePermit> = pending_permits.iter_mut().filter_map(granted).collect();
        assert_eq!(permits.len(), 3);
        let mut other = join(&queue, 2).unwrap();
        assert!(granted(&mut other).is_some());
    }

    #[test]
    fn permits_are_granted_round_robin() {
        let queue = queue(1, 1, 10);
        let mut pending_permits: Vec<(u8, PendingPermit)> = [1, 1, 1, 2, 2, 3]
            .into_iter()
            .map(|n| (n, join(&queue, n).unwrap()))
            .collect();
        let mut order = Vec::new();
        while !pending_permits.is_empty() {
            let mut permit = None;
            pending_permits.retain_mut(|(n, pending)| match granted(pending) {
                Some(got) => {
                    order.push(*n);
                    permit = Some(got);
                    false
                }
                None => true,
            });
            assert!(permit.is_some(), "{order:?}");
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
    fn a_withdrawn_request_returns_its_permit() {
        let queue = queue(1, 1, 10);
        let mut first = join(&queue, 1).unwrap();
        let permit = granted(&mut first).unwrap();
        {
            let mut waits = pin!(queue.acquire(ip(2)));
            let polled = waits.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Pending));
            assert_eq!(queue.requests_waiting(), 1);
        }
        assert_eq!(queue.requests_waiting(), 0);
        // This request is granted, and withdrawn before its permit is read.
        let unread = join(&queue, 3).unwrap();
        drop(permit);
        assert_eq!(queue.permits_in_use(), 1);
        drop(unread);
        assert_eq!(queue.permits_in_use(), 0);
    }

    #[test]
    fn requeued_work_waits_behind_others_and_is_not_refused() {
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
    fn a_larger_bound_grants_permits_to_waiting_requests() {
        let queue = queue(1, 1, 10);
        let mut pending_permits = [join(&queue, 1).unwrap(), join(&queue, 2).unwrap()];
        let first = granted(&mut pending_permits[0]);
        assert!(first.is_some() && granted(&mut pending_permits[1]).is_none());
        queue.set_bounds(QueueBounds {
            permits: 2,
            per_client: 1,
            waiting: 1,
        });
        assert!(granted(&mut pending_permits[1]).is_some());
    }

    proptest! {
        #[test]
        fn bounds_hold_and_no_permit_is_lost(
            permits in 1usize..4,
            per_client in 1usize..4,
            steps in proptest::collection::vec((0u8..4, 0u8..3), 0..200),
        ) {
            let queue = queue(permits, per_client, 5);
            let mut pending_permits: Vec<PendingPermit> = Vec::new();
            let mut held: Vec<QueuePermit> = Vec::new();
            for (client, step) in steps {
                match step {
                    0 => pending_permits.extend(join(&queue, client)),
                    1 if !held.is_empty() => drop(held.remove(usize::from(client) % held.len())),
                    2 if !pending_permits.is_empty() => drop(pending_permits.remove(usize::from(client) % pending_permits.len())),
                    _ => {}
                }
                held.extend(pending_permits.iter_mut().filter_map(granted));
                prop_assert!(queue.permits_in_use() <= permits);
                for n in 0..4 {
                    let of = held.iter().filter(|permit| permit.key == ip(n).into()).count();
                    prop_assert!(of <= per_client);
                }
                // Requests wait only while no permit is free for them.
                if queue.requests_waiting() > 0 {
                    prop_assert!(queue.permits_in_use() == permits || per_client < permits);
                }
            }
            drop((pending_permits, held));
            prop_assert_eq!((queue.permits_in_use(), queue.requests_waiting()), (0, 0));
            prop_assert!(queue.state.lock().held.is_empty() && queue.state.lock().clients.is_empty());
        }
    }
}
