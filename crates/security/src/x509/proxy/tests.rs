use std::time::SystemTime;

use openssl::x509::X509;

use super::*;
use crate::test_pki::{ProxyForm, ProxyPolicy, TestAuthority, TestCertificate, TestProxy};
use crate::x509::{CertifiedKey, TrustError};

pub(in crate::x509) fn user() -> CertifiedKey {
    TestAuthority::new("/O=Grid/CN=Test root").user("Ada")
}

pub(in crate::x509) fn role_of(credential: &CertifiedKey) -> ProxyRole {
    match role(credential.leaf()).unwrap() {
        CertificateRole::Proxy(proxy) => proxy,
        other => panic!("{other:?}"),
    }
}

/// Verifies the proxies of a chain that has no authorities.
pub(in crate::x509) fn check(credential: &CertifiedKey) -> Result<bool, TrustError> {
    let mut proxies = Vec::new();
    for certificate in std::iter::once(credential.leaf()).chain(credential.chain()) {
        match role(certificate).unwrap() {
            CertificateRole::Proxy(proxy) => proxies.push((certificate.clone(), proxy)),
            _ => return verify_proxies(&proxies, certificate, SystemTime::now()),
        }
    }
    panic!("no end entity");
}

/// A named way to make a proxy, and a part of the expected refusal.
type Case = (&'static str, fn(&mut TestProxy), &'static str);

#[test]
fn wrong_proxies_are_refused_with_the_failed_check() {
    let user = user();
    let cases: [Case; 11] = [
        ("hash", |proxy| proxy.weak_hash = true, "weak hash sha1"),
        (
            "short key",
            |proxy| proxy.key = crate::test_pki::TestKey::Rsa512,
            "key is too short",
        ),
        ("expired", |proxy| proxy.not_after = -1, "expired on"),
        ("early", |proxy| proxy.not_before = 600, "not valid before"),
        (
            "subject",
            |proxy| proxy.subject = Some("/O=Grid/CN=Eve/CN=1".into()),
            "must be its issuer's (/O=Grid/CN=Ada)",
        ),
        (
            "two names",
            |proxy| proxy.subject = Some("/O=Grid/CN=Ada/CN=1/CN=2".into()),
            "one more CN",
        ),
        (
            "no CN",
            |proxy| proxy.subject = Some("/O=Grid/CN=Ada/OU=1".into()),
            "one more CN",
        ),
        (
            "a key of older software",
            |proxy| proxy.key = crate::test_pki::TestKey::Rsa1024,
            "",
        ),
        (
            "signer",
            |proxy| {
                let other = TestAuthority::new("/O=Grid/CN=Test root").user("Eve");
                proxy.signer = Some(other);
            },
            "not made with the key of its issuer /O=Grid/CN=Ada",
        ),
        (
            "restricted",
            |proxy| proxy.policy = ProxyPolicy::Restricted("1.2.3.4".into(), b"x".to_vec()),
            "policy language 1.2.3.4",
        ),
        (
            "critical",
            |proxy| proxy.critical.push(("1.2.3.5".into(), vec![5, 0])),
            "unknown critical extension 1.2.3.5",
        ),
    ];
    for (name, change, expected) in cases {
        let mut proxy = TestProxy::default();
        change(&mut proxy);
        let proxy = proxy.of(&user);
        let result = role(proxy.leaf()).and_then(|_| match check(&proxy) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        });
        match result {
            Ok(()) => assert!(expected.is_empty(), "{name} is accepted"),
            Err(error) => assert!(
                !expected.is_empty() && error.contains(expected),
                "{name}: {error}"
            ),
        }
    }
}

#[test]
fn chains_of_proxies_follow_the_rules() {
    use ProxyForm::{Draft, Legacy, Rfc};
    use ProxyPolicy::{Independent, InheritAll, Limited};
    let user = user();
    let make = |issuer: &CertifiedKey, form, policy: &ProxyPolicy, path_length| {
        let mut proxy = TestProxy::new(form, policy.clone());
        proxy.path_length = path_length;
        proxy.of(issuer)
    };
    for (steps, expected) in [
        (
            vec![(Rfc, Limited, None), (Rfc, InheritAll, None)],
            "full proxy below a limited",
        ),
        (vec![(Rfc, Limited, None), (Rfc, Limited, None)], ""),
        (vec![(Rfc, Limited, None), (Rfc, Independent, None)], ""),
        (
            vec![(Draft, Limited, None), (Draft, InheritAll, None)],
            "full proxy below a limited",
        ),
        (
            vec![(Legacy, Limited, None), (Legacy, InheritAll, None)],
            "full proxy below a limited",
        ),
        (
            vec![(Rfc, InheritAll, None), (Draft, InheritAll, None)],
            "draft proxy below a RFC 3820",
        ),
        (
            vec![(Draft, InheritAll, None), (Legacy, InheritAll, None)],
            "legacy proxy below a draft",
        ),
        (
            vec![(Rfc, InheritAll, Some(0)), (Rfc, InheritAll, None)],
            "path length",
        ),
        (
            vec![(Draft, InheritAll, Some(0)), (Draft, InheritAll, None)],
            "path length",
        ),
        (
            vec![(Rfc, InheritAll, Some(1)), (Rfc, InheritAll, Some(9))],
            "",
        ),
        (
            // A later, larger length does not extend an earlier one.
            vec![
                (Rfc, InheritAll, Some(1)),
                (Rfc, InheritAll, Some(9)),
                (Rfc, InheritAll, None),
            ],
            "path length",
        ),
        (
            vec![(Draft, InheritAll, Some(1)), (Draft, Limited, None)],
            "",
        ),
    ] {
        let last = steps
            .iter()
            .fold(user.clone(), |issuer, (form, policy, length)| {
                make(&issuer, *form, policy, *length)
            });
        match check(&last) {
            Ok(_) => assert_eq!(expected, "", "{steps:?} is accepted"),
            Err(error) => assert!(
                !expected.is_empty() && error.to_string().contains(expected),
                "{steps:?}: {error}"
            ),
        }
    }
}

#[test]
fn an_issuer_must_be_allowed_to_sign_and_be_no_authority() {
    let authority = TestAuthority::new("/O=Grid/CN=Test root");
    let mut template = TestCertificate::new("/O=Grid/CN=no signature");
    template.digital_signature = Some(false);
    let silent = TestProxy::default().of(&authority.issue(&template));
    let error = check(&silent).unwrap_err().to_string();
    assert!(error.contains("without digitalSignature"), "{error}");
    let root = CertifiedKey::from_parts(
        authority.certificate().clone(),
        authority.key().clone(),
        vec![],
    );
    let below = TestProxy::default().of(&root.unwrap());
    let error = check(&below).unwrap_err().to_string();
    assert!(error.contains("certificate authority"), "{error}");
    let both = TestProxy {
        authority: true,
        ..TestProxy::default()
    };
    let error = role(both.of(&user()).leaf()).unwrap_err();
    assert!(error.contains("an authority too"), "{error}");
}

#[test]
fn a_proxy_has_no_alternative_names() {
    let names = openssl::x509::extension::SubjectAlternativeName::new()
        .dns("localhost")
        .build(&X509::builder().unwrap().x509v3_context(None, None))
        .unwrap();
    // The DER of the whole extension ends with the DER of its value.
    let der = names.to_der().unwrap();
    let value = der[der.len() - 13..].to_vec();
    assert_eq!(value[..2], [0x30, 11]);
    let proxy = TestProxy {
        critical: vec![("2.5.29.17".to_owned(), value)],
        ..TestProxy::default()
    };
    let error = role(proxy.of(&user()).leaf()).unwrap_err();
    assert!(error.contains("2.5.29.17"), "{error}");
}

proptest::proptest! {
    #[test]
    fn damaged_certificates_never_panic(
        changes in proptest::collection::vec((0..2000usize, proptest::prelude::any::<u8>()), 1..6),
    ) {
        let key = crate::test_pki::TestKey::P256;
        let user = TestAuthority::new("/O=Grid/CN=Test root").user("Ada");
        let proxy = TestProxy { path_length: Some(2), key, ..TestProxy::default() }.of(&user);
        let mut der = proxy.leaf().to_der().unwrap();
        for (place, byte) in changes {
            let place = place % der.len();
            der[place] = byte;
        }
        if let Ok(damaged) = X509::from_der(&der) {
            if let Ok(CertificateRole::Proxy(role)) = role(&damaged) {
                let _ = verify_proxies(&[(damaged.clone(), role)], user.leaf(), SystemTime::now());
            }
            identity([&*damaged]);
        }
    }
}
