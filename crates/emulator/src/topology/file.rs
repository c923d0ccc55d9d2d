//! The syntax of a topology file. Values are texts that other modules parse.

use std::fmt;
use std::io::Read as _;
use std::marker::PhantomData;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Error, MapAccess, Visitor};
use toml::Spanned;

use super::error::TopologyError;
use crate::LabError;

/// Maximum size of a file, bytes: enough for a trace of two million lines.
const MAX_FILE_SIZE: u64 = 64 << 20;

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TopologyFile {
    pub(super) seed: OptionalQuantity,
    pub(super) cc: Option<Spanned<String>>,
    pub(super) offload: Option<bool>,
    pub(super) mtu: OptionalQuantity,
    #[serde(default)]
    pub(super) sysctl: toml::Table,
    #[serde(default)]
    pub(super) hosts: OrderedTable<Spanned<HostTable>>,
    #[serde(default)]
    pub(super) default: PathTable,
    #[serde(default)]
    pub(super) paths: Vec<Spanned<PathTable>>,
}

/// `[hosts.NAME]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostTable {
    pub(super) cc: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) sysctl: toml::Table,
}

/// `[default]`, `[[paths]]`, and their directions.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PathTable {
    pub(super) between: Option<Spanned<Vec<String>>>,
    pub(super) rtt: OptionalQuantity,
    pub(super) delay: OptionalQuantity,
    pub(super) rate: OptionalQuantity,
    pub(super) queue: OptionalQuantity,
    pub(super) loss: OptionalQuantity,
    pub(super) burst_loss: Option<Spanned<BurstTable>>,
    pub(super) reorder: Option<ReorderTable>,
    pub(super) duplicate: OptionalQuantity,
    pub(super) corrupt: OptionalQuantity,
    pub(super) trace: Option<Spanned<String>>,
    pub(super) trace_start: OptionalQuantity,
    pub(super) routers: Option<Spanned<toml::Value>>,
    pub(super) bottleneck_link: OptionalQuantity,
    pub(super) forward: Option<Box<Spanned<PathTable>>>,
    pub(super) back: Option<Box<Spanned<PathTable>>>,
}

/// `burst_loss`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BurstTable {
    pub(super) to_bad: Spanned<QuantityText>,
    pub(super) to_good: Spanned<QuantityText>,
    pub(super) in_good: Spanned<QuantityText>,
    pub(super) in_bad: Spanned<QuantityText>,
}

/// `reorder`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReorderTable {
    pub(super) probability: Spanned<QuantityText>,
    pub(super) extra: Spanned<QuantityText>,
}

/// An optional value, with its position in the file.
pub(super) type OptionalQuantity = Option<Spanned<QuantityText>>;

/// A number or a text such as `100ms`. Numbers are stored as text, so that both are parsed in the same
/// way.
#[derive(Debug, Clone)]
pub(super) struct QuantityText(pub(super) String);

impl<'de> Deserialize<'de> for QuantityText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct QuantityVisitor;
        impl Visitor<'_> for QuantityVisitor {
            type Value = QuantityText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or text such as \"100ms\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<QuantityText, E> {
                Ok(QuantityText(text.into()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<QuantityText, E> {
                Ok(QuantityText(number.to_string()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<QuantityText, E> {
                Ok(QuantityText(number.to_string()))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<QuantityText, E> {
                Ok(QuantityText(number.to_string()))
            }
        }
        // TOML is self-describing, so one key may be a number or a string.
        deserializer.deserialize_any(QuantityVisitor)
    }
}

/// A TOML table that keeps the order of its keys.
#[derive(Debug)]
pub(super) struct OrderedTable<T>(pub(super) Vec<(String, T)>);

impl<T> Default for OrderedTable<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrderedTable<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OrderedTableVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OrderedTableVisitor<T> {
            type Value = OrderedTable<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OrderedTable<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(OrderedTable(entries))
            }
        }
        deserializer.deserialize_map(OrderedTableVisitor(PhantomData))
    }
}

impl TopologyFile {
    pub(super) fn parse(text: &str) -> Result<Self, TopologyError> {
        Ok(toml::from_str(text)?)
    }
}

/// Reads a text file.
///
/// # Errors
/// [`LabError::NotFound`]: the file does not exist; [`LabError::Usage`]: it is too long or not UTF-8.
pub(super) fn read_text(path: &Path) -> Result<String, LabError> {
    let shown = path.display();
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => LabError::NotFound(format!("{shown}: no such file")),
        std::io::ErrorKind::InvalidData => LabError::Usage(format!("{shown}: not text in UTF-8")),
        _ => LabError::system(format!("cannot read {shown}"), error),
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut text = String::new();
    // The limit also protects against endless files such as /dev/zero. One byte more detects the
    // excess.
    file.take(MAX_FILE_SIZE + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > MAX_FILE_SIZE {
        return Err(LabError::Usage(format!(
            "{shown}: longer than {} MiB; is it the right file?",
            MAX_FILE_SIZE >> 20
        )));
    }
    Ok(text)
}
