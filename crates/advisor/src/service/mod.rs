//! The service: puts hosts, paths, scheduler and database together.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use answer::StandIn;
use asked::{AskedTest, AskedTests};
use enable::advice::{Advice, Question};
use jiff::Timestamp;
use parking_lot::Mutex;
use setup::ReadyTests;
pub use setup::test_problems;
use shared_paths::SharedPaths;
use state::ServiceState;
use tokio::sync::{Notify, broadcast, mpsc, watch};
use tokio::task::JoinHandle;
use tune::path::{PathFacts, QosNeed, QosVerdict, qos};

use crate::aggregation;
use crate::aggregation::{GroupIndex, PrefixTableError};
use crate::chosen_tests::ChosenTests;
use crate::clock::{Clock, SystemClock, WallAnchor};
use crate::config::{AdvisorConfig, AdvisorConfigError};
use crate::hosts::{HostRegistry, HostSource, MonitoredHost, canonical};
use crate::measurement::{Measurement, Quantity};
use crate::path_table::{InvalidMeasurement, MeasuredPaths, PathAnomaly, QuantitySummary};
use crate::path_test::{PathTest, all_tests};
use crate::processor_ticks::ProcessorTicks;
use crate::scheduler::{ScheduleCounters, TestSchedule, most_at_once};
use crate::sender_limits::SenderLimits;
use crate::store::writer::StoreQueue;
use crate::store::{DatabaseError, HistoryPoint};

mod answer;
pub mod asked;
mod load;
pub mod log_feed;
mod record;
mod runner;
mod setup;
mod shared_paths;
mod state;

/// Events that a slow listener may be behind before it loses some.
const EVENTS_KEPT: usize = 1024;
/// Longest wait for the history at the start. Afterwards questions are answered without it until it comes.
const WAIT_FOR_HISTORY: Duration = Duration::from_secs(5);
/// Longest wait for the database at the end.
const WAIT_FOR_STORE: Duration = Duration::from_secs(10);

/// The reason why the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AdvisorStartError {
    /// A setting is out of its range.
    #[error(transparent)]
    Config(#[from] AdvisorConfigError),
    /// The prefix table cannot be used.
    #[error(transparent)]
    PrefixTable(#[from] PrefixTableError),
}

/// The reason why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestRefused {
    /// No host, or no room.
    #[error("{0} is no address of a host, or there is no room for it")]
    Client(IpAddr),
    /// The client is not monitored.
    #[error("{0} is not monitored")]
    Unknown(IpAddr),
    /// There is no such test on this machine.
    #[error("there is no test {0:?} on this machine")]
    Test(String),
    /// One run may send more than the budget ever grants.
    #[error(
        "one run of {test} may send {}, and half of bytes-per-hour, {}, may go at once: it never runs until the server's \
         settings have a larger bytes-per-hour", units::show::bytes(*most_bytes), units::show::bytes(*at_once)
    )]
    TooLarge {
        /// The test.
        test: String,
        /// Most bytes of one run.
        most_bytes: u64,
        /// Most bytes that the budget grants.
        at_once: u64,
    },
    /// Too many tests wait.
    #[error("too many tests wait; try again later")]
    Busy,
}

/// The running service. Clones share it.
#[derive(Clone)]
pub struct Advisor {
    core: Arc<Core>,
    tasks: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

/// State that the tasks of the service share.
struct Core {
    config: AdvisorConfig,
    clock: Arc<dyn Clock>,
    /// The clocks at the start.
    anchor: WallAnchor,
    tests: Vec<Arc<dyn PathTest>>,
    state: Mutex<ServiceState>,
    sender: SenderLimits,
    queue: OnceLock<StoreQueue>,
    /// Clients to look for in the measurements of other servers.
    shared_wanted: mpsc::Sender<IpAddr>,
    history: watch::Sender<bool>,
    events: broadcast::Sender<AdvisorEvent>,
    wake: Notify,
    stop: watch::Sender<bool>,
    questions: AtomicU64,
    unknown: AtomicU64,
    measurements: AtomicU64,
    anomalies: AtomicU64,
    /// Logs that cannot be read now, and why.
    log_troubles: Mutex<BTreeMap<PathBuf, String>>,
}

impl Advisor {
    /// Starts the service with the tests that are built in and the external ones of the settings. It must be
    /// called within a tokio runtime.
    ///
    /// # Errors
    /// As [`start_with_tests`](Self::start_with_tests).
    pub async fn start(config: AdvisorConfig) -> Result<Self, AdvisorStartError> {
        let tests = all_tests(setup::external_commands(&config));
        Self::start_with_tests(config, tests).await
    }

    /// Starts the service with these tests: initialises them, opens the database and begins to test. A test
    /// that cannot run on this machine is left out and told; so is a database that is unavailable.
    ///
    /// # Errors
    /// A setting is wrong, or the prefix table cannot be used.
    pub async fn start_with_tests(
        config: AdvisorConfig,
        tests: Vec<Box<dyn PathTest>>,
    ) -> Result<Self, AdvisorStartError> {
        Self::start_with_clock(config, tests, Arc::new(SystemClock::default())).await
    }

    /// As [`start_with_tests`](Self::start_with_tests), with other clocks.
    ///
    /// # Errors
    /// As [`start_with_tests`](Self::start_with_tests).
    pub async fn start_with_clock(
        config: AdvisorConfig,
        tests: Vec<Box<dyn PathTest>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, AdvisorStartError> {
        config.check()?;
        let groups = GroupIndex::new(aggregation::policy(&config.aggregation)?);
        let ReadyTests {
            tests,
            plans,
            problems,
        } = setup::initialise(&config, tests).await;
        for problem in &problems {
            tracing::warn!("{problem}");
        }
        let seed = clock.wall().as_nanosecond().to_le_bytes();
        let seed = seed
            .iter()
            .fold(0_u64, |sum, byte| sum.rotate_left(7) ^ u64::from(*byte));
        let (shared_wanted, wanted) = shared_paths::waiting();
        let core = Arc::new(Core {
            anchor: WallAnchor::now(&*clock),
            state: Mutex::new(ServiceState {
                hosts: HostRegistry::new(config.max_clients),
                table: MeasuredPaths::new(config.values),
                groups,
                shared: SharedPaths::new(config.values),
                schedule: TestSchedule::new(plans, config.workers, config.bytes_per_hour, seed),
                transfers: std::collections::HashMap::new(),
                changed: std::collections::HashSet::new(),
                asked: AskedTests::default(),
                cpu: 0.0,
            }),
            clock,
            tests,
            sender: SenderLimits::read(),
            queue: OnceLock::new(),
            shared_wanted,
            history: watch::Sender::new(false),
            events: broadcast::Sender::new(EVENTS_KEPT),
            wake: Notify::new(),
            stop: watch::Sender::new(false),
            questions: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            measurements: AtomicU64::new(0),
            anomalies: AtomicU64::new(0),
            log_troubles: Mutex::default(),
            config,
        });
        let (queue, writer) = StoreQueue::start(
            core.config.store.clone(),
            core.config.server_name.clone(),
            core.config.history.clone(),
            Arc::clone(&core) as Arc<_>,
        );
        // Nobody else sets it.
        let _ = core.queue.set(queue);
        // With the history, a client that was measured lately need not be measured at once.
        let mut history = core.history.subscribe();
        let _ = tokio::time::timeout(WAIT_FOR_HISTORY, history.wait_for(|read| *read)).await;
        let tasks = vec![
            tokio::spawn(setup::add_configured_clients(
                Arc::clone(&core),
                core.config.clients.clone(),
            )),
            tokio::spawn(runner::run(Arc::clone(&core))),
            tokio::spawn(shared_paths::run(Arc::clone(&core), wanted)),
            tokio::spawn(run(Arc::clone(&core))),
            writer,
        ];
        Ok(Self {
            core,
            tasks: Arc::new(Mutex::new(tasks)),
        })
    }

    /// Advice for transfers to `client`, from memory. A client that is not known becomes known, and is tested
    /// as soon as possible. The client that the question names is for the caller to resolve.
    pub fn advise(&self, client: IpAddr, question: &Question) -> Advice {
        let client = canonical(client);
        let found = self.core.ask(client, question.bytes);
        let busy = self.core.state().cpu;
        answer::answer(client, question, found, &self.core.sender, busy)
    }

    /// The paper's EnableGetBufferSize: round trip × bottleneck bandwidth, bytes; `None` if unknown.
    pub fn buffer_size(&self, client: IpAddr) -> Option<u64> {
        let advice = self.advise(client, &Question::default());
        // A client that asks for nothing else opens one stream: the share of one of several is not for it.
        advice.bdp_bytes.or(advice.set_buffer_bytes)
    }

    /// The paper's EnableGetNetInfo: statistics of everything that was measured of the path. A client that is not known stays
    /// unknown.
    pub fn net_info(&self, client: IpAddr) -> Vec<QuantitySummary> {
        let client = canonical(client);
        let found = self.core.look_up(client);
        let now = self.core.clock.moment();
        let state = self.core.state();
        match found.stand_in {
            Some(StandIn::Client(member, _)) => state.table.summary(member, now),
            Some(StandIn::Server(_)) => state.shared.summary(client, now),
            None => state.table.summary(client, now),
        }
    }

    /// Class of service for a transfer to `client`, and whether a reservation would help. A client that is not known stays
    /// unknown.
    pub fn qos(&self, client: IpAddr, need: &QosNeed) -> QosVerdict {
        let found = self.core.look_up(canonical(client));
        qos(&found.facts.unwrap_or_default(), need)
    }

    /// Facts of a path; nothing is noted or scheduled.
    pub fn facts(&self, client: IpAddr) -> Option<PathFacts> {
        let now = self.core.clock.moment();
        self.core.state().facts(canonical(client), now).facts
    }

    /// Adds a client, or notes that it was seen; `true` if it is new.
    ///
    /// # Errors
    /// It is no host, or there is no room.
    pub fn add_host(&self, client: IpAddr, source: HostSource) -> Result<bool, RequestRefused> {
        self.core
            .admit(client, source)
            .ok_or(RequestRefused::Client(client))
    }

    /// Monitors clients of a settings file that was read again, by address or name, in the background. A name
    /// that has no address is tried again. It must be called within a tokio runtime.
    pub fn monitor(&self, clients: Vec<String>) {
        let core = Arc::clone(&self.core);
        let adding = tokio::spawn(setup::add_configured_clients(core, clients));
        let mut tasks = self.tasks.lock();
        // Those of earlier calls have ended, unless a name still has no address.
        tasks.retain(|task| !task.is_finished());
        tasks.push(adding);
    }

    /// Forgets a client and its history; `false` if it is unknown.
    pub fn remove_host(&self, client: IpAddr) -> bool {
        let client = canonical(client);
        let known = self.core.state().forget(client);
        if known {
            self.core.forgotten(client);
        }
        known
    }

    /// All clients, by address.
    pub fn hosts(&self) -> Vec<(IpAddr, MonitoredHost)> {
        let state = self.core.state();
        let mut hosts: Vec<_> = state
            .hosts
            .iter()
            .map(|(ip, host)| (ip, host.clone()))
            .collect();
        drop(state);
        hosts.sort_by_key(|(client, _)| *client);
        hosts
    }

    /// Names of the tests that can run on this machine.
    pub fn tests(&self) -> Vec<String> {
        self.core
            .tests
            .iter()
            .map(|test| test.name().to_owned())
            .collect()
    }

    /// Chooses the periodic tests of a client, and how often they run; `None` leaves them to the configuration.
    ///
    /// # Errors
    /// The client or a test is unknown.
    pub fn set_tests(
        &self,
        client: IpAddr,
        tests: Option<ChosenTests>,
    ) -> Result<(), RequestRefused> {
        let client = canonical(client);
        let now = self.core.clock.moment();
        let mut state = self.core.state();
        let unknown = |name: &&str| state.schedule.test_number(name).is_none();
        let mut names = tests
            .iter()
            .flat_map(ChosenTests::iter)
            .map(|(name, _)| name);
        if let Some(name) = names.find(unknown) {
            return Err(RequestRefused::Test(name.to_owned()));
        }
        drop(names);
        if !state.hosts.set_tests(client, tests) {
            return Err(RequestRefused::Unknown(client));
        }
        state.plan_tests(client, now);
        state.changed.insert(client);
        drop(state);
        self.core.wake.notify_one();
        Ok(())
    }

    /// Asks for one test of a client as soon as possible. [`asked_tests`](Self::asked_tests) tells its end.
    ///
    /// # Errors
    /// The client or the test is unknown, the test never fits the budget, or too many tests wait.
    pub fn request_test(&self, client: IpAddr, test: &str) -> Result<(), RequestRefused> {
        let client = canonical(client);
        let mut state = self.core.state();
        let Some(number) = state.schedule.test_number(test) else {
            return Err(RequestRefused::Test(test.to_owned()));
        };
        if state.hosts.get(client).is_none() {
            return Err(RequestRefused::Unknown(client));
        }
        let budget = self.core.config.bytes_per_hour;
        let (most_bytes, at_once) = (
            state.most_bytes(&self.core.tests, client, number, budget),
            most_at_once(budget),
        );
        if most_bytes > at_once {
            let test = test.to_owned();
            return Err(RequestRefused::TooLarge {
                test,
                most_bytes,
                at_once,
            });
        }
        if !state.schedule.request(client, number) {
            return Err(RequestRefused::Busy);
        }
        state.asked.asked(client, test);
        drop(state);
        self.core.wake.notify_one();
        Ok(())
    }

    /// The tests of a client that were asked for by name, and how they ended.
    pub fn asked_tests(&self, client: IpAddr) -> Vec<(String, AskedTest)> {
        let now = self.core.clock.moment();
        let state = self.core.state();
        let mut asked = state.asked.of(canonical(client));
        for (test, end) in &mut asked {
            if let AskedTest::Waiting(why @ None) = end {
                let number = state.schedule.test_number(test);
                *why = number.and_then(|number| state.schedule.held_back(number, now));
            }
        }
        asked
    }

    /// The periodic tests of a client by name, each with its interval and the grounds of it in one line.
    pub fn intervals(&self, client: IpAddr) -> Vec<(String, String)> {
        let state = self.core.state();
        let intervals = state.schedule.intervals(canonical(client)).into_iter();
        let named = |(number, text): (usize, String)| {
            Some((self.core.tests.get(number)?.name().to_owned(), text))
        };
        intervals.filter_map(named).collect()
    }

    /// Takes in a measurement from outside: of a transfer, a log or an import.
    ///
    /// # Errors
    /// It holds what cannot be, or there is no room for its client.
    pub fn report(
        &self,
        source: HostSource,
        mut measurement: Measurement,
    ) -> Result<(), InvalidMeasurement> {
        MeasuredPaths::check(&measurement)?;
        measurement.client = canonical(measurement.client);
        if self.core.admit(measurement.client, source).is_none() {
            return Err(InvalidMeasurement::Client(measurement.client));
        }
        let at = WallAnchor::now(&*self.core.clock).moment_of(measurement.at);
        self.core.record(measurement, at);
        Ok(())
    }

    /// A transfer of the data server with `client` begins: heavy tests of it wait.
    pub fn transfer_started(&self, client: IpAddr) {
        let client = canonical(client);
        *self.core.state().transfers.entry(client).or_default() += 1;
        self.core.tell(AdvisorEvent::TransferStarted(client));
    }

    /// It ended.
    pub fn transfer_ended(&self, client: IpAddr) {
        let client = canonical(client);
        let mut state = self.core.state();
        if let Some(running) = state.transfers.get_mut(&client) {
            *running = running.saturating_sub(1);
            if *running == 0 {
                state.transfers.remove(&client);
            }
        }
        drop(state);
        self.core.tell(AdvisorEvent::TransferEnded(client));
    }

    /// Everything that happens from now on. A listener that is more than 1 024 events behind loses the oldest.
    pub fn subscribe(&self) -> broadcast::Receiver<AdvisorEvent> {
        self.core.events.subscribe()
    }

    /// History of one quantity, oldest first, at most `most` points; empty while the database is unavailable.
    ///
    /// # Errors
    /// The database fails.
    pub async fn history(
        &self,
        client: IpAddr,
        quantity: Quantity,
        span: (Timestamp, Timestamp),
        most: u32,
    ) -> Result<Vec<HistoryPoint>, DatabaseError> {
        match self.core.queue.get().and_then(StoreQueue::store) {
            Some(store) => store.history(canonical(client), quantity, span, most).await,
            None => Ok(Vec::new()),
        }
    }

    /// The latest details of a client's tests; empty while the database is unavailable.
    ///
    /// # Errors
    /// The database fails.
    pub async fn details(
        &self,
        client: IpAddr,
    ) -> Result<Vec<(String, Timestamp, serde_json::Value)>, DatabaseError> {
        match self.core.queue.get().and_then(StoreQueue::store) {
            Some(store) => store.details(canonical(client)).await,
            None => Ok(Vec::new()),
        }
    }

    /// Numbers for metrics.
    pub fn counters(&self) -> AdvisorCounters {
        let now = self.core.clock.moment();
        let mut state = self.core.state();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let queue = self.core.queue.get();
        AdvisorCounters {
            clients: state.hosts.len(),
            paths: state.table.len(),
            questions: read(&self.core.questions),
            unknown: read(&self.core.unknown),
            measurements: read(&self.core.measurements),
            anomalies: read(&self.core.anomalies),
            transfers: state.transfers.values().map(|n| u64::from(*n)).sum(),
            store_available: queue.is_some_and(StoreQueue::is_available),
            store_written: queue.map_or(0, StoreQueue::written),
            store_dropped: queue.map_or(0, StoreQueue::dropped),
            schedule: state.schedule.counters(now),
        }
    }

    /// Notes why a log cannot be read now; `None`: it can.
    fn note_log(&self, log: &Path, trouble: Option<String>) {
        let mut troubles = self.core.log_troubles.lock();
        match trouble {
            Some(trouble) => troubles.insert(log.to_owned(), trouble),
            None => troubles.remove(log),
        };
    }

    /// The reasons why the service does less than its settings say, one sentence each; empty: it does all.
    pub fn troubles(&self) -> Vec<String> {
        let queue = self.core.queue.get();
        let mut troubles = Vec::new();
        if !queue.is_some_and(StoreQueue::is_available) {
            let cause = queue.and_then(StoreQueue::failure);
            let cause = cause.map_or_else(String::new, |cause| format!(" ({cause})"));
            troubles.push(format!(
                "the database is unavailable: nothing is kept beyond memory{cause}"
            ));
        }
        if self.core.tests.is_empty() {
            troubles.push("no test can run on this machine".to_owned());
        }
        let logs = self.core.log_troubles.lock();
        let logs = logs.iter();
        troubles.extend(logs.map(|(log, trouble)| {
            format!(
                "nothing is learned from the log {}: {trouble}",
                log.display()
            )
        }));
        troubles
    }

    /// The settings.
    pub fn config(&self) -> &AdvisorConfig {
        &self.core.config
    }

    /// Ends all tests, writes what waits (for at most 10 s), and ends.
    pub async fn shutdown(&self) {
        self.core.stop.send_replace(true);
        self.core.save_changed();
        if let Some(queue) = self.core.queue.get() {
            queue.close();
        }
        let tasks: Vec<_> = {
            let mut tasks = self.tasks.lock();
            tasks.drain(..).collect()
        };
        let deadline = tokio::time::Instant::now() + WAIT_FOR_STORE;
        for mut task in tasks {
            if tokio::time::timeout_at(deadline, &mut task).await.is_err() {
                task.abort();
            }
        }
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum AdvisorEvent {
    /// A path was measured.
    Measured(Measurement),
    /// A path behaves otherwise.
    Anomaly(PathAnomaly, Timestamp),
    /// A client became known.
    HostAdded(IpAddr, HostSource),
    /// A client was forgotten.
    HostForgotten(IpAddr),
    /// A transfer of the data server to or from this client began.
    TransferStarted(IpAddr),
    /// It ended.
    TransferEnded(IpAddr),
}

/// Numbers since the start, and of now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdvisorCounters {
    /// Clients that are known.
    pub clients: usize,
    /// Paths of which something is known.
    pub paths: usize,
    /// Questions answered.
    pub questions: u64,
    /// Those about clients of which nothing was known.
    pub unknown: u64,
    /// Measurements taken in.
    pub measurements: u64,
    /// Anomalies found.
    pub anomalies: u64,
    /// Transfers of the data server that run now.
    pub transfers: u64,
    /// Whether the database is available.
    pub store_available: bool,
    /// Entries written to the database.
    pub store_written: u64,
    /// Entries that found no room while the database was unavailable.
    pub store_dropped: u64,
    /// Numbers of the scheduler.
    pub schedule: ScheduleCounters,
}

/// Time between two rounds.
const ROUND: Duration = Duration::from_secs(10);

/// Runs until the service ends.
async fn run(core: Arc<Core>) {
    let mut stop = core.stop.subscribe();
    let mut before = ProcessorTicks::now();
    loop {
        core.purge();
        core.save_changed();
        let ticks = ProcessorTicks::now();
        // 0, if it is unknown: tests are not held back for ever.
        let used = before
            .zip(ticks)
            .and_then(|(before, now)| now.used_since(before));
        core.state().cpu = used.unwrap_or(0.0);
        before = ticks;
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(ROUND) => {}
        }
    }
}

/// A monitored client and its path.
#[derive(Debug, Clone)]
pub struct PathView {
    /// The client.
    pub host: MonitoredHost,
    /// Time since it was last seen.
    pub seen_ago: Duration,
    /// Transfers of the data server with it that run now.
    pub transfers: u32,
    /// Advice for a transfer of unknown size.
    pub advice: Advice,
}

impl Advisor {
    /// A client and its path; `None` if it is not monitored.
    pub fn view(&self, client: IpAddr) -> Option<PathView> {
        let client = canonical(client);
        let now = self.core.clock.moment();
        let state = self.core.state();
        let host = state.hosts.get(client)?.clone();
        let transfers = state.transfers.get(&client).copied().unwrap_or(0);
        let mut found = state.facts(client, now);
        let busy = state.cpu;
        drop(state);
        found.remedy = "no test has had a result yet";
        Some(PathView {
            seen_ago: now.since(host.seen),
            host,
            transfers,
            advice: answer::answer(client, &Question::default(), found, &self.core.sender, busy),
        })
    }

    /// Statistics of everything that was measured of the path to this client itself.
    pub fn measured(&self, client: IpAddr) -> Vec<QuantitySummary> {
        let now = self.core.clock.moment();
        self.core.state().table.summary(canonical(client), now)
    }

    /// Addresses of all clients, in order.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let mut clients: Vec<_> = {
            let state = self.core.state();
            state.hosts.iter().map(|(client, _)| client).collect()
        };
        clients.sort_unstable();
        clients
    }

    /// At most `most` clients: those of the settings, then those seen last.
    pub fn recently_seen(&self, most: usize) -> Vec<IpAddr> {
        self.core.state().hosts.recently_seen(most)
    }
}
