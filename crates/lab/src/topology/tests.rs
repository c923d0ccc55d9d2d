use std::path::Path as FilePath;
use std::time::Duration;

use proptest::prelude::*;
use sim::link::{Loss, Queue, Reorder};
use units::Rate;

use super::*;

fn parse(text: &str) -> Topology {
    Topology::parse(text, FilePath::new("")).unwrap()
}

fn refused(text: &str) -> String {
    let error = Topology::parse(text, FilePath::new("")).unwrap_err();
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
fn nothing_said_is_two_hosts_on_a_perfect_path() {
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
fn the_example_of_the_documentation_is_what_it_says() {
    let source = include_str!("mod.rs");
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
        .map(|host| host.congestion.as_deref().unwrap())
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
fn the_more_special_wins() {
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
fn queues() {
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

/// Mistakes, and what the message says of them.
const MISTAKES: &[(&str, &str)] = &[
    ("sede = 1", "line 1: unknown field `sede`"),
    (
        "\n[default]\nrate = 0",
        "line 3: default: rate: a rate of 0",
    ),
    (
        "\n[default]\nrate = 'fast'",
        "line 3: default: rate: 'fast' is not a rate",
    ),
    ("[default]\nrate = '10MB/s'", "bits per second"),
    ("[default]\nrate = -1", "'-1' is negative"),
    ("[default]\nrate = inf", "is not a rate"),
    ("[default]\nrate = true", "line 2: invalid type: boolean"),
    (
        "[default]\nloss = '101%'",
        "loss: '101%' is too much; the most is 100%",
    ),
    (
        "[default]\nloss = 1",
        "loss: '1' can be read as 1% or as 100%",
    ),
    (
        "[default]\nrtt = '61s'",
        "rtt: 61s is too long; the most is 60s",
    ),
    ("[default]\ndelay = '31s'", "delay: 31s is too long"),
    ("[default]\nrtt = 5\ndelay = 2", "rtt: delay says the same"),
    (
        "[default]\nloss = 0.1\nburst_loss = {to_bad=0,to_good=0,in_good=0,in_bad=0}",
        "leave out one",
    ),
    (
        "[default]\nburst_loss = {to_bad=0,to_good=0,in_good=0,in_bad=2}",
        "in_bad: '2' is too much",
    ),
    ("[default]\nburst_loss = {to_bad=0}", "missing field"),
    ("[default]\nqueue = 0", "a queue of nothing"),
    (
        "[default]\nqueue = '5 apples'",
        "'5 apples' is no queue; write it like",
    ),
    (
        "[default]\nqueue = '1000B'",
        "path a-b: queue: a queue of 1000 bytes would let no packet",
    ),
    (
        "[default]\nqueue = '1bdp'",
        "path a-b: queue: a queue in bdp needs a rate",
    ),
    (
        "[default]\nforward = { rtt = 5 }",
        "one direction has no round trip; write delay",
    ),
    (
        "[default]\nforward = { back = {} }",
        "a direction has no between, forward or back",
    ),
    (
        "[default]\nbetween = ['a', 'b']",
        "default is for all paths",
    ),
    (
        "[default]\nrate = 5000\ntrace = 'drsftp-path'",
        "the trace gives the rate",
    ),
    (
        "[default]\ntrace = 'drsftp-path'\n[[paths]]\nbetween=['a','b']\nrtt = 5",
        "the trace gives the rtt",
    ),
    (
        "[default]\ntrace = \"seconds,loss\\n0,2\"",
        "line 2: default: trace: line 2: loss",
    ),
    (
        "[default]\ntrace = 'drsftp-wan'\ntrace_start = 'noon'",
        "line 3: default: trace_start: 'noon' is no whole number of seconds",
    ),
    (
        "[default]\ntrace_start = 5",
        "trace_start: there is no trace here",
    ),
    (
        "[default]\ntrace = \"seconds,rtt\\n0,70s\"",
        "trace: rtt: 70s is too long",
    ),
    ("[[paths]]\nrate = 5000", "line 1: a path needs between"),
    ("[[paths]]\nbetween = ['a']", "a path has two ends"),
    (
        "[[paths]]\nbetween = ['a', 'c']",
        "line 2: between: there is no host 'c', only a, b",
    ),
    (
        "[[paths]]\nbetween = ['a', 'a']",
        "'a' needs no path to itself",
    ),
    (
        "[[paths]]\nbetween=['a','b']\n[[paths]]\nbetween=['b','a']",
        "line 3: between: the path a-b is there already",
    ),
    ("[hosts.a]", "name at least two"),
    ("[hosts.A]\n[hosts.b]", "host 'A': a name is lower-case"),
    ("[hosts.1a]\n[hosts.b]", "a letter first"),
    ("[hosts.'a b']\n[hosts.b]", "host 'a b'"),
    ("[hosts.hosts]\n[hosts.b]", "LAB_HOSTS means something else"),
    (
        "[hosts.a]\nspeed = 1\n[hosts.b]",
        "line 2: unknown field `speed`",
    ),
    (
        "mtu = 575",
        "mtu: '575' is not a number of bytes from 576 to 9000",
    ),
    ("mtu = 9001", "mtu"),
    ("seed = -1", "line 1: seed: '-1' is not a whole number"),
    ("cc = '../../x'", "is not the name of a congestion control"),
    (
        "sysctl.kernel.panic = 1",
        "sysctl: 'kernel.panic' is no network setting",
    ),
    ("sysctl.'net/../kernel' = 1", "is no network setting"),
    ("sysctl.'net.../x' = 1", "is no network setting"),
    ("sysctl.'net..x' = 1", "is no network setting"),
    (
        "sysctl.net.x = 1.5",
        "net.x: write the value as a number or as text",
    ),
    ("sysctl.net.x = \"1\\n2\"", "the value must be one line"),
    ("a = [", "line 1"),
];

#[test]
fn what_is_impossible_is_refused_in_one_line() {
    for (text, expected) in MISTAKES {
        let message = refused(text);
        assert!(message.contains(expected), "{text:?}: {message}");
    }
}

#[test]
fn too_many_hosts_are_refused() {
    let hosts =
        |number: usize| -> String { (0..number).map(|i| format!("[hosts.h{i}]\n")).collect() };
    assert_eq!(parse(&hosts(26)).paths.len(), 26 * 25 / 2);
    assert!(refused(&hosts(27)).contains("27 hosts are too many; the most is 26"));
}

#[test]
fn variables_are_upper_case() {
    let topology = parse("[hosts.far-end2]\n[hosts.b]");
    assert_eq!(variable(&topology.hosts[0]), "LAB_FAR_END2");
    assert_eq!(variable(&topology.hosts[1]), "LAB_B");
}

#[test]
fn options_win_over_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("net.toml");
    let text = "seed = 3\n[default]\nrtt = '20ms'\n[hosts.a]\ncc = 'reno'\n[hosts.b]\n\
                [[paths]]\nbetween = ['a', 'b']\nforward.rate = '1mbit'\nforward.delay = '7ms'";
    std::fs::write(&file, text).unwrap();
    let shorthand = Shorthand {
        rtt: Some("100ms".into()),
        rate: Some("1gbit".into()),
        loss: Some("0.5%".into()),
        queue: Some("100 packets".into()),
        sysctls: vec!["net.ipv4.tcp_rmem=4096 87380 1000000".into()],
        cc: Some("cubic".into()),
        seed: Some(9),
        offload: Some(false),
        ..Shorthand::default()
    };
    let topology = Topology::from_request(Some(&file), &shorthand).unwrap();
    let path = &topology.paths[0];
    assert_eq!(path.forward, path.back);
    assert_eq!(path.forward.rate, rate(1_000_000_000));
    assert_eq!(path.forward.delay, ms(50));
    assert_eq!(path.forward.loss, Loss::Independent(0.005));
    assert_eq!(path.forward.queue, Queue::Packets(100));
    assert_eq!((topology.seed, topology.offload), (9, false));
    assert_eq!(topology.hosts[0].congestion.as_deref(), Some("cubic"));
    assert_eq!(topology.hosts[1].sysctls[0].1, "4096 87380 1000000");
    let unchanged = Topology::read(&file).unwrap();
    assert_eq!(unchanged.paths[0].forward.delay, ms(7));
    assert_eq!(unchanged.paths[0].back.delay, ms(10));
}

#[test]
fn mistakes_name_the_option_or_the_file() {
    let message = |shorthand: Shorthand| {
        let error = Topology::from_request(None, &shorthand).unwrap_err();
        error.to_string()
    };
    let blank = Shorthand::default;
    let bad_rate = message(Shorthand {
        rate: Some("0".into()),
        ..blank()
    });
    assert!(bad_rate.starts_with("--rate: a rate of 0"), "{bad_rate}");
    let bad_setting = message(Shorthand {
        sysctls: vec!["net.ipv4.tcp_sack".into()],
        ..blank()
    });
    assert!(bad_setting.starts_with("--sysctl: "), "{bad_setting}");
    let bad_name = message(Shorthand {
        cc: Some("a b".into()),
        ..blank()
    });
    assert!(bad_name.starts_with("--cc: "), "{bad_name}");
    let both = message(Shorthand {
        rtt: Some("5ms".into()),
        trace: Some("drsftp-wan".into()),
        ..blank()
    });
    assert!(both.starts_with("--rtt: the trace gives the rtt"), "{both}");

    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing.toml");
    assert!(matches!(
        Topology::read(&missing),
        Err(LabError::NotFound(_))
    ));
    let file = directory.path().join("net.toml");
    std::fs::write(&file, "[default]\nrtt = 'x'").unwrap();
    let message = Topology::read(&file).unwrap_err().to_string();
    let expected = format!(
        "{}: line 2: default: rtt: 'x' is not a time",
        file.display()
    );
    assert!(message.starts_with(&expected), "{message}");
    std::fs::write(&file, [0xff, 0xfe, 0x00]).unwrap();
    assert!(matches!(Topology::read(&file), Err(LabError::Usage(_))));
}

#[test]
fn traces_are_found_beside_the_file() {
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
        message.contains("slow.csv: line 3: time does not go forward"),
        "{message}"
    );
    std::fs::write(&trace, "seconds,rate\n0,1mbit\n1,2mbit\n").unwrap();
    let topology = Topology::read(&file).unwrap();
    let trace = topology.paths[0].forward.trace.as_ref().unwrap();
    assert_eq!(trace.points().len(), 2);
    // What was run can be run again without the trace's file.
    assert_eq!(parse(&topology.to_toml()), topology);
}

#[test]
fn a_trace_may_begin_anywhere() {
    let rates = |start: &str| -> Vec<(u128, u64)> {
        let text = format!(
            "[default]\ntrace = \"seconds,rate\\n0,10kbit\\n2,20kbit\\n4,30kbit\"\ntrace_start = {start}"
        );
        let topology = parse(&text);
        let trace = topology.paths[0].forward.trace.clone().unwrap();
        let rate = |p: &sim::trace::Point| p.rate.unwrap().as_bits_per_second();
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
}

#[test]
fn a_shipped_trace_is_written_by_its_name() {
    let text = parse("[default]\ntrace = 'drsftp-wan'").to_toml();
    assert!(text.contains("trace = \"drsftp-wan\""), "{text}");
    assert!(text.len() < 500, "{text}");
}

/// One of a table's possible lines, also some that do not go together.
fn any_line() -> impl Strategy<Value = String> {
    prop_oneof![
        (0..60_000_000_000_u64).prop_map(|ns| format!("rtt = '{ns}ns'")),
        (0..30_000_000_000_u64).prop_map(|ns| format!("forward.delay = '{ns}ns'")),
        (1..1_000_000_000_000_u64).prop_map(|bits| format!("rate = {bits}")),
        (1..1_000_000_000_u64).prop_map(|bits| format!("back.rate = '{bits}bit'")),
        (1..100_000_u32).prop_map(|packets| format!("queue = {packets}")),
        (9000..100_000_000_u64).prop_map(|bytes| format!("back.queue = '{bytes}B'")),
        (0.0..1.0_f64).prop_map(|p| format!("loss = {p:?}")),
        (0.0..100.0_f64).prop_map(|p| format!("duplicate = '{p}%'")),
        (0.0..1.0_f64).prop_map(|p| format!("forward.corrupt = '{p}'")),
        (0.0..1.0_f64, 0..60_000_u64)
            .prop_map(|(p, extra)| format!("reorder = {{ probability = {p:?}, extra = {extra} }}")),
        (0.0..1.0_f64, 0.0..1.0_f64).prop_map(|(p, q)| format!(
            "back.burst_loss = {{ to_bad = {p:?}, to_good = {q:?}, in_good = 0, in_bad = '100%' }}"
        )),
        Just("trace = 'drsftp-path'".to_owned()),
        (0..1_000_000_u64, 0.0..1.0_f64).prop_map(|(bits, loss)| format!(
            "trace = \"seconds,rate,loss\\n0,{bits},{loss}\\n1.25,7,\""
        )),
    ]
}

proptest! {
    #[test]
    fn what_is_written_reads_back(
        seed in any::<u64>(),
        mtu in 576..=9000_u16,
        lines in prop::collection::btree_set(any_line(), 0..4),
        special in prop::collection::btree_set(any_line(), 0..4),
    ) {
        let text = format!(
            "seed = '{seed}'\nmtu = {mtu}\ncc = 'cubic'\nsysctl.net.x = \"a 'b\\\" \\\\\"\n[default]\n{}\n\
             [hosts.a]\n[hosts.b]\n[hosts.c]\n[[paths]]\nbetween = ['c', 'b']\n{}",
            Vec::from_iter(lines).join("\n"),
            Vec::from_iter(special).join("\n"),
        );
        if let Ok(topology) = Topology::parse(&text, FilePath::new("")) {
            prop_assert_eq!(parse(&topology.to_toml()), topology);
        }
    }

    #[test]
    fn any_text_is_read_or_refused_in_one_line(
        text in "\\PC*|([a-z_.]{1,9} ?= ?[0-9a-z'\"{},.%-]{0,12}\n|\\[{1,2}(default|paths|hosts\\.[a-c]|x)\\]{1,2}\n){0,8}"
    ) {
        if let Err(error) = Topology::parse(&text, FilePath::new("/nonexistent")) {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn any_option_is_read_or_refused_in_one_line(value in any::<String>()) {
        let some = || Some(value.clone());
        for shorthand in [
            Shorthand { rtt: some(), ..Shorthand::default() },
            Shorthand { rate: some(), ..Shorthand::default() },
            Shorthand { loss: some(), ..Shorthand::default() },
            Shorthand { queue: some(), ..Shorthand::default() },
            Shorthand { trace: some(), ..Shorthand::default() },
            Shorthand { cc: some(), ..Shorthand::default() },
            Shorthand { sysctls: vec![value.clone()], ..Shorthand::default() },
        ] {
            if let Err(error) = Topology::from_request(None, &shorthand) {
                prop_assert!(!error.to_string().contains('\n'));
            }
        }
    }
}
