//! Tests of a path over IPv6: three network namespaces, of which the one in the middle is a router of the kernel. Needs
//! root; without it, the tests say so and end.

#![expect(clippy::unwrap_used, reason = "a test reports by panicking")]

use std::net::IpAddr;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use advisor::measurement::{Measurement, Quantity};
use advisor::path_test::{Target, all_tests};
use nix::sched::{CloneFlags, unshare};
use rustix::thread::{CapabilitySet, Pid, capabilities, gettid, set_capabilities};
use serde_json::{Value, json};

const ROUTER: &str = "fd00:1::2";
const CLIENT: &str = "fd00:2::1";

/// A network namespace. It belongs to a thread, so that nothing has to be undone.
struct RoutedNamespace {
    /// The thread, by which `ip link set ... netns` finds it.
    thread: Pid,
    scripts: Sender<(&'static str, Sender<()>)>,
}

impl RoutedNamespace {
    /// `None` without the permission to make one.
    fn new() -> Option<Self> {
        let (scripts, received) = channel::<(&str, Sender<()>)>();
        let (made, is_made) = channel();
        let _: JoinHandle<()> = std::thread::spawn(move || {
            let permitted = unshare(CloneFlags::CLONE_NEWNET);
            made.send(permitted.map(|()| gettid())).unwrap();
            for (script, done) in received {
                run(script);
                done.send(()).unwrap();
            }
        });
        match is_made.recv().unwrap() {
            Ok(thread) => Some(Self { thread, scripts }),
            Err(error) => {
                eprintln!("skipped: no network namespace can be made: {error}");
                None
            }
        }
    }

    /// Runs a script of the shell in it.
    fn run(&self, script: &'static str) {
        let (done, is_done) = channel();
        self.scripts.send((script, done)).unwrap();
        is_done.recv().unwrap();
    }
}

fn run(script: &str) {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
}

/// Runs `test` on a host from which the client is behind one router.
fn behind_a_router(test: impl FnOnce() + Send + 'static) {
    let host = std::thread::spawn(move || {
        let (Some(router), Some(client)) = (RoutedNamespace::new(), RoutedNamespace::new()) else {
            return;
        };
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        run(&format!(
            "ip link set lo up
            ip link add veth0 type veth peer name near0 netns {router}
            ip -6 addr add fd00:1::1/64 dev veth0 nodad
            ip link set veth0 up",
            router = router.thread.as_raw_nonzero()
        ));
        run(&format!(
            "ip link add far0 type veth peer name client0 netns {client}
            ip link set far0 netns {router}",
            client = client.thread.as_raw_nonzero(),
            router = router.thread.as_raw_nonzero()
        ));
        router.run(
            "echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
            ip -6 addr add fd00:1::2/64 dev near0 nodad
            ip -6 addr add fd00:2::2/64 dev far0 nodad
            ip link set near0 up
            ip link set far0 up",
        );
        client.run(
            "ip link set lo up
            ip -6 addr add fd00:2::1/64 dev client0 nodad
            ip link set client0 up
            ip -6 route add default via fd00:2::2",
        );
        // The links take some time to come up.
        run("ip -6 route add default via fd00:1::2
            n=0
            until ping -c 1 -W 1 fd00:2::1; do n=$((n + 1)); [ $n -lt 60 ]; done");
        test();
    });
    host.join().unwrap();
}

/// The result of a test of the path to the client.
fn measure(name: &str) -> Measurement {
    let target = Target::new(CLIENT.parse::<IpAddr>().unwrap());
    let tests = all_tests(Vec::new());
    let mut test = tests.into_iter().find(|test| test.name() == name).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        test.init().await.unwrap();
        test.run(&target).await.unwrap()
    })
}

/// The addresses of the hops of a route, and what it tells beside them.
fn check_route(method: &str) {
    let found = measure("route");
    assert_eq!(found.values, [(Quantity::Hops, 1.0)], "{found:?}");
    let detail = found.detail.unwrap();
    let hops: Vec<Value> = detail["hops"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hop| hop["address"].clone())
        .collect();
    assert_eq!(hops, [json!(ROUTER), json!(CLIENT)], "{detail}");
    assert_eq!(detail["method"], method, "{detail}");
    assert_eq!(detail["routers_back"], 1, "{detail}");
    assert_eq!(detail["is_asymmetric"], false, "{detail}");
}

#[test]
fn the_route_is_found_by_echo_requests() {
    behind_a_router(|| check_route("icmp"));
}

#[test]
fn without_permission_for_echo_requests_the_route_is_found_by_udp() {
    behind_a_router(|| {
        // A fresh network permits echo sockets to nobody without this capability.
        let mut own = capabilities(None).unwrap();
        own.effective.remove(CapabilitySet::NET_RAW);
        set_capabilities(None, own).unwrap();
        check_route("udp");
    });
}

#[test]
fn the_round_trip_and_the_loss_are_found() {
    behind_a_router(|| {
        let found = measure("ping");
        let value = |wanted: Quantity| {
            let mut values = found.values.iter();
            values.find(|(quantity, _)| *quantity == wanted).unwrap().1
        };
        assert!(value(Quantity::Rtt) > 0.0);
        assert!(value(Quantity::Loss).abs() < f64::EPSILON);
        let detail = found.detail.as_ref().unwrap();
        assert_eq!(detail["method"], "icmp", "{detail}");
        assert_eq!(detail["routers_back"], 1, "{detail}");
    });
}
