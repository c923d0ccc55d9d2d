//! A session that a program carries (`ssh HOST longhaul serve --stdio`): the line that comes before its greeting.
//!
//! A login may print something at the far end before it (messages of the day, scripts); the dialogue begins behind this line.

use std::net::IpAddr;

/// The beginning of the line.
const MARK: &str = "longhaul session 1";

/// The same of any version.
const ANY_MARK: &str = "longhaul session ";

/// The first line of the client, before which the far end says nothing. A server of another protocol takes it for nonsense and
/// ends: to SFTP it is a message of nearly 2 GB.
pub const HELLO: &[u8] = b"longhaul session 1\r\n";

/// Longest line, bytes, without its end. A longer one is none.
pub const MAX_LINE: usize = 256;

/// The version of the sessions that a line of either end is about; `None`: it is another line.
pub fn session_version(line: &[u8]) -> Option<u32> {
    let text = str::from_utf8(line.get(line.len().saturating_sub(MAX_LINE)..)?).ok()?;
    let (_, words) = text.trim_end().rsplit_once(ANY_MARK)?;
    words.split(' ').next()?.parse().ok()
}

/// The two addresses of the connection that carries a session, as its far end sees them. `None`: it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CarriedEnds {
    /// The client's address, or that of the host through which it comes.
    pub client: Option<IpAddr>,
    /// The far end's.
    pub server: Option<IpAddr>,
}

impl CarriedEnds {
    /// The ends of `SSH_CONNECTION` (ssh(1)): the addresses and ports of client and server.
    pub fn from_ssh_connection(value: &str) -> Self {
        let mut words = value.split(' ');
        let mut address = || {
            let ip = words.next()?.parse().ok();
            words.next();
            ip
        };
        Self {
            client: address(),
            server: address(),
        }
    }

    /// The line, with its end.
    pub fn line(&self) -> String {
        let word = |ip: Option<IpAddr>| ip.map_or_else(|| "-".to_owned(), |ip| ip.to_string());
        format!("{MARK} {} {}\r\n", word(self.client), word(self.server))
    }

    /// Reads a line, without its end; `None`: it is another one. A host may print the beginning of a line before it.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let line = str::from_utf8(line.get(line.len().saturating_sub(MAX_LINE)..)?).ok()?;
        let (_, addresses) = line.trim_end_matches('\r').rsplit_once(MARK)?;
        let mut words = addresses.strip_prefix(' ')?.split(' ');
        let mut address = || match words.next()? {
            "-" => Some(None),
            text => text.parse().ok().map(Some),
        };
        Some(Self {
            client: address()?,
            server: address()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_ssh_arrive() {
        for (variable, expected) in [
            ("192.0.2.1 4711 192.0.2.2 22", "192.0.2.1 192.0.2.2"),
            ("2001:db8::1 4711 2001:db8::2 22", "2001:db8::1 2001:db8::2"),
            ("fe80::1%eth0 4711 192.0.2.2 22", "- 192.0.2.2"),
            ("", "- -"),
        ] {
            let ends = CarriedEnds::from_ssh_connection(variable);
            let line = ends.line();
            assert_eq!(line, format!("{MARK} {expected}\r\n"));
            let line = line.trim_end_matches('\n').as_bytes();
            assert_eq!(CarriedEnds::parse(line), Some(ends));
            let behind_a_prompt = [b"\x1b[0m# ", line].concat();
            assert_eq!(CarriedEnds::parse(&behind_a_prompt), Some(ends));
        }
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            "",
            "Welcome to host",
            "longhaul session 2 - -",
            "longhaul session 1",
            "longhaul session 1 - x",
            "longhaul session 10 - -",
        ] {
            assert_eq!(CarriedEnds::parse(line.as_bytes()), None, "{line}");
        }
        assert_eq!(CarriedEnds::parse(b"longhaul session 1 - \xff"), None);
        assert_eq!(session_version(b"# longhaul session 2 - - new\r"), Some(2));
        assert_eq!(session_version(HELLO), Some(1));
        assert_eq!(session_version(b"longhaul session x"), None);
    }
}
