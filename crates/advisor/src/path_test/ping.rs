//! `ping`: the round trip. Five echo requests of 1500 bytes, of which the mean of the last four counts (section 4.1 of the
//! Enable paper): the first one may wait for address resolution. Where ICMP is filtered, the time of TCP
//! handshakes.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::json;

use super::blocking::{Cancelled, run_blocking};
use super::icmp::hops_passed;
use super::probe_socket::EchoSocket;
use super::probe_socket::{Answerer, ProbeAnswer};
use super::{
    HeldBackBy, Load, PathTest, StartDecision, Target, TestFailure, TestProfile, Unavailable,
    Weight,
};
use crate::measurement::{Measurement, Quantity};

/// Name of the test.
pub(super) const NAME: &str = "ping";

/// Requests.
const REQUESTS: u16 = 5;
/// Size of a request, bytes with the IP header.
const BYTES: usize = 1500;
/// Time between two requests if the first is not answered before.
const SPACING: Duration = Duration::from_millis(250);
/// Longest wait for an answer after the last request.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a TCP handshake and its end, with IP headers, at most.
const HANDSHAKE_BYTES: u64 = 6 * 80;
/// Most TCP ports that are tried.
const MOST_PORTS: usize = 4;

/// The round trip by echo requests or TCP handshakes.
#[derive(Debug, Default)]
pub struct PingTest {
    /// Whether this machine permits echo sockets.
    has_echo: bool,
}

#[async_trait]
impl PathTest for PingTest {
    fn profile(&self) -> TestProfile<'_> {
        TestProfile {
            name: NAME,
            weight: Weight::Light,
            concurrency: 10,
            fills_path: false,
            interval: Duration::from_secs(5 * 60),
            held_back_by: HeldBackBy::TransfersToClient,
            measures: &[Quantity::Rtt],
        }
    }

    fn most_bytes(&self, target: &Target) -> u64 {
        let ports = target.tcp_ports.len().min(MOST_PORTS) as u64;
        let handshakes = ports + u64::from(REQUESTS);
        2 * u64::from(REQUESTS) * BYTES as u64 + handshakes * HANDSHAKE_BYTES
    }

    async fn init(&mut self) -> Result<(), Unavailable> {
        // Without echo sockets the test still has TCP.
        self.has_echo = super::echo_is_permitted();
        Ok(())
    }

    fn can_run(&self, target: &Target, load: &Load) -> StartDecision {
        if !self.has_echo && target.tcp_ports.is_empty() {
            return StartDecision::Wait(super::ECHO_FORBIDDEN.to_owned());
        }
        self.profile().held_back_by.decide(load)
    }

    async fn run(&self, target: &Target) -> Result<Measurement, TestFailure> {
        let client = target.client;
        let mut cost = 0;
        if self.has_echo {
            let answers =
                run_blocking(NAME, client, move |cancelled| echo(client, &cancelled)).await?;
            if answers.has_round_trip() || target.tcp_ports.is_empty() {
                return answers.measurement(client);
            }
            cost = answers.cost();
        }
        tcp(target, cost).await
    }
}

/// One request and its answer.
#[derive(Debug, Clone, Copy)]
struct EchoExchange {
    /// When it was handed to the kernel.
    handed_over: Instant,
    /// When it left, as the kernel noted it.
    departed: Option<Instant>,
    answered: Option<Instant>,
}

impl EchoExchange {
    /// The departure that the kernel noted, if it can be true: this thread may have waited for its processor before or
    /// after it.
    fn true_departure(&self) -> Option<Instant> {
        let answered = self.answered?;
        let departed = self.departed?;
        (self.handed_over..=answered)
            .contains(&departed)
            .then_some(departed)
    }

    fn round_trip(&self) -> Option<Duration> {
        let begin = self.true_departure().unwrap_or(self.handed_over);
        Some(self.answered?.saturating_duration_since(begin))
    }
}

/// The requests of one test.
#[derive(Debug, Default)]
struct EchoExchanges {
    /// By number of the request.
    exchanges: Vec<EchoExchange>,
    hop_limit: Option<u8>,
    unreachable: Option<Option<IpAddr>>,
}

impl EchoExchanges {
    fn note(&mut self, answer: ProbeAnswer) {
        let exchange = self.exchanges.get_mut(usize::from(answer.sequence));
        match (answer.from, exchange) {
            (Answerer::Client, Some(exchange)) => {
                self.hop_limit = answer.hop_limit.or(self.hop_limit);
                exchange.answered.get_or_insert(answer.at);
            }
            (Answerer::OwnDevice, Some(exchange)) => {
                exchange.departed.get_or_insert(answer.at);
            }
            (Answerer::Unreachable(by), _) => self.unreachable = Some(by),
            _ => {}
        }
    }

    fn is_answered(&self, number: u16) -> bool {
        let exchange = self.exchanges.get(usize::from(number));
        exchange.is_some_and(|exchange| exchange.answered.is_some())
    }

    fn round_trips(&self) -> Vec<Option<Duration>> {
        self.exchanges
            .iter()
            .map(EchoExchange::round_trip)
            .collect()
    }

    fn has_round_trip(&self) -> bool {
        self.answered() > 0
    }

    fn answered(&self) -> usize {
        let answered = |exchange: &&EchoExchange| exchange.answered.is_some();
        self.exchanges.iter().filter(answered).count()
    }

    /// Answered requests whose departure the kernel noted.
    fn noted_departures(&self) -> usize {
        let departures = self
            .exchanges
            .iter()
            .filter_map(EchoExchange::true_departure);
        departures.count()
    }

    fn cost(&self) -> u64 {
        (self.exchanges.len() + self.answered()) as u64 * BYTES as u64
    }

    fn measurement(&self, client: IpAddr) -> Result<Measurement, TestFailure> {
        let round_trips = self.round_trips();
        let Some(mean) = mean_without_first(&round_trips) else {
            return Err(match self.unreachable {
                Some(by) => {
                    let by = by.map_or("this host".to_owned(), |by| by.to_string());
                    TestFailure::unusable(NAME, client, format!("{by} says that it is unreachable"))
                }
                None => TestFailure::NoAnswer {
                    test: NAME.to_owned(),
                    client,
                    waited: PATIENCE,
                },
            });
        };
        let loss = 1.0 - self.answered() as f64 / self.exchanges.len().max(1) as f64;
        let smallest = round_trips.iter().flatten().min();
        let detail = json!({
            "method": "icmp",
            "round_trips_s": seconds(&round_trips),
            "smallest_round_trip_s": smallest.map(Duration::as_secs_f64),
            "departures_noted_by_kernel": self.noted_departures(),
            "hop_limit": self.hop_limit,
            "routers_back": self.hop_limit.map(hops_passed),
        });
        Ok(Measurement {
            client,
            test: NAME.to_owned(),
            at: Timestamp::now(),
            values: vec![(Quantity::Rtt, mean), (Quantity::Loss, loss)],
            detail: Some(detail),
            cost_bytes: self.cost(),
        })
    }
}

/// Mean of all but the first, seconds; the first if there is no other.
fn mean_without_first(round_trips: &[Option<Duration>]) -> Option<f64> {
    let later: Vec<f64> = seconds(round_trips.get(1..)?)
        .into_iter()
        .flatten()
        .collect();
    if later.is_empty() {
        return round_trips.first()?.map(|first| first.as_secs_f64());
    }
    Some(later.iter().sum::<f64>() / later.len() as f64)
}

fn seconds(round_trips: &[Option<Duration>]) -> Vec<Option<f64>> {
    let times = round_trips.iter();
    times
        .map(|time| time.map(|time| time.as_secs_f64()))
        .collect()
}

/// Sends the requests and waits for the answers.
fn echo(client: IpAddr, cancelled: &Cancelled) -> Result<EchoExchanges, TestFailure> {
    let failed = |action| move |source| TestFailure::system(NAME, client, action, source);
    let socket = EchoSocket::open(client).map_err(failed("open an echo socket"))?;
    socket.note_departures();
    let mut found = EchoExchanges::default();
    let mut answers = Vec::new();
    for sequence in 0..REQUESTS {
        let deadline = Instant::now() + SPACING;
        let request = socket.request(sequence, BYTES);
        let sent = socket
            .send(&request, deadline)
            .map_err(failed("send a request"))?;
        found.exchanges.push(EchoExchange {
            handed_over: sent,
            departed: None,
            answered: None,
        });
        let is_last = sequence + 1 == REQUESTS;
        let until = if is_last { sent + PATIENCE } else { deadline };
        let wanted = if is_last {
            0..=sequence
        } else {
            sequence..=sequence
        };
        while Instant::now() < until && !cancelled.is_set() {
            if wanted.clone().all(|number| found.is_answered(number)) || found.unreachable.is_some()
            {
                break;
            }
            socket
                .receive(cancelled.wait_until(until), &mut answers)
                .map_err(failed("receive an answer"))?;
            answers.drain(..).for_each(|answer| found.note(answer));
        }
        if cancelled.is_set() || found.unreachable.is_some() {
            break;
        }
    }
    Ok(found)
}

/// The time of TCP handshakes with the first port that answers.
async fn tcp(target: &Target, cost: u64) -> Result<Measurement, TestFailure> {
    let client = target.client;
    let mut attempts = 0;
    for port in target.tcp_ports.iter().take(MOST_PORTS) {
        attempts += 1;
        let Some(first) = handshake(SocketAddr::new(client, *port)).await else {
            continue;
        };
        let mut round_trips = vec![Some(first)];
        for _ in 1..REQUESTS {
            attempts += 1;
            round_trips.push(handshake(SocketAddr::new(client, *port)).await);
        }
        let Some(mean) = mean_without_first(&round_trips) else {
            break;
        };
        // A lost SYN is sent again by the kernel, so that loss shows as time here and not as a share.
        return Ok(Measurement {
            client,
            test: NAME.to_owned(),
            at: Timestamp::now(),
            values: vec![(Quantity::Rtt, mean)],
            detail: Some(json!({
                "method": "tcp",
                "port": port,
                "round_trips_s": seconds(&round_trips),
            })),
            cost_bytes: cost + attempts * HANDSHAKE_BYTES,
        });
    }
    Err(TestFailure::NoAnswer {
        test: NAME.to_owned(),
        client,
        waited: PATIENCE,
    })
}

/// Time until the port answers, with a refusal, too; `None` if it does not in time.
async fn handshake(address: SocketAddr) -> Option<Duration> {
    let start = Instant::now();
    let connecting = tokio::net::TcpStream::connect(address);
    match tokio::time::timeout(PATIENCE, connecting).await {
        Ok(Ok(_)) => Some(start.elapsed()),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            Some(start.elapsed())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(client: &str, tcp_ports: Vec<u16>) -> Target {
        Target {
            tcp_ports,
            ..Target::new(client.parse().unwrap())
        }
    }

    fn value(measurement: &Measurement, quantity: Quantity) -> Option<f64> {
        let mut values = measurement.values.iter();
        values
            .find(|value| value.0 == quantity)
            .map(|value| value.1)
    }

    #[test]
    fn the_first_round_trip_does_not_count() {
        let ms = |n| Some(Duration::from_millis(n));
        assert_eq!(
            mean_without_first(&[ms(900), ms(10), ms(20), None, ms(30)]),
            Some(0.02)
        );
        assert_eq!(mean_without_first(&[ms(900), None, None]), Some(0.9));
        assert_eq!(mean_without_first(&[None, None]), None);
        assert_eq!(mean_without_first(&[]), None);
    }

    #[test]
    fn the_kernels_departure_counts_unless_it_cannot_be_true() {
        let start = Instant::now();
        let ms = |n| start + Duration::from_millis(n);
        let round_trip = |departed| {
            let exchange = EchoExchange {
                handed_over: ms(10),
                departed,
                answered: Some(ms(30)),
            };
            exchange.round_trip().unwrap().as_millis()
        };
        assert_eq!(
            round_trip(Some(ms(14))),
            16,
            "the thread waited for its processor"
        );
        assert_eq!(round_trip(None), 20);
        assert_eq!(round_trip(Some(ms(9))), 20);
        assert_eq!(round_trip(Some(ms(31))), 20);
    }

    #[tokio::test]
    async fn this_machine_has_a_round_trip() {
        for client in ["127.0.0.1", "::1"] {
            let mut test = PingTest::default();
            test.init().await.unwrap();
            if !test.has_echo {
                eprintln!("SKIPPED: {}", super::super::ECHO_FORBIDDEN);
                return;
            }
            let target = target(client, Vec::new());
            match test.run(&target).await {
                Ok(found) => {
                    assert!(value(&found, Quantity::Rtt).unwrap() > 0.0);
                    assert_eq!(value(&found, Quantity::Loss), Some(0.0));
                    let detail = found.detail.unwrap();
                    assert_eq!(detail["departures_noted_by_kernel"], REQUESTS, "{detail}");
                    assert!(found.cost_bytes <= test.most_bytes(&target));
                }
                // A machine without IPv6.
                Err(error) => assert_eq!(client, "::1", "{error}"),
            }
        }
    }

    #[tokio::test]
    async fn a_refused_connection_counts_as_an_answer() {
        // The port was free a moment ago and has no listener.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let found = PingTest::default()
            .run(&target("127.0.0.1", vec![port]))
            .await
            .unwrap();
        assert!(value(&found, Quantity::Rtt).unwrap() > 0.0);
        assert_eq!(found.detail.unwrap()["method"], "tcp");
    }

    #[tokio::test]
    async fn without_icmp_and_ports_the_test_waits_with_a_reason() {
        let test = PingTest::default();
        let decision = test.can_run(&target("127.0.0.1", Vec::new()), &Load::default());
        assert!(matches!(decision, StartDecision::Wait(_)));
    }
}
