//! Clients behind a proxy that announces their addresses (HAProxy's PROXY protocol).

use std::net::{IpAddr, Ipv4Addr};

use super::client::ControlClient;
use super::data_port;
use super::in_process_server::InProcessServer;

/// The network of the proxy. The clients are other addresses of this host.
const PROXY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 7);
const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 20);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 21);

/// A server with one session an address, and a proxy.
fn start() -> InProcessServer {
    InProcessServer::with_config(|config| {
        config.proxy_protocol_from = vec![IpAddr::from(PROXY).into()];
        config.max_sessions_per_address = 1;
        config.transfer.stall = std::time::Duration::from_secs(2);
    })
}

/// Connects from `from` and sends the header of a client.
fn connect(server: &InProcessServer, from: Ipv4Addr, client: Ipv4Addr) -> ControlClient {
    let mut control = ControlClient::from_address(from.into(), server.address);
    control.send(&format!("PROXY TCP4 {client} 127.0.0.1 4000 2811"));
    control
}

fn log_in(control: &mut ControlClient) {
    control.expect_code(220);
    control.log_in("anonymous", "x@");
    control.expect_reply("TYPE I", 200);
}

#[test]
fn the_address_of_the_header_is_limited_logged_and_the_one_of_data_connections() {
    let server = start();
    let bytes = server.create_file("f", 10_000);
    let mut client = connect(&server, PROXY, CLIENT);
    log_in(&mut client);
    // One session an address, of which the proxy's own is none.
    let mut second = connect(&server, PROXY, CLIENT);
    second.expect_code(421);
    log_in(&mut connect(&server, PROXY, OTHER));
    // Data: the client's address may connect, the proxy's and others' may not.
    for stranger in [PROXY, OTHER] {
        let address = client.pasv();
        client.send("RETR f");
        let stream = data_port::connect_from(stranger.into(), address);
        assert_eq!(data_port::read_some(stream), b"", "{stranger}");
        client.expect_code_after_150(425);
    }
    let address = client.pasv();
    client.send("RETR f");
    let stream = data_port::connect_from(CLIENT.into(), address);
    assert_eq!(data_port::read_all(stream), bytes);
    client.expect_code(150);
    client.expect_code_after_markers(226);
    // PORT: to the client's address only.
    client.expect_reply("PORT 127,0,0,7,200,1", 501);
    client.expect_reply("PORT 127,0,0,20,200,1", 200);
    client.expect_reply("QUIT", 221);
    // The record is written before the connection closes.
    client.expect_close();
    let log = server.log();
    let logged = format!("\"client\":\"{CLIENT}:4000\"");
    assert!(log.lines().all(|line| line.contains(&logged)), "{log}");
}

#[test]
fn a_header_from_elsewhere_is_an_unknown_command_of_a_client_with_its_own_address() {
    let server = start();
    let mut forger = connect(&server, OTHER, CLIENT);
    forger.expect_code(220);
    forger.expect_code(500);
    // The limit of the address that it claimed is untouched, that of its own is used up.
    log_in(&mut connect(&server, PROXY, CLIENT));
    connect(&server, PROXY, OTHER).expect_code(421);
}

#[test]
fn a_proxy_without_a_header_is_not_served() {
    let server = start();
    let mut silent = ControlClient::from_address(PROXY.into(), server.address);
    silent.send("USER anonymous");
    silent.expect_close();
    log_in(&mut connect(&server, PROXY, CLIENT));
}
