//! Which addresses are told, and who may connect to them.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use crate::client::Client;
use crate::data_port;
use crate::running::{Running, sample};

#[test]
fn a_wrong_host_is_refused_and_the_transfer_goes_on() {
    let server = Running::start();
    let mut client = server.anonymous();
    let address = client.pasv();
    client.send("STOR up");
    let stranger = data_port::connect_from(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), address);
    let data = data_port::connect(address);
    client.next(150);
    assert_eq!(closed_without_data(stranger), Ok(()));
    data_port::pour(data, b"mine");
    client.next(226);
    assert_eq!(server.stored("up"), b"mine");
}

#[test]
fn a_port_scan_of_a_data_port_harms_nothing() {
    let server = Running::start();
    let mut client = server.anonymous();
    client.expect("MODE E", 200);
    let address = client.pasv();
    let stranger = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
    for _ in 0..50 {
        drop(data_port::connect_from(stranger, address));
    }
    client.send("STOR up");
    let mut data = data_port::connect(address);
    let bytes = sample(300_000);
    data_port::send_block(&mut data, 0, &bytes[..100_000]);
    for _ in 0..50 {
        drop(data_port::connect_from(stranger, address));
    }
    data_port::send_block(&mut data, 100_000, &bytes[100_000..]);
    data_port::send_header(&mut data, proto::eblock::Header::eof(1, false));
    client.next_but_markers(150);
    client.next_but_markers(226);
    assert_eq!(server.stored("up"), bytes);
}

#[test]
fn a_new_address_closes_the_old_one() {
    let server = Running::start();
    let mut client = server.anonymous();
    let old = client.pasv();
    let new = client.pasv();
    assert_ne!(old, new);
    assert!(TcpStream::connect(old).is_err());
    assert!(TcpStream::connect(new).is_ok());
}

#[test]
fn the_configured_ports_and_public_address_are_told() {
    let server = Running::with(|config| {
        config.data_ports = Some((42_100, 42_140));
        config.public_address = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)));
    });
    let mut client = server.anonymous();
    let told = client.pasv();
    assert_eq!(told.ip(), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)));
    assert!((42_100..=42_140).contains(&told.port()), "{told}");
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, told.port())).is_ok());
}

#[test]
fn an_exhausted_port_range_is_425() {
    let taken = data_port::listen(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let port = taken.local_addr().unwrap().port();
    let server = Running::with(|config| config.data_ports = Some((port, port)));
    server.anonymous().expect("PASV", 425);
}

#[test]
fn an_ipv4_client_of_an_ipv6_listener_is_an_ipv4_client() {
    let server =
        Running::with(|config| config.listen = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)));
    let bytes = server.file("f", 1000);
    let mut client = Client::connect(SocketAddr::from((
        Ipv4Addr::LOCALHOST,
        server.address.port(),
    )));
    client.log_in("anonymous", "x@");
    client.expect("TYPE I", 200);
    let address = client.pasv();
    assert_eq!(address.ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
    client.send("RETR f");
    assert_eq!(data_port::drain(data_port::connect(address)), bytes);
}

#[test]
fn pasv_over_ipv6_is_refused() {
    Running::on_v6().anonymous().expect("PASV", 522);
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
    let server = Running::with(|config| config.max_streams = 8);
    let mut crowded = server.anonymous();
    for line in ["TYPE I", "MODE E"] {
        crowded.expect(line, 200);
    }
    let data = crowded.pasv();
    let silent: Vec<_> = (0..1300).map(|_| data_port::connect(data)).collect();
    let mut own = data_port::connect(data);
    crowded.send("STOR crowded");
    data_port::send_block(&mut own, 0, b"abc");
    for n in 0..20 {
        let mut other = server.anonymous();
        other.expect("TYPE I", 200);
        let stream = data_port::connect(other.pasv());
        other.send(&format!("STOR other-{n}"));
        data_port::pour(stream, b"whole");
        other.next_after_150(226);
        assert_eq!(server.stored(&format!("other-{n}")), b"whole");
    }
    data_port::send_header(&mut own, proto::eblock::Header::eof(1, true));
    crowded.next_but_markers(150);
    crowded.next_but_markers(226);
    assert_eq!(server.stored("crowded"), b"abc");
    drop(silent);
}

#[test]
fn a_named_host_may_connect_and_another_is_told_why_it_may_not() {
    let server = Running::with_users();
    let mut client = server.user();
    client.expect("TYPE I", 200);
    let other = "127.0.0.2";
    let refused = client.expect("PORT 127,0,0,2,156,64", 501);
    assert!(format!("{refused:?}").contains("foreign-data-addresses"));
    client.expect(&format!("SITE DATAPEER {other}"), 200);
    client.expect("PORT 127,0,0,2,156,64", 200);
    let data = client.pasv();
    client.send("STOR f");
    data_port::pour(
        data_port::connect_from(other.parse().unwrap(), data),
        b"from there",
    );
    client.next_after_150(226);
    assert_eq!(server.stored("f"), b"from there");
}

#[test]
fn where_foreign_addresses_are_allowed_users_need_not_name_them() {
    for (allowed, code) in [(true, 226), (false, 425)] {
        let server = Running::with(|config| {
            config.users = Some("to be made".into());
            config.foreign_data_addresses = allowed;
            config.transfer.stall = std::time::Duration::from_secs(1);
        });
        let mut client = server.user();
        client.expect("TYPE I", 200);
        let data = client.pasv();
        // There before the clock runs. A stranger's connection may be closed already.
        let stranger = data_port::connect_from("127.0.0.2".parse().unwrap(), data);
        let _ = (&stranger).write_all(b"x");
        drop(stranger);
        client.send("STOR f");
        let end = client.next_after_150(code);
        let named = format!("{end:?}").contains("foreign-data-addresses");
        assert_eq!(named, !allowed, "{end:?}");
    }
}

#[test]
fn anonymous_sessions_have_no_other_host_whatever_the_settings() {
    let server = Running::with(|config| config.foreign_data_addresses = true);
    let mut client = server.anonymous();
    client.expect("SITE DATAPEER 127.0.0.2", 501);
    client.expect("PORT 127,0,0,2,156,64", 501);
    let data = client.pasv();
    let stranger = data_port::connect_from("127.0.0.2".parse().unwrap(), data);
    client.send("STOR f");
    assert_eq!(closed_without_data(stranger), Ok(()));
    data_port::pour(data_port::connect(data), b"own");
    client.next_after_150(226);
    assert_eq!(server.stored("f"), b"own");
}
