//! How loaded data nodes are: what monitors see, and which nodes transfers prefer.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use interop::longhaul::copy::{self, cp};
use interop::longhaul::running_copy::RunningCopy;
use interop::longhaul::serve::LonghaulServer;
use interop::matrix::TestStore;
use interop::pki::PeerPki;
use interop::require;
use interop::test_files;

use super::{LARGE, NODE_HOSTS, StripedServer, front_command, node, parts, parts_ended};

/// Longest wait for what a monitor shows.
const LIMIT: Duration = Duration::from_secs(60);

/// Where a server answers monitors.
fn monitor_address(server: &LonghaulServer) -> Result<SocketAddr> {
    let line = server.wait_for_message(0, &["metrics at http://"])?;
    let address = line.split("http://").nth(1).context("no address")?;
    Ok(address.trim_end().trim_end_matches("/metrics").parse()?)
}

fn fetch(monitor: SocketAddr, path: &str) -> Result<String> {
    let mut connection = TcpStream::connect(monitor)?;
    write!(connection, "GET {path} HTTP/1.0\r\n\r\n")?;
    connection.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The sum of a metric over all nodes; `None`: no node has it.
fn sum(metrics: &str, name: &str) -> Option<u64> {
    let prefix = format!("longhaul_server_{name}{{");
    let values = metrics.lines().filter(|line| line.starts_with(&prefix));
    let values: Vec<u64> = values
        .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
        .collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

fn wait_for(monitor: SocketAddr, name: &str, wanted: impl Fn(u64) -> bool) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let metrics = fetch(monitor, "/metrics")?;
        if sum(&metrics, name).is_some_and(&wanted) {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{name} does not change:\n{metrics}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Two front ends have the same four nodes. One of them is slow, and has a transfer with two nodes all the time.
#[test]
fn transfers_that_need_few_data_nodes_leave_busy_ones_alone() {
    let pki = require!(PeerPki::find());
    let stores = [(); 3].map(|()| TestStore::new().unwrap());
    let [from, first, second] = &stores;
    let nodes: Result<Vec<_>> = NODE_HOSTS
        .iter()
        .cycle()
        .take(4)
        .map(|host| node(from.root(), &pki, host))
        .collect();
    let mut nodes = nodes.unwrap();
    let addresses: Vec<_> = nodes.iter().map(LonghaulServer::address).collect();
    let file = test_files::shared(LARGE).unwrap();
    std::fs::copy(&file, from.path("served")).unwrap();
    let fast = front_command(from.root(), &pki, &addresses).unwrap();
    let slow = fast.clone().option("--limit-rate", "40M").start().unwrap();
    let fast = fast.option("--metrics", "127.0.0.1:0").start().unwrap();
    let monitor = monitor_address(&fast).unwrap();
    wait_for(monitor, "node_up", |up| up == 4).unwrap();

    let busy = StripedServer::start(first, &pki, 2).unwrap();
    let free = StripedServer::start(second, &pki, 2).unwrap();
    let (served, stored) = (slow.user_url("served"), busy.front.user_url("stored"));
    let options = ["-p", "2", "--verify", "none", &served, &stored];
    let running = RunningCopy::start(copy::command(&options).unwrap()).unwrap();
    wait_for(monitor, "node_parts_running", |running| running == 2).unwrap();
    for n in 0..3 {
        let (served, stored) = (fast.user_url("served"), format!("stored{n}"));
        let stored = free.front.user_url(&stored);
        let copied = cp(&["-p", "2", "--verify", "none", &served, &stored]);
        free.explain(fast.explain(copied)).unwrap();
    }
    let ended: Vec<usize> = nodes.iter().map(parts_ended).collect();
    assert_eq!(parts(&busy.nodes), 0, "the slow copy was too fast");
    assert_eq!(parts(&nodes), 2, "a busy node was used: {ended:?}");

    let health = fetch(monitor, "/health").unwrap();
    assert!(health.contains(r#""parts":"#), "{health}");
    drop(running);
    wait_for(monitor, "node_parts_running", |running| running == 0).unwrap();
    nodes[0].guard().kill();
    wait_for(monitor, "node_up", |up| up == 3).unwrap();
}
