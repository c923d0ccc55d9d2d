//! Errors at the start of a server, and its shutdown.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use server::config::{Anonymous, ServerConfig};
use server::{ServeError, Shutdown};

use super::client::ControlClient;
use super::data_port;
use super::in_process_server::{InProcessServer, eventually, test_bytes};

#[test]
fn a_drain_closes_idle_sessions_and_lets_transfers_finish() {
    let server = InProcessServer::start();
    let mut idle = server.anonymous_client();
    let mut busy = server.anonymous_client();
    let address = busy.pasv();
    busy.send("STOR up");
    let mut data = data_port::connect(address);
    busy.expect_code(150);
    server.request_stop();
    idle.expect_code(421);
    idle.expect_close();
    eventually("no session is accepted any more", || {
        TcpStream::connect(server.address).is_err()
    });
    data.write_all(b"to the end").unwrap();
    drop(data);
    busy.expect_code(226);
    busy.expect_code(421);
    busy.expect_close();
    assert_eq!(server.read_file("up"), b"to the end");
    server.wait_for_end().unwrap();
}

/// Time that a draining server gives a client for its next command.
const GRACE: Duration = Duration::from_secs(2);

/// Measures the longest time between two steps of a dialogue.
struct GraceWatch {
    last: Cell<Instant>,
    longest: Cell<Duration>,
}

impl GraceWatch {
    fn new() -> Self {
        Self {
            last: Cell::new(Instant::now()),
            longest: Cell::default(),
        }
    }

    fn step(&self) {
        let since = self.last.replace(Instant::now()).elapsed();
        self.longest.set(self.longest.get().max(since));
    }
}

/// Runs a dialogue whose steps must follow each other within the grace period. If it fails after a
/// delay of the machine, it is tried again; if it fails without a delay, the test fails.
fn with_retries<T>(dialogue: impl Fn(&GraceWatch) -> T) -> T {
    for _ in 0..3 {
        let watch = GraceWatch::new();
        match catch_unwind(AssertUnwindSafe(|| dialogue(&watch))) {
            Ok(result) => return result,
            Err(failure) => {
                watch.step();
                if watch.longest.get() < GRACE / 2 {
                    resume_unwind(failure);
                }
            }
        }
    }
    dialogue(&GraceWatch::new())
}

#[test]
fn a_drain_lets_a_client_verify_and_rename_its_upload() {
    let (server, mut busy) = with_retries(|watch| {
        let server = InProcessServer::start();
        let mut busy = server.anonymous_client();
        let address = busy.pasv();
        busy.send("STOR .part");
        let mut data = data_port::connect(address);
        busy.expect_code(150);
        server.request_stop();
        data.write_all(b"hello world").unwrap();
        drop(data);
        busy.expect_code(226);
        watch.step();
        // Longer than the grace period in total, but never between two commands.
        for _ in 0..9 {
            std::thread::sleep(Duration::from_millis(300));
            busy.expect_reply("CKSM MD5 0 -1 .part", 213);
            watch.step();
        }
        for (command, code) in [
            ("RNFR .part", 350),
            ("RNTO up", 250),
            ("MFMT 20260102030405 up", 213),
            ("PASV", 227),
            ("RETR up", 421),
        ] {
            busy.expect_reply(command, code);
            watch.step();
        }
        (server, busy)
    });
    busy.expect_close();
    assert_eq!(server.read_file("up"), b"hello world");
    server.wait_for_end().unwrap();
}

/// Stores the file `up` and waits for the 226.
fn store_whole(client: &mut ControlClient) {
    let address = client.pasv();
    client.send("STOR up");
    data_port::send_and_close(data_port::connect(address), b"whole");
    client.expect_code(150);
    client.expect_code(226);
}

#[test]
fn a_drain_closes_a_silent_session_after_the_grace_period() {
    let (server, mut busy) = with_retries(|watch| {
        let server = InProcessServer::start();
        let mut busy = server.anonymous_client();
        store_whole(&mut busy);
        watch.step();
        // The transfer has just ended, so its client may still send commands.
        server.request_stop();
        busy.expect_reply("SIZE up", 213);
        (server, busy)
    });
    busy.expect_code(421);
    busy.expect_close();
    server.wait_for_end().unwrap();
}

#[test]
fn follow_up_commands_end_with_the_drain_time() {
    let server = InProcessServer::with_config(|config| config.drain = Duration::from_millis(500));
    let mut busy = server.anonymous_client();
    store_whole(&mut busy);
    server.request_stop();
    eventually("it ends", || busy.command("SIZE up").code != 213);
    busy.expect_close();
    server.wait_for_end().unwrap();
}

#[test]
fn the_drain_time_is_limited() {
    let server = InProcessServer::with_config(|config| config.drain = Duration::from_millis(300));
    let mut busy = server.anonymous_client();
    let address = busy.pasv();
    busy.send("STOR up");
    let mut data = data_port::connect(address);
    data.write_all(b"never ends").unwrap();
    busy.expect_code(150);
    let started_at = Instant::now();
    server.request_stop();
    busy.expect_code(426);
    busy.expect_code(421);
    busy.expect_close();
    let _ = data.read(&mut [0; 1]);
    server.wait_for_end().unwrap();
    let took = started_at.elapsed();
    assert!(took >= Duration::from_millis(300), "{took:?}");
}

#[test]
fn a_second_request_ends_the_server_at_once() {
    // Only a second request can end it in time.
    let server = InProcessServer::with_config(|config| config.drain = Duration::from_secs(3600));
    let mut busy = server.anonymous_client();
    let address = busy.pasv();
    busy.send("STOR up");
    let _data = data_port::connect(address);
    busy.expect_code(150);
    server.request_stop();
    server.request_stop();
    server.wait_for_end().unwrap();
}

fn start_error(change: impl FnOnce(&mut ServerConfig)) -> ServeError {
    let mut config = ServerConfig {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        anonymous: Some(Anonymous::Ro),
        ..ServerConfig::default()
    };
    change(&mut config);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (_handle, requests) = Shutdown::manual();
    runtime
        .block_on(server::serve(
            config,
            |_| panic!("a server that cannot start is never ready"),
            requests,
        ))
        .unwrap_err()
}

#[test]
fn the_error_names_a_missing_root() {
    let error = start_error(|config| config.root = PathBuf::from("/no/such/root"));
    let text = error.to_string();
    assert!(matches!(error, ServeError::Root { .. }), "{text}");
    assert!(
        text.contains("/no/such/root") && text.contains("--root"),
        "{text}"
    );
}

#[test]
fn the_error_names_a_busy_port() {
    let taken = data_port::listen(Ipv4Addr::LOCALHOST.into());
    let address = taken.local_addr().unwrap();
    let text = start_error(|config| config.listen = address).to_string();
    assert!(
        text.contains(&address.to_string()) && text.contains("--listen"),
        "{text}"
    );
}

#[test]
fn the_error_names_a_missing_users_file_or_log() {
    let text =
        start_error(|config| config.users = Some(PathBuf::from("/no/such/users"))).to_string();
    assert!(text.contains("/no/such/users"), "{text}");
    let text =
        start_error(|config| config.transfer_log = Some(PathBuf::from("/no/such/log"))).to_string();
    assert!(text.contains("/no/such/log"), "{text}");
}

/// Begins a store over two MODE E streams, and aborts it when all sent bytes are stored.
fn abort_a_store(client: &mut ControlClient) {
    client.expect_reply("MODE E", 200);
    let address = client.pasv();
    client.send("STOR up");
    let mut streams = [(); 2].map(|()| data_port::connect(address));
    for (stream, offset) in streams.iter_mut().zip([0, 60_000]) {
        data_port::send_block(stream, offset, &test_bytes(60_000));
    }
    client.expect_code_after_markers(150);
    eventually("the blocks are stored", || {
        client.send("STAT");
        client
            .expect_code_after_markers(213)
            .text
            .contains("120000 bytes")
    });
    client.send("ABOR");
    client.expect_code_after_markers(426);
    client.expect_code(226);
}

#[test]
fn each_transfer_has_one_log_record() {
    let scratch = tempfile::tempdir().unwrap();
    let log = scratch.path().join("transfers.jsonl");
    let at = log.clone();
    let server = InProcessServer::with_config(|config| {
        config.transfer_log = Some(at);
        config.users = Some(PathBuf::from("to be made"));
    });
    let bytes = server.create_file("f", 5000);
    let mut client = server.anonymous_client();
    let address = client.pasv();
    client.send("RETR f");
    assert_eq!(data_port::read_all(data_port::connect(address)), bytes);
    client.expect_code(150);
    client.expect_code(226);
    client.pasv();
    client.expect_reply("RETR missing", 550);
    drop(client);
    abort_a_store(&mut server.user_client());
    server.request_stop();
    server.wait_for_end().unwrap();
    let text = std::fs::read_to_string(log).unwrap();
    let records: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(records.len(), 3, "{text}");
    assert_eq!(records[0]["bytes"], 5000, "{text}");
    assert_eq!(records[0]["code"], 226, "{text}");
    assert_eq!(records[1]["code"], 550, "{text}");
    // The record of a failed transfer has its statistics, too.
    assert_eq!(records[2]["code"], 426, "{text}");
    assert_eq!(records[2]["bytes"], 120_000, "{text}");
    assert_eq!(records[2]["streams"], 2, "{text}");
    assert_eq!(records[2]["data_peers"][0], "127.0.0.1", "{text}");
    assert!(records[2]["buffer"].as_u64().unwrap() > 0, "{text}");
    assert!(records[2]["limiter"].is_null(), "{text}");
}
