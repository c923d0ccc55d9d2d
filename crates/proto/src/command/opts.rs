//! OPTS (RFC 2389 §4): names and values are case-insensitive; several `k=v;` may stand in one
//! command and the final `;` may be missing.

use super::CommandError;
use super::words::{Words, parse_number};
use crate::checksum::Algorithm;
use crate::eblock::MAX_STREAMS;
use crate::remark::is_congestion_control;
use crate::sizing::Sizing;
use crate::streams::StreamRange;

/// OPTS forms (names and values are case-insensitive).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opts {
    /// `OPTS RETR k=v;...`
    Retr(Vec<RetrOption>),
    /// `OPTS STOR Checksum=ALG;` or `=None;` (longhaul): sum while storing.
    StorChecksum(Option<Algorithm>),
    /// `OPTS PASV|EPSV|SPAS AllowDelayed=0|1;`
    AllowDelayed(bool),
    /// `OPTS MLST|MLSD|MLSR facts`; `None`: no argument (RFC 3659 §7.9 clears the list).
    Facts(Option<String>),
    /// `OPTS MLSR OnError=...;TraverseSymbolicLinks=...;`
    Mlsr,
    /// `OPTS CKSM Markers=n;`: 113 every n seconds.
    ChecksumMarkers(u32),
    /// `OPTS UTF8 [ON|OFF|NLST]`
    Utf8(bool),
    /// `OPTS DRS auto|kernel|drs1|drs` (longhaul): who sizes the buffers of data connections.
    Sizing(Sizing),
    /// `OPTS TUNE Congestion=NAME;` (longhaul): congestion control of the data connections over which
    /// the server sends: a name, `auto` (the server chooses while data moves) or `system`.
    Congestion(String),
    /// Anything else; answered 501.
    Unknown(String),
}

/// One `key=value` of OPTS RETR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetrOption {
    /// `Parallelism=a,b,c`; what is left out is as the first.
    Parallelism(StreamRange),
    /// `StripeLayout=Partitioned`
    Partitioned,
    /// `StripeLayout=Blocked`
    Blocked,
    /// `BlockSize=n`
    BlockSize(u64),
    /// `Markers=n`: 112 every n seconds while sending.
    Markers(u32),
}

impl Opts {
    pub(super) fn parse(mut w: Words<'_>) -> Result<Self, CommandError> {
        let whole = w.text("command name")?;
        let name = w.word("command name")?.to_ascii_uppercase();
        let options = w.optional_text().unwrap_or_default();
        let parsed = match name.as_str() {
            "RETR" => retr(&options),
            "STOR" => stor(&options),
            "PASV" | "EPSV" | "SPAS" => allow_delayed(&options),
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
            Err(Refusal::Unknown) => Ok(Self::Unknown(whole)),
            Err(Refusal::Value(key)) => Err(w.syntax(format!("bad value for {key}"))),
        }
    }

    pub(super) fn encode(&self) -> String {
        match self {
            Self::Retr(options) => {
                let options: String = options.iter().map(|o| o.encode()).collect();
                format!("RETR {options}")
            }
            Self::StorChecksum(algorithm) => {
                format!(
                    "STOR Checksum={};",
                    algorithm.map_or("None", Algorithm::name)
                )
            }
            Self::AllowDelayed(on) => format!("PASV AllowDelayed={};", u8::from(*on)),
            Self::Facts(None) => "MLST".to_owned(),
            Self::Facts(Some(facts)) => format!("MLST {facts}"),
            Self::Mlsr => "MLSR OnError=Continue;".to_owned(),
            Self::ChecksumMarkers(seconds) => format!("CKSM Markers={seconds};"),
            Self::Utf8(on) => format!("UTF8 {}", if *on { "ON" } else { "OFF" }),
            Self::Sizing(sizing) => format!("DRS {}", sizing.name()),
            Self::Congestion(name) => format!("TUNE Congestion={name};"),
            Self::Unknown(text) => text.clone(),
        }
    }
}

impl RetrOption {
    fn encode(self) -> String {
        match self {
            Self::Parallelism(StreamRange { start, least, most }) => {
                format!("Parallelism={start},{least},{most};")
            }
            Self::Partitioned => "StripeLayout=Partitioned;".to_owned(),
            Self::Blocked => "StripeLayout=Blocked;".to_owned(),
            Self::BlockSize(n) => format!("BlockSize={n};"),
            Self::Markers(seconds) => format!("Markers={seconds};"),
        }
    }
}

/// Why options were not taken.
enum Refusal {
    /// No such option.
    Unknown,
    /// The option is known, its value makes no sense.
    Value(&'static str),
}

/// The `key=value` pairs, keys in upper case; `None` for an item without `=`.
fn pairs(options: &str) -> impl Iterator<Item = Option<(String, &str)>> {
    options
        .split(';')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(|item| {
            let (key, value) = item.split_once('=')?;
            Some((key.trim().to_ascii_uppercase(), value.trim()))
        })
}

/// The only pair of options that take one.
fn only_pair(options: &str) -> Result<(String, &str), Refusal> {
    let mut pairs = pairs(options);
    let first = pairs.next().flatten().ok_or(Refusal::Unknown)?;
    match pairs.next() {
        None => Ok(first),
        Some(_) => Err(Refusal::Unknown),
    }
}

fn retr(options: &str) -> Result<Opts, Refusal> {
    let options: Vec<RetrOption> = pairs(options)
        .map(|pair| {
            let (key, value) = pair.ok_or(Refusal::Unknown)?;
            retr_option(&key, value)
        })
        .collect::<Result<_, _>>()?;
    if options.is_empty() {
        return Err(Refusal::Unknown);
    }
    Ok(Opts::Retr(options))
}

fn retr_option(key: &str, value: &str) -> Result<RetrOption, Refusal> {
    match key {
        "PARALLELISM" => parallelism(value)
            .map(RetrOption::Parallelism)
            .ok_or(Refusal::Value("Parallelism")),
        "STRIPELAYOUT" if value.eq_ignore_ascii_case("Partitioned") => Ok(RetrOption::Partitioned),
        "STRIPELAYOUT" if value.eq_ignore_ascii_case("Blocked") => Ok(RetrOption::Blocked),
        "STRIPELAYOUT" => Err(Refusal::Value("StripeLayout")),
        "BLOCKSIZE" => parse_number(value)
            .filter(|n| *n > 0)
            .map(RetrOption::BlockSize)
            .ok_or(Refusal::Value("BlockSize")),
        "MARKERS" => seconds(value).map(RetrOption::Markers),
        _ => Err(Refusal::Unknown),
    }
}

/// `start[,minimum[,maximum]]` (GFD.20 §4.2). Every number must be one and the first a possible one; of
/// the others, what contradicts it is as the first.
fn parallelism(value: &str) -> Option<StreamRange> {
    let numbers: Vec<u64> = value
        .split(',')
        .take(4)
        .map(|n| parse_number(n.trim()))
        .collect::<Option<_>>()?;
    if numbers.len() > 3 {
        return None;
    }
    let possible = |n: &u64| (1..=MAX_STREAMS).contains(n);
    let start = u32::try_from(*numbers.first().filter(|n| possible(n))?).ok()?;
    let other = |place: usize| {
        let told = numbers.get(place).filter(|n| possible(n));
        told.and_then(|n| u32::try_from(*n).ok()).unwrap_or(start)
    };
    Some(StreamRange {
        start,
        least: other(1).min(start),
        most: other(2).max(start),
    })
}

fn seconds(value: &str) -> Result<u32, Refusal> {
    parse_number(value)
        .and_then(|n| u32::try_from(n).ok())
        .ok_or(Refusal::Value("Markers"))
}

/// Names of congestion controls are the kernel's: up to 15 letters, digits, `_`, `-`.
fn tune(options: &str) -> Result<Opts, Refusal> {
    let (key, value) = only_pair(options)?;
    if key != "CONGESTION" {
        return Err(Refusal::Unknown);
    }
    let name = value.to_ascii_lowercase();
    if !is_congestion_control(&name) {
        return Err(Refusal::Value("Congestion"));
    }
    Ok(Opts::Congestion(name))
}

fn stor(options: &str) -> Result<Opts, Refusal> {
    let (key, value) = only_pair(options)?;
    if key != "CHECKSUM" {
        return Err(Refusal::Unknown);
    }
    if value.eq_ignore_ascii_case("None") {
        return Ok(Opts::StorChecksum(None));
    }
    Algorithm::parse(value)
        .map(|algorithm| Opts::StorChecksum(Some(algorithm)))
        .ok_or(Refusal::Value("Checksum"))
}

fn allow_delayed(options: &str) -> Result<Opts, Refusal> {
    let (key, value) = only_pair(options)?;
    match (key.as_str(), value) {
        ("ALLOWDELAYED", "0") => Ok(Opts::AllowDelayed(false)),
        ("ALLOWDELAYED", "1") => Ok(Opts::AllowDelayed(true)),
        ("ALLOWDELAYED", _) => Err(Refusal::Value("AllowDelayed")),
        _ => Err(Refusal::Unknown),
    }
}

fn mlsr(options: &str) -> Result<Opts, Refusal> {
    for pair in pairs(options) {
        let (key, value) = pair.ok_or(Refusal::Unknown)?;
        let is = |words: &[&str]| words.iter().any(|w| value.eq_ignore_ascii_case(w));
        match key.as_str() {
            "ONERROR" if is(&["Continue", "Fail"]) => {}
            "ONERROR" => return Err(Refusal::Value("OnError")),
            "TRAVERSESYMBOLICLINKS" if is(&["true", "false"]) => {}
            "TRAVERSESYMBOLICLINKS" => return Err(Refusal::Value("TraverseSymbolicLinks")),
            _ => return Err(Refusal::Unknown),
        }
    }
    Ok(Opts::Mlsr)
}

fn facts(options: &str) -> Result<Opts, Refusal> {
    if options.contains('=') {
        return Err(Refusal::Unknown);
    }
    Ok(Opts::Facts(
        (!options.is_empty()).then(|| options.to_owned()),
    ))
}

fn cksm(options: &str) -> Result<Opts, Refusal> {
    let (key, value) = only_pair(options)?;
    if key != "MARKERS" {
        return Err(Refusal::Unknown);
    }
    seconds(value).map(Opts::ChecksumMarkers)
}

/// NLST is the form of an expired draft; without an argument ON is meant.
fn utf8(options: &str) -> Result<Opts, Refusal> {
    match options.to_ascii_uppercase().as_str() {
        "" | "ON" | "NLST" => Ok(Opts::Utf8(true)),
        "OFF" => Ok(Opts::Utf8(false)),
        _ => Err(Refusal::Unknown),
    }
}

fn sizing(options: &str) -> Result<Opts, Refusal> {
    Sizing::parse(options)
        .map(Opts::Sizing)
        .ok_or(Refusal::Value("DRS"))
}
