//! The answer to PROPFIND (RFC 4918 §9.1, §13): what a WebDAV server keeps in a collection.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::content_range::number;
use super::{date, target};
use crate::listing::{Kind, RemoteEntry};

/// The body of a PROPFIND that asks for what [`read`] takes.
pub const QUESTION: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\
<propfind xmlns=\"DAV:\"><prop><resourcetype/><getcontentlength/><getlastmodified/><getetag/></prop></propfind>";

/// Most resources of one answer.
pub const MOST_RESOURCES: usize = 200_000;
/// Largest answer, bytes.
pub const MOST_BYTES: usize = 128 << 20;
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
    Other,
    /// Nested too deeply, or with too many names.
    #[error("its elements are nested too deeply, or too large")]
    TooComplex,
    /// More than [`MOST_RESOURCES`] or [`MOST_BYTES`].
    #[error("it lists more than {MOST_RESOURCES} resources")]
    TooMany,
}

/// The server's word on one resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resource {
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

impl Resource {
    /// As an entry of a directory, under this name.
    pub fn entry(&self, name: &[u8]) -> RemoteEntry {
        let kind = match self.is_collection {
            true => Kind::Dir,
            false => Kind::File,
        };
        let strong = self.etag.clone().filter(|etag| is_strong(etag));
        RemoteEntry {
            size: self.size.filter(|_| !self.is_collection),
            modified: self.modified.as_deref().and_then(date::parse),
            unique: strong.filter(|_| !self.is_collection),
            ..RemoteEntry::new(name, kind)
        }
    }
}

/// Whether an entity tag says that two representations with it are the same, byte for byte
/// (RFC 9110 §8.8.3).
pub fn is_strong(etag: &str) -> bool {
    let inner = etag.strip_prefix('"').and_then(|e| e.strip_suffix('"'));
    inner.is_some_and(|inner| {
        inner
            .bytes()
            .all(|b| b == 0x21 || (0x23..=0x7e).contains(&b))
    })
}

/// The entries of the directory whose path has the parts `path`, and the directory itself if it was told
/// of. What lies elsewhere, deeper, or has a name that no file can have, is left out.
pub fn entries(
    resources: &[Resource],
    path: &[Vec<u8>],
) -> (Option<RemoteEntry>, Vec<RemoteEntry>) {
    let (mut itself, mut entries) = (None, Vec::new());
    for resource in resources {
        match resource.path.strip_prefix(path) {
            Some([]) => {
                let name = path.last().map_or(&b""[..], Vec::as_slice);
                itself = Some(resource.entry(name));
            }
            Some([name]) if is_name(name) => entries.push(resource.entry(name)),
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
pub fn read(body: &[u8]) -> Result<Vec<Resource>, MultistatusError> {
    if body.len() > MOST_BYTES {
        return Err(MultistatusError::TooMany);
    }
    let text = String::from_utf8_lossy(body);
    let mut reader = Reader::from_str(&text);
    let mut document = Document::default();
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

/// Elements of WebDAV; any other is [`Element::Other`], and nothing in it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
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

impl Element {
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
struct Document {
    /// Open elements, and how many namespaces were declared outside of each.
    open: Vec<(Element, usize)>,
    /// Prefixes in force, the last one first; whether each is that of `DAV:`.
    names: Vec<(String, bool)>,
    text: String,
    seen: bool,
    resources: Vec<Resource>,
    /// Of the response that is being read.
    response: Resource,
    href: Option<String>,
    /// Of the propstat that is being read.
    found: Resource,
    refused: bool,
}

impl Document {
    fn start(&mut self, start: &BytesStart<'_>) -> Result<(), MultistatusError> {
        if self.open.len() >= DEEPEST {
            return Err(MultistatusError::TooComplex);
        }
        let outside = self.names.len();
        for (n, attribute) in start.attributes().with_checks(false).enumerate() {
            if n >= MOST_NAMES || self.names.len() >= MOST_NAMES {
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
            self.names
                .push((prefix.to_owned(), attribute.value.as_ref() == "DAV:"));
        }
        let name = start.name();
        let name: &str = name.as_ref();
        let (prefix, local) = name.split_once(':').unwrap_or(("", name));
        let named = self.names.iter().rev().find(|(known, _)| known == prefix);
        let element = match named {
            Some((_, true)) => Element::of(local),
            _ => Element::Other,
        };
        if self.open.is_empty() {
            if self.seen || element != Element::Multistatus {
                return Err(MultistatusError::Other);
            }
            self.seen = true;
        }
        self.open.push((element, outside));
        self.begin();
        Ok(())
    }

    /// The elements that are open, from the outermost.
    fn path(&self) -> Vec<Element> {
        self.open.iter().map(|(element, _)| *element).collect()
    }

    fn begin(&mut self) {
        use Element::{Collection, Multistatus, Prop, Propstat, ResourceType, Response};
        self.text.clear();
        match self.path().as_slice() {
            [Multistatus, Response] => {
                self.response = Resource::default();
                self.href = None;
            }
            [Multistatus, Response, Propstat] => {
                self.found = Resource::default();
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
                self.found.is_collection = true;
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
        use Element::{
            Etag, Href, Length, Modified, Multistatus, Prop, Propstat, Response, Status,
        };
        let path = self.path();
        let text = std::mem::take(&mut self.text);
        let text = text.trim();
        match path.as_slice() {
            [Multistatus, Response] => self.responded()?,
            [Multistatus, Response, Href] => self.href = Some(text.to_owned()),
            [Multistatus, Response, Propstat] => self.take_found(),
            [Multistatus, Response, Propstat, Status] => {
                // HTTP/1.1 200 OK
                self.refused = text.split_ascii_whitespace().nth(1) != Some("200");
            }
            [Multistatus, Response, Propstat, Prop, property] => match property {
                Length => self.found.size = number(text),
                Modified => self.found.modified = Some(text.to_owned()),
                Etag => self.found.etag = Some(text.to_owned()),
                _ => {}
            },
            _ => {}
        }
        let (_, outside) = self.open.pop().ok_or(MultistatusError::Malformed)?;
        self.names.truncate(outside);
        Ok(())
    }

    /// Properties that the server has count, those that it has not do not.
    fn take_found(&mut self) {
        let found = std::mem::take(&mut self.found);
        if self.refused {
            return;
        }
        let response = &mut self.response;
        response.is_collection |= found.is_collection;
        response.size = found.size.or(response.size);
        response.modified = found.modified.or_else(|| response.modified.take());
        response.etag = found.etag.or_else(|| response.etag.take());
    }

    fn responded(&mut self) -> Result<(), MultistatusError> {
        let mut resource = std::mem::take(&mut self.response);
        let Some(path) = self.href.take().and_then(|href| path_of(&href)) else {
            return Ok(());
        };
        if self.resources.len() >= MOST_RESOURCES {
            return Err(MultistatusError::TooMany);
        }
        resource.path = path;
        self.resources.push(resource);
        Ok(())
    }

    fn finish(self) -> Result<Vec<Resource>, MultistatusError> {
        match (self.seen, self.open.is_empty()) {
            (true, true) => Ok(self.resources),
            (false, _) => Err(MultistatusError::Other),
            (true, false) => Err(MultistatusError::Malformed),
        }
    }
}

/// The parts of the path of an href, which is a path or a whole URL (RFC 4918 §8.3).
fn path_of(href: &str) -> Option<Vec<Vec<u8>>> {
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
    let mut parts = target::segments(path);
    if parts.last().is_some_and(Vec::is_empty) {
        parts.pop();
    }
    Some(parts)
}

#[cfg(test)]
mod tests;
