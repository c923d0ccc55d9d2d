//! Making proxy certificates (RFC 3820 §3).

use std::time::{Duration, SystemTime};

use openssl::asn1::{Asn1Integer, Asn1Object, Asn1OctetString};
use openssl::bn::BigNum;
use openssl::error::ErrorStack;
use openssl::hash::{MessageDigest, hash};
use openssl::nid::Nid;
use openssl::pkey::{HasPublic, PKeyRef};
use openssl::x509::extension::KeyUsage;
use openssl::x509::{X509, X509Builder, X509Extension, X509KeyUsage, X509Name, X509Ref};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{ProxyError, ProxyOptions, step};
use crate::x509::credential::CertifiedKey;
use crate::x509::der::{self, OBJECT_IDENTIFIER, SEQUENCE, element};
use crate::x509::proxy::{
    CertificateRole, DRAFT_INFORMATION, INDEPENDENT, INHERIT_ALL, LIMITED, ProxyKind, ProxyRole,
    ProxyStyle, RFC_INFORMATION, role,
};
use crate::x509::time::{certificate_time, system_time};

/// A proxy begins this much earlier, because clocks differ.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(300);

/// Signs a proxy of `issuer` for a public key.
pub(super) fn sign<T: HasPublic>(
    issuer: &CertifiedKey,
    key: &PKeyRef<T>,
    options: &ProxyOptions,
) -> Result<X509, ProxyError> {
    let style = check_issuer(issuer, options)?;
    let now = SystemTime::now();
    let start = now - CLOCK_DIFFERENCE;
    let start = system_time(issuer.leaf().not_before()).map_or(start, |other| start.max(other));
    let last = issuer.expires();
    if last <= now {
        return Err(ProxyError::Invalid(format!(
            "{} has expired: renew it before you make a proxy of it",
            issuer.subject()
        )));
    }
    let end = now
        .checked_add(options.valid)
        .map_or(last, |end| end.min(last));
    let usages = extended_usages(issuer.leaf());
    let build = || {
        let serial = serial(key)?;
        let mut builder = X509::builder()?;
        builder.set_version(2)?;
        builder.set_serial_number(&*Asn1Integer::from_bn(&serial)?)?;
        builder.set_issuer_name(issuer.leaf().subject_name())?;
        let last = match (style, options.kind) {
            (ProxyStyle::Legacy, ProxyKind::Limited) => "limited proxy".to_owned(),
            (ProxyStyle::Legacy, _) => "proxy".to_owned(),
            _ => serial.to_dec_str()?.to_string(),
        };
        builder.set_subject_name(&*subject(issuer.leaf(), &last)?)?;
        builder.set_not_before(&*certificate_time(start)?)?;
        builder.set_not_after(&*certificate_time(end)?)?;
        builder.set_pubkey(key)?;
        append_extensions(&mut builder, issuer.leaf(), style, options)?;
        if let Some(der) = &usages {
            builder.append_extension(extension("2.5.29.37", false, der)?)?;
        }
        builder.sign(issuer.key(), MessageDigest::sha256())?;
        Ok(builder.build())
    };
    build().map_err(step("sign a proxy"))
}

/// Checks that the issuer may make this proxy; the form of the proxy.
fn check_issuer(issuer: &CertifiedKey, options: &ProxyOptions) -> Result<ProxyStyle, ProxyError> {
    let refused = |problem: &str| {
        Err(ProxyError::Invalid(format!(
            "{} {problem}",
            issuer.subject()
        )))
    };
    let above = match role(issuer.leaf()) {
        Err(problem) => return refused(&problem),
        Ok(CertificateRole::Authority) => {
            return refused("is a certificate authority, which makes no proxies");
        }
        Ok(CertificateRole::EndEntity) => None,
        Ok(CertificateRole::Proxy(above)) => Some(above),
    };
    let usage = issuer.leaf().key_usage();
    if usage.is_some_and(|usage| !usage.contains(X509KeyUsage::DIGITAL_SIGNATURE)) {
        return refused("may not sign (key usage without digitalSignature)");
    }
    let Some(above) = above else {
        return Ok(ProxyStyle::Rfc);
    };
    if above.kind == ProxyKind::Limited && options.kind == ProxyKind::Full {
        return refused("is a limited proxy: only limited proxies can be made of it");
    }
    if has_no_path_left(issuer, above) {
        return refused("is a proxy of which no further proxies may be made (path length)");
    }
    if above.style == ProxyStyle::Legacy
        && (options.kind == ProxyKind::Independent || options.path_length.is_some())
    {
        return refused("is a legacy proxy, below which is no path length and no independence");
    }
    Ok(above.style)
}

/// Whether a path length of the issuer, or of a proxy above it, is used up.
fn has_no_path_left(issuer: &CertifiedKey, leaf: ProxyRole) -> bool {
    let above = issuer
        .chain()
        .iter()
        .map_while(|certificate| match role(certificate) {
            Ok(CertificateRole::Proxy(proxy)) => Some(proxy),
            _ => None,
        });
    std::iter::once(leaf)
        .chain(above)
        .zip(0..)
        .any(|(proxy, below): (ProxyRole, u32)| {
            proxy.path_length.is_some_and(|length| length <= below)
        })
}

/// A number for one key: the same key never has two serial numbers, and two keys of one issuer share
/// one with a probability of 2^-61 (RFC 3820 §3.3 asks for unique ones).
fn serial<T: HasPublic>(key: &PKeyRef<T>) -> Result<BigNum, ErrorStack> {
    let digest = hash(MessageDigest::sha256(), &key.public_key_to_der()?)?;
    let mut bytes: [u8; 8] = digest.first_chunk().copied().unwrap_or([1; 8]);
    // Neither negative nor 0.
    bytes[0] = bytes[0] & 0x3f | 0x20;
    BigNum::from_slice(&bytes)
}

fn subject(issuer: &X509Ref, common_name: &str) -> Result<X509Name, ErrorStack> {
    let mut last = X509Name::builder()?;
    last.append_entry_by_nid(Nid::COMMONNAME, common_name)?;
    // Joined as DER: names whose parts have several attributes stay as they are.
    let parts = |name: Vec<u8>| der::read(&name).map_or(Vec::new(), |read| read.1.to_vec());
    let mut joined = parts(issuer.subject_name().to_der()?);
    joined.extend(parts(last.build().to_der()?));
    X509Name::from_der(&element(SEQUENCE, &joined))
}

fn append_extensions(
    builder: &mut X509Builder,
    issuer: &X509Ref,
    style: ProxyStyle,
    options: &ProxyOptions,
) -> Result<(), ErrorStack> {
    if style != ProxyStyle::Legacy {
        builder.append_extension(information(style, options.kind, options.path_length)?)?;
    }
    let bits = issuer
        .key_usage()
        .unwrap_or(X509KeyUsage::DIGITAL_SIGNATURE | X509KeyUsage::KEY_ENCIPHERMENT);
    let mut usage = KeyUsage::new();
    usage.critical().digital_signature();
    // A proxy neither signs certificates nor has non-repudiation (RFC 3820 §3.6).
    if bits.contains(X509KeyUsage::KEY_ENCIPHERMENT) {
        usage.key_encipherment();
    }
    if bits.contains(X509KeyUsage::DATA_ENCIPHERMENT) {
        usage.data_encipherment();
    }
    if bits.contains(X509KeyUsage::KEY_AGREEMENT) {
        usage.key_agreement();
    }
    builder.append_extension(usage.build()?)
}

/// The extension proxyCertInfo.
pub(super) fn information(
    style: ProxyStyle,
    kind: ProxyKind,
    path_length: Option<u32>,
) -> Result<X509Extension, ErrorStack> {
    let language = match kind {
        ProxyKind::Full => INHERIT_ALL,
        ProxyKind::Limited => LIMITED,
        ProxyKind::Independent => INDEPENDENT,
    };
    let policy = element(SEQUENCE, &element(OBJECT_IDENTIFIER, language));
    let length = path_length.map(der::integer);
    let (identifier, parts) = match style {
        ProxyStyle::Draft => {
            let length = length.map(|length| element(0xa1, &length));
            let parts = [policy, length.unwrap_or_default()];
            (DRAFT_INFORMATION, parts)
        }
        ProxyStyle::Rfc | ProxyStyle::Legacy => {
            let parts = [length.unwrap_or_default(), policy];
            (RFC_INFORMATION, parts)
        }
    };
    extension(identifier, true, &element(SEQUENCE, &parts.concat()))
}

fn extension(identifier: &str, critical: bool, der: &[u8]) -> Result<X509Extension, ErrorStack> {
    let object = Asn1Object::from_str(identifier)?;
    X509Extension::new_from_der(&object, critical, &*Asn1OctetString::new_from_bytes(der)?)
}

/// The issuer's extended key usages, DER.
fn extended_usages(issuer: &X509Ref) -> Option<Vec<u8>> {
    let der = issuer.to_der().ok()?;
    let (_, parsed) = X509Certificate::from_der(&der).ok()?;
    parsed
        .extensions()
        .iter()
        .find(|extension| extension.oid.to_id_string() == "2.5.29.37")
        .map(|extension| extension.value.to_vec())
}
