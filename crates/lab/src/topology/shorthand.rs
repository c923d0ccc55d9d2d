//! Network as the command line gives it.

use std::path::Path;

use toml::Spanned;

use super::fault::Fault;
use super::file::{Field, PathTable, Quantity};
use super::keys::Keys;
use super::setting;
use crate::LabError;

/// Options of a command line, as text; each holds for every host or every path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shorthand {
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
pub(super) struct Overrides {
    pub(super) keys: Keys,
    pub(super) sysctls: Vec<(String, String)>,
    pub(super) congestion: Option<String>,
    pub(super) seed: Option<u64>,
    pub(super) offload: Option<bool>,
}

impl Shorthand {
    /// Reads the options; files are looked for in the working directory.
    pub(super) fn read(&self) -> Result<Overrides, LabError> {
        self.understood().map_err(Fault::in_option)
    }

    fn understood(&self) -> Result<Overrides, Fault> {
        // The texts are read as a table's; their places are in no file.
        let value = |text: &Option<String>| -> Field {
            text.clone().map(|text| Spanned::new(0..0, Quantity(text)))
        };
        let table = PathTable {
            rtt: value(&self.rtt),
            rate: value(&self.rate),
            loss: value(&self.loss),
            queue: value(&self.queue),
            trace: self.trace.clone().map(|name| Spanned::new(0..0, name)),
            ..PathTable::default()
        };
        let keys = Keys::read(&table, Path::new(""))?.over(&Keys::default())?;
        let mut sysctls = Vec::new();
        for text in &self.sysctls {
            let (key, value) = key_and_value(text).map_err(|f| f.within("sysctl"))?;
            setting::set(&mut sysctls, key, value);
        }
        let congestion = self.cc.as_deref().map(setting::congestion_control);
        Ok(Overrides {
            keys,
            sysctls,
            congestion: congestion.transpose()?,
            seed: self.seed,
            offload: self.offload,
        })
    }
}

fn key_and_value(text: &str) -> Result<(String, String), Fault> {
    match text.split_once('=') {
        Some((key, value)) => setting::setting(key.trim(), value),
        None => Err(Fault::new(format!(
            "'{}' is no setting; write it like net.ipv4.tcp_sack=1",
            text.escape_debug()
        ))),
    }
}
