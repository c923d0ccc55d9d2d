//! Findings: one thing that was examined, its value, and what to do about it.

use std::time::{Duration, SystemTime};

use proto::printable::printable;
use serde_json::{Value, json};

/// Time before the end of a server's certificate from which on a report warns.
pub(crate) const SERVER_RENEWAL: Duration = Duration::from_secs(30 * DAY);
/// Time before the end of a user's credential from which on a report warns.
pub(crate) const USER_RENEWAL: Duration = Duration::from_secs(3600);

const DAY: u64 = 24 * 3600;

/// Weight of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FindingLevel {
    /// As it should be.
    Good,
    /// Worth knowing.
    Note,
    /// It will be, or may be, a problem.
    Warning,
    /// Insecure, or not usable.
    Problem,
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) level: FindingLevel,
    /// The thing that was examined.
    pub(crate) name: String,
    /// Its state.
    pub(crate) value: String,
    /// The remedy.
    pub(crate) advice: Option<String>,
}

impl FindingLevel {
    const fn name(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

impl Finding {
    /// A finding that is as it should be.
    pub(crate) fn good(name: &str, value: impl Into<String>) -> Self {
        Self::new(FindingLevel::Good, name, value, None)
    }

    /// A fact.
    pub(crate) fn note(name: &str, value: impl Into<String>) -> Self {
        Self::new(FindingLevel::Note, name, value, None)
    }

    /// A fact, and what it is good for or how to change it.
    pub(crate) fn hint(name: &str, value: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(FindingLevel::Note, name, value, Some(advice.into()))
    }

    /// A warning.
    pub(crate) fn warning(name: &str, value: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(FindingLevel::Warning, name, value, Some(advice.into()))
    }

    /// A problem.
    pub(crate) fn problem(name: &str, value: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(FindingLevel::Problem, name, value, Some(advice.into()))
    }

    /// A problem whose text says what to do.
    pub(crate) fn failure(name: &str, value: impl Into<String>) -> Self {
        Self::new(FindingLevel::Problem, name, value, None)
    }

    fn new(
        level: FindingLevel,
        name: &str,
        value: impl Into<String>,
        advice: Option<String>,
    ) -> Self {
        Self {
            level,
            name: name.to_owned(),
            value: value.into(),
            advice,
        }
    }

    /// The end of a validity: a problem if it has passed, a warning from `renewal` before.
    pub(crate) fn validity(
        name: &str,
        expires: SystemTime,
        now: SystemTime,
        renewal: Duration,
        advice: &str,
    ) -> Self {
        let at = show_time(expires);
        match expires.duration_since(now) {
            Err(_) => Self::problem(name, format!("expired at {at}"), advice),
            Ok(left) => {
                let value = format!("valid until {at} ({})", show_left(left));
                match left < renewal {
                    true => Self::warning(name, value, advice),
                    false => Self::good(name, value),
                }
            }
        }
    }

    /// The line for people.
    pub(crate) fn line(&self) -> String {
        let value = printable(&self.value).to_string();
        let mut line = format!("{:8} {}: {value}", self.level.name(), self.name);
        if let Some(advice) = &self.advice {
            line.push_str("; ");
            line.push_str(&printable(advice).to_string());
        }
        line
    }

    /// The finding as an object.
    pub(crate) fn json(&self) -> Value {
        json!({
            "level": self.level.name(),
            "name": self.name,
            "value": self.value,
            "advice": self.advice,
        })
    }
}

/// The highest level of some findings.
pub(crate) fn worst(findings: &[Finding]) -> FindingLevel {
    let levels = findings.iter().map(|finding| finding.level);
    levels.max().unwrap_or(FindingLevel::Good)
}

/// Time left, in the largest unit that says enough: `12 days`, `5 h`, `40 min`.
fn show_left(left: Duration) -> String {
    match left.as_secs() {
        seconds if seconds >= 2 * DAY => format!("{} days", seconds / DAY),
        seconds if seconds >= 2 * 3600 => format!("{} h", seconds / 3600),
        seconds => format!("{} min", seconds / 60),
    }
}

/// A time, UTC.
pub(crate) fn show_time(time: SystemTime) -> String {
    ftp::protection::show_time(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_validity_warns_before_its_end_and_is_a_problem_after() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let at = |offset: u64| {
            Finding::validity(
                "certificate",
                SystemTime::UNIX_EPOCH + Duration::from_secs(offset),
                now,
                SERVER_RENEWAL,
                "renew it",
            )
        };
        assert_eq!(at(999_999).level, FindingLevel::Problem);
        assert_eq!(at(1_000_000 + 29 * DAY).level, FindingLevel::Warning);
        assert_eq!(at(1_000_000 + 31 * DAY).level, FindingLevel::Good);
        assert!(at(999_999).line().contains("expired at 1970-01-12"));
        assert!(at(1_000_000 + 40 * DAY).line().contains("(40 days)"));
    }

    #[test]
    fn a_line_has_level_name_value_and_advice_and_no_control_bytes() {
        let line = Finding::problem("names", "a\u{1b}[31mb", "do it").line();
        assert!(line.starts_with("problem  names: a"), "{line}");
        assert!(
            line.ends_with("; do it") && !line.contains('\u{1b}'),
            "{line}"
        );
    }

    #[test]
    fn the_worst_finding_decides() {
        let all = [
            Finding::good("a", "b"),
            Finding::warning("a", "b", "c"),
            Finding::note("a", "b"),
        ];
        assert_eq!(worst(&all), FindingLevel::Warning);
        assert_eq!(worst(&[]), FindingLevel::Good);
    }
}
