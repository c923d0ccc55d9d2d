use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use proto::eblock::MAX_STREAMS;

use super::*;
use crate::settings::TransferSettings;

/// Connections of one host, and who listens to them.
struct TestReceiver {
    listener: TcpListener,
    far: Vec<std::net::TcpStream>,
}

impl TestReceiver {
    fn new() -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            far: Vec::new(),
        }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    fn stream(&mut self) -> Arc<DataStream> {
        let near = std::net::TcpStream::connect(self.address()).unwrap();
        self.far.push(self.listener.accept().unwrap().0);
        let stream = DataStream::new(near.into(), self.address(), &TransferSettings::default());
        Arc::new(stream.unwrap())
    }
}

/// So many lanes at one target.
fn at_one<'l>(lanes: &'l StreamSet, host: &mut TestReceiver, n: usize) -> Vec<ActiveStream<'l>> {
    let target = lanes.target_index(host.address());
    let seats = (0..n).map(|_| lanes.add(target, &host.stream())).collect();
    lanes.set_wanted(n);
    seats
}

fn is_surplus(seat: &ActiveStream<'_>) -> bool {
    seat.leave_flag().load(Ordering::Relaxed)
}

/// Openings that the lanes are told to make without anybody waiting.
fn openings(lanes: &StreamSet) -> Vec<PendingStream<'_>> {
    lanes.wait_for_openings().unwrap_or_default()
}

#[test]
fn the_last_lane_counts_all_that_ended_at_its_target() {
    let lanes = StreamSet::default();
    let mut host = TestReceiver::new();
    let mut seats = at_one(&lanes, &mut host, 3);
    assert_eq!(lanes.stop_opening(), Some(3));
    assert_eq!(lanes.stop_opening(), None);
    assert_eq!(seats[1].finish(), None);
    assert_eq!(seats[0].finish(), None);
    assert_eq!(seats[2].finish(), Some(3));
    assert!(lanes.wait_for_openings().is_none());
    assert_eq!(lanes.streams().len(), 3);
}

#[test]
fn the_newest_leave_and_are_counted_and_not_kept() {
    let lanes = StreamSet::default();
    let mut host = TestReceiver::new();
    let mut seats = at_one(&lanes, &mut host, 4);
    lanes.set_wanted(2);
    let told: Vec<_> = seats.iter().map(is_surplus).collect();
    assert_eq!(told, [false, false, true, true]);
    assert_eq!(lanes.leaving_ids().len(), 2);
    assert!(seats[3].try_retire() && seats[2].try_retire());
    assert_eq!((lanes.active_count(), lanes.streams().len()), (2, 2));
    lanes.stop_opening();
    assert_eq!((seats[0].finish(), seats[1].finish()), (None, Some(4)));
}

#[test]
fn a_lane_that_was_to_leave_stays_when_it_is_wanted_again() {
    let lanes = StreamSet::default();
    let mut host = TestReceiver::new();
    let mut seats = at_one(&lanes, &mut host, 2);
    lanes.set_wanted(1);
    assert!(is_surplus(&seats[1]));
    lanes.set_wanted(2);
    assert!(!is_surplus(&seats[1]));
    assert!(!seats[1].try_retire());
    assert_eq!(lanes.active_count(), 2);
}

#[test]
fn a_lane_stays_if_it_is_the_last_by_the_time_it_has_sent_its_block() {
    let lanes = StreamSet::default();
    let mut host = TestReceiver::new();
    let mut seats = at_one(&lanes, &mut host, 2);
    lanes.set_wanted(1);
    lanes.stop_opening();
    assert_eq!(seats[0].finish(), None);
    assert!(!seats[1].try_retire() && !is_surplus(&seats[1]));
    assert_eq!(seats[1].finish(), Some(2));
}

#[test]
fn lanes_are_opened_where_there_are_fewest_and_no_target_goes_without() {
    let lanes = StreamSet::default();
    let mut hosts = [TestReceiver::new(), TestReceiver::new()];
    let targets = hosts.each_ref().map(|h| lanes.target_index(h.address()));
    assert_eq!(
        (lanes.target_count(), lanes.target_index(hosts[1].address())),
        (2, targets[1])
    );
    let mut seats = vec![
        lanes.add(targets[0], &hosts[0].stream()),
        lanes.add(targets[0], &hosts[0].stream()),
        lanes.add(targets[1], &hosts[1].stream()),
    ];
    lanes.set_wanted(6);
    let tickets = openings(&lanes);
    let mut where_to: Vec<_> = tickets.iter().map(PendingStream::target).collect();
    where_to.sort_unstable();
    assert_eq!(where_to, [targets[0], targets[1], targets[1]]);
    assert_eq!(lanes.opening_count(), 3);
    for ticket in tickets {
        let target = ticket.target();
        seats.push(ticket.connected(&hosts[target].stream()));
    }
    assert_eq!((lanes.opening_count(), lanes.active_count()), (0, 6));
    lanes.set_wanted(0);
    let stay: Vec<_> = seats.iter().map(|s| !is_surplus(s)).collect();
    assert_eq!(stay, [true, false, true, false, false, false]);
}

#[test]
fn what_cannot_be_opened_is_not_asked_for_again() {
    let lanes = StreamSet::default();
    let mut host = TestReceiver::new();
    let mut seats = at_one(&lanes, &mut host, 1);
    lanes.set_wanted(4);
    let mut tickets = openings(&lanes);
    let joined = tickets.remove(0).connected(&host.stream());
    tickets.remove(0).fail();
    // One is still being opened.
    assert_eq!(lanes.wanted(), 3);
    assert!(lanes.take_open_failure() && !lanes.take_open_failure());
    tickets.remove(0).fail();
    assert_eq!((lanes.wanted(), lanes.opening_count()), (2, 0));
    seats.push(joined);
    lanes.stop_opening();
    assert_eq!((seats[0].finish(), seats[1].finish()), (None, Some(2)));
}

#[test]
fn the_last_lane_waits_for_connections_under_way() {
    let lanes = StreamSet::default();
    let mut host = TestReceiver::new();
    let mut seats = at_one(&lanes, &mut host, 1);
    lanes.set_wanted(3);
    let mut tickets = openings(&lanes);
    let late = host.stream();
    lanes.stop_opening();
    std::thread::scope(|scope| {
        let (tell, ended) = mpsc::channel();
        let mut first = seats.remove(0);
        scope.spawn(move || tell.send(first.finish()).unwrap());
        let soon = Duration::from_millis(30);
        assert!(ended.recv_timeout(soon).is_err());
        // One is not needed any more.
        drop(tickets.remove(0));
        assert!(ended.recv_timeout(soon).is_err());
        let mut second = tickets.remove(0).connected(&late);
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)).unwrap(), None);
        assert_eq!(second.finish(), Some(2));
    });
    assert!(!lanes.take_open_failure());
}

#[test]
fn nothing_is_opened_once_everything_was_handed_out() {
    let lanes = StreamSet::default();
    let mut host = TestReceiver::new();
    let mut seats = at_one(&lanes, &mut host, 1);
    lanes.stop_opening();
    lanes.set_wanted(9);
    assert_eq!(seats[0].finish(), Some(1));
    assert!(lanes.wait_for_openings().is_none());
}

#[test]
fn a_lane_that_fails_leaves_a_count_that_nobody_reaches() {
    let lanes = StreamSet::default();
    let mut host = TestReceiver::new();
    let mut seats = at_one(&lanes, &mut host, 2);
    drop(seats.remove(0));
    lanes.stop_opening();
    // One EOD will be sent, and two are announced.
    assert_eq!(seats[0].finish(), Some(2));
}

#[test]
fn no_more_lanes_than_a_receiver_can_count() {
    let lanes = StreamSet::default();
    let mut host = TestReceiver::new();
    let _seats = at_one(&lanes, &mut host, 1);
    lanes.lock().targets[0].ended = MAX_STREAMS - 3;
    lanes.set_wanted(10);
    assert_eq!(openings(&lanes).len(), 2);
}
