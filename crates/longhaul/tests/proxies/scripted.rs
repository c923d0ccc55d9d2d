//! A proxy for tests: CONNECT and SOCKS5 on one port, with names that nobody else knows.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The name that only the proxy knows.
pub(crate) const NAME: &str = "server.invalid";

/// The ways of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Connects to any port.
    Open,
    /// Connects to this port, and refuses others.
    OnlyPort(u16),
    /// Refuses every connection.
    Forbidding,
    /// Accepts connections, and says nothing.
    Silent,
    /// Speaks FTP.
    Ftp,
}

/// A running proxy; it ends with the test process.
pub(crate) struct ScriptedProxy {
    pub(crate) address: SocketAddr,
    /// The targets that it was asked for.
    asked: Arc<Mutex<Vec<String>>>,
}

/// An error ends a connection, and the test fails by that.
type Done = std::io::Result<()>;

impl ScriptedProxy {
    /// Starts a proxy. With a login it refuses everybody else: `USER:PASSWORD`.
    pub(crate) fn start(behaviour: Behaviour, login: Option<&'static str>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let log = Arc::clone(&log);
                std::thread::spawn(move || serve(client, behaviour, login, &log));
            }
        });
        Self { address, asked }
    }

    /// The targets that it was asked for so far: `HOST:PORT`.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(
    mut client: TcpStream,
    behaviour: Behaviour,
    login: Option<&str>,
    log: &Mutex<Vec<String>>,
) -> Done {
    match behaviour {
        Behaviour::Silent => {
            client.read_to_end(&mut Vec::new())?;
            return Ok(());
        }
        Behaviour::Ftp => {
            client.write_all(b"220 ready\r\n")?;
            client.read_to_end(&mut Vec::new())?;
            return Ok(());
        }
        _ => {}
    }
    let mut first = [0];
    client.read_exact(&mut first)?;
    let is_socks = first == [5];
    let target = match is_socks {
        true => socks(&mut client, login)?,
        false => connect(&mut client, login)?,
    };
    let Some((host, port)) = target else {
        return Ok(());
    };
    log.lock().unwrap().push(format!("{host}:{port}"));
    let is_allowed = match behaviour {
        Behaviour::Open => true,
        Behaviour::OnlyPort(only) => port == only,
        _ => false,
    };
    let host = match host.as_str() {
        NAME => "127.0.0.1",
        other => other,
    };
    let server = is_allowed.then(|| TcpStream::connect((host, port)));
    let reply: &[u8] = match (&server, is_socks) {
        (Some(Ok(_)), true) => b"\x05\0\0\x01\0\0\0\0\0\0",
        (Some(Ok(_)), false) => b"HTTP/1.0 200 Connection established\r\nVia: test\r\n\r\n",
        (Some(Err(_)), true) => b"\x05\x05\0\x01\0\0\0\0\0\0",
        (Some(Err(_)), false) => b"HTTP/1.0 502 Bad Gateway\r\n\r\n<html>",
        (None, true) => b"\x05\x02\0\x01\0\0\0\0\0\0",
        (None, false) => b"HTTP/1.0 403 Filtered\r\n\r\n<html>",
    };
    client.write_all(reply)?;
    if let Some(Ok(server)) = server {
        relay(client, server)?;
    }
    Ok(())
}

/// The rest of a SOCKS5 dialogue up to the request, which it returns.
fn socks(client: &mut TcpStream, login: Option<&str>) -> std::io::Result<Option<(String, u16)>> {
    let field = |client: &mut TcpStream| {
        let mut length = [0];
        client.read_exact(&mut length)?;
        let mut bytes = vec![0; usize::from(length[0])];
        client.read_exact(&mut bytes)?;
        std::io::Result::Ok(bytes)
    };
    let methods = field(client)?;
    match login {
        Some(login) if methods.contains(&2) => {
            client.write_all(b"\x05\x02")?;
            client.read_exact(&mut [0])?;
            let given = [field(client)?, field(client)?].join(&b':');
            let is_right = given == login.as_bytes();
            client.write_all(&[1, u8::from(!is_right)])?;
            if !is_right {
                return Ok(None);
            }
        }
        Some(_) => {
            client.write_all(b"\x05\xff")?;
            return Ok(None);
        }
        None => client.write_all(b"\x05\0")?,
    }
    let mut head = [0; 4];
    client.read_exact(&mut head)?;
    let host = match head[3] {
        3 => String::from_utf8(field(client)?).unwrap(),
        1 => {
            let mut ip = [0; 4];
            client.read_exact(&mut ip)?;
            Ipv4Addr::from(ip).to_string()
        }
        // No server of these tests has an IPv6 address.
        _ => return Err(std::io::ErrorKind::Unsupported.into()),
    };
    let mut port = [0; 2];
    client.read_exact(&mut port)?;
    Ok(Some((host, u16::from_be_bytes(port))))
}

/// The rest of a CONNECT request.
fn connect(client: &mut TcpStream, login: Option<&str>) -> std::io::Result<Option<(String, u16)>> {
    use base64::Engine as _;
    let mut text = b"C".to_vec();
    while !text.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        text.push(byte[0]);
    }
    let text = String::from_utf8(text).unwrap();
    let field = |login| base64::prelude::BASE64_STANDARD.encode(login);
    if login.is_some_and(|login| !text.contains(&format!("Basic {}\r\n", field(login)))) {
        client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")?;
        return Ok(None);
    }
    let target = text.split(' ').nth(1).unwrap();
    let (host, port) = target.rsplit_once(':').unwrap();
    Ok(Some((host.to_owned(), port.parse().unwrap())))
}

fn relay(client: TcpStream, server: TcpStream) -> Done {
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let up = std::thread::spawn(move || {
        let _ = std::io::copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let (mut from_server, mut to_client) = (server, client);
    let _ = std::io::copy(&mut from_server, &mut to_client);
    let _ = to_client.shutdown(Shutdown::Write);
    let _ = up.join();
    Ok(())
}
