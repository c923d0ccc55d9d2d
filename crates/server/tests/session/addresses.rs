//! Which addresses are told, and who may connect to them.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use super::client::ControlClient;
use super::data_port;
use super::in_process_server::{InProcessServer, test_bytes};

#[test]
fn a_wrong_host_is_refused_and_the_transfer_goes_on() {
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
fn a_port_scan_of_a_data_port_harms_nothing() {
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
fn a_new_address_closes_the_old_one() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    let old = client.pasv();
    let new = client.pasv();
    assert_ne!(old, new);
    assert!(TcpStream::connect(old).is_err());
    assert!(TcpStream::connect(new).is_ok());
}

#[test]
fn the_configured_ports_and_public_address_are_told() {
    let server = InProcessServer::with_config(|config| {
        config.data_ports = Some((42_100, 42_140));
        config.public_address = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)));
    });
    let mut client = server.anonymous_client();
    let told = client.pasv();
    assert_eq!(told.ip(), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)));
    assert!((42_100..=42_140).contains(&told.port()), "{told}");
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, told.port())).is_ok());
}

#[test]
fn an_exhausted_port_range_is_425() {
    let taken = data_port::listen(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let port = taken.local_addr().unwrap().port();
    let server = InProcessServer::with_config(|config| config.data_ports = Some((port, port)));
    server.anonymous_client().expect_reply("PASV", 425);
}

#[test]
fn an_ipv4_client_of_an_ipv6_listener_is_an_ipv4_client() {
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
    let _ = stream.read_to_end(&mut bytes); // an end or a reset
    if bytes.is_empty() { Ok(()) } else { Err(bytes) }
}

/// docs/data-channel.md: nothing that a stranger does takes anything from other transfers.
#[test]
fn silent_connections_to_one_transfer_take_nothing_from_others() {
    let server = InProcessServer::with_config(|config| config.max_streams = 8);
    let mut crowded = server.anonymous_client();
    for line in ["TYPE I", "MODE E"] {
        crowded.expect_reply(line, 200);
    }
    let data = crowded.pasv();
    let silent: Vec<_> = (0..1300).map(|_| data_port::connect(data)).collect();
    let mut own = data_port::connect(data);
    crowded.send("STOR crowded");
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
    crowded.expect_code_after_markers(150);
    crowded.expect_code_after_markers(226);
    assert_eq!(server.read_file("crowded"), b"abc");
    drop(silent);
}

#[test]
fn a_named_host_may_connect_and_another_is_told_why_it_may_not() {
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
fn where_foreign_addresses_are_allowed_users_need_not_name_them() {
    for (allowed, code) in [(true, 226), (false, 425)] {
        let server = InProcessServer::with_config(|config| {
            config.users = Some("to be made".into());
            config.foreign_data_addresses = allowed;
            config.transfer.stall = std::time::Duration::from_secs(1);
        });
        let mut client = server.user_client();
        client.expect_reply("TYPE I", 200);
        let data = client.pasv();
        // There before the clock runs. A stranger's connection may be closed already.
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
fn anonymous_sessions_have_no_other_host_whatever_the_settings() {
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
