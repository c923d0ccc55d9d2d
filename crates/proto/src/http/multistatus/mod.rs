//! The answer to PROPFIND (RFC 4918 §9.1, §13): what a WebDAV server keeps in a collection.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::content_range::parse_number;
use super::{date, url};
use crate::listing::{EntryKind, ListedEntry};

/// The body of a PROPFIND that asks for what [`parse`] takes.
pub const PROPFIND_BODY: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\
<propfind xmlns=\"DAV:\"><prop><resourcetype/><getcontentlength/><getlastmodified/><getetag/></prop></propfind>";

/// Most resources of one answer.
pub const MOST_RESOURCES: usize = 200_000;
/// Largest answer, bytes.
pub const MAX_BODY: usize = 128 << 20;
/// Deepest nesting of elements.
const DEEPEST: usize = 64;
/// Longest text of a property, bytes: a name of 4096 bytes, all of them percent-encoded.
const LONGEST: usize = 16 << 10;
/// Most namespace declarations in force at a time, and most attributes of an element.
const MOST_NAMES: usize = 256;

/// Why an answer cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MultistatusError {
    /// Not well-formed, or with a document type, of which WebDAV has none.
    #[error("it is no XML that can be read")]
    Malformed,
    /// XML of something else.
    #[error("it is no multistatus of WebDAV")]
    NotMultistatus,
    /// Nested too deeply, or with too many names.
    #[error("its elements are nested too deeply, or too large")]
    TooComplex,
    /// More than [`MOST_RESOURCES`] or [`MAX_BODY`].
    #[error("it lists more than {MOST_RESOURCES} resources")]
    TooMany,
}

/// The server's word on one resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DavResource {
    /// Parts of its path, decoded; the empty one after a last slash is left out.
    pub path: Vec<Vec<u8>>,
    /// It is a directory.
    pub is_collection: bool,
    /// Bytes.
    pub size: Option<u64>,
    /// As told.
    pub modified: Option<String>,
    /// As told, quotes and all.
    pub etag: Option<String>,
}

impl DavResource {
    /// As an entry of a directory, under this name.
    pub fn to_entry(&self, name: &[u8]) -> ListedEntry {
        let kind = match self.is_collection {
            true => EntryKind::Dir,
            false => EntryKind::File,
        };
        let strong = self.etag.clone().filter(|etag| is_strong_etag(etag));
        ListedEntry {
            size: self.size.filter(|_| !self.is_collection),
            modified: self.modified.as_deref().and_then(date::parse),
            unique: strong.filter(|_| !self.is_collection),
            ..ListedEntry::new(name, kind)
        }
    }
}

/// Whether an entity tag says that two representations with it are the same, byte for byte
/// (RFC 9110 §8.8.3).
pub fn is_strong_etag(etag: &str) -> bool {
    let inner = etag.strip_prefix('"').and_then(|e| e.strip_suffix('"'));
    inner.is_some_and(|inner| {
        inner
            .bytes()
            .all(|b| b == 0x21 || (0x23..=0x7e).contains(&b))
    })
}

/// The entries of the directory whose path has the parts `path`, and the directory itself if it was told
/// of. What lies elsewhere, deeper, or has a name that no file can have, is left out.
pub fn directory_entries(
    resources: &[DavResource],
    path: &[Vec<u8>],
) -> (Option<ListedEntry>, Vec<ListedEntry>) {
    let (mut itself, mut entries) = (None, Vec::new());
    for resource in resources {
        match resource.path.strip_prefix(path) {
            Some([]) => {
                let name = path.last().map_or(&b""[..], Vec::as_slice);
                itself = Some(resource.to_entry(name));
            }
            Some([name]) if is_name(name) => entries.push(resource.to_entry(name)),
            _ => {}
        }
    }
    (itself, entries)
}

fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|b| matches!(b, 0 | b'/'))
}

/// Reads the body of a 207.
///
/// # Errors
/// See [`MultistatusError`].
pub fn parse(body: &[u8]) -> Result<Vec<DavResource>, MultistatusError> {
    if body.len() > MAX_BODY {
        return Err(MultistatusError::TooMany);
    }
    let text = String::from_utf8_lossy(body);
    let mut reader = Reader::from_str(&text);
    let mut document = MultistatusParser::default();
    loop {
        let event = reader
            .read_event()
            .map_err(|_| MultistatusError::Malformed)?;
        match event {
            Event::Start(start) => document.start(&start)?,
            Event::Empty(start) => {
                document.start(&start)?;
                document.end()?;
            }
            Event::End(_) => document.end()?,
            Event::Text(text) => document.text(&text.xml10_content())?,
            Event::CData(text) => document.text(&text.xml10_content())?,
            Event::GeneralRef(reference) => {
                let text = match reference.resolve_char_ref() {
                    Ok(Some(c)) => c,
                    Ok(None) => predefined(&reference.into_inner())?,
                    Err(_) => return Err(MultistatusError::Malformed),
                };
                document.text(text.encode_utf8(&mut [0; 4]))?;
            }
            Event::DocType(_) => return Err(MultistatusError::Malformed),
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
            Event::Eof => return document.finish(),
        }
    }
}

/// The entities that every document has (XML 1.0 §4.6).
fn predefined(name: &str) -> Result<char, MultistatusError> {
    match name {
        "amp" => Ok('&'),
        "lt" => Ok('<'),
        "gt" => Ok('>'),
        "quot" => Ok('"'),
        "apos" => Ok('\''),
        _ => Err(MultistatusError::Malformed),
    }
}

/// Elements of WebDAV; any other is [`DavElement::NotMultistatus`], and nothing in it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DavElement {
    Multistatus,
    Response,
    Href,
    Propstat,
    Status,
    Prop,
    ResourceType,
    Collection,
    Length,
    Modified,
    Etag,
    Other,
}

impl DavElement {
    fn of(name: &str) -> Self {
        match name {
            "multistatus" => Self::Multistatus,
            "response" => Self::Response,
            "href" => Self::Href,
            "propstat" => Self::Propstat,
            "status" => Self::Status,
            "prop" => Self::Prop,
            "resourcetype" => Self::ResourceType,
            "collection" => Self::Collection,
            "getcontentlength" => Self::Length,
            "getlastmodified" => Self::Modified,
            "getetag" => Self::Etag,
            _ => Self::Other,
        }
    }
}

/// State of a document that is being read.
#[derive(Default)]
struct MultistatusParser {
    /// Open elements, and how many namespaces were declared outside of each.
    open: Vec<(DavElement, usize)>,
    /// Prefixes in force, the last one first; whether each is that of `DAV:`.
    namespaces: Vec<(String, bool)>,
    text: String,
    has_root: bool,
    resources: Vec<DavResource>,
    /// Of the response that is being read.
    response: DavResource,
    href: Option<String>,
    /// Of the propstat that is being read.
    propstat: DavResource,
    refused: bool,
}

impl MultistatusParser {
    fn start(&mut self, start: &BytesStart<'_>) -> Result<(), MultistatusError> {
        if self.open.len() >= DEEPEST {
            return Err(MultistatusError::TooComplex);
        }
        let outside = self.namespaces.len();
        for (n, attribute) in start.attributes().with_checks(false).enumerate() {
            if n >= MOST_NAMES || self.namespaces.len() >= MOST_NAMES {
                return Err(MultistatusError::TooComplex);
            }
            let attribute = attribute.map_err(|_| MultistatusError::Malformed)?;
            let key: &str = attribute.key.as_ref();
            let prefix = match key.strip_prefix("xmlns") {
                Some("") => "",
                Some(rest) => match rest.strip_prefix(':') {
                    Some(prefix) => prefix,
                    None => continue,
                },
                None => continue,
            };
            self.namespaces
                .push((prefix.to_owned(), attribute.value.as_ref() == "DAV:"));
        }
        let name = start.name();
        let name: &str = name.as_ref();
        let (prefix, local) = name.split_once(':').unwrap_or(("", name));
        let named = self
            .namespaces
            .iter()
            .rev()
            .find(|(known, _)| known == prefix);
        let element = match named {
            Some((_, true)) => DavElement::of(local),
            _ => DavElement::Other,
        };
        if self.open.is_empty() {
            if self.has_root || element != DavElement::Multistatus {
                return Err(MultistatusError::NotMultistatus);
            }
            self.has_root = true;
        }
        self.open.push((element, outside));
        self.on_element_open();
        Ok(())
    }

    /// The elements that are open, from the outermost.
    fn path(&self) -> Vec<DavElement> {
        self.open.iter().map(|(element, _)| *element).collect()
    }

    fn on_element_open(&mut self) {
        use DavElement::{Collection, Multistatus, Prop, Propstat, ResourceType, Response};
        self.text.clear();
        match self.path().as_slice() {
            [Multistatus, Response] => {
                self.response = DavResource::default();
                self.href = None;
            }
            [Multistatus, Response, Propstat] => {
                self.propstat = DavResource::default();
                self.refused = false;
            }
            [
                Multistatus,
                Response,
                Propstat,
                Prop,
                ResourceType,
                Collection,
            ] => {
                self.propstat.is_collection = true;
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str) -> Result<(), MultistatusError> {
        if self.open.len() < 3 {
            return Ok(());
        }
        if self.text.len() + text.len() > LONGEST {
            return Err(MultistatusError::TooComplex);
        }
        self.text.push_str(text);
        Ok(())
    }

    fn end(&mut self) -> Result<(), MultistatusError> {
        use DavElement::{
            Etag, Href, Length, Modified, Multistatus, Prop, Propstat, Response, Status,
        };
        let path = self.path();
        let text = std::mem::take(&mut self.text);
        let text = text.trim();
        match path.as_slice() {
            [Multistatus, Response] => self.finish_response()?,
            [Multistatus, Response, Href] => self.href = Some(text.to_owned()),
            [Multistatus, Response, Propstat] => self.finish_propstat(),
            [Multistatus, Response, Propstat, Status] => {
                // HTTP/1.1 200 OK
                self.refused = text.split_ascii_whitespace().nth(1) != Some("200");
            }
            [Multistatus, Response, Propstat, Prop, property] => match property {
                Length => self.propstat.size = parse_number(text),
                Modified => self.propstat.modified = Some(text.to_owned()),
                Etag => self.propstat.etag = Some(text.to_owned()),
                _ => {}
            },
            _ => {}
        }
        let (_, outside) = self.open.pop().ok_or(MultistatusError::Malformed)?;
        self.namespaces.truncate(outside);
        Ok(())
    }

    /// Properties that the server has count, those that it has not do not.
    fn finish_propstat(&mut self) {
        let found = std::mem::take(&mut self.propstat);
        if self.refused {
            return;
        }
        let response = &mut self.response;
        response.is_collection |= found.is_collection;
        response.size = found.size.or(response.size);
        response.modified = found.modified.or_else(|| response.modified.take());
        response.etag = found.etag.or_else(|| response.etag.take());
    }

    fn finish_response(&mut self) -> Result<(), MultistatusError> {
        let mut resource = std::mem::take(&mut self.response);
        let Some(path) = self.href.take().and_then(|href| href_segments(&href)) else {
            return Ok(());
        };
        if self.resources.len() >= MOST_RESOURCES {
            return Err(MultistatusError::TooMany);
        }
        resource.path = path;
        self.resources.push(resource);
        Ok(())
    }

    fn finish(self) -> Result<Vec<DavResource>, MultistatusError> {
        match (self.has_root, self.open.is_empty()) {
            (true, true) => Ok(self.resources),
            (false, _) => Err(MultistatusError::NotMultistatus),
            (true, false) => Err(MultistatusError::Malformed),
        }
    }
}

/// The parts of the path of an href, which is a path or a whole URL (RFC 4918 §8.3).
fn href_segments(href: &str) -> Option<Vec<Vec<u8>>> {
    let href = href.split(['?', '#']).next().unwrap_or_default();
    let path = match href.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => {
            &rest[rest.find('/').unwrap_or(rest.len())..]
        }
        _ => href,
    };
    if !path.is_empty() && !path.starts_with('/') {
        return None;
    }
    let mut parts = url::path_segments(path);
    if parts.last().is_some_and(Vec::is_empty) {
        parts.pop();
    }
    Some(parts)
}

#[cfg(test)]
mod tests;
