//! The role of a certificate: authority, end entity, or proxy of which kind.

use openssl::nid::Nid;
use openssl::x509::{X509Name, X509NameRef, X509Ref};
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::ProxyKind;
use crate::x509::der::{self, OBJECT_IDENTIFIER, SEQUENCE};
use crate::x509::name::DistinguishedName;

/// proxyCertInfo (RFC 3820 §3.8).
pub(in crate::x509) const RFC_INFORMATION: &str = "1.3.6.1.5.5.7.1.14";
/// proxyCertInfo of the drafts before RFC 3820.
pub(in crate::x509) const DRAFT_INFORMATION: &str = "1.3.6.1.4.1.3536.1.222";

/// Content of the object identifier id-ppl-inheritAll, 1.3.6.1.5.5.7.21.1.
pub(in crate::x509) const INHERIT_ALL: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x15, 1];
/// id-ppl-independent, 1.3.6.1.5.5.7.21.2.
pub(in crate::x509) const INDEPENDENT: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x15, 2];
/// Limited proxy of the Globus toolkit, 1.3.6.1.4.1.3536.1.1.1.9.
pub(in crate::x509) const LIMITED: &[u8] = &[0x2b, 6, 1, 4, 1, 0x9b, 0x50, 1, 1, 1, 9];

/// Critical extensions that a proxy may have besides proxyCertInfo: basicConstraints, keyUsage,
/// extKeyUsage, nsCertType, subjectKeyIdentifier, authorityKeyIdentifier.
const KNOWN_EXTENSIONS: [&str; 6] = [
    "2.5.29.19",
    "2.5.29.15",
    "2.5.29.37",
    "2.16.840.1.113730.1.1",
    "2.5.29.14",
    "2.5.29.35",
];
/// subjectAltName and issuerAltName, which a proxy must not have (RFC 3820 §3.2, §3.5).
const ALTERNATIVE_NAMES: [&str; 2] = ["2.5.29.17", "2.5.29.18"];

/// Role of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::x509) enum CertificateRole {
    /// basicConstraints has CA.
    Authority,
    /// Neither authority nor proxy.
    EndEntity,
    /// A proxy.
    Proxy(ProxyRole),
}

/// Properties of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::x509) struct ProxyRole {
    /// Form; a chain has only one.
    pub(in crate::x509) style: ProxyStyle,
    /// Kind.
    pub(in crate::x509) kind: ProxyKind,
    /// Number of proxies that may follow.
    pub(in crate::x509) path_length: Option<u32>,
}

/// Form of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::x509) enum ProxyStyle {
    /// RFC 3820.
    Rfc,
    /// A draft before it.
    Draft,
    /// The last CN alone.
    Legacy,
}

impl std::fmt::Display for ProxyStyle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Rfc => "RFC 3820",
            Self::Draft => "draft",
            Self::Legacy => "legacy",
        })
    }
}

/// Role of a certificate (wire facts: Globus toolkit; RFC 3820 §4.1).
///
/// # Errors
/// The certificate cannot be read, or claims to be a proxy in a way that is refused.
pub(in crate::x509) fn role(certificate: &X509Ref) -> Result<CertificateRole, String> {
    let der = certificate
        .to_der()
        .map_err(|_| "cannot be encoded".to_owned())?;
    let (_, parsed) =
        X509Certificate::from_der(&der).map_err(|problem| format!("cannot be read: {problem}"))?;
    let mut authority = false;
    let mut information = None;
    for extension in parsed.extensions() {
        let identifier = extension.oid.to_id_string();
        match extension.parsed_extension() {
            ParsedExtension::BasicConstraints(basic) => authority |= basic.ca,
            ParsedExtension::ParseError { .. } if extension.critical => {
                return Err(format!("critical extension {identifier} cannot be read"));
            }
            _ => {}
        }
        let style = match identifier.as_str() {
            RFC_INFORMATION => ProxyStyle::Rfc,
            DRAFT_INFORMATION => ProxyStyle::Draft,
            _ => continue,
        };
        if information.is_some() {
            return Err("several proxyCertInfo extensions".to_owned());
        }
        if !extension.critical {
            return Err("proxyCertInfo is not critical".to_owned());
        }
        information = Some((style, extension.value));
    }
    let proxy = match information {
        Some(_) if authority => {
            return Err("a proxy that is an authority too (basicConstraints)".to_owned());
        }
        _ if authority => return Ok(CertificateRole::Authority),
        Some((style, value)) => read_information(style, value)?,
        None => match legacy_kind(certificate.subject_name()) {
            Some(kind) => ProxyRole {
                style: ProxyStyle::Legacy,
                kind,
                path_length: None,
            },
            None => return Ok(CertificateRole::EndEntity),
        },
    };
    for extension in parsed.extensions() {
        let identifier = extension.oid.to_id_string();
        let identifier = identifier.as_str();
        let known = KNOWN_EXTENSIONS.contains(&identifier)
            || [RFC_INFORMATION, DRAFT_INFORMATION].contains(&identifier);
        if extension.critical && !known {
            return Err(format!(
                "unknown critical extension {identifier} of a proxy"
            ));
        }
        if ALTERNATIVE_NAMES.contains(&identifier) {
            return Err("alternative name (subjectAltName or issuerAltName) of a proxy".to_owned());
        }
    }
    Ok(CertificateRole::Proxy(proxy))
}

/// The kind of a proxy that is known by its name alone.
fn legacy_kind(subject: &X509NameRef) -> Option<ProxyKind> {
    let last = subject.entries().last()?;
    if last.object().nid() != Nid::COMMONNAME {
        return None;
    }
    match last.data().as_slice() {
        b"proxy" => Some(ProxyKind::Full),
        b"limited proxy" => Some(ProxyKind::Limited),
        _ => None,
    }
}

/// Reads proxyCertInfo. RFC 3820: SEQUENCE { path length INTEGER OPTIONAL, policy }. The drafts: the
/// path length is behind the policy, tagged [1].
fn read_information(style: ProxyStyle, value: &[u8]) -> Result<ProxyRole, String> {
    let unreadable = || "proxyCertInfo cannot be read".to_owned();
    let Some((SEQUENCE, mut rest, [])) = der::read(value) else {
        return Err(unreadable());
    };
    let mut path_length = None;
    let mut policy = None;
    while !rest.is_empty() {
        let (tag, content, behind) = der::read(rest).ok_or_else(unreadable)?;
        let part = &rest[..rest.len() - behind.len()];
        rest = behind;
        let length = match (tag, style) {
            (SEQUENCE, _) if policy.is_none() => {
                policy = Some(content);
                continue;
            }
            (der::INTEGER, ProxyStyle::Rfc) if policy.is_none() => part,
            (0xa1, ProxyStyle::Draft) if policy.is_some() => content,
            _ => return Err(unreadable()),
        };
        if path_length.is_some() {
            return Err(unreadable());
        }
        path_length = Some(der::read_integer(length).ok_or_else(unreadable)?);
    }
    let Some((OBJECT_IDENTIFIER, language, text)) = policy.and_then(der::read) else {
        return Err(unreadable());
    };
    let kind = match language {
        INHERIT_ALL => ProxyKind::Full,
        LIMITED => ProxyKind::Limited,
        INDEPENDENT => ProxyKind::Independent,
        other => {
            let language = x509_parser::asn1_rs::Oid::new(other.into()).to_id_string();
            return Err(format!("restricted proxy (policy language {language})"));
        }
    };
    if !text.is_empty() {
        return Err("restricted proxy (it has a policy text)".to_owned());
    }
    Ok(ProxyRole {
        style,
        kind,
        path_length,
    })
}

/// The name of a proxy's issuer: its subject without the last CN. `None` if the last part of the
/// subject is no single CN.
pub(in crate::x509) fn name_above(subject: &X509NameRef) -> Option<X509Name> {
    let der = subject.to_der().ok()?;
    let (_, parts, _) = der::read(&der)?;
    let mut last = parts;
    let mut behind = parts;
    while !behind.is_empty() {
        last = behind;
        behind = der::read(behind)?.2;
    }
    // A relative name is a SET of SEQUENCE { type, value }; 2.5.4.3 is the common name.
    let (_, set, _) = der::read(last)?;
    let (_, attribute, others) = der::read(set)?;
    let (_, kind, _) = der::read(attribute)?;
    if !others.is_empty() || kind != [0x55, 4, 3] {
        return None;
    }
    let above = &parts[..parts.len() - last.len()];
    X509Name::from_der(&der::element(SEQUENCE, above)).ok()
}

/// The identity behind a chain, leaf first: the subject of the first certificate that is no
/// impersonation proxy. Where the chain ends before it, names of proxies are stripped.
pub(in crate::x509) fn identity<'a>(
    chain: impl IntoIterator<Item = &'a X509Ref>,
) -> DistinguishedName {
    let mut identity = DistinguishedName::from_text("");
    for certificate in chain {
        identity = DistinguishedName::of_subject(certificate);
        let impersonates = matches!(
            role(certificate),
            Ok(CertificateRole::Proxy(proxy)) if proxy.kind != ProxyKind::Independent
        );
        if !impersonates {
            return identity;
        }
        if let Some(above) = name_above(certificate.subject_name()) {
            identity = DistinguishedName::of(&above);
        }
    }
    identity
}
