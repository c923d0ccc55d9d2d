//! Network to build: hosts, and a path between every two of them.
//!
//! A topology is written as TOML; everything may be left out:
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
//! [[paths]]                     # what differs between two hosts
//! between = ["a", "c"]
//! burst_loss = { to_bad = 0.001, to_good = 0.1, in_good = 0, in_bad = 0.5 }
//! reorder = { probability = "1%", extra = "2ms" }
//! duplicate = "0.1%"
//! corrupt = 1e-5
//! forward.rate = "10mbit"       # only from a to c
//! back = { delay = "80ms" }     # only from c to a
//!
//! [[paths]]
//! between = ["b", "c"]
//! trace = "drsftp-path"         # or a CSV file beside this one, or the CSV text itself
//! trace_start = "90s"           # from there, round and round; default 0s
//! ```
//!
//! The more special table wins: a direction, then its path, then a direction of `default`
//! (where forward is from the earlier host to the later), then `default`. A trace replaces rate,
//! delay and loss where it has such a column; saying both in one place, or a value over a trace, is
//! refused.

mod direction_keys;
mod error;
mod file;
mod hosts;
mod kernel_setting;
mod network_options;
mod queue;
mod resolve;
#[cfg(test)]
mod tests;
mod write;

use std::path::Path as FilePath;

use sim::link::Conditions;

use crate::LabError;
use file::TopologyFile;

pub use network_options::NetworkOptions;

/// Most hosts in one lab.
pub const MOST_HOSTS: usize = 26;

/// A host: a network namespace with one interface.
#[derive(Debug, Clone, PartialEq)]
pub struct LabHost {
    /// Lower-case letters, digits and hyphens, a letter first; `LAB_` + upper case (hyphens as
    /// underscores) is the variable that holds its address.
    pub name: String,
    /// `net.*` settings, in the order given.
    pub sysctls: Vec<(String, String)>,
    /// TCP congestion control; `None`: the system's.
    pub congestion_control: Option<String>,
}

/// The path between two hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct LabPath {
    /// Indices into [`Topology::hosts`], the smaller one first.
    pub between: (usize, usize),
    /// From the first to the second.
    pub forward: Conditions,
    /// From the second to the first.
    pub back: Conditions,
}

/// A whole network. Every two hosts have a path.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// At least two.
    pub hosts: Vec<LabHost>,
    /// One for every two hosts.
    pub paths: Vec<LabPath>,
    /// Makes random events repeat.
    pub seed: u64,
    /// Let a host hand over many segments at once (loss and timing stay per segment).
    pub offload: bool,
    /// Interface MTU, bytes, 576..=9000.
    pub mtu: u16,
}

impl Topology {
    /// Reads a topology from text; traces are looked for in `base`.
    ///
    /// # Errors
    /// [`LabError::Usage`] names the line and what to do; [`LabError::NotFound`]: no such trace.
    pub fn parse(text: &str, base: &FilePath) -> Result<Self, LabError> {
        Self::parse_with(text, base, &NetworkOptions::default())
    }

    /// Reads a topology from a file; traces are looked for beside it.
    ///
    /// # Errors
    /// [`LabError::NotFound`]: no such file; otherwise as [`Topology::parse`], with its name.
    pub fn read(path: &FilePath) -> Result<Self, LabError> {
        Self::from_options(Some(path), &NetworkOptions::default())
    }

    /// The network of a command line: what the file says, or two hosts `a` and `b` on a perfect
    /// path, with the options of `shorthand` over it for every host and path.
    ///
    /// # Errors
    /// As [`Topology::read`]; a mistake in an option names the option.
    pub fn from_options(
        file: Option<&FilePath>,
        shorthand: &NetworkOptions,
    ) -> Result<Self, LabError> {
        let Some(path) = file else {
            return Self::parse_with("", FilePath::new(""), shorthand);
        };
        let text = file::read_text(path)?;
        let base = path.parent().unwrap_or(FilePath::new(""));
        Self::parse_with(&text, base, shorthand).map_err(|error| match error {
            LabError::Usage(message) if !message.starts_with("--") => {
                LabError::Usage(format!("{}: {message}", path.display()))
            }
            other => other,
        })
    }

    /// The topology as text that reads back as exactly this one, wherever it is: traces are
    /// written out, except those that ship with the lab.
    pub fn to_toml(&self) -> String {
        write::topology(self)
    }

    /// Host number `index`'s IPv4 address: 10.99.0.1 is the first.
    pub fn address(index: usize) -> std::net::Ipv4Addr {
        let last = u8::try_from(index + 1).unwrap_or(u8::MAX);
        std::net::Ipv4Addr::new(10, 99, 0, last)
    }

    fn parse_with(
        text: &str,
        base: &FilePath,
        shorthand: &NetworkOptions,
    ) -> Result<Self, LabError> {
        let over = shorthand.parse_options()?;
        TopologyFile::parse(text)
            .and_then(|file| resolve::topology(&file, base, &over))
            .map_err(|fault| fault.into_error(text))
    }
}

/// The environment variable that holds a host's address: `LAB_A`.
pub fn address_variable(host: &LabHost) -> String {
    format!("LAB_{}", host.name.to_ascii_uppercase().replace('-', "_"))
}
