//! The client end of a control connection, which sends lines and reads replies.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

/// A received reply: its code, and its text with lines joined by LF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReceivedReply {
    pub(crate) code: u16,
    pub(crate) text: String,
}

impl ReceivedReply {
    /// Reads a reply of one or several lines (RFC 959 section 4.2); `None` at the end of the connection.
    pub(crate) fn read(mut next_line: impl FnMut() -> Option<String>) -> Option<Self> {
        let first = next_line()?;
        let code: u16 = first.get(..3)?.parse().expect("a code");
        let mut text = first[4..].to_owned();
        if first.as_bytes()[3] == b'-' {
            let last = format!("{code} ");
            loop {
                let line = next_line()?;
                text.push('\n');
                text.push_str(&line);
                if line.starts_with(&last) {
                    break;
                }
            }
        }
        Some(Self { code, text })
    }
}

pub(crate) struct ControlClient {
    pub(crate) stream: TcpStream,
    reader: BufReader<TcpStream>,
}

/// Longest wait for a reply.
const TIMEOUT: Duration = Duration::from_secs(60);

impl ControlClient {
    /// Connects and reads the greeting.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let mut client = Self::connect_silently(address);
        assert_eq!(client.read_reply().code, 220);
        client
    }

    /// Connects from another address of this host, logs in as anonymous and sets TYPE I.
    pub(crate) fn anonymous_from(local: IpAddr, address: SocketAddr) -> Self {
        let mut client = Self::from_address(local, address);
        client.expect_code(220);
        client.log_in("anonymous", "test@");
        client.expect_reply("TYPE I", 200);
        client
    }

    /// Connects without reading the greeting.
    pub(crate) fn connect_silently(address: SocketAddr) -> Self {
        Self::from_stream(TcpStream::connect(address).unwrap())
    }

    /// Connects from another address of this host, without reading the greeting.
    pub(crate) fn from_address(local: IpAddr, address: SocketAddr) -> Self {
        Self::from_stream(super::data_port::connect_from(local, address))
    }

    fn from_stream(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self { stream, reader }
    }

    pub(crate) fn log_in(&mut self, user: &str, password: &str) {
        self.expect_reply(&format!("USER {user}"), 331);
        self.expect_reply(&format!("PASS {password}"), 230);
    }

    /// Sends bytes unchanged.
    pub(crate) fn send_bytes(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends a line.
    pub(crate) fn send(&mut self, line: &str) {
        self.send_bytes(format!("{line}\r\n"));
    }

    /// Sends a line and returns the reply.
    pub(crate) fn command(&mut self, line: &str) -> ReceivedReply {
        self.send(line);
        self.read_reply()
    }

    /// Sends a line and asserts the code of the reply.
    pub(crate) fn expect_reply(&mut self, line: &str, code: u16) -> ReceivedReply {
        let reply = self.command(line);
        assert_eq!(reply.code, code, "{line}: {reply:?}");
        reply
    }

    /// Reads one reply and asserts its code.
    pub(crate) fn expect_code(&mut self, code: u16) -> ReceivedReply {
        let reply = self.read_reply();
        assert_eq!(reply.code, code, "{reply:?}");
        reply
    }

    /// Reads the next reply that is not a marker (111, 112, 113) and asserts its code.
    pub(crate) fn expect_code_after_markers(&mut self, code: u16) -> ReceivedReply {
        let (reply, _) = self.reply_and_markers();
        assert_eq!(reply.code, code, "{reply:?}");
        reply
    }

    /// Reads the next reply, after a 150 if that comes first, and asserts its code.
    pub(crate) fn expect_code_after_150(&mut self, code: u16) -> ReceivedReply {
        let reply = self.read_reply();
        if reply.code == 150 {
            return self.expect_code(code);
        }
        assert_eq!(reply.code, code, "{reply:?}");
        reply
    }

    /// Reads the next reply that is not a marker; returns also the markers before it.
    pub(crate) fn reply_and_markers(&mut self) -> (ReceivedReply, Vec<ReceivedReply>) {
        let mut markers = Vec::new();
        loop {
            let reply = self.read_reply();
            if !matches!(reply.code, 111..=113) {
                return (reply, markers);
            }
            markers.push(reply);
        }
    }

    pub(crate) fn read_reply(&mut self) -> ReceivedReply {
        self.try_read_reply().expect("a reply")
    }

    /// Reads one reply; `None` at the end of the connection.
    pub(crate) fn try_read_reply(&mut self) -> Option<ReceivedReply> {
        ReceivedReply::read(|| self.read_line())
    }

    /// Asserts that the server closes the connection.
    pub(crate) fn expect_close(&mut self) {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => assert_eq!(String::from_utf8_lossy(&rest), ""),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
        }
    }

    /// Asserts that no reply arrives for a short time.
    pub(crate) fn expect_silence(&mut self) {
        self.stream
            .set_read_timeout(Some(Duration::from_millis(150)))
            .unwrap();
        let said = self.reader.fill_buf().map(<[u8]>::to_vec);
        self.stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let error = said.expect_err("silence");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    /// Sends PASV; returns the address.
    pub(crate) fn pasv(&mut self) -> SocketAddr {
        let reply = self.expect_reply("PASV", 227);
        port_address(&reply.text)
    }

    /// Sends EPSV; returns the address, whose host is that of the control connection.
    pub(crate) fn epsv(&mut self) -> SocketAddr {
        let reply = self.expect_reply("EPSV", 229);
        let port = reply.text.split('|').nth(3).unwrap().parse().unwrap();
        SocketAddr::new(self.stream.peer_addr().unwrap().ip(), port)
    }

    fn read_line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        if self.reader.read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        assert!(line.ends_with(b"\r\n"), "{line:?}");
        line.truncate(line.len() - 2);
        Some(String::from_utf8_lossy(&line).into_owned())
    }
}

/// Parses the address in a 227 or 127 reply.
pub(crate) fn port_address(text: &str) -> SocketAddr {
    let inner = &text[text.find('(').unwrap() + 1..text.find(')').unwrap()];
    let n: Vec<u8> = inner.split(',').map(|n| n.parse().unwrap()).collect();
    SocketAddr::from(([n[0], n[1], n[2], n[3]], u16::from_be_bytes([n[4], n[5]])))
}

/// Formats the argument of PORT.
pub(crate) fn port_argument(address: SocketAddr) -> String {
    let SocketAddr::V4(address) = address else {
        panic!("PORT is for IPv4");
    };
    let [a, b, c, d] = address.ip().octets();
    let [high, low] = address.port().to_be_bytes();
    format!("{a},{b},{c},{d},{high},{low}")
}

/// Formats the argument of EPRT.
pub(crate) fn eprt_argument(address: SocketAddr) -> String {
    let family = if address.is_ipv4() { 1 } else { 2 };
    format!("|{family}|{}|{}|", address.ip(), address.port())
}
