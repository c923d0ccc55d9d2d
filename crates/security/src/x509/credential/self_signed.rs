//! Self-signed certificates.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use openssl::asn1::Asn1Integer;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{
    BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName, SubjectKeyIdentifier,
};
use openssl::x509::{X509, X509Name};

use crate::x509::time::certificate_time;

/// Longest common name (ub-common-name, RFC 5280 appendix A), characters.
const LONGEST_COMMON_NAME: usize = 64;

/// Makes a key and its certificate.
pub(super) fn make(names: &[String], valid: Duration) -> Result<(X509, PKey<Private>), ErrorStack> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
    let key = PKey::from_ec_key(EcKey::generate(&group)?)?;
    let common_name = names
        .first()
        .filter(|name| (1..=LONGEST_COMMON_NAME).contains(&name.len()))
        .map_or("longhaul", String::as_str);
    let mut subject = X509Name::builder()?;
    subject.append_entry_by_nid(Nid::COMMONNAME, common_name)?;
    let subject = subject.build();
    let mut serial = BigNum::new()?;
    serial.rand(127, MsbOption::ONE, false)?;
    // Clocks differ: it is valid from five minutes ago on.
    let now = SystemTime::now();
    let start = now - Duration::from_secs(300);
    let mut builder = X509::builder()?;
    builder.set_version(2)?;
    builder.set_serial_number(&*Asn1Integer::from_bn(&serial)?)?;
    builder.set_subject_name(&subject)?;
    builder.set_issuer_name(&subject)?;
    builder.set_not_before(&*certificate_time(start)?)?;
    builder.set_not_after(&*certificate_time(now.checked_add(valid).unwrap_or(now))?)?;
    builder.set_pubkey(&key)?;
    let context = builder.x509v3_context(None, None);
    let mut extensions = vec![
        BasicConstraints::new().critical().build()?,
        KeyUsage::new().critical().digital_signature().build()?,
        ExtendedKeyUsage::new()
            .server_auth()
            .client_auth()
            .build()?,
        SubjectKeyIdentifier::new().build(&context)?,
    ];
    if !names.is_empty() {
        let mut alternative = SubjectAlternativeName::new();
        for name in names {
            if name.parse::<IpAddr>().is_ok() {
                alternative.ip(name);
            } else {
                alternative.dns(name);
            }
        }
        extensions.push(alternative.build(&context)?);
    }
    for extension in extensions {
        builder.append_extension(extension)?;
    }
    builder.sign(&key, MessageDigest::sha256())?;
    Ok((builder.build(), key))
}
