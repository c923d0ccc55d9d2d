//! The engine: reads packets from the hosts' TUN devices, passes them through the links and writes
//! them to the receiving hosts when they are due.
//!
//! One thread does all of it. The segments of a super-packet enter the link one by one. Segments that
//! arrive within a fraction of a millisecond are delivered together. A fast path therefore costs only
//! as much as its super-packets, while loss, queue and timing apply to each packet.

mod batching;
mod delivery_queue;
mod direction;
mod drop_counters;
mod forwarder;
mod route;
mod sleeper;
#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;

use crate::LabError;
use crate::packet::TunFraming;
use crate::report::DirectionReport;
use crate::topology::Topology;

/// A host's TUN device and address. All devices have virtio-net headers, or none has.
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

/// Report of an engine on its run.
#[derive(Debug)]
pub struct EngineReport {
    /// Seconds from start to stop.
    pub seconds: f64,
    /// CPU time of the engine's thread, seconds.
    pub cpu_seconds: f64,
    /// Directions that carried packets, in topology order.
    pub directions: Vec<DirectionReport>,
    /// Reasons why the run is invalid, as sentences for the user.
    pub invalid: Vec<String>,
    /// Notes that do not make the run invalid, as sentences for the user.
    pub notes: Vec<String>,
}

/// State shared by the engine's thread and its owner.
#[derive(Debug)]
struct EngineShared {
    /// An eventfd(2); the thread stops when it is readable.
    stop: OwnedFd,
    /// A copy of the reports, which the thread updates periodically.
    snapshot: Mutex<Vec<DirectionReport>>,
}

impl Engine {
    /// Starts forwarding packets between the ports, which are in the order of the topology's hosts.
    ///
    /// # Errors
    /// [`LabError::Usage`]: the ports do not match the topology; [`LabError::System`]: the thread cannot
    /// be started.
    pub fn start(topology: &Topology, ports: Vec<TunPort>) -> Result<Self, LabError> {
        let framing = framing(topology, &ports)?;
        for port in &ports {
            // The thread reads until a device is empty, so reads must not block.
            port.device
                .set_nonblocking(true)
                .map_err(|error| LabError::system("preparing a TUN device", error))?;
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let stop = eventfd(0, flags)
            .map_err(|error| LabError::system("creating the emulator's eventfd", error))?;
        let shared = Arc::new(EngineShared {
            stop,
            snapshot: Mutex::new(Vec::new()),
        });
        let directions = direction::all_directions(topology);
        let thread_shared = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("lab-engine".to_owned())
            .spawn(move || forwarder::forward_packets(&ports, framing, directions, &thread_shared))
            .map_err(|error| LabError::system("starting the emulator's thread", error))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Reports of the directions so far, at most about 100 ms old.
    pub fn snapshot(&self) -> Vec<DirectionReport> {
        self.shared
            .snapshot
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Stops the engine and returns its report. Packets in flight are dropped.
    ///
    /// # Errors
    /// A device failed while the engine ran.
    pub fn stop(mut self) -> Result<EngineReport, LabError> {
        self.stop_thread().unwrap_or_else(|| Err(panicked_error()))
    }

    /// Stops and joins the thread; `None` if that has happened already.
    fn stop_thread(&mut self) -> Option<Result<EngineReport, LabError>> {
        let thread = self.thread.take()?;
        // The write cannot block: an eventfd accepts counts up to 2^64 - 2, and this one gets a single 1.
        if let Err(error) = rustix::io::write(&self.shared.stop, &1_u64.to_ne_bytes()) {
            return Some(Err(LabError::system("stopping the emulator", error)));
        }
        Some(thread.join().unwrap_or_else(|_| Err(panicked_error())))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The owner drops the engine without `stop`, so it does not need the report.
        let _ = self.stop_thread();
    }
}

/// The engine's thread panicked, which is a defect.
fn panicked_error() -> LabError {
    let source = std::io::Error::other("its thread panicked, which is a defect of the lab");
    LabError::system("running the emulator", source)
}

/// Checks that the ports match the topology and have the same framing, and returns that framing.
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
            "{some} of {} devices have virtio-net headers; all or none must have them",
            ports.len()
        ))),
    }
}
