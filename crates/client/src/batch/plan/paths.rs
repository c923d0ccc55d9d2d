//! Names of locations, and whether two of them are the same place.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::location::{Location, Server};
use crate::partial;

/// A path without trailing slashes; the root stays `/`.
pub(crate) fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b != b'/').map_or(1, |i| i + 1);
    &path[..end.min(path.len())]
}

/// The last component; `None` for standard input, a root, and local `.` and `..`.
pub(crate) fn name_of(location: &Location) -> Option<Vec<u8>> {
    match location {
        Location::StandardStreams => None,
        Location::Local(path) => partial::name_of(path).map(<[u8]>::to_vec),
        Location::Remote { path, .. } => {
            let path = trimmed(path);
            let start = path.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
            (start < path.len()).then(|| path[start..].to_vec())
        }
    }
}

/// Whether both name one file: the same inode, or the same path of the same server.
pub(crate) fn same_place(a: &Location, b: &Location) -> bool {
    match (a, b) {
        (Location::Local(a), Location::Local(b)) => match (fs::metadata(a), fs::metadata(b)) {
            (Ok(a), Ok(b)) => a.is_file() && (a.dev(), a.ino()) == (b.dev(), b.ino()),
            _ => false,
        },
        (Location::Remote { server: s, path: a }, Location::Remote { server: t, path: b }) => {
            same_server(s, t) && normal(a) == normal(b)
        }
        _ => false,
    }
}

/// Whether `b` is the directory `a` or lies below it.
pub(crate) fn inside(a: &Location, b: &Location) -> bool {
    match (a, b) {
        (Location::Local(a), Location::Local(b)) => {
            let Ok(a) = fs::canonicalize(a) else {
                return false;
            };
            // The destination itself may not exist yet.
            let there = b.ancestors().find_map(|p| {
                let known = fs::canonicalize(if p.as_os_str().is_empty() {
                    Path::new(".")
                } else {
                    p
                });
                known.ok()
            });
            there.is_some_and(|b| b.starts_with(&a))
        }
        (Location::Remote { server: s, path: a }, Location::Remote { server: t, path: b }) => {
            let (a, b) = (normal(a), normal(b));
            same_server(s, t) && b.starts_with(&a)
        }
        _ => false,
    }
}

fn same_server(a: &Server, b: &Server) -> bool {
    let account = |server: &Server| server.credential.account_key();
    a.host.eq_ignore_ascii_case(&b.host) && a.port == b.port && account(a) == account(b)
}

/// Components without `.`, `..` and empty ones.
pub(super) fn normal(path: &[u8]) -> Vec<&[u8]> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts
}
