//! Real sockets in real network namespaces. These tests need root; the lab itself does not.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use link::{Conditions, Loss, Queue, Reorder};
use nix::sched::{CloneFlags, setns, unshare};
use units::Rate;

use super::*;
use crate::topology::{LabHost, LabPath, LabRoute};

/// A network under test, with the same conditions on all paths.
struct EmulatedTestNet {
    engine: Engine,
    namespaces: Vec<File>,
}

/// Limit for every wait in these tests, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Conditions with only a delay.
fn delay_of(milliseconds: u64) -> Conditions {
    Conditions {
        delay: Duration::from_millis(milliseconds),
        ..Conditions::default()
    }
}

fn topology(hosts: usize, forward: &Conditions, back: &Conditions, offload: bool) -> Topology {
    let name = |index: usize| char::from(b'a' + u8::try_from(index).unwrap()).to_string();
    let host = |index| LabHost {
        name: name(index),
        sysctls: Vec::new(),
        congestion_control: None,
    };
    let pairs = (0..hosts).flat_map(|one| (one + 1..hosts).map(move |other| (one, other)));
    let path = |between| LabPath {
        between,
        forward: forward.clone(),
        back: back.clone(),
        forward_route: LabRoute::DIRECT,
        back_route: LabRoute::DIRECT,
    };
    Topology {
        hosts: (0..hosts).map(host).collect(),
        routers: Vec::new(),
        paths: pairs.map(path).collect(),
        seed: 1,
        offload,
        mtu: 1500,
    }
}

/// Creates a namespace with its device.
fn build(index: usize, offload: bool) -> (TunPort, File) {
    let work = move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let address = Topology::address(index);
        let device = tun_rs::DeviceBuilder::new()
            .name("lab0")
            .mtu(1500)
            .ipv4(address, 24, None)
            .tx_queue_len(10_000)
            .offload(offload)
            .build_sync()
            .unwrap();
        let namespace = File::open("/proc/thread-self/ns/net").unwrap();
        (TunPort { device, address }, namespace)
    };
    std::thread::spawn(work).join().unwrap()
}

impl EmulatedTestNet {
    /// A network of two hosts; `None` if this machine does not allow it.
    fn pair(forward: &Conditions, back: &Conditions) -> Option<Self> {
        Self::of(&topology(2, forward, back, true))
    }

    fn of(topology: &Topology) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: network namespaces need root");
            return None;
        }
        if !std::path::Path::new("/dev/net/tun").exists() {
            eprintln!("SKIPPED: there is no /dev/net/tun");
            return None;
        }
        let hosts = (0..topology.hosts.len()).map(|index| build(index, topology.offload));
        let (ports, namespaces) = hosts.unzip();
        let engine = Engine::start(topology, ports).unwrap();
        Some(Self { engine, namespaces })
    }

    /// Calls `make` in a host's namespace. A socket created there stays in that namespace.
    fn on<T: Send>(&self, host: usize, make: impl FnOnce() -> T + Send) -> T {
        let enter = || {
            setns(&self.namespaces[host], CloneFlags::CLONE_NEWNET).unwrap();
            make()
        };
        std::thread::scope(|scope| scope.spawn(enter).join().unwrap())
    }

    fn udp(&self, host: usize) -> UdpSocket {
        let address = (Topology::address(host), 7000);
        let socket = self.on(host, || UdpSocket::bind(address).unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        // A large buffer avoids losses if a busy machine wakes the reader late.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 16 << 20).unwrap();
        socket
    }

    /// A connection from the first host to the second.
    fn tcp(&self) -> (TcpStream, TcpStream) {
        let address = (Topology::address(1), 7000);
        let listener = self.on(1, || TcpListener::bind(address).unwrap());
        let sender = self.on(0, || TcpStream::connect(address).unwrap());
        (sender, listener.accept().unwrap().0)
    }

    /// Waits until the engine's report on the first direction meets a condition, and returns it.
    fn wait_for_report(&self, condition: impl Fn(&DirectionReport) -> bool) -> DirectionReport {
        let start = Instant::now();
        loop {
            if let Some(report) = self.engine.snapshot().into_iter().next()
                && condition(&report)
            {
                return report;
            }
            assert!(start.elapsed() < PATIENCE, "{:?}", self.engine.snapshot());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn stop(self) -> EngineReport {
        self.engine.stop().unwrap()
    }
}

/// Sends numbered datagrams from the first host to the second. Returns the numbers that arrive and their
/// times since the first was sent.
fn datagrams(net: &EmulatedTestNet, count: u32, size: usize) -> Vec<(u32, Duration)> {
    let (sender, receiver) = (net.udp(0), net.udp(1));
    let arrived = |path: &DirectionReport| path.delivered + path.duplicated;
    let reports = net.engine.snapshot();
    let before = reports
        .first()
        .map_or((0, 0), |path| (path.packets, arrived(path)));
    let start = Instant::now();
    // The receiver may stop only when the engine has nothing more to deliver.
    let silence = Duration::from_millis(100);
    receiver.set_read_timeout(Some(silence)).unwrap();
    let (expected_sender, expected) = std::sync::mpsc::channel::<u64>();
    let receive_all = move || {
        let mut received = Vec::new();
        let mut buffer = [0; 1500];
        let mut total = None;
        loop {
            let Ok(length) = receiver.recv(&mut buffer) else {
                total = total.or_else(|| expected.try_recv().ok());
                if total == Some(received.len() as u64) {
                    return received;
                }
                assert!(
                    start.elapsed() < PATIENCE,
                    "only {} arrived",
                    received.len()
                );
                continue;
            };
            assert_eq!(length, size);
            let number = u32::from_be_bytes(buffer[..4].try_into().unwrap());
            received.push((number, start.elapsed()));
        }
    };
    let receiving = std::thread::spawn(receive_all);
    for number in 0..count {
        let mut datagram = vec![0; size];
        datagram[..4].copy_from_slice(&number.to_be_bytes());
        let to = (Topology::address(1), 7000);
        sender.send_to(&datagram, to).unwrap();
        // The receiver's buffer holds only some hundred datagrams.
        if number % 50 == 49 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let done = net.wait_for_report(|path| {
        let processed = path.delivered + path.losses + path.queue_drops;
        path.packets >= before.0 + u64::from(count) && processed == path.packets
    });
    expected_sender.send(arrived(&done) - before.1).unwrap();
    receiving.join().unwrap()
}

/// Requires one of ten tries to take less than `limit`. Other programs delay some tries, not all.
fn within(limit: Duration, mut try_once: impl FnMut() -> Duration) {
    let mut times = Vec::new();
    for _ in 0..10 {
        times.push(try_once());
        if times.last().is_some_and(|time| *time < limit) {
            return;
        }
    }
    panic!("never within {limit:?}: {times:?}");
}

/// Test data in which every 4-byte word is different.
fn pattern(bytes: usize) -> Vec<u8> {
    let words = (0..bytes.div_ceil(4)).map(|word| u32::try_from(word).unwrap());
    words
        .flat_map(|word| word.wrapping_mul(2_654_435_761).to_be_bytes())
        .take(bytes)
        .collect()
}

/// Sends data over one TCP connection; returns the data received.
fn transfer(net: &EmulatedTestNet, data: &[u8]) -> Vec<u8> {
    let (mut sender, mut receiver) = net.tcp();
    std::thread::scope(|scope| {
        scope.spawn(move || sender.write_all(data).unwrap());
        let mut got = Vec::new();
        receiver.read_to_end(&mut got).unwrap();
        got
    })
}

#[test]
fn a_round_trip_takes_twice_the_delay() {
    let Some(net) = EmulatedTestNet::pair(&delay_of(20), &delay_of(20)) else {
        return;
    };
    let (one, other) = (net.udp(0), net.udp(1));
    let echo = std::thread::spawn(move || {
        let mut buffer = [0; 100];
        for _ in 0..25 {
            let (length, from) = other.recv_from(&mut buffer).unwrap();
            other.send_to(&buffer[..length], from).unwrap();
        }
    });
    let mut times = Vec::new();
    for _ in 0..25 {
        let start = Instant::now();
        one.send_to(b"ping", (Topology::address(1), 7000)).unwrap();
        one.recv(&mut [0; 100]).unwrap();
        times.push(start.elapsed());
    }
    times.sort();
    assert!(times[0] >= Duration::from_millis(40), "{times:?}");
    // A busy machine delays some round trips, but not all.
    assert!(times[0] < Duration::from_millis(43), "{times:?}");
    echo.join().unwrap();
    let report = net.stop();
    let names = |d: &DirectionReport| (d.from.clone(), d.to.clone(), d.delivered);
    let reported: Vec<_> = report.directions.iter().map(names).collect();
    let text = |from: &str, to: &str| (from.to_owned(), to.to_owned(), 25);
    assert_eq!(reported, [text("a", "b"), text("b", "a")]);
    assert!(report.seconds > 0.4 && report.cpu_seconds < report.seconds / 2.0);
}

#[test]
fn datagrams_are_serialised_at_the_rate_and_stay_in_order() {
    let mut slow = delay_of(1);
    slow.rate = Some(Rate::bits_per_second(10_000_000));
    let Some(net) = EmulatedTestNet::pair(&slow, &delay_of(1)) else {
        return;
    };
    // A busy machine delays some tries, but not all.
    within(Duration::from_micros(230_000), || {
        // 250 datagrams of 1000 bytes, including UDP and IP headers.
        let received = datagrams(&net, 250, 972);
        let numbers: Vec<_> = received.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (0..250).collect::<Vec<_>>());
        let last = received[249].1;
        assert!(last >= Duration::from_micros(201_000), "{last:?}");
        last
    });
}

#[test]
fn packets_beyond_the_queue_limit_are_dropped() {
    let mut narrow = delay_of(1);
    narrow.rate = Some(Rate::bits_per_second(1_000_000));
    narrow.queue = Queue::Packets(10);
    let Some(net) = EmulatedTestNet::pair(&narrow, &delay_of(1)) else {
        return;
    };
    let received = datagrams(&net, 50, 972);
    let report = net.stop();
    let path = &report.directions[0];
    assert_eq!((path.packets, path.bytes), (50, 50_000));
    assert_eq!(path.peak_queue_packets, 10);
    assert_eq!(path.delivered, received.len() as u64);
    assert_eq!(path.delivered + path.queue_drops, 50);
    // One packet leaves every 8 ms; how many leave during the burst depends on its duration.
    assert!(received.len() >= 10 && path.queue_drops > 0, "{path:?}");
}

#[test]
fn losses_are_counted() {
    let mut lossy = delay_of(1);
    lossy.loss = Loss::Independent(0.1);
    let Some(net) = EmulatedTestNet::pair(&lossy, &delay_of(1)) else {
        return;
    };
    let received = datagrams(&net, 2000, 100);
    let report = net.stop();
    let path = &report.directions[0];
    assert_eq!(path.packets, 2000);
    assert_eq!(path.losses + received.len() as u64, 2000);
    // The 99.9 % interval of the binomial distribution.
    assert!((155..=245).contains(&path.losses), "{}", path.losses);
}

#[test]
fn duplicates_and_reordered_packets_arrive() {
    let mut odd = delay_of(1);
    odd.duplicate = 1.0;
    odd.reorder = Some(Reorder {
        probability: 0.1,
        extra: Duration::from_millis(5),
    });
    let Some(net) = EmulatedTestNet::pair(&odd, &delay_of(1)) else {
        return;
    };
    let received = datagrams(&net, 500, 100);
    let report = net.stop();
    let path = &report.directions[0];
    let mut numbers: Vec<_> = received.iter().map(|(number, _)| *number).collect();
    assert!(!numbers.is_sorted());
    numbers.sort_unstable();
    let twice: Vec<_> = (0..1000).map(|i| i / 2).collect();
    assert_eq!(numbers, twice);
    assert_eq!((path.delivered, path.duplicated), (500, 500));
    assert!((20..=85).contains(&path.reordered), "{}", path.reordered);
}

#[test]
fn super_packets_lose_single_segments() {
    let mut wan = delay_of(2);
    wan.rate = Some(Rate::bits_per_second(400_000_000));
    wan.loss = Loss::Independent(0.002);
    let Some(net) = EmulatedTestNet::pair(&wan, &delay_of(2)) else {
        return;
    };
    let data = pattern(8_000_000);
    assert!(transfer(&net, &data) == data, "the stream has changed");
    // The last packets of the connection may still be in flight.
    // After this moment others may follow: the connection sends its FIN again.
    let path = net.wait_for_report(|path| {
        path.packets > 5000 && path.packets == path.delivered + path.losses
    });
    net.stop();
    // At most 1448 bytes of data per packet.
    assert!(path.packets >= 8_000_000 / 1448, "{path:?}");
    assert!(path.bytes >= 8_000_000 + 52 * (8_000_000 / 1448));
    assert!(path.bytes / path.packets <= 1500);
    let expected = path.packets / 500;
    assert!(
        (expected / 4..expected * 3).contains(&path.losses),
        "{path:?}"
    );
}

#[test]
fn corrupted_data_arrives_with_valid_checksums() {
    for offload in [true, false] {
        let mut faulty = delay_of(1);
        faulty.corrupt = 0.01;
        let Some(net) = EmulatedTestNet::of(&topology(2, &faulty, &delay_of(1), offload)) else {
            return;
        };
        let data = pattern(1_500_000);
        let got = transfer(&net, &data);
        let report = net.stop();
        let path = &report.directions[0];
        assert_eq!(got.len(), data.len());
        let changed = got.iter().zip(&data).filter(|(a, b)| a != b).count() as u64;
        // A corrupted packet that was retransmitted may have been replaced by a good one.
        assert!(changed <= path.corrupted && changed + 3 >= path.corrupted);
        assert!(
            (1..=30).contains(&changed),
            "offload {offload}: {changed}, {path:?}"
        );
        assert_eq!(path.losses, 0);
    }
}

#[test]
fn each_pair_of_three_hosts_has_its_own_path() {
    let mut net = topology(3, &delay_of(1), &delay_of(1), true);
    net.paths[1].forward = delay_of(60); // a to c
    let Some(net) = EmulatedTestNet::of(&net) else {
        return;
    };
    let sockets = [net.udp(0), net.udp(1), net.udp(2)];
    let time = |from: usize, to: usize| {
        let start = Instant::now();
        let address = (Topology::address(to), 7000);
        sockets[from].send_to(b"hello", address).unwrap();
        let (_, source) = sockets[to].recv_from(&mut [0; 100]).unwrap();
        assert_eq!(source.ip(), Topology::address(from));
        start.elapsed()
    };
    assert!(time(0, 2) >= Duration::from_millis(60));
    for (from, to) in [(0, 1), (1, 0), (1, 2), (2, 1), (2, 0)] {
        within(Duration::from_millis(50), || time(from, to));
    }
    // A packet to an unknown address is dropped without a note.
    let unused_address = (Topology::address(20), 7000);
    sockets[0].send_to(b"hello", unused_address).unwrap();
    std::thread::sleep(Duration::from_millis(250));
    assert_eq!(net.engine.snapshot().len(), 6);
    let report = net.stop();
    assert_eq!(report.directions.len(), 6);
    assert_eq!(report.notes.iter().find(|n| n.contains("malformed")), None);
}

#[test]
fn stop_does_not_wait_for_packets_in_flight() {
    let Some(net) = EmulatedTestNet::pair(&delay_of(60_000), &delay_of(1)) else {
        return;
    };
    let socket = net.udp(0);
    let to = (Topology::address(1), 7000);
    socket.send_to(b"late", to).unwrap();
    net.wait_for_report(|path| path.packets == 1);
    // The datagram would need a minute.
    let start = Instant::now();
    let report = net.stop();
    assert!(start.elapsed() < Duration::from_secs(30));
    let path = &report.directions[0];
    assert_eq!((path.packets, path.delivered), (1, 0));
}

#[test]
fn ports_must_match_the_topology() {
    let error = Engine::start(&topology(2, &delay_of(1), &delay_of(1), true), Vec::new());
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "the emulator got 0 devices for 2 hosts");
}
