use tempfile::TempDir;

use super::*;

fn job(directory: &TempDir, script: &str) -> CellTask {
    CellTask {
        lab: None,
        servers: Vec::new(),
        client: Process {
            host: "a".into(),
            argv: ["sh", "-c", script].map(str::to_owned).into(),
        },
        limit_seconds: 10,
        directory: directory.path().to_owned(),
        record: Vec::new(),
    }
}

#[test]
fn a_client_is_timed_and_its_output_kept() {
    let directory = tempfile::tempdir().unwrap();
    let job = job(&directory, "sleep 0.05; echo $HOME; pwd");
    let (seconds, failure) = client(&job).unwrap();
    assert_eq!(failure, None);
    assert!((0.05..9.0).contains(&seconds), "{seconds}");
    let place = directory.path().display();
    let output = std::fs::read_to_string(job.client_output()).unwrap();
    assert_eq!(output, format!("{place}\n{place}\n"));
}

#[test]
fn a_failure_has_its_reason() {
    let directory = tempfile::tempdir().unwrap();
    for (script, reason) in [
        (
            "echo out; echo why >&2; echo >&2; exit 3",
            "exit code 3: why",
        ),
        ("echo out; exit 3", "exit code 3: out"),
        ("echo '{\"error\": \"busy\"}'; exit 1", "exit code 1: busy"),
        ("exit 1", "exit code 1: it said nothing"),
        ("kill -9 $$", "ended by signal 9: it said nothing"),
    ] {
        let (_, failure) = client(&job(&directory, script)).unwrap();
        assert_eq!(failure.as_deref(), Some(reason), "{script}");
    }
}

#[test]
fn a_client_that_is_not_done_in_time_is_ended() {
    let directory = tempfile::tempdir().unwrap();
    let mut slow = job(&directory, "exec sleep 60");
    slow.limit_seconds = 0;
    let (seconds, failure) = client(&slow).unwrap();
    assert_eq!(failure.as_deref(), Some("not done after 0 s"));
    assert!(seconds < 30.0);
}

#[test]
fn on_a_host_a_command_goes_through_the_lab() {
    let directory = tempfile::tempdir().unwrap();
    let mut job = job(&directory, "true");
    job.lab = Some("/opt/longhaul".into());
    let command = job.command(&job.client);
    let words: Vec<_> = command
        .get_args()
        .map(|word| word.to_string_lossy())
        .collect();
    assert_eq!(command.get_program(), "/opt/longhaul");
    assert_eq!(words, ["lab", "exec", "a", "--", "sh", "-c", "true"]);
}

#[test]
fn a_server_that_gives_up_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let mut job = job(&directory, "true");
    let server = |name: &str, script: &str| Server {
        name: name.to_owned(),
        process: Process {
            host: "b".into(),
            argv: ["sh", "-c", script].map(str::to_owned).into(),
        },
        port: 0,
    };
    job.servers = vec![
        server("server-one", "echo 'port taken' >&2"),
        server("server-two", "exec sleep 60"),
    ];
    let mut started = Vec::new();
    let message = start_all(&job, &mut started).unwrap_err().to_string();
    assert_eq!(message, "the server ended before it listened: port taken");
    assert_eq!(started.len(), 2, "the other one is there to be ended");
    for mut child in started {
        process::end(&mut child).unwrap();
    }
}

#[test]
fn settings_are_read_and_those_that_are_hidden_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let mut job = job(&directory, "true");
    let keys = ["net.ipv4.tcp_rmem", "net.no_such", "kernel.ostype"].map(str::to_owned);
    job.record = vec![("a".into(), keys.into())];
    let settings = record(&job).unwrap();
    assert_eq!(settings["a: kernel.ostype"], "Linux");
    assert_eq!(settings["a: net.ipv4.tcp_rmem"].split(' ').count(), 3);
    assert_eq!(settings.len(), 2);
}

const JOB: &str = "LAB_TEST_JOB";
const PORT: &str = "LAB_TEST_PORT";

/// This test executable, as one of the tests below that are parts of another one.
fn part(name: &str) -> Vec<String> {
    let own = std::env::current_exe().unwrap().display().to_string();
    let test = format!("experiment::cell::tests::{name}");
    vec![own, "--exact".into(), "--ignored".into(), test]
}

#[test]
#[ignore = "a part of a_cell_leaves_nothing_behind"]
fn part_cell() {
    if let Ok(job) = std::env::var(JOB) {
        measure(&read(Path::new(&job)).unwrap()).unwrap();
    }
}

#[test]
#[ignore = "a part of a_cell_leaves_nothing_behind"]
fn part_server() {
    let Ok(port) = std::env::var(PORT) else {
        return;
    };
    let port: u16 = port.parse().unwrap();
    std::fs::write("server", std::process::id().to_string()).unwrap();
    // A session that outlives its server, if nobody ends it.
    let script = "setsid sh -c 'echo $$ > session; exec sleep 60' &";
    let status = Command::new("sh").args(["-c", script]).status().unwrap();
    assert!(status.success());
    let listener = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    while let Ok((connection, _)) = listener.accept() {
        drop(connection);
    }
}

#[test]
fn a_cell_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    // Below those that the system gives away: nobody takes it before the server has it.
    let port = (20_000..32_000)
        .rev()
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap();
    let script = "until test -s session; do sleep 0.01; done
        i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done; echo $i";
    let mut job = job(&directory, script);
    job.servers.push(Server {
        name: "server".into(),
        process: Process {
            host: "b".into(),
            argv: part("part_server"),
        },
        port,
    });
    let file = directory.path().join("job.json");
    std::fs::write(&file, serde_json::to_vec(&job).unwrap()).unwrap();
    let argv = part("part_cell");
    let status = Command::new(&argv[0])
        .args(&argv[1..])
        .env(JOB, &file)
        .env(PORT, port.to_string())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let outcome = std::fs::read(job.outcome_file()).unwrap();
    let outcome: Outcome = serde_json::from_slice(&outcome).unwrap();
    assert_eq!(outcome.failure, None);
    assert_eq!(
        std::fs::read_to_string(job.client_output()).unwrap(),
        "100000\n"
    );
    assert!(outcome.cpu_seconds > 0.01, "{outcome:?}");
    // Not by the port: another program may have it by now.
    for name in ["session", "server"] {
        let process = std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert!(!Path::new("/proc").join(process.trim()).exists(), "{name}");
    }
}
