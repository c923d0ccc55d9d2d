//! How a directive maps.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use super::directives::ForeignDirective;
use super::translation::{Translation, quoted};

/// Why a line is a comment of the translation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ImportRemark {
    /// It is always so, or the default.
    Same(Cow<'static, str>),
    /// There is nothing like it.
    Missing(Cow<'static, str>),
    /// The administrator must choose.
    Decide(Cow<'static, str>),
}

const DECIDE: &str = "Decide yourself";
const MISSING: &str = "longhaul has nothing like";
const SAME: &str = "Always so, or so by default";

/// The remark on a name that no table has.
pub(super) const UNKNOWN: ImportRemark =
    decide("this directive is not known here; look up what it does");

/// The remark on a directive that needs a value and has none.
pub(super) const EMPTY: ImportRemark = decide("it has no value there");

/// The remark on a line that changed no key by itself.
const COMBINED: ImportRemark = same("read together with other lines, it needs no key of its own");

/// The remark on a rate of anonymous sessions where users may log in, too.
pub(super) const ANONYMOUS_RATE: ImportRemark = decide(
    "limit-rate-per-address would bind users with passwords, too; limit-rate in a table [user.anonymous] bounds all anonymous sessions together",
);

/// See [`ImportRemark::Same`].
pub(super) const fn same(reason: &'static str) -> ImportRemark {
    ImportRemark::Same(Cow::Borrowed(reason))
}

/// See [`ImportRemark::Missing`]; completes "longhaul has no ".
pub(super) const fn missing(feature: &'static str) -> ImportRemark {
    ImportRemark::Missing(Cow::Borrowed(feature))
}

/// See [`ImportRemark::Decide`].
pub(super) const fn decide(question: &'static str) -> ImportRemark {
    ImportRemark::Decide(Cow::Borrowed(question))
}

impl ImportRemark {
    /// The titles of all kinds, the most urgent first.
    pub(super) const TITLES: [&str; 3] = [DECIDE, MISSING, SAME];

    /// The title over remarks of this kind.
    pub(super) fn title(&self) -> &'static str {
        match self {
            Self::Decide(_) => DECIDE,
            Self::Missing(_) => MISSING,
            Self::Same(_) => SAME,
        }
    }
}

impl fmt::Display for ImportRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(feature) => write!(f, "longhaul has no {feature}"),
            // The title says the rest.
            Self::Same(text) | Self::Decide(text) => f.write_str(text),
        }
    }
}

/// How a directive maps.
#[derive(Debug, Clone)]
pub(super) enum ImportRule {
    /// Its value is that of a key.
    Value(&'static str, ValueForm),
    /// A switch: what it means on, and off.
    Switch(ImportOutcome, ImportOutcome),
    /// Whatever its value is, the line is a comment.
    Comment(ImportRemark),
    /// The program's `combine` has read it together with others.
    Combined,
}

/// The meaning of one position of a switch.
#[derive(Debug, Clone)]
pub(super) enum ImportOutcome {
    /// A key and its value in TOML.
    Key(&'static str, &'static str),
    /// A comment.
    Comment(ImportRemark),
}

/// The form of a value, which decides how it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueForm {
    /// A text: all words.
    Text,
    /// An absolute path of a file that must exist.
    File,
    /// An absolute path of a directory.
    Directory,
    /// A number above 0; 0 means no limit there.
    Count,
    /// A time in seconds above 0.
    Seconds,
    /// A time in minutes above 0.
    Minutes,
    /// Bytes a second above 0.
    BytesPerSecond,
    /// Permission bits.
    Mode,
    /// An address of IPv4, not a name.
    Ipv4,
    /// Two numbers of ports, with a space, a comma, a colon or a hyphen between them.
    Ports,
}

/// The rule of a directive; names differ in more than case.
pub(super) fn rule_of<'t>(
    table: &'t [(&'static str, ImportRule)],
    name: &str,
) -> Option<&'t ImportRule> {
    let found = table
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, rule)| rule)
}

impl ImportRule {
    /// Adds what a directive means to the translation.
    pub(super) fn apply(&self, directive: &ForeignDirective, out: &mut Translation) {
        match self {
            Self::Combined if out.mentions(directive) => {}
            Self::Combined => out.remark(directive, &COMBINED),
            Self::Comment(remark) => out.remark(directive, remark),
            Self::Value(key, form) => form.set(key, directive, out),
            Self::Switch(on, off) => match directive.is_on() {
                Some(true) => on.apply(directive, out),
                Some(false) => off.apply(directive, out),
                None => out.remark(directive, &decide("the value is neither yes nor no")),
            },
        }
    }
}

impl ImportOutcome {
    fn apply(&self, directive: &ForeignDirective, out: &mut Translation) {
        match self {
            Self::Key(key, value) => out.set(key, (*value).to_owned(), directive),
            Self::Comment(remark) => out.remark(directive, remark),
        }
    }
}

impl ValueForm {
    /// Sets a key to the directive's value, or says why not.
    pub(super) fn set(
        self,
        key: &'static str,
        directive: &ForeignDirective,
        out: &mut Translation,
    ) {
        let value = directive.value();
        match self.toml(&value) {
            Ok(toml) => {
                if self == Self::File {
                    out.needs_file(&value);
                }
                out.set(key, toml, directive);
            }
            Err(remark) => out.remark(directive, &remark),
        }
    }

    fn toml(self, value: &str) -> Result<String, ImportRemark> {
        let unusable = || {
            let reason = format!("the value fits no key; longhaul wants {}", self.wanted());
            ImportRemark::Decide(reason.into())
        };
        let number = || match value.parse::<u64>() {
            Ok(0) => Err(same("no limit of its own; longhaul's default applies")),
            Ok(number) => Ok(number),
            Err(_) => Err(unusable()),
        };
        match self {
            Self::Text if !value.is_empty() => Ok(quoted(value)),
            Self::File | Self::Directory if value.starts_with('/') => Ok(quoted(value)),
            Self::Text | Self::File | Self::Directory => Err(unusable()),
            Self::Count | Self::Seconds => Ok(number()?.to_string()),
            Self::Minutes => Ok(number()?.saturating_mul(60).to_string()),
            Self::BytesPerSecond => Ok(rate(number()?)),
            Self::Mode => match u32::from_str_radix(value, 8) {
                Ok(bits) if bits <= 0o777 => Ok(mode(bits)),
                _ => Err(unusable()),
            },
            Self::Ipv4 => match value.parse::<IpAddr>() {
                Ok(IpAddr::V4(address)) => Ok(quoted(&address.to_string())),
                _ => Err(unusable()),
            },
            Self::Ports => ports(value).ok_or_else(unusable),
        }
    }

    fn wanted(self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::File => "the absolute path of a file",
            Self::Directory => "the absolute path of a directory",
            Self::Count => "a number",
            Self::Seconds | Self::Minutes => "a time",
            Self::BytesPerSecond => "a rate",
            Self::Mode => "an octal mode",
            Self::Ipv4 => "an IPv4 address and no name",
            Self::Ports => "two ports, such as 50000-50999",
        }
    }
}

/// A rate in bit/s as text of TOML.
pub(super) fn rate(bytes_per_second: u64) -> String {
    let bits = bytes_per_second.saturating_mul(8);
    match bits {
        bits if bits % 1_000_000 == 0 => quoted(&format!("{}M", bits / 1_000_000)),
        bits if bits % 1000 == 0 => quoted(&format!("{}k", bits / 1000)),
        bits => quoted(&bits.to_string()),
    }
}

/// Permission bits as text of TOML.
pub(super) fn mode(bits: u32) -> String {
    quoted(&format!("{bits:03o}"))
}

/// Names with commas or spaces between them.
pub(super) fn names(value: &str) -> Vec<&str> {
    let parts = value.split(|letter: char| letter == ',' || letter.is_whitespace());
    parts.filter(|name| !name.is_empty()).collect()
}

/// A range of ports, first and last, as text of TOML.
pub(super) fn ports(value: &str) -> Option<String> {
    let numbers: Result<Vec<u16>, _> = value
        .split(|letter: char| !letter.is_ascii_digit())
        .filter(|number| !number.is_empty())
        .map(str::parse)
        .collect();
    match numbers.ok()?.as_slice() {
        [low, high] if 0 < *low && low <= high => Some(quoted(&format!("{low}-{high}"))),
        _ => None,
    }
}
