use super::*;
use crate::experiment::program::ProgramDefinition;
use crate::experiment::variant::VariantDefinition;

const EXPERIMENT: &str = r#"
title = "Throughput"
kind = "net"
measure = "goodput"
unit = "Mbit/s"
programs = { full = ["x"], quick = ["x"] }
repetitions = { full = 5, quick = 3 }
bytes = { full = "1MiB", quick = "1000B" }
limit = { full = 600, quick = 60 }
[across]
key = "latency"
label = "latency"
full = ["0.5", "5"]
quick = ["5"]
[down]
key = "dest"
label = "destination"
full = ["nowhere", "memory"]
quick = ["memory"]
means = { nowhere = "/dev/null", memory = "{sink}" }
[parameters]
offered = "{1.2*latency}"
[network]
cc = "cubic"
[network.sysctl]
"net.ipv4.tcp_sack" = "1"
[network.hosts.a]
[network.hosts.b.sysctl]
"net.core.wmem_max" = "4194304"
[network.default]
rtt = "{2*latency}ms"
"#;

const PROGRAM: &str = r#"
label = "X"
[server]
host = "b"
argv = ["serve", "{host}", "{port}", "{root}"]
files = { "x.conf" = "port={port}\nbytes={bytes}\n" }
[client]
host = "a"
argv = ["{tool}", ["-p", "{p}"], "--rate", "{offered}", "ftp://{host}:{port}{file}", "{name}", "{dest}"]
"#;

fn entrant() -> Entrant {
    Entrant {
        key: "x".into(),
        program: ProgramDefinition::parse("x.toml", PROGRAM).unwrap(),
        binaries: [("tool".to_owned(), "/bin/x".to_owned())].into(),
        variant: None,
    }
}

fn prepare(text: &str, entrant: &Entrant, at: [&str; 2]) -> (Scratch, Result<Prepared, LabError>) {
    let definition = Definition::parse("t.toml", text).unwrap();
    let scratch = Scratch::new().unwrap();
    let at: At = [("latency", at[0]), ("dest", at[1])]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
    let setup = Setup {
        name: "t",
        definition: &definition,
        mode: Mode::Quick,
        longhaul: Path::new("/opt/longhaul"),
        scratch: &scratch,
        interrupts: &Interrupts::hold().unwrap(),
    };
    let prepared = setup.prepare(entrant, &at, 7, true);
    (scratch, prepared.map(Option::unwrap))
}

#[test]
fn a_point_becomes_a_network_and_command_lines() {
    let (scratch, prepared) = prepare(EXPERIMENT, &entrant(), ["0.5", "memory"]);
    let prepared = prepared.unwrap();
    let file = scratch.served().join("1000.dat");
    assert_eq!(file.metadata().unwrap().len(), 1000);
    assert_eq!(prepared.bytes, 1000);
    assert_eq!(prepared.received, Some(scratch.sink()));
    let job = &prepared.job;
    assert_eq!(job.lab.as_deref(), Some(Path::new("/opt/longhaul")));
    assert_eq!(job.limit_seconds, 60);
    let [server] = job.servers.as_slice() else {
        panic!("{:?}", job.servers);
    };
    assert_eq!((&*server.name, server.port), ("server", 2811));
    assert_eq!(server.process.host, "b");
    assert_eq!(
        server.process.argv,
        ["serve", "10.99.0.2", "2811", &text(&scratch.served())]
    );
    assert_eq!(
        job.client.argv,
        [
            "/bin/x",
            "--rate",
            "0.6",
            &format!("ftp://10.99.0.2:2811{}", file.display()),
            "1000.dat",
            &text(&scratch.sink()),
        ]
    );
    let written = std::fs::read_to_string(job.directory.join("x.conf")).unwrap();
    assert_eq!(written, "port=2811\nbytes=1000\n");
    let topology = std::fs::read_to_string(prepared.topology.unwrap()).unwrap();
    let topology: toml::Table = topology.parse().unwrap();
    assert_eq!(topology["default"]["rtt"].as_str(), Some("1ms"));
}

#[test]
fn the_settings_that_the_experiment_changes_are_noted_on_their_hosts() {
    let (_scratch, prepared) = prepare(EXPERIMENT, &entrant(), ["5", "nowhere"]);
    let prepared = prepared.unwrap();
    assert_eq!(prepared.received, None);
    let [(a, of_a), (b, of_b)] = prepared.job.record.as_slice() else {
        panic!("{:?}", prepared.job.record);
    };
    assert_eq!((a.as_str(), b.as_str()), ("a", "b"));
    for keys in [of_a, of_b] {
        assert!(keys.iter().any(|key| key == "net.ipv4.tcp_sack"));
        assert!(
            keys.iter()
                .any(|key| key == "net.ipv4.tcp_congestion_control")
        );
        assert_eq!(
            keys.iter()
                .filter(|key| *key == "net.core.wmem_max")
                .count(),
            1
        );
    }
}

#[test]
fn on_loopback_the_port_is_free_and_nothing_is_noted() {
    let network = EXPERIMENT.find("[network]").unwrap();
    let text = EXPERIMENT[..network].replace("\"net\"", "\"loopback\"");
    let (_scratch, prepared) = prepare(&text, &entrant(), ["5", "memory"]);
    let prepared = prepared.unwrap();
    assert!(prepared.topology.is_none() && prepared.job.lab.is_none());
    assert!(prepared.job.record.is_empty());
    let server = &prepared.job.servers[0];
    assert_eq!(
        server.process.argv[1..3],
        ["127.0.0.1".to_owned(), server.port.to_string()]
    );
    TcpListener::bind((Ipv4Addr::LOCALHOST, server.port)).unwrap();
}

#[test]
fn mistakes_name_experiment_and_place() {
    for (from, to, named) in [
        ("{2*latency}ms", "{2*letency}ms", "key 'network'"),
        ("{1.2*latency}", "{latncy}", "key 'parameters.offered'"),
        ("memory = \"{sink}\"", "memory = \"{sunk}\"", "key 'dest'"),
        (
            "[network.hosts.b.sysctl]",
            "[network.hosts.c.sysctl]",
            "no host 'b'",
        ),
    ] {
        let (_scratch, prepared) =
            prepare(&EXPERIMENT.replace(from, to), &entrant(), ["5", "memory"]);
        let message = prepared.unwrap_err().to_string();
        assert!(
            message.starts_with("t: ") && message.contains(named),
            "{message}"
        );
    }
    let mut unknown = entrant();
    unknown.binaries.clear();
    let (_scratch, prepared) = prepare(EXPERIMENT, &unknown, ["5", "memory"]);
    let message = prepared.unwrap_err().to_string();
    assert!(
        message.contains("argv of X") && message.contains("{tool}"),
        "{message}"
    );
}

#[test]
fn several_servers_have_hosts_and_ports_of_their_own() {
    let text = EXPERIMENT.replace("[network.default]", "[network.hosts.c]\n[network.default]");
    let program = r#"
label = "X"
[servers.source]
host = "b"
argv = ["serve", "{host}:{port}"]
[servers.destination]
host = "c"
argv = ["serve", "{host}:{port}", "{inbox}"]
[client]
host = "a"
argv = ["cp", "{host.source}:{port.source}", "{host.destination}:{port.destination}"]
trace = "samples"
"#;
    let mut third_party = entrant();
    third_party.program = ProgramDefinition::parse("x.toml", program).unwrap();
    let (scratch, prepared) = prepare(&text, &third_party, ["5", "nowhere"]);
    let prepared = prepared.unwrap();
    let servers: Vec<(&str, &str, &[String])> = prepared
        .job
        .servers
        .iter()
        .map(|s| (&*s.name, &*s.process.host, s.process.argv.as_slice()))
        .collect();
    let inbox = super::text(&scratch.inbox());
    // Hosts have addresses in the order of the network, servers come in that of their names.
    assert_eq!(
        servers,
        [
            (
                "server-destination",
                "c",
                &["serve".to_owned(), "10.99.0.3:2811".into(), inbox][..]
            ),
            (
                "server-source",
                "b",
                &["serve".to_owned(), "10.99.0.2:2811".into()][..]
            ),
        ]
    );
    assert_eq!(
        prepared.job.client.argv[1..],
        ["10.99.0.2:2811", "10.99.0.3:2811"]
    );
    assert_eq!(prepared.trace, Some(prepared.job.directory.join("samples")));
}

#[test]
fn a_variant_has_its_settings_and_at_most_its_largest_file() {
    let mut variant = entrant();
    variant.variant = Some(VariantDefinition {
        program: "x".into(),
        label: "Y".into(),
        sets: [("p".to_owned(), "{8*latency}".to_owned())].into(),
        quick_largest: Some("500B".into()),
        ..VariantDefinition::default()
    });
    let text = EXPERIMENT.replace("[parameters]", "[parameters]\np = \"1\"");
    let (_scratch, prepared) = prepare(&text, &variant, ["0.5", "nowhere"]);
    let prepared = prepared.unwrap();
    assert_eq!((prepared.bytes, prepared.cut), (500, true));
    assert_eq!(prepared.job.client.argv[..3], ["/bin/x", "-p", "4"]);
}

#[test]
fn a_value_of_an_axis_may_set_more_than_itself() {
    let text = EXPERIMENT.replace(
        "quick = [\"5\"]",
        "quick = [\"5\"]\nsets.\"5\" = { bytes = \"2000B\", cc = \"reno\" }",
    );
    let text = text.replace("cc = \"cubic\"", "cc = \"{cc}\"");
    let (_scratch, prepared) = prepare(&text, &entrant(), ["5", "nowhere"]);
    let prepared = prepared.unwrap();
    assert_eq!((prepared.bytes, prepared.cut), (2000, false));
    let topology = std::fs::read_to_string(prepared.topology.unwrap()).unwrap();
    assert!(topology.contains("cc = \"reno\""), "{topology}");
    let (_scratch, other) = prepare(&text, &entrant(), ["0.5", "nowhere"]);
    assert!(other.unwrap_err().to_string().contains("{cc}"));
}
