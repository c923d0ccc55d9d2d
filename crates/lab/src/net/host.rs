//! Builds the hosts: a namespace, a TUN device and settings for each.

use std::net::Ipv4Addr;

use tun_rs::{DeviceBuilder, SyncDevice};

use super::engine::TunPort;
use super::interface;
use super::machine_settings::TemporarySysctls;
use super::namespace::{HostNamespace, INTERFACE};
use super::sysctl::{self, CONGESTION_CONTROL, SysctlScope};
use crate::LabError;
use crate::topology::{LabHost, Topology};

/// All hosts are neighbours in 10.99.0.0/24.
const PREFIX: u8 = 24;

/// Packets (or super-packets) that may wait between a host and the emulator before the host drops
/// them: about 0.2 s of 1 Gbit/s in single packets. The ring takes 8 bytes a packet.
const DEVICE_QUEUE: u32 = 20_000;

/// Needs of a host that it cannot meet by itself.
#[derive(Debug, Default)]
struct UnmetNeeds {
    /// Settings that one value serves the whole machine for.
    for_machine: Vec<(String, String)>,
    /// A congestion control that has to be allowed first.
    restricted: Option<String>,
}

/// Builds all hosts, in the topology's order. What they want changed on the whole machine is put
/// back when the third value goes.
///
/// # Errors
/// [`LabError::Refused`]: the system forbids it; [`LabError::Usage`]: a setting is wrong.
pub(super) fn build_hosts(
    topology: &Topology,
) -> Result<(Vec<HostNamespace>, Vec<TunPort>, TemporarySysctls), LabError> {
    let mut namespaces = Vec::with_capacity(topology.hosts.len());
    let mut ports = Vec::with_capacity(topology.hosts.len());
    let mut for_machine = Vec::new();
    let mut restricted = Vec::new();
    for (index, host) in topology.hosts.iter().enumerate() {
        let address = Topology::address(index);
        let (namespace, (device, rest)) = HostNamespace::create(&host.name, || {
            disable_ipv6()?;
            interface::loopback_up()?;
            Ok((device(topology, address)?, configure(host)?))
        })?;
        namespaces.push(namespace);
        ports.push(TunPort { device, address });
        for_machine.extend(rest.for_machine);
        restricted.push(rest.restricted);
    }
    for_machine.extend(sysctl::setting_to_allow(restricted.iter().flatten())?);
    let borrowed = TemporarySysctls::set(&for_machine)?;
    for (namespace, name) in namespaces.iter().zip(restricted) {
        if let Some(name) = name {
            namespace.enter(|| set_restricted(&name))?;
        }
    }
    Ok((namespaces, ports, borrowed))
}

/// After the machine has allowed it.
fn set_restricted(congestion: &str) -> Result<(), LabError> {
    match sysctl::set_in_namespace(CONGESTION_CONTROL, congestion)? {
        SysctlScope::Namespace => Ok(()),
        SysctlScope::Machine | SysctlScope::Restricted => Err(LabError::Refused(format!(
            "this kernel does not let a namespace use the congestion control '{congestion}'"
        ))),
    }
}

/// The host's only way out, in this thread's namespace.
fn device(topology: &Topology, address: Ipv4Addr) -> Result<SyncDevice, LabError> {
    let failed = |e| LabError::system("cannot create a TUN device", e);
    let device = DeviceBuilder::new()
        .name(INTERFACE)
        .mtu(topology.mtu)
        .ipv4(address, PREFIX, None)
        .offload(topology.offload)
        .build_sync()
        .map_err(failed)?;
    interface::set_queue_length(device.if_index().map_err(failed)?, DEVICE_QUEUE)?;
    check_route()?;
    Ok(device)
}

/// Neighbour discovery and router solicitations would only add packets nobody asked for.
fn disable_ipv6() -> Result<(), LabError> {
    for which in ["default", "all"] {
        // A kernel without IPv6 does not have the setting.
        sysctl::set_in_namespace(&format!("net.ipv6.conf.{which}.disable_ipv6"), "1")?;
    }
    Ok(())
}

/// The host's settings, in this thread's namespace.
fn configure(host: &LabHost) -> Result<UnmetNeeds, LabError> {
    // The metrics that one connection caches must not change the next one.
    let ours = ("net.ipv4.tcp_no_metrics_save".to_owned(), "1".to_owned());
    let congestion = host
        .congestion_control
        .iter()
        .map(|name| (CONGESTION_CONTROL.to_owned(), name.clone()));
    let mut rest = UnmetNeeds::default();
    for (key, value) in std::iter::once(ours)
        .chain(host.sysctls.iter().cloned())
        .chain(congestion)
    {
        match sysctl::set_in_namespace(&key, &value)? {
            SysctlScope::Namespace if key == CONGESTION_CONTROL => rest.restricted = None,
            SysctlScope::Namespace => {}
            SysctlScope::Machine => rest.for_machine.push((key, value)),
            SysctlScope::Restricted => rest.restricted = Some(value),
        }
    }
    Ok(rest)
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

#[cfg(test)]
mod tests {
    use super::*;

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
