//! Dynamic right-sizing on the wire: the DRS channel, and sizes on the control connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::client::ControlClient;
use super::data_port;
use super::in_process_server::{InProcessServer, eventually, test_bytes};

const NONCE: &str = "000102030405060708090a0b0c0d0eff";
/// Larger than the socket buffers, so that the transfer is still running when sizes are exchanged.
const LARGE: usize = 24 << 20;

/// A session that has selected a sizing policy.
fn session(server: &InProcessServer, policy: &str) -> ControlClient {
    let mut client = server.anonymous_client();
    client.expect_reply(&format!("OPTS DRS {policy}"), 200);
    client
}

/// Sends DPSV; returns the address and the nonce.
fn dpsv(client: &mut ControlClient) -> (SocketAddr, String) {
    let text = client.expect_reply("DPSV", 229).text;
    let inner = &text[text.find('(').unwrap() + 1..text.find(')').unwrap()];
    let fields: Vec<&str> = inner.split('|').collect();
    let at = SocketAddr::new(fields[2].parse().unwrap(), fields[3].parse().unwrap());
    (at, fields[4].to_owned())
}

/// The client's end of a DRS channel.
struct DrsPeer(BufReader<TcpStream>);

impl DrsPeer {
    fn new(stream: TcpStream) -> Self {
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        Self(BufReader::new(stream))
    }

    fn connect(to: SocketAddr, nonce: &str) -> Self {
        let mut peer = Self::new(TcpStream::connect(to).unwrap());
        peer.say(&format!("DRS {nonce}\r\n"));
        peer
    }

    fn say(&mut self, line: &str) {
        self.0.get_mut().write_all(line.as_bytes()).unwrap();
    }

    /// Reads the next line; empty at the end of the connection.
    fn line(&mut self) -> String {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(_) => line,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => String::new(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn feat_announces_drs_and_opts_selects_it() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    let features = client.expect_reply("FEAT", 211).text;
    assert!(
        features.contains("\n DRS auto;kernel;drs1;drs;drs2004;"),
        "{features}"
    );
    client.expect_reply("DPSV", 503);
    client.expect_reply("OPTS DRS none", 501);
    client.expect_reply("OPTS DRS drs", 200);
    let (at, nonce) = dpsv(&mut client);
    assert_eq!(at.ip(), server.ip());
    let (_, another) = dpsv(&mut client);
    assert_ne!(nonce, another);
    assert!(
        TcpStream::connect(at).is_err(),
        "the old listener is closed"
    );
}

#[test]
fn the_drs_channel_uses_the_data_ports_and_the_public_address() {
    let ports = (40_300, 40_399);
    let server = InProcessServer::with_config(|config| {
        config.data_ports = Some(ports);
        config.public_address = Some("192.0.2.7".parse().unwrap());
    });
    let (at, _) = dpsv(&mut session(&server, "drs"));
    assert_eq!(at.ip().to_string(), "192.0.2.7");
    assert!((ports.0..=ports.1).contains(&at.port()), "{at}");
}

#[test]
fn a_sender_applies_received_sizes_and_echoes_them() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let server = InProcessServer::with_config(|config| config.transfer_log = Some(log.clone()));
    let bytes = server.create_file("f", LARGE);
    let mut client = session(&server, "drs");
    let (at, nonce) = dpsv(&mut client);
    // The address is valid for several transfers.
    for time in ["1.5", "12345.678901"] {
        let address = client.pasv();
        client.send("RETR f");
        let data = data_port::connect(address);
        client.expect_code(150);
        let mut peer = DrsPeer::connect(at, &nonce);
        let line = format!("SBUF {time} 262144\r\n");
        peer.say(&line);
        assert_eq!(peer.line(), line);
        assert!(data_port::read_all(data) == bytes);
        client.expect_code(226);
    }
    eventually("both are in the log with twice what was set", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.matches("\"buffer\":524288").count() == 2
    });
}

#[test]
fn a_receiver_sends_its_sizes() {
    let server = InProcessServer::start();
    let bytes = test_bytes(LARGE);
    let mut client = session(&server, "drs");
    let (at, nonce) = dpsv(&mut client);
    let address = client.pasv();
    client.send("STOR f");
    let mut data = data_port::connect(address);
    client.expect_code(150);
    let mut peer = DrsPeer::connect(at, &nonce);
    let (first, rest) = bytes.split_at(LARGE / 2);
    data.write_all(first).unwrap();
    let line = peer.line();
    assert!(line.starts_with("SBUF "), "{line:?}");
    peer.say(&line);
    data_port::send_and_close(data, rest);
    client.expect_code(226);
    assert!(server.read_file("f") == bytes);
}

#[test]
fn a_pinned_sender_keeps_its_size_and_still_echoes() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let server = InProcessServer::with_config(|config| config.transfer_log = Some(log.clone()));
    let bytes = server.create_file("f", LARGE);
    let mut client = session(&server, "drs");
    client.expect_reply("SITE RETRBUFSIZE 131072", 200);
    let (at, nonce) = dpsv(&mut client);
    let address = client.pasv();
    client.send("RETR f");
    let data = data_port::connect(address);
    client.expect_code(150);
    let mut peer = DrsPeer::connect(at, &nonce);
    peer.say("SBUF 1.5 1048576\r\n");
    assert_eq!(peer.line(), "SBUF 1.5 1048576\r\n");
    assert!(data_port::read_all(data) == bytes);
    client.expect_code(226);
    eventually("the log has twice what was pinned", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.contains("\"buffer\":262144") && text.contains("\"sizing\":\"pinned\"")
    });
}

#[test]
fn strangers_on_the_drs_channel_do_not_disturb_the_transfer() {
    let server = InProcessServer::start();
    let bytes = server.create_file("f", LARGE);
    let mut client = session(&server, "drs");
    let (at, nonce) = dpsv(&mut client);
    let address = client.pasv();
    client.send("RETR f");
    let data = data_port::connect(address);
    client.expect_code(150);
    let mut guesser = DrsPeer::connect(at, NONCE);
    let mut stray = DrsPeer::new(data_port::connect_from("127.0.0.2".parse().unwrap(), at));
    let _ = stray
        .0
        .get_mut()
        .write_all(format!("DRS {nonce}\r\n").as_bytes());
    assert_eq!(guesser.line(), "");
    assert_eq!(stray.line(), "");
    let mut peer = DrsPeer::connect(at, &nonce);
    peer.say("SBUF 1 131072\r\n");
    assert_eq!(peer.line(), "SBUF 1 131072\r\n");
    peer.say("what is this\r\n");
    assert_eq!(peer.line(), "", "nonsense closes the channel");
    assert!(data_port::read_all(data) == bytes);
    client.expect_code(226);
}

#[test]
fn transfers_work_without_a_peer_on_the_drs_channel() {
    let server = InProcessServer::start();
    let bytes = server.create_file("f", 300_000);
    let mut client = session(&server, "drs");
    dpsv(&mut client);
    let address = client.pasv();
    client.send("RETR f");
    assert_eq!(data_port::read_all(data_port::connect(address)), bytes);
    client.expect_code(150);
    client.expect_code(226);
    let address = client.pasv();
    client.send("STOR g");
    data_port::send_and_close(data_port::connect(address), &bytes);
    client.expect_code(150);
    client.expect_code(226);
    assert_eq!(server.read_file("g"), bytes);
}

#[test]
fn after_dprt_the_server_connects_to_the_given_address() {
    let server = InProcessServer::start();
    let bytes = server.create_file("f", LARGE);
    let mut client = session(&server, "drs");
    let listener = data_port::listen(server.ip());
    let port = listener.local_addr().unwrap().port();
    client.expect_reply(&format!("DPRT |1|127.0.0.1|{port}|{NONCE}|"), 200);
    let address = client.pasv();
    client.send("RETR f");
    let data = data_port::connect(address);
    client.expect_code(150);
    let mut peer = DrsPeer::new(listener.accept().unwrap().0);
    assert_eq!(peer.line(), format!("DRS {NONCE}\r\n"));
    peer.say("SBUF 7.0 65536\r\n");
    assert_eq!(peer.line(), "SBUF 7.0 65536\r\n");
    assert!(data_port::read_all(data) == bytes);
    client.expect_code(226);
}

#[test]
fn dprt_to_other_hosts_is_refused() {
    let server = InProcessServer::start();
    let mut client = session(&server, "drs");
    client.expect_reply(&format!("DPRT |1|192.0.2.9|4000|{NONCE}|"), 501);
    client.expect_reply(&format!("DPRT |1|127.0.0.1|25|{NONCE}|"), 501);
    client.expect_reply("DPRT |1|127.0.0.1|4000|short|", 501);
}

#[test]
fn another_policy_or_login_closes_the_drs_channel() {
    let server = InProcessServer::start();
    for ending in ["OPTS DRS auto", "REIN"] {
        let mut client = session(&server, "drs");
        let (at, _) = dpsv(&mut client);
        let reply = client.command(ending);
        assert!(matches!(reply.code, 200 | 220), "{reply:?}");
        eventually("the listener is closed", || TcpStream::connect(at).is_err());
    }
}

#[test]
fn with_drs1_sizes_during_a_transfer_are_applied_without_a_reply() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let server = InProcessServer::with_config(|config| config.transfer_log = Some(log.clone()));
    let bytes = server.create_file("f", LARGE);
    let mut client = session(&server, "drs1");
    let address = client.pasv();
    client.send("RETR f");
    let mut data = data_port::connect(address);
    client.expect_code(150);
    client.send("SBUF 131072");
    client.send("SBUF 262144");
    client.expect_silence();
    let mut got = Vec::new();
    data.read_to_end(&mut got).unwrap();
    assert!(got == bytes);
    client.expect_code(226);
    client.expect_reply("SBUF 524288", 200);
    eventually("the last size in time was set, and why", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.contains("\"buffer\":524288")
            && text.contains("\"decision\":\"the receiver's buffer has this size\"")
    });
}

#[test]
fn without_drs1_a_size_waits_for_the_end_of_the_transfer() {
    let server = InProcessServer::start();
    let bytes = server.create_file("f", LARGE);
    let mut client = server.anonymous_client();
    let address = client.pasv();
    client.send("RETR f");
    let data = data_port::connect(address);
    client.expect_code(150);
    client.send("SBUF 131072");
    client.expect_silence();
    assert!(data_port::read_all(data) == bytes);
    client.expect_code(226);
    client.expect_code(200);
}

#[test]
fn the_log_has_the_name_of_the_sizing_policy() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let server = InProcessServer::with_config(|config| config.transfer_log = Some(log.clone()));
    server.create_file("f", 100);
    for (policy, pinned, named) in [
        ("drs", false, "drs"),
        ("drs1", false, "drs1"),
        ("kernel", false, "kernel"),
        ("auto", true, "pinned"),
    ] {
        let mut client = session(&server, policy);
        if pinned {
            client.expect_reply("SBUF 65536", 200);
        }
        let address = client.pasv();
        client.send("RETR f");
        data_port::read_all(data_port::connect(address));
        client.expect_code(150);
        client.expect_code(226);
        let named = format!("\"sizing\":\"{named}\"");
        eventually("the record is written", || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            text.lines()
                .last()
                .is_some_and(|line| line.contains(&named))
        });
    }
}

#[test]
fn with_drs1_a_receiver_sends_its_sizes_in_replies() {
    let server = InProcessServer::start();
    let bytes = test_bytes(LARGE);
    let mut client = session(&server, "drs1");
    let address = client.pasv();
    client.send("STOR f");
    data_port::send_and_close(data_port::connect(address), &bytes);
    client.expect_code(150);
    let mut sizes: Vec<u64> = Vec::new();
    let last = loop {
        let reply = client.read_reply();
        match reply.text.strip_prefix("Buffer Size (") {
            Some(size) if reply.code == 126 => {
                sizes.push(size.trim_end_matches(')').parse().unwrap());
            }
            _ => break reply,
        }
    };
    assert_eq!(last.code, 226);
    // The size is multiplied by four, from 64 KiB on (2003 paper, section 4.1); by more if a slow machine reads late.
    let is_step = |size: &&u64| [256 << 10, 1 << 20, 4 << 20].contains(*size);
    assert_eq!(sizes.first().filter(is_step), sizes.first());
    assert!(!sizes.is_empty());
    assert!(sizes.is_sorted_by(|a, b| a < b), "{sizes:?}");
    assert!(server.read_file("f") == bytes);
}
