//! From what a file and the command line say to the network they mean.

use std::collections::BTreeMap;
use std::path::Path as FilePath;

use toml::Spanned;

use super::direction_keys::{DirectionKeys, parse_optional};
use super::error::TopologyError;
use super::file::{PathTable, TopologyFile};
use super::hosts::hosts;
use super::network_options::ParsedNetworkOptions;
use super::{LabHost, LabPath, Topology};

/// The seed when none is given.
const SEED: u64 = 1;

/// The MTU when none is given, and the least and greatest, bytes.
const MTU: (u16, u16, u16) = (1500, 576, 9000);

/// The network.
pub(super) fn topology(
    file: &TopologyFile,
    base: &FilePath,
    over: &ParsedNetworkOptions,
) -> Result<Topology, TopologyError> {
    let hosts = hosts(file, over)?;
    let mtu = parse_optional("mtu", &file.mtu, mtu)?.unwrap_or(MTU.0);
    let seed = parse_optional("seed", &file.seed, seed)?;
    let default = PathKeys::read(&file.default, base).map_err(|f| f.within("default"))?;
    if let Some(between) = &file.default.between {
        return Err(
            TopologyError::new("between: default is for all paths; use [[paths]]")
                .at(between.span()),
        );
    }
    let mut special = path_overrides(file, &hosts, base)?;
    let mut paths = Vec::new();
    for one in 0..hosts.len() {
        for other in one + 1..hosts.len() {
            let between = (one, other);
            let sides = special.remove(&between).unwrap_or_default();
            let path = path(between, &sides, &default, over, mtu).map_err(|fault| {
                fault.within(&format!("path {}-{}", hosts[one].name, hosts[other].name))
            })?;
            paths.push(path);
        }
    }
    Ok(Topology {
        hosts,
        paths,
        seed: over.seed.or(seed).unwrap_or(SEED),
        offload: over.offload.or(file.offload).unwrap_or(true),
        mtu,
    })
}

/// Keys of a table on a path and on its directions.
#[derive(Debug, Clone, Default)]
struct PathKeys {
    both: DirectionKeys,
    forward: DirectionKeys,
    back: DirectionKeys,
}

impl PathKeys {
    fn read(table: &PathTable, base: &FilePath) -> Result<Self, TopologyError> {
        Ok(Self {
            both: DirectionKeys::read(table, base)?,
            forward: direction(table.forward.as_deref(), base).map_err(|f| f.within("forward"))?,
            back: direction(table.back.as_deref(), base).map_err(|f| f.within("back"))?,
        })
    }

    /// Seen from the other end.
    fn turned(self) -> Self {
        Self {
            both: self.both,
            forward: self.back,
            back: self.forward,
        }
    }
}

fn direction(
    table: Option<&Spanned<PathTable>>,
    base: &FilePath,
) -> Result<DirectionKeys, TopologyError> {
    let Some(table) = table else {
        return Ok(DirectionKeys::default());
    };
    let place = table.span();
    let table = table.get_ref();
    if let Some(rtt) = &table.rtt {
        return Err(
            TopologyError::new("rtt: one direction has no round trip; write delay").at(rtt.span()),
        );
    }
    if table.between.is_some() || table.forward.is_some() || table.back.is_some() {
        return Err(
            TopologyError::new("a direction has no between, forward or back of its own").at(place),
        );
    }
    DirectionKeys::read(table, base)
}

/// The paths that a file has something special to say of.
fn path_overrides(
    file: &TopologyFile,
    hosts: &[LabHost],
    base: &FilePath,
) -> Result<BTreeMap<(usize, usize), PathKeys>, TopologyError> {
    let mut special = BTreeMap::new();
    for table in &file.paths {
        let ends = ends(table, hosts)?;
        let sides = PathKeys::read(table.get_ref(), base).map_err(|f| f.at(table.span()))?;
        let (between, sides) = if ends.0 < ends.1 {
            (ends, sides)
        } else {
            ((ends.1, ends.0), sides.turned())
        };
        if special.insert(between, sides).is_some() {
            return Err(TopologyError::new(format!(
                "between: the path {}-{} is there already; put everything in one place",
                hosts[between.0].name, hosts[between.1].name
            ))
            .at(table.span()));
        }
    }
    Ok(special)
}

/// The hosts at the ends of a path, as its table names them.
fn ends(table: &Spanned<PathTable>, hosts: &[LabHost]) -> Result<(usize, usize), TopologyError> {
    let Some(between) = &table.get_ref().between else {
        let missing = "a path needs between = [\"a\", \"b\"]";
        return Err(TopologyError::new(missing).at(table.span()));
    };
    let refused =
        |problem: String| TopologyError::new(format!("between: {problem}")).at(between.span());
    let [one, other] = between.get_ref().as_slice() else {
        return Err(refused("a path has two ends; name two hosts".into()));
    };
    let find = |name: &String| {
        let place = hosts.iter().position(|host| host.name == *name);
        place.ok_or_else(|| {
            let names: Vec<_> = hosts.iter().map(|host| host.name.as_str()).collect();
            let name = name.escape_debug();
            refused(format!(
                "there is no host '{name}', only {}",
                names.join(", ")
            ))
        })
    };
    let ends = (find(one)?, find(other)?);
    if ends.0 == ends.1 {
        return Err(refused(format!("'{one}' needs no path to itself")));
    }
    Ok(ends)
}

/// One path, from what is said of it, of all paths, and on the command line.
fn path(
    between: (usize, usize),
    special: &PathKeys,
    default: &PathKeys,
    over: &ParsedNetworkOptions,
    mtu: u16,
) -> Result<LabPath, TopologyError> {
    let merged =
        |own: &DirectionKeys, of_default: &DirectionKeys| -> Result<DirectionKeys, TopologyError> {
            let nothing = DirectionKeys::default();
            let general = default.both.clone().over(&nothing)?;
            let general = of_default.clone().over(&general)?;
            let general = special.both.clone().over(&general)?;
            let general = own.clone().over(&general)?;
            over.keys
                .clone()
                .over(&general)
                .map_err(|f| f.within("command line"))
        };
    let forward = merged(&special.forward, &default.forward)?;
    let back = merged(&special.back, &default.back)?;
    let rtt = forward.mean_delay() + back.mean_delay();
    Ok(LabPath {
        between,
        forward: forward.conditions(rtt, mtu)?,
        back: back.conditions(rtt, mtu)?,
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
