//! Distinguished names in OpenSSL's one-line form.

use openssl::asn1::Asn1Object;
use openssl::nid::Nid;
use openssl::x509::{X509NameRef, X509Ref};

use super::der;

/// A distinguished name as one line: `/TYPE=value` in the order of the certificate, `+TYPE=value` for a further
/// attribute of one relative name (gridmaps, DCAU S, signing policies, logs). Values have `/` and `+` as `\/` and `\+`,
/// and bytes that are not printable ASCII as `\xHH`, as OpenSSL 3 writes them (X509_NAME_oneline).
///
/// Names that differ have texts that differ, which OpenSSL's do not: a backslash in a value is `\x5C`, strings of wide
/// characters are written in UTF-8, what is no text is `\#` and its DER, and identifiers are never shortened.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DistinguishedName(String);

impl DistinguishedName {
    /// From the one-line form.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Of an OpenSSL name.
    pub fn of(name: &X509NameRef) -> Self {
        let der = name.to_der().unwrap_or_default();
        let mut text = String::new();
        if write_name(&mut text, &der).is_none() {
            text = "/".to_owned();
            push_der(&mut text, &der);
        }
        Self(text)
    }

    /// Of a certificate: its subject.
    pub fn of_subject(certificate: &X509Ref) -> Self {
        Self::of(certificate.subject_name())
    }

    /// Of the signer that a certificate names.
    pub fn of_issuer(certificate: &X509Ref) -> Self {
        Self::of(certificate.issuer_name())
    }

    /// The one-line form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for DistinguishedName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether two names are the same (RFC 5280 §7.1: letter case and spaces of most string types do not
/// count).
pub(super) fn is_same(one: &X509NameRef, other: &X509NameRef) -> bool {
    one.try_cmp(other).is_ok_and(std::cmp::Ordering::is_eq)
}

/// Writes a name: a SEQUENCE of SETs of SEQUENCE { type, value } (RFC 5280 §4.1.2.4).
fn write_name(text: &mut String, der: &[u8]) -> Option<()> {
    let (_, mut names, _) = der::read(der)?;
    while !names.is_empty() {
        let (_, mut attributes, behind) = der::read(names)?;
        names = behind;
        let mut separator = '/';
        while !attributes.is_empty() {
            let (_, attribute, behind) = der::read(attributes)?;
            attributes = behind;
            let (_, kind, value) = der::read(attribute)?;
            text.push(separator);
            push_type(text, kind)?;
            text.push('=');
            push_value(text, value)?;
            separator = '+';
        }
    }
    Some(())
}

/// Appends the short name of an attribute type, else its object identifier.
fn push_type(text: &mut String, content: &[u8]) -> Option<()> {
    let identifier = x509_parser::asn1_rs::Oid::new(content.into()).to_id_string();
    let known = Asn1Object::from_str(&identifier).ok();
    let nid = known
        .map(|object| object.nid())
        .filter(|nid| *nid != Nid::UNDEF);
    match nid.and_then(|nid| nid.short_name().ok()) {
        Some(name) => text.push_str(name),
        None if identifier.is_empty() => return None,
        None => text.push_str(&identifier),
    }
    Some(())
}

/// Tags of strings (ITU-T X.680 §8.4).
mod tag {
    pub(super) const UTF8: u8 = 12;
    pub(super) const NUMERIC: u8 = 18;
    pub(super) const PRINTABLE: u8 = 19;
    pub(super) const TELETEX: u8 = 20;
    pub(super) const IA5: u8 = 22;
    pub(super) const VISIBLE: u8 = 26;
    pub(super) const UNIVERSAL: u8 = 28;
    pub(super) const BMP: u8 = 30;
}

/// Appends the value of an attribute, a whole element.
fn push_value(text: &mut String, element: &[u8]) -> Option<()> {
    let (tag, content, _) = der::read(element)?;
    let wide = |bytes: usize| {
        let number = |character: &[u8]| character.iter().fold(0, |all, b| all << 8 | u32::from(*b));
        let characters = content.chunks(bytes);
        let decoded = characters.map(|character| char::from_u32(number(character)));
        decoded.collect::<Option<String>>().map(String::into_bytes)
    };
    let bytes = match tag {
        tag::UTF8 if std::str::from_utf8(content).is_ok() => Some(content.to_vec()),
        // One byte a character. What could be UTF-8 as well stands for other characters there.
        tag::NUMERIC | tag::PRINTABLE | tag::TELETEX | tag::IA5 | tag::VISIBLE => {
            let is_ambiguous = !content.is_ascii() && std::str::from_utf8(content).is_ok();
            (!is_ambiguous).then(|| content.to_vec())
        }
        tag::BMP if content.len() % 2 == 0 => wide(2),
        tag::UNIVERSAL if content.len() % 4 == 0 => wide(4),
        _ => None,
    };
    let Some(bytes) = bytes else {
        push_der(text, element);
        return Some(());
    };
    for byte in bytes {
        match byte {
            b'/' | b'+' => text.extend(['\\', char::from(byte)]),
            b'\\' => text.push_str(BACKSLASH),
            other => push_printable(text, other),
        }
    }
    Some(())
}

/// A backslash that belongs to a value.
pub(crate) const BACKSLASH: &str = "\\x5C";

/// Appends DER that is no text.
fn push_der(text: &mut String, der: &[u8]) {
    text.push_str("\\#");
    for byte in der {
        push_hexadecimal(text, *byte);
    }
}

fn push_hexadecimal(text: &mut String, byte: u8) {
    for digit in [byte >> 4, byte & 15] {
        text.push(char::from(b"0123456789ABCDEF"[usize::from(digit)]));
    }
}

/// Appends a byte, as `\xHH` if it is not printable ASCII.
pub(crate) fn push_printable(text: &mut String, byte: u8) {
    if (b' '..=b'~').contains(&byte) {
        text.push(char::from(byte));
        return;
    }
    text.push_str("\\x");
    push_hexadecimal(text, byte);
}

/// A name's text for comparisons, in one spelling: letter case of attribute types does not count, `Email` and `E` are
/// `emailAddress`, `USERID` is `UID`, and a backslash that begins none of the sequences of [`DistinguishedName`] is one of
/// the value, as OpenSSL writes it. Values stay as they are otherwise.
pub(crate) fn normalize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (part, behind) = rest.split_at(part_length(rest));
        rest = behind;
        let kind = part.split_once('=').and_then(|(kind, value)| {
            let (separator, kind) = kind.split_at_checked(1)?;
            let is_type = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.';
            let is_part = matches!(separator, "/" | "+") && kind.bytes().all(is_type);
            is_part.then_some((separator, kind, value))
        });
        let Some((separator, kind, value)) = kind else {
            push_value_text(&mut out, part);
            continue;
        };
        out.push_str(separator);
        match kind.to_ascii_uppercase().as_str() {
            "EMAIL" | "E" => out.push_str("EMAILADDRESS"),
            "USERID" => out.push_str("UID"),
            other => out.push_str(other),
        }
        out.push('=');
        push_value_text(&mut out, value);
    }
    out
}

/// Appends the text of a value, with every backslash of the value itself as [`BACKSLASH`].
fn push_value_text(out: &mut String, value: &str) {
    let mut rest = value;
    while let Some((before, behind)) = rest.split_once('\\') {
        out.push_str(before);
        let is_hexadecimal = |digits: &str| digits.bytes().all(|b| b.is_ascii_hexdigit());
        let hexadecimal = behind.strip_prefix('x').and_then(|digits| digits.get(..2));
        rest = match hexadecimal.filter(|digits| is_hexadecimal(digits)) {
            Some(digits) => {
                out.push_str("\\x");
                out.push_str(&digits.to_ascii_uppercase());
                &behind[3..]
            }
            None if behind.starts_with(['/', '+', '#']) => {
                out.push('\\');
                out.push_str(&behind[..1]);
                &behind[1..]
            }
            None => {
                out.push_str(BACKSLASH);
                behind
            }
        };
    }
    out.push_str(rest);
}

/// Length of the first part of a name's text, up to the next `/` or `+` that no backslash precedes.
fn part_length(text: &str) -> usize {
    let mut previous = b'\\';
    let next = text.bytes().position(|byte| {
        let is_separator = matches!(byte, b'/' | b'+') && previous != b'\\';
        previous = byte;
        is_separator
    });
    next.unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use openssl::x509::X509Name;
    use proptest::prelude::*;

    use super::*;
    use crate::test_pki::name;

    fn text(written: &str) -> String {
        DistinguishedName::of(&name(written)).as_str().to_owned()
    }

    #[test]
    fn the_order_is_the_certificates() {
        assert_eq!(
            text("/C=CH/O=Grid/DC=org/CN=Ada Lovelace/emailAddress=ada@example.org/UID=ada"),
            "/C=CH/O=Grid/DC=org/CN=Ada Lovelace/emailAddress=ada@example.org/UID=ada"
        );
    }

    #[test]
    fn separators_in_values_have_a_backslash() {
        assert_eq!(
            text("/O=Grid/CN=host\\/localhost"),
            "/O=Grid/CN=host\\/localhost"
        );
        assert_eq!(text("/CN=a+b=c"), "/CN=a\\+b=c");
    }

    #[test]
    fn bytes_outside_ascii_are_hexadecimal() {
        assert_eq!(text("/CN=J\u{f6}rg\u{7f}"), "/CN=J\\xC3\\xB6rg\\x7F");
    }

    #[test]
    fn an_unknown_type_is_its_object_identifier() {
        assert_eq!(text("/1.2.3.4.5=x/CN=y"), "/1.2.3.4.5=x/CN=y");
    }

    /// Object identifier (content), tag, content.
    type Attribute<'a> = (&'a [u8], u8, &'a [u8]);

    /// A name of relative names, each with its attributes.
    fn built(names: &[&[Attribute<'_>]]) -> X509Name {
        let attribute = |(kind, tag, content): &Attribute<'_>| {
            let kind = der::element(der::OBJECT_IDENTIFIER, kind);
            der::element(der::SEQUENCE, &[kind, der::element(*tag, content)].concat())
        };
        let name = |attributes: &&[Attribute<'_>]| {
            let attributes: Vec<Vec<u8>> = attributes.iter().map(attribute).collect();
            der::element(0x31, &attributes.concat())
        };
        let names: Vec<Vec<u8>> = names.iter().map(name).collect();
        X509Name::from_der(&der::element(der::SEQUENCE, &names.concat())).unwrap()
    }

    const CN: &[u8] = &[0x55, 4, 3];
    const O: &[u8] = &[0x55, 4, 10];

    #[test]
    fn different_names_have_different_texts() {
        // Sub-identifiers beyond the 80 characters that OpenSSL's short form of an identifier has.
        let long = |last: u8| [&[0x2a][..], &[0xff, 0x7f].repeat(40), &[last]].concat();
        let (one, other) = (long(1), long(2));
        let names = [
            built(&[&[(O, 12, b"x/CN=y")]]),
            built(&[&[(O, 12, b"x\\")], &[(CN, 12, b"y")]]),
            built(&[&[(O, 12, b"x")], &[(CN, 12, b"y")]]),
            built(&[&[(O, 12, b"x"), (CN, 12, b"y")]]),
            built(&[&[(O, 12, b"x+CN=y")]]),
            built(&[&[(O, 12, b"x\\+CN=y")]]),
            built(&[&[(CN, 12, b"\xc3\xb6")]]),
            built(&[&[(CN, 20, b"\xc3\xb6")]]),
            built(&[&[(CN, 12, b"\\xC3\\xB6")]]),
            built(&[&[(CN, 12, b"\\x5CxC3")]]),
            built(&[&[(CN, 12, b"\0A")]]),
            built(&[&[(CN, 30, b"\0A")]]),
            built(&[&[(CN, 3, b"\0A")]]),
            built(&[&[(CN, 12, b"\\#0303004141")]]),
            built(&[&[(&one, 12, b"x")]]),
            built(&[&[(&other, 12, b"x")]]),
        ];
        let texts: Vec<String> = names.iter().map(|n| DistinguishedName::of(n).0).collect();
        for (place, text) in texts.iter().enumerate() {
            assert!(!texts[..place].contains(text), "{text}");
            let normal = normalize(text);
            let others = texts[..place].iter().map(|other| normalize(other));
            assert!(others.into_iter().all(|other| other != normal), "{text}");
        }
        assert_eq!(texts[1], "/O=x\\x5C/CN=y");
        assert_eq!(texts[3], "/O=x+CN=y");
    }

    #[test]
    fn wide_characters_are_those_of_utf_8() {
        let wide = [(CN, 30, &b"\0A\0\xf6"[..]), (O, 28, b"\0\x01\xf6\x00")];
        let text = DistinguishedName::of(&built(&[&wide[..1], &wide[1..]])).0;
        assert_eq!(text, "/CN=A\\xC3\\xB6/O=\\xF0\\x9F\\x98\\x80");
        // Old authorities have Latin-1 in their strings, which gridmaps have as OpenSSL writes it.
        let teletex = DistinguishedName::of(&built(&[&[(CN, 20, b"J\xf6rg")]]));
        assert_eq!(teletex.as_str(), "/CN=J\\xF6rg");
    }

    #[test]
    fn a_backslash_that_openssl_writes_is_one_of_the_value() {
        assert_eq!(text("/O=Grid/CN=LAB\\\\ada"), "/O=Grid/CN=LAB\\x5Cada");
        for written in ["/O=Grid/CN=LAB\\ada", "/O=Grid/CN=LAB\\x5cada"] {
            assert_eq!(normalize(written), "/O=Grid/CN=LAB\\x5Cada");
        }
        assert_eq!(
            normalize("/O=a\\/b+email=c\\"),
            "/O=a\\/b+EMAILADDRESS=c\\x5C"
        );
    }

    #[test]
    fn the_empty_name_is_empty() {
        let name = X509Name::builder().unwrap().build();
        assert_eq!(DistinguishedName::of(&name).as_str(), "");
    }

    #[test]
    fn types_have_one_spelling() {
        assert_eq!(
            normalize("/c=CH/o=Grid/Email=a@x/USERID=Ada"),
            normalize("/C=CH/O=Grid/emailAddress=a@x/UID=Ada")
        );
        assert_eq!(normalize("/E=a"), "/EMAILADDRESS=a");
        assert_ne!(normalize("/CN=Ada"), normalize("/CN=ada"));
        assert_eq!(normalize("/CN=host\\/Email=x"), "/CN=host\\/Email=x");
        assert_eq!(normalize("no name"), "no name");
    }

    proptest! {
        #[test]
        fn normalizing_never_panics_and_is_stable(text in "[/+\\\\=#x5a-zE é]{0,40}") {
            let once = normalize(&text);
            prop_assert_eq!(normalize(&once), once);
        }

        #[test]
        fn every_name_is_printable_ascii(value in "\\PC{1,60}") {
            let mut builder = X509Name::builder().unwrap();
            // OpenSSL's longest common name has 64 characters.
            builder.append_entry_by_nid(Nid::COMMONNAME, &value).unwrap();
            let text = DistinguishedName::of(&builder.build()).to_string();
            prop_assert!(text.starts_with("/CN="));
            prop_assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        }
    }
}
