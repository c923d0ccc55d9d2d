//! Name constraints of authorities (RFC 5280 §4.2.1.10), for the host that a CN names.
//!
//! OpenSSL applies them to alternative names, and to a CN that has the form of a DNS name with a dot. Grid certificates
//! without alternative names also name their hosts as `host/NAME` and by one label.

use openssl::x509::X509Ref;
use x509_parser::extensions::{GeneralName, GeneralSubtree, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::DistinguishedName;

/// Why one of these authorities, all those above a certificate, does not let it name `host`; `None`: all let it.
pub(super) fn refusal<'a>(
    authorities: impl IntoIterator<Item = &'a X509Ref>,
    host: &str,
) -> Option<String> {
    let mut refusing = authorities.into_iter();
    let authority = refusing.find(|authority| !permits(authority, host))?;
    let authority = DistinguishedName::of_subject(authority);
    Some(format!(
        "the name constraints of {authority} do not let it name {host}"
    ))
}

/// Whether the constraints of one authority permit a DNS name. Constraints that cannot be read permit none.
fn permits(authority: &X509Ref, host: &str) -> bool {
    let der = authority.to_der().unwrap_or_default();
    let Ok((_, parsed)) = X509Certificate::from_der(&der) else {
        return false;
    };
    let extensions = parsed.extensions().iter();
    let mut constraints =
        extensions.filter(|extension| extension.oid.to_id_string() == "2.5.29.30");
    constraints.all(|extension| match extension.parsed_extension() {
        ParsedExtension::NameConstraints(constraints) => {
            let mut permitted = dns(constraints.permitted_subtrees.as_deref()).peekable();
            let mut excluded = dns(constraints.excluded_subtrees.as_deref());
            (permitted.peek().is_none() || permitted.any(|base| is_within(base, host)))
                && !excluded.any(|base| is_within(base, host))
        }
        _ => false,
    })
}

fn dns<'a>(subtrees: Option<&'a [GeneralSubtree<'a>]>) -> impl Iterator<Item = &'a str> {
    let subtrees = subtrees.unwrap_or_default().iter();
    subtrees.filter_map(|subtree| match subtree.base {
        GeneralName::DNSName(name) => Some(name),
        _ => None,
    })
}

/// Whether a name is `base`, or has further labels on its left side. A base that begins with a dot needs one.
fn is_within(base: &str, name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).as_bytes();
    let (base, needs_dot) = (base.as_bytes(), !base.starts_with('.'));
    let Some(at) = name.len().checked_sub(base.len()) else {
        return false;
    };
    let (before, end) = name.split_at(at);
    let is_whole = base.is_empty() || before.is_empty() || !needs_dot || before.ends_with(b".");
    is_whole && end.eq_ignore_ascii_case(base)
}

#[cfg(test)]
mod tests {
    use super::is_within;

    #[test]
    fn a_name_is_within_its_own_domain_alone() {
        for (base, name, expected) in [
            ("good.example", "good.example", true),
            ("good.example", "FTP.Good.Example.", true),
            ("good.example", "bad-good.example", false),
            ("good.example", "example", false),
            (".good.example", "a.good.example", true),
            (".good.example", "good.example", false),
            ("", "localhost", true),
            ("good.example", "localhost", false),
        ] {
            assert_eq!(is_within(base, name), expected, "{base} {name}");
        }
    }
}
