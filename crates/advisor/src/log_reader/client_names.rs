//! Clients that a log names by host name, and the other things that a line does not say itself.

use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use jiff::tz::TimeZone;

/// Facts that a parser needs beside the line.
pub struct LogSurroundings<'a> {
    /// Zone of times without one.
    pub zone: &'a TimeZone,
    /// Finds the address of a host name.
    pub resolve: &'a mut dyn FnMut(&str) -> Option<IpAddr>,
}

impl std::fmt::Debug for LogSurroundings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogSurroundings")
            .field("zone", self.zone)
            .finish_non_exhaustive()
    }
}

impl LogSurroundings<'_> {
    /// The address of a field that is an address or a host name.
    pub(crate) fn client(&mut self, host: &str) -> Option<IpAddr> {
        match host.parse::<IpAddr>() {
            Ok(address) => Some(address.to_canonical()),
            Err(_) if is_host_name(host) => (self.resolve)(host),
            Err(_) => None,
        }
    }
}

/// Letters, digits, `-`, `_` and `.`, as in host names of RFC 1123 section 2.1 and of careless administrators.
fn is_host_name(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    !text.is_empty() && text.len() <= 253 && text.bytes().all(allowed)
}

/// Names kept.
const MAX_NAMES: usize = 4096;
/// A resolver that does not answer holds the reader up for some seconds a name.
const LOOKUPS_PER_MINUTE: u32 = 30;
/// An address may move to another host.
const KEEP_FOR: Duration = Duration::from_secs(3600);

/// A bounded memory of resolved names. A lookup blocks.
#[derive(Debug, Default)]
pub struct ClientNames {
    known: HashMap<String, (Option<IpAddr>, Instant)>,
    minute: Option<Instant>,
    lookups: u32,
}

impl ClientNames {
    /// The address of a name; `None`: there is none, or too many names were looked up in this minute.
    pub fn resolve(&mut self, name: &str) -> Option<IpAddr> {
        self.resolve_with(name, Instant::now(), |name| {
            // The port is of no use, but the standard library's resolver asks for one.
            let mut found = (name, 0).to_socket_addrs().ok()?;
            found.next().map(|address| address.ip().to_canonical())
        })
    }

    fn resolve_with(
        &mut self,
        name: &str,
        now: Instant,
        look_up: impl FnOnce(&str) -> Option<IpAddr>,
    ) -> Option<IpAddr> {
        if let Some((address, at)) = self.known.get(name)
            && now.saturating_duration_since(*at) < KEEP_FOR
        {
            return *address;
        }
        let minute = *self.minute.get_or_insert(now);
        if now.saturating_duration_since(minute) >= Duration::from_secs(60) {
            (self.minute, self.lookups) = (Some(now), 0);
        }
        if self.lookups >= LOOKUPS_PER_MINUTE {
            return None;
        }
        self.lookups += 1;
        if self.known.len() >= MAX_NAMES {
            self.known.clear();
        }
        let address = look_up(name);
        self.known.insert(name.to_owned(), (address, now));
        address
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Calls the function with these names and UTC.
    pub(in crate::log_reader) fn with_names<R>(
        names: &[(&str, &str)],
        function: impl FnOnce(&mut LogSurroundings<'_>) -> R,
    ) -> R {
        let mut resolve = |name: &str| {
            let (_, address) = names.iter().find(|(known, _)| *known == name)?;
            address.parse().ok()
        };
        function(&mut LogSurroundings {
            zone: &TimeZone::UTC,
            resolve: &mut resolve,
        })
    }

    #[test]
    fn lookups_are_remembered_and_bounded() {
        let mut names = ClientNames::default();
        let (now, address) = (Instant::now(), "192.0.2.1".parse().ok());
        for _ in 0..100 {
            assert_eq!(names.resolve_with("a.example", now, |_| address), address);
        }
        assert_eq!(names.lookups, 1);
        for n in 0..100 {
            names.resolve_with(&format!("{n}.example"), now, |_| None);
        }
        assert_eq!(names.lookups, LOOKUPS_PER_MINUTE);
        let later = now + Duration::from_secs(61);
        assert_eq!(
            names.resolve_with("99.example", later, |_| address),
            address
        );
    }
}
