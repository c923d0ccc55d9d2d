//! The thread that sends digests.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::anomaly::{AnomalyBatch, AnomalyEvent};
use super::digest::Digest;
use super::email::Mailer;
use super::webhook::Webhook;

/// Anomalies that wait for the thread. More are left out: the log line has them all the same.
const QUEUE: usize = 1024;

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
