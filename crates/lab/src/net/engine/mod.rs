//! The loop that carries packets: reads the hosts' TUN devices, asks the links, delivers in time.
//!
//! One thread does it all. A super-packet's segments meet the link one by one; those that arrive
//! within a fraction of a millisecond of each other are handed over together, so that the cost of a
//! fast path is that of its super-packets while loss, queue and timing are those of its packets.

mod batching;
mod delivery_queue;
mod direction;
mod drop_counters;
mod forwarder;
mod sleeper;
#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;

use crate::LabError;
use crate::net::packet::TunFraming;
use crate::net::report::DirectionReport;
use crate::topology::Topology;

/// A host's end: its TUN device, all opened alike: with virtio-net headers, or all without.
pub struct TunPort {
    /// The device.
    pub device: tun_rs::SyncDevice,
    /// The host's address.
    pub address: Ipv4Addr,
}

/// A running emulator: one thread. It stops when dropped.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<EngineShared>,
    thread: Option<JoinHandle<Result<EngineReport, LabError>>>,
}

/// Account of an engine about its run.
#[derive(Debug)]
pub struct EngineReport {
    /// Seconds from start to stop.
    pub seconds: f64,
    /// Processor seconds of its thread.
    pub cpu_seconds: f64,
    /// Directions that carried packets, in topology order.
    pub directions: Vec<DirectionReport>,
    /// Signs that the emulator could not keep up, as sentences for the user.
    pub invalid: Vec<String>,
    /// Notes worth reading that do not spoil the run, as sentences for the user.
    pub notes: Vec<String>,
}

/// State that the engine's thread and its owner both see.
#[derive(Debug)]
struct EngineShared {
    /// Readable: stop.
    stop: OwnedFd,
    /// A copy that the thread refreshes.
    snapshot: Mutex<Vec<DirectionReport>>,
}

impl Engine {
    /// Starts to carry packets between the ports, which are in the order of the topology's hosts.
    ///
    /// # Errors
    /// [`LabError::Usage`]: ports and topology do not fit each other; [`LabError::System`]: the
    /// thread cannot be started.
    pub fn start(topology: &Topology, ports: Vec<TunPort>) -> Result<Self, LabError> {
        let framing = framing(topology, &ports)?;
        for port in &ports {
            port.device
                .set_nonblocking(true)
                .map_err(|error| LabError::system("preparing a TUN device", error))?;
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let stop = eventfd(0, flags)
            .map_err(|error| LabError::system("making the emulator's wake-up", error))?;
        let shared = Arc::new(EngineShared {
            stop,
            snapshot: Mutex::new(Vec::new()),
        });
        let directions = direction::all_directions(topology);
        let seen = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("lab-engine".to_owned())
            .spawn(move || forwarder::forward_packets(&ports, framing, directions, &seen))
            .map_err(|error| LabError::system("starting the emulator's thread", error))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Reports of the directions so far, not older than about a tenth of a second.
    pub fn snapshot(&self) -> Vec<DirectionReport> {
        self.shared
            .snapshot
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Stops, and tells. Packets under way are forgotten.
    ///
    /// # Errors
    /// A device failed while it ran.
    pub fn stop(mut self) -> Result<EngineReport, LabError> {
        self.end().unwrap_or_else(|| Err(broke_down()))
    }

    /// Ends the thread if it has not ended.
    fn end(&mut self) -> Option<Result<EngineReport, LabError>> {
        let thread = self.thread.take()?;
        // An eventfd takes any count below 2^64 - 1; this one gets a single 1.
        if let Err(error) = rustix::io::write(&self.shared.stop, &1_u64.to_ne_bytes()) {
            return Some(Err(LabError::system("stopping the emulator", error)));
        }
        Some(thread.join().unwrap_or_else(|_| Err(broke_down())))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Who drops an engine does not ask how it went.
        let _ = self.end();
    }
}

/// The engine's thread panicked, which is a defect.
fn broke_down() -> LabError {
    let source = std::io::Error::other("its thread broke down, which is a defect of the lab");
    LabError::system("running the emulator", source)
}

/// Checks that the ports fit the topology and each other.
fn framing(topology: &Topology, ports: &[TunPort]) -> Result<TunFraming, LabError> {
    if ports.len() != topology.hosts.len() {
        let (ports, hosts) = (ports.len(), topology.hosts.len());
        return Err(LabError::Usage(format!(
            "the emulator got {ports} devices for {hosts} hosts"
        )));
    }
    let offloaded = ports.iter().filter(|port| port.device.tcp_gso()).count();
    match offloaded {
        0 => Ok(TunFraming::Plain),
        some if some == ports.len() => Ok(TunFraming::Offloaded),
        some => Err(LabError::Usage(format!(
            "{some} of {} devices have virtio-net headers: all or none must",
            ports.len()
        ))),
    }
}
