//! Topologies: hosts, and a path between each pair of them.
//!
//! A topology is a TOML file. All keys are optional:
//!
//! ```toml
//! seed = 7                      # default 1
//! cc = "cubic"                  # of every host; default: the system's
//! offload = true                # default
//! mtu = 1500                    # default
//! sysctl = { "net.ipv4.tcp_rmem" = "4096 87380 16777216" }    # of every host
//!
//! [hosts.a]                     # default: a and b
//! [hosts.b]
//! cc = "reno"
//! sysctl = { "net.ipv4.tcp_sack" = 0 }
//! [hosts.c]
//!
//! [default]                     # every path
//! rtt = "100ms"                 # default 0; or delay = "50ms", one way
//! rate = "1gbit"                # default: no bottleneck
//! queue = "1bdp"                # "100 packets", 100, "64KiB", "unlimited"
//!                               # default: 1bdp, and not less than 64 KiB
//! loss = "0.5%"                 # or 0.005
//!
//! [[paths]]                     # the path between two hosts, where it differs from the default
//! between = ["a", "c"]
//! burst_loss = { to_bad = 0.001, to_good = 0.1, in_good = 0, in_bad = 0.5 }
//! reorder = { probability = "1%", extra = "2ms" }
//! duplicate = "0.1%"
//! corrupt = 1e-5
//! forward.rate = "10mbit"       # only from a to c
//! back = { delay = "80ms" }     # only from c to a
//! routers = ["near", "*", "far"]  # from a to c; "*" does not answer; or a number: r1, r2, ...
//! bottleneck_link = 3           # its rate and queue; 1 is the link from a to near; default 2
//!
//! [[paths]]
//! between = ["b", "c"]
//! trace = "drsftp-path"         # or a CSV file beside this one, or the CSV text itself
//! trace_start = "90s"           # start there; the trace repeats; default 0s
//! ```
//!
//! The most specific value applies: first that of a direction, then of its path, then of a direction of
//! `default` (where forward is from the earlier host to the later one), then of `default`. A trace
//! replaces rate, delay and loss if it has such a column. A trace and a value that it replaces are
//! refused in the same table, and also if the value is more specific than the trace.
//!
//! Routers are listed from the first host of `between` to the second, in `back` from the second to the first.
//! A router is on as many paths as name it. The delay of a path divides equally among its links.

mod direction_keys;
mod error;
mod file;
mod host_name;
mod hosts;
mod kernel_setting;
mod network_options;
mod queue;
mod resolve;
mod route;
#[cfg(test)]
mod tests;
mod write;

use std::path::Path;

use link::Conditions;

use crate::LabError;
use file::TopologyFile;
use network_options::ParsedNetworkOptions;

pub use network_options::NetworkOptions;

/// Maximum number of hosts in a lab.
pub const MOST_HOSTS: usize = 26;

/// A host: a network namespace with one interface.
#[derive(Debug, Clone, PartialEq)]
pub struct LabHost {
    /// Lower-case letters, digits and hyphens, a letter first. The variable with its address is `LAB_`
    /// and the name in upper case, with underscores for hyphens.
    pub name: String,
    /// `net.*` settings, in the order given.
    pub sysctls: Vec<(String, String)>,
    /// TCP congestion control; `None`: the system's.
    pub congestion_control: Option<String>,
}

/// A path between two hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct LabPath {
    /// Indices into [`Topology::hosts`], the smaller one first.
    pub between: (usize, usize),
    /// Conditions from the first to the second host.
    pub forward: Conditions,
    /// Conditions from the second to the first host.
    pub back: Conditions,
    /// Routers from the first to the second host.
    pub forward_route: LabRoute,
    /// Routers from the second to the first host.
    pub back_route: LabRoute,
}

/// The routers of one direction of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabRoute {
    /// Indices into [`Topology::routers`], in the order of travel; `None`: a router that answers nothing.
    pub routers: Vec<Option<usize>>,
    /// The link with the bottleneck and its queue, 1 to `routers.len() + 1`; link 1 leaves the sending host.
    pub bottleneck_link: usize,
}

impl LabRoute {
    /// A path without routers.
    pub const DIRECT: Self = Self {
        routers: Vec::new(),
        bottleneck_link: 1,
    };

    /// The same route, travelled from its other end.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self {
            routers: self.routers.iter().rev().copied().collect(),
            bottleneck_link: (self.routers.len() + 2).saturating_sub(self.bottleneck_link),
        }
    }
}

/// A network. Each pair of hosts has a path.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// At least two hosts.
    pub hosts: Vec<LabHost>,
    /// Names of the routers that answer, in the order in which the paths use them.
    pub routers: Vec<String>,
    /// One path per pair of hosts.
    pub paths: Vec<LabPath>,
    /// Seed of random events.
    pub seed: u64,
    /// Segmentation offload: hosts send several segments at once. Loss and timing are per segment.
    pub offload: bool,
    /// Interface MTU, bytes, 576..=9000.
    pub mtu: u16,
}

impl Topology {
    /// Parses a topology. Relative paths of traces are relative to `base`.
    ///
    /// # Errors
    /// [`LabError::Usage`] names the line and the remedy; [`LabError::NotFound`]: a trace is missing.
    pub fn parse(text: &str, base: &Path) -> Result<Self, LabError> {
        Self::parse_with(text, base, &NetworkOptions::default())
    }

    /// Parses a topology, with command-line options that override it for every host and path.
    ///
    /// # Errors
    /// As [`Topology::parse`]. An error in an option names the option.
    pub fn parse_with(text: &str, base: &Path, options: &NetworkOptions) -> Result<Self, LabError> {
        Self::resolve(text, base, &options.parse_options()?)
    }

    /// Reads a topology from a file. Relative paths of traces are relative to its directory.
    ///
    /// # Errors
    /// [`LabError::NotFound`]: no such file; otherwise as [`Topology::parse`], with the file's name.
    pub fn read(path: &Path) -> Result<Self, LabError> {
        Self::from_options(Some(path), &NetworkOptions::default())
    }

    /// The topology of a file, or of two hosts `a` and `b` on a perfect path, with command-line options that
    /// override it for every host and path.
    ///
    /// # Errors
    /// As [`Topology::read`]. An error in an option names the option.
    pub fn from_options(file: Option<&Path>, options: &NetworkOptions) -> Result<Self, LabError> {
        let Some(path) = file else {
            return Self::parse_with("", Path::new(""), options);
        };
        let options = options.parse_options()?;
        let text = file::read_text(path)?;
        let base = path.parent().unwrap_or(Path::new(""));
        Self::resolve(&text, base, &options).map_err(|error| match error {
            LabError::Usage(message) => LabError::Usage(format!("{}: {message}", path.display())),
            other => other,
        })
    }

    /// The topology as TOML text. Parsing it gives this topology again, in any directory: traces are
    /// included in the text, except for the built-in ones.
    pub fn to_toml(&self) -> String {
        write::topology(self)
    }

    /// IPv4 address of host number `index`; the first is 10.99.0.1.
    pub fn address(index: usize) -> std::net::Ipv4Addr {
        let last = u8::try_from(index + 1).unwrap_or(u8::MAX);
        std::net::Ipv4Addr::new(10, 99, 0, last)
    }

    /// IPv4 address of router number `index`; the first is 10.99.0.101.
    pub fn router_address(index: usize) -> std::net::Ipv4Addr {
        let last = u8::try_from(index + 101).unwrap_or(u8::MAX);
        std::net::Ipv4Addr::new(10, 99, 0, last)
    }

    fn resolve(text: &str, base: &Path, options: &ParsedNetworkOptions) -> Result<Self, LabError> {
        TopologyFile::parse(text)
            .and_then(|file| resolve::topology(&file, base, options))
            .map_err(|fault| fault.into_error(text))
    }
}

/// The environment variable with the address of a host or router of this name, such as `LAB_A`.
pub fn address_variable(name: &str) -> String {
    format!("LAB_{}", name.to_ascii_uppercase().replace('-', "_"))
}
