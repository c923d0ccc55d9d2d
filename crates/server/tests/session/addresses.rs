//! The addresses of data connections, and which hosts may use them.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use super::client::ControlClient;
use super::data_port;
use super::in_process_server::{InProcessServer, test_bytes};

#[test]
fn connections_from_other_hosts_are_closed_and_the_transfer_goes_on() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    let address = client.pasv();
    client.send("STOR up");
    let stranger = data_port::connect_from(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), address);
    let data = data_port::connect(address);
    client.expect_code(150);
    assert_eq!(closed_without_data(stranger), Ok(()));
    data_port::send_and_close(data, b"mine");
    client.expect_code(226);
    assert_eq!(server.read_file("up"), b"mine");
}

#[test]
fn a_port_scan_of_a_data_port_does_not_disturb_the_transfer() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    client.expect_reply("MODE E", 200);
    let address = client.pasv();
    let stranger = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
    for _ in 0..50 {
        drop(data_port::connect_from(stranger, address));
    }
    client.send("STOR up");
    let mut data = data_port::connect(address);
    let bytes = test_bytes(300_000);
    data_port::send_block(&mut data, 0, &bytes[..100_000]);
    for _ in 0..50 {
        drop(data_port::connect_from(stranger, address));
    }
    data_port::send_block(&mut data, 100_000, &bytes[100_000..]);
    data_port::send_header(&mut data, proto::eblock::BlockHeader::eof(1, false));
    client.expect_code_after_markers(150);
    client.expect_code_after_markers(226);
    assert_eq!(server.read_file("up"), bytes);
}

#[test]
fn a_new_pasv_closes_the_old_listener() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    let old = client.pasv();
    let new = client.pasv();
    assert_ne!(old, new);
    assert!(TcpStream::connect(old).is_err());
    assert!(TcpStream::connect(new).is_ok());
}

#[test]
fn pasv_uses_the_configured_ports_and_public_address() {
    let server = InProcessServer::with_config(|config| {
        config.data_ports = Some((42_100, 42_140));
        config.public_address = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)));
    });
    let mut client = server.anonymous_client();
    let advertised = client.pasv();
    assert_eq!(advertised.ip(), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)));
    assert!(
        (42_100..=42_140).contains(&advertised.port()),
        "{advertised}"
    );
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, advertised.port())).is_ok());
}

#[test]
fn pasv_replies_425_if_all_data_ports_are_busy() {
    let taken = data_port::listen(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let port = taken.local_addr().unwrap().port();
    let server = InProcessServer::with_config(|config| config.data_ports = Some((port, port)));
    server.anonymous_client().expect_reply("PASV", 425);
}

#[test]
fn an_ipv4_client_of_an_ipv6_listener_gets_ipv4_addresses() {
    let server = InProcessServer::with_config(|config| {
        config.listen = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    });
    let bytes = server.create_file("f", 1000);
    let mut client = ControlClient::connect(SocketAddr::from((
        Ipv4Addr::LOCALHOST,
        server.address.port(),
    )));
    client.log_in("anonymous", "x@");
    client.expect_reply("TYPE I", 200);
    let address = client.pasv();
    assert_eq!(address.ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
    client.send("RETR f");
    assert_eq!(data_port::read_all(data_port::connect(address)), bytes);
}

#[test]
fn pasv_over_ipv6_is_refused() {
    InProcessServer::on_v6()
        .anonymous_client()
        .expect_reply("PASV", 522);
}

fn closed_without_data(mut stream: TcpStream) -> Result<(), Vec<u8>> {
    use std::io::Read;
    let _ = stream.write_all(b"not mine");
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes); // ends with EOF or a reset
    if bytes.is_empty() { Ok(()) } else { Err(bytes) }
}

/// docs/data-channel.md: connections of strangers take no resources from other transfers.
#[test]
fn silent_connections_to_one_transfer_do_not_block_others() {
    let server = InProcessServer::with_config(|config| config.max_streams = 8);
    let mut target = server.anonymous_client();
    for line in ["TYPE I", "MODE E"] {
        target.expect_reply(line, 200);
    }
    let data = target.pasv();
    let silent: Vec<_> = (0..1300).map(|_| data_port::connect(data)).collect();
    let mut own = data_port::connect(data);
    target.send("STOR target");
    data_port::send_block(&mut own, 0, b"abc");
    for n in 0..20 {
        let mut other = server.anonymous_client();
        other.expect_reply("TYPE I", 200);
        let stream = data_port::connect(other.pasv());
        other.send(&format!("STOR other-{n}"));
        data_port::send_and_close(stream, b"whole");
        other.expect_code_after_150(226);
        assert_eq!(server.read_file(&format!("other-{n}")), b"whole");
    }
    data_port::send_header(&mut own, proto::eblock::BlockHeader::eof(1, true));
    target.expect_code_after_markers(150);
    target.expect_code_after_markers(226);
    assert_eq!(server.read_file("target"), b"abc");
    drop(silent);
}

#[test]
fn only_the_named_host_may_connect_and_the_refusal_names_the_setting() {
    let server = InProcessServer::with_users();
    let mut client = server.user_client();
    client.expect_reply("TYPE I", 200);
    let other = "127.0.0.2";
    let refused = client.expect_reply("PORT 127,0,0,2,156,64", 501);
    assert!(format!("{refused:?}").contains("foreign-data-addresses"));
    client.expect_reply(&format!("SITE DATAPEER {other}"), 200);
    client.expect_reply("PORT 127,0,0,2,156,64", 200);
    let data = client.pasv();
    client.send("STOR f");
    data_port::send_and_close(
        data_port::connect_from(other.parse().unwrap(), data),
        b"from there",
    );
    client.expect_code_after_150(226);
    assert_eq!(server.read_file("f"), b"from there");
}

#[test]
fn with_foreign_data_addresses_users_need_not_name_hosts() {
    for (allowed, code) in [(true, 226), (false, 425)] {
        let server = InProcessServer::with_config(|config| {
            config.users = Some("to be made".into());
            config.foreign_data_addresses = allowed;
            config.transfer.stall = std::time::Duration::from_secs(1);
        });
        let mut client = server.user_client();
        client.expect_reply("TYPE I", 200);
        let data = client.pasv();
        // Connected before the stall time begins. The server may have closed it already.
        let stranger = data_port::connect_from("127.0.0.2".parse().unwrap(), data);
        let _ = (&stranger).write_all(b"x");
        drop(stranger);
        client.send("STOR f");
        let end = client.expect_code_after_150(code);
        let named = format!("{end:?}").contains("foreign-data-addresses");
        assert_eq!(named, !allowed, "{end:?}");
    }
}

#[test]
fn anonymous_sessions_never_have_data_connections_with_other_hosts() {
    let server = InProcessServer::with_config(|config| config.foreign_data_addresses = true);
    let mut client = server.anonymous_client();
    client.expect_reply("SITE DATAPEER 127.0.0.2", 501);
    client.expect_reply("PORT 127,0,0,2,156,64", 501);
    let data = client.pasv();
    let stranger = data_port::connect_from("127.0.0.2".parse().unwrap(), data);
    client.send("STOR f");
    assert_eq!(closed_without_data(stranger), Ok(()));
    data_port::send_and_close(data_port::connect(data), b"own");
    client.expect_code_after_150(226);
    assert_eq!(server.read_file("f"), b"own");
}
