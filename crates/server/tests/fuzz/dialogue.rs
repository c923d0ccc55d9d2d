//! One control connection from greeting to end, with its data connections.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use proto::eblock::BlockHeader;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use socket2::{Domain, Socket, Type};

use super::commands;

/// Longest time in which a session must end after QUIT when its data connections are closed. The
/// server's own timeouts are far shorter.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Time to read replies between two steps. It affects only the speed of the test.
const READ_TIME: Duration = Duration::from_millis(3);

/// Largest number of data bytes read or written at a time.
const MAX_DATA: usize = 300_000;

/// A client that sends random commands and misuses its data connections.
pub(crate) struct FuzzDialogue {
    rng: Pcg64Mcg,
    seed: u64,
    control: TcpStream,
    listeners: Vec<TcpListener>,
    data: Vec<TcpStream>,
    /// Everything that the server has sent on control and data connections.
    received: Vec<u8>,
}

impl FuzzDialogue {
    /// Connects from a random loopback address, so that limits per client do not end the dialogue.
    pub(crate) fn new(seed: u64, port: u16) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let from = Ipv4Addr::new(127, 0, rng.random(), rng.random_range(1..255));
        let control = connect(from, SocketAddr::from((Ipv4Addr::LOCALHOST, port))).unwrap();
        control.set_nodelay(true).unwrap();
        Self {
            rng,
            seed,
            control,
            listeners: Vec::new(),
            data: Vec::new(),
            received: Vec::new(),
        }
    }

    /// Whether the server sends a greeting.
    pub(crate) fn receives_greeting(&mut self) -> bool {
        self.control.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut code = [0; 3];
        self.control.read_exact(&mut code).is_ok() && &code == b"220"
    }

    /// Runs random steps, then leaves; returns everything that was received.
    ///
    /// # Panics
    /// If the server does not end the session.
    pub(crate) fn run(mut self) -> Vec<u8> {
        if !self.rng.random_ratio(1, 10) {
            self.send(b"USER anonymous\r\nPASS x@\r\nTYPE I\r\n");
        }
        for _ in 0..self.rng.random_range(1..40) {
            self.random_step();
            self.read_for(READ_TIME);
        }
        self.leave();
        self.received
    }

    fn random_step(&mut self) {
        match self.rng.random_range(0..100) {
            0..=44 => self.command(),
            45..=69 => self.transfer(),
            70..=74 => self.pipeline(),
            75..=79 => self.port(),
            80..=92 => self.use_data(),
            93..=95 => self.data.clear(),
            96 => self.send(b"\xff\xf4\xff\xf2ABOR\r\n"),
            97 => self.send(b"\r\n\r\n\n"),
            98 => self.urgent(),
            _ => {
                // Half of a line; the rest is part of the next command.
                self.send(b"NO");
            }
        }
    }

    fn command(&mut self) {
        let mut line = commands::line(&mut self.rng);
        line.extend_from_slice(b"\r\n");
        self.send(&line);
    }

    fn pipeline(&mut self) {
        let mut lines = Vec::new();
        for _ in 0..self.rng.random_range(2..20) {
            lines.extend(commands::line(&mut self.rng));
            lines.extend_from_slice(b"\r\n");
        }
        self.send(&lines);
    }

    /// Begins a passive transfer as a correct client does, up to the data connection.
    fn transfer(&mut self) {
        if self.rng.random_ratio(1, 3) {
            let mode: &[u8] = if self.rng.random() {
                b"MODE E\r\n"
            } else {
                b"MODE S\r\n"
            };
            self.send(mode);
        }
        let mark = self.received.len();
        self.send(b"PASV\r\n");
        let mut line = commands::transfer(&mut self.rng);
        line.extend_from_slice(b"\r\n");
        if self.rng.random_ratio(4, 5) {
            self.send(&line);
        }
        self.read_for(READ_TIME * 5);
        let Some(port) = passive_port(&self.received[mark..]) else {
            return;
        };
        let from = match self.control.local_addr() {
            Ok(SocketAddr::V4(at)) if !self.rng.random_ratio(1, 8) => *at.ip(),
            // The address of another client.
            _ => Ipv4Addr::new(127, 9, 9, 9),
        };
        for _ in 0..self.rng.random_range(1..4) {
            let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            if let Ok(stream) = connect(from, to) {
                self.data.push(stream);
            }
        }
        self.use_data();
    }

    /// Begins an active transfer to a listener of this client.
    fn port(&mut self) {
        let Ok(SocketAddr::V4(own)) = self.control.local_addr() else {
            return;
        };
        let Ok(listener) = TcpListener::bind((*own.ip(), 0)) else {
            return;
        };
        let [a, b, c, d] = own.ip().octets();
        let [high, low] = listener.local_addr().unwrap().port().to_be_bytes();
        self.send(format!("PORT {a},{b},{c},{d},{high},{low}\r\n").as_bytes());
        let mut line = commands::transfer(&mut self.rng);
        line.extend_from_slice(b"\r\n");
        self.send(&line);
        listener.set_nonblocking(true).unwrap();
        self.listeners.push(listener);
    }

    /// Uses a data connection at random: accepts, reads, writes valid or invalid blocks, resets or closes.
    fn use_data(&mut self) {
        for listener in &self.listeners {
            if let Ok((stream, _)) = listener.accept() {
                self.data.push(stream);
            }
        }
        if self.data.is_empty() {
            return;
        }
        let at = self.rng.random_range(0..self.data.len());
        let mut stream = self.data.swap_remove(at);
        match self.rng.random_range(0..10) {
            0..=2 => read_some(&mut stream, &mut self.received),
            3..=4 => write_some(&mut stream, &vec![b'y'; self.rng.random_range(0..MAX_DATA)]),
            5..=6 => write_some(&mut stream, &blocks(&mut self.rng)),
            7 => {
                let junk: Vec<u8> = (0..100).map(|_| self.rng.random()).collect();
                write_some(&mut stream, &junk);
            }
            8 => {
                let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                return;
            }
            _ => {}
        }
        if self.rng.random_ratio(1, 2) {
            let _ = stream.shutdown(Shutdown::Write);
            read_some(&mut stream, &mut self.received);
        } else {
            self.data.push(stream);
        }
    }

    /// Sends ABOR with the Telnet Synch as urgent data (RFC 959 section 4.1.3).
    fn urgent(&mut self) {
        self.send(b"\xff\xf4");
        let _ = socket2::SockRef::from(&self.control).send_out_of_band(b"\xff");
        self.send(b"\xf2ABOR\r\n");
    }

    fn send(&mut self, bytes: &[u8]) {
        self.control.set_write_timeout(Some(TIMEOUT)).unwrap();
        // The server may have closed the session.
        let _ = self.control.write_all(bytes);
    }

    fn read_for(&mut self, time: Duration) {
        self.control.set_read_timeout(Some(time)).unwrap();
        let mut chunk = [0; 16 << 10];
        while let Ok(n @ 1..) = self.control.read(&mut chunk) {
            self.received.extend_from_slice(&chunk[..n]);
        }
    }

    /// Closes the data connections and sends QUIT, or just disconnects; asserts that the session ends.
    fn leave(&mut self) {
        self.data.clear();
        self.listeners.clear();
        if self.rng.random_ratio(1, 5) {
            return;
        }
        self.send(b"\r\nABOR\r\nQUIT\r\n");
        let until = Instant::now() + TIMEOUT;
        let mut chunk = [0; 16 << 10];
        self.control
            .set_read_timeout(Some(Duration::from_secs(1)))
            .unwrap();
        loop {
            match self.control.read(&mut chunk) {
                Ok(0) => return,
                Ok(n) => self.received.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
            assert!(
                Instant::now() < until,
                "dialogue {:#x}: the session does not end; last words: {}",
                self.seed,
                String::from_utf8_lossy(&self.received[self.received.len().saturating_sub(500)..])
            );
        }
    }
}

fn connect(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect_timeout(&to.into(), TIMEOUT)?;
    Ok(socket.into())
}

/// The port of the last 227 reply.
fn passive_port(said: &[u8]) -> Option<u16> {
    let text = String::from_utf8_lossy(said);
    let (_, reply) = text
        .rsplit_once("\n227 ")
        .or_else(|| text.split_once("227 "))?;
    let inner = reply.split_once('(')?.1.split_once(')')?.0;
    let mut last = inner.rsplit(',').map(|n| n.trim().parse::<u8>());
    let (low, high) = (last.next()?.ok()?, last.next()?.ok()?);
    Some(u16::from_be_bytes([high, low]))
}

fn read_some(stream: &mut TcpStream, received: &mut Vec<u8>) {
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
    let mut left = MAX_DATA;
    let mut chunk = vec![0; 64 << 10];
    while let Ok(n @ 1..) = stream.read(&mut chunk) {
        received.extend_from_slice(&chunk[..n]);
        left = left.saturating_sub(n);
        if left == 0 {
            break;
        }
    }
}

fn write_some(stream: &mut TcpStream, bytes: &[u8]) {
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_write_timeout(Some(Duration::from_millis(50)));
    let _ = stream.write_all(bytes);
}

/// Random MODE E blocks, most of them valid.
fn blocks(rng: &mut Pcg64Mcg) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..rng.random_range(1..6) {
        let length = rng.random_range(0..40_000_usize);
        let offset = match rng.random_range(0..10) {
            0 => rng.random(),
            _ => rng.random_range(0..100_000),
        };
        bytes.extend(BlockHeader::data(offset, length as u64).encode());
        bytes.resize(bytes.len() + length, b'z');
    }
    match rng.random_range(0..4) {
        0 => {}
        1 => bytes.extend(BlockHeader::eof(rng.random_range(0..5), true).encode()),
        _ => bytes.extend(BlockHeader::eof(1, rng.random()).encode()),
    }
    bytes
}
