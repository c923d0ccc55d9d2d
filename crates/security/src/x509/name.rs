//! Distinguished names in OpenSSL's one-line form.

use openssl::nid::Nid;
use openssl::x509::{X509NameEntryRef, X509NameRef, X509Ref};

/// A distinguished name as one line: `/TYPE=value` in the order of the certificate (gridmaps, DCAU
/// S, signing policies, logs). Values have `/` and `+` as `\/` and `\+`, and bytes that are not
/// printable ASCII as `\xHH`, as OpenSSL 3 writes them (X509_NAME_oneline).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DistinguishedName(String);

impl DistinguishedName {
    /// From the one-line form.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Of an OpenSSL name.
    pub fn of(name: &X509NameRef) -> Self {
        let mut text = String::new();
        for entry in name.entries() {
            write_entry(&mut text, entry);
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

fn write_entry(text: &mut String, entry: &X509NameEntryRef) {
    text.push('/');
    let object = entry.object();
    match object.nid() {
        Nid::UNDEF => text.push_str(&object.to_string()),
        nid => match nid.short_name() {
            Ok(name) => text.push_str(name),
            Err(_) => text.push_str(&object.to_string()),
        },
    }
    text.push('=');
    for &byte in entry.data().as_slice() {
        if matches!(byte, b'/' | b'+') {
            text.push('\\');
        }
        push_printable(text, byte);
    }
}

/// Appends a byte, as `\xHH` if it is not printable ASCII.
pub(crate) fn push_printable(text: &mut String, byte: u8) {
    if (b' '..=b'~').contains(&byte) {
        text.push(char::from(byte));
        return;
    }
    text.push_str("\\x");
    for digit in [byte >> 4, byte & 15] {
        text.push(char::from(b"0123456789ABCDEF"[usize::from(digit)]));
    }
}

/// A name's text with attribute types in one spelling, for comparisons: letter case does not count,
/// `Email` and `E` are `emailAddress`, `USERID` is `UID`. Values stay as they are.
pub(crate) fn normalize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (part, behind) = rest.split_at(part_length(rest));
        rest = behind;
        let kind = part
            .strip_prefix('/')
            .and_then(|part| part.split_once('='))
            .filter(|(kind, _)| {
                kind.bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
            });
        let Some((kind, value)) = kind else {
            out.push_str(part);
            continue;
        };
        out.push('/');
        match kind.to_ascii_uppercase().as_str() {
            "EMAIL" | "E" => out.push_str("EMAILADDRESS"),
            "USERID" => out.push_str("UID"),
            other => out.push_str(other),
        }
        out.push('=');
        out.push_str(value);
    }
    out
}

/// Length of the first part of a name's text, up to the next `/` without a backslash.
fn part_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'/' if index > 0 => return index,
            _ => {}
        }
    }
    text.len()
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
        fn normalizing_never_panics_and_is_stable(text in "[/\\\\=a-zE é]{0,40}") {
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
