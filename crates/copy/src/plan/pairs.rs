//! A file of pairs (`--from`): a line `SOURCE DESTINATION` each, as globus-url-copy's `-f` reads them. Words with spaces are in
//! double quotes; empty lines and those that begin with `#` say nothing.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::options::without_byte_order_mark;
use ftp::failure::Operation;
use ftp::location::Location;
use ftp::{Failure, FailureKind};

/// Longest line, bytes.
const MAX_LINE: u64 = 256 << 10;

/// Standard input, which may be a file.
const STANDARD_INPUT: &str = "/dev/stdin";

/// Where pairs come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PairSource {
    /// A file.
    File(PathBuf),
    /// Standard input.
    StandardInput,
}

impl PairSource {
    /// `-` or a path.
    pub fn of_argument(argument: &Path) -> Self {
        match argument == Path::new("-") {
            true => Self::StandardInput,
            false => Self::File(argument.to_owned()),
        }
    }

    /// The file; standard input may be one, too.
    pub(crate) fn location(&self) -> Location {
        Location::Local(match self {
            Self::File(path) => path.clone(),
            Self::StandardInput => STANDARD_INPUT.into(),
        })
    }

    /// Whether the list is a file, and neither standard input nor a pipe.
    pub fn can_be_read_again(&self) -> bool {
        match self {
            // One that is missing is told as such later.
            Self::File(path) => path.metadata().map_or(true, |found| found.is_file()),
            Self::StandardInput => false,
        }
    }

    /// An argument for each server that the list names: the beginning of a URL, or a remote with its colon. Nothing for
    /// a list that can be read only once, and nothing of lines that are no pairs, which are reported when they are copied.
    pub fn servers(&self) -> BTreeSet<String> {
        let mut servers = BTreeSet::new();
        if !self.can_be_read_again() {
            return servers;
        }
        let Ok(mut reader) = self.open() else {
            return servers;
        };
        while let Some(pair) = reader.next() {
            match pair {
                Ok(UrlPair {
                    source,
                    destination,
                }) => {
                    let ends = [&source, &destination];
                    servers.extend(ends.into_iter().filter_map(|end| server_part(end)));
                }
                Err(failure) if failure.kind() == FailureKind::Local => break,
                Err(_) => {}
            }
        }
        servers
    }

    /// Opens it.
    ///
    /// # Errors
    /// `NotFound`, `Local`.
    pub(crate) fn open(&self) -> Result<PairReader, Failure> {
        let (name, reader): (_, Box<dyn BufRead + Send>) = match self {
            Self::StandardInput => (
                "standard input".to_owned(),
                Box::new(BufReader::new(io::stdin())),
            ),
            Self::File(path) => {
                let file = File::open(path).map_err(|error| open_failure(path, &error))?;
                (path.display().to_string(), Box::new(BufReader::new(file)))
            }
        };
        Ok(PairReader {
            name,
            reader,
            line: 0,
        })
    }
}

/// The part of an argument that says which server it is about; `None` for a path without a colon.
fn server_part(argument: &str) -> Option<String> {
    let (name, rest) = argument.split_once(':')?;
    let part = match rest.strip_prefix("//") {
        Some(rest) => {
            let end = rest.find('/').unwrap_or(rest.len());
            format!("{name}://{}/", &rest[..end])
        }
        // A local path with a colon is none, and does no harm.
        None => format!("{name}:"),
    };
    Some(part)
}

pub(crate) fn open_failure(path: &Path, error: &io::Error) -> Failure {
    let operation = Operation::on("read", path.display());
    operation.failed(FailureKind::of_named_file(error), error)
}

/// The two words of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UrlPair {
    pub(crate) source: String,
    pub(crate) destination: String,
}

/// Reads pairs, one at a time.
pub(crate) struct PairReader {
    name: String,
    reader: Box<dyn BufRead + Send>,
    line: u64,
}

impl PairReader {
    /// The next pair; blocks. `Err` for a line that is none: the others can still be read, unless it is `Local`.
    pub(crate) fn next(&mut self) -> Option<Result<UrlPair, Failure>> {
        loop {
            self.line += 1;
            let mut line = Vec::new();
            let read = self
                .reader
                .by_ref()
                .take(MAX_LINE)
                .read_until(b'\n', &mut line);
            match read {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => {
                    let message = format!("cannot read {}: {error}", self.name);
                    return Some(Err(Failure::local(message)));
                }
            }
            if line.len() as u64 == MAX_LINE {
                let message = format!("{}: line {} is too long", self.name, self.line);
                return Some(Err(Failure::local(message)));
            }
            let line = match self.line {
                1 => without_byte_order_mark(&line),
                _ => &line,
            };
            match parse_line(line) {
                Ok(None) => {}
                Ok(Some(pair)) => return Some(Ok(pair)),
                Err(reason) => {
                    let message = format!("{}: line {}: {reason}", self.name, self.line);
                    return Some(Err(Failure::usage(message)));
                }
            }
        }
    }
}

/// Parses a line. `None`: it says nothing.
fn parse_line(line: &[u8]) -> Result<Option<UrlPair>, &'static str> {
    let mut rest = line.trim_ascii();
    if rest.is_empty() || rest.starts_with(b"#") {
        return Ok(None);
    }
    let mut words = Vec::new();
    while !rest.is_empty() {
        let (quoted, ends_word): (_, fn(&u8) -> bool) = match rest.strip_prefix(b"\"") {
            Some(quoted) => (Some(quoted), |byte| *byte == b'"'),
            None => (None, u8::is_ascii_whitespace),
        };
        let text = quoted.unwrap_or(rest);
        let end = match text.iter().position(ends_word) {
            Some(end) => end,
            None if quoted.is_some() => return Err("a double quote is not closed"),
            None => text.len(),
        };
        let word = Location::argument(OsStr::from_bytes(&text[..end]));
        words.push(word.map_err(|_| "the working directory is unknown")?);
        rest = text.get(end + 1..).unwrap_or_default().trim_ascii_start();
    }
    match <[String; 2]>::try_from(words) {
        Ok([source, destination]) => Ok(Some(UrlPair {
            source,
            destination,
        })),
        Err(_) => Err("a line is a source and a destination, with double quotes around spaces"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(line: &str) -> Option<(String, String)> {
        let pair = parse_line(line.as_bytes()).unwrap()?;
        Some((pair.source, pair.destination))
    }

    #[test]
    fn lines_are_those_of_globus_url_copy() {
        let both = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        assert_eq!(
            pair("ftp://h/a file:///b\n"),
            both("ftp://h/a", "file:///b")
        );
        assert_eq!(
            pair("  \"ftp://h/a b\"\t\"/c d\" \r\n"),
            both("ftp://h/a b", "/c d")
        );
        for nothing in ["", "\n", "# a b\n", "   "] {
            assert_eq!(pair(nothing), None);
        }
        for wrong in ["a", "a b c", "\"a b", "\"a\" \"b"] {
            assert!(parse_line(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_server_of_a_list_is_named_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list");
        let lines =
            "\u{feff}ftp://ann@h:99/a /b\nnothing\nftp://ann@h:99/c cern:d\n\"/e:f g\" ftps://h\n";
        std::fs::write(&path, lines).unwrap();
        let servers: Vec<_> = PairSource::File(path).servers().into_iter().collect();
        assert_eq!(servers, ["/e:", "cern:", "ftp://ann@h:99/", "ftps://h/"]);
        for none in ["/no/such/list", "/dev/null"] {
            assert!(PairSource::File(none.into()).servers().is_empty());
        }
    }

    #[test]
    fn names_may_have_any_bytes() {
        let pair = parse_line(b"ftp://h/caf\xe9 \"/d \xe9\"\n")
            .unwrap()
            .unwrap();
        assert_eq!(pair.source, "ftp://h/caf%E9");
        assert_eq!(pair.destination, "file:///d%20%E9");
    }

    #[test]
    fn a_line_without_end_is_not_read_into_memory() {
        let mut reader = PairReader {
            name: "endless".to_owned(),
            reader: Box::new(BufReader::new(io::repeat(b'x'))),
            line: 0,
        };
        let failure = reader.next().unwrap().unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Local);
    }
}
