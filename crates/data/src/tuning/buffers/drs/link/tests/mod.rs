mod hostile;

use super::*;
use crate::os::wake;
use ::security::gsi::DataHandshakeMode;
use proto::drs::Nonce;
use rustix::event::PollFd;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// A listening end, as a session has it.
fn listening() -> Arc<DrsEndpoint> {
    Arc::new(DrsEndpoint::listen(HERE, None).unwrap())
}

/// The connecting end for a listening one.
fn connecting(to: &DrsEndpoint) -> Arc<DrsEndpoint> {
    let address = to.address();
    Arc::new(DrsEndpoint::connect(address.socket, address.nonce))
}

/// Longer than anything in these tests takes on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn greeting(endpoint: &DrsEndpoint) -> String {
    format!("DRS {}\r\n", endpoint.address().nonce.to_hex())
}

/// Connects from any address and sends `words`.
fn caller(to: SocketAddr, from: IpAddr, words: &str) -> TcpStream {
    let kind = (socket2::Domain::IPV4, socket2::Type::STREAM);
    let socket = socket2::Socket::new(kind.0, kind.1, None).unwrap();
    socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.write_all(words.as_bytes()).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

/// Links with a clock, driven as the tuning thread does.
struct DrsLinkDriver {
    begin: Instant,
    links: Vec<DrsLink>,
    events: Vec<(usize, DrsChannelEvent)>,
    peers: Vec<IpAddr>,
}

impl DrsLinkDriver {
    fn new(links: Vec<DrsLink>) -> Self {
        Self {
            begin: Instant::now(),
            links,
            events: Vec::new(),
            peers: vec![HERE],
        }
    }

    /// One wake-up.
    fn turn(&mut self) {
        let now = self.begin.elapsed();
        for (at, link) in self.links.iter_mut().enumerate() {
            let events = link.advance(now, &self.peers);
            self.events
                .extend(events.into_iter().map(|event| (at, event)));
        }
        let mut fds: Vec<_> = self
            .links
            .iter()
            .flat_map(DrsLink::poll_fds)
            .map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags))
            .collect();
        wake::wait_any(&mut fds, Duration::from_millis(5)).unwrap();
    }

    /// Runs turns until a condition holds.
    fn until(&mut self, what: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !what(self) {
            assert!(begin.elapsed() < TEST_TIMEOUT, "{:?}", self.events);
            self.turn();
        }
    }

    fn until_event(&mut self, at: usize, what: impl Fn(&DrsChannelEvent) -> bool) {
        self.until(|table| {
            table
                .events
                .iter()
                .any(|(i, event)| *i == at && what(event))
        });
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.turn();
        }
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Checks that link 0 receives what its peer sends: the channel works.
    fn check_sender_hears(&mut self, peer: &mut TcpStream, size: u64) {
        peer.write_all(format!("SBUF 1.0 {size}\r\n").as_bytes())
            .unwrap();
        self.until_event(0, |event| *event == DrsChannelEvent::Size(size));
    }
}

/// A listening data sender, and its peer.
fn greeted() -> (DrsLinkDriver, TcpStream) {
    let endpoint = listening();
    let mut peer = caller(endpoint.address().socket, HERE, &greeting(&endpoint));
    let mut table = DrsLinkDriver::new(vec![DrsLink::new(endpoint, Role::Sender, None)]);
    table.check_sender_hears(&mut peer, 65_536);
    table.links[0].applied();
    table.events.clear();
    (table, peer)
}

fn is_echo(event: &DrsChannelEvent) -> bool {
    matches!(event, DrsChannelEvent::Echo(_))
}

#[test]
fn sizes_and_echoes_pass_whichever_end_listens() {
    check_dialogue(None);
}

#[test]
fn the_channel_has_the_protection_of_the_data_connections() {
    for mode in [
        DataHandshakeMode::Protected,
        DataHandshakeMode::AuthenticateOnly,
    ] {
        check_dialogue(Some(&Arc::new(DataSecurity::of_one_user(mode))));
    }
}

#[test]
fn a_caller_without_tls_is_not_heard_on_a_protected_channel() {
    let endpoint = listening();
    let security = Arc::new(DataSecurity::of_one_user(DataHandshakeMode::Protected));
    let hello = greeting(&endpoint);
    let mut stranger = caller(endpoint.address().socket, HERE, &hello);
    stranger.write_all(b"SBUF 1.0 99999\r\n").unwrap();
    let sender = DrsLink::new(Arc::clone(&endpoint), Role::Sender, Some(security.clone()));
    let receiver = DrsLink::new(connecting(&endpoint), Role::Receiver, Some(security));
    let mut table = DrsLinkDriver::new(vec![sender, receiver]);
    table.links[1].announce(Duration::ZERO, 65_536);
    table.until_event(0, |event| matches!(event, DrsChannelEvent::Size(_)));
    assert_eq!(table.events, [(0, DrsChannelEvent::Size(65_536))]);
}

fn check_dialogue(security: Option<&Arc<DataSecurity>>) {
    for receiver_listens in [true, false] {
        let endpoint = listening();
        let other = connecting(&endpoint);
        let (at_receiver, at_sender) = if receiver_listens {
            (endpoint, other)
        } else {
            (other, endpoint)
        };
        let receiver = DrsLink::new(at_receiver, Role::Receiver, security.cloned());
        let sender = DrsLink::new(at_sender, Role::Sender, security.cloned());
        let mut table = DrsLinkDriver::new(vec![receiver, sender]);
        for size in [65_536, 1 << 20] {
            table.events.clear();
            let now = table.now();
            table.links[0].announce(now, size);
            table.until_event(1, |event| *event == DrsChannelEvent::Size(size));
            table.turns(2);
            assert_eq!(table.events.len(), 1, "echoed before it was applied");
            table.links[1].applied();
            table.until_event(0, is_echo);
            assert_eq!(table.events.len(), 2);
        }
    }
}

#[test]
fn the_newest_size_announced_before_the_connection_is_sent() {
    let endpoint = listening();
    let sender = DrsLink::new(connecting(&endpoint), Role::Sender, None);
    let mut table = DrsLinkDriver::new(vec![DrsLink::new(endpoint, Role::Receiver, None), sender]);
    for size in [1, 2, 3] {
        table.links[0].announce(Duration::ZERO, size << 16);
    }
    table.until_event(1, |event| matches!(event, DrsChannelEvent::Size(_)));
    assert_eq!(table.events, [(1, DrsChannelEvent::Size(3 << 16))]);
}

#[test]
fn no_connection_is_made_to_a_host_without_data_connections() {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let at = listener.local_addr().unwrap();
    let endpoint = Arc::new(DrsEndpoint::connect(at, Nonce::new([7; 16])));
    let mut link = DrsLink::new(endpoint, Role::Receiver, None);
    for peers in [&[][..], &[ELSEWHERE]] {
        assert!(link.advance(Duration::ZERO, peers).is_empty());
        assert_eq!(link.poll_fds().count(), 0);
    }
    assert!(listener.accept().is_err());
    link.advance(Duration::ZERO, &[ELSEWHERE, HERE]);
    assert_eq!(link.poll_fds().count(), 1);
}

#[test]
fn a_connection_before_the_first_data_connection_waits() {
    let endpoint = listening();
    let mut peer = caller(endpoint.address().socket, HERE, &greeting(&endpoint));
    let mut table = DrsLinkDriver::new(vec![DrsLink::new(endpoint, Role::Sender, None)]);
    table.peers.clear();
    table.turns(2);
    assert_eq!(table.links[0].poll_fds().count(), 0);
    table.peers.push(HERE);
    table.check_sender_hears(&mut peer, 1 << 20);
}

#[test]
fn a_reconnected_peer_gets_the_size_again() {
    let endpoint = listening();
    let at = endpoint.address().socket;
    let hello = greeting(&endpoint);
    let mut table = DrsLinkDriver::new(vec![DrsLink::new(endpoint, Role::Receiver, None)]);
    table.links[0].announce(Duration::ZERO, 65_536);
    for _ in 0..2 {
        let mut peer = caller(at, HERE, &hello);
        peer.set_nonblocking(true).unwrap();
        let mut words = [0; 64];
        let mut count = 0;
        let begin = Instant::now();
        while count == 0 {
            table.turn();
            count = peer.read(&mut words).unwrap_or(0);
            assert!(begin.elapsed() < TEST_TIMEOUT);
        }
        let said = std::str::from_utf8(&words[..count]).unwrap();
        assert!(said.ends_with(" 65536\r\n"), "{said}");
    }
}

#[test]
fn one_endpoint_serves_successive_transfers() {
    let endpoint = listening();
    let other = connecting(&endpoint);
    for transfer in 1..=3 {
        let receiver = DrsLink::new(Arc::clone(&other), Role::Receiver, None);
        let sender = DrsLink::new(Arc::clone(&endpoint), Role::Sender, None);
        let mut table = DrsLinkDriver::new(vec![receiver, sender]);
        table.links[0].announce(Duration::ZERO, transfer << 20);
        table.until_event(1, |event| *event == DrsChannelEvent::Size(transfer << 20));
        assert_eq!(table.events.len(), 1);
    }
}

#[test]
fn the_newest_of_many_sizes_counts_and_all_are_echoed() {
    let (mut table, mut peer) = greeted();
    let mut first = [0; 64];
    let _ = peer.read(&mut first).unwrap();
    let lines: String = (1..=100)
        .map(|n| format!("SBUF {n}.5 {}\r\n", n << 16))
        .collect();
    peer.write_all(lines.as_bytes()).unwrap();
    table.until_event(0, |event| *event == DrsChannelEvent::Size(100 << 16));
    assert!(table.events.len() < 5, "{:?}", table.events);
    table.links[0].applied();
    let mut echoes = vec![0; lines.len()];
    peer.read_exact(&mut echoes).unwrap();
    assert_eq!(echoes, lines.as_bytes());
}

#[test]
fn a_lost_channel_is_reported_and_a_listening_end_accepts_the_peer_again() {
    let endpoint = listening();
    let at = endpoint.address().socket;
    let mut peer = caller(at, HERE, &greeting(&endpoint));
    let mut table = DrsLinkDriver::new(vec![DrsLink::new(
        Arc::clone(&endpoint),
        Role::Sender,
        None,
    )]);
    table.check_sender_hears(&mut peer, 65_536);
    drop(peer);
    table.until_event(0, |event| *event == DrsChannelEvent::Lost);
    table.turns(3);
    assert_eq!(table.events.len(), 2);
    let mut second = caller(at, HERE, &greeting(&endpoint));
    table.check_sender_hears(&mut second, 1 << 20);
}

/// A data receiver that connects to a listener of the test.
fn dialing() -> (TcpListener, DrsLinkDriver) {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    let endpoint = Arc::new(DrsEndpoint::connect(at, Nonce::new([7; 16])));
    let mut table = DrsLinkDriver::new(vec![DrsLink::new(endpoint, Role::Receiver, None)]);
    table.links[0].announce(Duration::ZERO, 65_536);
    table.turns(3);
    (listener, table)
}

#[test]
fn a_refused_connecting_end_retries() {
    let (listener, mut table) = dialing();
    drop(listener.accept().unwrap());
    let accepting = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut words = [0; 38];
        stream.read_exact(&mut words).unwrap();
        (stream, words)
    });
    table.until(|_| accepting.is_finished());
    let (_stream, words) = accepting.join().unwrap();
    let nonce = Nonce::new([7; 16]).to_hex();
    assert_eq!(words, format!("DRS {nonce}\r\n").as_bytes());
    table.turns(2);
    assert!(table.events.is_empty());
}

#[test]
fn a_connecting_end_gives_up_after_the_last_attempt() {
    let (listener, mut table) = dialing();
    drop(listener);
    let begin = Instant::now();
    for second in 1.. {
        let events = table.links[0].advance(Duration::from_secs(second), &[HERE]);
        if events.contains(&DrsChannelEvent::Lost) {
            assert!(second >= 4, "{second}");
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
        assert!(begin.elapsed() < TEST_TIMEOUT);
    }
    assert_eq!(table.links[0].poll_fds().count(), 0);
}

#[test]
fn a_connecting_end_does_not_reconnect_a_lost_channel() {
    let (listener, mut table) = dialing();
    let (mut stream, _) = listener.accept().unwrap();
    let mut words = [0; 64];
    let mut said = String::new();
    while said.matches('\n').count() < 2 {
        let count = stream.read(&mut words).unwrap();
        said.push_str(std::str::from_utf8(&words[..count]).unwrap());
        table.turn();
    }
    let echo = said.lines().nth(1).unwrap();
    stream.write_all(format!("{echo}\r\n").as_bytes()).unwrap();
    table.until_event(0, is_echo);
    drop(stream);
    table.until_event(0, |event| *event == DrsChannelEvent::Lost);
    table.turns(2);
    assert_eq!(table.links[0].poll_fds().count(), 0);
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
}

#[test]
fn the_connecting_end_uses_the_data_address() {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    for (local, from) in [
        (ELSEWHERE, ELSEWHERE),
        (Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), HERE),
    ] {
        let endpoint = DrsEndpoint::connect(at, Nonce::new([7; 16])).with_local_address(local);
        let mut table =
            DrsLinkDriver::new(vec![DrsLink::new(Arc::new(endpoint), Role::Sender, None)]);
        table.turns(2);
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), from);
    }
}

#[test]
fn dropping_the_link_closes_the_channel_but_not_the_endpoint() {
    let endpoint = listening();
    let at = endpoint.address().socket;
    let mut peer = caller(at, HERE, &greeting(&endpoint));
    let mut table = DrsLinkDriver::new(vec![DrsLink::new(
        Arc::clone(&endpoint),
        Role::Sender,
        None,
    )]);
    table.check_sender_hears(&mut peer, 65_536);
    drop(table);
    assert!(matches!(peer.read(&mut [0; 64]), Ok(0)));
    assert!(TcpStream::connect(at).is_ok());
}
