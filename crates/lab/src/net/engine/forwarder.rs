//! The engine's thread.

use std::io;
use std::sync::PoisonError;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::time::{ClockId, clock_gettime};

use super::batching::SegmentBatcher;
use super::delivery_queue::{DeliveryQueue, MEMORY_LIMIT};
use super::direction::PathDirection;
use super::drop_counters::{DropCounters, stalls_note};
use super::sleeper::{EngineClock, EngineSleeper, SleepRequest, raise_thread_priority};
use super::{EngineReport, EngineShared, TunPort};
use crate::LabError;
use crate::net::packet::{LARGEST_FRAME, PacketError, RawPacket, TunFraming};
use crate::net::validity::EmulatorLoad;

/// Most frames read from one device before the others and the deliveries have their turn.
const READS: usize = 32;
/// Most deliveries before the devices are read again.
const DELIVERIES: usize = 64;
/// How soon a delivery that the kernel had no room for is tried again.
const RETRY: Duration = Duration::from_micros(50);
/// How long it is tried.
const PATIENCE: Duration = Duration::from_millis(100);
/// How often counters are copied for onlookers, and the load is looked at.
const CHORES: Duration = Duration::from_millis(100);

/// Carries packets until told to stop.
pub(super) fn forward_packets(
    ports: &[TunPort],
    framing: TunFraming,
    directions: Vec<PathDirection>,
    shared: &EngineShared,
) -> Result<EngineReport, LabError> {
    let has_precedence = raise_thread_priority();
    let mut carrier = PacketForwarder::new(ports, framing, directions);
    let mut fds = vec![PollFd::new(&shared.stop, PollFlags::IN)];
    fds.extend(
        ports
            .iter()
            .map(|port| PollFd::new(&port.device, PollFlags::IN)),
    );
    let mut sleeper = EngineSleeper::default();
    loop {
        carrier.deliver();
        carrier.do_periodic_work(shared);
        sleeper
            .sleep(&mut fds, carrier.sleep_request(), carrier.clock)
            .map_err(|error| LabError::system("waiting for packets", error))?;
        if fds.first().is_some_and(is_ready) {
            break;
        }
        for (port, fd) in fds.iter().skip(1).enumerate() {
            if is_ready(fd) {
                carrier.read(port).map_err(|error| {
                    LabError::system("reading from a host's TUN device (was it removed?)", error)
                })?;
            } else {
                carrier.note_backlog(port, false);
            }
        }
    }
    let mut report = carrier.report();
    report
        .notes
        .extend(stalls_note(sleeper.stalls(), has_precedence));
    Ok(report)
}

/// The kernel has something to say about it.
fn is_ready(fd: &PollFd<'_>) -> bool {
    !fd.revents().is_empty()
}

/// Everything the loop works on.
struct PacketForwarder<'a> {
    ports: &'a [TunPort],
    framing: TunFraming,
    directions: Vec<PathDirection>,
    /// Which direction leads from one host to another, row by row.
    table: Vec<Option<usize>>,
    schedule: DeliveryQueue,
    clock: EngineClock,
    /// No delivery before this: the kernel had no room.
    blocked_until: Duration,
    chores_done: Duration,
    /// Since when each device has had more packets than its turn allows to read.
    behind_since: Vec<Option<Duration>>,
    /// The longest that lasted since the last chores.
    backlog: Duration,
    load: EmulatorLoad,
    /// Frames read and handed over.
    work: u64,
    tallies: DropCounters,
    /// Scratch space.
    buffer: Vec<u8>,
    runs: SegmentBatcher,
}

impl<'a> PacketForwarder<'a> {
    fn new(ports: &'a [TunPort], framing: TunFraming, directions: Vec<PathDirection>) -> Self {
        let mut table = vec![None; ports.len() * ports.len()];
        for (index, direction) in directions.iter().enumerate() {
            if let Some(place) = table.get_mut(direction.from * ports.len() + direction.to) {
                *place = Some(index);
            }
        }
        Self {
            ports,
            framing,
            directions,
            table,
            schedule: DeliveryQueue::new(MEMORY_LIMIT),
            clock: EngineClock::start(),
            blocked_until: Duration::ZERO,
            chores_done: Duration::ZERO,
            behind_since: vec![None; ports.len()],
            backlog: Duration::ZERO,
            load: EmulatorLoad::default(),
            work: 0,
            tallies: DropCounters::default(),
            buffer: vec![0; LARGEST_FRAME],
            runs: SegmentBatcher::default(),
        }
    }

    /// How long there is nothing to do without any input.
    fn sleep_request(&self) -> SleepRequest {
        let chores = self.chores_done + CHORES;
        let due = self.schedule.next_due();
        let until = due.map_or(chores, |due| due.max(self.blocked_until).min(chores));
        let is_unread = self.behind_since.iter().any(Option::is_some);
        SleepRequest {
            until,
            frames_handled: self.work,
            is_behind: is_unread || until <= self.clock.now(),
        }
    }

    /// Reads a device until it has no more, or others should have their turn.
    fn read(&mut self, port: usize) -> io::Result<()> {
        let ports = self.ports;
        let Some(TunPort { device, .. }) = ports.get(port) else {
            return Ok(());
        };
        for _ in 0..READS {
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

    /// A device's turn has ended, or it had nothing to read.
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

    /// Takes the frame in the buffer, which came from `port` just now.
    fn handle_frame(&mut self, port: usize, length: usize) {
        let now = self.clock.now();
        self.work += 1;
        let frame = self.buffer.get(..length).unwrap_or_default();
        let packet = match RawPacket::parse(frame, self.framing) {
            Ok(packet) => packet,
            Err(PacketError::Ipv6) => {
                self.tallies.stray += 1;
                return;
            }
            Err(unfit) => {
                tracing::debug!(port, length, %unfit, "dropped a frame");
                self.tallies.malformed += 1;
                return;
            }
        };
        let to = packet.destination();
        let to = self.ports.iter().position(|port| port.address == to);
        let direction = to.and_then(|to| *self.table.get(port * self.ports.len() + to)?);
        let Some(index) = direction else {
            self.tallies.stray += 1;
            return;
        };
        if !self.schedule.has_room() {
            self.tallies.overflow += 1;
            return;
        }
        if let Some(direction) = self.directions.get_mut(index) {
            let (runs, schedule) = (&mut self.runs, &mut self.schedule);
            direction.send(now, &packet, self.framing, index, runs, schedule);
        }
    }

    /// Hands over what is due.
    fn deliver(&mut self) {
        for _ in 0..DELIVERIES {
            let now = self.clock.now();
            if now < self.blocked_until {
                return;
            }
            let Some(entry) = self.schedule.pop_due(now) else {
                return;
            };
            let delivery = &entry.delivery;
            let Some(direction) = self.directions.get_mut(delivery.direction) else {
                continue;
            };
            let Some(port) = self.ports.get(direction.to) else {
                continue;
            };
            self.work += 1;
            match port.device.send(&delivery.frame) {
                Ok(_) => direction.record_delivery(delivery, now),
                Err(error) if is_transient(&error) && now < delivery.due + PATIENCE => {
                    self.tallies.retries += 1;
                    self.blocked_until = now + RETRY;
                    self.schedule.put_back(entry);
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "a host did not take a packet");
                    direction.record_refusal(delivery);
                }
            }
        }
    }

    /// Chores that are due now and then.
    fn do_periodic_work(&mut self, shared: &EngineShared) {
        let now = self.clock.now();
        if now < self.chores_done + CHORES {
            return;
        }
        self.chores_done = now;
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

    /// Report at the end.
    fn report(&self) -> EngineReport {
        let mut invalid: Vec<_> = self
            .directions
            .iter()
            .flat_map(PathDirection::invalid_reasons)
            .collect();
        invalid.extend(self.load.invalid_reason());
        invalid.extend(self.tallies.invalid_reason());
        let mut notes: Vec<_> = self
            .directions
            .iter()
            .filter_map(PathDirection::untaken_note)
            .collect();
        notes.extend(self.tallies.notes());
        EngineReport {
            seconds: self.clock.now().as_secs_f64(),
            cpu_seconds: processor_time().as_secs_f64(),
            directions: self.reports(),
            invalid,
            notes,
        }
    }
}

/// The kernel may take the packet when asked again.
fn is_transient(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::OutOfMemory
    ) || Errno::from_io_error(error) == Some(Errno::NOBUFS)
}

/// Processor time of the calling thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
