//! `ping`: the round trip. Five echo requests of 1500 bytes, of which the mean of the last four counts (section 4.1 of the
//! Enable paper): the first one may wait for address resolution. Where ICMP is filtered, the time of TCP
//! handshakes.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::json;

use super::blocking::{Cancelled, run_blocking};
use super::echo_socket::{Answerer, EchoSocket};
use super::icmp::hops_passed;
use super::{Load, PathTest, StartDecision, Target, TestFailure, Unavailable, Weight};
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
    fn name(&self) -> &str {
        NAME
    }

    fn weight(&self) -> Weight {
        Weight::Light
    }

    fn concurrency(&self) -> usize {
        10
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(5 * 60)
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
        if load.transfers_to_client > 0 {
            return StartDecision::Wait("a transfer fills the queues of this path".to_owned());
        }
        StartDecision::Run
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

/// The answers to the requests of one test.
#[derive(Debug, Default)]
struct EchoRoundTrips {
    sent: u16,
    /// By number of the request.
    round_trips: Vec<Option<Duration>>,
    hop_limit: Option<u8>,
    unreachable: Option<Option<IpAddr>>,
}

impl EchoRoundTrips {
    fn has_round_trip(&self) -> bool {
        self.round_trips.iter().any(Option::is_some)
    }

    fn answered(&self) -> u16 {
        let answered = self.round_trips.iter().flatten().count();
        u16::try_from(answered).unwrap_or(u16::MAX)
    }

    fn cost(&self) -> u64 {
        u64::from(self.sent + self.answered()) * BYTES as u64
    }

    fn measurement(&self, client: IpAddr) -> Result<Measurement, TestFailure> {
        let Some(mean) = mean_without_first(&self.round_trips) else {
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
        let loss = 1.0 - f64::from(self.answered()) / f64::from(self.sent.max(1));
        let detail = json!({
            "method": "icmp",
            "round_trips_s": seconds(&self.round_trips),
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
fn echo(client: IpAddr, cancelled: &Cancelled) -> Result<EchoRoundTrips, TestFailure> {
    let failed = |action| move |source| TestFailure::system(NAME, client, action, source);
    let socket = EchoSocket::open(client).map_err(failed("open an echo socket"))?;
    let mut found = EchoRoundTrips {
        round_trips: vec![None; usize::from(REQUESTS)],
        ..EchoRoundTrips::default()
    };
    let mut times = Vec::with_capacity(usize::from(REQUESTS));
    for sequence in 0..REQUESTS {
        let deadline = Instant::now() + SPACING;
        let request = socket.request(sequence, BYTES);
        let sent = socket
            .send(&request, deadline)
            .map_err(failed("send a request"))?;
        times.push(sent);
        found.sent += 1;
        let is_last = sequence + 1 == REQUESTS;
        let until = if is_last { sent + PATIENCE } else { deadline };
        let wanted = if is_last {
            0..=sequence
        } else {
            sequence..=sequence
        };
        while Instant::now() < until && !cancelled.is_set() {
            let is_missing = |n: u16| {
                found
                    .round_trips
                    .get(usize::from(n))
                    .is_some_and(Option::is_none)
            };
            if !wanted.clone().any(is_missing) || found.unreachable.is_some() {
                break;
            }
            let mut answers = Vec::new();
            socket
                .receive(cancelled.wait_until(until), &mut answers)
                .map_err(failed("receive an answer"))?;
            for answer in answers {
                match (answer.from, times.get(usize::from(answer.sequence))) {
                    (Answerer::Client, Some(sent)) => {
                        found.hop_limit = answer.hop_limit.or(found.hop_limit);
                        let place = found.round_trips.get_mut(usize::from(answer.sequence));
                        if let Some(place) = place {
                            place.get_or_insert(answer.at.saturating_duration_since(*sent));
                        }
                    }
                    (Answerer::Unreachable(by), _) => found.unreachable = Some(by),
                    _ => {}
                }
            }
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
            client: client.parse().unwrap(),
            rtt: None,
            bandwidth_bps: None,
            tcp_ports,
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
