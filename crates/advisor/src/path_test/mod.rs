//! The contract of a test of a path: initialise, may it run, run (section 4.3 of the Enable paper).
//!
//! A new kind of test is a new file in this folder and a line in [`all_tests`].

mod blocking;
pub mod bottleneck;
pub mod external;
mod icmp;
pub mod iperf3;
pub mod pchar;
pub mod ping;
mod probe_socket;
pub mod program_test;
pub mod route;
mod train;

use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;

use self::external::ExternalCommand;
#[cfg(feature = "fuzzing")]
pub use self::icmp::{echo_again, message_in_ipv4};
use self::program_test::ProgramTest;
use crate::measurement::{Measurement, Quantity};
use probe_socket::EchoSocket;

/// Whether a test may run without being asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Some packets: runs by default.
    Light,
    /// Fills the path for a time: runs only where the configuration says so, or when asked for.
    Heavy,
}

/// A client to test, and what is known of its path.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Its address.
    pub client: IpAddr,
    /// Last known round trip.
    pub rtt: Option<Duration>,
    /// Last known rate of the path, bits per second: of the bottleneck, or of transfers if they were faster.
    pub bandwidth_bps: Option<u64>,
    /// TCP ports of the client that may answer, for hosts that filter ICMP.
    pub tcp_ports: Vec<u16>,
    /// Bytes to which a test keeps that can make do with fewer.
    pub most_bytes: u64,
}

impl Target {
    /// A client of whose path nothing is known, and no bound of the bytes.
    pub const fn new(client: IpAddr) -> Self {
        Self {
            client,
            rtt: None,
            bandwidth_bps: None,
            tcp_ports: Vec::new(),
            most_bytes: u64::MAX,
        }
    }
}

/// Load on this host and its network, as far as a test must respect it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    /// Transfers of the data server that run now.
    pub transfers: u32,
    /// Transfers to this client that run now.
    pub transfers_to_client: u32,
    /// Share of the processors that is in use, 0 to 1.
    pub cpu: f64,
}

/// Whether a test may start now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartDecision {
    /// Yes.
    Run,
    /// Not now: the reason. It is asked again later.
    Wait(String),
}

/// The transfers of the data server during which a test does not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldBackBy {
    /// None: it disturbs no transfer, and none disturbs it.
    Nothing,
    /// Those to the same client.
    TransfersToClient,
    /// All: they share the network with it.
    AnyTransfer,
}

impl HeldBackBy {
    /// Whether a test may start under this load.
    fn decide(self, load: &Load) -> StartDecision {
        match self {
            Self::TransfersToClient if load.transfers_to_client > 0 => {
                StartDecision::Wait("a transfer fills the queues of this path".to_owned())
            }
            Self::AnyTransfer if load.transfers > 0 => {
                StartDecision::Wait("a transfer shares the network with it".to_owned())
            }
            _ => StartDecision::Run,
        }
    }
}

/// The facts about a kind of test that never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestProfile<'a> {
    /// Its name, in the configuration, the database and the protocols.
    pub name: &'a str,
    /// Whether it runs by default.
    pub weight: Weight,
    /// Most tests of this kind at one time.
    pub concurrency: usize,
    /// Whether it sends so much at once that it needs paths for itself. Only one such test runs at a time, of whatever
    /// kind: two on one path would each measure the rest that the other leaves.
    pub fills_path: bool,
    /// Time between two tests of one client, unless the configuration says otherwise.
    pub interval: Duration,
    /// The transfers that it waits for.
    pub held_back_by: HeldBackBy,
    /// The quantities that every result has; none, if that is not known before.
    pub measures: &'static [Quantity],
}

/// A test that this machine cannot run, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the test {test} cannot run here: {reason}")]
pub struct Unavailable {
    /// Name of the test.
    pub test: String,
    /// The missing part, and the remedy.
    pub reason: String,
}

/// A test that ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum TestFailure {
    /// The client, or a router before it, did not answer in time.
    #[error("{test}: {client} does not answer within {waited:?}")]
    NoAnswer {
        /// Name of the test.
        test: String,
        /// The client.
        client: IpAddr,
        /// Time that the test waited.
        waited: Duration,
    },
    /// A system call failed.
    #[error("{test} of {client}: cannot {action}: {source}")]
    System {
        /// Name of the test.
        test: String,
        /// The client.
        client: IpAddr,
        /// The attempted action.
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// Answers came, but they do not make a result.
    #[error("{test} of {client}: {reason}")]
    Unusable {
        /// Name of the test.
        test: String,
        /// The client.
        client: IpAddr,
        /// Why not.
        reason: String,
    },
    /// It could not begin, and put nothing on the network.
    #[error("{test} of {client}: {reason}")]
    NotBegun {
        /// Name of the test.
        test: String,
        /// The client.
        client: IpAddr,
        /// Why not.
        reason: String,
    },
}

impl TestFailure {
    /// Why there is no result, for a reader who knows the test and the client already.
    pub fn reason(&self) -> String {
        match self {
            Self::NoAnswer { waited, .. } => format!("no answer within {waited:?}"),
            Self::System { action, source, .. } => format!("cannot {action}: {source}"),
            Self::Unusable { reason, .. } | Self::NotBegun { reason, .. } => reason.clone(),
        }
    }

    /// A system call failed.
    pub(crate) fn system(
        test: &str,
        client: IpAddr,
        action: &'static str,
        source: std::io::Error,
    ) -> Self {
        Self::System {
            test: test.to_owned(),
            client,
            action,
            source,
        }
    }

    /// It could not begin.
    pub(crate) fn not_begun(test: &str, client: IpAddr, reason: String) -> Self {
        Self::NotBegun {
            test: test.to_owned(),
            client,
            reason,
        }
    }

    /// The answers do not make a result.
    pub(crate) fn unusable(test: &str, client: IpAddr, reason: impl Into<String>) -> Self {
        Self::Unusable {
            test: test.to_owned(),
            client,
            reason: reason.into(),
        }
    }
}

/// Every test, in the order in which a new client is tested: the fast ones first. They are not initialised.
pub fn all_tests(external: Vec<ExternalCommand>) -> Vec<Box<dyn PathTest>> {
    let mut tests: Vec<Box<dyn PathTest>> = vec![
        Box::new(ping::PingTest::default()),
        Box::new(bottleneck::BottleneckTest),
        Box::new(route::RouteTest),
        Box::new(ProgramTest::new(pchar::Pchar)),
        Box::new(ProgramTest::new(iperf3::Iperf3)),
    ];
    for command in external {
        tests.push(Box::new(ProgramTest::new(command)));
    }
    tests
}

/// Why echo sockets are refused, and the remedy.
const ECHO_FORBIDDEN: &str = "this system permits no ICMP echo sockets: run as root, or set \
     net.ipv4.ping_group_range='0 2147483647'";

/// Whether this process may open ICMP echo sockets.
fn echo_is_permitted() -> bool {
    EchoSocket::open(IpAddr::from([127, 0, 0, 1])).is_ok()
}

/// Refuses a test that needs ICMP echo sockets where there are none.
fn require_echo(test: &str) -> Result<(), Unavailable> {
    if echo_is_permitted() {
        return Ok(());
    }
    Err(Unavailable {
        test: test.to_owned(),
        reason: ECHO_FORBIDDEN.to_owned(),
    })
}

/// One kind of test. A new kind is a new file in this folder and a line in [`all_tests`].
#[async_trait]
pub trait PathTest: Send + Sync {
    /// Its unchanging facts.
    fn profile(&self) -> TestProfile<'_>;

    /// Its name.
    fn name(&self) -> &str {
        self.profile().name
    }

    /// Bytes that one test of this client will put on the network, at most, both directions together. The
    /// budget is charged with them before the test starts.
    fn most_bytes(&self, target: &Target) -> u64;

    /// Prepares the test once, at start: finds its program, tries its socket.
    ///
    /// # Errors
    /// Something is missing on this machine.
    async fn init(&mut self) -> Result<(), Unavailable>;

    /// Whether it is safe to start now.
    fn can_run(&self, _target: &Target, load: &Load) -> StartDecision {
        self.profile().held_back_by.decide(load)
    }

    /// Runs the test. A dropped future ends it.
    ///
    /// # Errors
    /// Why there is no result.
    async fn run(&self, target: &Target) -> Result<Measurement, TestFailure>;
}
