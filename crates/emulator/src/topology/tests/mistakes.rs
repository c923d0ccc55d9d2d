//! Invalid topologies, and their error messages.

use super::*;

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
        "loss: '101%' is too large; the maximum is 100%",
    ),
    (
        "[default]\nloss = 1",
        "loss: '1' may mean 1% or 100%; write one of the two",
    ),
    (
        "[default]\nrtt = '61s'",
        "rtt: 61 s is too long; the maximum is 60 s",
    ),
    ("[default]\ndelay = '31s'", "delay: 31 s is too long"),
    ("[default]\nrtt = 5\ndelay = 2", "rtt: delay is set as well"),
    (
        "[default]\nloss = 0.1\nburst_loss = {to_bad=0,to_good=0,in_good=0,in_bad=0}",
        "loss is set as well",
    ),
    (
        "[default]\nburst_loss = {to_bad=0,to_good=0,in_good=0,in_bad=2}",
        "in_bad: '2' is too large",
    ),
    ("[default]\nburst_loss = {to_bad=0}", "missing field"),
    ("[default]\nqueue = 0", "a queue of 0 would drop"),
    (
        "[default]\nqueue = '5 apples'",
        "'5 apples' is not a queue; write it like",
    ),
    (
        "[default]\nqueue = '1000B'",
        "path a-b: queue: a queue of 1000 bytes would pass no packet",
    ),
    (
        "[default]\nqueue = '1bdp'",
        "path a-b: queue: a queue in bdp needs a rate",
    ),
    (
        "[default]\nforward = { rtt = 5 }",
        "a direction has no round trip; use delay",
    ),
    (
        "[default]\nforward = { back = {} }",
        "a direction has no between, forward or back",
    ),
    (
        "[default]\nbetween = ['a', 'b']",
        "default applies to all paths",
    ),
    (
        "[default]\nrate = 5000\ntrace = 'drsftp-path'",
        "the trace sets the rate",
    ),
    (
        "[default]\ntrace = 'drsftp-path'\n[[paths]]\nbetween=['a','b']\nrtt = 5",
        "the trace sets the rtt",
    ),
    (
        "[default]\ntrace = \"seconds,loss\\n0,2\"",
        "line 2: default: trace: line 2: loss",
    ),
    (
        "[default]\ntrace = 'drsftp-wan'\ntrace_start = 'noon'",
        "line 3: default: trace_start: 'noon' is not a whole number of seconds",
    ),
    (
        "[default]\ntrace_start = 5",
        "trace_start: there is no trace in this table",
    ),
    (
        "[default]\ntrace = \"seconds,rtt\\n0,70s\"",
        "trace: rtt: 70 s is too long",
    ),
    ("[[paths]]\nrate = 5000", "line 1: a path needs between"),
    ("[[paths]]\nbetween = ['a']", "a path has two ends"),
    (
        "[[paths]]\nbetween = ['a', 'c']",
        "line 2: between: there is no host 'c'; the hosts are a, b",
    ),
    (
        "[[paths]]\nbetween = ['a', 'a']",
        "'a' cannot have a path to itself",
    ),
    (
        "[[paths]]\nbetween=['a','b']\n[[paths]]\nbetween=['b','a']",
        "line 3: between: the path a-b has a table already",
    ),
    ("[hosts.a]", "define at least two"),
    ("[hosts.A]\n[hosts.b]", "host 'A': a name is at most 32"),
    ("[hosts.1a]\n[hosts.b]", "a letter first"),
    ("[hosts.'a b']\n[hosts.b]", "host 'a b'"),
    ("[hosts.hosts]\n[hosts.b]", "LAB_HOSTS has another meaning"),
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
        "sysctl: 'kernel.panic' is not a network setting",
    ),
    ("sysctl.'net/../kernel' = 1", "is not a network setting"),
    ("sysctl.'net.../x' = 1", "is not a network setting"),
    ("sysctl.'net..x' = 1", "is not a network setting"),
    (
        "sysctl.net.x = 1.5",
        "net.x: write the value as a number or as text",
    ),
    ("sysctl.net.x = \"1\\n2\"", "the value must be one line"),
    ("a = [", "line 1"),
];

#[test]
fn invalid_topologies_are_refused_with_one_line() {
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
    assert!(refused(&hosts(27)).contains("27 hosts are too many; the maximum is 26"));
}

#[test]
fn address_variables_are_upper_case() {
    let topology = parse("[hosts.far-end2]\n[hosts.b]");
    assert_eq!(address_variable(&topology.hosts[0].name), "LAB_FAR_END2");
    assert_eq!(address_variable(&topology.hosts[1].name), "LAB_B");
}

#[test]
fn errors_name_the_option_or_the_file() {
    let message = |options: NetworkOptions| {
        let error = Topology::from_options(None, &options).unwrap_err();
        error.to_string()
    };
    let blank = NetworkOptions::default;
    let bad_rate = message(NetworkOptions {
        rate: Some("0".into()),
        ..blank()
    });
    assert!(bad_rate.starts_with("--rate: a rate of 0"), "{bad_rate}");
    let bad_setting = message(NetworkOptions {
        sysctls: vec!["net.ipv4.tcp_sack".into()],
        ..blank()
    });
    assert!(bad_setting.starts_with("--sysctl: "), "{bad_setting}");
    let bad_name = message(NetworkOptions {
        cc: Some("a b".into()),
        ..blank()
    });
    assert!(bad_name.starts_with("--cc: "), "{bad_name}");
    let both = message(NetworkOptions {
        rtt: Some("5ms".into()),
        trace: Some("drsftp-wan".into()),
        ..blank()
    });
    assert!(both.starts_with("--rtt: the trace sets the rtt"), "{both}");

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
