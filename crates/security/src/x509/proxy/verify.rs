//! Verification of proxies below a verified end entity (RFC 3820 §4).

use std::time::SystemTime;

use openssl::nid::Nid;
use openssl::x509::{X509, X509KeyUsage, X509Ref};

use super::ProxyKind;
use super::role::{CertificateRole, ProxyRole, name_above, role};
use crate::x509::name::{DistinguishedName, is_same};
use crate::x509::time::check_validity;
use crate::x509::trust_error::TrustError;

/// Smallest strength of a proxy's key, bits of security (NIST SP 800-57 part 1): RSA with 1024 bits,
/// which older grid software still makes.
const SECURITY_BITS: u32 = 80;

/// Verifies proxies, leaf first, that end below `end_entity`, which its caller verifies. Returns
/// whether one of them is limited.
///
/// # Errors
/// [`TrustError::Chain`] with the proxy at fault.
pub(in crate::x509) fn verify_proxies(
    proxies: &[(X509, ProxyRole)],
    end_entity: &X509Ref,
    now: SystemTime,
) -> Result<bool, TrustError> {
    let mut issuer = end_entity;
    let mut above: Option<ProxyRole> = None;
    // Number of proxies that may still follow.
    let mut remaining: Option<u32> = None;
    let mut limited = false;
    for (proxy, properties) in proxies.iter().rev() {
        let refused = |problem: String| TrustError::Chain {
            subject: DistinguishedName::of_subject(proxy),
            problem,
        };
        check_issuer(proxy, issuer).map_err(refused)?;
        check_strength(proxy).map_err(refused)?;
        check_validity(proxy, now).map_err(refused)?;
        check_kind(*properties, above).map_err(refused)?;
        if remaining == Some(0) {
            return Err(refused(
                "proxy beyond the path length that a proxy above it allows".to_owned(),
            ));
        }
        remaining = [remaining.map(|left| left - 1), properties.path_length]
            .into_iter()
            .flatten()
            .min();
        limited |= properties.kind == ProxyKind::Limited;
        above = Some(*properties);
        issuer = proxy;
    }
    Ok(limited)
}

/// Checks the name, key usage and signature of a proxy's issuer.
pub(super) fn check_issuer(proxy: &X509Ref, issuer: &X509Ref) -> Result<(), String> {
    let issuer_name = DistinguishedName::of_subject(issuer);
    if role(issuer)? == CertificateRole::Authority {
        return Err(format!(
            "proxy issued by the certificate authority {issuer_name}"
        ));
    }
    if !is_same(proxy.issuer_name(), issuer.subject_name()) {
        return Err(format!(
            "its issuer is {}, but the chain continues with {issuer_name}",
            DistinguishedName::of_issuer(proxy)
        ));
    }
    let above = name_above(proxy.subject_name());
    if !above.is_some_and(|above| is_same(&above, issuer.subject_name())) {
        return Err(format!(
            "the subject of a proxy must be its issuer's ({issuer_name}) and one more CN"
        ));
    }
    if issuer
        .key_usage()
        .is_some_and(|usage| !usage.contains(X509KeyUsage::DIGITAL_SIGNATURE))
    {
        return Err(format!(
            "its issuer {issuer_name} may not sign (key usage without digitalSignature)"
        ));
    }
    let signed = issuer.public_key().and_then(|key| proxy.verify(&key));
    if !signed.unwrap_or(false) {
        return Err(format!(
            "its signature is not made with the key of its issuer {issuer_name}"
        ));
    }
    Ok(())
}

fn check_strength(proxy: &X509Ref) -> Result<(), String> {
    let bits = proxy.public_key().map_or(0, |key| key.security_bits());
    if bits < SECURITY_BITS {
        return Err(format!(
            "its key is too short ({bits} bits of security, at least {SECURITY_BITS} are needed)"
        ));
    }
    let algorithm = proxy.signature_algorithm().object().nid();
    let digest = algorithm
        .signature_algorithms()
        .map_or(Nid::UNDEF, |used| used.digest);
    if [Nid::MD2, Nid::MD4, Nid::MD5, Nid::SHA1].contains(&digest) {
        return Err(format!(
            "its signature uses the weak hash {}",
            digest.long_name().unwrap_or("MD5 or SHA-1")
        ));
    }
    Ok(())
}

fn check_kind(proxy: ProxyRole, above: Option<ProxyRole>) -> Result<(), String> {
    let Some(above) = above else { return Ok(()) };
    if proxy.style != above.style {
        return Err(format!(
            "{} proxy below a {} proxy: the forms may not be mixed",
            proxy.style, above.style
        ));
    }
    if above.kind == ProxyKind::Limited && proxy.kind == ProxyKind::Full {
        return Err("full proxy below a limited proxy".to_owned());
    }
    Ok(())
}
