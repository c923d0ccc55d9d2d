mod mistakes;
mod properties;

use std::path::Path;
use std::time::Duration;

use link::{Loss, Queue, Reorder};
use units::Rate;

use super::*;

fn parse(text: &str) -> Topology {
    Topology::parse(text, Path::new("")).unwrap()
}

fn refused(text: &str) -> String {
    let error = Topology::parse(text, Path::new("")).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, LabError::Usage(_)), "{error:?}");
    assert!(!message.contains('\n'), "{message:?}");
    message
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn rate(bits: u64) -> Option<Rate> {
    Some(Rate::bits_per_second(bits))
}

#[test]
fn an_empty_topology_has_two_hosts_on_a_perfect_path() {
    let topology = parse("");
    let names: Vec<_> = topology.hosts.iter().map(|h| h.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(
        (topology.seed, topology.offload, topology.mtu),
        (1, true, 1500)
    );
    let [path] = topology.paths.as_slice() else {
        panic!("{topology:?}");
    };
    assert_eq!(path.between, (0, 1));
    assert_eq!(path.forward, path.back);
    assert_eq!(path.forward.rate, None);
    assert_eq!(path.forward.delay, Duration::ZERO);
    assert_eq!(path.forward.queue, Queue::Unlimited);
    assert_eq!(path.forward.loss, Loss::Never);
}

#[test]
fn the_example_in_the_documentation_has_the_documented_values() {
    let source = include_str!("../mod.rs");
    let example: Vec<_> = source
        .lines()
        .skip_while(|line| *line != "//! ```toml")
        .skip(1)
        .take_while(|line| *line != "//! ```")
        .map(|line| line.trim_start_matches("//!").trim())
        .collect();
    let topology = parse(&example.join("\n"));
    assert_eq!(topology.seed, 7);
    let congestion: Vec<_> = topology
        .hosts
        .iter()
        .map(|host| host.congestion_control.as_deref().unwrap())
        .collect();
    assert_eq!(congestion, ["cubic", "reno", "cubic"]);
    let rmem = ("net.ipv4.tcp_rmem".into(), "4096 87380 16777216".into());
    assert_eq!(topology.hosts[0].sysctls, [rmem]);
    assert_eq!(topology.hosts[1].sysctls.len(), 2);
    let between: Vec<_> = topology.paths.iter().map(|path| path.between).collect();
    assert_eq!(between, [(0, 1), (0, 2), (1, 2)]);
    let plain = &topology.paths[0].forward;
    assert_eq!(plain.delay, ms(50));
    assert_eq!(plain.queue, Queue::Bytes(12_500_000));
    assert_eq!(plain.loss, Loss::Independent(0.005));
    let special = &topology.paths[1].forward;
    assert!(matches!(special.loss, Loss::Bursty { in_bad: 0.5, .. }));
    let held = Reorder {
        probability: 0.01,
        extra: ms(2),
    };
    assert_eq!(special.reorder, Some(held));
    assert_eq!((special.duplicate, special.corrupt), (0.001, 0.00001));
    assert_eq!(special.rate, rate(10_000_000));
    let back = &topology.paths[1].back;
    assert_eq!((back.rate, back.delay), (plain.rate, ms(80)));
    assert!(topology.paths[2].forward.trace.is_some());
}

#[test]
fn the_most_specific_value_applies() {
    let topology = parse(
        r#"
        [default]
        rtt = "20ms"
        rate = "100mbit"
        loss = 0.01
        back = { rate = "10mbit", duplicate = 0.1 }
        [hosts.x]
        [hosts.a]
        [hosts.m]
        [[paths]]
        between = ["m", "x"]
        rate = "50mbit"
        loss = 0
        forward = { delay = "1ms" }
        "#,
    );
    // Hosts are in the order of the file, not of the alphabet.
    let [x_a, x_m, _] = topology.paths.as_slice() else {
        panic!("{topology:?}");
    };
    assert_eq!(
        (x_a.forward.rate, x_a.back.rate),
        (rate(100_000_000), rate(10_000_000))
    );
    assert_eq!((x_a.forward.duplicate, x_a.back.duplicate), (0.0, 0.1));
    // Forward of this path is from m to x, which is the way back between x and m.
    assert_eq!((x_m.forward.delay, x_m.back.delay), (ms(10), ms(1)));
    assert_eq!(
        (x_m.forward.rate, x_m.back.rate),
        (rate(50_000_000), rate(50_000_000))
    );
    assert_eq!(x_m.forward.loss, Loss::Never);
    // 50 Mbit/s for 11 ms.
    assert_eq!(x_m.forward.queue, Queue::Bytes(68_750));
}

#[test]
fn queue_lengths_are_packets_bytes_or_multiples_of_the_bdp() {
    let queue = |keys: &str| parse(&format!("[default]\n{keys}")).paths[0].forward.queue;
    assert_eq!(queue("queue = '100 packets'"), Queue::Packets(100));
    assert_eq!(queue("queue = 30"), Queue::Packets(30));
    assert_eq!(queue("queue = '64KiB'"), Queue::Bytes(65_536));
    assert_eq!(
        queue("rate = '1gbit'\nqueue = 'unlimited'"),
        Queue::Unlimited
    );
    let path = "rate = '1gbit'\nrtt = '100ms'\n";
    assert_eq!(queue(path), Queue::Bytes(12_500_000));
    assert_eq!(
        queue(&format!("{path}queue = '2.5 BDP'")),
        Queue::Bytes(31_250_000)
    );
    // The least default, and the least that keeps a bottleneck busy.
    let short = "rate = '1mbit'\nrtt = '1ms'\n";
    assert_eq!(queue(short), Queue::Bytes(65_536));
    assert_eq!(queue(&format!("{short}queue = '1bdp'")), Queue::Bytes(3000));
    // A trace's means: 17.2 Mbit/s, 157 ms.
    let Queue::Bytes(bytes) = queue("trace = 'drsftp-path'") else {
        panic!("no bytes");
    };
    assert!((337_500..337_600).contains(&bytes), "{bytes}");
}

#[test]
fn settings_may_be_written_with_and_without_quotes() {
    let topology = parse(
        "sysctl.net.ipv4.tcp_sack = 1\n[hosts.a.sysctl]\nnet.ipv4.tcp_sack = 0\n\
         'net.core.rmem_default' = ' 5 '\n[hosts.b]",
    );
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(
        topology.hosts[0].sysctls,
        [
            pair("net.ipv4.tcp_sack", "0"),
            pair("net.core.rmem_default", "5")
        ]
    );
    assert_eq!(topology.hosts[1].sysctls, [pair("net.ipv4.tcp_sack", "1")]);
}

#[test]
fn options_override_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("net.toml");
    let text = "seed = 3\n[default]\nrtt = '20ms'\n[hosts.a]\ncc = 'reno'\n[hosts.b]\n\
                [[paths]]\nbetween = ['a', 'b']\nforward.rate = '1mbit'\nforward.delay = '7ms'";
    std::fs::write(&file, text).unwrap();
    let options = NetworkOptions {
        rtt: Some("100ms".into()),
        rate: Some("1gbit".into()),
        loss: Some("0.5%".into()),
        queue: Some("100 packets".into()),
        sysctls: vec!["net.ipv4.tcp_rmem=4096 87380 1000000".into()],
        cc: Some("cubic".into()),
        seed: Some(9),
        offload: Some(false),
        ..NetworkOptions::default()
    };
    let topology = Topology::from_options(Some(&file), &options).unwrap();
    let path = &topology.paths[0];
    assert_eq!(path.forward, path.back);
    assert_eq!(path.forward.rate, rate(1_000_000_000));
    assert_eq!(path.forward.delay, ms(50));
    assert_eq!(path.forward.loss, Loss::Independent(0.005));
    assert_eq!(path.forward.queue, Queue::Packets(100));
    assert_eq!((topology.seed, topology.offload), (9, false));
    assert_eq!(
        topology.hosts[0].congestion_control.as_deref(),
        Some("cubic")
    );
    assert_eq!(topology.hosts[1].sysctls[0].1, "4096 87380 1000000");
    let unchanged = Topology::read(&file).unwrap();
    assert_eq!(unchanged.paths[0].forward.delay, ms(7));
    assert_eq!(unchanged.paths[0].back.delay, ms(10));
}

#[test]
fn traces_are_relative_to_the_directory_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("net.toml");
    std::fs::write(&file, "[default]\ntrace = 'slow.csv'").unwrap();
    let error = Topology::read(&file).unwrap_err();
    assert!(matches!(error, LabError::NotFound(_)), "{error}");
    assert!(error.to_string().contains("drsftp-path"), "{error}");
    let trace = directory.path().join("slow.csv");
    std::fs::write(&trace, "seconds,rate\n0,1mbit\n0,2mbit\n").unwrap();
    let message = Topology::read(&file).unwrap_err().to_string();
    assert!(
        message.contains("slow.csv: line 3: times must increase"),
        "{message}"
    );
    std::fs::write(&trace, "seconds,rate\n0,1mbit\n1,2mbit\n").unwrap();
    let topology = Topology::read(&file).unwrap();
    let trace = topology.paths[0].forward.trace.as_ref().unwrap();
    assert_eq!(trace.points().len(), 2);
    // The written topology includes the trace.
    assert_eq!(parse(&topology.to_toml()), topology);
}

#[test]
fn trace_start_rotates_the_trace() {
    let rates = |start: &str| -> Vec<(u128, u64)> {
        let text = format!(
            "[default]\ntrace = \"seconds,rate\\n0,10kbit\\n2,20kbit\\n4,30kbit\"\ntrace_start = {start}"
        );
        let topology = parse(&text);
        let trace = topology.paths[0].forward.trace.clone().unwrap();
        let rate = |p: &link::trace::TracePoint| p.rate.unwrap().as_bits_per_second();
        let points = trace.points().iter();
        points.map(|p| (p.at.as_millis(), rate(p))).collect()
    };
    assert_eq!(rates("0"), [(0, 10_000), (2000, 20_000), (4000, 30_000)]);
    assert_eq!(rates("'3s'"), [(0, 20_000), (2000, 30_000), (4000, 10_000)]);
    // The period is 6 s.
    assert_eq!(
        rates("'605s'"),
        [(0, 30_000), (2000, 10_000), (4000, 20_000)]
    );
    // A thousand years, whole periods.
    assert_eq!(rates("31536000000")[0].1, 10_000);
    assert_eq!(rates("'1min'")[0].1, 10_000);
    // A seed.
    assert_eq!(rates("'7940005873169198s'")[0].1, 20_000);
}

#[test]
fn a_built_in_trace_is_written_by_name() {
    let text = parse("[default]\ntrace = 'drsftp-wan'").to_toml();
    assert!(text.contains("trace = \"drsftp-wan\""), "{text}");
    assert!(text.len() < 500, "{text}");
}
