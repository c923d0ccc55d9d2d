//! Small network programs that the tests start on the hosts of a lab: this same file of tests, with
//! the program's words in `LAB_PROBE`.
//!
//! * `udp-receive COUNT` takes datagrams, at most COUNT, and notes them in `arrivals`;
//! * `udp-send ADDRESS COUNT PAYLOAD MICROSECONDS` sends datagrams so long apart (0: at once);
//! * `udp-echo COUNT` sends datagrams back, `udp-ping ADDRESS COUNT MICROSECONDS` notes the round
//!   trip of each in `round-trips`;
//! * `tcp-receive` takes one connection to its end and notes it in `received`, `tcp-send ADDRESS
//!   BYTES` makes one.
//!
//! A receiver says by a file `ready` in the working directory that it is there, and a sender by
//! `sent` that it is done: no packet goes over the network but those that are asked for.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::arrivals::DatagramArrival;

const PORT: u16 = 7000;
const READY: &str = "ready";
const SENT: &str = "sent";
/// Silence that ends a receiver after the sender is done.
const IDLE: Duration = Duration::from_millis(400);
/// Patience of a receiver with everything, and of a sender with the receiver to come.
const PATIENCE: Duration = Duration::from_secs(60);
/// Datagrams must not be lost where the lab does not see it.
const RECEIVE_BUFFER: usize = 64 << 20;
/// The sequence number and the time of sending.
const HEADER: usize = 16;
/// A prime, so that no packet is like another.
const PATTERN: usize = 65_521;

/// Does what `LAB_PROBE` says.
pub(crate) fn run() {
    let Ok(words) = std::env::var("LAB_PROBE") else {
        return;
    };
    let words: Vec<&str> = words.split(' ').collect();
    match words[..] {
        ["udp-receive", count] => udp_receive(number(count)),
        ["udp-send", address, count, payload, gap] => {
            udp_send(address, number(count), number(payload), micros(gap));
        }
        ["udp-echo", count] => udp_echo(number(count)),
        ["udp-ping", address, count, gap] => udp_ping(address, number(count), micros(gap)),
        ["tcp-receive"] => tcp_receive(),
        ["tcp-send", address, bytes] => tcp_send(address, number(bytes)),
        _ => panic!("the probe does not know {words:?}"),
    }
}

fn number(word: &str) -> usize {
    word.parse().unwrap()
}

fn micros(word: &str) -> Duration {
    Duration::from_micros(word.parse().unwrap())
}

/// Nanoseconds of the clock that all processes of the machine share.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap().as_nanos()).unwrap()
}

fn say(what: &str) {
    std::fs::write(what, "").unwrap();
}

fn wait_for_receiver() {
    let start = Instant::now();
    while !Path::new(READY).exists() {
        assert!(start.elapsed() < PATIENCE, "there is no receiver");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until `index` gaps after the start.
fn pace(start: Instant, gap: Duration, index: usize) {
    let due = gap * u32::try_from(index).unwrap();
    std::thread::sleep(due.saturating_sub(start.elapsed()));
}

fn receiver() -> UdpSocket {
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
    // Without root it is as large as the machine's setting allows.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER);
    socket
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    say(READY);
    socket
}

/// Hands every datagram that comes to `take`.
fn receive(socket: &UdpSocket, count: usize, mut take: impl FnMut(&[u8], std::net::SocketAddr)) {
    let (start, mut last) = (Instant::now(), Instant::now());
    let mut datagram = [0; 2048];
    let mut taken = 0;
    while taken < count {
        match socket.recv_from(&mut datagram) {
            Ok((length, from)) => {
                take(&datagram[..length], from);
                taken += 1;
                last = Instant::now();
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if Path::new(SENT).exists() && last.elapsed() > IDLE {
                    break;
                }
                assert!(start.elapsed() < PATIENCE, "{taken} datagrams of {count}");
            }
            Err(e) => panic!("{e}"),
        }
    }
}

fn udp_receive(count: usize) {
    let socket = receiver();
    let mut arrivals = Vec::with_capacity(count);
    receive(&socket, count, |datagram, _| {
        let word = |at: usize| u64::from_le_bytes(datagram[at..at + 8].try_into().unwrap());
        arrivals.push(DatagramArrival {
            sequence: word(0),
            sent: word(8),
            received: now(),
        });
    });
    std::fs::write("arrivals", DatagramArrival::write(&arrivals)).unwrap();
}

fn datagram(sequence: usize, length: usize) -> Vec<u8> {
    let mut datagram = vec![0; length];
    datagram[..8].copy_from_slice(&(sequence as u64).to_le_bytes());
    datagram[8..HEADER].copy_from_slice(&now().to_le_bytes());
    datagram
}

fn udp_send(address: &str, count: usize, payload: usize, gap: Duration) {
    wait_for_receiver();
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect((address, PORT)).unwrap();
    let start = Instant::now();
    for sequence in 0..count {
        pace(start, gap, sequence);
        socket.send(&datagram(sequence, payload)).unwrap();
    }
    say(SENT);
}

fn udp_echo(count: usize) {
    let socket = receiver();
    receive(&socket, count, |datagram, from| {
        socket.send_to(datagram, from).unwrap();
    });
}

fn udp_ping(address: &str, count: usize, gap: Duration) {
    wait_for_receiver();
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect((address, PORT)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut text = String::new();
    let mut answer = [0; 64];
    for sequence in 0..count {
        let start = Instant::now();
        socket.send(&datagram(sequence, 64)).unwrap();
        socket.recv(&mut answer).unwrap();
        writeln!(text, "{}", start.elapsed().as_nanos()).unwrap();
        std::thread::sleep(gap);
    }
    std::fs::write("round-trips", text).unwrap();
    say(SENT);
}

/// Bytes that a connection carries, from any place on.
fn pattern() -> Vec<u8> {
    let byte = |at: usize| (at.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0];
    (0..PATTERN).map(byte).collect()
}

fn tcp_send(address: &str, bytes: usize) {
    wait_for_receiver();
    let mut stream = TcpStream::connect((address, PORT)).unwrap();
    let pattern = pattern();
    let mut left = bytes;
    while left > 0 {
        let length = left.min(PATTERN);
        stream.write_all(&pattern[..length]).unwrap();
        left -= length;
    }
}

fn tcp_receive() {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).unwrap();
    say(READY);
    let (mut stream, _) = listener.accept().unwrap();
    let start = Instant::now();
    let pattern = pattern();
    let (mut bytes, mut wrong) = (0, 0);
    let mut buffer = vec![0; 65_536];
    loop {
        let got = stream.read(&mut buffer).unwrap();
        if got == 0 {
            break;
        }
        for part in spans(bytes, got) {
            let expected = &pattern[(bytes + part.start) % PATTERN..][..part.len()];
            let found = &buffer[part];
            if expected != found {
                wrong += expected.iter().zip(found).filter(|(a, b)| a != b).count();
            }
        }
        bytes += got;
    }
    let seconds = start.elapsed().as_secs_f64();
    std::fs::write("received", format!("{bytes} {wrong} {seconds}")).unwrap();
}

/// The parts of `length` bytes from `offset` on between which the pattern begins again.
fn spans(offset: usize, length: usize) -> Vec<std::ops::Range<usize>> {
    let first = length.min(PATTERN - offset % PATTERN);
    [0..first, first..length].into()
}
