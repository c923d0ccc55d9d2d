//! The loop that carries packets: reads the hosts' TUN devices, asks the links, delivers in time.

use std::net::Ipv4Addr;

use crate::LabError;
use crate::net::report::DirectionReport;
use crate::topology::Topology;

/// A host's end: its TUN device, opened with virtio-net headers.
pub struct Port {
    /// The device.
    pub device: tun_rs::SyncDevice,
    /// The host's address.
    pub address: Ipv4Addr,
}

/// A running emulator: one thread.
pub struct Engine {}

/// What an engine knows about its run.
#[derive(Debug)]
pub struct EngineReport {
    /// Seconds from start to stop.
    pub seconds: f64,
    /// Processor seconds of its thread.
    pub cpu_seconds: f64,
    /// Directions that carried packets.
    pub directions: Vec<DirectionReport>,
    /// Signs that the emulator could not keep up, as sentences for the user.
    pub invalid: Vec<String>,
}

impl Engine {
    /// Starts to carry packets between the ports, which are in the order of the topology's hosts.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(topology: &Topology, ports: Vec<Port>) -> Result<Self, LabError> {
        let _ = (topology, ports);
        todo!()
    }

    /// Stops, and tells.
    ///
    /// # Errors
    /// A device failed while it ran.
    pub fn stop(self) -> Result<EngineReport, LabError> {
        todo!()
    }
}
