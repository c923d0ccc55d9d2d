//! The tuning of a sending server on the wire: number of connections, congestion control, and the
//! final reply.

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
/// Larger than the socket buffers, so that the sender samples its streams during the transfer.
const LARGE: usize = 24 << 20;

/// A session in MODE E and the listener for its data connections.
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

/// Accepts connections until all streams have ended, and reads each on its own thread. Returns the
/// file, the number of connections, and the numbers of streams in the EOF blocks.
fn receive_all_streams(listener: &TcpListener) -> (Vec<u8>, usize, Vec<u64>) {
    listener.set_nonblocking(true).unwrap();
    let (ended, ends) = mpsc::channel();
    let (mut accepted, mut finished) = (0, 0);
    let (mut file, mut eof_counts) = (Vec::new(), Vec::new());
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(
            Instant::now() < until,
            "{finished} of {accepted} streams ended"
        );
        match listener.accept() {
            Ok((mut stream, _)) => {
                accepted += 1;
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
            finished += 1;
            eof_counts.extend(eof);
            file.resize(LARGE, 0);
            for range in covered {
                file[range.clone()].copy_from_slice(&part[range]);
            }
        }
        if !eof_counts.is_empty() && finished == accepted {
            return (file, accepted, eof_counts);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn feat_announces_tune_and_opts_accepts_what_the_system_permits() {
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
fn a_client_with_a_fixed_number_of_streams_gets_exactly_that_many() {
    let server = InProcessServer::start();
    let bytes = server.create_file("f", LARGE);
    for (parallelism, count) in [("", 1), ("1,1,1", 1), ("3,3,3", 3)] {
        let (mut client, listener) = receiving(&server, parallelism);
        client.send("RETR f");
        let (file, accepted, eof_counts) = receive_all_streams(&listener);
        assert!(file == bytes, "{parallelism}");
        assert_eq!(
            (accepted, eof_counts),
            (count, vec![count as u64]),
            "{parallelism}"
        );
        client.expect_code(150);
        // The reply to other clients has no remark about the limiter.
        assert_eq!(client.expect_code(226).text, "Transfer Complete.");
    }
}

#[test]
fn with_a_range_of_streams_the_eof_has_the_number_of_connections() {
    let server = InProcessServer::start();
    let bytes = server.create_file("f", LARGE);
    let (mut client, listener) = receiving(&server, "2,1,8");
    client.command(READER);
    client.send("RETR f");
    let (file, accepted, eof_counts) = receive_all_streams(&listener);
    assert!(file == bytes);
    assert!((1..=8).contains(&accepted), "{accepted}");
    assert_eq!(eof_counts, [accepted as u64]);
    client.expect_code(150);
    let end = client.expect_code(226).text;
    let verdict = end.strip_prefix("Transfer Complete. Limited by ");
    assert!(verdict.is_some_and(|v| v.contains(" stream")), "{end}");
}

#[test]
fn an_unavailable_congestion_control_prevents_the_start() {
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
