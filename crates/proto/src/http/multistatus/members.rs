//! Which of the resources in a response is the one that was asked for, and which are its members.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;

use super::DavResource;
use crate::http::url::HttpUrl;
use crate::listing::{EntryKind, ListedEntry};

/// Decoded segments of a path, without empty ones.
type PathSegments = Vec<Vec<u8>>;

/// A response, read as the listing of the resource that was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DavListing<'r> {
    /// The resource that was asked for; `None` if the response does not tell which one it is.
    pub itself: Option<&'r DavResource>,
    /// Its members, with their names. No name appears twice.
    pub members: Vec<ListedEntry>,
    /// The `href` of each resource that is there and that nothing more is known about: its name cannot be told, or the server
    /// does not say what it is.
    pub unknown: Vec<&'r str>,
}

impl<'r> DavListing<'r> {
    /// Reads the response of `url` to a PROPFIND request with depth 0 or 1.
    pub fn of(resources: &'r [DavResource], url: &HttpUrl) -> Self {
        let requested = url.segments();
        // An href that is relative begins where the last slash of the URL is (RFC 3986 §5.2.3).
        let directory = &requested[..requested.len().saturating_sub(1)];
        let is_literal = resources.iter().any(|r| is_unescaped(&r.href));
        let paths: Vec<_> = resources
            .iter()
            .map(|resource| href_path(&resource.href, directory, is_literal))
            .collect();
        let requested = without_empty(requested);
        let Some(at) = find_itself(&paths, &requested) else {
            return Self {
                unknown: resources.iter().map(|r| r.href.as_str()).collect(),
                ..Self::default()
            };
        };
        let mut listing = Self {
            itself: Some(&resources[at]),
            ..Self::default()
        };
        let top = paths[at].as_deref().unwrap_or_default();
        let mut kinds: HashMap<&[u8], EntryKind> = HashMap::new();
        let mut deeper = Vec::new();
        for (resource, path) in resources.iter().zip(&paths) {
            let below = path.as_deref().and_then(|path| path.strip_prefix(top));
            match below {
                // A refusal here is that of the listing, as where a server limits it (RFC 6578 §3.6).
                Some([]) if !resource.is_refused => {}
                Some([name]) if is_name(name) => match resource.to_entry(name) {
                    Some(entry) if kinds.get(name.as_slice()) == Some(&entry.kind) => {}
                    Some(entry) if !kinds.contains_key(name.as_slice()) => {
                        kinds.insert(name, entry.kind);
                        listing.members.push(entry);
                    }
                    _ => listing.unknown.push(&resource.href),
                },
                Some([first, .., _]) => deeper.push((first.as_slice(), resource.href.as_str())),
                _ => listing.unknown.push(&resource.href),
            }
        }
        // Some servers list whole trees: what is deeper appears again when its own directory is listed.
        let is_listed = |name: &[u8]| kinds.get(name) == Some(&EntryKind::Dir);
        deeper.retain(|(first, _)| !is_listed(first));
        listing
            .unknown
            .extend(deeper.into_iter().map(|(_, href)| href));
        listing
    }
}

/// The index of the resource with the path that was asked for. A proxy in front of the server may add the beginning of a
/// path or take it away: then it is the only one that all others are below.
fn find_itself(paths: &[Option<PathSegments>], requested: &[Vec<u8>]) -> Option<usize> {
    let known = || paths.iter().enumerate();
    let exact = known().find(|(_, path)| path.as_deref() == Some(requested));
    if let Some((at, _)) = exact {
        return Some(at);
    }
    let is_moved = |path: &[Vec<u8>]| {
        !path.is_empty() && (path.ends_with(requested) || requested.ends_with(path))
    };
    let moved = known().filter_map(|(at, path)| Some((at, path.as_deref()?)));
    let moved = moved.filter(|(_, path)| is_moved(path) && !requested.is_empty());
    let (at, top) = moved.min_by_key(|(_, path)| path.len())?;
    let mut all = paths.iter().flatten();
    all.all(|path| path.starts_with(top)).then_some(at)
}

/// Whether an href has a space, or a `%` that begins no escape: its server writes names as they are.
fn is_unescaped(href: &str) -> bool {
    href.contains(' ') || percents(href).any(|is_escape| !is_escape)
}

/// Whether each `%` begins an escape (RFC 3986 §2.1).
fn percents(href: &str) -> impl Iterator<Item = bool> {
    let is_escape = |rest: &str| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    href.split('%').skip(1).map(is_escape)
}

/// The path of an href: a complete URL, an absolute path (RFC 4918 §8.3), or, with some servers, a path relative to
/// `directory`. The host does not matter, since servers behind a proxy name themselves. `is_literal`: nothing is escaped. `None`
/// if it cannot be told which path is meant.
fn href_path(href: &str, directory: &[Vec<u8>], is_literal: bool) -> Option<PathSegments> {
    let is_ambiguous = match is_literal {
        // Either an escape, or a name that looks like one.
        true => percents(href).any(|is_escape| is_escape),
        // Resources have neither (RFC 4918 §8.3), so it may be a name that is not escaped.
        false => href.contains(['?', '#']),
    };
    // The replacement of bytes that are not UTF-8.
    if href.is_empty() || is_ambiguous || href.contains('\u{fffd}') {
        return None;
    }
    let path = match href.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => {
            &rest[rest.find('/').unwrap_or(rest.len())..]
        }
        _ => href,
    };
    let decode = |part: &str| match is_literal {
        true => part.as_bytes().to_vec(),
        false => percent_decode_str(part).collect(),
    };
    let parts = path.split('/').map(decode);
    if path.is_empty() || path.starts_with('/') {
        return Some(without_empty(parts.collect()));
    }
    let mut resolved = without_empty(directory.to_vec());
    for part in parts {
        match part.as_slice() {
            b"" | b"." => {}
            b".." => drop(resolved.pop()?),
            _ => resolved.push(part),
        }
    }
    Some(resolved)
}

fn without_empty(mut path: PathSegments) -> PathSegments {
    path.retain(|segment| !segment.is_empty());
    path
}

fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"." | b"..") && !name.iter().any(|b| matches!(b, 0 | b'/'))
}
