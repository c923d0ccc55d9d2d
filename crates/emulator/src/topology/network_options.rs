//! The network options of the command line.

use std::path::Path;

use toml::Spanned;

use super::direction_keys::DirectionKeys;
use super::error::TopologyError;
use super::file::{OptionalQuantity, PathTable, QuantityText};
use super::kernel_setting;
use super::route::RouteKeys;
use crate::LabError;

/// Network options of the command line, as text. Each applies to every host or every path.
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
    /// `--trace`: a CSV file, or the name of a built-in trace.
    pub trace: Option<String>,
    /// `--routers 3`.
    pub routers: Option<String>,
    /// `--bottleneck-link 2`.
    pub bottleneck_link: Option<String>,
    /// `--sysctl KEY=VALUE`.
    pub sysctls: Vec<String>,
    /// `--cc cubic`.
    pub cc: Option<String>,
    /// `--seed`.
    pub seed: Option<u64>,
    /// `--no-offload`: false.
    pub offload: Option<bool>,
}

/// The parsed network options.
#[derive(Debug, Clone, Default)]
pub(super) struct ParsedNetworkOptions {
    pub(super) keys: DirectionKeys,
    pub(super) route: RouteKeys,
    pub(super) sysctls: Vec<(String, String)>,
    pub(super) congestion: Option<String>,
    pub(super) seed: Option<u64>,
    pub(super) offload: Option<bool>,
}

impl NetworkOptions {
    /// Parses the options. Relative paths are relative to the working directory.
    pub(super) fn parse_options(&self) -> Result<ParsedNetworkOptions, LabError> {
        self.parse().map_err(TopologyError::in_option)
    }

    fn parse(&self) -> Result<ParsedNetworkOptions, TopologyError> {
        // The texts are parsed like those of a table, with empty positions.
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
            routers: (self.routers.clone())
                .map(|number| Spanned::new(0..0, toml::Value::String(number))),
            bottleneck_link: value(&self.bottleneck_link),
            ..PathTable::default()
        };
        let keys =
            // The fallback to no keys checks the options against each other, such as --rate and
            // --trace.
            DirectionKeys::read(&table, Path::new(""))?.with_fallback(&DirectionKeys::default())?;
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
            route: RouteKeys::read(&table)?,
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
            "'{}' is not a setting; write it like net.ipv4.tcp_sack=1",
            text.escape_debug()
        ))),
    }
}
