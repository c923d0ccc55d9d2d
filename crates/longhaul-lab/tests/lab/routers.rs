//! Routers between the hosts: traceroute, tracepath and the advisor's tests of a path see them.

use crate::harness::{LabTestGuard, TestLab, is_installed};

const NEAR_AND_FAR: &str = r#"
[default]
rtt = "20ms"
rate = "100mbit"

[hosts.a]
[hosts.b]
[hosts.c]

[[paths]]
between = ["a", "b"]
routers = ["near", "*", "far"]
bottleneck_link = 4

[[paths]]
between = ["a", "c"]
forward.routers = ["near", "other"]
back.routers = ["x1", "x2", "x3", "x4"]
"#;

#[test]
fn ping_sees_the_decremented_hop_limit_and_the_router_where_it_expires() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    if !is_installed("ping") {
        return;
    }
    let script = "
        on a ping -c 1 $LAB_B > b
        on c ping -c 1 $LAB_A > c
        on a ping -c 1 -t 3 $LAB_B > expired || true
        on a ping -c 1 $LAB_FAR > far
        echo $LAB_FAR > address";
    TestLab::topology(&turn, NEAR_AND_FAR).check(script, |run| {
        assert!(run.text("b").contains("ttl=61"), "{}", run.text("b"));
        // The answer to c takes the way with two routers.
        assert!(run.text("c").contains("ttl=62"), "{}", run.text("c"));
        let (expired, far) = (run.text("expired"), run.text("address"));
        let expected = format!("From {} icmp_seq=1 Time to live exceeded", far.trim());
        assert!(expired.contains(&expected), "{expired}");
        assert!(run.text("far").contains("ttl=62"), "{}", run.text("far"));
    });
}

#[test]
fn traceroute_and_tracepath_show_the_routers() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    if !is_installed("traceroute") || !is_installed("tracepath") {
        return;
    }
    let script = "
        on a traceroute -n -w 1 -q 1 $LAB_B > traceroute
        on a tracepath -n $LAB_C > tracepath
        echo $LAB_NEAR $LAB_FAR $LAB_B > addresses";
    TestLab::topology(&turn, NEAR_AND_FAR).check(script, |run| {
        let text = run.text("traceroute");
        let hops: Vec<_> = text
            .lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().nth(1))
            .collect();
        let addresses = run.text("addresses");
        let known: Vec<_> = addresses.split_whitespace().collect();
        assert_eq!(hops, [known[0], "*", known[1], known[2]], "{text}");
        // Two routers there and four back.
        let text = run.text("tracepath");
        assert!(text.contains("hops 3 back 5"), "{text}");
    });
}

#[test]
fn the_route_test_finds_the_hops_and_the_bottleneck() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let script = "
        probe a path-test route $LAB_B
        probe a path-test route $LAB_C
        echo $LAB_FAR > address";
    TestLab::topology(&turn, NEAR_AND_FAR).check(script, |run| {
        let there = run.json(&format!("route-{}", "10.99.0.2"));
        assert_eq!(there["hops"], 3.0, "{there}");
        assert_eq!(there["detail"]["bottleneck_hop"], 3, "{there}");
        let router = run.text("address");
        assert_eq!(
            there["detail"]["bottleneck_router"],
            router.trim(),
            "{there}"
        );
        assert_eq!(there["detail"]["is_asymmetric"], false, "{there}");
        let other = run.json(&format!("route-{}", "10.99.0.3"));
        assert_eq!(other["detail"]["is_asymmetric"], true, "{other}");
        assert_eq!(other["detail"]["routers_back"], 4, "{other}");
    });
}

#[test]
fn without_permission_for_echo_requests_the_route_test_finds_the_hops_by_udp() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    if !is_installed("setpriv") {
        return;
    }
    // A fresh network permits echo sockets to nobody but root. The program is opened by root: the home that it is in may be
    // closed to others.
    let script = "
        exec 3<\"$TEST_PROGRAM\"
        on a setpriv --reuid 65534 --regid 65534 --clear-groups \
            env LAB_PROBE=\"path-test route $LAB_B\" \
            /proc/self/fd/3 --exact probe_on_a_host --ignored --nocapture >probe.a 2>&1 \
            || { cat probe.a >&2; exit 1; }
        echo $LAB_NEAR $LAB_FAR $LAB_B >addresses";
    TestLab::topology(&turn, NEAR_AND_FAR).check(script, |run| {
        let found = run.json("route-10.99.0.2");
        assert_eq!(found["detail"]["method"], "udp", "{found}");
        assert_eq!(found["hops"], 3.0, "{found}");
        let addresses = run.text("addresses");
        let known: Vec<_> = addresses.split_whitespace().collect();
        let hop = |place: usize| &found["detail"]["hops"][place]["address"];
        assert_eq!(
            (hop(0), hop(2), hop(3)),
            (&known[0].into(), &known[1].into(), &known[2].into())
        );
        assert!(hop(1).is_null(), "{found}");
        assert_eq!(found["detail"]["is_asymmetric"], false, "{found}");
    });
}

/// Checks `ping` and `bottleneck` on a path for what holds on any machine. How well they measure on a quiet one is
/// the experiment `enable-estimators`.
fn path_quality(milliseconds: f64, megabits: f64, loss: &str) {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let (rtt, rate) = (format!("{milliseconds}ms"), format!("{megabits}mbit"));
    let script = "probe a path-test ping $LAB_B; probe a path-test bottleneck $LAB_B";
    let options = [
        "--rtt",
        &rtt,
        "--rate",
        &rate,
        "--loss",
        loss,
        "--routers",
        "2",
    ];
    TestLab::new(&turn, &options).check(script, |run| {
        let ping = run.json("ping-10.99.0.2");
        let detail = &ping["detail"];
        assert_eq!(detail["method"], "icmp", "{ping}");
        assert_eq!(detail["routers_back"], 2, "{ping}");
        let answered = detail["round_trips_s"].as_array().unwrap();
        let answered = answered.iter().filter(|time| !time.is_null()).count();
        // The kernel's times, so that a wait for the processor on this host does not count.
        assert_eq!(detail["departures_noted_by_kernel"], answered, "{ping}");
        let lost = 1.0 - answered as f64 / 5.0;
        assert!(
            (ping["loss"].as_f64().unwrap() - lost).abs() < 1e-9,
            "{ping}"
        );
        // A packet of 1500 bytes is serialised in each direction.
        let expected = milliseconds + 2.0 * 12.0 / megabits;
        let smallest = detail["smallest_round_trip_s"].as_f64().unwrap() * 1e3;
        let mean = ping["rtt"].as_f64().unwrap() * 1e3;
        // A path is never faster than its delay, and a busy machine delays packets by some of its scheduler's ticks.
        assert!(smallest > expected - 0.1, "{smallest} ms: {ping}");
        assert!(mean < expected + 200.0, "{mean} ms: {ping}");
        let bottleneck = run.json("bottleneck-10.99.0.2");
        let found = bottleneck["bandwidth"].as_f64().unwrap() / 1e6;
        assert!(found < megabits * 1.5, "{found} Mbit/s: {bottleneck}");
        // An emulator that has to wait for a processor is a slower path.
        assert!(found > megabits / 5.0, "{found} Mbit/s: {bottleneck}");
    });
}

#[test]
fn ping_and_bottleneck_measure_a_path_of_10_mbit_and_1_ms() {
    path_quality(1.0, 10.0, "0");
}

#[test]
fn ping_and_bottleneck_measure_a_path_of_100_mbit_and_50_ms_with_loss() {
    path_quality(50.0, 100.0, "1%");
}

#[test]
fn ping_and_bottleneck_measure_a_path_of_300_mbit_and_200_ms() {
    path_quality(200.0, 300.0, "0.1%");
}

#[test]
fn the_real_iperf3_and_pchar_measure_a_path() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    if !is_installed("iperf3") || !is_installed("pchar") {
        return;
    }
    // Hosts limit the rate of their answers to pchar's packets, unless this setting is 0.
    let options = [
        "--rtt",
        "4ms",
        "--rate",
        "10mbit",
        "--routers",
        "1",
        "--sysctl",
        "net.ipv4.icmp_ratelimit=0",
    ];
    let script = "
        on b iperf3 --server --one-off --forceflush >server &
        n=0
        until grep -q listening server; do
            n=$((n + 1)); [ $n -lt 600 ] || exit 1
            sleep 0.1
        done
        probe a path-test iperf3 $LAB_B
        probe a path-test pchar $LAB_B";
    TestLab::new(&turn, &options).check(script, |run| {
        let iperf3 = run.json("iperf3-10.99.0.2");
        let goodput = iperf3["goodput"].as_f64().unwrap();
        assert!((1e6..=10e6).contains(&goodput), "{iperf3}");
        let loaded = iperf3["detail"]["loaded_round_trip_s"].as_f64().unwrap();
        assert!(loaded > 0.004, "{iperf3}");
        assert!(iperf3["retransmits"].as_f64().unwrap() < 0.5, "{iperf3}");
        let pchar = run.json("pchar-10.99.0.2");
        assert_eq!(
            pchar["detail"]["hops"].as_array().unwrap().len(),
            2,
            "{pchar}"
        );
        assert!(pchar["rtt"].as_f64().unwrap() > 0.0039, "{pchar}");
        let bandwidth = pchar["bandwidth"].as_f64().unwrap();
        assert!((1e6..20e6).contains(&bandwidth), "{pchar}");
    });
}
