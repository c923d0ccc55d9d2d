//! Trains of echo requests: sent without gaps, their answers collected with arrival times.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use tune::path::dispersion::Arrival;

use super::blocking::Cancelled;
use super::probe_socket::Answerer;
use super::probe_socket::EchoSocket;

/// Most requests of one train: sequence numbers have 16 bits, and those of neighbouring trains must differ.
pub(super) const LONGEST_TRAIN: u16 = 16_000;

/// The answers to a train.
#[derive(Debug, Default)]
pub(super) struct TrainAnswers {
    /// Answers of the client, by request.
    pub(super) from_client: Vec<Arrival>,
    /// Answers of routers at which the requests ended, by request.
    pub(super) from_routers: BTreeMap<IpAddr, Vec<Arrival>>,
    /// Requests sent.
    pub(super) sent: u32,
    /// Time from the first request to its answer.
    pub(super) first_round_trip: Option<Duration>,
    /// Hop limit of the client's answers.
    pub(super) hop_limit: Option<u8>,
    /// Bytes received, if answers of the client are as long as requests.
    pub(super) received_bytes: u64,
}

impl TrainAnswers {
    /// Requests that anybody answered.
    pub(super) fn answered(&self) -> usize {
        let routers: usize = self.from_routers.values().map(Vec::len).sum();
        self.from_client.len() + routers
    }

    /// Notes when the answered requests were sent, since the first of them.
    fn note_sending(&mut self, times: &[Instant]) {
        let Some(first) = times.first() else {
            return;
        };
        let routers = self.from_routers.values_mut().flatten();
        for arrival in self.from_client.iter_mut().chain(routers) {
            let sent = usize::try_from(arrival.sequence).ok();
            let sent = sent.and_then(|number| times.get(number));
            arrival.sent = sent.map(|sent| sent.saturating_duration_since(*first));
        }
    }
}

/// How to send a train.
#[derive(Debug, Clone, Copy)]
pub(super) struct EchoTrain {
    /// Requests, at most [`LONGEST_TRAIN`].
    pub(super) packets: u16,
    /// Size of each, bytes with the IP header.
    pub(super) bytes: usize,
    /// Sequence number of the first.
    pub(super) first_sequence: u16,
    /// Longest silence that is waited for after the last request and between answers.
    pub(super) silence: Duration,
}

impl EchoTrain {
    /// Sends the train and waits until all requests are answered, or for a silence.
    ///
    /// # Errors
    /// The socket fails.
    pub(super) fn send(
        self,
        socket: &EchoSocket,
        cancelled: &Cancelled,
    ) -> io::Result<TrainAnswers> {
        let packets = self.packets.min(LONGEST_TRAIN);
        let sequence = |n: u16| self.first_sequence.wrapping_add(n);
        let requests: Vec<_> = (0..packets)
            .map(|n| socket.request(sequence(n), self.bytes))
            .collect();
        let mut answers = TrainAnswers::default();
        std::thread::scope(|scope| {
            // A thread of its own: while the train is being sent, answers must leave the receive buffer.
            let sender = scope.spawn(|| send_all(socket, &requests, cancelled));
            let mut sent: Option<Vec<Instant>> = None;
            let mut sender = Some(sender);
            let mut silent_since = Instant::now();
            let mut first_arrival = None;
            let mut batch = Vec::new();
            while !cancelled.is_set() {
                if sender
                    .as_ref()
                    .is_some_and(std::thread::ScopedJoinHandle::is_finished)
                    && let Some(finished) = sender.take()
                {
                    let panicked = |_| Err(io::Error::other("the sending thread panicked"));
                    sent = Some(finished.join().unwrap_or_else(panicked)?);
                    silent_since = silent_since.max(Instant::now());
                }
                let until = silent_since + self.silence;
                if sent.is_some() && Instant::now() >= until {
                    break;
                }
                // Until all is sent, the wait is short, so that the end is noticed.
                let look = Instant::now() + Duration::from_millis(20);
                let until = if sent.is_none() { look } else { until };
                socket.receive(cancelled.wait_until(until), &mut batch)?;
                for answer in batch.drain(..) {
                    let number = answer.sequence.wrapping_sub(self.first_sequence);
                    if number >= packets {
                        continue;
                    }
                    silent_since = Instant::now();
                    let start = *first_arrival.get_or_insert(answer.at);
                    let arrival = (number, answer.at.max(start));
                    let arrival = Arrival {
                        sequence: u32::from(arrival.0),
                        sent: None,
                        at: arrival.1.saturating_duration_since(start),
                    };
                    match answer.from {
                        Answerer::Client => {
                            answers.hop_limit = answer.hop_limit.or(answers.hop_limit);
                            answers.received_bytes += self.bytes as u64;
                            answers.from_client.push(arrival);
                        }
                        Answerer::Router(router) => {
                            let of_router = answers.from_routers.entry(router).or_default();
                            of_router.push(arrival);
                        }
                        Answerer::Unreachable(_) | Answerer::OwnDevice => {}
                    }
                }
                if answers.answered() >= usize::from(packets) && sent.is_some() {
                    break;
                }
            }
            if let Some(sent) = sent {
                answers.sent = u32::try_from(sent.len()).unwrap_or(u32::MAX);
                answers.first_round_trip = first_arrival
                    .zip(sent.first())
                    .map(|(arrival, sent)| arrival.saturating_duration_since(*sent));
                answers.note_sending(&sent);
            }
            Ok(answers)
        })
    }
}

/// Longest time that a train may take to be sent: a device that takes no packets ends it.
const LONGEST_SENDING: Duration = Duration::from_secs(5);

/// Gives this thread, which sends one train and ends, precedence over others where the system allows it: a sender
/// that waits for a processor leaves gaps, which look like a slow path.
fn favour_this_thread() {
    let thread = rustix::thread::gettid();
    // Without privilege the train is as good as the machine is quiet.
    let _ = rustix::process::setpriority_process(Some(thread), -20);
}

/// Sends the requests; returns the time of each, in order.
fn send_all(
    socket: &EchoSocket,
    requests: &[Vec<u8>],
    cancelled: &Cancelled,
) -> io::Result<Vec<Instant>> {
    favour_this_thread();
    let deadline = Instant::now() + LONGEST_SENDING;
    let mut times = Vec::with_capacity(requests.len());
    for request in requests {
        if cancelled.is_set() {
            break;
        }
        match socket.send(request, deadline) {
            Ok(at) => times.push(at),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(times)
}
