//! Builds the hosts: a network namespace, a TUN device and kernel settings for each.

use std::net::Ipv4Addr;

use tun_rs::{DeviceBuilder, SyncDevice};

use crate::engine::TunPort;
use crate::machine_settings::TemporarySysctls;
use crate::namespace::{HostNamespace, INTERFACE};
use crate::sysctl::{self, CONGESTION_CONTROL, SysctlScope};
use crate::topology::{LabHost, Topology};
use crate::{LabError, interface};

/// Prefix length: all hosts are on the subnet 10.99.0.0/24.
const PREFIX_LENGTH: u8 = 24;

/// Length of the queue between a host and the emulator, in packets or super-packets. The host drops
/// packets if it is full. It holds about 0.2 s at 1 Gbit/s in single packets; the ring takes 8 bytes
/// per packet.
const DEVICE_QUEUE_LENGTH: u32 = 20_000;

/// Settings of a host that cannot be made in its namespace alone.
#[derive(Debug, Default)]
struct UnmetNeeds {
    /// Settings that exist once per machine.
    for_machine: Vec<(String, String)>,
    /// A congestion control that the machine must allow first.
    restricted: Option<String>,
}

/// Builds all hosts, in the topology's order. Dropping the third value restores the settings of the
/// machine that were changed.
///
/// # Errors
/// [`LabError::Refused`]: the system forbids it; [`LabError::Usage`]: a setting is invalid.
pub(super) fn build_hosts(
    topology: &Topology,
) -> Result<(Vec<HostNamespace>, Vec<TunPort>, TemporarySysctls), LabError> {
    let mut namespaces = Vec::with_capacity(topology.hosts.len());
    let mut ports = Vec::with_capacity(topology.hosts.len());
    let mut for_machine = Vec::new();
    let mut restricted = Vec::new();
    for (index, host) in topology.hosts.iter().enumerate() {
        let address = Topology::address(index);
        let (namespace, (device, unmet_needs)) = HostNamespace::create(&host.name, || {
            disable_ipv6()?;
            interface::loopback_up()?;
            Ok((device(topology, address)?, configure(host)?))
        })?;
        namespaces.push(namespace);
        ports.push(TunPort { device, address });
        for_machine.extend(unmet_needs.for_machine);
        restricted.push(unmet_needs.restricted);
    }
    for_machine.extend(sysctl::setting_to_allow(restricted.iter().flatten())?);
    let sysctls = TemporarySysctls::set(&for_machine)?;
    for (namespace, name) in namespaces.iter().zip(restricted) {
        // A second pass, because the machine allows the congestion control only now.
        if let Some(name) = name {
            namespace.enter(|| set_restricted(&name))?;
        }
    }
    Ok((namespaces, ports, sysctls))
}

/// Sets a congestion control that the machine now allows, in this thread's namespace.
fn set_restricted(congestion: &str) -> Result<(), LabError> {
    match sysctl::set_in_namespace(CONGESTION_CONTROL, congestion)? {
        SysctlScope::Namespace => Ok(()),
        SysctlScope::Machine | SysctlScope::Restricted => Err(LabError::Refused(format!(
            "this kernel does not allow the congestion control '{congestion}' in a namespace"
        ))),
    }
}

/// Creates the host's TUN device, its only interface besides loopback, in this thread's namespace.
fn device(topology: &Topology, address: Ipv4Addr) -> Result<SyncDevice, LabError> {
    let failed = |e| LabError::system("cannot create a TUN device", e);
    let device = DeviceBuilder::new()
        .name(INTERFACE)
        .mtu(topology.mtu)
        .ipv4(address, PREFIX_LENGTH, None)
        // With offload the kernel sends super-packets with virtio-net headers (IFF_VNET_HDR).
        .offload(topology.offload)
        .build_sync()
        .map_err(failed)?;
    interface::set_queue_length(device.if_index().map_err(failed)?, DEVICE_QUEUE_LENGTH)?;
    check_route()?;
    Ok(device)
}

/// Disables IPv6. Its neighbour discovery (RFC 4861), such as router solicitations, would add packets
/// to the paths.
fn disable_ipv6() -> Result<(), LabError> {
    for which in ["default", "all"] {
        // A kernel without IPv6 does not have the setting.
        // "default" covers interfaces created later, "all" existing ones.
        sysctl::set_in_namespace(&format!("net.ipv6.conf.{which}.disable_ipv6"), "1")?;
    }
    Ok(())
}

/// Applies the host's settings in this thread's namespace; returns those that need the machine.
fn configure(host: &LabHost) -> Result<UnmetNeeds, LabError> {
    // Otherwise the kernel saves ssthresh and RTT of a connection for the next one to that host.
    let no_metrics_save = ("net.ipv4.tcp_no_metrics_save".to_owned(), "1".to_owned());
    let congestion = host
        .congestion_control
        .iter()
        .map(|name| (CONGESTION_CONTROL.to_owned(), name.clone()));
    let mut unmet_needs = UnmetNeeds::default();
    for (key, value) in std::iter::once(no_metrics_save)
        .chain(host.sysctls.iter().cloned())
        .chain(congestion)
    {
        match sysctl::set_in_namespace(&key, &value)? {
            SysctlScope::Namespace if key == CONGESTION_CONTROL => unmet_needs.restricted = None,
            SysctlScope::Namespace => {}
            SysctlScope::Machine => unmet_needs.for_machine.push((key, value)),
            SysctlScope::Restricted => unmet_needs.restricted = Some(value),
        }
    }
    Ok(unmet_needs)
}

/// Checks that the other hosts are reachable directly, without a gateway.
fn check_route() -> Result<(), LabError> {
    let table = std::fs::read_to_string("/proc/thread-self/net/route")
        .map_err(|e| LabError::system("cannot read a host's routes", e))?;
    if has_route(&table) {
        Ok(())
    } else {
        Err(LabError::Program(format!(
            "{INTERFACE} has no route to 10.99.0.0/{PREFIX_LENGTH}"
        )))
    }
}

/// Whether `/proc/net/route` has the subnet's route. Its columns are interface, destination, gateway,
/// flags, ..., and the mask as the eighth; addresses are hexadecimal words in the machine's byte order.
fn has_route(table: &str) -> bool {
    let word = |a: Ipv4Addr| format!("{:08X}", u32::from_ne_bytes(a.octets()));
    let network = word(Ipv4Addr::new(10, 99, 0, 0));
    let mask = word(Ipv4Addr::from(u32::MAX << (32 - PREFIX_LENGTH)));
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
    fn a_route_must_match_interface_network_and_mask() {
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
