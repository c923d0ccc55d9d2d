//! OPTS (RFC 2389 §4). Names and values are case-insensitive. One command may hold several `k=v;`, and the
//! final `;` may be missing.

use units::names;

use super::CommandError;
use super::words::{ArgumentWords, parse_number};
use crate::checksum::ChecksumAlgorithm;
use crate::eblock::MAX_STREAMS;
use crate::sizing::BufferSizing;
use crate::streams::ParallelismRange;

/// Parsed OPTS command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptsCommand {
    /// `OPTS RETR k=v;...`
    Retr(Vec<RetrieveOption>),
    /// `OPTS STOR Checksum=ALG;` or `=None;` (longhaul): checksum to compute while storing.
    StoreChecksum(Option<ChecksumAlgorithm>),
    /// `OPTS PASV|EPSV|SPAS AllowDelayed=0|1;`
    AllowDelayedPassive(bool),
    /// `OPTS MLST|MLSD|MLSR facts`; `None` without argument, which clears the list (RFC 3659 §7.9).
    Facts(Option<String>),
    /// `OPTS MLSR OnError=...;TraverseSymbolicLinks=...;Deflate=0|1;`
    MlsrOptions {
        /// `Deflate` (longhaul): whether the text of MLSR travels compressed (RFC 1950).
        deflate: Option<bool>,
    },
    /// `OPTS CKSM Markers=n;`: a 113 marker every n seconds.
    ChecksumMarkers(u32),
    /// `OPTS UTF8 [ON|OFF|NLST]`
    Utf8(bool),
    /// `OPTS DRS auto|kernel|drs1|drs` (longhaul): buffer sizing of data connections.
    BufferSizing(BufferSizing),
    /// `OPTS TUNE Congestion=NAME;` (longhaul): congestion control of the data connections that the
    /// server sends on. A kernel name, `auto` (the server chooses during the transfer) or `system`.
    CongestionControl(String),
    /// Any other option, answered with 501.
    Unknown(String),
}

/// One `key=value` of OPTS RETR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetrieveOption {
    /// `Parallelism=a,b,c`; missing numbers equal the first.
    Parallelism(ParallelismRange),
    /// `StripeLayout=Partitioned`
    Partitioned,
    /// `StripeLayout=Blocked`
    Blocked,
    /// `BlockSize=n`
    BlockSize(u64),
    /// `Markers=n`: a 112 marker every n seconds while the server sends.
    Markers(u32),
    /// `Checksum=ALG` or `Checksum=None` (longhaul): checksum to compute while sending.
    Checksum(Option<ChecksumAlgorithm>),
}

impl OptsCommand {
    pub(super) fn parse(mut args: ArgumentWords<'_>) -> Result<Self, CommandError> {
        // The complete text is kept for the 501, which quotes it.
        let whole = args.required_text("command name")?;
        let name = args.required_word("command name")?.to_ascii_uppercase();
        let options = args.optional_text().unwrap_or_default();
        let parsed = match name.as_str() {
            "RETR" => retr(&options),
            "STOR" => stor(&options),
            "PASV" | "EPSV" | "SPAS" => allow_delayed(&options),
            // `OPTS MLSR` has two forms: options with `=`, and a fact list as for MLST.
            "MLSR" if options.contains('=') => mlsr(&options),
            "MLST" | "MLSD" | "MLSR" => facts(&options),
            "CKSM" => cksm(&options),
            "UTF8" | "UTF-8" => utf8(&options),
            "DRS" => sizing(&options),
            "TUNE" => tune(&options),
            _ => Ok(Self::Unknown(whole.clone())),
        };
        match parsed {
            Ok(opts) => Ok(opts),
            Err(OptionError::UnknownOption) => Ok(Self::Unknown(whole)),
            Err(OptionError::InvalidValue(key)) => {
                Err(args.syntax_error(format!("bad value for {key}")))
            }
        }
    }

    pub(super) fn encode(&self) -> String {
        match self {
            Self::Retr(options) => {
                let options: String = options.iter().map(|o| o.encode()).collect();
                format!("RETR {options}")
            }
            Self::StoreChecksum(algorithm) => format!("STOR {}", checksum_option(*algorithm)),
            Self::AllowDelayedPassive(on) => format!("PASV AllowDelayed={};", u8::from(*on)),
            Self::Facts(None) => "MLST".to_owned(),
            // MLST, MLSD and MLSR share one fact list, so any of them may be named.
            Self::Facts(Some(facts)) => format!("MLST {facts}"),
            Self::MlsrOptions { deflate: None } => "MLSR OnError=Continue;".to_owned(),
            Self::MlsrOptions { deflate: Some(on) } => format!("MLSR Deflate={};", u8::from(*on)),
            Self::ChecksumMarkers(seconds) => format!("CKSM Markers={seconds};"),
            Self::Utf8(on) => format!("UTF8 {}", if *on { "ON" } else { "OFF" }),
            Self::BufferSizing(sizing) => format!("DRS {}", sizing.name()),
            Self::CongestionControl(name) => format!("TUNE Congestion={name};"),
            Self::Unknown(text) => text.clone(),
        }
    }
}

impl RetrieveOption {
    fn encode(self) -> String {
        match self {
            Self::Parallelism(ParallelismRange {
                start,
                min: least,
                max: most,
            }) => {
                format!("Parallelism={start},{least},{most};")
            }
            Self::Partitioned => "StripeLayout=Partitioned;".to_owned(),
            Self::Blocked => "StripeLayout=Blocked;".to_owned(),
            Self::BlockSize(n) => format!("BlockSize={n};"),
            Self::Markers(seconds) => format!("Markers={seconds};"),
            Self::Checksum(algorithm) => checksum_option(algorithm),
        }
    }
}

fn checksum_option(algorithm: Option<ChecksumAlgorithm>) -> String {
    format!(
        "Checksum={};",
        algorithm.map_or("None", ChecksumAlgorithm::name)
    )
}

/// Error in an option.
enum OptionError {
    /// The option is unknown.
    UnknownOption,
    /// The value of this option is invalid.
    InvalidValue(&'static str),
}

/// The `key=value` pairs with keys in upper case; `None` for an item without `=`.
fn parse_pairs(options: &str) -> impl Iterator<Item = Option<(String, &str)>> {
    options
        .split(';')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(|item| {
            let (key, value) = item.split_once('=')?;
            Some((key.trim().to_ascii_uppercase(), value.trim()))
        })
}

/// The `key=value` pair of a command that takes exactly one.
fn parse_single_pair(options: &str) -> Result<(String, &str), OptionError> {
    let mut pairs = parse_pairs(options);
    let first = pairs.next().flatten().ok_or(OptionError::UnknownOption)?;
    match pairs.next() {
        None => Ok(first),
        Some(_) => Err(OptionError::UnknownOption),
    }
}

fn retr(options: &str) -> Result<OptsCommand, OptionError> {
    let options: Vec<RetrieveOption> = parse_pairs(options)
        .map(|pair| {
            let (key, value) = pair.ok_or(OptionError::UnknownOption)?;
            retr_option(&key, value)
        })
        .collect::<Result<_, _>>()?;
    if options.is_empty() {
        return Err(OptionError::UnknownOption);
    }
    Ok(OptsCommand::Retr(options))
}

fn retr_option(key: &str, value: &str) -> Result<RetrieveOption, OptionError> {
    match key {
        "PARALLELISM" => parallelism(value)
            .map(RetrieveOption::Parallelism)
            .ok_or(OptionError::InvalidValue("Parallelism")),
        "STRIPELAYOUT" if value.eq_ignore_ascii_case("Partitioned") => {
            Ok(RetrieveOption::Partitioned)
        }
        "STRIPELAYOUT" if value.eq_ignore_ascii_case("Blocked") => Ok(RetrieveOption::Blocked),
        // The 501 for a bad value names the option; for an unknown option it quotes the whole command.
        "STRIPELAYOUT" => Err(OptionError::InvalidValue("StripeLayout")),
        "BLOCKSIZE" => parse_number(value)
            .filter(|n| *n > 0)
            .map(RetrieveOption::BlockSize)
            .ok_or(OptionError::InvalidValue("BlockSize")),
        "MARKERS" => seconds(value).map(RetrieveOption::Markers),
        "CHECKSUM" => checksum(value).map(RetrieveOption::Checksum),
        _ => Err(OptionError::UnknownOption),
    }
}

/// `start[,minimum[,maximum]]` (GFD.20 §4.2). All three must be numbers, and the first must be in range. A
/// minimum or maximum that is out of range or contradicts the first is replaced by the first.
fn parallelism(value: &str) -> Option<ParallelismRange> {
    let numbers: Vec<u64> = value
        .split(',')
        // One item beyond the limit suffices to detect a surplus.
        .take(4)
        .map(|n| parse_number(n.trim()))
        .collect::<Option<_>>()?;
    if numbers.len() > 3 {
        return None;
    }
    let possible = |n: &u64| (1..=MAX_STREAMS).contains(n);
    // Only the first number decides how many connections are opened, so only it must be in range.
    let start = u32::try_from(*numbers.first().filter(|n| possible(n))?).ok()?;
    let other = |index: usize| {
        let given = numbers.get(index).filter(|n| possible(n));
        given.and_then(|n| u32::try_from(*n).ok()).unwrap_or(start)
    };
    Some(ParallelismRange {
        start,
        min: other(1).min(start),
        max: other(2).max(start),
    })
}

fn seconds(value: &str) -> Result<u32, OptionError> {
    parse_number(value)
        .and_then(|n| u32::try_from(n).ok())
        .ok_or(OptionError::InvalidValue("Markers"))
}

/// OPTS TUNE.
fn tune(options: &str) -> Result<OptsCommand, OptionError> {
    let (key, value) = parse_single_pair(options)?;
    if key != "CONGESTION" {
        return Err(OptionError::UnknownOption);
    }
    let name = value.to_ascii_lowercase();
    if !names::is_congestion_control(&name) {
        return Err(OptionError::InvalidValue("Congestion"));
    }
    Ok(OptsCommand::CongestionControl(name))
}

fn stor(options: &str) -> Result<OptsCommand, OptionError> {
    let (key, value) = parse_single_pair(options)?;
    if key != "CHECKSUM" {
        return Err(OptionError::UnknownOption);
    }
    checksum(value).map(OptsCommand::StoreChecksum)
}

fn checksum(value: &str) -> Result<Option<ChecksumAlgorithm>, OptionError> {
    if value.eq_ignore_ascii_case("None") {
        return Ok(None);
    }
    ChecksumAlgorithm::parse(value)
        .map(Some)
        .ok_or(OptionError::InvalidValue("Checksum"))
}

fn allow_delayed(options: &str) -> Result<OptsCommand, OptionError> {
    let (key, value) = parse_single_pair(options)?;
    match (key.as_str(), value) {
        ("ALLOWDELAYED", "0") => Ok(OptsCommand::AllowDelayedPassive(false)),
        ("ALLOWDELAYED", "1") => Ok(OptsCommand::AllowDelayedPassive(true)),
        ("ALLOWDELAYED", _) => Err(OptionError::InvalidValue("AllowDelayed")),
        _ => Err(OptionError::UnknownOption),
    }
}

fn mlsr(options: &str) -> Result<OptsCommand, OptionError> {
    let mut deflate = None;
    for pair in parse_pairs(options) {
        let (key, value) = pair.ok_or(OptionError::UnknownOption)?;
        // The values are checked, so that a client learns of a mistake, but they have no effect.
        let is = |words: &[&str]| words.iter().any(|w| value.eq_ignore_ascii_case(w));
        match key.as_str() {
            "ONERROR" if is(&["Continue", "Fail"]) => {}
            "ONERROR" => return Err(OptionError::InvalidValue("OnError")),
            "TRAVERSESYMBOLICLINKS" if is(&["true", "false"]) => {}
            "TRAVERSESYMBOLICLINKS" => {
                return Err(OptionError::InvalidValue("TraverseSymbolicLinks"));
            }
            "DEFLATE" if is(&["0", "1"]) => deflate = Some(value == "1"),
            "DEFLATE" => return Err(OptionError::InvalidValue("Deflate")),
            _ => return Err(OptionError::UnknownOption),
        }
    }
    Ok(OptsCommand::MlsrOptions { deflate })
}

fn facts(options: &str) -> Result<OptsCommand, OptionError> {
    // A fact list has no values, so this is another, unknown option.
    if options.contains('=') {
        return Err(OptionError::UnknownOption);
    }
    Ok(OptsCommand::Facts(
        (!options.is_empty()).then(|| options.to_owned()),
    ))
}

fn cksm(options: &str) -> Result<OptsCommand, OptionError> {
    let (key, value) = parse_single_pair(options)?;
    if key != "MARKERS" {
        return Err(OptionError::UnknownOption);
    }
    seconds(value).map(OptsCommand::ChecksumMarkers)
}

/// OPTS UTF8. The argument NLST comes from an expired draft. No argument means ON.
fn utf8(options: &str) -> Result<OptsCommand, OptionError> {
    match options.to_ascii_uppercase().as_str() {
        "" | "ON" | "NLST" => Ok(OptsCommand::Utf8(true)),
        "OFF" => Ok(OptsCommand::Utf8(false)),
        _ => Err(OptionError::UnknownOption),
    }
}

fn sizing(options: &str) -> Result<OptsCommand, OptionError> {
    BufferSizing::parse(options)
        .map(OptsCommand::BufferSizing)
        .ok_or(OptionError::InvalidValue("DRS"))
}
