//! MODE S: stores and retrieves with all address commands, over IPv4 and IPv6.

use std::net::{IpAddr, SocketAddr};

use super::client::{ControlClient, eprt_argument, port_argument};
use super::data_port;
use super::in_process_server::{InProcessServer, test_bytes};

#[derive(Clone, Copy, Debug)]
enum AddressCommand {
    Pasv,
    Epsv,
    Port,
    Eprt,
}

enum DataEndpoint {
    Passive(SocketAddr),
    Active(std::net::TcpListener),
}

impl DataEndpoint {
    fn new(client: &mut ControlClient, form: AddressCommand, ip: IpAddr) -> Self {
        match form {
            AddressCommand::Pasv => Self::Passive(client.pasv()),
            AddressCommand::Epsv => Self::Passive(client.epsv()),
            AddressCommand::Port => {
                let listener = data_port::listen(ip);
                let argument = port_argument(listener.local_addr().unwrap());
                client.expect_reply(&format!("PORT {argument}"), 200);
                Self::Active(listener)
            }
            AddressCommand::Eprt => {
                let listener = data_port::listen(ip);
                let argument = eprt_argument(listener.local_addr().unwrap());
                client.expect_reply(&format!("EPRT {argument}"), 200);
                Self::Active(listener)
            }
        }
    }

    fn stream(self) -> std::net::TcpStream {
        match self {
            Self::Passive(address) => data_port::connect(address),
            Self::Active(listener) => data_port::accept(&listener),
        }
    }
}

fn store_and_retrieve(server: &InProcessServer, forms: &[AddressCommand]) {
    let mut client = server.anonymous_client();
    for form in forms {
        for size in [0, 1, 65_535, 65_536, 3_000_000] {
            let bytes = test_bytes(size);
            let data = DataEndpoint::new(&mut client, *form, server.ip());
            client.send("STOR up");
            data_port::send_and_close(data.stream(), &bytes);
            client.expect_code(150);
            client.expect_code(226);
            assert!(server.read_file("up") == bytes, "{form:?} {size}");

            let data = DataEndpoint::new(&mut client, *form, server.ip());
            client.send("RETR up");
            let got = data_port::read_all(data.stream());
            client.expect_code(150);
            client.expect_code(226);
            assert!(got == bytes, "{form:?} {size}");
        }
    }
}

#[test]
fn transfers_over_ipv4() {
    store_and_retrieve(
        &InProcessServer::start(),
        &[
            AddressCommand::Pasv,
            AddressCommand::Epsv,
            AddressCommand::Port,
            AddressCommand::Eprt,
        ],
    );
}

#[test]
fn transfers_over_ipv6() {
    store_and_retrieve(
        &InProcessServer::on_v6(),
        &[AddressCommand::Epsv, AddressCommand::Eprt],
    );
}

#[test]
fn a_data_address_is_valid_for_one_transfer() {
    let server = InProcessServer::start();
    server.create_file("f", 10);
    let mut client = server.anonymous_client();
    let address = client.pasv();
    client.send("RETR f");
    data_port::read_all(data_port::connect(address));
    client.expect_code(150);
    client.expect_code(226);
    client.expect_reply("RETR f", 425);
}

#[test]
fn a_missing_file_is_refused_before_150_and_keeps_the_address() {
    let server = InProcessServer::start();
    server.create_file("f", 10);
    let mut client = server.anonymous_client();
    let address = client.pasv();
    client.expect_reply("RETR missing", 550);
    client.send("RETR f");
    assert_eq!(data_port::read_all(data_port::connect(address)).len(), 10);
    client.expect_code(150);
    client.expect_code(226);
}

#[test]
fn a_store_without_an_address_keeps_the_file() {
    let server = InProcessServer::start();
    let bytes = server.create_file("f", 10);
    server.anonymous_client().expect_reply("STOR f", 425);
    assert_eq!(server.read_file("f"), bytes);
}

#[test]
fn type_a_translates_line_ends() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    client.expect_reply("TYPE A", 200);
    let address = client.pasv();
    client.send("STOR text");
    data_port::send_and_close(data_port::connect(address), b"one\r\ntwo\r\n");
    client.expect_code(150);
    client.expect_code(226);
    assert_eq!(server.read_file("text"), b"one\ntwo\n");
    let address = client.pasv();
    client.send("RETR text");
    assert_eq!(
        data_port::read_all(data_port::connect(address)),
        b"one\r\ntwo\r\n"
    );
    client.expect_code(150);
    client.expect_code(226);
}

#[test]
fn appe_appends_and_stou_creates_a_new_file() {
    let server = InProcessServer::start();
    let mut client = server.anonymous_client();
    for part in [b"one ".as_slice(), b"two"] {
        let address = client.pasv();
        client.send("APPE log");
        data_port::send_and_close(data_port::connect(address), part);
        client.expect_code(150);
        client.expect_code(226);
    }
    assert_eq!(server.read_file("log"), b"one two");
    let address = client.pasv();
    client.send("STOU");
    let data = data_port::connect(address);
    let name = client.expect_code(150).text;
    data_port::send_and_close(data, b"unique");
    client.expect_code(226);
    let name = name.rsplit('/').next().unwrap();
    assert_eq!(server.read_file(name), b"unique");
}
