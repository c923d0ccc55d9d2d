//! A host: a network namespace with a TUN device in it.

use std::fs::File;
use std::net::Ipv4Addr;

use netconfig_rs::sys::InterfaceExt;
use nix::sched::{CloneFlags, setns, unshare};
use tun_rs::DeviceBuilder;

use super::engine::Port;
use super::{privilege, sysctl};
use crate::LabError;
use crate::topology::{self, Topology};

/// Name of every host's interface.
const INTERFACE: &str = "lab0";

/// All hosts are neighbours in 10.99.0.0/24.
const PREFIX: u8 = 24;

/// Packets (or super-packets) that may wait between a host and the emulator before the host drops
/// them: about 0.2 s of 1 Gbit/s in single packets. The ring takes 8 bytes a packet.
const DEVICE_QUEUE: u32 = 20_000;

/// A host's network namespace; it lives as long as this or a process in it.
#[derive(Debug)]
pub(super) struct Namespace {
    /// The host's name.
    pub(super) host: String,
    /// Its `/proc/PID/ns/net`.
    pub(super) file: File,
}

/// A host that has been built.
pub(super) struct Built {
    pub(super) namespace: Namespace,
    pub(super) port: Port,
    /// Settings the host wants that a namespace does not have to itself.
    pub(super) for_machine: Vec<(String, String)>,
}

/// Builds host number `index` of the topology.
///
/// # Errors
/// [`LabError::Refused`]: the system forbids it; [`LabError::Usage`]: a setting is wrong.
pub(super) fn build(topology: &Topology, index: usize) -> Result<Built, LabError> {
    let host = &topology.hosts[index];
    let address = Topology::address(index);
    on_thread(&host.name, || {
        unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|e| privilege::no_namespace("network", "user.max_net_namespaces", e))?;
        let file = File::open("/proc/thread-self/ns/net")
            .map_err(|e| LabError::system("cannot open a network namespace", e))?;
        without_ipv6()?;
        loopback_up()?;
        let device = DeviceBuilder::new()
            .name(INTERFACE)
            .mtu(topology.mtu)
            .ipv4(address, PREFIX, None)
            .tx_queue_len(DEVICE_QUEUE)
            .offload(topology.offload)
            .build_sync()
            .map_err(|e| LabError::system("cannot create a TUN device", e))?;
        check_route()?;
        Ok(Built {
            namespace: Namespace {
                host: host.name.clone(),
                file,
            },
            port: Port { device, address },
            for_machine: configure(host)?,
        })
    })
}

impl Namespace {
    /// Packets that this host dropped because the emulator had not read those before them.
    ///
    /// # Errors
    /// The namespace cannot be entered or tells no counters.
    pub(super) fn overruns(&self) -> Result<u64, LabError> {
        on_thread(&self.host, || {
            setns(&self.file, CloneFlags::CLONE_NEWNET)
                .map_err(|e| LabError::system(format!("cannot enter host {}", self.host), e))?;
            let table = std::fs::read_to_string("/proc/thread-self/net/dev")
                .map_err(|e| LabError::system("cannot read the interface counters", e))?;
            transmit_drops(&table).ok_or_else(|| {
                LabError::Program(format!("host {} has lost its interface", self.host))
            })
        })
    }
}

/// A thread may change its namespaces without changing those of the process.
fn on_thread<T: Send>(
    name: &str,
    work: impl FnOnce() -> Result<T, LabError> + Send,
) -> Result<T, LabError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name(format!("host {name}"))
            .spawn_scoped(scope, work)
            .map_err(|e| LabError::system("cannot start a thread", e))?;
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Neighbour discovery and router solicitations would only add packets nobody asked for.
fn without_ipv6() -> Result<(), LabError> {
    for which in ["default", "all"] {
        // A kernel without IPv6 does not have the setting.
        sysctl::set_here(&format!("net.ipv6.conf.{which}.disable_ipv6"), "1")?;
    }
    Ok(())
}

fn loopback_up() -> Result<(), LabError> {
    netconfig_rs::Interface::try_from_name("lo")
        .and_then(|lo| lo.set_up(true))
        .map_err(|e| LabError::system("cannot bring a host's loopback up", e))
}

/// The host's settings; what remains is for the machine.
fn configure(host: &topology::Host) -> Result<Vec<(String, String)>, LabError> {
    // What one connection learns of the path must not change the next one.
    let ours = ("net.ipv4.tcp_no_metrics_save".to_owned(), "1".to_owned());
    let congestion = host
        .congestion
        .iter()
        .map(|name| (sysctl::CONGESTION_CONTROL.to_owned(), name.clone()));
    let mut for_machine = Vec::new();
    for (key, value) in std::iter::once(ours)
        .chain(host.sysctls.iter().cloned())
        .chain(congestion)
    {
        if sysctl::set_here(&key, &value)? == sysctl::Scope::Machine {
            for_machine.push((key, value));
        }
    }
    Ok(for_machine)
}

/// The other hosts must be reachable at once, without a gateway.
fn check_route() -> Result<(), LabError> {
    let table = std::fs::read_to_string("/proc/thread-self/net/route")
        .map_err(|e| LabError::system("cannot read a host's routes", e))?;
    if has_route(&table) {
        Ok(())
    } else {
        Err(LabError::Program(format!(
            "{INTERFACE} came up without its route to 10.99.0.0/{PREFIX}"
        )))
    }
}

/// `/proc/net/route`: interface, destination, gateway, flags, ..., mask as the eighth; addresses as
/// hexadecimal words in the machine's byte order.
fn has_route(table: &str) -> bool {
    let word = |a: Ipv4Addr| format!("{:08X}", u32::from_ne_bytes(a.octets()));
    let network = word(Ipv4Addr::new(10, 99, 0, 0));
    let mask = word(Ipv4Addr::from(u32::MAX << (32 - PREFIX)));
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.first() == Some(&INTERFACE)
            && fields.get(1) == Some(&network.as_str())
            && fields.get(7) == Some(&mask.as_str())
    })
}

/// `/proc/net/dev`: eight receive columns, then the transmit ones: bytes, packets, errors, drops.
fn transmit_drops(table: &str) -> Option<u64> {
    let line = table
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(INTERFACE)?.strip_prefix(':'))?;
    line.split_whitespace().nth(11)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_the_transmit_column() {
        let table = "Inter-|   Receive                            |  Transmit\n \
                     face |bytes    packets errs drop fifo frame compressed multicast|bytes ...\n    \
                     lo:  10 1 0 7 0 0 0 0  10 1 0 8 0 0 0 0\n  \
                     lab0: 5000 40 0 3 0 0 0 0 6000 50 0 42 0 0 0 0\n";
        assert_eq!(transmit_drops(table), Some(42));
        assert_eq!(transmit_drops("lab01: 1 2 3 4 5 6 7 8 9 10 11 12 13"), None);
        assert_eq!(transmit_drops(""), None);
    }

    #[test]
    fn a_route_needs_interface_network_and_mask() {
        let line = |interface: &str, network: &str, mask: &str| {
            format!(
                "Iface Destination ...\n{interface} {network} 00000000 0001 0 0 0 {mask} 0 0 0\n"
            )
        };
        let (network, mask) = if cfg!(target_endian = "little") {
            ("0000630A", "00FFFFFF")
        } else {
            ("0A630000", "FFFFFF00")
        };
        assert!(has_route(&line("lab0", network, mask)));
        assert!(!has_route(&line("eth0", network, mask)));
        assert!(!has_route(&line("lab0", "00000000", mask)));
        assert!(!has_route(&line("lab0", network, "FFFFFFFF")));
    }
}
