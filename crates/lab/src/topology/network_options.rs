//! Network as the command line gives it.

use std::path::Path;

use toml::Spanned;

use super::direction_keys::DirectionKeys;
use super::error::TopologyError;
use super::file::{OptionalQuantity, PathTable, QuantityText};
use super::kernel_setting;
use crate::LabError;

/// Options of a command line, as text; each holds for every host or every path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetworkOptions {
    /// `--rtt 100ms`.
    pub rtt: Option<String>,
    /// `--rate 1gbit`.
    pub rate: Option<String>,
    /// `--loss 0.5%`.
    pub loss: Option<String>,
    /// `--queue 1bdp`.
    pub queue: Option<String>,
    /// `--trace`: a CSV file, or the name of a trace that ships with the lab.
    pub trace: Option<String>,
    /// `--sysctl KEY=VALUE`.
    pub sysctls: Vec<String>,
    /// `--cc cubic`.
    pub cc: Option<String>,
    /// `--seed`.
    pub seed: Option<u64>,
    /// `--no-offload`: false.
    pub offload: Option<bool>,
}

/// The same, understood.
#[derive(Debug, Clone, Default)]
pub(super) struct ParsedNetworkOptions {
    pub(super) keys: DirectionKeys,
    pub(super) sysctls: Vec<(String, String)>,
    pub(super) congestion: Option<String>,
    pub(super) seed: Option<u64>,
    pub(super) offload: Option<bool>,
}

impl NetworkOptions {
    /// Reads the options; files are looked for in the working directory.
    pub(super) fn parse_options(&self) -> Result<ParsedNetworkOptions, LabError> {
        self.parse().map_err(TopologyError::in_option)
    }

    fn parse(&self) -> Result<ParsedNetworkOptions, TopologyError> {
        // The texts are read as a table's; their places are in no file.
        let value = |text: &Option<String>| -> OptionalQuantity {
            text.clone()
                .map(|text| Spanned::new(0..0, QuantityText(text)))
        };
        let table = PathTable {
            rtt: value(&self.rtt),
            rate: value(&self.rate),
            loss: value(&self.loss),
            queue: value(&self.queue),
            trace: self.trace.clone().map(|name| Spanned::new(0..0, name)),
            ..PathTable::default()
        };
        let keys = DirectionKeys::read(&table, Path::new(""))?.over(&DirectionKeys::default())?;
        let mut sysctls = Vec::new();
        for text in &self.sysctls {
            let (key, value) = key_and_value(text).map_err(|f| f.within("sysctl"))?;
            kernel_setting::insert_or_replace(&mut sysctls, key, value);
        }
        let congestion = self
            .cc
            .as_deref()
            .map(kernel_setting::parse_congestion_control);
        Ok(ParsedNetworkOptions {
            keys,
            sysctls,
            congestion: congestion.transpose()?,
            seed: self.seed,
            offload: self.offload,
        })
    }
}

fn key_and_value(text: &str) -> Result<(String, String), TopologyError> {
    match text.split_once('=') {
        Some((key, value)) => kernel_setting::parse_sysctl(key.trim(), value),
        None => Err(TopologyError::new(format!(
            "'{}' is no setting; write it like net.ipv4.tcp_sack=1",
            text.escape_debug()
        ))),
    }
}
