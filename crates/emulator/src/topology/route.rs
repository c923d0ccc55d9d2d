//! Routers on a path, and the link of the path that is its bottleneck.

use std::collections::BTreeMap;

use toml::Spanned;

use super::error::TopologyError;
use super::file::{OptionalQuantity, PathTable};
use super::host_name::check_name;
use super::{LabHost, LabRoute};

/// Maximum number of routers on a path, below the 30 hops that traceroute tries.
const MOST_ON_A_PATH: usize = 28;

/// Maximum number of routers in a lab: their addresses are 10.99.0.101 to 10.99.0.254.
pub(super) const MOST_ROUTERS: usize = 154;

/// The name of a router that answers nothing, as traceroute prints it.
const SILENT: &str = "*";

/// A link of a path, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkPosition {
    FromStart(usize),
    FromEnd(usize),
}

/// The keys of a route that one source gives; `None` leaves a key to a more general source.
#[derive(Debug, Clone, Default)]
pub(super) struct RouteKeys {
    /// Names in the order of travel; `None` is a silent router.
    routers: Option<Vec<Option<String>>>,
    bottleneck: Option<LinkPosition>,
}

impl RouteKeys {
    pub(super) fn read(table: &PathTable) -> Result<Self, TopologyError> {
        let routers = table.routers.as_ref().map(routers).transpose()?;
        let bottleneck = bottleneck_link(&table.bottleneck_link)?;
        Ok(Self {
            routers,
            bottleneck,
        })
    }

    /// These keys, and those of `general` where a key is missing.
    pub(super) fn with_fallback(self, general: &Self) -> Self {
        Self {
            routers: self.routers.or_else(|| general.routers.clone()),
            bottleneck: self.bottleneck.or(general.bottleneck),
        }
    }

    /// The same route, travelled from its other end.
    pub(super) fn reversed(&self) -> Self {
        let routers = self.routers.as_ref();
        Self {
            routers: routers.map(|names| names.iter().rev().cloned().collect()),
            bottleneck: self.bottleneck.map(|link| match link {
                LinkPosition::FromStart(link) => LinkPosition::FromEnd(link),
                LinkPosition::FromEnd(link) => LinkPosition::FromStart(link),
            }),
        }
    }

    /// The routers' names and the number of the bottleneck link from the start. The default is the link
    /// behind the first router, which a forward and a back direction place differently if there are
    /// several routers; `is_back` says which of the two this is.
    fn resolve(&self, is_back: bool) -> Result<(Vec<Option<String>>, usize), TopologyError> {
        let names = self.routers.clone().unwrap_or_default();
        let links = names.len() + 1;
        let behind_the_first = 2.min(links);
        let number = match (self.bottleneck, is_back) {
            (Some(LinkPosition::FromStart(link)), _) => Some(link),
            (Some(LinkPosition::FromEnd(link)), _) => (links + 1).checked_sub(link),
            (None, false) => Some(behind_the_first),
            (None, true) => Some(links + 1 - behind_the_first),
        };
        match number {
            Some(link) if (1..=links).contains(&link) => Ok((names, link)),
            _ => Err(TopologyError::new(format!(
                "bottleneck_link: a path with {} routers has the links 1 to {links}",
                names.len()
            ))),
        }
    }
}

/// The routers of a lab, collected while its paths are resolved.
#[derive(Debug, Default)]
pub(super) struct RouterNames {
    names: Vec<String>,
    indices: BTreeMap<String, usize>,
}

impl RouterNames {
    /// The route of a direction. New names are added to the lab's routers.
    pub(super) fn route(
        &mut self,
        keys: &RouteKeys,
        is_back: bool,
        hosts: &[LabHost],
    ) -> Result<LabRoute, TopologyError> {
        let (names, bottleneck_link) = keys.resolve(is_back)?;
        let mut routers = Vec::with_capacity(names.len());
        for name in names {
            routers.push(match name {
                Some(name) => Some(self.index(name, hosts)?),
                None => None,
            });
        }
        Ok(LabRoute {
            routers,
            bottleneck_link,
        })
    }

    /// The names in the order in which the paths use them.
    pub(super) fn into_names(self) -> Vec<String> {
        self.names
    }

    fn index(&mut self, name: String, hosts: &[LabHost]) -> Result<usize, TopologyError> {
        if let Some(index) = self.indices.get(&name) {
            return Ok(*index);
        }
        if hosts.iter().any(|host| host.name == name) {
            let problem = format!("routers: '{name}' is a host; give the router another name");
            return Err(TopologyError::new(problem));
        }
        let index = self.names.len();
        if index >= MOST_ROUTERS {
            let problem = format!("routers: a lab has at most {MOST_ROUTERS} routers");
            return Err(TopologyError::new(problem));
        }
        self.names.push(name.clone());
        self.indices.insert(name, index);
        Ok(index)
    }
}

/// The keys of `routers`: a number of routers `r1`, `r2`, ..., or their names.
fn routers(value: &Spanned<toml::Value>) -> Result<Vec<Option<String>>, TopologyError> {
    let names = match value.get_ref() {
        toml::Value::Integer(number) => numbered(&number.to_string()),
        toml::Value::String(number) => numbered(number),
        toml::Value::Array(names) => named(names),
        _ => Err(expectation()),
    };
    names.map_err(|fault| fault.within("routers").at(value.span()))
}

fn numbered(number: &str) -> Result<Vec<Option<String>>, TopologyError> {
    match number.trim().parse::<usize>() {
        Ok(number) if number <= MOST_ON_A_PATH => {
            Ok((1..=number).map(|n| Some(format!("r{n}"))).collect())
        }
        _ => Err(expectation()),
    }
}

fn named(values: &[toml::Value]) -> Result<Vec<Option<String>>, TopologyError> {
    if values.len() > MOST_ON_A_PATH {
        return Err(expectation());
    }
    let mut names: Vec<Option<String>> = Vec::with_capacity(values.len());
    for value in values {
        let name = value.as_str().ok_or_else(expectation)?;
        if name == SILENT {
            names.push(None);
            continue;
        }
        check_name(name)?;
        // A packet would not leave a loop.
        if names.iter().flatten().any(|earlier| earlier == name) {
            let problem = format!("'{name}' is on the path twice");
            return Err(TopologyError::new(problem));
        }
        names.push(Some(name.to_owned()));
    }
    Ok(names)
}

fn expectation() -> TopologyError {
    TopologyError::new(format!(
        "write a number from 0 to {MOST_ON_A_PATH}, or at most {MOST_ON_A_PATH} names like [\"near\", \"*\", \
         \"far\"], where \"*\" is a router that does not answer"
    ))
}

fn bottleneck_link(field: &OptionalQuantity) -> Result<Option<LinkPosition>, TopologyError> {
    super::direction_keys::parse_optional("bottleneck_link", field, |text| {
        match text.trim().parse() {
            Ok(link) if link > 0 => Ok(LinkPosition::FromStart(link)),
            _ => Err(TopologyError::new(format!(
                "'{}' is not the number of a link; the first is 1",
                text.escape_debug()
            ))),
        }
    })
}
