//! Verification of a chain: end entity and authorities by OpenSSL, revocation lists, signing
//! policies, proxies.

use std::time::SystemTime;

use openssl::error::ErrorStack;
use openssl::stack::Stack;
use openssl::x509::store::{X509Store, X509StoreBuilder};
use openssl::x509::verify::{X509VerifyFlags, X509VerifyParam};
use openssl::x509::{X509, X509PurposeId, X509Ref, X509StoreContext, X509VerifyResult};

use super::policy::Permission;
use super::source::{AuthoritySource, Directory};
use super::{CertificateUsage, PeerIdentity, TrustStore, revocation};
use crate::x509::host_name::HostNames;
use crate::x509::name::is_same;
use crate::x509::proxy::{CertificateRole, ProxyKind, ProxyRole, identity, role, verify_proxies};
use crate::x509::time::{check_validity, end};
use crate::x509::{DistinguishedName, TrustError, name_constraints};

/// Most certificates of a chain, and most authorities that are tried for one; as the peers
/// (Globus toolkit).
const MAX_CERTIFICATES: usize = 100;

/// Most certificates of one name that are tried as a proxy's issuer. Anybody can make any number of
/// them, with large keys, and each trial costs a signature check.
const MAX_ISSUER_CANDIDATES: usize = 4;

/// A peer's certificates, in order.
struct PresentedChain {
    /// Leaf first.
    proxies: Vec<(X509, ProxyRole)>,
    end_entity: X509,
    /// Those above, not trusted.
    others: Vec<X509>,
}

pub(super) fn verify(
    store: &TrustStore,
    chain: &[X509],
    usage: CertificateUsage,
    now: SystemTime,
) -> Result<PeerIdentity, TrustError> {
    let leaf = chain.first().ok_or(TrustError::NoCertificate)?;
    if chain.len() > MAX_CERTIFICATES {
        return Err(refused(
            leaf,
            format!(
                "a chain of {} certificates; at most {MAX_CERTIFICATES} are accepted",
                chain.len()
            ),
        ));
    }
    if let Some(exact) = &store.exact
        && exact.contains(leaf)
    {
        return verify_exact(leaf, exact, usage, now);
    }
    let presented = split(chain, usage)?;
    let verified = verify_authorities(store, &presented, usage, now)?;
    for pair in verified.windows(2) {
        if let [certificate, issuer] = pair {
            check_issued(store, certificate, issuer, usage, now)?;
        }
    }
    let limited = verify_proxies(&presented.proxies, &presented.end_entity, now)?;
    let without_authority = verified.len().saturating_sub(1).max(1);
    let expires = verified
        .iter()
        .chain(presented.proxies.iter().map(|(proxy, _)| proxy))
        .map(|certificate| end(certificate))
        .fold(end(leaf), SystemTime::min);
    let chain: Vec<&X509> = presented
        .proxies
        .iter()
        .map(|(proxy, _)| proxy)
        .chain(&verified[..without_authority.min(verified.len())])
        .collect();
    let authorities = verified.iter().skip(1).map(|authority| &**authority);
    Ok(PeerIdentity {
        subject: DistinguishedName::of_subject(leaf),
        identity: identity_of(&chain, leaf, usage),
        limited,
        usage,
        chain: encode(&chain)?,
        expires,
        unnamed_host: HostNames::of(&presented.end_entity)
            .common_host()
            .and_then(|host| name_constraints::refusal(authorities, host)),
    })
}

/// A leaf that is trusted itself: only its validity is checked.
fn verify_exact(
    leaf: &X509,
    exact: &[X509],
    usage: CertificateUsage,
    now: SystemTime,
) -> Result<PeerIdentity, TrustError> {
    check_validity(leaf, now).map_err(|problem| refused(leaf, problem))?;
    // The chain is of the trusted certificates too: a peer cannot choose its identity.
    let mut chain = vec![leaf];
    while chain.len() < exact.len() {
        let last = chain[chain.len() - 1];
        let above = exact
            .iter()
            .find(|one| is_same(one.subject_name(), last.issuer_name()) && !chain.contains(one));
        match above {
            Some(above) => chain.push(above),
            None => break,
        }
    }
    let mut limited = false;
    if usage == CertificateUsage::Grid {
        for certificate in &chain {
            match role(certificate).map_err(|problem| refused(certificate, problem))? {
                CertificateRole::Proxy(proxy) => limited |= proxy.kind == ProxyKind::Limited,
                CertificateRole::EndEntity | CertificateRole::Authority => break,
            }
        }
    }
    Ok(PeerIdentity {
        subject: DistinguishedName::of_subject(leaf),
        identity: identity_of(&chain, leaf, usage),
        limited,
        usage,
        expires: end(leaf),
        chain: encode(&[leaf])?,
        unnamed_host: None,
    })
}

/// The identity behind a chain, leaf first. Only the grid has proxies: elsewhere it is the leaf's
/// subject, whatever that looks like.
fn identity_of(chain: &[&X509], leaf: &X509Ref, usage: CertificateUsage) -> DistinguishedName {
    match usage {
        CertificateUsage::Grid => identity(chain.iter().map(|certificate| &***certificate)),
        CertificateUsage::TlsServer | CertificateUsage::TlsClient => {
            DistinguishedName::of_subject(leaf)
        }
    }
}

fn refused(certificate: &X509Ref, problem: String) -> TrustError {
    TrustError::Chain {
        subject: DistinguishedName::of_subject(certificate),
        problem,
    }
}

fn encode(chain: &[&X509]) -> Result<Vec<Vec<u8>>, TrustError> {
    chain
        .iter()
        .map(|certificate| {
            certificate
                .to_der()
                .map_err(|error| refused(certificate, format!("cannot be encoded: {error}")))
        })
        .collect()
}

/// Splits a chain into proxies, end entity and the rest. Only the leaf's place is given; the others
/// are found by their names, because some peers send them in another order.
fn split(chain: &[X509], usage: CertificateUsage) -> Result<PresentedChain, TrustError> {
    let mut others = chain.to_vec();
    let mut current = others.remove(0);
    let mut proxies = Vec::new();
    loop {
        if usage != CertificateUsage::Grid {
            break;
        }
        let role = role(&current).map_err(|problem| refused(&current, problem))?;
        let CertificateRole::Proxy(proxy) = role else {
            break;
        };
        let Some(place) = issuer_of(&current, &others) else {
            return Err(refused(
                &current,
                format!(
                    "proxy whose issuer {} is not in the chain",
                    DistinguishedName::of_issuer(&current)
                ),
            ));
        };
        let issuer = others.remove(place);
        proxies.push((current, proxy));
        current = issuer;
    }
    Ok(PresentedChain {
        proxies,
        end_entity: current,
        others,
    })
}

/// Place of the issuer: the certificate with its name and key, else the first one with its name (whose
/// signature check then fails and says so).
fn issuer_of(certificate: &X509Ref, others: &[X509]) -> Option<usize> {
    let has_name = |other: &X509| is_same(other.subject_name(), certificate.issuer_name());
    let has_key = |other: &X509| {
        let key = other.public_key();
        key.and_then(|key| certificate.verify(&key))
            .unwrap_or(false)
    };
    let named = (0..others.len()).filter(|&place| has_name(&others[place]));
    let named: Vec<usize> = named.take(MAX_ISSUER_CANDIDATES).collect();
    match named[..] {
        [] => None,
        // Its signature is checked with the other rules of proxies.
        [only] => Some(only),
        [first, ..] => {
            let signer = named.iter().find(|&&place| has_key(&others[place]));
            Some(signer.copied().unwrap_or(first))
        }
    }
}

/// Verifies end entity and authorities with OpenSSL. Returns the chain up to the trusted authority.
fn verify_authorities(
    store: &TrustStore,
    presented: &PresentedChain,
    usage: CertificateUsage,
    now: SystemTime,
) -> Result<Vec<X509>, TrustError> {
    let authorities = find_authorities(store, presented)?;
    let run = || {
        let trusted = build_store(store, authorities, usage, now)?;
        let mut untrusted = Stack::new()?;
        for certificate in &presented.others {
            untrusted.push(certificate.clone())?;
        }
        let mut context = X509StoreContext::new()?;
        context.init(&trusted, &presented.end_entity, &untrusted, |context| {
            if context.verify_cert()? {
                let chain = context
                    .chain()
                    .map(|chain| chain.iter().map(ToOwned::to_owned).collect::<Vec<X509>>());
                return Ok(Ok(chain.unwrap_or_default()));
            }
            let at_fault = context.current_cert().unwrap_or(&presented.end_entity);
            Ok(Err(refusal(context.error(), at_fault, store, usage)))
        })
    };
    run().unwrap_or_else(|error: ErrorStack| {
        Err(refused(
            &presented.end_entity,
            format!("cannot be verified: {error}"),
        ))
    })
}

fn build_store(
    store: &TrustStore,
    authorities: Vec<X509>,
    usage: CertificateUsage,
    now: SystemTime,
) -> Result<X509Store, ErrorStack> {
    let mut parameters = X509VerifyParam::new()?;
    // Bits of security: OpenSSL's level 2 (112 bits) is what Debian sets for TLS. Grids still have
    // authorities and users with RSA keys of 1024 bits, which level 1 (80 bits) accepts.
    let (purpose, level) = match usage {
        CertificateUsage::TlsServer => (X509PurposeId::SSL_SERVER, 2),
        CertificateUsage::TlsClient => (X509PurposeId::SSL_CLIENT, 2),
        CertificateUsage::Grid => (X509PurposeId::ANY, 1),
    };
    parameters.set_purpose(purpose)?;
    parameters.set_auth_level(level);
    parameters.set_time(seconds(now));
    if store.exact.is_some() {
        parameters.set_flags(X509VerifyFlags::PARTIAL_CHAIN)?;
    }
    let mut builder = X509StoreBuilder::new()?;
    builder.set_param(&parameters)?;
    for authority in authorities {
        builder.add_cert(authority)?;
    }
    Ok(builder.build())
}

fn seconds(now: SystemTime) -> i64 {
    now.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| {
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        })
}

/// The authorities of a store that may be above the peer's certificates: found by the names of
/// their issuers, so that a large directory is not read whole.
fn find_authorities(
    store: &TrustStore,
    presented: &PresentedChain,
) -> Result<Vec<X509>, TrustError> {
    let mut hashes: Vec<u32> = std::iter::once(&presented.end_entity)
        .chain(&presented.others)
        .map(|certificate| certificate.issuer_name_hash())
        .collect();
    if store.exact.is_some() {
        // Such a certificate need not be an issuer.
        hashes.push(presented.end_entity.subject_name_hash());
    }
    let mut found: Vec<X509> = Vec::new();
    let mut next = 0;
    while let Some(&hash) = hashes.get(next) {
        next += 1;
        if hashes[..next - 1].contains(&hash) {
            continue;
        }
        for source in &store.sources {
            for authority in source.certificates(hash)? {
                if found.len() < MAX_CERTIFICATES && !found.contains(&authority) {
                    hashes.push(authority.issuer_name_hash());
                    found.push(authority);
                }
            }
        }
    }
    Ok(found)
}

/// Checks revocation lists and signing policies for a certificate that an authority has signed.
fn check_issued(
    store: &TrustStore,
    certificate: &X509,
    issuer: &X509,
    usage: CertificateUsage,
    now: SystemTime,
) -> Result<(), TrustError> {
    for source in &store.sources {
        revocation::check(&source.lists(issuer)?, certificate, issuer, now)?;
    }
    // The gridmap may map clients of either kind to accounts.
    let binds = |directory: &&Directory| match usage {
        CertificateUsage::TlsServer => false,
        CertificateUsage::TlsClient => directory.is_grid(),
        CertificateUsage::Grid => true,
    };
    let directories = store.sources.iter().filter_map(AuthoritySource::directory);
    let directories: Vec<&Directory> = directories.filter(binds).collect();
    if directories.is_empty() {
        return Ok(());
    }
    let authority = DistinguishedName::of_subject(issuer);
    let mut problem = String::new();
    for directory in directories {
        let (path, policy) = directory.policy(issuer)?;
        let path = path.display();
        let Some(policy) = policy else {
            problem = format!(
                "signed by {authority}, whose signing policy {path} does not exist: without it the authority may sign nothing"
            );
            continue;
        };
        problem = match policy.permission(&authority, &DistinguishedName::of_subject(certificate)) {
            Permission::Granted => return Ok(()),
            Permission::Denied(patterns) => format!(
                "the signing policy {path} does not let {authority} sign this subject (allowed: {})",
                patterns.join(" ")
            ),
            Permission::Unknown => {
                format!("the signing policy {path} has no entry for {authority}")
            }
        };
    }
    Err(refused(certificate, problem))
}

/// OpenSSL's codes (x509_vfy.h) whose own texts miss the value at fault.
mod code {
    pub(super) const UNABLE_TO_GET_ISSUER: i32 = 2;
    pub(super) const NOT_YET_VALID: i32 = 9;
    pub(super) const HAS_EXPIRED: i32 = 10;
    pub(super) const SELF_SIGNED_LEAF: i32 = 18;
    pub(super) const SELF_SIGNED_IN_CHAIN: i32 = 19;
    pub(super) const UNABLE_TO_GET_ISSUER_LOCALLY: i32 = 20;
    pub(super) const UNABLE_TO_VERIFY_LEAF: i32 = 21;
    pub(super) const INVALID_PURPOSE: i32 = 26;
    pub(super) const PROXY_NOT_ALLOWED: i32 = 40;
    /// OpenSSL 3.0 and later; it was 24 before.
    pub(super) const INVALID_AUTHORITY: i32 = 79;
}

fn refusal(
    error: X509VerifyResult,
    certificate: &X509Ref,
    store: &TrustStore,
    usage: CertificateUsage,
) -> TrustError {
    let unknown = |authority: String| {
        let places: Vec<String> = store.sources.iter().map(AuthoritySource::name).collect();
        TrustError::UnknownAuthority {
            subject: DistinguishedName::of_subject(certificate),
            problem: format!(
                "{authority} not among the trusted authorities ({})",
                places.join(", ")
            ),
        }
    };
    let problem = match error.as_raw() {
        code::NOT_YET_VALID => format!("not valid before {}", certificate.not_before()),
        code::HAS_EXPIRED => format!("expired on {}", certificate.not_after()),
        code::SELF_SIGNED_LEAF | code::SELF_SIGNED_IN_CHAIN => {
            return unknown("self-signed, and".to_owned());
        }
        code::UNABLE_TO_GET_ISSUER
        | code::UNABLE_TO_GET_ISSUER_LOCALLY
        | code::UNABLE_TO_VERIFY_LEAF => {
            let issuer = DistinguishedName::of_issuer(certificate);
            return unknown(format!("its issuer {issuer} is"));
        }
        code::INVALID_AUTHORITY => {
            "has signed a certificate, but is no authority (basicConstraints without CA)".to_owned()
        }
        code::INVALID_PURPOSE => match usage {
            CertificateUsage::TlsServer => {
                "may not be used by a TLS server (extended key usage without serverAuth)"
            }
            CertificateUsage::TlsClient => {
                "may not be used by a TLS client (extended key usage without clientAuth)"
            }
            CertificateUsage::Grid => "may not be used for this purpose (key usage)",
        }
        .to_owned(),
        code::PROXY_NOT_ALLOWED => "a proxy, which only GSI (gsiftp) accepts".to_owned(),
        _ => error.error_string().to_owned(),
    };
    refused(certificate, problem)
}
