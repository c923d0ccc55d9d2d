use tempfile::TempDir;

use super::*;

fn shell(script: &str) -> HostCommand {
    HostCommand {
        host: "a".into(),
        argv: ["sh", "-c", script].map(str::to_owned).into(),
    }
}

fn task(directory: &TempDir, script: &str) -> CellTask {
    CellTask {
        lab: None,
        servers: Vec::new(),
        client: shell(script),
        limit_seconds: 10,
        directory: directory.path().to_owned(),
        record: Vec::new(),
    }
}

#[test]
fn a_client_is_timed_and_its_output_is_saved() {
    let directory = tempfile::tempdir().unwrap();
    let task = task(&directory, "sleep 0.05; echo $HOME; pwd");
    let (seconds, failure) = run_client(&task).unwrap();
    assert!(
        failure.is_none() && (0.05..9.0).contains(&seconds),
        "{seconds}"
    );
    let place = directory.path().display();
    let output = std::fs::read_to_string(task.client_output()).unwrap();
    assert_eq!(output, format!("{place}\n{place}\n"));
}

#[test]
fn a_failed_client_reports_its_exit_status_and_last_message() {
    let directory = tempfile::tempdir().unwrap();
    for (script, reason) in [
        (
            "echo out; echo why >&2; echo >&2; exit 3",
            "exit code 3: why",
        ),
        ("echo out; exit 3", "exit code 3: out"),
        ("echo '{\"error\": \"busy\"}'; exit 1", "exit code 1: busy"),
        ("exit 1", "exit code 1: it printed no message"),
        ("kill -9 $$", "ended by signal 9: it printed no message"),
    ] {
        let (_, failure) = run_client(&task(&directory, script)).unwrap();
        assert_eq!(failure.as_deref(), Some(reason), "{script}");
    }
    let mut slow = task(&directory, "exec sleep 60");
    slow.limit_seconds = 0;
    let (seconds, failure) = run_client(&slow).unwrap();
    assert_eq!(failure.as_deref(), Some("not done after 0 s"));
    assert!(seconds < 30.0);
}

#[test]
fn in_a_lab_a_command_runs_through_lab_exec() {
    let directory = tempfile::tempdir().unwrap();
    let mut task = task(&directory, "true");
    task.lab = Some("/opt/longhaul-lab".into());
    let command = task.command(&task.client);
    let words: Vec<_> = command.get_args().collect();
    assert_eq!(command.get_program(), "/opt/longhaul-lab");
    assert_eq!(words, ["exec", "a", "--", "sh", "-c", "true"]);
}

#[test]
fn a_server_that_exits_before_it_listens_is_an_error_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut task = task(&directory, "true");
    let server = |name: &str, script: &str| ServerTask {
        name: name.to_owned(),
        command: shell(script),
        port: 0,
        ready: None,
    };
    let fails = server("server-one", "echo 'port taken' >&2");
    task.servers = vec![fails, server("server-two", "exec sleep 60")];
    let mut started = Vec::new();
    let message = servers::start(&task, &mut started).unwrap_err().to_string();
    assert_eq!(message, "the server ended before it listened: port taken");
    assert_eq!(started.len(), 2, "the caller can terminate both servers");
    for mut child in started {
        process::terminate(&mut child).unwrap();
    }
}

/// A server that is ready when `ready` succeeds. It listens on the port of `listener`, as far as the tables of
/// the network namespace tell.
fn server_with_condition(
    listener: &std::net::TcpListener,
    script: &str,
    ready: &str,
) -> ServerTask {
    ServerTask {
        name: "server".into(),
        command: shell(script),
        port: listener.local_addr().unwrap().port(),
        ready: Some(shell(ready)),
    }
}

#[test]
fn a_server_is_asked_again_until_it_is_ready() {
    let directory = tempfile::tempdir().unwrap();
    let mut task = task(&directory, "true");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ready = "echo asked >> asked; test $(wc -l < asked) -ge 3";
    task.servers = vec![server_with_condition(&listener, "exec sleep 60", ready)];
    let mut started = Vec::new();
    servers::start(&task, &mut started).unwrap();
    let asked = std::fs::read_to_string(directory.path().join("asked")).unwrap();
    assert_eq!(asked.lines().count(), 3);
    process::terminate(&mut started[0]).unwrap();
}

#[test]
fn a_server_that_exits_before_it_is_ready_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let mut task = task(&directory, "true");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // It ends as soon as it was asked, so that it listened before.
    let script = "until test -e asked; do sleep 0.01; done; echo broken >&2; exit 1";
    let ready = "touch asked; false";
    task.servers = vec![server_with_condition(&listener, script, ready)];
    let message = servers::start(&task, &mut Vec::new()).unwrap_err();
    let expected = "the server ended before it was ready: broken";
    assert_eq!(message.to_string(), expected);
}

#[test]
fn settings_are_read_and_hidden_ones_are_omitted() {
    let directory = tempfile::tempdir().unwrap();
    let mut task = task(&directory, "true");
    let keys = ["net.ipv4.tcp_rmem", "net.no_such", "kernel.ostype"].map(str::to_owned);
    task.record = vec![("a".into(), keys.into())];
    let settings = read_settings(&task).unwrap();
    assert_eq!(settings["a: kernel.ostype"], "Linux");
    assert_eq!(settings["a: net.ipv4.tcp_rmem"].split(' ').count(), 3);
    assert_eq!(settings.len(), 2);
}

const JOB: &str = "LAB_TEST_JOB";
const PORT: &str = "LAB_TEST_PORT";

/// Returns the command line that runs one ignored test of this executable: a part of another test.
fn part(name: &str) -> Vec<String> {
    let own = std::env::current_exe().unwrap().display().to_string();
    let test = format!("experiment::cell::tests::{name}");
    vec![own, "--exact".into(), "--ignored".into(), test]
}

#[test]
#[ignore = "a part of a_cell_leaves_nothing_behind"]
fn part_cell() {
    if let Ok(job) = std::env::var(JOB) {
        run_task(&read(Path::new(&job)).unwrap()).unwrap();
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
    // This process leaves the server's session (setsid(2)), so that it outlives the server unless it is found.
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
    // The port is below the ephemeral range, so that no other program is given it before the server binds it.
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port = (20_000..32_000).rev().find(is_free).unwrap();
    let script = "until test -s session; do sleep 0.01; done
        i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done; echo $i";
    let mut task = task(&directory, script);
    task.servers.push(ServerTask {
        name: "server".into(),
        command: HostCommand {
            host: "b".into(),
            argv: part("part_server"),
        },
        port,
        ready: None,
    });
    let file = directory.path().join("job.json");
    std::fs::write(&file, serde_json::to_vec(&task).unwrap()).unwrap();
    let argv = part("part_cell");
    let mut command = Command::new(&argv[0]);
    command
        .args(&argv[1..])
        .env(JOB, &file)
        .env(PORT, port.to_string());
    assert!(command.stdout(Stdio::null()).status().unwrap().success());
    let outcome = std::fs::read(task.outcome_file()).unwrap();
    let outcome: CellOutcome = serde_json::from_slice(&outcome).unwrap();
    assert!(
        outcome.failure.is_none() && outcome.cpu_seconds > 0.01,
        "{outcome:?}"
    );
    assert_eq!(
        std::fs::read_to_string(task.client_output()).unwrap(),
        "100000\n"
    );
    // The processes are checked by their ids, because another program may have taken the port by now.
    for name in ["session", "server"] {
        let process = std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert!(!Path::new("/proc").join(process.trim()).exists(), "{name}");
    }
}
