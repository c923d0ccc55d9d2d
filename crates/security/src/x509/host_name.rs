//! Whether a certificate names a host (RFC 6125, RFC 2818, and the older form CN=host/NAME).

use std::net::IpAddr;

use openssl::nid::Nid;
use openssl::x509::X509Ref;

/// Names of a certificate that count for hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct HostNames {
    /// Alternative names: DNS names, as written.
    dns: Vec<String>,
    /// Alternative names: addresses.
    addresses: Vec<IpAddr>,
    /// The certificate has an extension with alternative names, of whatever kind.
    has_alternatives: bool,
    /// The last CN.
    common_name: Option<String>,
}

impl HostNames {
    pub(super) fn of(certificate: &X509Ref) -> Self {
        let mut names = Self::default();
        if let Some(alternatives) = certificate.subject_alt_names() {
            names.has_alternatives = true;
            for name in &alternatives {
                if let Some(dns) = name.dnsname() {
                    names.dns.push(dns.to_owned());
                } else if let Some(bytes) = name.ipaddress() {
                    let address = match bytes.len() {
                        4 => <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok(),
                        16 => <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok(),
                        _ => None,
                    };
                    names.addresses.extend(address);
                }
            }
        }
        names.common_name = certificate
            .subject_name()
            .entries_by_nid(Nid::COMMONNAME)
            .last()
            .and_then(|entry| std::str::from_utf8(entry.data().as_slice()).ok())
            .map(str::to_owned);
        names
    }

    /// Whether `host`, a DNS name (in ASCII, RFC 5890 A-labels) or an address, is named. The CN counts
    /// only with `common_name`, and only without alternative names.
    pub(super) fn is_match(&self, host: &str, common_name: bool) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.addresses.contains(&address);
        }
        if self.has_alternatives {
            return self.dns.iter().any(|pattern| is_dns_match(pattern, host));
        }
        let named = self.common_host().filter(|_| common_name);
        named.is_some_and(|name| is_same_name(name, host))
    }

    /// The host that the CN names, where no alternative name is in its place: `NAME` or `host/NAME`.
    pub(super) fn common_host(&self) -> Option<&str> {
        let name = self
            .common_name
            .as_deref()
            .filter(|_| !self.has_alternatives)?;
        Some(name.strip_prefix("host/").unwrap_or(name))
    }

    /// The names, for messages.
    pub(super) fn describe(&self) -> String {
        let mut names = self.dns.clone();
        names.extend(self.addresses.iter().map(ToString::to_string));
        if !self.has_alternatives {
            names.extend(self.common_name.iter().map(|name| format!("CN={name}")));
        }
        if names.is_empty() {
            return "no host".to_owned();
        }
        names.join(", ")
    }
}

/// Compares a DNS name with a pattern, whose leftmost label may be `*` (RFC 6125 §6.4.3).
fn is_dns_match(pattern: &str, host: &str) -> bool {
    let Some(domain) = pattern.strip_prefix("*.") else {
        return is_same_name(pattern, host);
    };
    // A wildcard for a whole top-level domain is no name of anybody.
    let is_domain = domain.trim_end_matches('.').contains('.');
    host.split_once('.')
        .is_some_and(|(label, rest)| is_domain && !label.is_empty() && is_same_name(domain, rest))
}

/// Letter case and a final dot do not count. No empty name and no wildcard is the same as another.
fn is_same_name(name: &str, host: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let host = host.strip_suffix('.').unwrap_or(host);
    !name.is_empty() && !name.contains('*') && name.eq_ignore_ascii_case(host)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_pki::{TestAuthority, TestCertificate};

    fn names(subject: &str, alternatives: &[&str]) -> HostNames {
        let mut template = TestCertificate::new(subject);
        template.key = crate::test_pki::TestKey::P256;
        template.alternative_names = alternatives.iter().map(|&name| name.to_owned()).collect();
        let authority = TestAuthority::new("/O=Grid/CN=Test root");
        HostNames::of(authority.issue(&template).leaf())
    }

    /// The table of the peers (STRICT_RFC2818, globus-url-copy 10.12).
    #[test]
    fn the_common_name_counts_only_without_alternative_names() {
        for (subject, alternatives, accepted) in [
            ("/O=Grid/CN=anything", &["localhost"][..], true),
            ("/O=Grid/CN=localhost", &[], true),
            ("/O=Grid/CN=host\\/localhost", &[], true),
            ("/O=Grid/CN=ftp\\/localhost", &[], false),
            ("/O=Grid/CN=host\\/localhost", &["other"], false),
            ("/O=Grid/CN=localhost", &["127.0.0.1"], false),
            ("/O=Grid/CN=other", &["other"], false),
        ] {
            let names = names(subject, alternatives);
            assert_eq!(
                names.is_match("localhost", true),
                accepted,
                "{subject} {alternatives:?}"
            );
            assert_eq!(
                names.is_match("localhost", false),
                accepted && !alternatives.is_empty(),
                "the web's rules: {subject} {alternatives:?}"
            );
        }
    }

    #[test]
    fn a_wildcard_is_one_whole_label_on_the_left() {
        let names = names(
            "/CN=x",
            &[
                "*.example.org",
                "a.*.example.org",
                "f*.example.net",
                "*.org",
                "*",
            ],
        );
        for (host, accepted) in [
            ("ftp.example.org", true),
            ("FTP.Example.ORG", true),
            ("ftp.example.org.", true),
            ("example.org", false),
            (".example.org", false),
            ("a.b.example.org", false),
            ("foo.example.net", false),
            ("other.org", false),
            ("localhost", false),
        ] {
            assert_eq!(names.is_match(host, true), accepted, "{host}");
        }
    }

    #[test]
    fn addresses_are_compared_as_addresses() {
        let names = names("/CN=192.0.2.9", &["192.0.2.1", "2001:db8::1"]);
        assert!(names.is_match("192.0.2.1", false));
        assert!(names.is_match("2001:DB8:0::1", false));
        assert!(names.is_match("[2001:db8::1]", false));
        assert!(!names.is_match("192.0.2.9", true));
    }

    #[test]
    fn a_common_name_is_no_address() {
        assert!(!names("/CN=192.0.2.9", &[]).is_match("192.0.2.9", true));
    }

    proptest! {
        #[test]
        fn a_wildcard_matches_no_name_with_more_labels(label in "[a-z*.]{0,12}", host in "[a-z.]{1,20}") {
            if is_dns_match(&format!("*.{label}"), &host) {
                prop_assert_eq!(host.trim_end_matches('.').split('.').count(), label.trim_end_matches('.').split('.').count() + 1);
            }
        }
    }
}
