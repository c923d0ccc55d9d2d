//! A change of a path that somebody should know of.

use std::fmt;
use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::{Value, json};
use tune::path::SeriesEvent;

use crate::measurement::Quantity;

/// An anomaly of one path.
#[derive(Debug, Clone, PartialEq)]
pub struct AnomalyEvent {
    /// Time of the measurement that showed it.
    pub at: Timestamp,
    /// The client at the far end of the path.
    pub client: IpAddr,
    /// The quantity.
    pub quantity: Quantity,
    /// The change, in the unit of the quantity.
    pub anomaly: SeriesEvent,
}

impl fmt::Display for AnomalyEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (client, name) = (self.client, self.quantity.name());
        let shown = |value| show(self.quantity, value);
        match self.anomaly {
            SeriesEvent::Outlier { value, mean, .. } => {
                write!(
                    f,
                    "{client}: {name} of {}, usually {}",
                    shown(value),
                    shown(mean)
                )
            }
            SeriesEvent::Shift { from, to } => {
                write!(
                    f,
                    "{client}: {name} went from {} to {}",
                    shown(from),
                    shown(to)
                )
            }
        }
    }
}

/// The value with its unit.
fn show(quantity: Quantity, value: f64) -> String {
    match quantity {
        Quantity::Rtt => format!("{:.1} ms", value * 1e3),
        Quantity::Loss | Quantity::Retransmits => format!("{:.2} %", value * 100.0),
        Quantity::Streams | Quantity::Hops => format!("{value:.0}"),
        Quantity::Bandwidth
        | Quantity::ReverseBandwidth
        | Quantity::Goodput
        | Quantity::ReverseGoodput => format!("{:.1} Mbit/s", value / 1e6),
    }
}

/// The change as JSON.
fn change(event: SeriesEvent) -> Value {
    match event {
        SeriesEvent::Outlier {
            value,
            mean,
            deviation,
        } => json!({ "kind": "outlier", "value": value, "mean": mean, "deviation": deviation }),
        SeriesEvent::Shift { from, to } => json!({ "kind": "shift", "from": from, "to": to }),
    }
}

/// Several anomalies, sent as one message.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AnomalyBatch {
    /// In the order in which they were seen.
    pub events: Vec<AnomalyEvent>,
    /// Further ones that did not fit.
    pub left_out: u64,
}

impl AnomalyBatch {
    /// The body of a webhook's request.
    pub fn to_json(&self, host: &str) -> Value {
        let events: Vec<_> = self
            .events
            .iter()
            .map(|event| {
                json!({
                    "at": event.at.to_string(),
                    "client": event.client,
                    "quantity": event.quantity,
                    "anomaly": change(event.anomaly),
                    "text": event.to_string(),
                })
            })
            .collect();
        json!({
            "source": "longhaul advisor",
            "host": host,
            "text": self.subject(host),
            "events": events,
            "left_out": self.left_out,
        })
    }

    /// One line for people.
    pub fn subject(&self, host: &str) -> String {
        match self.events.as_slice() {
            [one] if self.left_out == 0 => format!("{host}: path to {one}"),
            events => {
                let count = u64::try_from(events.len()).unwrap_or(u64::MAX);
                let count = count.saturating_add(self.left_out);
                format!("{host}: {count} changes of paths")
            }
        }
    }

    /// The text of a mail.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for event in &self.events {
            text += &format!("{}  {event}\n", event.at);
        }
        if self.left_out > 0 {
            text += &format!("and {} more\n", self.left_out);
        }
        text
    }
}
