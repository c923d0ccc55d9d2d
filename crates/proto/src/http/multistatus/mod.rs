//! The 207 response to PROPFIND (RFC 4918 §9.1, §13): resources of a WebDAV server.

mod members;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::content_range::parse_number;
use super::date;
use crate::listing::{EntryKind, ListedEntry};

pub use members::DavListing;

/// Body of a PROPFIND request for the properties that [`parse`] reads.
pub const PROPFIND_BODY: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\
<propfind xmlns=\"DAV:\"><prop><resourcetype/><getcontentlength/><getlastmodified/><getetag/></prop></propfind>";

/// Most resources in one response.
pub const MAX_RESOURCES: usize = 200_000;
/// Largest response, bytes.
pub const MAX_BODY: usize = 128 << 20;
/// Deepest nesting of XML elements.
const MAX_DEPTH: usize = 64;
/// Longest text of a property, bytes. It has room for a path of 4096 bytes, all of them percent-encoded.
const MAX_TEXT: usize = 16 << 10;
/// Most namespace declarations in scope, and most attributes of an element.
const MAX_NAMESPACES: usize = 256;

/// Error in a response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MultistatusError {
    /// The XML is not well-formed, or has a document type declaration, which WebDAV does not use.
    #[error("it is not valid XML")]
    Malformed,
    /// The document is no multistatus.
    #[error("it is not a WebDAV multistatus document")]
    NotMultistatus,
    /// Elements are nested too deeply, too large, or have too many namespaces.
    #[error("its elements are too large or nested too deeply")]
    TooComplex,
    /// The response exceeds [`MAX_RESOURCES`] or [`MAX_BODY`].
    #[error("it lists more than {MAX_RESOURCES} resources")]
    TooMany,
}

/// Properties of one resource in a response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DavResource {
    /// Text of its `href`, not decoded. Empty if it has none.
    pub href: String,
    /// Whether it is a collection (directory) or not, by its `resourcetype`, else `iscollection`. `None`: the server does not tell.
    pub kind: Option<EntryKind>,
    /// Size, bytes.
    pub size: Option<u64>,
    /// Text of `getlastmodified`.
    pub modified: Option<String>,
    /// Text of `getetag`, including quotes.
    pub etag: Option<String>,
    /// The server refused to describe the resource, or answers for something else (RFC 4918 §13: a `status` of the response).
    pub is_refused: bool,
}

impl DavResource {
    /// The resource as a directory entry with this name. `None` if nothing shows what it is: it has neither a
    /// `resourcetype` nor the length of a file.
    pub fn to_entry(&self, name: &[u8]) -> Option<ListedEntry> {
        let file = self.size.map(|_| EntryKind::File);
        let kind = self.kind.or(file).filter(|_| !self.is_refused)?;
        let is_file = kind == EntryKind::File;
        let strong = self.etag.clone().filter(|etag| is_strong_etag(etag));
        Some(ListedEntry {
            size: self.size.filter(|_| is_file),
            modified: self.modified.as_deref().and_then(date::parse),
            version: strong.filter(|_| is_file),
            ..ListedEntry::new(name, kind)
        })
    }
}

/// Whether an entity tag is strong: representations with the same strong tag are identical byte for byte
/// (RFC 9110 §8.8.3).
pub fn is_strong_etag(etag: &str) -> bool {
    let inner = etag.strip_prefix('"').and_then(|e| e.strip_suffix('"'));
    inner.is_some_and(|inner| {
        inner
            .bytes()
            .all(|b| b == 0x21 || (0x23..=0x7e).contains(&b))
    })
}

/// Parses the body of a 207 response.
///
/// # Errors
/// See [`MultistatusError`].
pub fn parse(body: &[u8]) -> Result<Vec<DavResource>, MultistatusError> {
    if body.len() > MAX_BODY {
        return Err(MultistatusError::TooMany);
    }
    // A name with other bytes is not understood; the others are.
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
            // Document types can define entities that expand without bound.
            Event::DocType(_) => return Err(MultistatusError::Malformed),
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
            Event::Eof => return document.finish(),
        }
    }
}

/// The predefined entities (XML 1.0 §4.6).
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

/// Elements of WebDAV. All others are [`DavElement::Other`], and their content is ignored.
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
    /// `1` or `0`, of an older draft. XRootD tells of files only so.
    IsCollection,
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
            "iscollection" => Self::IsCollection,
            "getcontentlength" => Self::Length,
            "getlastmodified" => Self::Modified,
            "getetag" => Self::Etag,
            _ => Self::Other,
        }
    }
}

/// Parser of a multistatus document.
#[derive(Default)]
struct MultistatusParser {
    /// Open elements, each with the number of namespace declarations outside it.
    open: Vec<(DavElement, usize)>,
    /// Declared prefixes, innermost last, and whether each stands for `DAV:`.
    namespaces: Vec<(String, bool)>,
    text: String,
    has_root: bool,
    resources: Vec<DavResource>,
    /// Properties of the current `response` element.
    response: DavResource,
    hrefs: Vec<String>,
    /// Properties of the current `propstat` element.
    propstat: DavResource,
}

impl MultistatusParser {
    fn start(&mut self, start: &BytesStart<'_>) -> Result<(), MultistatusError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(MultistatusError::TooComplex);
        }
        let outside = self.namespaces.len();
        // The check for duplicate attributes takes quadratic time and is not needed here.
        for (n, attribute) in start.attributes().with_checks(false).enumerate() {
            if n >= MAX_NAMESPACES || self.namespaces.len() >= MAX_NAMESPACES {
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
        // The innermost declaration of a prefix is in force.
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

    /// The open elements, outermost first.
    fn path(&self) -> Vec<DavElement> {
        self.open.iter().map(|(element, _)| *element).collect()
    }

    fn on_element_open(&mut self) {
        use DavElement::{Collection, Multistatus, Prop, Propstat, ResourceType, Response};
        self.text.clear();
        match self.path().as_slice() {
            [Multistatus, Response] => {
                self.response = DavResource::default();
                self.hrefs.clear();
            }
            [Multistatus, Response, Propstat] => self.propstat = DavResource::default(),
            [Multistatus, Response, Propstat, Prop, ResourceType] => {
                self.propstat.kind = Some(EntryKind::File);
            }
            [
                Multistatus,
                Response,
                Propstat,
                Prop,
                ResourceType,
                Collection,
            ] => {
                self.propstat.kind = Some(EntryKind::Dir);
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str) -> Result<(), MultistatusError> {
        // Text outside a `response` has no meaning and is not stored.
        if self.open.len() < 3 {
            return Ok(());
        }
        if self.text.len() + text.len() > MAX_TEXT {
            return Err(MultistatusError::TooComplex);
        }
        self.text.push_str(text);
        Ok(())
    }

    fn end(&mut self) -> Result<(), MultistatusError> {
        use DavElement::{
            Etag, Href, IsCollection, Length, Modified, Multistatus, Prop, Propstat, Response,
            Status,
        };
        let path = self.path();
        let text = std::mem::take(&mut self.text);
        let text = text.trim();
        match path.as_slice() {
            // `path` still includes the element that ends here.
            [Multistatus, Response] => self.finish_response()?,
            [Multistatus, Response, Href] => self.add_href(text)?,
            [Multistatus, Response, Status] => self.response.is_refused = !is_success(text),
            [Multistatus, Response, Propstat] => self.finish_propstat(),
            [Multistatus, Response, Propstat, Status] => {
                self.propstat.is_refused = !is_success(text);
            }
            [Multistatus, Response, Propstat, Prop, property] => match property {
                Length => self.propstat.size = parse_number(text),
                Modified => self.propstat.modified = Some(text.to_owned()),
                Etag => self.propstat.etag = Some(text.to_owned()),
                // Where `resourcetype` says nothing.
                IsCollection if self.propstat.kind.is_none() => {
                    self.propstat.kind = match text {
                        "0" => Some(EntryKind::File),
                        "1" => Some(EntryKind::Dir),
                        _ => None,
                    }
                }
                _ => {}
            },
            _ => {}
        }
        let (_, outside) = self.open.pop().ok_or(MultistatusError::Malformed)?;
        self.namespaces.truncate(outside);
        Ok(())
    }

    fn add_href(&mut self, text: &str) -> Result<(), MultistatusError> {
        // Only the refusal of several resources names more than one (RFC 4918 §14.24).
        if self.resources.len() + self.hrefs.len() >= MAX_RESOURCES {
            return Err(MultistatusError::TooMany);
        }
        self.hrefs.push(text.to_owned());
        Ok(())
    }

    /// Applies the properties of a `propstat`, if they were found.
    fn finish_propstat(&mut self) {
        let found = std::mem::take(&mut self.propstat);
        if found.is_refused {
            return;
        }
        let response = &mut self.response;
        // A response may have several such elements; their properties are merged.
        response.kind = found.kind.or(response.kind);
        response.size = found.size.or(response.size);
        response.modified = found.modified.or_else(|| response.modified.take());
        response.etag = found.etag.or_else(|| response.etag.take());
    }

    fn finish_response(&mut self) -> Result<(), MultistatusError> {
        if self.hrefs.is_empty() {
            // It describes something, though nobody knows what.
            self.add_href("")?;
        }
        let described = std::mem::take(&mut self.response);
        for href in self.hrefs.drain(..) {
            self.resources.push(DavResource {
                href,
                ..described.clone()
            });
        }
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

/// Whether a status line (`HTTP/1.1 200 OK`) reports success.
fn is_success(line: &str) -> bool {
    let status = line.split_ascii_whitespace().nth(1);
    let status = status
        .filter(|status| status.len() == 3)
        .and_then(parse_number);
    status.is_some_and(|status| matches!(status, 200..=299))
}

#[cfg(test)]
mod tests;
