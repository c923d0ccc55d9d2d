//! Sessions and data connections that a program carries (`ssh HOST longhaul serve --stdio`): the lines before their first byte.
//!
//! The client sends a [`CarriedRequest`]. A login may print something at the far end before it answers (messages of the day,
//! scripts); the dialogue, or the data, begins behind the answer.

use std::net::IpAddr;

/// The beginning of the lines about a session, of any version.
const ANY_SESSION: &str = "longhaul session ";
/// The same of this version.
const SESSION: &str = "longhaul session 1";
/// The beginning of the lines about a data connection.
const DATA: &str = "longhaul data 1";

/// Longest line, bytes, without its end. A longer one is none.
pub const MAX_LINE: usize = 256;
/// Bytes that a login may print before the answer.
const MAX_NOISE: usize = 64 << 10;

/// The version of the sessions that a line of either end is about; `None`: it is another line.
pub fn session_version(line: &[u8]) -> Option<u32> {
    let text = str::from_utf8(line.get(line.len().saturating_sub(MAX_LINE)..)?).ok()?;
    let (_, words) = text.trim_end().rsplit_once(ANY_SESSION)?;
    words.split(' ').next()?.parse().ok()
}

/// The first line of the client, before which the far end says nothing. A server of another protocol takes it for nonsense and
/// ends: to SFTP it is a message of nearly 2 GB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarriedRequest {
    /// A session (RFC 959).
    Session {
        /// Which end can reach ports of the other is to be found out.
        probe: Option<PortProbe>,
    },
    /// The bytes of a connection to a port of the far end itself, where one of its sessions listens.
    Data {
        /// The port.
        port: u16,
    },
}

/// Both ends try to reach a port of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortProbe {
    /// The client's port; `None`: it has none, as another host is on the way.
    pub client: Option<u16>,
    /// Digits that the far end says over a connection between the ports.
    pub proof: PortProof,
}

/// Random digits that only the two ends of a session know. Behind an address that is translated, or where another program has the
/// port, a connection alone does not show who has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortProof {
    /// Random.
    pub digits: u128,
}

/// Bytes of a [`PortProof`] over one connection.
pub const PROOF_LENGTH: usize = 16;

impl PortProof {
    /// Digits that whoever has reached the far end's port hears.
    pub fn of_far_port(self) -> [u8; PROOF_LENGTH] {
        self.half(0)
    }

    /// Digits that the far end says over its own connection to the client's port: a stranger at the far port has not heard it.
    pub fn of_near_port(self) -> [u8; PROOF_LENGTH] {
        self.half(PROOF_LENGTH)
    }

    fn half(self, from: usize) -> [u8; PROOF_LENGTH] {
        let digits = format!("{:032x}", self.digits);
        std::array::from_fn(|n| digits.as_bytes()[from + n])
    }
}

impl CarriedRequest {
    /// The line, with its end.
    pub fn line(self) -> String {
        match self {
            Self::Session { probe: None } => format!("{SESSION}\r\n"),
            Self::Session { probe: Some(probe) } => {
                let PortProof { digits } = probe.proof;
                format!("{SESSION} {} {digits:032x}\r\n", Word(probe.client))
            }
            Self::Data { port } => format!("{DATA} {port}\r\n"),
        }
    }

    /// Reads a line, with its end; `None`: it is another one.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let line = str::from_utf8(line.strip_suffix(b"\r\n")?).ok()?;
        if let Some(port) = line.strip_prefix(DATA) {
            let port = port
                .strip_prefix(' ')?
                .parse()
                .ok()
                .filter(|port| *port != 0);
            return port.map(|port| Self::Data { port });
        }
        let probe = match line.strip_prefix(SESSION)? {
            "" => None,
            words => {
                let (client, digits) = words.strip_prefix(' ')?.split_once(' ')?;
                let digits = u128::from_str_radix(digits, 16).ok()?;
                Some(PortProbe {
                    client: parse_word(client)?,
                    proof: PortProof { digits },
                })
            }
        };
        Some(Self::Session { probe })
    }
}

/// A value of a line, or `-`.
struct Word<T>(Option<T>);

impl<T: std::fmt::Display> std::fmt::Display for Word<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("-"),
        }
    }
}

fn parse_word<T: std::str::FromStr>(word: &str) -> Option<Option<T>> {
    match word {
        "-" => Some(None),
        text => text.parse().ok().map(Some),
    }
}

/// The answer to [`CarriedRequest::Data`].
pub const DATA_ANSWER: &str = "longhaul data 1\r\n";

/// Whether a line, without its end, is [`DATA_ANSWER`].
pub fn is_data_answer(line: &[u8]) -> bool {
    // A host may print the beginning of a line before it.
    line.trim_ascii_end().ends_with(DATA.as_bytes())
}

/// The lines of the far end, until one is the answer.
#[derive(Debug, Default)]
pub struct AnswerLines {
    line: Vec<u8>,
    passed: usize,
}

/// The far end prints too much before its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the login prints more than 64 KB before the answer")]
pub struct TooMuchNoise;

impl AnswerLines {
    /// Takes the next byte. Returns the line that it ends, without its end.
    ///
    /// # Errors
    /// [`TooMuchNoise`]
    pub fn receive(&mut self, byte: u8) -> Result<Option<Vec<u8>>, TooMuchNoise> {
        self.passed += 1;
        if self.passed > MAX_NOISE {
            return Err(TooMuchNoise);
        }
        if byte == b'\n' {
            return Ok(Some(std::mem::take(&mut self.line)));
        }
        self.line.push(byte);
        Ok(None)
    }
}

/// The answer to [`CarriedRequest::Session`]: the two addresses of the connection that carries the session, as its far end sees
/// them, `None` where it does not know, and its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CarriedEnds {
    /// The client's address, or that of the host through which it comes.
    pub client: Option<IpAddr>,
    /// The far end's.
    pub server: Option<IpAddr>,
    /// The port at which the far end can be reached for a moment, where it was asked ([`PortProbe`]).
    pub probe: Option<u16>,
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
            probe: None,
        }
    }

    /// The line, with its end.
    pub fn line(&self) -> String {
        let (client, server, probe) = (Word(self.client), Word(self.server), Word(self.probe));
        format!("{SESSION} {client} {server} {probe}\r\n")
    }

    /// Reads a line, without its end; `None`: it is another one. A host may print the beginning of a line before it.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let line = str::from_utf8(line.get(line.len().saturating_sub(MAX_LINE)..)?).ok()?;
        let (_, values) = line.trim_end_matches('\r').rsplit_once(SESSION)?;
        let mut words = values.strip_prefix(' ')?.split(' ');
        Some(Self {
            client: parse_word(words.next()?)?,
            server: parse_word(words.next()?)?,
            probe: parse_word(words.next()?)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_arrive() {
        let proof = PortProof {
            digits: 0x0123_4567_89ab_cdef_0000_0000_0000_002a,
        };
        assert_eq!(&proof.of_far_port(), b"0123456789abcdef");
        assert_eq!(&proof.of_near_port(), b"000000000000002a");
        for (request, line) in [
            (
                CarriedRequest::Session { probe: None },
                "longhaul session 1\r\n",
            ),
            (
                CarriedRequest::Session {
                    probe: Some(PortProbe {
                        client: None,
                        proof,
                    }),
                },
                "longhaul session 1 - 0123456789abcdef000000000000002a\r\n",
            ),
            (
                CarriedRequest::Session {
                    probe: Some(PortProbe {
                        client: Some(4711),
                        proof,
                    }),
                },
                "longhaul session 1 4711 0123456789abcdef000000000000002a\r\n",
            ),
            (
                CarriedRequest::Data { port: 50_000 },
                "longhaul data 1 50000\r\n",
            ),
        ] {
            assert_eq!(request.line(), line);
            assert_eq!(CarriedRequest::parse(line.as_bytes()), Some(request));
        }
        for other in [
            "",
            "longhaul session 1",
            "longhaul session 10\r\n",
            "longhaul session 1 4711\r\n",
            "longhaul session 1 4711 x\r\n",
            "longhaul data 1 0\r\n",
            "longhaul data 1\r\n",
        ] {
            assert_eq!(CarriedRequest::parse(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn the_ends_of_ssh_arrive() {
        for (variable, expected) in [
            ("192.0.2.1 4711 192.0.2.2 22", "192.0.2.1 192.0.2.2 -"),
            (
                "2001:db8::1 4711 2001:db8::2 22",
                "2001:db8::1 2001:db8::2 -",
            ),
            ("fe80::1%eth0 4711 192.0.2.2 22", "- 192.0.2.2 -"),
            ("", "- - -"),
        ] {
            let ends = CarriedEnds::from_ssh_connection(variable);
            let line = ends.line();
            assert_eq!(line, format!("{SESSION} {expected}\r\n"));
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
            "longhaul session 2 - - -",
            "longhaul session 1",
            "longhaul session 1 - -",
            "longhaul session 1 - x -",
            "longhaul session 10 - - -",
        ] {
            assert_eq!(CarriedEnds::parse(line.as_bytes()), None, "{line}");
        }
        assert_eq!(CarriedEnds::parse(b"longhaul session 1 - \xff -"), None);
        assert_eq!(session_version(b"# longhaul session 2 - - new\r"), Some(2));
        assert_eq!(session_version(b"longhaul session 1\r\n"), Some(1));
        assert_eq!(session_version(b"longhaul session x"), None);
    }

    #[test]
    fn a_login_that_never_stops_printing_has_no_answer() {
        let mut lines = AnswerLines::default();
        let printed = (0..=MAX_NOISE).map(|_| lines.receive(b'x'));
        assert_eq!(printed.last(), Some(Err(TooMuchNoise)));
        let mut lines = AnswerLines::default();
        let answer = b"motd\n$ longhaul data 1\r\n".iter();
        let answer = answer.filter_map(|byte| lines.receive(*byte).unwrap());
        assert_eq!(
            answer.map(|line| is_data_answer(&line)).collect::<Vec<_>>(),
            [false, true]
        );
    }
}
