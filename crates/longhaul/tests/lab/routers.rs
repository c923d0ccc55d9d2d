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

/// Checks `ping` and `bottleneck` on a path: the round trip of full packets within 2 % and what the lab itself adds, the
/// bandwidth within 20 %.
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
        let found = ping["rtt"].as_f64().unwrap() * 1e3;
        // A packet of 1500 bytes is serialised in each direction.
        let expected = milliseconds + 2.0 * 12.0 / megabits;
        // The lab adds up to 0.25 ms, and more on a busy machine (docs/lab.md).
        let allowed = expected * 0.02 + 0.6;
        assert!(
            (found - expected).abs() <= allowed,
            "{found} ms, not {expected}: {ping}"
        );
        let bottleneck = run.json("bottleneck-10.99.0.2");
        let found = bottleneck["bandwidth"].as_f64().unwrap() / 1e6;
        assert!(
            (found / megabits - 1.0).abs() <= 0.2,
            "{found} Mbit/s: {bottleneck}"
        );
    });
}

#[test]
fn a_path_of_10_mbit_and_1_ms_is_measured_well() {
    path_quality(1.0, 10.0, "0");
}

#[test]
fn a_path_of_100_mbit_and_50_ms_with_loss_is_measured_well() {
    path_quality(50.0, 100.0, "1%");
}

#[test]
fn a_path_of_300_mbit_and_200_ms_is_measured_well() {
    path_quality(200.0, 300.0, "0.1%");
}
