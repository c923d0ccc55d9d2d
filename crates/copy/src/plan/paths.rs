//! Names of locations, and comparison of locations.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::local::partial;
use crate::storage::entry_names::join_path;
use ftp::location::{Location, Server};

/// A path without trailing slashes. The root stays `/`.
pub(crate) fn trim_trailing_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b != b'/').map_or(1, |i| i + 1);
    &path[..end.min(path.len())]
}

/// The last component. `None` for standard input, a root, and local `.` and `..`.
pub(crate) fn last_component(location: &Location) -> Option<Vec<u8>> {
    match location {
        Location::StandardStreams => None,
        Location::Local(path) => partial::file_name_bytes(path).map(<[u8]>::to_vec),
        Location::Remote { path, .. } => {
            let path = trim_trailing_slashes(path);
            let start = path.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
            (start < path.len()).then(|| path[start..].to_vec())
        }
    }
}

/// Whether both locations name one file: the same inode, or the same path on the same server.
pub(crate) fn is_same_file(a: &Location, b: &Location) -> bool {
    match (a, b) {
        // Device and inode also recognise hard links and different spellings of a path.
        (Location::Local(a), Location::Local(b)) => match (fs::metadata(a), fs::metadata(b)) {
            (Ok(a), Ok(b)) => a.is_file() && (a.dev(), a.ino()) == (b.dev(), b.ino()),
            _ => false,
        },
        (Location::Remote { server: s, path: a }, Location::Remote { server: t, path: b }) => {
            is_same_server(s, t) && normalized_components(a) == normalized_components(b)
        }
        _ => false,
    }
}

/// Whether `place` is below the directory `at`, by their names.
pub(crate) fn is_below(at: &Location, place: &Location) -> bool {
    let above = at.path();
    let above = above.strip_suffix(b"/").unwrap_or(above);
    let rest = place.path().strip_prefix(above);
    rest.is_some_and(|rest| rest.starts_with(b"/")) && at.storage_id() == place.storage_id()
}

/// Whether `b` is the directory `a` or is below it.
pub(crate) fn is_inside(a: &Location, b: &Location) -> bool {
    match (a, b) {
        (Location::Local(a), Location::Local(b)) => {
            let Ok(a) = fs::canonicalize(a) else {
                return false;
            };
            // The destination itself may not exist yet, so its nearest existing ancestor is used.
            let canonical_b = b.ancestors().find_map(|p| {
                let known = fs::canonicalize(if p.as_os_str().is_empty() {
                    Path::new(".")
                } else {
                    p
                });
                known.ok()
            });
            canonical_b.is_some_and(|b| b.starts_with(&a))
        }
        (Location::Remote { server: s, path: a }, Location::Remote { server: t, path: b }) => {
            let (a, b) = (normalized_components(a), normalized_components(b));
            is_same_server(s, t) && b.starts_with(&a)
        }
        _ => false,
    }
}

fn is_same_server(a: &Server, b: &Server) -> bool {
    let account = |server: &Server| server.credential.account_key();
    a.host.eq_ignore_ascii_case(&b.host) && a.port == b.port && account(a) == account(b)
}

/// A location below a directory.
pub(crate) fn join_location(top: &Location, relative: &[u8]) -> Location {
    match top {
        Location::StandardStreams => Location::StandardStreams,
        _ if relative.is_empty() => top.clone(),
        _ => top.with_path(join_path(top.path(), relative)),
    }
}

/// The path of an entry of a directory; an empty name stands for the directory itself.
pub(crate) fn entry_path(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match name {
        b"" => directory.to_vec(),
        name => join_path(directory, name),
    }
}

/// Path components, with `.`, `..` and empty ones resolved.
pub(crate) fn normalized_components(path: &[u8]) -> Vec<&[u8]> {
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
