use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use proto::eblock::MAX_STREAMS;

use super::*;
use crate::settings::Settings;

/// Connections of one host, and who listens to them.
struct Host {
    listener: TcpListener,
    far: Vec<std::net::TcpStream>,
}

impl Host {
    fn new() -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            far: Vec::new(),
        }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    fn stream(&mut self) -> Arc<Stream> {
        let near = std::net::TcpStream::connect(self.address()).unwrap();
        self.far.push(self.listener.accept().unwrap().0);
        let stream = Stream::new(near.into(), self.address(), &Settings::default());
        Arc::new(stream.unwrap())
    }
}

/// So many lanes at one target.
fn at_one<'l>(lanes: &'l Lanes, host: &mut Host, n: usize) -> Vec<Seat<'l>> {
    let target = lanes.target(host.address());
    let seats = (0..n).map(|_| lanes.join(target, &host.stream())).collect();
    lanes.aim(n);
    seats
}

fn is_surplus(seat: &Seat<'_>) -> bool {
    seat.surplus().load(Ordering::Relaxed)
}

/// Openings that the lanes are told to make without anybody waiting.
fn openings(lanes: &Lanes) -> Vec<Ticket<'_>> {
    lanes.next_openings().unwrap_or_default()
}

#[test]
fn the_last_lane_counts_all_that_ended_at_its_target() {
    let lanes = Lanes::default();
    let mut host = Host::new();
    let mut seats = at_one(&lanes, &mut host, 3);
    assert_eq!(lanes.close(), Some(3));
    assert_eq!(lanes.close(), None);
    assert_eq!(seats[1].end(), None);
    assert_eq!(seats[0].end(), None);
    assert_eq!(seats[2].end(), Some(3));
    assert!(lanes.next_openings().is_none());
    assert_eq!(lanes.streams().len(), 3);
}

#[test]
fn the_newest_leave_and_are_counted_and_not_kept() {
    let lanes = Lanes::default();
    let mut host = Host::new();
    let mut seats = at_one(&lanes, &mut host, 4);
    lanes.aim(2);
    let told: Vec<_> = seats.iter().map(is_surplus).collect();
    assert_eq!(told, [false, false, true, true]);
    assert_eq!(lanes.leaving().len(), 2);
    assert!(seats[3].retire() && seats[2].retire());
    assert_eq!((lanes.staying(), lanes.streams().len()), (2, 2));
    lanes.close();
    assert_eq!((seats[0].end(), seats[1].end()), (None, Some(4)));
}

#[test]
fn a_lane_that_was_to_leave_stays_when_it_is_wanted_again() {
    let lanes = Lanes::default();
    let mut host = Host::new();
    let mut seats = at_one(&lanes, &mut host, 2);
    lanes.aim(1);
    assert!(is_surplus(&seats[1]));
    lanes.aim(2);
    assert!(!is_surplus(&seats[1]));
    assert!(!seats[1].retire());
    assert_eq!(lanes.staying(), 2);
}

#[test]
fn a_lane_stays_if_it_is_the_last_by_the_time_it_has_sent_its_block() {
    let lanes = Lanes::default();
    let mut host = Host::new();
    let mut seats = at_one(&lanes, &mut host, 2);
    lanes.aim(1);
    lanes.close();
    assert_eq!(seats[0].end(), None);
    assert!(!seats[1].retire() && !is_surplus(&seats[1]));
    assert_eq!(seats[1].end(), Some(2));
}

#[test]
fn lanes_are_opened_where_there_are_fewest_and_no_target_goes_without() {
    let lanes = Lanes::default();
    let mut hosts = [Host::new(), Host::new()];
    let targets = hosts.each_ref().map(|h| lanes.target(h.address()));
    assert_eq!(
        (lanes.targets(), lanes.target(hosts[1].address())),
        (2, targets[1])
    );
    let mut seats = vec![
        lanes.join(targets[0], &hosts[0].stream()),
        lanes.join(targets[0], &hosts[0].stream()),
        lanes.join(targets[1], &hosts[1].stream()),
    ];
    lanes.aim(6);
    let tickets = openings(&lanes);
    let mut where_to: Vec<_> = tickets.iter().map(Ticket::target).collect();
    where_to.sort_unstable();
    assert_eq!(where_to, [targets[0], targets[1], targets[1]]);
    assert_eq!(lanes.opening(), 3);
    for ticket in tickets {
        let target = ticket.target();
        seats.push(ticket.join(&hosts[target].stream()));
    }
    assert_eq!((lanes.opening(), lanes.staying()), (0, 6));
    lanes.aim(0);
    let stay: Vec<_> = seats.iter().map(|s| !is_surplus(s)).collect();
    assert_eq!(stay, [true, false, true, false, false, false]);
}

#[test]
fn what_cannot_be_opened_is_not_asked_for_again() {
    let lanes = Lanes::default();
    let mut host = Host::new();
    let mut seats = at_one(&lanes, &mut host, 1);
    lanes.aim(4);
    let mut tickets = openings(&lanes);
    let joined = tickets.remove(0).join(&host.stream());
    tickets.remove(0).refuse();
    // One is still being opened.
    assert_eq!(lanes.aimed(), 3);
    assert!(lanes.take_refused() && !lanes.take_refused());
    tickets.remove(0).refuse();
    assert_eq!((lanes.aimed(), lanes.opening()), (2, 0));
    seats.push(joined);
    lanes.close();
    assert_eq!((seats[0].end(), seats[1].end()), (None, Some(2)));
}

#[test]
fn the_last_lane_waits_for_connections_under_way() {
    let lanes = Lanes::default();
    let mut host = Host::new();
    let mut seats = at_one(&lanes, &mut host, 1);
    lanes.aim(3);
    let mut tickets = openings(&lanes);
    let late = host.stream();
    lanes.close();
    std::thread::scope(|scope| {
        let (tell, ended) = mpsc::channel();
        let mut first = seats.remove(0);
        scope.spawn(move || tell.send(first.end()).unwrap());
        let soon = Duration::from_millis(30);
        assert!(ended.recv_timeout(soon).is_err());
        // One is not needed any more.
        drop(tickets.remove(0));
        assert!(ended.recv_timeout(soon).is_err());
        let mut second = tickets.remove(0).join(&late);
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)).unwrap(), None);
        assert_eq!(second.end(), Some(2));
    });
    assert!(!lanes.take_refused());
}

#[test]
fn nothing_is_opened_once_everything_was_handed_out() {
    let lanes = Lanes::default();
    let mut host = Host::new();
    let mut seats = at_one(&lanes, &mut host, 1);
    lanes.close();
    lanes.aim(9);
    assert_eq!(seats[0].end(), Some(1));
    assert!(lanes.next_openings().is_none());
}

#[test]
fn a_lane_that_fails_leaves_a_count_that_nobody_reaches() {
    let lanes = Lanes::default();
    let mut host = Host::new();
    let mut seats = at_one(&lanes, &mut host, 2);
    drop(seats.remove(0));
    lanes.close();
    // One EOD will be sent, and two are announced.
    assert_eq!(seats[0].end(), Some(2));
}

#[test]
fn no_more_lanes_than_a_receiver_can_count() {
    let lanes = Lanes::default();
    let mut host = Host::new();
    let _seats = at_one(&lanes, &mut host, 1);
    lanes.lock().targets[0].ended = MAX_STREAMS - 3;
    lanes.aim(10);
    assert_eq!(openings(&lanes).len(), 2);
}
