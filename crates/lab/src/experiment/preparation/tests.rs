use super::*;
use crate::experiment::definition::VariantDefinition;

const EXPERIMENT: &str = r#"
title = "Throughput"
kind = "net"
measure = "goodput"
unit = "Mbit/s"
programs = { full = ["x"], quick = ["x"] }
repetitions = { full = 5, quick = 3 }
bytes = { full = "1MiB", quick = "1000B" }
limit = { full = 600, quick = 60 }
files = { "path.csv" = "0,{latency}ms" }
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

fn participant() -> Participant {
    Participant {
        key: "x".into(),
        program: ProgramDefinition::parse("x.toml", PROGRAM).unwrap(),
        binaries: [("tool".to_owned(), "/bin/x".to_owned())].into(),
        variant: VariantDefinition::default(),
    }
}

fn prepare(
    experiment: &str,
    participant: &Participant,
    at: [&str; 2],
) -> (Scratch, Result<PreparedRun, LabError>) {
    let definition = ExperimentDefinition::parse("t.toml", experiment).unwrap();
    let scratch = Scratch::new().unwrap();
    let at = [("latency", at[0]), ("dest", at[1])].map(|(k, v)| (k.to_owned(), v.to_owned()));
    let setup = RunSetup {
        name: "t",
        definition: &definition,
        mode: Mode::Quick,
        lab_program: Path::new("/opt/longhaul-lab"),
        scratch: &scratch,
        interrupts: &Interrupts::block().unwrap(),
    };
    let prepared = setup.prepare(participant, &at.into(), 7, true);
    (scratch, prepared.map(Option::unwrap))
}

#[test]
fn a_point_becomes_a_network_files_and_command_lines() {
    let (scratch, prepared) = prepare(EXPERIMENT, &participant(), ["0.5", "memory"]);
    let prepared = prepared.unwrap();
    let file = scratch.served().join("1000.dat");
    assert_eq!(
        (file.metadata().unwrap().len(), prepared.bytes),
        (1000, 1000)
    );
    let (received, bytes) = (scratch.sink(), 1000);
    assert_eq!(
        prepared.arrival,
        Some(ArrivalCheck::Size { received, bytes })
    );
    let task = &prepared.task;
    assert_eq!(task.lab.as_deref(), Some(Path::new("/opt/longhaul-lab")));
    assert_eq!(task.limit_seconds, 60);
    let server = &task.servers[0];
    assert_eq!(
        (&*server.name, server.port, &*server.command.host),
        ("server", 2811, "b")
    );
    let root = path_text(&scratch.served());
    assert_eq!(server.command.argv, ["serve", "10.99.0.2", "2811", &root]);
    let (url, sink) = (
        format!("ftp://10.99.0.2:2811{}", file.display()),
        path_text(&scratch.sink()),
    );
    let expected = ["/bin/x", "--rate", "0.6", &url, "1000.dat", &sink];
    assert_eq!(task.client.argv, expected);
    let read = |name: &str| std::fs::read_to_string(task.directory.join(name)).unwrap();
    assert_eq!(read("x.conf"), "port=2811\nbytes=1000\n");
    assert_eq!(read("path.csv"), "0,0.5ms");
    let topology: toml::Table = read("topology.toml").parse().unwrap();
    assert_eq!(topology["default"]["rtt"].as_str(), Some("1ms"));
}

#[test]
fn the_settings_that_the_experiment_sets_are_recorded_for_their_hosts() {
    let (_scratch, prepared) = prepare(EXPERIMENT, &participant(), ["5", "nowhere"]);
    let prepared = prepared.unwrap();
    assert_eq!(prepared.arrival, None);
    let [(a, of_a), (b, of_b)] = prepared.task.record.as_slice() else {
        panic!("{:?}", prepared.task.record);
    };
    assert_eq!((a.as_str(), b.as_str()), ("a", "b"));
    for keys in [of_a, of_b] {
        for key in [
            "net.ipv4.tcp_sack",
            "net.ipv4.tcp_rmem",
            "net.core.wmem_max",
        ] {
            assert_eq!(
                keys.iter().filter(|known| *known == key).count(),
                1,
                "{key}"
            );
        }
    }
}

#[test]
fn on_loopback_the_port_is_free_and_no_setting_is_recorded() {
    let network = EXPERIMENT.find("[network]").unwrap();
    let experiment = EXPERIMENT[..network].replace("\"net\"", "\"loopback\"");
    let (_scratch, prepared) = prepare(&experiment, &participant(), ["5", "memory"]);
    let PreparedRun { task, topology, .. } = prepared.unwrap();
    assert!(topology.is_none() && task.lab.is_none() && task.record.is_empty());
    let server = &task.servers[0];
    let expected = ["127.0.0.1".to_owned(), server.port.to_string()];
    assert_eq!(server.command.argv[1..3], expected);
    TcpListener::bind((Ipv4Addr::LOCALHOST, server.port)).unwrap();
}

#[test]
fn errors_name_the_experiment_and_the_key() {
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
        let experiment = EXPERIMENT.replace(from, to);
        let (_scratch, prepared) = prepare(&experiment, &participant(), ["5", "memory"]);
        let message = prepared.unwrap_err().to_string();
        assert!(
            message.starts_with("t: ") && message.contains(named),
            "{message}"
        );
    }
    let mut unknown = participant();
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
    let hosts = "[network.hosts.c]\n[network.default]";
    let experiment = EXPERIMENT.replace("[network.default]", hosts);
    let program = r#"
label = "X"
[servers.source]
host = "b"
argv = ["serve", "{host}:{port}"]
ready = ["ask", "{host}:{port}"]
[servers.beside]
host = "b"
argv = ["watch", "{host}:{port}"]
[servers.destination]
host = "c"
argv = ["serve", "{host}:{port}", "{inbox}"]
[client]
host = "a"
argv = ["cp", "{host.source}:{port.source}", "{host.destination}:{port.destination}"]
"#;
    let mut third_party = participant();
    third_party.program = ProgramDefinition::parse("x.toml", program).unwrap();
    let (scratch, prepared) = prepare(&experiment, &third_party, ["5", "nowhere"]);
    let task = prepared.unwrap().task;
    let summary = |server: &ServerTask| {
        format!(
            "{} {} {}",
            server.name,
            server.command.host,
            server.command.argv.join(" ")
        )
    };
    let servers: Vec<String> = task.servers.iter().map(summary).collect();
    // Addresses follow the order of the network's hosts, servers the order of their names.
    let inbox = path_text(&scratch.inbox());
    let destination = format!("server-destination c serve 10.99.0.3:2811 {inbox}");
    assert_eq!(
        servers,
        [
            "server-beside b watch 10.99.0.2:2811".to_owned(),
            destination,
            "server-source b serve 10.99.0.2:2812".to_owned()
        ]
    );
    let ready = task.servers.iter().map(|server| server.ready.as_ref());
    let asked: Vec<_> = ready.map(|ready| Some(&ready?.argv[..])).collect();
    let source = ["ask", "10.99.0.2:2812"].map(str::to_owned);
    assert_eq!(asked, [None, None, Some(&source[..])]);
    assert_eq!(task.servers[2].ready.as_ref().unwrap().host, "b");
    assert_eq!(task.client.argv[1..], ["10.99.0.2:2812", "10.99.0.3:2811"]);
}

#[test]
fn variants_and_values_of_an_axis_have_settings_and_a_size_of_their_own() {
    let mut limited = participant();
    limited.variant.sets = [("p".to_owned(), "{8*latency}".to_owned())].into();
    limited.variant.quick_largest = Some("500B".into());
    let experiment = EXPERIMENT
        .replace("[parameters]", "[parameters]\np = \"1\"")
        .replace(
            "key = \"latency\"",
            "key = \"latency\"\nsets.\"5\".bytes = \"2000B\"",
        );
    let (_scratch, prepared) = prepare(&experiment, &limited, ["0.5", "nowhere"]);
    let prepared = prepared.unwrap();
    assert_eq!((prepared.bytes, prepared.is_cut), (500, true));
    assert_eq!(prepared.task.client.argv[..3], ["/bin/x", "-p", "4"]);
    let (_scratch, prepared) = prepare(&experiment, &participant(), ["5", "nowhere"]);
    assert_eq!(prepared.unwrap().bytes, 2000);
}
