//! Small network programs that the tests start on hosts of a lab. They are part of this test program;
//! `LAB_PROBE` has the name and arguments of the one to run.
//!
//! * `udp-receive COUNT` receives at most COUNT datagrams and records them in `arrivals`;
//! * `udp-send ADDRESS COUNT PAYLOAD MICROSECONDS` sends datagrams at this interval (0: at once);
//! * `udp-echo COUNT` returns datagrams, `udp-ping ADDRESS COUNT MICROSECONDS` records the round-trip
//!   time of each in `round-trips`;
//! * `tcp-receive` accepts one connection and records it in `received`, `tcp-send ADDRESS BYTES`
//!   connects and sends;
//! * `path-test TEST ADDRESS` runs a test of the advisor and records its result in `TEST-ADDRESS` as JSON. A test that
//!   has no result, because the machine is busy, is run again.
//!
//! A receiver creates the file `ready` in the working directory when it listens, and a sender creates
//! `sent` when it is done. They use files, so that the network carries only the packets under test.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::arrivals::DatagramArrival;

const PORT: u16 = 7000;
const READY: &str = "ready";
const SENT: &str = "sent";
/// Time without datagrams after which a receiver ends, once the sender is done.
const IDLE: Duration = Duration::from_millis(400);
/// Limit for a receiver, and for a sender that waits for the receiver.
const PATIENCE: Duration = Duration::from_secs(60);
/// Large enough that the receiving socket drops no datagrams, which the lab would not count.
const RECEIVE_BUFFER: usize = 64 << 20;
/// Length of the sequence number and the time of sending, bytes.
const HEADER: usize = 16;
/// Length of the data pattern, bytes. It is prime, so that packets differ from each other.
const PATTERN: usize = 65_521;

/// Runs the program in `LAB_PROBE`.
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
        ["path-test", name, address] => path_test(name, address),
        _ => panic!("unknown probe {words:?}"),
    }
}

fn path_test(name: &str, address: &str) {
    use advisor::path_test::{Target, all_tests};
    let target = Target::new(address.parse().unwrap());
    let tests = all_tests(Vec::new());
    let mut test = tests.into_iter().find(|test| test.name() == name).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let found = runtime.unwrap().block_on(async {
        test.init().await.unwrap();
        let start = Instant::now();
        loop {
            match test.run(&target).await {
                Ok(found) => return found,
                Err(failure) => assert!(start.elapsed() < PATIENCE, "{failure}"),
            }
        }
    });
    assert!(found.cost_bytes <= test.most_bytes(&target));
    let mut result = serde_json::json!({ "detail": found.detail });
    for (quantity, value) in found.values {
        result[quantity.name()] = value.into();
    }
    std::fs::write(format!("{name}-{address}"), result.to_string()).unwrap();
}

fn number(word: &str) -> usize {
    word.parse().unwrap()
}

fn micros(word: &str) -> Duration {
    Duration::from_micros(word.parse().unwrap())
}

/// Nanoseconds of the real-time clock, which all processes of the machine share.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap().as_nanos()).unwrap()
}

fn create_marker(what: &str) {
    std::fs::write(what, "").unwrap();
}

fn wait_for_receiver() {
    let start = Instant::now();
    while !Path::new(READY).exists() {
        assert!(start.elapsed() < PATIENCE, "there is no receiver");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The departures of datagrams at equal intervals. The sender catches up after a short pause, for example a sleep that
/// took longer than asked. After a long one, for example because the machine is busy, it goes on from there: a burst
/// would be lost at the queue under test.
struct DepartureSchedule {
    next: Instant,
    gap: Duration,
}

impl DepartureSchedule {
    /// The longest pause that is caught up.
    const CATCH_UP: Duration = Duration::from_millis(5);

    fn new(gap: Duration) -> Self {
        let next = Instant::now();
        Self { next, gap }
    }

    /// Waits until the next datagram is due.
    fn wait(&mut self) {
        std::thread::sleep(self.next.saturating_duration_since(Instant::now()));
        let now = Instant::now();
        self.next = self
            .next
            .max(now.checked_sub(Self::CATCH_UP).unwrap_or(now))
            + self.gap;
    }
}

fn receiver() -> UdpSocket {
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
    // SO_RCVBUFFORCE needs root; without it the buffer keeps its default size.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER);
    socket
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    create_marker(READY);
    socket
}

/// Calls `take` for each datagram received.
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
    let mut schedule = DepartureSchedule::new(gap);
    for sequence in 0..count {
        schedule.wait();
        socket.send(&datagram(sequence, payload)).unwrap();
    }
    create_marker(SENT);
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
    create_marker(SENT);
}

/// The data pattern that a connection repeats.
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
    create_marker(READY);
    let (mut stream, _) = listener.accept().unwrap();
    let start = Instant::now();
    let pattern = pattern();
    let (mut bytes, mut wrong) = (0, 0);
    // `spans` cuts once: a read may not hold more than one repetition.
    let mut buffer = vec![0; PATTERN];
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

/// Splits `length` bytes from `offset` where the pattern repeats.
fn spans(offset: usize, length: usize) -> Vec<std::ops::Range<usize>> {
    let first = length.min(PATTERN - offset % PATTERN);
    [0..first, first..length].into()
}
