//! The route that serves a client now.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::ip_command::{EnforceError, IpCommand};

/// Gateway, device and source of the packets to one client, and the metrics they have already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServingRoute {
    /// `None`: the client is on the device's own network.
    pub(super) gateway: Option<IpAddr>,
    pub(super) device: String,
    pub(super) source: Option<IpAddr>,
    /// Words for `ip route add`: metrics of the route that is covered, which must go on to hold.
    pub(super) metrics: Vec<String>,
}

/// The fields of `ip -j -d route get` and `... fibmatch` that are used.
#[derive(Deserialize)]
struct ShownRoute {
    #[serde(rename = "type")]
    kind: Option<String>,
    table: Option<String>,
    gateway: Option<IpAddr>,
    via: Option<Value>,
    dev: Option<String>,
    prefsrc: Option<IpAddr>,
    nexthops: Option<Vec<Value>>,
    encap: Option<Value>,
    #[serde(default)]
    metrics: Vec<Map<String, Value>>,
}

/// Finds the route. The inner error says why no host route may be put beside it.
pub(super) fn find(
    ip: &IpCommand,
    client: IpAddr,
) -> Result<Result<ServingRoute, String>, EnforceError> {
    let address = client.to_string();
    // The routing table's entry has the metrics and next hops, the lookup has the source.
    let entry = shown(ip, &["route", "get", "fibmatch", &address])?;
    let lookup = shown(ip, &["route", "get", &address])?;
    let (Some(entry), Some(lookup)) = (entry, lookup) else {
        return Ok(Err("there is no route to it".to_owned()));
    };
    let kind = entry.kind.as_deref().unwrap_or("unicast");
    if kind != "unicast" {
        return Ok(Err(format!("its route is of type {kind}")));
    }
    if entry.table.as_deref().unwrap_or("main") != "main" {
        return Ok(Err(
            "a rule sends it to a routing table other than main".to_owned()
        ));
    }
    if entry.nexthops.is_some() {
        return Ok(Err("its route has several next hops".to_owned()));
    }
    if entry.via.is_some() || entry.encap.is_some() {
        return Ok(Err("its route has a gateway of another kind".to_owned()));
    }
    let Some(device) = lookup.dev.filter(|device| is_device(device)) else {
        return Ok(Err("its route names no device".to_owned()));
    };
    let metrics = match kept_metrics(&entry.metrics) {
        Ok(metrics) => metrics,
        Err(name) => return Ok(Err(format!("its route has the metric {name}"))),
    };
    Ok(Ok(ServingRoute {
        gateway: lookup.gateway,
        device,
        source: lookup.prefsrc,
        metrics,
    }))
}

fn shown(ip: &IpCommand, args: &[&str]) -> Result<Option<ShownRoute>, EnforceError> {
    let value = match ip.json(args) {
        Ok(value) => value,
        // The kernel's answer is an error if there is no route, or an unreachable, prohibit or blackhole route.
        Err(EnforceError::Refused { message, .. }) if message.contains("RTNETLINK answers") => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let routes: Vec<ShownRoute> =
        serde_json::from_value(value).map_err(|error| EnforceError::Answer {
            command: format!("ip {}", args.join(" ")),
            reason: error.to_string(),
        })?;
    Ok(routes.into_iter().next())
}

/// The metrics that a host route can repeat exactly; else the name of one that it cannot. `mtu` may be locked, which
/// the JSON of iproute2 6.1 does not say; times lose digits. The advised ones need not be kept.
fn kept_metrics(metrics: &[Map<String, Value>]) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    for (name, value) in metrics.iter().flatten() {
        match (name.as_str(), value.as_u64()) {
            ("initcwnd" | "initrwnd" | "congestion", _) => {}
            ("advmss" | "hoplimit" | "quickack" | "window", Some(value)) => {
                words.extend([name.clone(), value.to_string()]);
            }
            _ => return Err(name.clone()),
        }
    }
    Ok(words)
}

/// A name as the kernel allows (dev_valid_name): at most 15 bytes, no `/`, no blank.
fn is_device(name: &str) -> bool {
    (1..=15).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic() && b != b'/')
}
