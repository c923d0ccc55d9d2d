//! A sender that tunes itself, seen from the wire: how many connections, which congestion control,
//! and what is said at the end.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use data::options::CongestionChoice;
use server::config::ServerConfig;
use server::{ServeError, Shutdown};

use super::client::{ControlClient, port_argument};
use super::data_port;
use super::in_process_server::InProcessServer;

const READER: &str = "SITE CLIENTINFO scheme=ftp;appname=\"longhaul\";appver=\"0.1.0\";";
/// Larger than what sockets hold, so that the sender looks at its streams while they move.
const LARGE: usize = 24 << 20;

/// A session in MODE E that will be connected to at the listener.
fn receiving(server: &InProcessServer, parallelism: &str) -> (ControlClient, TcpListener) {
    let mut client = server.anonymous_client();
    client.expect_reply("MODE E", 200);
    if !parallelism.is_empty() {
        let command = format!("OPTS RETR Parallelism={parallelism};");
        client.expect_reply(&command, 200);
    }
    let listener = data_port::listen(server.ip());
    let argument = port_argument(listener.local_addr().unwrap());
    client.expect_reply(&format!("PORT {argument}"), 200);
    (client, listener)
}

/// Takes every connection until all streams have ended, each in a thread of its own. Returns the file,
/// the number of connections, and the numbers that their EOFs tell.
fn take_all(listener: &TcpListener) -> (Vec<u8>, usize, Vec<u64>) {
    listener.set_nonblocking(true).unwrap();
    let (ended, ends) = mpsc::channel();
    let (mut came, mut left) = (0, 0);
    let (mut file, mut told) = (Vec::new(), Vec::new());
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < until, "{left} of {came} streams ended");
        match listener.accept() {
            Ok((mut stream, _)) => {
                came += 1;
                stream.set_nonblocking(false).unwrap();
                stream
                    .set_read_timeout(Some(Duration::from_secs(60)))
                    .unwrap();
                let ended = ended.clone();
                std::thread::spawn(move || {
                    let mut part = vec![0; LARGE];
                    let mut covered = Vec::new();
                    let eof = data_port::read_blocks_at(&mut stream, &mut part, &mut covered);
                    ended.send((part, covered, eof)).unwrap();
                });
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        while let Ok((part, covered, eof)) = ends.try_recv() {
            left += 1;
            told.extend(eof);
            file.resize(LARGE, 0);
            for range in covered {
                file[range.clone()].copy_from_slice(&part[range]);
            }
        }
        if !told.is_empty() && left == came {
            return (file, came, told);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn it_is_announced_and_asked_for_within_what_the_system_permits() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    let features = client.expect_reply("FEAT", 211).text;
    assert!(
        features.contains("\n TUNE Streams;Congestion;"),
        "{features}"
    );
    for name in data::os::congestion::settable() {
        client.expect_reply(&format!("OPTS TUNE Congestion={name};"), 200);
    }
    client.expect_reply("OPTS TUNE Congestion=auto;", 200);
    client.expect_reply("OPTS TUNE Congestion=system;", 200);
    let refusal = client
        .expect_reply("OPTS TUNE Congestion=warpdrive;", 504)
        .text;
    assert!(refusal.contains("offered: auto system"), "{refusal}");

    let kept = InProcessServer::with_config(|config| config.client_congestion = false);
    let mut client = kept.anonymous_client();
    let features = client.expect_reply("FEAT", 211).text;
    assert!(features.contains("\n TUNE Streams;\n"), "{features:?}");
    client.expect_reply("OPTS TUNE Congestion=auto;", 504);
}

#[test]
fn a_stock_client_sees_exactly_the_connections_that_it_asked_for() {
    let server = InProcessServer::start();
    let bytes = server.create_file("f", LARGE);
    for (parallelism, count) in [("", 1), ("1,1,1", 1), ("3,3,3", 3)] {
        let (mut client, listener) = receiving(&server, parallelism);
        client.send("RETR f");
        let (file, came, told) = take_all(&listener);
        assert!(file == bytes, "{parallelism}");
        assert_eq!((came, told), (count, vec![count as u64]), "{parallelism}");
        client.expect_code(150);
        // Nor is a stock client told what it may not understand.
        assert_eq!(client.expect_code(226).text, "Transfer Complete.");
    }
}

#[test]
fn within_an_open_range_the_connections_that_came_are_those_that_are_told() {
    let server = InProcessServer::start();
    let bytes = server.create_file("f", LARGE);
    let (mut client, listener) = receiving(&server, "2,1,8");
    client.command(READER);
    client.send("RETR f");
    let (file, came, told) = take_all(&listener);
    assert!(file == bytes);
    assert!((1..=8).contains(&came), "{came}");
    assert_eq!(told, [came as u64]);
    client.expect_code(150);
    let end = client.expect_code(226).text;
    let verdict = end.strip_prefix("Transfer Complete. Limited by ");
    assert!(verdict.is_some_and(|v| v.contains(" stream")), "{end}");
}

#[test]
fn a_congestion_control_that_is_not_to_be_had_stops_the_start() {
    let root = tempfile::tempdir().unwrap();
    let mut config = ServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        root: root.path().to_owned(),
        ..ServerConfig::default()
    };
    config.transfer.congestion = CongestionChoice::Named("warpdrive".to_owned());
    let (_stop, requests) = Shutdown::manual();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let result = runtime.block_on(server::serve(config, |_| {}, requests));
    let Err(ServeError::Congestion(error)) = result else {
        panic!("{result:?}");
    };
    assert!(error.to_string().contains("warpdrive"), "{error}");
}
