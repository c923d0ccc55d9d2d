//! Tests of paths that follow a script, and clocks that can be set.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use advisor::clock::{Clock, Moment};
use advisor::config::{AdvisorConfig, StoreUrl};
use advisor::measurement::{Measurement, Quantity};
use advisor::path_test::{
    HeldBackBy, PathTest, Target, TestFailure, TestProfile, Unavailable, Weight,
};
use advisor::service::{Advisor, AdvisorEvent};
use async_trait::async_trait;
use jiff::Timestamp;

/// Values and detail of a test, by client.
type Script = HashMap<IpAddr, (Vec<(Quantity, f64)>, Option<serde_json::Value>)>;

/// A test whose results are written beforehand. A client that is not in the script does not answer.
#[derive(Clone)]
pub(crate) struct ScriptedTest {
    pub(crate) name: &'static str,
    pub(crate) concurrency: usize,
    pub(crate) measures: &'static [Quantity],
    pub(crate) script: Arc<Mutex<Script>>,
    pub(crate) runs: Arc<AtomicUsize>,
    /// Runs of all servers that share this test, at one time.
    pub(crate) at_once: Arc<AtomicUsize>,
    pub(crate) most_at_once: Arc<AtomicUsize>,
    pub(crate) panics: bool,
    pub(crate) takes: Duration,
}

impl ScriptedTest {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            concurrency: 10,
            measures: &[],
            script: Arc::default(),
            runs: Arc::default(),
            at_once: Arc::default(),
            most_at_once: Arc::default(),
            panics: false,
            takes: Duration::ZERO,
        }
    }

    pub(crate) fn answer(&self, client: IpAddr, values: &[(Quantity, f64)]) {
        let mut script = self.script.lock().unwrap();
        script.insert(client, (values.to_vec(), None));
    }

    pub(crate) fn route(&self, client: IpAddr, values: &[(Quantity, f64)], router: &str) {
        let detail = serde_json::json!({ "bottleneck_router": router });
        let mut script = self.script.lock().unwrap();
        script.insert(client, (values.to_vec(), Some(detail)));
    }
}

#[async_trait]
impl PathTest for ScriptedTest {
    fn profile(&self) -> TestProfile<'_> {
        TestProfile {
            name: self.name,
            weight: Weight::Light,
            concurrency: self.concurrency,
            fills_path: self.concurrency == 1,
            interval: Duration::from_secs(4 * 3600),
            held_back_by: HeldBackBy::TransfersToClient,
            measures: self.measures,
        }
    }

    fn most_bytes(&self, _: &Target) -> u64 {
        1000
    }

    async fn init(&mut self) -> Result<(), Unavailable> {
        if self.name == "missing" {
            return Err(Unavailable {
                test: self.name.to_owned(),
                reason: "no such program".to_owned(),
            });
        }
        Ok(())
    }

    async fn run(&self, target: &Target) -> Result<Measurement, TestFailure> {
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        // Others get the chance to run at the same time.
        tokio::time::sleep(self.takes).await;
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        self.runs.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics, "the script says so");
        let script = self.script.lock().unwrap();
        let Some((values, detail)) = script.get(&target.client) else {
            return Err(TestFailure::NoAnswer {
                test: self.name.to_owned(),
                client: target.client,
                waited: self.takes,
            });
        };
        Ok(Measurement {
            client: target.client,
            test: self.name.to_owned(),
            at: Timestamp::now(),
            values: values.clone(),
            detail: detail.clone(),
            cost_bytes: 1000,
        })
    }
}

/// Clocks that stand still until they are set.
pub(crate) struct SetClock {
    milliseconds: AtomicI64,
    wall_offset: AtomicI64,
}

impl SetClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            milliseconds: AtomicI64::new(0),
            wall_offset: AtomicI64::new(1_700_000_000_000),
        })
    }

    /// Time passes.
    pub(crate) fn pass(&self, time: Duration) {
        let milliseconds = i64::try_from(time.as_millis()).unwrap();
        self.milliseconds.fetch_add(milliseconds, Ordering::SeqCst);
    }

    /// The wall clock alone jumps.
    pub(crate) fn step_wall(&self, seconds: i64) {
        self.wall_offset.fetch_add(seconds * 1000, Ordering::SeqCst);
    }
}

impl Clock for SetClock {
    fn moment(&self) -> Moment {
        Moment::from_millis(self.milliseconds.load(Ordering::SeqCst))
    }

    fn wall(&self) -> Timestamp {
        let passed = self.milliseconds.load(Ordering::SeqCst);
        let offset = self.wall_offset.load(Ordering::SeqCst);
        Timestamp::from_millisecond(offset + passed).unwrap()
    }
}

/// Settings with a database in this directory.
pub(crate) fn config(directory: &Path) -> AdvisorConfig {
    AdvisorConfig {
        store: StoreUrl::Sqlite(directory.join("paths.sqlite")),
        server_name: "data1".to_owned(),
        ..AdvisorConfig::default()
    }
}

pub(crate) async fn start(config: AdvisorConfig, tests: &[&ScriptedTest]) -> Advisor {
    Advisor::start_with_tests(config, boxed(tests))
        .await
        .unwrap()
}

fn boxed(tests: &[&ScriptedTest]) -> Vec<Box<dyn PathTest>> {
    let boxed = |test: &&ScriptedTest| Box::new((*test).clone()) as Box<dyn PathTest>;
    tests.iter().map(boxed).collect()
}

/// Waits for a state that must come.
pub(crate) async fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let wait = async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), wait).await;
    assert!(waited.is_ok(), "never: {what}");
}

/// The next event that `wanted` accepts.
pub(crate) async fn event(
    events: &mut tokio::sync::broadcast::Receiver<AdvisorEvent>,
    wanted: impl Fn(&AdvisorEvent) -> bool,
) -> AdvisorEvent {
    let wait = async {
        loop {
            let event = events.recv().await.unwrap();
            if wanted(&event) {
                return event;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait)
        .await
        .unwrap()
}
