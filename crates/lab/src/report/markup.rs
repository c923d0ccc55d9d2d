//! Writing HTML and SVG so that no string from a results file can become markup.

/// Attributes of an element: name and value.
pub(super) type Attributes<'a> = &'a [(&'a str, &'a str)];

/// A document that grows: every text and attribute value that enters is escaped.
#[derive(Debug, Default)]
pub(super) struct Markup {
    out: String,
}

impl Markup {
    /// An element with children, which `fill` writes.
    pub(super) fn element(
        &mut self,
        tag: &str,
        attributes: Attributes<'_>,
        fill: impl FnOnce(&mut Self),
    ) {
        self.tag(tag, attributes);
        self.out.push('>');
        fill(self);
        self.out.push_str("</");
        self.out.push_str(tag);
        self.out.push('>');
    }

    /// An element that holds nothing but text.
    pub(super) fn leaf(&mut self, tag: &str, attributes: Attributes<'_>, text: &str) {
        self.element(tag, attributes, |inner| inner.text(text));
    }

    /// An element without content, such as `<path/>` or `<meta/>`.
    pub(super) fn void(&mut self, tag: &str, attributes: Attributes<'_>) {
        self.tag(tag, attributes);
        self.out.push_str("/>");
    }

    /// Text between tags.
    pub(super) fn text(&mut self, text: &str) {
        escape_into(&mut self.out, text);
    }

    /// Markup, style or script that is part of this program, or came out of another `Markup`.
    pub(super) fn trusted(&mut self, markup: &str) {
        self.out.push_str(markup);
    }

    /// The text.
    pub(super) fn finish(self) -> String {
        self.out
    }

    fn tag(&mut self, tag: &str, attributes: Attributes<'_>) {
        self.out.push('<');
        self.out.push_str(tag);
        for (name, value) in attributes {
            self.out.push(' ');
            self.out.push_str(name);
            self.out.push_str("=\"");
            escape_into(&mut self.out, value);
            self.out.push('"');
        }
    }
}

/// Escapes for text and for attribute values in either quote. Characters that XML 1.0 does not allow
/// (section 2.2) would make a whole SVG file unreadable; they become U+FFFD.
fn escape_into(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(character),
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => {
                out.push('\u{fffd}');
            }
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_and_attributes_cannot_end_what_they_are_in() {
        let mut markup = Markup::default();
        markup.element("p", &[("title", "\"><script>'")], |inner| {
            inner.text("</p><script>alert(1)</script>&");
        });
        assert_eq!(
            markup.finish(),
            "<p title=\"&quot;&gt;&lt;script&gt;&#39;\">\
             &lt;/p&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;</p>"
        );
    }

    #[test]
    fn characters_that_xml_forbids_are_replaced() {
        let mut markup = Markup::default();
        markup.text("a\u{0}b\u{8}c\u{ffff}d\te");
        assert_eq!(markup.finish(), "a\u{fffd}b\u{fffd}c\u{fffd}d\te");
    }

    #[test]
    fn elements_nest_and_close() {
        let mut markup = Markup::default();
        markup.element("svg", &[], |svg| {
            svg.void("path", &[("d", "M0 0")]);
            svg.leaf("text", &[], "x");
        });
        assert_eq!(
            markup.finish(),
            "<svg><path d=\"M0 0\"/><text>x</text></svg>"
        );
    }

    proptest! {
        #[test]
        fn no_text_brings_markup_of_its_own(text in ".*") {
            let mut markup = Markup::default();
            markup.text(&text);
            let written = markup.finish();
            prop_assert!(!written.contains(['<', '>', '"', '\'']));
        }
    }
}
