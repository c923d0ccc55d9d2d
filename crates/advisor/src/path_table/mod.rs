//! All measured paths, in memory: everything that answers need.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use tune::path::{PathFacts, Series, SeriesEvent, Spread, ValueCorrelation};

use crate::clock::Moment;
use crate::measurement::{Measurement, Quantity};

mod route;
#[cfg(test)]
mod tests;

pub use route::KnownRoute;

/// A measurement that is older than the newest one by more than this belongs to the history alone.
const OLD_RECORD: Duration = Duration::from_secs(60);

/// The reason why a measurement was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidMeasurement {
    /// The name of its test.
    #[error("a test has a name of 1 to 128 letters, digits, '.', '-' and '_'")]
    TestName,
    /// A value outside of its range.
    #[error("{value} is no {}", quantity.name())]
    Value {
        /// The quantity.
        quantity: Quantity,
        /// The value.
        value: f64,
    },
    /// No address of a host.
    #[error("{0} is not the address of a host")]
    Client(IpAddr),
}

/// An anomaly of a path.
#[derive(Debug, Clone, PartialEq)]
pub struct PathAnomaly {
    /// The client.
    pub client: IpAddr,
    /// The test that found it.
    pub test: String,
    /// The quantity.
    pub quantity: Quantity,
    /// The change or outlier.
    pub event: SeriesEvent,
}

/// Statistics of one quantity of a path.
#[derive(Debug, Clone, PartialEq)]
pub struct QuantitySummary {
    /// The quantity.
    pub quantity: Quantity,
    /// Trimmed mean of the last values.
    pub trimmed_mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
    /// The latest value.
    pub latest: f64,
    /// Number of values.
    pub count: usize,
    /// Age of the latest value.
    pub age: Duration,
}

/// Last values of one quantity.
#[derive(Debug, Clone)]
struct TrackedQuantity {
    quantity: Quantity,
    newest: Moment,
    series: Series,
    /// Seconds from each value to the next one: one fewer than values, since the last one is the newest.
    distances: Vec<u32>,
}

impl TrackedQuantity {
    fn new(quantity: Quantity, newest: Moment, keep: usize) -> Self {
        Self {
            quantity,
            newest,
            series: Series::new(keep),
            distances: Vec::new(),
        }
    }

    /// Adds a value that was measured `at`, not before the newest one.
    fn push(&mut self, value: f64, at: Moment) -> Option<SeriesEvent> {
        let distance = at.since(self.newest).as_secs();
        let known = self.series.len();
        let event = self.series.push(value);
        if known > 0 {
            self.distances.reserve_exact(1);
            self.distances
                .push(u32::try_from(distance).unwrap_or(u32::MAX));
        }
        // The series dropped older values.
        let kept = self.series.len().saturating_sub(1);
        self.distances
            .drain(..self.distances.len().saturating_sub(kept));
        self.newest = self.newest.max(at);
        event
    }

    /// How long a value tells something of later ones.
    fn correlation(&self) -> ValueCorrelation {
        let mut at = Duration::ZERO;
        let mut samples = Vec::with_capacity(self.series.len());
        for (place, value) in self.series.values().iter().enumerate() {
            if let Some(before) = place.checked_sub(1) {
                let distance = self.distances.get(before).copied().unwrap_or(0);
                at += Duration::from_secs(distance.into());
            }
            samples.push((at, *value));
        }
        ValueCorrelation::of(&samples)
    }
}

/// One path.
#[derive(Debug, Clone, Default)]
struct PathRecord {
    tracked: Vec<TrackedQuantity>,
    route: Option<Box<KnownRoute>>,
}

/// The paths to all clients. Addresses are canonical.
#[derive(Debug)]
pub struct MeasuredPaths {
    keep: usize,
    paths: HashMap<IpAddr, PathRecord>,
}

/// Whether a value can be of this quantity.
fn is_possible(quantity: Quantity, value: f64) -> bool {
    let most = match quantity {
        Quantity::Rtt => 600.0,
        Quantity::Loss | Quantity::Retransmits => 1.0,
        Quantity::Bandwidth
        | Quantity::ReverseBandwidth
        | Quantity::Goodput
        | Quantity::ReverseGoodput => 1e15,
        Quantity::Streams => 100_000.0,
        Quantity::Hops => 255.0,
    };
    // NaN is in no range.
    (0.0..=most).contains(&value)
}

/// Whether single outliers of this quantity are worth telling. Losses and counts vary by nature.
fn tells_outliers(quantity: Quantity) -> bool {
    !matches!(
        quantity,
        Quantity::Loss | Quantity::Retransmits | Quantity::Streams | Quantity::Hops
    )
}

impl MeasuredPaths {
    /// An empty table that keeps so many values of a quantity.
    pub fn new(keep: usize) -> Self {
        Self {
            keep,
            paths: HashMap::new(),
        }
    }

    /// Checks a measurement that may come from outside.
    ///
    /// # Errors
    /// A test's name or a value that cannot be.
    pub fn check(measurement: &Measurement) -> Result<(), InvalidMeasurement> {
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        let name = &measurement.test;
        if !(1..=128).contains(&name.len()) || !name.chars().all(plain) {
            return Err(InvalidMeasurement::TestName);
        }
        let wrong = |(quantity, value): &&(Quantity, f64)| !is_possible(*quantity, *value);
        match measurement.values.iter().find(wrong) {
            Some(&(quantity, value)) => Err(InvalidMeasurement::Value { quantity, value }),
            None => Ok(()),
        }
    }

    /// Takes in a checked measurement that ended at `at`, and returns what it says about changes.
    pub fn record(&mut self, measurement: &Measurement, at: Moment) -> Vec<PathAnomaly> {
        let client = measurement.client.to_canonical();
        let mut anomalies = Vec::new();
        for &(quantity, value) in &measurement.values {
            if !is_possible(quantity, value) {
                continue;
            }
            let tracked = self.tracked(client, quantity, at);
            // An import of old records must not count as the present.
            if tracked.newest.since(at) > OLD_RECORD {
                continue;
            }
            let event = tracked.push(value, at);
            let told = event.filter(|event| {
                tells_outliers(quantity) || matches!(event, SeriesEvent::Shift { .. })
            });
            anomalies.extend(told.map(|event| PathAnomaly {
                client,
                test: measurement.test.clone(),
                quantity,
                event,
            }));
        }
        if let Some(detail) = &measurement.detail {
            self.learn_route(client, detail);
        }
        anomalies
    }

    /// Takes in values of an earlier run with their times, oldest first. They go before those that are known.
    pub fn restore(&mut self, client: IpAddr, quantity: Quantity, values: &[(Moment, f64)]) {
        let possible = values
            .iter()
            .filter(|(_, value)| is_possible(quantity, *value));
        let Some(&(first, _)) = possible.clone().next() else {
            return;
        };
        let keep = self.keep;
        let tracked = self.tracked(client.to_canonical(), quantity, first);
        let known = std::mem::replace(tracked, TrackedQuantity::new(quantity, first, keep));
        for &(at, value) in possible {
            tracked.push(value, at);
        }
        let distances = std::iter::once(0).chain(known.distances.iter().copied());
        let length: u64 = known.distances.iter().map(|one| u64::from(*one)).sum();
        let mut at = known.newest.before(Duration::from_secs(length));
        for (distance, value) in distances.zip(known.series.values()) {
            at = at.after(Duration::from_secs(distance.into()));
            tracked.push(*value, at);
        }
        tracked.newest = tracked.newest.max(known.newest);
    }

    /// How long a value of these quantities of a path tells something of later ones: that of the one that changes fastest.
    /// Losses and counts do not count, because they vary by nature.
    pub fn correlation(&self, client: IpAddr, quantities: &[Quantity]) -> ValueCorrelation {
        let tracked = self.record_of(client).map(|record| record.tracked.iter());
        tracked
            .into_iter()
            .flatten()
            .filter(|one| quantities.contains(&one.quantity) && tells_outliers(one.quantity))
            .map(TrackedQuantity::correlation)
            .fold(ValueCorrelation::Unknown, ValueCorrelation::shorter)
    }

    /// Takes in the detail of a test of an earlier run.
    pub fn learn_route(&mut self, client: IpAddr, detail: &serde_json::Value) {
        let record = self.paths.get(&client.to_canonical());
        let known = record.and_then(|record| record.route.as_deref());
        let mut route = known.cloned().unwrap_or_default();
        if route.learn(detail) {
            let record = self.paths.entry(client.to_canonical()).or_default();
            record.route = Some(Box::new(route));
        }
    }

    /// Facts for advice; `None` if nothing is known. The congestion controls are left to the caller.
    pub fn facts(&self, client: IpAddr, now: Moment) -> Option<PathFacts> {
        let record = self.record_of(client)?;
        let mean = |quantity| record.series(quantity).and_then(Series::trimmed_mean);
        let rate = |quantity| mean(quantity).map(whole).filter(|rate| *rate > 0);
        let length = |quantity| record.series(quantity).map(Series::len);
        let measurements = match (length(Quantity::Rtt), length(Quantity::Bandwidth)) {
            (Some(rtt), Some(bandwidth)) => rtt.min(bandwidth),
            (one, other) => one.or(other).unwrap_or(0),
        };
        Some(PathFacts {
            rtt: mean(Quantity::Rtt)
                .filter(|rtt| *rtt > 0.0)
                .and_then(|rtt| Duration::try_from_secs_f64(rtt).ok()),
            bandwidth_bps: rate(Quantity::Bandwidth),
            reverse_bandwidth_bps: rate(Quantity::ReverseBandwidth),
            loss: mean(Quantity::Loss),
            loss_tests: u32::try_from(length(Quantity::Loss).unwrap_or(0)).unwrap_or(u32::MAX),
            goodput: record.series(Quantity::Goodput).and_then(Spread::of),
            reverse_goodput: record.series(Quantity::ReverseGoodput).and_then(Spread::of),
            streams: mean(Quantity::Streams)
                .and_then(|streams| u32::try_from(whole(streams.round())).ok())
                .filter(|streams| *streams > 0),
            retransmits: mean(Quantity::Retransmits),
            congestion_controls: Vec::new(),
            measurements: u32::try_from(measurements).unwrap_or(u32::MAX),
            age: record.newest().map(|newest| now.since(newest)),
            routes_differ: record.routes_differ(),
            is_of_other_direction: false,
        })
    }

    /// Statistics of every quantity of a path.
    pub fn summary(&self, client: IpAddr, now: Moment) -> Vec<QuantitySummary> {
        let tracked = self.record_of(client).map(|record| record.tracked.iter());
        let summary = |one: &TrackedQuantity| {
            Some(QuantitySummary {
                quantity: one.quantity,
                trimmed_mean: one.series.trimmed_mean()?,
                deviation: one.series.mean_and_deviation()?.1,
                latest: *one.series.values().last()?,
                count: one.series.len(),
                age: now.since(one.newest),
            })
        };
        tracked.into_iter().flatten().filter_map(summary).collect()
    }

    /// Last round trip and bandwidth, for the next test.
    pub fn rtt_and_bandwidth(&self, client: IpAddr) -> (Option<Duration>, Option<u64>) {
        let mean = |quantity| self.record_of(client)?.series(quantity)?.trimmed_mean();
        let rtt = mean(Quantity::Rtt).and_then(|rtt| Duration::try_from_secs_f64(rtt).ok());
        (rtt, mean(Quantity::Bandwidth).map(whole))
    }

    /// Goodput of transfers to a client, bits per second.
    pub fn goodput(&self, client: IpAddr) -> Option<u64> {
        let series = self.record_of(client)?.series(Quantity::Goodput)?;
        series.trimmed_mean().map(whole)
    }

    /// The route to a client.
    pub fn route(&self, client: IpAddr) -> Option<&KnownRoute> {
        self.record_of(client)?.route.as_deref()
    }

    /// When round trip, bandwidth, or the goodput of a transfer were last measured.
    pub fn newest(&self, client: IpAddr) -> Option<Moment> {
        self.record_of(client)?.newest()
    }

    /// When one of these quantities was last measured.
    pub fn newest_of(&self, client: IpAddr, quantities: &[Quantity]) -> Option<Moment> {
        self.record_of(client)?.newest_of(quantities)
    }

    /// Forgets a client.
    pub fn forget(&mut self, client: IpAddr) {
        self.paths.remove(&client.to_canonical());
    }

    /// Number of paths.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether no path is known.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    fn record_of(&self, client: IpAddr) -> Option<&PathRecord> {
        self.paths.get(&client.to_canonical())
    }

    fn tracked(&mut self, client: IpAddr, quantity: Quantity, at: Moment) -> &mut TrackedQuantity {
        let tracked = &mut self.paths.entry(client).or_default().tracked;
        let place = tracked.iter().position(|one| one.quantity == quantity);
        let place = place.unwrap_or_else(|| {
            // Few quantities are known of most paths: room for more would double the table.
            tracked.reserve_exact(1);
            tracked.push(TrackedQuantity::new(quantity, at, self.keep));
            tracked.len() - 1
        });
        &mut tracked[place]
    }
}

impl PathRecord {
    fn series(&self, quantity: Quantity) -> Option<&Series> {
        let tracked = self.tracked.iter().find(|one| one.quantity == quantity);
        tracked.map(|one| &one.series)
    }

    fn newest(&self) -> Option<Moment> {
        self.newest_of(&[
            Quantity::Rtt,
            Quantity::Bandwidth,
            Quantity::Goodput,
            Quantity::ReverseGoodput,
        ])
    }

    fn newest_of(&self, quantities: &[Quantity]) -> Option<Moment> {
        let tracked = self.tracked.iter();
        let tracked = tracked.filter(|one| quantities.contains(&one.quantity));
        tracked.map(|one| one.newest).max()
    }

    fn routes_differ(&self) -> bool {
        self.route.as_ref().is_some_and(|route| route.asymmetric)
    }
}

/// A number that is not negative, without its fraction.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats saturate"
)]
fn whole(number: f64) -> u64 {
    number as u64
}
