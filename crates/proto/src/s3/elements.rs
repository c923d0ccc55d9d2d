//! The elements of a small XML document, one after the other.

use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesStart, Event};

use super::documents::DocumentError;

/// Largest document, bytes: a page of 1000 keys of 1024 bytes, each percent-encoded, has 3 MiB of them.
pub(super) const MAX_DOCUMENT: usize = 16 << 20;
/// Deepest nesting of elements.
const MAX_DEPTH: usize = 16;
/// Longest text of an element, bytes.
const MAX_TEXT: usize = 16 << 10;

/// An event of an element. Names are without their namespace: servers differ in it.
pub(super) enum ElementEvent<'e> {
    /// It begins. The path has the names of the open elements, this one last.
    Begin(&'e [String]),
    /// It ends, with this text in it.
    End(&'e [String], &'e str),
}

/// Reads a document and reports its elements in order.
///
/// # Errors
/// See [`DocumentError`]; those of `visit`.
pub(super) fn read(
    body: &[u8],
    visit: &mut dyn FnMut(ElementEvent<'_>) -> Result<(), DocumentError>,
) -> Result<(), DocumentError> {
    if body.len() > MAX_DOCUMENT {
        return Err(DocumentError::TooLarge);
    }
    let text = std::str::from_utf8(body).map_err(|_| DocumentError::Malformed)?;
    let mut reader = Reader::from_str(text);
    let mut open = OpenElements::default();
    loop {
        match reader.read_event().map_err(|_| DocumentError::Malformed)? {
            Event::Start(start) => open.begin(&start, visit)?,
            Event::Empty(start) => {
                open.begin(&start, visit)?;
                open.end(visit)?;
            }
            Event::End(_) => open.end(visit)?,
            Event::Text(text) => open.text(&text.xml10_content())?,
            Event::CData(text) => open.text(&text.xml10_content())?,
            Event::GeneralRef(reference) => match reference.resolve_char_ref() {
                Ok(Some(c)) => open.text(c.encode_utf8(&mut [0; 4]))?,
                Ok(None) => {
                    let name = reference.into_inner();
                    open.text(resolve_xml_entity(&name).ok_or(DocumentError::Malformed)?)?;
                }
                Err(_) => return Err(DocumentError::Malformed),
            },
            // Document types can define entities that expand without bound.
            Event::DocType(_) => return Err(DocumentError::Malformed),
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
            Event::Eof => return open.finish(),
        }
    }
}

/// The elements that are open, and the text of the innermost one.
#[derive(Default)]
struct OpenElements {
    path: Vec<String>,
    text: String,
    has_root: bool,
}

impl OpenElements {
    fn begin(
        &mut self,
        start: &BytesStart<'_>,
        visit: &mut dyn FnMut(ElementEvent<'_>) -> Result<(), DocumentError>,
    ) -> Result<(), DocumentError> {
        if self.path.len() >= MAX_DEPTH {
            return Err(DocumentError::TooLarge);
        }
        if self.path.is_empty() && std::mem::replace(&mut self.has_root, true) {
            return Err(DocumentError::Malformed);
        }
        let name = start.local_name();
        let name: &str = name.as_ref();
        self.path.push(name.to_owned());
        self.text.clear();
        visit(ElementEvent::Begin(&self.path))
    }

    fn text(&mut self, text: &str) -> Result<(), DocumentError> {
        if self.text.len() + text.len() > MAX_TEXT {
            return Err(DocumentError::TooLarge);
        }
        self.text.push_str(text);
        Ok(())
    }

    fn end(
        &mut self,
        visit: &mut dyn FnMut(ElementEvent<'_>) -> Result<(), DocumentError>,
    ) -> Result<(), DocumentError> {
        visit(ElementEvent::End(&self.path, &self.text))?;
        self.text.clear();
        self.path.pop().ok_or(DocumentError::Malformed)?;
        Ok(())
    }

    fn finish(self) -> Result<(), DocumentError> {
        match self.has_root && self.path.is_empty() {
            true => Ok(()),
            false => Err(DocumentError::Malformed),
        }
    }
}
