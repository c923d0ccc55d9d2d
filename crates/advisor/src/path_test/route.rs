//! `route`: the routers on the way to the client, their round trips, and the link that is the bottleneck. It sends echo
//! requests with a limited number of hops and reads the routers' answers from the socket's error queue, as
//! tracepath(8) does. Where echo sockets are not permitted, it sends UDP datagrams and finds the hops alone: hosts limit
//! the rate of their answers to those, so that trains of them tell nothing.

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::json;
use tune::path::dispersion;

use super::blocking::{Cancelled, run_blocking};
use super::icmp::hops_passed;
use super::probe_socket::EchoSocket;
use super::probe_socket::UdpSocket;
use super::probe_socket::{Answerer, ProbeAnswer};
use super::train::EchoTrain;
use super::{HeldBackBy, PathTest, Target, TestFailure, TestProfile, Unavailable, Weight};
use crate::measurement::{Measurement, Quantity};

/// Name of the test.
pub(super) const NAME: &str = "route";

/// Most hops, as traceroute.
const MOST_HOPS: u8 = 30;
/// Hops that are asked at a time.
const WINDOW: u8 = 8;
/// Rounds of requests to each hop; a lost answer is asked for again, and the smallest round trip counts.
const ROUNDS: u8 = 3;
/// Size of a request that finds a hop, bytes with the IP header.
const SMALL: usize = 64;
/// Size of the requests of a train.
const LARGE: u16 = 1500;
/// Longest wait for a hop.
const PATIENCE: Duration = Duration::from_secs(1);
/// Trains towards a hop: requests at least and at most, and the dispersion that they shall have.
const TRAIN_PACKETS: (u64, u64) = (24, 240);
const TRAIN_TIME: Duration = Duration::from_millis(15);
/// Requests in a train on a path of unknown bandwidth.
const FIRST_TRAIN: u16 = 64;
/// Trains to each hop, of which the fastest counts: a sender that waits for its processor makes one slower.
const TRAINS: u8 = 2;
/// Part of a train that must be answered. Many routers limit the rate of their answers.
const ANSWERED_PART: usize = 2;

/// The route and the bottleneck on it.
#[derive(Debug, Default)]
pub struct RouteTest;

#[async_trait]
impl PathTest for RouteTest {
    fn profile(&self) -> TestProfile<'_> {
        TestProfile {
            name: NAME,
            weight: Weight::Light,
            concurrency: 1,
            fills_path: true,
            interval: Duration::from_secs(2 * 3600),
            held_back_by: HeldBackBy::TransfersToClient,
            measures: &[Quantity::Hops],
        }
    }

    fn most_bytes(&self, target: &Target) -> u64 {
        let small = u64::from(MOST_HOPS) * u64::from(ROUNDS) * (SMALL as u64 + 576);
        // The client answers the last train in full length.
        let train =
            u64::from(train_length(target.bandwidth_bps)) * u64::from(LARGE) * u64::from(TRAINS);
        small
            + train * (u64::from(MOST_HOPS) + 1)
            + train * u64::from(MOST_HOPS) * 576 / u64::from(LARGE)
    }

    async fn init(&mut self) -> Result<(), Unavailable> {
        // Without echo sockets it still has UDP.
        Ok(())
    }

    async fn run(&self, target: &Target) -> Result<Measurement, TestFailure> {
        let target = target.clone();
        run_blocking(NAME, target.client, move |cancelled| {
            trace(&target, &cancelled)
        })
        .await
    }
}

/// The findings about a hop.
#[derive(Debug, Clone, Copy, Default)]
struct Hop {
    address: Option<IpAddr>,
    is_client: bool,
    round_trip: Option<Duration>,
    /// Hop limit that its answers arrive with.
    hop_limit: Option<u8>,
    bandwidth_bps: Option<u64>,
}

fn train_length(bandwidth_bps: Option<u64>) -> u16 {
    let Some(bps) = bandwidth_bps else {
        return FIRST_TRAIN;
    };
    let bits = u128::from(bps) * TRAIN_TIME.as_micros() / 1_000_000;
    let packets = u64::try_from(bits / (u128::from(LARGE) * 8)).unwrap_or(u64::MAX);
    let packets = packets.clamp(TRAIN_PACKETS.0, TRAIN_PACKETS.1);
    u16::try_from(packets).unwrap_or(FIRST_TRAIN)
}

/// Traces the route and measures the bandwidth up to each hop.
fn trace(target: &Target, cancelled: &Cancelled) -> Result<Measurement, TestFailure> {
    let client = target.client;
    let failed = |action| move |source| TestFailure::system(NAME, client, action, source);
    let probe = HopProbe::open(client).map_err(failed("open a socket"))?;
    let mut cost = 0;
    let mut hops = find_hops(&probe, cancelled, &mut cost).map_err(failed("trace the route"))?;
    let Some(last) = hops.iter().position(|hop| hop.is_client) else {
        return Err(no_end(client, &hops));
    };
    hops.truncate(last + 1);
    if let Some(socket) = probe.echo() {
        measure_hops(socket, &mut hops, target, cancelled, &mut cost)
            .map_err(failed("send a train"))?;
    }
    let bandwidths: Vec<HopBandwidth> = hops.iter().map(|hop| hop.bandwidth_bps).collect();
    let bottleneck = bottleneck_hop(&bandwidths);
    Ok(Measurement {
        client,
        test: NAME.to_owned(),
        at: Timestamp::now(),
        values: vec![(Quantity::Hops, last as f64)],
        detail: Some(detail(probe.method(), &hops, bottleneck)),
        cost_bytes: cost,
    })
}

fn no_end(client: IpAddr, hops: &[Hop]) -> TestFailure {
    let last = hops.iter().rposition(|hop| hop.address.is_some());
    match last {
        Some(place) => {
            let address = hops.get(place).and_then(|hop| hop.address);
            let router = address.map_or(String::new(), |address| address.to_string());
            let reason = format!("behind hop {} ({router}) nobody answers", place + 1);
            TestFailure::unusable(NAME, client, reason)
        }
        None => TestFailure::NoAnswer {
            test: NAME.to_owned(),
            client,
            waited: PATIENCE,
        },
    }
}

/// Asks the hops in windows until the client answers, or a whole window is silent.
fn find_hops(probe: &HopProbe, cancelled: &Cancelled, cost: &mut u64) -> io::Result<Vec<Hop>> {
    let mut hops = vec![Hop::default(); usize::from(MOST_HOPS)];
    let mut sequence = 0;
    let mut start = 1;
    while start <= MOST_HOPS && !cancelled.is_set() {
        let end = (start + WINDOW - 1).min(MOST_HOPS);
        for _ in 0..ROUNDS {
            let client = hops.iter().position(|hop| hop.is_client);
            let end = client.map_or(end, |place| end.min(u8::try_from(place + 1).unwrap_or(end)));
            let numbers = (start..=end).collect::<Vec<_>>();
            ask_hops(probe, &numbers, &mut sequence, &mut hops, cancelled)?;
            *cost += (SMALL + 92) as u64 * numbers.len() as u64;
        }
        let window = usize::from(start - 1)..usize::from(end);
        let is_silent = |hops: &[Hop]| hops.iter().all(|hop| hop.address.is_none());
        if hops.iter().any(|hop| hop.is_client) || hops.get(window).is_some_and(is_silent) {
            break;
        }
        start = end + 1;
    }
    Ok(hops)
}

/// Sends one request to each of these hops and notes the answers.
fn ask_hops(
    probe: &HopProbe,
    numbers: &[u8],
    sequence: &mut u16,
    hops: &mut [Hop],
    cancelled: &Cancelled,
) -> io::Result<()> {
    let mut asked = Vec::with_capacity(numbers.len());
    let mut deadline = Instant::now() + PATIENCE;
    for hop in numbers {
        let sent = probe.ask(*hop, *sequence, SMALL, deadline)?;
        asked.push((*sequence, *hop, sent));
        *sequence = sequence.wrapping_add(1);
    }
    let mut open = asked.len();
    let mut answers = Vec::new();
    while open > 0 && Instant::now() < deadline && !cancelled.is_set() {
        probe.receive(cancelled.wait_until(deadline), &mut answers)?;
        for answer in answers.drain(..) {
            let request = asked.iter().find(|request| request.0 == answer.sequence);
            let Some((_, number, sent)) = request else {
                continue;
            };
            open = open.saturating_sub(1);
            let round_trip = answer.at.saturating_duration_since(*sent);
            note(
                hops,
                *number,
                answer.from,
                probe.client(),
                round_trip,
                answer.hop_limit,
            );
            if answer.from == Answerer::Client {
                // Hops behind the client's number are the client again; routers before it have answered, or
                // are given as long again.
                let wait = round_trip + Duration::from_millis(100);
                deadline = deadline.min(Instant::now() + wait);
            }
        }
    }
    Ok(())
}

fn note(
    hops: &mut [Hop],
    number: u8,
    from: Answerer,
    client: IpAddr,
    round_trip: Duration,
    hop_limit: Option<u8>,
) {
    let (address, is_client) = match from {
        Answerer::Client => (client, true),
        Answerer::Router(router) => (router, router == client),
        // A router that refuses is not on the way of data.
        Answerer::Unreachable(_) | Answerer::OwnDevice => return,
    };
    if let Some(hop) = hops.get_mut(usize::from(number).saturating_sub(1)) {
        hop.address = Some(address);
        hop.is_client |= is_client;
        hop.hop_limit = hop_limit.or(hop.hop_limit);
        hop.round_trip = Some(
            hop.round_trip
                .map_or(round_trip, |known| known.min(round_trip)),
        );
    }
}

/// Measures the bandwidth up to each hop by a train that ends there.
fn measure_hops(
    socket: &EchoSocket,
    hops: &mut [Hop],
    target: &Target,
    cancelled: &Cancelled,
    cost: &mut u64,
) -> io::Result<()> {
    let packets = train_length(target.bandwidth_bps);
    // Behind the sequence numbers that were used to find the hops.
    let mut first_sequence = 1000_u16;
    for number in (0..TRAINS).flat_map(|_| 1..=MOST_HOPS) {
        let Some(hop) = hops.get_mut(usize::from(number) - 1) else {
            continue;
        };
        let Some(address) = hop.address else {
            continue;
        };
        if cancelled.is_set() {
            break;
        }
        socket.set_hop_limit(number)?;
        let round_trip = hop.round_trip.unwrap_or(PATIENCE);
        let train = EchoTrain {
            packets,
            bytes: usize::from(LARGE),
            first_sequence,
            silence: (round_trip * 2 + Duration::from_millis(200)).min(PATIENCE * 2),
        };
        first_sequence = first_sequence.wrapping_add(packets);
        let answers = train.send(socket, cancelled)?;
        let received = 92 * answers.from_routers.values().map(Vec::len).sum::<usize>() as u64;
        *cost += u64::from(answers.sent) * u64::from(LARGE) + answers.received_bytes + received;
        let arrivals = match hop.is_client {
            true => Some(&answers.from_client),
            false => answers.from_routers.get(&address),
        };
        let enough = usize::from(packets) / ANSWERED_PART;
        let arrivals = arrivals.filter(|arrivals| arrivals.len() >= enough);
        let estimate = arrivals
            .and_then(|arrivals| dispersion::estimate([arrivals.as_slice()], u32::from(LARGE)));
        let bandwidth = estimate.map(|estimate| estimate.bps);
        hop.bandwidth_bps = hop.bandwidth_bps.max(bandwidth);
    }
    Ok(())
}

fn detail(method: &str, hops: &[Hop], bottleneck: Option<usize>) -> serde_json::Value {
    let address = |place: usize| hops.get(place).and_then(|hop| hop.address);
    let list: Vec<_> = hops
        .iter()
        .map(|hop| {
            json!({
                "address": hop.address,
                "round_trip_s": hop.round_trip.map(|time| time.as_secs_f64()),
                "bandwidth_bps": hop.bandwidth_bps,
            })
        })
        .collect();
    let back = hops.last().and_then(|hop| hop.hop_limit).map(hops_passed);
    let there = hops.len().saturating_sub(1);
    json!({
        "method": method,
        "hops": list,
        // The bottleneck is the link from this hop to the next one; hop 0 is this host.
        "bottleneck_hop": bottleneck,
        "bottleneck_router": bottleneck.and_then(|place| address(place.checked_sub(1)?)),
        "behind_bottleneck": bottleneck.and_then(address),
        "routers_back": back,
        "is_asymmetric": back.is_some_and(|back| usize::from(back) != there),
    })
}

/// A socket for requests to the hops of one route: ICMP echo where it is permitted, UDP otherwise.
#[derive(Debug)]
enum HopProbe {
    /// Echo requests.
    Echo(EchoSocket),
    /// UDP datagrams, which any process may send.
    Udp(UdpSocket),
}

impl HopProbe {
    /// A socket for requests to `client` and the routers before it.
    ///
    /// # Errors
    /// There is no route to the client, or the kernel refuses.
    pub(super) fn open(client: IpAddr) -> io::Result<Self> {
        match EchoSocket::open(client) {
            Ok(socket) => Ok(Self::Echo(socket)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                UdpSocket::open(client).map(Self::Udp)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends the request with this number, a packet of `bytes` with its IP header, to the hop; returns when it was
    /// handed to the kernel.
    ///
    /// # Errors
    /// The kernel refuses, or there is no room until `deadline`.
    pub(super) fn ask(
        &self,
        hop: u8,
        sequence: u16,
        bytes: usize,
        deadline: Instant,
    ) -> io::Result<Instant> {
        match self {
            Self::Echo(socket) => {
                socket.set_hop_limit(hop)?;
                socket.send(&socket.request(sequence, bytes), deadline)
            }
            Self::Udp(socket) => {
                socket.set_hop_limit(hop)?;
                socket.send(sequence, bytes, deadline)
            }
        }
    }

    /// Waits for answers until `deadline` and adds them to `answers`. Returns early as soon as there are any.
    ///
    /// # Errors
    /// The socket fails.
    pub(super) fn receive(
        &self,
        deadline: Instant,
        answers: &mut Vec<ProbeAnswer>,
    ) -> io::Result<()> {
        match self {
            Self::Echo(socket) => socket.receive(deadline, answers),
            Self::Udp(socket) => socket.receive(deadline, answers),
        }
    }

    /// The client.
    pub(super) fn client(&self) -> IpAddr {
        match self {
            Self::Echo(socket) => socket.client(),
            Self::Udp(socket) => socket.client(),
        }
    }

    /// The socket for echo requests, if they are permitted.
    pub(super) fn echo(&self) -> Option<&EchoSocket> {
        match self {
            Self::Echo(socket) => Some(socket),
            Self::Udp(_) => None,
        }
    }

    /// Name of the protocol.
    pub(super) fn method(&self) -> &'static str {
        match self {
            Self::Echo(_) => "icmp",
            Self::Udp(_) => "udp",
        }
    }
}

/// Bandwidth of the way from this host to a hop, bits per second; `None`: the hop does not answer trains.
type HopBandwidth = Option<u64>;

/// The bandwidth behind the bottleneck is at most this many times that of the whole path.
const SAME: f64 = 1.5;

/// The hop before the bottleneck link: 0 is this host, 1 the first router. `hops` are the hops in order, the client
/// last. `None`: too little is known. Where routers before the bottleneck do not answer, the last answering one before
/// it counts.
fn bottleneck_hop(hops: &[HopBandwidth]) -> Option<usize> {
    // The way to a hop is part of the way to the next one, so it is at least as fast: a lower figure is of a sender
    // that waited for its processor.
    let mut hops = hops.to_vec();
    let mut behind = 0;
    for bps in hops.iter_mut().rev().flatten() {
        behind = behind.max(*bps);
        *bps = behind;
    }
    let whole = hops.iter().flatten().min().copied()? as f64;
    let is_slow =
        |bandwidth: &HopBandwidth| bandwidth.is_some_and(|bps| bps as f64 <= whole * SAME);
    let slow = hops.iter().position(is_slow)?;
    let before = hops.get(..slow)?;
    if before.is_empty() {
        return Some(0);
    }
    // If no hop before it was measured, the bottleneck is any of the links up to it.
    before
        .iter()
        .rposition(Option::is_some)
        .map(|place| place + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const M: u64 = 1_000_000;

    #[test]
    fn the_bottleneck_is_behind_the_last_fast_hop() {
        let fast = Some(900 * M);
        let slow = Some(90 * M);
        assert_eq!(bottleneck_hop(&[fast, fast, slow, slow]), Some(2));
        assert_eq!(bottleneck_hop(&[fast, None, slow, Some(110 * M)]), Some(1));
        assert_eq!(bottleneck_hop(&[slow, slow]), Some(0));
        assert_eq!(bottleneck_hop(&[fast, slow]), Some(1));
        assert_eq!(bottleneck_hop(&[slow, None, fast, slow]), Some(3));
    }

    #[test]
    fn too_little_is_no_answer() {
        assert_eq!(bottleneck_hop(&[]), None);
        assert_eq!(bottleneck_hop(&[None, None]), None);
        assert_eq!(bottleneck_hop(&[None, Some(M)]), None);
    }

    proptest! {
        #[test]
        fn the_answer_is_a_hop_of_the_route(hops in prop::collection::vec(any::<HopBandwidth>(), 0..31)) {
            if let Some(hop) = bottleneck_hop(&hops) {
                prop_assert!(hop < hops.len());
            }
        }
    }
}
