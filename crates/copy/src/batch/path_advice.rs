//! Answers of network-advice services about the paths of a batch: asked while sessions open, used where nothing better
//! is known, and answered with what the transfers measured.

use std::collections::HashMap;
use std::fs::Metadata;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::os::caps::host_limits;
use enable::advice::{Advice, DataDirection, Question};
use enable::client::{EnableClient, EnableError};
use enable::method;
use ftp::location::Location;
use parking_lot::Mutex;
use proto::command::Secret;
use serde_json::json;
use tokio::sync::watch;
use tune::diagnosis::dominant_limiter;
use tune::forecast::ExpectedRate;
use tune::limiter::Role;
use tune::{Evidence, PathRate, Prior};
use units::show;

use crate::events::{CopyEvent, CopyObserver};
use crate::options::{AdviceOptions, AdvisorChoice};
use ftp::transfer::HostRemark;

/// Longest wait for an answer on a short path; on a longer one it is a round trip.
const WAIT: Duration = Duration::from_millis(200);
/// Limit for a question, after which nobody waits for it any more, and for a report.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// Advice with less confidence is a guess.
const LEAST_CONFIDENCE: f64 = 0.25;
/// Most streams to begin with by advice.
const MAX_STREAMS: u32 = 64;
/// A shorter transfer, or a smaller one, tells more of its start than of the path (the service's own rule for
/// transfers in logs).
const LEAST_TIME: Duration = Duration::from_secs(5);
const LEAST_BYTES: u64 = 1_000_000;

/// The questions of a batch, one for each service and direction.
pub(crate) struct AdviceQuestions {
    options: AdviceOptions,
    observer: Arc<dyn CopyObserver>,
    asked: Mutex<HashMap<(String, DataDirection), Arc<AskedAdvice>>>,
    /// The transfers that the batch is expected to make, before they begin.
    expected: Mutex<ExpectedTransfers>,
}

/// The transfers of a batch, as far as they are known before its sessions open.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ExpectedTransfers {
    /// The way of their data.
    pub(crate) direction: DataDirection,
    /// Bytes of the transfer, if it is the only one and they are known: that of a local file. The size of a remote one
    /// is known when the answer is there already.
    pub(crate) bytes: Option<u64>,
}

impl ExpectedTransfers {
    /// Of a copy from these places to another one.
    pub(crate) fn between(sources: &[&Location], destination: &Location) -> Self {
        let is_local = |place: &&Location| !matches!(place, Location::Remote { .. });
        let bytes = match sources {
            [Location::Local(path)] => path.metadata().ok().filter(Metadata::is_file),
            _ => None,
        };
        let uploads = !is_local(&destination) && sources.iter().all(is_local);
        Self {
            direction: match uploads {
                true => DataDirection::Upload,
                false => DataDirection::Download,
            },
            bytes: bytes.map(|file| file.len()).filter(|_| uploads),
        }
    }
}

/// A question, and its answer once it is there.
#[derive(Debug)]
struct AskedAdvice {
    at: Instant,
    /// `None`: no answer yet.
    answer: watch::Receiver<Option<Result<Advice, String>>>,
}

/// The answer of a service.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ServiceAdvice {
    /// Host and port of the service.
    service: String,
    advice: Advice,
}

/// A service without advice that can be used, and why.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NoAdvice {
    service: String,
    reason: String,
}

impl AdviceQuestions {
    /// No question yet. `observer` is told of a service that the user has named and that does not answer.
    pub(crate) fn new(options: AdviceOptions, observer: Arc<dyn CopyObserver>) -> Self {
        Self {
            options,
            observer,
            asked: Mutex::default(),
            expected: Mutex::default(),
        }
    }

    /// Notes what is known of the transfers before sessions open, so that the first question tells it.
    pub(crate) fn expect(&self, transfers: ExpectedTransfers) {
        *self.expected.lock() = transfers;
    }

    /// Asks the service for the path of a server, if it was not asked yet; `announced` is the one that the server
    /// announces. Does not wait.
    pub(crate) fn ask(&self, announced: Option<SocketAddr>) {
        let expected = *self.expected.lock();
        self.ask_for(announced, expected);
    }

    fn ask_for(&self, announced: Option<SocketAddr>, transfers: ExpectedTransfers) {
        let Some(service) = self.service(announced) else {
            return;
        };
        let mut asked = self.asked.lock();
        let key = (service, transfers.direction);
        if asked.contains_key(&key) {
            return;
        }
        let (send, answer) = watch::channel(None);
        let name = key.0.clone();
        // Nobody asked for what a server announces.
        let told = self.has_named_service();
        let told = told.then(|| Arc::clone(&self.observer));
        tokio::task::spawn_blocking(move || {
            let answer = answer_of(&name, transfers).map_err(|error| error.to_string());
            if let Err(error) = &answer {
                tracing::debug!(error, "no advice");
                if let Some(observer) = told {
                    let text = format!("going on without advice: {error}");
                    observer.on_event(CopyEvent::Warning(text));
                }
            }
            send.send_replace(Some(answer));
        });
        let at = Instant::now();
        asked.insert(key, Arc::new(AskedAdvice { at, answer }));
    }

    /// The advice for the path of a server, if it arrives in time: a round trip or 200 ms after the question,
    /// whichever is longer. `role` is that of this end. `None`: no service is asked.
    pub(crate) async fn advice(
        &self,
        announced: Option<SocketAddr>,
        rtt: Duration,
        role: Role,
    ) -> Option<Result<ServiceAdvice, NoAdvice>> {
        let direction = direction_of(role);
        let expected = *self.expected.lock();
        let of_direction = ExpectedTransfers {
            direction,
            bytes: expected.bytes.filter(|_| expected.direction == direction),
        };
        self.ask_for(announced, of_direction);
        let service = self.service(announced)?;
        let asked = {
            let asked = self.asked.lock();
            Arc::clone(asked.get(&(service.clone(), direction))?)
        };
        let mut answer = asked.answer.clone();
        let wait = WAIT.max(rtt);
        let deadline = tokio::time::Instant::from_std(asked.at + wait);
        let arrived = answer.wait_for(Option::is_some);
        let arrived = match tokio::time::timeout_at(deadline, arrived).await {
            Ok(Ok(arrived)) => arrived.clone(),
            _ => None,
        };
        Some(match arrived {
            Some(Ok(advice)) if advice.confidence >= LEAST_CONFIDENCE => {
                Ok(ServiceAdvice { service, advice })
            }
            Some(Ok(advice)) => Err(NoAdvice {
                reason: match advice.why.as_str() {
                    "" => "it knows too little of the path".to_owned(),
                    // It comes from another host.
                    why => proto::printable::printable(why).to_string(),
                },
                service,
            }),
            Some(Err(reason)) => Err(NoAdvice { service, reason }),
            None => Err(NoAdvice {
                service,
                reason: format!("no answer within {}", show::time(wait)),
            }),
        })
    }

    /// Whether the user has named the service.
    pub(crate) fn has_named_service(&self) -> bool {
        matches!(self.options.choice, AdvisorChoice::Server(_))
    }

    /// Reports what a transfer measured, if there is a token. It goes only to a service that the user has named:
    /// any server could announce one, and read the token.
    pub(crate) async fn report(&self, evidence: &Evidence) {
        let (AdvisorChoice::Server(service), Some(token)) =
            (&self.options.choice, &self.options.token)
        else {
            return;
        };
        let (service, token) = (service.clone(), token.clone());
        let Some(report) = report_of(evidence) else {
            return;
        };
        let reporting = tokio::task::spawn_blocking(move || send_report(&service, &token, report));
        match reporting.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "a transfer was not reported"),
            Err(error) => tracing::warn!(%error, "a transfer was not reported"),
        }
    }

    /// Host and port of the service to ask.
    fn service(&self, announced: Option<SocketAddr>) -> Option<String> {
        match &self.options.choice {
            AdvisorChoice::Off => None,
            AdvisorChoice::Announced => announced.map(|address| address.to_string()),
            AdvisorChoice::Server(server) => Some(server.clone()),
        }
    }
}

/// The way of the data of a transfer in which this end has this role.
fn direction_of(role: Role) -> DataDirection {
    match role {
        Role::Sender => DataDirection::Upload,
        Role::Receiver => DataDirection::Download,
    }
}

fn answer_of(service: &str, transfers: ExpectedTransfers) -> Result<Advice, EnableError> {
    let own = host_limits();
    // A copy sets no buffer by advice, so that the streams must fill the path without one.
    let question = Question {
        bytes: transfers.bytes,
        direction: transfers.direction,
        max_receive_buffer: Some(own.max_autotuned_receive),
        max_send_buffer: Some(own.max_autotuned_send),
        max_set_buffer: Some(1),
        ..Question::default()
    };
    EnableClient::new(service, CALL_TIMEOUT)?.advice(&question)
}

fn send_report(
    service: &str,
    token: &Secret,
    report: serde_json::Value,
) -> Result<(), EnableError> {
    let client =
        EnableClient::new(service, CALL_TIMEOUT)?.with_token(&String::from_utf8_lossy(&token.0));
    client.call(&method::REPORT, vec![report]).map(|_| ())
}

/// The argument of EnableReport; `None` if the transfer says nothing of the path.
fn report_of(evidence: &Evidence) -> Option<serde_json::Value> {
    let tells = evidence.bytes >= LEAST_BYTES
        && evidence.elapsed >= LEAST_TIME
        && !dominant_limiter(evidence).limiter.is_at_an_end();
    let goodput = match evidence.role? {
        _ if !tells => return None,
        // Named as seen by the data server.
        Role::Receiver => "goodput",
        Role::Sender => "reverse_goodput",
    };
    let rate = evidence.bytes as f64 * 8.0 / evidence.elapsed.as_secs_f64();
    let mut values = json!({ goodput: rate });
    if evidence.final_streams > 0 {
        values["streams"] = json!(evidence.final_streams as f64);
    }
    if !evidence.min_rtt.is_zero() {
        values["rtt"] = json!(evidence.min_rtt.as_secs_f64());
    }
    Some(json!({ "test": "transfer", "values": values }))
}

impl ServiceAdvice {
    /// Start values of a transfer; `role` is that of this end, in whose direction the advice was asked for. The
    /// congestion control is one of the server's kernel, so that it is of use only where the server sends.
    ///
    /// Only what the transfer's own measurements correct: a pace would keep them from finding out that the path carries more,
    /// and the sender finds its pace itself.
    pub(crate) fn prior(&self, role: Role) -> Prior {
        let advice = &self.advice;
        let rtt = advice.rtt_seconds.map(Duration::try_from_secs_f64);
        let min_rtt = rtt.and_then(Result::ok).filter(|rtt| !rtt.is_zero());
        let by_server = |name: &String| (role == Role::Receiver).then(|| name.clone());
        let rate = |bps: u64| {
            (bps >= 8).then_some(PathRate {
                bytes_per_second: bps / 8,
                is_full: true,
            })
        };
        Prior {
            streams: advice.streams.map(|n| n.clamp(1, MAX_STREAMS)),
            congestion_control: advice.congestion_control.as_ref().and_then(by_server),
            pacing_rate: None,
            path_rate: advice.expected_bps.and_then(rate),
            min_rtt,
            send_buffer: None,
            is_alone: false,
        }
    }

    /// The goodput to expect, for a forecast.
    pub(crate) fn goodput(&self, role: Role) -> Option<ExpectedRate> {
        let rate = self.prior(role).path_rate;
        rate.map(|rate| ExpectedRate::of_one_transfer(rate.bytes_per_second))
    }

    /// The service, for the text of `--why`.
    pub(crate) fn service(&self) -> String {
        format!("advice of {}", self.service)
    }

    /// Its advice, for the text of `--why`.
    pub(crate) fn text(&self) -> String {
        let streams = self.advice.streams.map(|n| show::count(n, "stream"));
        let rate = self.advice.expected_bps.map(show::bits);
        let rate = rate.map(|rate| format!("{rate} expected"));
        let parts: Vec<String> = streams.into_iter().chain(rate).collect();
        let mut text = parts.join(", ");
        if text.is_empty() {
            text.push_str("nothing to set");
        }
        // It comes from another host.
        let why = proto::printable::printable(&self.advice.why).to_string();
        if !why.is_empty() {
            text.push_str(&format!(" ({why})"));
        }
        text
    }
}

impl NoAdvice {
    /// A remark for the text of `--why`.
    pub(crate) fn remark(&self) -> HostRemark {
        HostRemark {
            host: Some(format!("advice of {}", self.service)),
            verdict: None,
            text: Some(format!("none ({})", self.reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn advised(advice: Advice) -> ServiceAdvice {
        ServiceAdvice {
            service: "h:2812".to_owned(),
            advice,
        }
    }

    fn long_path() -> Advice {
        Advice {
            streams: Some(8),
            congestion_control: Some("bbr".to_owned()),
            pace_bps: Some(8),
            expected_bps: Some(800_000_000),
            rtt_seconds: Some(0.1),
            confidence: 0.9,
            why: "A long path.".to_owned(),
            ..Advice::default()
        }
    }

    #[test]
    fn advice_is_a_prior_for_the_servers_direction() {
        let wanted = Prior {
            streams: Some(8),
            congestion_control: Some("bbr".to_owned()),
            path_rate: Some(PathRate {
                bytes_per_second: 100_000_000,
                is_full: true,
            }),
            min_rtt: Some(Duration::from_millis(100)),
            ..Prior::default()
        };
        let advice = advised(long_path());
        assert_eq!(advice.prior(Role::Receiver), wanted);
        let goodput = ExpectedRate::of_one_transfer(100_000_000);
        assert_eq!(advice.goodput(Role::Receiver), Some(goodput));
        let sending = Prior {
            congestion_control: None,
            ..wanted.clone()
        };
        assert_eq!(advice.prior(Role::Sender), sending);
    }

    #[test]
    fn a_copy_to_a_server_is_expected_to_send_what_its_only_file_holds() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("f");
        std::fs::write(&file, [7; 1000]).unwrap();
        let remote = Location::parse("ftp://h/g").unwrap();
        let (local, folder) = (
            Location::Local(file),
            Location::Local(place.path().to_owned()),
        );
        let told = |sources: &[&Location], to| {
            let expected = ExpectedTransfers::between(sources, to);
            (expected.direction, expected.bytes)
        };
        let upload = DataDirection::Upload;
        assert_eq!(told(&[&local], &remote), (upload, Some(1000)));
        assert_eq!(told(&[&local, &local], &remote), (upload, None));
        assert_eq!(told(&[&folder], &remote), (upload, None));
        let download = DataDirection::Download;
        assert_eq!(told(&[&remote], &folder), (download, None));
        assert_eq!(told(&[&remote], &remote), (download, None));
    }

    #[test]
    fn numbers_that_cannot_be_are_bounded() {
        let advice = advised(Advice {
            streams: Some(u32::MAX),
            rtt_seconds: Some(f64::NAN),
            expected_bps: Some(1),
            ..Advice::default()
        });
        assert_eq!(advice.prior(Role::Receiver), Prior::with_streams(64));
    }

    #[test]
    fn the_text_says_what_was_advised_and_why() {
        let text = advised(long_path()).text();
        assert_eq!(text, "8 streams, 800 Mbit/s expected (A long path.)");
        let escape = advised(Advice {
            why: "\u{1b}[2J".to_owned(),
            ..Advice::default()
        });
        assert_eq!(escape.text(), "nothing to set (\\x1b[2J)");
    }

    #[test]
    fn only_a_transfer_that_tells_something_of_the_path_is_reported() {
        let evidence = Evidence {
            bytes: 1_000_000_000,
            elapsed: Duration::from_secs(10),
            final_streams: 4,
            wire_time: Duration::from_secs(39),
            min_rtt: Duration::from_millis(50),
            ..Evidence::for_role(Role::Receiver)
        };
        let report = report_of(&evidence).unwrap();
        assert_eq!(
            report["values"],
            json!({"goodput": 8e8, "streams": 4.0, "rtt": 0.05})
        );
        let short = Evidence {
            elapsed: Duration::from_secs(2),
            ..evidence.clone()
        };
        assert_eq!(report_of(&short), None);
        let limited = Evidence {
            wire_time: Duration::from_secs(1),
            throttle_time: Duration::from_secs(38),
            ..evidence.clone()
        };
        assert_eq!(report_of(&limited), None);
        let slow_disk = Evidence {
            store_time: Duration::from_secs(38),
            wire_time: Duration::from_secs(1),
            ..evidence.clone()
        };
        assert_eq!(report_of(&slow_disk), None, "the rate is the disk's");
        let sent = Evidence {
            role: Some(Role::Sender),
            ..evidence
        };
        assert!(report_of(&sent).unwrap()["values"]["reverse_goodput"].is_f64());
    }

    /// Collects warnings.
    #[derive(Default)]
    struct AdviceWarnings(Mutex<Vec<String>>);

    impl CopyObserver for AdviceWarnings {
        fn on_event(&self, event: CopyEvent) {
            if let CopyEvent::Warning(text) = event {
                self.0.lock().push(text);
            }
        }
    }

    fn questions(choice: AdvisorChoice) -> (AdviceQuestions, Arc<AdviceWarnings>) {
        let warnings = Arc::new(AdviceWarnings::default());
        let options = AdviceOptions {
            choice,
            token: None,
        };
        let observer = Arc::clone(&warnings);
        (AdviceQuestions::new(options, observer), warnings)
    }

    #[tokio::test]
    async fn a_service_that_the_user_names_and_that_does_not_answer_is_told_of_once() {
        let closed = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        };
        let (named, warnings) = questions(AdvisorChoice::Server(closed.to_string()));
        for _ in 0..2 {
            // Longer than any wait for a processor.
            let answer = named
                .advice(None, Duration::from_secs(60), Role::Receiver)
                .await;
            let remark = answer.unwrap().unwrap_err().remark();
            assert_eq!(remark.host, Some(format!("advice of {closed}")));
            assert!(remark.text.unwrap().starts_with("none ("));
        }
        let told = warnings.0.lock().clone();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("going on without advice: "), "{told:?}");
        let (announced, warnings) = questions(AdvisorChoice::Announced);
        let answer = announced
            .advice(Some(closed), Duration::from_secs(60), Role::Receiver)
            .await;
        assert!(answer.unwrap().is_err());
        assert!(warnings.0.lock().is_empty());
    }

    #[tokio::test]
    async fn a_silent_service_delays_by_200_ms_and_is_asked_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (questions, _) = questions(AdvisorChoice::Announced);
        let ask = |service| questions.advice(service, Duration::ZERO, Role::Receiver);
        assert_eq!(ask(None).await, None);
        let asked = Instant::now();
        let late = NoAdvice {
            service: address.to_string(),
            reason: "no answer within 200 ms".to_owned(),
        };
        let answer = ask(Some(address)).await;
        assert_eq!(answer, Some(Err(late.clone())));
        assert!(asked.elapsed() >= WAIT);
        // The second time, the deadline of the first question has passed.
        let answer = ask(Some(address)).await;
        assert_eq!(answer, Some(Err(late)));
        let (connection, _) = listener.accept().unwrap();
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "asked twice");
        drop(connection);
    }
}
