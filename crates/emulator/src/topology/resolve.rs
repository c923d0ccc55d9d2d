//! Combines a topology file and the command line to a topology.

use std::collections::BTreeMap;
use std::path::Path;

use toml::Spanned;

use super::direction_keys::{DirectionKeys, parse_optional};
use super::error::TopologyError;
use super::file::{PathTable, TopologyFile};
use super::hosts::hosts;
use super::network_options::ParsedNetworkOptions;
use super::route::{RouteKeys, RouterNames};
use super::{LabHost, LabPath, LabRoute, Topology};

/// Default seed.
const SEED: u64 = 1;

/// Default, minimum and maximum MTU, bytes.
const MTU: (u16, u16, u16) = (1500, 576, 9000);

/// The topology of a file and command-line options.
pub(super) fn topology(
    file: &TopologyFile,
    base: &Path,
    options: &ParsedNetworkOptions,
) -> Result<Topology, TopologyError> {
    let hosts = hosts(file, options)?;
    let mtu = parse_optional("mtu", &file.mtu, mtu)?.unwrap_or(MTU.0);
    let seed = parse_optional("seed", &file.seed, seed)?;
    let default = PathKeys::read(&file.default, base).map_err(|f| f.within("default"))?;
    if let Some(between) = &file.default.between {
        return Err(
            TopologyError::new("between: default applies to all paths; use [[paths]]")
                .at(between.span()),
        );
    }
    let mut overrides = path_overrides(file, &hosts, base)?;
    let mut paths = Vec::new();
    let mut routers = RouterNames::default();
    for first in 0..hosts.len() {
        for second in first + 1..hosts.len() {
            let between = (first, second);
            // Every pair of hosts has a path; a table only changes its conditions.
            let keys = overrides.remove(&between).unwrap_or_default();
            let path = path(between, &keys, &default, options, mtu);
            let path = path.and_then(|conditions| {
                let (forward, back) = keys.routes(&default, &options.route);
                Ok(LabPath {
                    forward_route: routers.route(&forward, false, &hosts)?,
                    back_route: routers.route(&back, true, &hosts)?,
                    ..conditions
                })
            });
            let path = path.map_err(|fault| {
                fault.within(&format!(
                    "path {}-{}",
                    hosts[first].name, hosts[second].name
                ))
            })?;
            paths.push(path);
        }
    }
    Ok(Topology {
        hosts,
        routers: routers.into_names(),
        paths,
        seed: options.seed.or(seed).unwrap_or(SEED),
        offload: options.offload.or(file.offload).unwrap_or(true),
        mtu,
    })
}

/// Keys of a path's table: for both directions, and for each one.
#[derive(Debug, Clone, Default)]
struct PathKeys {
    both: DirectionKeys,
    forward: DirectionKeys,
    back: DirectionKeys,
    routes: RoutePair,
}

/// Keys of routes: for both directions, as the forward one travels it, and for each one.
#[derive(Debug, Clone, Default)]
struct RoutePair {
    both: RouteKeys,
    forward: RouteKeys,
    back: RouteKeys,
}

impl PathKeys {
    fn read(table: &PathTable, base: &Path) -> Result<Self, TopologyError> {
        Ok(Self {
            both: DirectionKeys::read(table, base)?,
            forward: direction(table.forward.as_deref(), base).map_err(|f| f.within("forward"))?,
            back: direction(table.back.as_deref(), base).map_err(|f| f.within("back"))?,
            routes: RoutePair {
                both: RouteKeys::read(table)?,
                forward: route(table.forward.as_deref()).map_err(|f| f.within("forward"))?,
                back: route(table.back.as_deref()).map_err(|f| f.within("back"))?,
            },
        })
    }

    /// The same keys with the directions exchanged.
    fn with_directions_swapped(self) -> Self {
        Self {
            both: self.both,
            forward: self.back,
            back: self.forward,
            routes: RoutePair {
                both: self.routes.both.reversed(),
                forward: self.routes.back,
                back: self.routes.forward,
            },
        }
    }

    /// The routes forward and back, with the same precedence as the other keys.
    fn routes(&self, default: &Self, options: &RouteKeys) -> (RouteKeys, RouteKeys) {
        let (own, general) = (&self.routes, &default.routes);
        let forward = options.clone().with_fallback(&own.forward);
        let forward = forward.with_fallback(&own.both);
        let forward = forward.with_fallback(&general.forward);
        let back = options.reversed().with_fallback(&own.back);
        let back = back.with_fallback(&own.both.reversed());
        let back = back.with_fallback(&general.back);
        (
            forward.with_fallback(&general.both),
            back.with_fallback(&general.both.reversed()),
        )
    }
}

fn route(table: Option<&Spanned<PathTable>>) -> Result<RouteKeys, TopologyError> {
    table.map_or(Ok(RouteKeys::default()), |table| {
        RouteKeys::read(table.get_ref()).map_err(|f| f.at(table.span()))
    })
}

fn direction(
    table: Option<&Spanned<PathTable>>,
    base: &Path,
) -> Result<DirectionKeys, TopologyError> {
    let Some(table) = table else {
        return Ok(DirectionKeys::default());
    };
    let place = table.span();
    let table = table.get_ref();
    if let Some(rtt) = &table.rtt {
        return Err(
            TopologyError::new("rtt: a direction has no round trip; use delay").at(rtt.span()),
        );
    }
    if table.between.is_some() || table.forward.is_some() || table.back.is_some() {
        return Err(
            TopologyError::new("a direction has no between, forward or back of its own").at(place),
        );
    }
    DirectionKeys::read(table, base)
}

/// The tables of single paths in a file, by pair of hosts.
fn path_overrides(
    file: &TopologyFile,
    hosts: &[LabHost],
    base: &Path,
) -> Result<BTreeMap<(usize, usize), PathKeys>, TopologyError> {
    let mut overrides = BTreeMap::new();
    for table in &file.paths {
        let ends = ends(table, hosts)?;
        let keys = PathKeys::read(table.get_ref(), base).map_err(|f| f.at(table.span()))?;
        // Paths are stored with the smaller index first; a table in the other order is reversed.
        let (between, keys) = if ends.0 < ends.1 {
            (ends, keys)
        } else {
            ((ends.1, ends.0), keys.with_directions_swapped())
        };
        if overrides.insert(between, keys).is_some() {
            return Err(TopologyError::new(format!(
                "between: the path {}-{} has a table already; use one table",
                hosts[between.0].name, hosts[between.1].name
            ))
            .at(table.span()));
        }
    }
    Ok(overrides)
}

/// Indices of the hosts at the ends of a path, in the order of its table.
fn ends(table: &Spanned<PathTable>, hosts: &[LabHost]) -> Result<(usize, usize), TopologyError> {
    let Some(between) = &table.get_ref().between else {
        let missing = "a path needs between = [\"a\", \"b\"]";
        return Err(TopologyError::new(missing).at(table.span()));
    };
    let refused =
        |problem: String| TopologyError::new(format!("between: {problem}")).at(between.span());
    let [first, second] = between.get_ref().as_slice() else {
        return Err(refused("a path has two ends; give two hosts".into()));
    };
    let find = |name: &String| {
        let place = hosts.iter().position(|host| host.name == *name);
        place.ok_or_else(|| {
            let names: Vec<_> = hosts.iter().map(|host| host.name.as_str()).collect();
            let name = name.escape_debug();
            refused(format!(
                "there is no host '{name}'; the hosts are {}",
                names.join(", ")
            ))
        })
    };
    let ends = (find(first)?, find(second)?);
    if ends.0 == ends.1 {
        return Err(refused(format!("'{first}' cannot have a path to itself")));
    }
    Ok(ends)
}

/// A path, from its own table, the default and the command line.
fn path(
    between: (usize, usize),
    overrides: &PathKeys,
    default: &PathKeys,
    options: &ParsedNetworkOptions,
    mtu: u16,
) -> Result<LabPath, TopologyError> {
    let merged =
        |own: &DirectionKeys, of_default: &DirectionKeys| -> Result<DirectionKeys, TopologyError> {
            let nothing = DirectionKeys::default();
            // From general to special: default, default of the direction, path, direction of the
            // path, command line. A special source overrides only the keys that it has.
            let general = default.both.clone().with_fallback(&nothing)?;
            let general = of_default.clone().with_fallback(&general)?;
            let general = overrides.both.clone().with_fallback(&general)?;
            let general = own.clone().with_fallback(&general)?;
            options
                .keys
                .clone()
                .with_fallback(&general)
                .map_err(|f| f.within("command line"))
        };
    let forward = merged(&overrides.forward, &default.forward)?;
    let back = merged(&overrides.back, &default.back)?;
    // The BDP of a queue depends on both directions.
    let rtt = forward.mean_delay() + back.mean_delay();
    Ok(LabPath {
        between,
        forward: forward.conditions(rtt, mtu)?,
        back: back.conditions(rtt, mtu)?,
        forward_route: LabRoute::DIRECT,
        back_route: LabRoute::DIRECT,
    })
}

fn mtu(text: &str) -> Result<u16, TopologyError> {
    let (_, least, most) = MTU;
    match text.trim().parse() {
        Ok(bytes) if (least..=most).contains(&bytes) => Ok(bytes),
        _ => Err(TopologyError::new(format!(
            "'{}' is not a number of bytes from {least} to {most}",
            text.escape_debug()
        ))),
    }
}

fn seed(text: &str) -> Result<u64, TopologyError> {
    text.trim().parse().map_err(|_| {
        TopologyError::new(format!(
            "'{}' is not a whole number from 0 to {}",
            text.escape_debug(),
            u64::MAX
        ))
    })
}
