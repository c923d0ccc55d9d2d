//! MODE S, both ways, over every form of address, both families.

use std::net::{IpAddr, SocketAddr};

use crate::client::{Client, eprt_argument, port_argument};
use crate::data_port;
use crate::running::{Running, sample};

#[derive(Clone, Copy, Debug)]
enum Form {
    Pasv,
    Epsv,
    Port,
    Eprt,
}

enum Prepared {
    Passive(SocketAddr),
    Active(std::net::TcpListener),
}

impl Prepared {
    fn new(client: &mut Client, form: Form, ip: IpAddr) -> Self {
        match form {
            Form::Pasv => Self::Passive(client.pasv()),
            Form::Epsv => Self::Passive(client.epsv()),
            Form::Port => {
                let listener = data_port::listen(ip);
                let argument = port_argument(listener.local_addr().unwrap());
                client.expect(&format!("PORT {argument}"), 200);
                Self::Active(listener)
            }
            Form::Eprt => {
                let listener = data_port::listen(ip);
                let argument = eprt_argument(listener.local_addr().unwrap());
                client.expect(&format!("EPRT {argument}"), 200);
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

fn both_ways(server: &Running, forms: &[Form]) {
    let mut client = server.anonymous();
    for form in forms {
        for size in [0, 1, 65_535, 65_536, 3_000_000] {
            let bytes = sample(size);
            let data = Prepared::new(&mut client, *form, server.ip());
            client.send("STOR up");
            data_port::pour(data.stream(), &bytes);
            client.next(150);
            client.next(226);
            assert!(server.stored("up") == bytes, "{form:?} {size}");

            let data = Prepared::new(&mut client, *form, server.ip());
            client.send("RETR up");
            let got = data_port::drain(data.stream());
            client.next(150);
            client.next(226);
            assert!(got == bytes, "{form:?} {size}");
        }
    }
}

#[test]
fn over_ipv4() {
    both_ways(
        &Running::start(),
        &[Form::Pasv, Form::Epsv, Form::Port, Form::Eprt],
    );
}

#[test]
fn over_ipv6() {
    both_ways(&Running::on_v6(), &[Form::Epsv, Form::Eprt]);
}

#[test]
fn a_data_address_serves_one_transfer() {
    let server = Running::start();
    server.file("f", 10);
    let mut client = server.anonymous();
    let address = client.pasv();
    client.send("RETR f");
    data_port::drain(data_port::connect(address));
    client.next(150);
    client.next(226);
    client.expect("RETR f", 425);
}

#[test]
fn a_missing_file_is_told_before_150_and_the_address_stays() {
    let server = Running::start();
    server.file("f", 10);
    let mut client = server.anonymous();
    let address = client.pasv();
    client.expect("RETR missing", 550);
    client.send("RETR f");
    assert_eq!(data_port::drain(data_port::connect(address)).len(), 10);
    client.next(150);
    client.next(226);
}

#[test]
fn a_store_without_an_address_leaves_the_file_alone() {
    let server = Running::start();
    let bytes = server.file("f", 10);
    server.anonymous().expect("STOR f", 425);
    assert_eq!(server.stored("f"), bytes);
}

#[test]
fn type_a_translates_line_ends() {
    let server = Running::start();
    let mut client = server.anonymous();
    client.expect("TYPE A", 200);
    let address = client.pasv();
    client.send("STOR text");
    data_port::pour(data_port::connect(address), b"one\r\ntwo\r\n");
    client.next(150);
    client.next(226);
    assert_eq!(server.stored("text"), b"one\ntwo\n");
    let address = client.pasv();
    client.send("RETR text");
    assert_eq!(
        data_port::drain(data_port::connect(address)),
        b"one\r\ntwo\r\n"
    );
    client.next(150);
    client.next(226);
}

#[test]
fn appe_and_stou() {
    let server = Running::start();
    let mut client = server.anonymous();
    for part in [b"one ".as_slice(), b"two"] {
        let address = client.pasv();
        client.send("APPE log");
        data_port::pour(data_port::connect(address), part);
        client.next(150);
        client.next(226);
    }
    assert_eq!(server.stored("log"), b"one two");
    let address = client.pasv();
    client.send("STOU");
    let data = data_port::connect(address);
    let name = client.next(150).text;
    data_port::pour(data, b"unique");
    client.next(226);
    let name = name.rsplit('/').next().unwrap();
    assert_eq!(server.stored(name), b"unique");
}
