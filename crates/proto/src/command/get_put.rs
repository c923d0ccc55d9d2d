//! GET and PUT (GFD.47 §4): a transfer and its data connection in one command.

use std::net::SocketAddr;

use super::argument::TransferMode;
use super::words::ArgumentWords;
use super::{CommandError, RawArgument};
use crate::address;

/// The name of the path.
const PATH: &[u8] = b"path=";

/// The parameters of GET or PUT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetPutRequest {
    /// `path=...;`
    pub path: RawArgument,
    /// Who makes the data connection.
    pub channel: GetPutChannel,
    /// `mode=s;` or `mode=e;`
    pub mode: Option<TransferMode>,
}

/// The data connection of GET or PUT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GetPutChannel {
    /// The one of the last transfer.
    Kept,
    /// `pasv;`: the server listens, and tells its address before the 150.
    Passive,
    /// `port=h1,h2,h3,h4,p1,p2;`: the server connects.
    Active(SocketAddr),
}

impl GetPutRequest {
    /// Parses `name=value;` and `name;`. A path may have semicolons, which clients send as they are: it is what the
    /// parameters before and behind it leave.
    pub(super) fn parse(args: ArgumentWords<'_>) -> Result<Self, CommandError> {
        let mut request = Self {
            path: Vec::new(),
            channel: GetPutChannel::Kept,
            mode: None,
        };
        let mut rest = args.remaining_trimmed();
        if rest.is_empty() {
            return Err(args.syntax_error("path= is missing"));
        }
        let mut path = loop {
            if let Some((name, path)) = rest.split_at_checked(PATH.len())
                && name.eq_ignore_ascii_case(PATH)
            {
                break path;
            }
            let end = rest.iter().position(|byte| *byte == b';');
            let (item, behind) = end.map_or((rest, &b""[..]), |at| (&rest[..at], &rest[at + 1..]));
            if !request.take(&args, item)? {
                let reason = "only path=, pasv, port= and mode= are offered";
                return Err(args.unsupported(reason));
            }
            rest = behind.trim_ascii_start();
        };
        path = path.strip_suffix(b";").unwrap_or(path);
        while let Some(at) = path.iter().rposition(|byte| *byte == b';')
            && request.take(&args, &path[at + 1..])?
        {
            path = &path[..at];
        }
        if path.is_empty() {
            return Err(args.syntax_error("path= is missing"));
        }
        request.path = path.to_vec();
        Ok(request)
    }

    /// Takes a parameter other than the path. `false`: it is none.
    fn take(&mut self, args: &ArgumentWords<'_>, item: &[u8]) -> Result<bool, CommandError> {
        let text = String::from_utf8_lossy(item).trim().to_ascii_lowercase();
        let is_first = match text.split_once('=') {
            None if text == "pasv" => self.choose(GetPutChannel::Passive),
            Some(("port", port)) => {
                let port = address::parse_port(port.trim())
                    .map_err(|error| args.syntax_error(format!("port: {error}")))?;
                self.choose(GetPutChannel::Active(port))
            }
            Some(("mode", mode)) => {
                let mode = match mode.trim() {
                    "s" => TransferMode::Stream,
                    "e" => TransferMode::Extended,
                    _ => return Err(args.unsupported("only modes S and E are offered")),
                };
                self.mode.replace(mode).is_none()
            }
            _ => return Ok(false),
        };
        match is_first {
            true => Ok(true),
            false => Err(args.syntax_error("a parameter contradicts another one")),
        }
    }

    fn choose(&mut self, channel: GetPutChannel) -> bool {
        std::mem::replace(&mut self.channel, channel) == GetPutChannel::Kept
    }

    pub(super) fn encode(&self) -> RawArgument {
        let mut line = [b"path=", self.path.as_slice(), b";"].concat();
        match self.channel {
            GetPutChannel::Kept => {}
            GetPutChannel::Passive => line.extend_from_slice(b"pasv;"),
            // The parser makes no other ones.
            GetPutChannel::Active(to) => {
                let port = address::format_port(to).unwrap_or_default();
                line.extend_from_slice(format!("port={port};").as_bytes());
            }
        }
        match self.mode {
            None => {}
            Some(TransferMode::Stream) => line.extend_from_slice(b"mode=s;"),
            Some(TransferMode::Extended) => line.extend_from_slice(b"mode=e;"),
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;

    #[test]
    fn a_path_is_what_the_parameters_leave() {
        let passive = GetPutChannel::Passive;
        for (line, path, channel) in [
            ("GET path=/a;pasv;", "/a", passive),
            ("get PASV; Path=/a b ", "/a b ", passive),
            ("GET path=/semi;colon;pasv;", "/semi;colon", passive),
            ("GET path=/semi;colon;", "/semi;colon", GetPutChannel::Kept),
            ("GET mode=S;path=/a;x=y;pasv", "/a;x=y", passive),
        ] {
            let Ok(Command::Get(request)) = Command::parse(line.as_bytes()) else {
                panic!("{line}")
            };
            assert_eq!(
                (&*request.path, request.channel),
                (path.as_bytes(), channel),
                "{line}"
            );
            let again = Command::parse(&Command::Put(request.clone()).encode());
            assert_eq!(again, Ok(Command::Put(request)), "{line}");
        }
    }
}
