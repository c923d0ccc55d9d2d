//! Operation of the server: logs, shutdown, configuration errors.

use std::fs::Permissions;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use interop::longhaul::binary::longhaul;
use interop::longhaul::copy::{self, cp};
use interop::longhaul::rows::path_argument;
use interop::longhaul::running_copy::RunningCopy;
use interop::longhaul::serve::{ServeCommand, add_user};
use interop::matrix::{self, TestStore};
use interop::peer;
use interop::peer::globus_url_copy::{GlobusUrlCopy, file_url};
use interop::prerequisite;
use interop::require;
use interop::run;
use interop::test_files;
use rustix::process::Signal;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

/// Waits until the server refuses new connections.
fn wait_until_refused(address: SocketAddr) -> Result<()> {
    let start = Instant::now();
    while TcpStream::connect(address).is_ok() {
        ensure!(
            start.elapsed() < LIMIT,
            "{address} still accepts connections"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[test]
fn both_transfer_logs_have_a_record_of_each_transfer() {
    let client = require!(GlobusUrlCopy::find());
    let store = TestStore::new().unwrap();
    let (json, classic) = (store.path("transfers.json"), store.path("transfers.log"));
    let server = ServeCommand::anonymous(store.root())
        .option("--transfer-log", &path_argument(&json))
        .option("--ftp-info-log", &path_argument(&classic))
        .start()
        .unwrap();
    let to = file_url(&store.local());
    client
        .copy(&["-p", "4"], &server.url("src/f65536"), &to)
        .unwrap();
    let from = file_url(&test_files::shared(65_535).unwrap());
    client
        .copy::<&str>(&[], &from, &server.url("up/a"))
        .unwrap();
    client
        .copy::<&str>(&[], &server.url("src/none"), &to)
        .unwrap_err();
    drop(server);

    let records: Vec<Value> = std::fs::read_to_string(&json)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let moved: Vec<u64> = records
        .iter()
        .filter_map(|record| record["bytes"].as_u64())
        .collect();
    assert!(
        moved.contains(&65_536) && moved.contains(&65_535),
        "{records:?}"
    );

    let classic = std::fs::read_to_string(&classic).unwrap();
    let fields = [
        "DATE=",
        "HOST=",
        "PROG=",
        "NL.EVNT=FTP_INFO",
        "START=",
        "USER=",
        "FILE=",
        "BUFFER=",
        "BLOCK=",
        "NBYTES=",
        "VOLUME=",
        "STREAMS=",
        "STRIPES=",
        "DEST=",
        "TYPE=",
        "CODE=",
    ];
    for line in classic.lines() {
        for field in fields {
            assert!(line.contains(field), "no {field} in {line}");
        }
    }
    for part in [
        "NBYTES=65536 ",
        "STREAMS=4 ",
        "TYPE=RETR CODE=226",
        "TYPE=STOR CODE=226",
    ] {
        assert!(classic.contains(part), "no {part} in:\n{classic}");
    }
}

#[test]
fn after_sigterm_a_running_transfer_finishes() -> Result<()> {
    let store = TestStore::new()?;
    let mut server = ServeCommand::anonymous(store.root()).start()?;
    let local = store.local();
    let (url, to) = (
        server.url(&format!("src/{}", test_files::name(test_files::LARGE))),
        path_argument(&local),
    );
    let slow = ["--retries", "0", "--limit-rate", "400M", &url, &to];
    let mut copy = RunningCopy::start(copy::command(&slow)?)?;
    copy.wait_until_safe(10_000_000)?;
    server.guard().signal(Signal::TERM)?;
    wait_until_refused(server.address())?;
    copy::run(&["--retries", "0", &url, &path_argument(&store.local())])?.expect_code(5)?;
    let status = copy.wait_for_end()?;
    ensure!(
        status.success(),
        "the running transfer ended with {status}\n{}",
        server.log()
    );
    let ended = server.guard().wait(LIMIT)?;
    ensure!(
        ended.is_some_and(|status| status.success()),
        "the server: {ended:?}"
    );
    matrix::check_and_remove(&test_files::shared(test_files::LARGE)?, &local)
}

#[test]
fn after_a_second_sigterm_the_server_exits_immediately() -> Result<()> {
    let store = TestStore::new()?;
    let mut server = ServeCommand::anonymous(store.root()).start()?;
    let (url, to) = (
        server.url(&format!("src/{}", test_files::name(test_files::LARGE))),
        path_argument(&store.local()),
    );
    let slow = ["--retries", "0", "--limit-rate", "80M", &url, &to];
    let mut copy = RunningCopy::start(copy::command(&slow)?)?;
    copy.wait_until_safe(1_000_000)?;
    server.guard().signal(Signal::TERM)?;
    wait_until_refused(server.address())?;
    ensure!(
        server.guard().wait(Duration::ZERO)?.is_none(),
        "the server did not wait for the transfer"
    );
    server.guard().signal(Signal::TERM)?;
    let ended = server.guard().wait(LIMIT)?;
    ensure!(
        ended.is_some(),
        "the server still runs after the second SIGTERM"
    );
    ensure!(
        copy.wait_for_end()?.code() == Some(5),
        "the client did not notice"
    );
    Ok(())
}

#[test]
fn a_copy_interrupted_by_sigint_exits_with_130_and_can_be_resumed() -> Result<()> {
    let store = TestStore::new()?;
    let server = ServeCommand::anonymous(store.root()).start()?;
    let local = store.local();
    let (url, to) = (
        server.url(&format!("src/{}", test_files::name(test_files::LARGE))),
        path_argument(&local),
    );
    let mut copy = RunningCopy::start(copy::command(&["--limit-rate", "240M", &url, &to])?)?;
    copy.wait_until_safe(20_000_000)?;
    copy.signal(Signal::INT)?;
    let status = copy.wait_for_end()?;
    ensure!(status.code() == Some(130), "{status} instead of code 130");
    ensure!(!local.exists(), "a partial file has the final name");
    let resumed = cp(&["--resume", &url, &to])?;
    ensure!(
        resumed.bytes <= test_files::LARGE - 10_000_000,
        "{resumed:?}"
    );
    matrix::check_and_remove(&test_files::shared(test_files::LARGE)?, &local)
}

#[test]
fn an_occupied_port_or_a_missing_root_gives_an_error() -> Result<()> {
    let store = TestStore::new()?;
    let server = ServeCommand::anonymous(store.root()).start()?;
    let taken = server.address().to_string();
    let root = path_argument(store.root());
    let missing = path_argument(&store.path("none"));
    for arguments in [
        ["--listen", &taken, "--root", &root],
        ["--listen", "127.0.0.1:0", "--root", &missing],
    ] {
        let mut command = longhaul()?;
        command
            .arg("serve")
            .args(arguments)
            .args(["--anonymous", "ro"]);
        let finished = run::run_within(&mut command, LIMIT)?.expect_failure()?;
        ensure!(
            !finished.stderr_text().is_empty() && finished.code != Some(101),
            "{finished}"
        );
    }
    Ok(())
}

#[test]
fn run_as_drops_root_and_warns_if_the_users_file_becomes_unreadable() -> Result<()> {
    const ACCOUNT: &str = "nobody";
    let store = TestStore::new()?;
    let users = store.path("users");
    add_user(&users, store.root())?;
    let serve = || {
        ServeCommand::new(store.root())
            .option("--users", &path_argument(&users))
            .option("--run-as", ACCOUNT)
    };
    if !peer::is_root() {
        ensure!(
            serve().start().is_err(),
            "the server switched the account without root"
        );
        return Ok(());
    }
    let warning = "need a restart";
    let mut server = serve().start()?;
    ensure!(server.log().contains(warning), "{}", server.log());
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.guard().child().id()))?;
    ensure!(
        status.contains("Uid:\t65534\t65534\t65534\t65534"),
        "{status}"
    );
    drop(server);
    std::os::unix::fs::chown(&users, Some(65_534), Some(65_534))?;
    let server = serve().start()?;
    ensure!(!server.log().contains(warning), "{}", server.log());
    Ok(())
}

#[test]
fn root_that_may_not_write_the_files_of_others_starts_a_server_with_the_logs_of_its_account()
-> Result<()> {
    let root = peer::is_root().then_some(());
    let root =
        root.ok_or_else(|| "root is needed to start a server for another account".to_owned());
    if prerequisite::or_skip(root).is_none() {
        return Ok(());
    }
    let store = TestStore::new()?;
    let logs = store.path("logs");
    std::fs::create_dir(&logs)?;
    std::fs::set_permissions(&logs, Permissions::from_mode(0o700))?;
    std::os::unix::fs::chown(&logs, Some(65_534), Some(65_534))?;
    let log = logs.join("transfers.jsonl");
    // The second server finds a log that is not root's.
    for _ in 0..2 {
        drop(
            ServeCommand::anonymous(store.root())
                .option("--run-as", "nobody")
                .option("--transfer-log", &path_argument(&log))
                .wrapped_in(&["setpriv", "--bounding-set", "-dac_override"])
                .start()?,
        );
        let owner = std::fs::metadata(&log)?.uid();
        ensure!(owner == 65_534, "the log belongs to {owner}");
    }
    Ok(())
}
