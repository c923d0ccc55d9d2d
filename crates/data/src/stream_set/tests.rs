use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use proto::eblock::MAX_STREAMS;

use super::*;
use crate::security::ConnectionOpener;
use crate::settings::TransferSettings;

/// Connections to one host, and its listener.
struct TestReceiver {
    listener: TcpListener,
    accepted: Vec<std::net::TcpStream>,
}

impl TestReceiver {
    fn new() -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            accepted: Vec::new(),
        }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    fn stream(&mut self) -> Arc<DataStream> {
        let near = std::net::TcpStream::connect(self.address()).unwrap();
        self.accepted.push(self.listener.accept().unwrap().0);
        let stream = DataStream::new(
            near.into(),
            self.address(),
            ConnectionOpener::ThisEnd,
            &TransferSettings::default(),
        );
        Arc::new(stream.unwrap())
    }
}

/// Adds `count` streams at one target.
fn add_at_one_target<'l>(
    set: &'l StreamSet,
    host: &mut TestReceiver,
    count: usize,
) -> Vec<ActiveStream<'l>> {
    let target = set.target_index(host.address());
    let active = (0..count)
        .map(|_| set.add(target, &host.stream()))
        .collect();
    set.set_wanted(count);
    active
}

fn is_surplus(stream: &ActiveStream<'_>) -> bool {
    stream.leave_flag().load(Ordering::Relaxed)
}

/// The streams to open now. Does not wait.
fn pending_openings(set: &StreamSet) -> Vec<PendingStream<'_>> {
    set.wait_for_openings().unwrap_or_default()
}

#[test]
fn the_last_stream_counts_all_eods_at_its_target() {
    let set = StreamSet::default();
    let mut host = TestReceiver::new();
    let mut active = add_at_one_target(&set, &mut host, 3);
    assert_eq!(set.stop_opening(), Some(3));
    assert_eq!(set.stop_opening(), None);
    assert_eq!(active[1].finish(), None);
    assert_eq!(active[0].finish(), None);
    assert_eq!(active[2].finish(), Some(3));
    assert!(set.wait_for_openings().is_none());
    assert_eq!(set.streams().len(), 3);
}

#[test]
fn the_newest_streams_leave_and_count_but_are_not_reused() {
    let set = StreamSet::default();
    let mut host = TestReceiver::new();
    let mut active = add_at_one_target(&set, &mut host, 4);
    set.set_wanted(2);
    let leaving: Vec<_> = active.iter().map(is_surplus).collect();
    assert_eq!(leaving, [false, false, true, true]);
    assert_eq!(set.leaving_ids().len(), 2);
    assert!(active[3].try_retire() && active[2].try_retire());
    assert_eq!((set.active_count(), set.streams().len()), (2, 2));
    set.stop_opening();
    assert_eq!((active[0].finish(), active[1].finish()), (None, Some(4)));
}

#[test]
fn a_leaving_stream_stays_when_it_is_wanted_again() {
    let set = StreamSet::default();
    let mut host = TestReceiver::new();
    let mut active = add_at_one_target(&set, &mut host, 2);
    set.set_wanted(1);
    assert!(is_surplus(&active[1]));
    set.set_wanted(2);
    assert!(!is_surplus(&active[1]));
    assert!(!active[1].try_retire());
    assert_eq!(set.active_count(), 2);
}

#[test]
fn a_leaving_stream_stays_if_it_has_become_the_last() {
    let set = StreamSet::default();
    let mut host = TestReceiver::new();
    let mut active = add_at_one_target(&set, &mut host, 2);
    set.set_wanted(1);
    set.stop_opening();
    assert_eq!(active[0].finish(), None);
    assert!(!active[1].try_retire() && !is_surplus(&active[1]));
    assert_eq!(active[1].finish(), Some(2));
}

#[test]
fn streams_are_opened_at_the_target_with_the_fewest() {
    let set = StreamSet::default();
    let mut hosts = [TestReceiver::new(), TestReceiver::new()];
    let targets = hosts.each_ref().map(|h| set.target_index(h.address()));
    assert_eq!(
        (set.target_count(), set.target_index(hosts[1].address())),
        (2, targets[1])
    );
    let mut active = vec![
        set.add(targets[0], &hosts[0].stream()),
        set.add(targets[0], &hosts[0].stream()),
        set.add(targets[1], &hosts[1].stream()),
    ];
    set.set_wanted(6);
    let pending = pending_openings(&set);
    let mut targets_opened: Vec<_> = pending.iter().map(PendingStream::target).collect();
    targets_opened.sort_unstable();
    assert_eq!(targets_opened, [targets[0], targets[1], targets[1]]);
    assert_eq!(set.opening_count(), 3);
    for pending_stream in pending {
        let target = pending_stream.target();
        active.push(pending_stream.connected(&hosts[target].stream()));
    }
    assert_eq!((set.opening_count(), set.active_count()), (0, 6));
    set.set_wanted(0);
    let stay: Vec<_> = active.iter().map(|s| !is_surplus(s)).collect();
    assert_eq!(stay, [true, false, true, false, false, false]);
}

#[test]
fn a_failed_open_reduces_the_wanted_number() {
    let set = StreamSet::default();
    let mut host = TestReceiver::new();
    let mut active = add_at_one_target(&set, &mut host, 1);
    set.set_wanted(4);
    let mut pending = pending_openings(&set);
    let joined = pending.remove(0).connected(&host.stream());
    pending.remove(0).fail();
    // One is still being opened.
    assert_eq!(set.wanted(), 3);
    assert!(set.take_open_failure() && !set.take_open_failure());
    pending.remove(0).fail();
    assert_eq!((set.wanted(), set.opening_count()), (2, 0));
    active.push(joined);
    set.stop_opening();
    assert_eq!((active[0].finish(), active[1].finish()), (None, Some(2)));
}

#[test]
fn the_last_stream_waits_for_pending_connections() {
    let set = StreamSet::default();
    let mut host = TestReceiver::new();
    let mut active = add_at_one_target(&set, &mut host, 1);
    set.set_wanted(3);
    let mut pending = pending_openings(&set);
    let late = host.stream();
    set.stop_opening();
    std::thread::scope(|scope| {
        let (report, ended) = mpsc::channel();
        let mut first = active.remove(0);
        scope.spawn(move || report.send(first.finish()).unwrap());
        let soon = Duration::from_millis(30);
        assert!(ended.recv_timeout(soon).is_err());
        // One is no longer needed.
        drop(pending.remove(0));
        assert!(ended.recv_timeout(soon).is_err());
        let mut second = pending.remove(0).connected(&late);
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)).unwrap(), None);
        assert_eq!(second.finish(), Some(2));
    });
    assert!(!set.take_open_failure());
}

#[test]
fn no_stream_is_opened_after_everything_was_handed_out() {
    let set = StreamSet::default();
    let mut host = TestReceiver::new();
    let mut active = add_at_one_target(&set, &mut host, 1);
    set.stop_opening();
    set.set_wanted(9);
    assert_eq!(active[0].finish(), Some(1));
    assert!(set.wait_for_openings().is_none());
}

#[test]
fn a_failed_stream_makes_the_announced_eod_count_unreachable() {
    let set = StreamSet::default();
    let mut host = TestReceiver::new();
    let mut active = add_at_one_target(&set, &mut host, 2);
    drop(active.remove(0));
    set.stop_opening();
    // One EOD will be sent, but two are announced.
    assert_eq!(active[0].finish(), Some(2));
}

#[test]
fn no_more_streams_are_opened_than_a_receiver_can_count() {
    let set = StreamSet::default();
    let mut host = TestReceiver::new();
    let _seats = add_at_one_target(&set, &mut host, 1);
    set.table.lock().targets[0].ended = MAX_STREAMS - 3;
    set.set_wanted(10);
    assert_eq!(pending_openings(&set).len(), 2);
}
