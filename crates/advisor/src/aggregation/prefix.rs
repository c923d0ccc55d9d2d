//! Clients of one address prefix share, unmeasured: the simplest policy and the least precise.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;

use super::{AggregationPolicy, ClientGroup, ClientPath};
use crate::config::AggregationConfig;
use smallfile::regular_file;

/// Largest prefix table, bytes. The table of the whole Internet has a million prefixes.
const MAX_TABLE: u64 = 64 << 20;

/// The reason why a prefix table cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PrefixTableError {
    /// It cannot be read.
    #[error("cannot read the prefix table {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// A line is no prefix.
    #[error("prefix table {}, line {line}: {text:?} is not a prefix like 192.0.2.0/24", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// The first word of the line.
        text: String,
    },
}

/// Groups by the longest prefix of a table that matches, else by a fixed length.
#[derive(Debug)]
pub struct ByPrefix {
    v4: u8,
    v6: u8,
    /// The table.
    table: HashSet<IpNet>,
    /// Lengths in the table, longest first: IPv4, IPv6.
    lengths: [Vec<u8>; 2],
}

impl ByPrefix {
    /// The policy with the settings' lengths and table.
    ///
    /// # Errors
    /// The table cannot be read, or a line of it is no prefix.
    pub fn load(config: &AggregationConfig) -> Result<Self, PrefixTableError> {
        let Some(path) = &config.prefix_table else {
            return Ok(Self::new(config, std::iter::empty()));
        };
        let text = regular_file::read_to_string(path, MAX_TABLE).map_err(|cause| {
            PrefixTableError::Read {
                path: path.clone(),
                cause,
            }
        })?;
        let mut prefixes = Vec::new();
        for (n, line) in text.lines().enumerate() {
            // Routing tables have further columns; a # begins a comment.
            let line = line.split('#').next().unwrap_or_default();
            let Some(word) = line.split_whitespace().next() else {
                continue;
            };
            let prefix = word.parse().map_err(|_| PrefixTableError::Line {
                path: path.clone(),
                line: n + 1,
                text: word.chars().take(80).collect(),
            })?;
            prefixes.push(prefix);
        }
        Ok(Self::new(config, prefixes))
    }

    fn new(config: &AggregationConfig, prefixes: impl IntoIterator<Item = IpNet>) -> Self {
        let table: HashSet<IpNet> = prefixes.into_iter().map(|prefix| prefix.trunc()).collect();
        let mut lengths = [Vec::new(), Vec::new()];
        for prefix in &table {
            let lengths = &mut lengths[usize::from(prefix.addr().is_ipv6())];
            if !lengths.contains(&prefix.prefix_len()) {
                lengths.push(prefix.prefix_len());
            }
        }
        for lengths in &mut lengths {
            lengths.sort_unstable_by(|a, b| b.cmp(a));
        }
        Self {
            v4: config.prefix_v4,
            v6: config.prefix_v6,
            table,
            lengths,
        }
    }

    pub(super) fn prefix_of(&self, client: IpAddr) -> Option<IpNet> {
        let of_length = |length: u8| IpNet::new(client, length).ok().map(|net| net.trunc());
        let longest = self.lengths[usize::from(client.is_ipv6())]
            .iter()
            .filter_map(|length| of_length(*length))
            .find(|prefix| self.table.contains(prefix));
        longest.or_else(|| of_length(if client.is_ipv6() { self.v6 } else { self.v4 }))
    }
}

impl AggregationPolicy for ByPrefix {
    fn group(&self, path: &ClientPath<'_>) -> Option<ClientGroup> {
        self.prefix_of(path.client).map(ClientGroup::Prefix)
    }

    fn measures_each_once(&self) -> bool {
        false
    }
}
