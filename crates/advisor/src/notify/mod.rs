//! Anomalies of paths, told to people and programs: a log line for each, and digests by webhook and mail.
//!
//! A [`Digest`] bounds how often and how much is sent. [`webhook`] and [`mail`] send one digest each, with time-outs and a
//! bounded number of attempts, on the thread of the [`Notifier`], so that a slow receiver holds nobody up.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::broadcast::error::RecvError;
use tokio::task;

use self::anomaly::{AnomalyBatch, AnomalyEvent};
use self::mail::{Mailer, NoMailProgram};
use self::webhook::{Webhook, WebhookUrlError};
use crate::config::NotifyConfig;
use crate::service::{Advisor, AdvisorEvent};

pub mod anomaly;
pub mod mail;
pub mod webhook;

/// Limit for an attempt to post to a webhook.
const POST_TIME: Duration = Duration::from_secs(10);
/// Limit for the program that takes a mail. Some look up the domain of the sender first.
const MAIL_TIME: Duration = Duration::from_secs(30);
/// Shortest time between two digests, and most anomalies in one.
const INTERVAL: Duration = Duration::from_secs(60);
const MAX_EVENTS: usize = 100;
/// Anomalies that wait for the thread. More are left out: the log line has them all the same.
const QUEUE: usize = 1024;

/// The reason why nobody can be told.
#[derive(Debug, thiserror::Error)]
pub enum NoticeError {
    /// The URL of the webhook.
    #[error("notify.webhook: {0}")]
    Webhook(#[from] WebhookUrlError),
    /// The program that sends mail.
    #[error("notify.mail.program: {0}")]
    Mail(#[from] NoMailProgram),
    /// No thread can be started.
    #[error("cannot start the sender of notices: {0}")]
    Thread(#[from] std::io::Error),
}

/// Whether anomalies can be sent to the receivers of these settings. Nothing is sent.
///
/// # Errors
/// A receiver's settings cannot work.
pub(crate) fn check(config: &NotifyConfig) -> Result<(), NoticeError> {
    senders(config).map(|_senders| ())
}

/// The parts that send to the receivers of these settings.
fn senders(config: &NotifyConfig) -> Result<(Option<Webhook>, Option<Mailer>), NoticeError> {
    let retry = SendRetry::default();
    let webhook = config.webhook.as_deref();
    let webhook = webhook.map(|url| Webhook::new(url, POST_TIME, retry));
    let mail = config.mail.as_ref();
    let mailer = mail.map(|mail| Mailer::new(mail, MAIL_TIME, retry));
    Ok((webhook.transpose()?, mailer.transpose()?))
}

/// Sends the anomalies of the service to the receivers of its settings; `None` if there are none. It must be called
/// within a tokio runtime. The task ends with the service, or when it is aborted.
///
/// # Errors
/// A receiver's settings cannot work.
pub fn start(advisor: &Advisor) -> Result<Option<task::JoinHandle<()>>, NoticeError> {
    let config = &advisor.config().notify;
    if config.webhook.is_none() && config.mail.is_none() {
        return Ok(None);
    }
    let (webhook, mailer) = senders(config)?;
    let notifier = Notifier::start(NotifySettings {
        host: advisor.config().server_name.clone(),
        webhooks: webhook.into_iter().collect(),
        mailer,
        interval: INTERVAL,
        most: MAX_EVENTS,
    })?;
    let mut events = advisor.subscribe();
    Ok(Some(tokio::spawn(async move {
        loop {
            match events.recv().await {
                Ok(AdvisorEvent::Anomaly(anomaly, at)) => notifier.notify(AnomalyEvent {
                    at,
                    client: anomaly.client,
                    quantity: anomaly.quantity,
                    anomaly: anomaly.event,
                }),
                // Events that were lost are in the log.
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    })))
}

/// Where and how often anomalies are sent.
#[derive(Debug)]
pub struct NotifySettings {
    /// Name of this host in the messages.
    pub host: String,
    /// Webhooks.
    pub webhooks: Vec<Webhook>,
    /// Mail.
    pub mailer: Option<Mailer>,
    /// Shortest time between two digests.
    pub interval: Duration,
    /// Most anomalies in a digest.
    pub most: usize,
}

/// Tells of anomalies. When it is dropped, what waits is sent, within the time-outs of the receivers.
#[derive(Debug)]
pub struct Notifier {
    queue: Option<SyncSender<AnomalyEvent>>,
    thread: Option<JoinHandle<()>>,
}

impl Notifier {
    /// Starts the thread; without a receiver there is none.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(settings: NotifySettings) -> std::io::Result<Self> {
        if settings.webhooks.is_empty() && settings.mailer.is_none() {
            return Ok(Self {
                queue: None,
                thread: None,
            });
        }
        let (queue, events) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("notifier".to_owned())
            .spawn(move || run(&settings, &events))?;
        Ok(Self {
            queue: Some(queue),
            thread: Some(thread),
        })
    }

    /// Hands an anomaly to the thread. Never blocks. The service that found it has logged it.
    pub fn notify(&self, event: AnomalyEvent) {
        let Some(queue) = &self.queue else {
            return;
        };
        if let Err(TrySendError::Full(_)) = queue.try_send(event) {
            tracing::warn!("too many anomalies at a time: one is not sent");
        }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        // The closed queue ends the thread.
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

fn run(settings: &NotifySettings, events: &Receiver<AnomalyEvent>) {
    let mut digest = Digest::new(settings.interval, settings.most);
    loop {
        let event = match digest.due_in(Instant::now()) {
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(wait) => events.recv_timeout(wait),
        };
        match event {
            Ok(event) => digest.push(event),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let rest = digest.take();
                if !rest.events.is_empty() {
                    send(settings, &rest);
                }
                return;
            }
        }
        // Anomalies come in groups: those that are here already belong into the same digest.
        while let Ok(event) = events.try_recv() {
            digest.push(event);
        }
        if let Some(batch) = digest.take_due(Instant::now()) {
            send(settings, &batch);
        }
    }
}

fn send(settings: &NotifySettings, batch: &AnomalyBatch) {
    let host = &settings.host;
    let webhooks = settings.webhooks.iter().map(|hook| hook.send(host, batch));
    let mail = settings
        .mailer
        .iter()
        .map(|mailer| mailer.send(host, batch));
    for error in webhooks.chain(mail).filter_map(Result::err) {
        tracing::error!(%error, "a digest of anomalies was not delivered");
    }
}

/// Collects anomalies: the first one is due at once, those after it together when the interval since the last digest
/// is over.
#[derive(Debug)]
pub struct Digest {
    interval: Duration,
    most: usize,
    waiting: VecDeque<AnomalyEvent>,
    left_out: u64,
    sent: Option<Instant>,
}

impl Digest {
    /// At most one digest per interval, with at most so many anomalies. Later ones are counted only.
    pub fn new(interval: Duration, most: usize) -> Self {
        Self {
            interval,
            most: most.max(1),
            waiting: VecDeque::new(),
            left_out: 0,
            sent: None,
        }
    }

    /// Adds an anomaly.
    pub fn push(&mut self, event: AnomalyEvent) {
        if self.waiting.len() < self.most {
            self.waiting.push_back(event);
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
    }

    /// The time until the next digest; `None`: nothing waits.
    pub fn due_in(&self, now: Instant) -> Option<Duration> {
        if self.waiting.is_empty() {
            return None;
        }
        let since = self.sent.map(|sent| now.saturating_duration_since(sent));
        Some(since.map_or(Duration::ZERO, |since| self.interval.saturating_sub(since)))
    }

    /// Takes the digest if it is due.
    pub fn take_due(&mut self, now: Instant) -> Option<AnomalyBatch> {
        if self.due_in(now)? > Duration::ZERO {
            return None;
        }
        self.sent = Some(now);
        Some(self.take())
    }

    /// Takes all that waits, due or not, as at the end of the service.
    pub fn take(&mut self) -> AnomalyBatch {
        AnomalyBatch {
            events: self.waiting.drain(..).collect(),
            left_out: std::mem::take(&mut self.left_out),
        }
    }
}

/// How often, and with which pauses, a message is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendRetry {
    /// Attempts in all, at least one.
    pub attempts: u32,
    /// Pause after the first failure; it doubles with each.
    pub first_pause: Duration,
}

impl Default for SendRetry {
    /// Three attempts within some seconds.
    fn default() -> Self {
        Self {
            attempts: 3,
            first_pause: Duration::from_secs(2),
        }
    }
}

/// The end of an attempt without success.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SendFailure {
    /// Another attempt may succeed.
    Passing(String),
    /// Another attempt would fail as well.
    Lasting(String),
}

/// A message that could not be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot notify {receiver} ({attempts} attempts): {reason}")]
pub struct NotifyError {
    /// Host of the webhook, or readers of the mail.
    pub receiver: String,
    /// Attempts made.
    pub attempts: u32,
    /// The last failure.
    pub reason: String,
}

impl SendRetry {
    fn run(
        self,
        receiver: &str,
        mut attempt: impl FnMut() -> Result<(), SendFailure>,
    ) -> Result<(), NotifyError> {
        let mut pause = self.first_pause;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let reason = match attempt() {
                Ok(()) => return Ok(()),
                Err(SendFailure::Passing(_)) if attempts < self.attempts => {
                    std::thread::sleep(pause);
                    pause = pause.saturating_mul(2);
                    continue;
                }
                Err(SendFailure::Passing(reason) | SendFailure::Lasting(reason)) => reason,
            };
            return Err(NotifyError {
                receiver: receiver.to_owned(),
                attempts,
                reason,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::Quantity;
    use tune::path::SeriesEvent;

    fn event(to: f64) -> AnomalyEvent {
        AnomalyEvent {
            at: jiff::Timestamp::UNIX_EPOCH,
            client: "192.0.2.1".parse().unwrap(),
            quantity: Quantity::Bandwidth,
            anomaly: SeriesEvent::Shift { from: 1e9, to },
        }
    }

    #[test]
    fn the_first_goes_at_once_and_the_others_together_later() {
        let mut digest = Digest::new(Duration::from_secs(60), 2);
        let now = Instant::now();
        assert_eq!(digest.due_in(now), None);
        digest.push(event(1e6));
        assert_eq!(digest.take_due(now).unwrap().events, [event(1e6)]);
        for to in [2e6, 3e6, 4e6] {
            digest.push(event(to));
        }
        assert_eq!(digest.due_in(now), Some(Duration::from_secs(60)));
        assert_eq!(digest.take_due(now + Duration::from_secs(59)), None);
        let batch = digest.take_due(now + Duration::from_secs(60)).unwrap();
        assert_eq!(batch.events, [event(2e6), event(3e6)]);
        assert_eq!(batch.left_out, 1);
        assert_eq!(batch.subject("dtn1"), "dtn1: 3 changes of paths");
        assert!(
            batch
                .to_text()
                .contains("192.0.2.1: bandwidth went from 1000.0 Mbit/s to 2.0 Mbit/s")
        );
    }
}
