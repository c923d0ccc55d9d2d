//! Live updates by server-sent events (HTML Living Standard, section 9.2).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, sleep_until};

use super::answers::{ErrorAnswer, PathAnswer};
use super::operations::CallRefused;
use super::shared::{Shared, stopped};
use crate::service::AdvisorEvent;

/// Changes within this time are told together.
const GATHER: Duration = Duration::from_millis(250);
/// More changed paths than this are told as one event: the listener reads the list again.
const MOST_CHANGED: usize = 200;
/// Time between two comments while nothing happens, so that proxies keep the connection.
const ALIVE: Duration = Duration::from_secs(15);
/// Content type of the updates.
pub(super) const CONTENT: &str = "text/event-stream";
/// Events that wait for a slow listener.
const WAITING: usize = 16;

/// Live updates: `path` (a line of the list), `anomaly`, `forgotten`, and `reload` (too much has changed: read
/// the list again).
#[utoipa::path(
    get, path = "/api/v1/events", tag = "paths",
    responses(
        (status = 200, content_type = "text/event-stream", body = String),
        (status = 503, body = ErrorAnswer, description = "There are too many listeners."),
    ),
)]
pub(super) async fn events(State(shared): State<Arc<Shared>>) -> Response {
    let Ok(place) = Arc::clone(&shared.subscribers).try_acquire_owned() else {
        let reason = "too many listeners to live updates; try again later";
        return CallRefused::Busy(reason.to_owned()).into_response();
    };
    let (text, waiting) = mpsc::channel(WAITING);
    tokio::spawn(tell(shared, text, place));
    let headers = [(CONTENT_TYPE, CONTENT)];
    (headers, Body::new(EventBody(waiting))).into_response()
}

/// The body of a response whose parts come one by one.
struct EventBody(mpsc::Receiver<Bytes>);

impl hyper::body::Body for EventBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let received = self.0.poll_recv(context);
        received.map(|text| text.map(|text| Ok(Frame::data(text))))
    }
}

/// Changes that a listener has not been told.
#[derive(Default)]
struct Gathered {
    changed: BTreeSet<IpAddr>,
    others: Vec<(&'static str, Value)>,
    is_too_much: bool,
}

impl Gathered {
    fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.others.is_empty() && !self.is_too_much
    }

    fn take(&mut self, event: AdvisorEvent) {
        match event {
            AdvisorEvent::Measured(measurement) => {
                self.changed.insert(measurement.client);
            }
            AdvisorEvent::Anomaly(anomaly, at) => self.others.push((
                "anomaly",
                json!({
                    "client": anomaly.client.to_string(),
                    "test": anomaly.test,
                    "quantity": anomaly.quantity.name(),
                    "at": at.to_string(),
                }),
            )),
            AdvisorEvent::HostAdded(client, _)
            | AdvisorEvent::TransferStarted(client)
            | AdvisorEvent::TransferEnded(client) => {
                self.changed.insert(client);
            }
            AdvisorEvent::HostForgotten(client) => {
                self.changed.remove(&client);
                self.others
                    .push(("forgotten", json!({ "client": client.to_string() })));
            }
        }
        if self.changed.len() + self.others.len() > MOST_CHANGED {
            self.changed.clear();
            self.others.clear();
            self.is_too_much = true;
        }
    }

    /// The text of all changes.
    fn text(&mut self, shared: &Shared) -> Bytes {
        let mut text = String::new();
        let gathered = std::mem::take(self);
        if gathered.is_too_much {
            add(&mut text, "reload", &json!({}));
        } else {
            for (name, data) in &gathered.others {
                add(&mut text, name, data);
            }
            for client in gathered.changed {
                if let Some(view) = shared.advisor.view(client) {
                    add(&mut text, "path", &json!(PathAnswer::new(client, view)));
                }
            }
        }
        text.into()
    }
}

/// Adds one event. JSON has no line breaks, which would end the event.
fn add(text: &mut String, name: &str, data: &Value) {
    text.push_str(&format!("event: {name}\ndata: {data}\n\n"));
}

/// Tells one listener what happens, until it goes or the server stops.
async fn tell(shared: Arc<Shared>, listener: mpsc::Sender<Bytes>, _place: OwnedSemaphorePermit) {
    let mut events = shared.advisor.subscribe();
    let mut stopping = shared.stopping.clone();
    let mut gathered = Gathered::default();
    let mut due = Instant::now() + ALIVE;
    // The browser's page is told at once that it is connected.
    if listener
        .send(Bytes::from_static(b"retry: 2000\n\n"))
        .await
        .is_err()
    {
        return;
    }
    loop {
        let event = tokio::select! {
            event = events.recv() => Some(event),
            () = listener.closed() => return,
            () = stopped(&mut stopping) => return,
            () = sleep_until(due) => None,
        };
        let was_empty = gathered.is_empty();
        match event {
            Some(Ok(event)) => gathered.take(event),
            Some(Err(RecvError::Lagged(_))) => gathered.is_too_much = true,
            Some(Err(RecvError::Closed)) => return,
            None => {
                let text = if was_empty {
                    Bytes::from_static(b": alive\n\n")
                } else {
                    gathered.text(&shared)
                };
                let sent = tokio::select! {
                    sent = listener.send(text) => sent,
                    () = stopped(&mut stopping) => return,
                };
                if sent.is_err() {
                    return;
                }
                due = Instant::now() + ALIVE;
            }
        }
        if was_empty && !gathered.is_empty() {
            due = Instant::now() + GATHER;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_changes_become_one_reload() {
        let mut gathered = Gathered::default();
        assert!(gathered.is_empty());
        for number in 0..100_000_u32 {
            gathered.take(AdvisorEvent::TransferStarted(IpAddr::V4(number.into())));
        }
        assert!(gathered.is_too_much && gathered.changed.len() <= MOST_CHANGED);
    }

    #[test]
    fn an_event_is_one_line_of_data() {
        let mut text = String::new();
        add(&mut text, "anomaly", &json!({ "test": "a\nb\r\ndata: c" }));
        assert_eq!(text.matches('\n').count(), 3);
        assert!(text.ends_with("\n\n") && !text.contains('\r'));
    }
}
