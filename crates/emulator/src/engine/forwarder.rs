//! The engine's thread: reads packets from the TUN devices and writes them when they are due.

use std::io;
use std::sync::PoisonError;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::time::{ClockId, clock_gettime};

use super::batching::SegmentBatcher;
use super::delivery_queue::{DeliveryQueue, MEMORY_LIMIT, PendingDelivery};
use super::direction::PathDirection;
use super::drop_counters::{DropCounters, stalls_note};
use super::route::StopAtRouter;
use super::sleeper::{EngineClock, EngineSleeper, SleepRequest, raise_thread_priority};
use super::{EngineReport, EngineShared, TunPort};
use crate::LabError;
use crate::packet::{LARGEST_FRAME, PacketError, RawPacket, TunFraming, router_answer};
use crate::validity::EmulatorLoad;

/// Maximum number of frames read from one device before other devices and deliveries get their turn.
const MAX_READS_PER_TURN: usize = 32;
/// Maximum number of deliveries before the devices are read again.
const MAX_DELIVERIES_PER_TURN: usize = 64;
/// Delay before the retry of a delivery that the kernel had no room for.
const RETRY_DELAY: Duration = Duration::from_micros(50);
/// Time after which such a delivery is given up.
const RETRY_LIMIT: Duration = Duration::from_millis(100);
/// Interval of the periodic work: copying counters for [`Engine::snapshot`](super::Engine::snapshot)
/// and checking the load.
const PERIOD: Duration = Duration::from_millis(100);

/// Forwards packets until the engine is stopped.
pub(super) fn forward_packets(
    ports: &[TunPort],
    framing: TunFraming,
    directions: Vec<PathDirection>,
    shared: &EngineShared,
) -> Result<EngineReport, LabError> {
    // This applies to the calling thread only, so it must run here and not in `Engine::start`.
    let has_real_time_priority = raise_thread_priority();
    let mut forwarder = PacketForwarder::new(ports, framing, directions);
    // The stop descriptor is first: `EngineSleeper` polls only the first one during a flood.
    let mut fds = vec![PollFd::new(&shared.stop, PollFlags::IN)];
    fds.extend(
        ports
            .iter()
            .map(|port| PollFd::new(&port.device, PollFlags::IN)),
    );
    let mut sleeper = EngineSleeper::default();
    loop {
        // Deliveries come before reads, because they have deadlines.
        forwarder.deliver();
        forwarder.do_periodic_work(shared);
        sleeper
            .sleep(&mut fds, forwarder.sleep_request(), forwarder.clock)
            .map_err(|error| LabError::system("waiting for packets", error))?;
        if fds.first().is_some_and(is_ready) {
            break;
        }
        for (port, fd) in fds.iter().skip(1).enumerate() {
            if is_ready(fd) {
                forwarder.read(port).map_err(|error| {
                    LabError::system("reading from a host's TUN device (was it removed?)", error)
                })?;
            } else {
                forwarder.note_backlog(port, false);
            }
        }
    }
    let mut report = forwarder.report();
    report
        .notes
        .extend(stalls_note(sleeper.stalls(), has_real_time_priority));
    Ok(report)
}

/// Whether poll(2) reported an event.
fn is_ready(fd: &PollFd<'_>) -> bool {
    !fd.revents().is_empty()
}

/// State of the forwarding loop.
struct PacketForwarder<'a> {
    ports: &'a [TunPort],
    framing: TunFraming,
    directions: Vec<PathDirection>,
    /// Index of the direction from one host to another: a matrix with one row per sending host.
    table: Vec<Option<usize>>,
    queue: DeliveryQueue,
    clock: EngineClock,
    /// No delivery before this time, because the kernel had no room.
    blocked_until: Duration,
    last_periodic_work: Duration,
    /// For each device: since when it has had more packets than one turn may read.
    behind_since: Vec<Option<Duration>>,
    /// The longest such time since the last periodic work.
    backlog: Duration,
    load: EmulatorLoad,
    /// Frames read and delivered so far.
    frames_handled: u64,
    counters: DropCounters,
    /// Buffer for one frame, reused.
    buffer: Vec<u8>,
    batcher: SegmentBatcher,
}

impl<'a> PacketForwarder<'a> {
    fn new(ports: &'a [TunPort], framing: TunFraming, directions: Vec<PathDirection>) -> Self {
        let mut table = vec![None; ports.len() * ports.len()];
        for (index, direction) in directions.iter().enumerate() {
            if let Some(cell) = table.get_mut(direction.from * ports.len() + direction.to) {
                *cell = Some(index);
            }
        }
        Self {
            ports,
            framing,
            directions,
            table,
            queue: DeliveryQueue::new(MEMORY_LIMIT),
            clock: EngineClock::start(),
            blocked_until: Duration::ZERO,
            last_periodic_work: Duration::ZERO,
            behind_since: vec![None; ports.len()],
            backlog: Duration::ZERO,
            load: EmulatorLoad::default(),
            frames_handled: 0,
            counters: DropCounters::default(),
            buffer: vec![0; LARGEST_FRAME],
            batcher: SegmentBatcher::default(),
        }
    }

    /// The time until which there is nothing to do without input.
    fn sleep_request(&self) -> SleepRequest {
        let next_periodic = self.last_periodic_work + PERIOD;
        let due = self.queue.next_due();
        let until = due.map_or(next_periodic, |due| {
            due.max(self.blocked_until).min(next_periodic)
        });
        let is_unread = self.behind_since.iter().any(Option::is_some);
        SleepRequest {
            until,
            frames_handled: self.frames_handled,
            is_behind: is_unread || until <= self.clock.now(),
        }
    }

    /// Reads a device until it is empty or its turn is over.
    fn read(&mut self, port: usize) -> io::Result<()> {
        let ports = self.ports;
        let Some(TunPort { device, .. }) = ports.get(port) else {
            return Ok(());
        };
        for _ in 0..MAX_READS_PER_TURN {
            match device.recv(&mut self.buffer) {
                Ok(length) => self.handle_frame(port, length),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.note_backlog(port, false);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            self.deliver();
        }
        self.note_backlog(port, true);
        Ok(())
    }

    /// Updates the backlog of a device after its turn, or when it was empty.
    fn note_backlog(&mut self, port: usize, may_have_more: bool) {
        let Some(since) = self.behind_since.get_mut(port) else {
            return;
        };
        if may_have_more {
            let now = self.clock.now();
            self.backlog = self.backlog.max(now - *since.get_or_insert(now));
        } else {
            *since = None;
        }
    }

    /// Sends the frame in the buffer, which was just read from `port`, into its direction's link.
    fn handle_frame(&mut self, port: usize, length: usize) {
        let now = self.clock.now();
        self.frames_handled += 1;
        let frame = self.buffer.get(..length).unwrap_or_default();
        let packet = match RawPacket::parse(frame, self.framing) {
            Ok(packet) => packet,
            Err(PacketError::Ipv6) => {
                self.counters.stray += 1;
                return;
            }
            Err(error) => {
                tracing::debug!(port, length, %error, "dropped a frame");
                self.counters.malformed += 1;
                return;
            }
        };
        let Some((index, stop)) = self.next_stop(port, &packet) else {
            self.counters.stray += 1;
            return;
        };
        if !self.queue.has_room() {
            self.counters.overflow += 1;
            return;
        }
        if let Some(direction) = self.directions.get_mut(index) {
            let (batcher, queue) = (&mut self.batcher, &mut self.queue);
            match stop {
                None => direction.send(now, &packet, self.framing, index, batcher, queue),
                Some(stop) => direction.send_to_router(now, &packet, stop, index, queue),
            }
        }
    }

    /// The direction that a packet from a port takes, and the router at which it ends, if any. `None`: its
    /// destination does not exist.
    fn next_stop(
        &self,
        port: usize,
        packet: &RawPacket<'_>,
    ) -> Option<(usize, Option<StopAtRouter>)> {
        let destination = packet.destination();
        // A linear search: a lab has at most 26 hosts.
        let to = self
            .ports
            .iter()
            .position(|port| port.address == destination);
        let Some(to) = to else {
            // The first of the host's directions that this router is on.
            return self
                .directions
                .iter()
                .enumerate()
                .find_map(|(index, direction)| {
                    let stop = direction.route.stop_at_address(packet.ttl(), destination)?;
                    (direction.from == port).then_some((index, Some(stop)))
                });
        };
        let index = (*self.table.get(port * self.ports.len() + to)?)?;
        let route = &self.directions.get(index)?.route;
        Some((index, route.stop_of_ttl(packet.ttl())))
    }

    /// A packet has reached a router at which it ends: the answer sets out.
    fn answer(&mut self, delivery: &PendingDelivery, stop: StopAtRouter, now: Duration) {
        let Some(direction) = self.directions.get_mut(delivery.direction) else {
            return;
        };
        direction.record_delivery(delivery, now);
        let Some(origin) = direction.route.answer_origin(stop.router) else {
            return;
        };
        // The two directions of a path are neighbours, the forward one with the even index.
        let index = delivery.direction ^ 1;
        let Some(back) = self.directions.get_mut(index) else {
            return;
        };
        let ttl = back.route.answer_ttl(origin.skips);
        let frame = router_answer(
            &delivery.frame,
            self.framing,
            origin.address,
            stop.stop,
            ttl,
        );
        let Some(frame) = frame else {
            return;
        };
        let bytes = match RawPacket::parse(&frame, self.framing) {
            Ok(packet) => packet.segment_bytes(0),
            Err(_) => return,
        };
        back.send_from_router(now, frame, bytes, origin.skips, index, &mut self.queue);
    }

    /// Writes frames that are due to their hosts.
    fn deliver(&mut self) {
        for _ in 0..MAX_DELIVERIES_PER_TURN {
            let now = self.clock.now();
            if now < self.blocked_until {
                return;
            }
            // `now` is read for each delivery, so that those that became due meanwhile are
            // included.
            let Some(entry) = self.queue.pop_due(now) else {
                return;
            };
            let delivery = &entry.delivery;
            if let Some(stop) = delivery.stop {
                self.frames_handled += 1;
                self.answer(delivery, stop, now);
                continue;
            }
            let Some(direction) = self.directions.get_mut(delivery.direction) else {
                continue;
            };
            let Some(port) = self.ports.get(direction.to) else {
                continue;
            };
            self.frames_handled += 1;
            match port.device.send(&delivery.frame) {
                Ok(_) => direction.record_delivery(delivery, now),
                Err(error) if is_transient(&error) && now < delivery.due + RETRY_LIMIT => {
                    self.counters.retries += 1;
                    // All deliveries wait, so that the order within a direction is kept.
                    self.blocked_until = now + RETRY_DELAY;
                    self.queue.put_back(entry);
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "a host refused a packet");
                    direction.record_refusal(delivery);
                }
            }
        }
    }

    /// Does the periodic work if it is due.
    fn do_periodic_work(&mut self, shared: &EngineShared) {
        let now = self.clock.now();
        if now < self.last_periodic_work + PERIOD {
            return;
        }
        self.last_periodic_work = now;
        // The load needs the maximum since the last call, so the maximum restarts here.
        let backlog = std::mem::take(&mut self.backlog);
        self.load.record(now, processor_time(), backlog);
        let reports = self.reports();
        *shared
            .snapshot
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = reports;
    }

    fn reports(&self) -> Vec<super::DirectionReport> {
        self.directions
            .iter()
            .filter_map(PathDirection::report)
            .collect()
    }

    /// The final report.
    fn report(&self) -> EngineReport {
        let mut invalid: Vec<_> = self
            .directions
            .iter()
            .flat_map(PathDirection::invalid_reasons)
            .collect();
        invalid.extend(self.load.invalid_reason());
        invalid.extend(self.counters.invalid_reason());
        let mut notes: Vec<_> = self
            .directions
            .iter()
            .filter_map(PathDirection::refusal_note)
            .collect();
        notes.extend(self.counters.notes());
        EngineReport {
            seconds: self.clock.now().as_secs_f64(),
            cpu_seconds: processor_time().as_secs_f64(),
            directions: self.reports(),
            invalid,
            notes,
        }
    }
}

/// Whether the kernel may accept the packet on a retry.
fn is_transient(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::OutOfMemory
    ) || Errno::from_io_error(error) == Some(Errno::NOBUFS)
}

/// CPU time of the calling thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
