use super::*;
use crate::test_pki::{ProxyForm, ProxyPolicy, TestAuthority, TestCertificate, TestProxy};

fn user() -> CertifiedKey {
    TestAuthority::new("/O=Grid/CN=Test root").user("Ada")
}

fn options(kind: ProxyKind) -> ProxyOptions {
    ProxyOptions {
        kind,
        valid: Duration::from_secs(3600),
        path_length: None,
        key_bits: 2048,
    }
}

fn role_of(credential: &CertifiedKey) -> ProxyRole {
    match role(credential.leaf()).unwrap() {
        CertificateRole::Proxy(proxy) => proxy,
        other => panic!("{other:?}"),
    }
}

/// Verifies the proxies of a chain that has no authorities.
fn check(credential: &CertifiedKey) -> Result<bool, crate::x509::TrustError> {
    let mut proxies = Vec::new();
    for certificate in std::iter::once(credential.leaf()).chain(credential.chain()) {
        match role(certificate).unwrap() {
            CertificateRole::Proxy(proxy) => proxies.push((certificate.clone(), proxy)),
            _ => return verify_proxies(&proxies, certificate, SystemTime::now()),
        }
    }
    panic!("no end entity");
}

#[test]
fn own_proxies_are_recognised_and_verify() {
    let user = user();
    for kind in [ProxyKind::Full, ProxyKind::Limited, ProxyKind::Independent] {
        let mut options = options(kind);
        options.path_length = Some(3);
        let proxy = user.new_proxy(&options).unwrap();
        let role = role_of(&proxy);
        assert_eq!(role.kind, kind);
        assert_eq!(role.path_length, Some(3));
        assert_eq!(check(&proxy).unwrap(), kind == ProxyKind::Limited);
    }
}

#[test]
fn a_proxy_has_the_names_and_dates_of_its_issuer() {
    let user = user();
    let mut options = options(ProxyKind::Full);
    options.valid = Duration::from_secs(1_000_000_000);
    let proxy = user.new_proxy(&options).unwrap();
    assert_eq!(proxy.expires(), user.expires());
    assert_eq!(proxy.identity(), user.subject());
    let serial = proxy.leaf().serial_number().to_bn().unwrap();
    let expected = format!("{}/CN={}", user.subject(), serial.to_dec_str().unwrap());
    assert_eq!(proxy.subject().as_str(), expected);
}

#[test]
fn an_independent_proxy_is_its_own_identity() {
    let user = user();
    let proxy = user.new_proxy(&options(ProxyKind::Independent)).unwrap();
    assert_eq!(proxy.identity(), proxy.subject());
    let below = proxy.new_proxy(&options(ProxyKind::Full)).unwrap();
    assert_eq!(below.identity(), proxy.subject());
}

#[test]
fn a_delegated_credential_fits_the_key_and_chain() {
    let user = user();
    let request = ProxyRequest::new(2048).unwrap();
    let der = request.to_der().unwrap();
    let certificate = sign_proxy(&user, &der, &options(ProxyKind::Limited)).unwrap();
    let chain = [user.leaf().clone()];
    let delegated = request.complete(&certificate, &chain).unwrap();
    assert_eq!(delegated.identity(), user.subject());
    assert_eq!(delegated.chain(), chain);
    assert!(check(&delegated).unwrap());
}

#[test]
fn a_certificate_that_does_not_fit_the_request_is_refused() {
    let user = user();
    let other = TestAuthority::new("/O=Grid/CN=Test root").user("Bob");
    let refused = |certificate: &[u8], request: ProxyRequest, chain: &[X509]| {
        request
            .complete(certificate, chain)
            .unwrap_err()
            .to_string()
    };
    let sign = |issuer: &CertifiedKey, request: &ProxyRequest| {
        sign_proxy(
            issuer,
            &request.to_der().unwrap(),
            &options(ProxyKind::Full),
        )
        .unwrap()
    };
    let chain = [user.leaf().clone()];
    let request = ProxyRequest::new(2048).unwrap();
    let one = sign(&user, &request);
    let error = refused(&one, ProxyRequest::new(2048).unwrap(), &chain);
    assert!(error.contains("another key"), "{error}");
    let error = refused(&one, request, &[other.leaf().clone()]);
    assert!(error.contains("its issuer is /O=Grid/CN=Ada"), "{error}");
    let error = refused(b"text", ProxyRequest::new(2048).unwrap(), &chain);
    assert!(error.contains("no X.509 certificate"), "{error}");
}

#[test]
fn requests_are_checked_before_they_are_signed() {
    let user = user();
    let error = sign_proxy(&user, b"text", &options(ProxyKind::Full)).unwrap_err();
    assert!(error.to_string().contains("no PKCS#10"), "{error}");
    let key = crate::test_pki::key(crate::test_pki::TestKey::Rsa1024, "short");
    let short = ProxyRequest { key }.to_der().unwrap();
    let error = sign_proxy(&user, &short, &options(ProxyKind::Full)).unwrap_err();
    assert!(error.to_string().contains("too short"), "{error}");
    let mut changed = ProxyRequest::new(2048).unwrap().to_der().unwrap();
    *changed.last_mut().unwrap() ^= 1;
    let error = sign_proxy(&user, &changed, &options(ProxyKind::Full)).unwrap_err();
    assert!(error.to_string().contains("own key"), "{error}");
    assert!(ProxyRequest::new(1024).is_err());
}

#[test]
fn a_proxy_that_nobody_would_accept_is_not_made() {
    let authority = TestAuthority::new("/O=Grid/CN=Test root");
    let user = authority.user("Ada");
    let limited = user.new_proxy(&options(ProxyKind::Limited)).unwrap();
    let error = limited.new_proxy(&options(ProxyKind::Full)).unwrap_err();
    assert!(error.to_string().contains("limited proxy"), "{error}");
    let mut last = options(ProxyKind::Full);
    last.path_length = Some(1);
    let one = user.new_proxy(&last).unwrap();
    let two = one.new_proxy(&options(ProxyKind::Full)).unwrap();
    let error = two.new_proxy(&options(ProxyKind::Full)).unwrap_err();
    assert!(error.to_string().contains("path length"), "{error}");
    let mut template = TestCertificate::new("/O=Grid/CN=no signature");
    template.digital_signature = Some(false);
    let error = authority.issue(&template).new_proxy(&last).unwrap_err();
    assert!(error.to_string().contains("digitalSignature"), "{error}");
    let expired = TestCertificate {
        not_after: -1,
        ..TestCertificate::new("/O=Grid/CN=expired")
    };
    let error = authority.issue(&expired).new_proxy(&last).unwrap_err();
    assert!(error.to_string().contains("expired"), "{error}");
}

#[test]
fn the_form_of_older_proxies_is_kept() {
    let user = user();
    for form in [ProxyForm::Draft, ProxyForm::Legacy] {
        let old = TestProxy::new(form, ProxyPolicy::InheritAll).of(&user);
        let below = old.new_proxy(&options(ProxyKind::Limited)).unwrap();
        assert_eq!(role_of(&below).style, role_of(&old).style);
        assert!(check(&below).unwrap());
        assert_eq!(below.identity(), user.subject());
    }
}

#[test]
fn key_usage_loses_what_a_proxy_must_not_have() {
    let proxy = user().new_proxy(&options(ProxyKind::Full)).unwrap();
    let usage = proxy.leaf().key_usage().unwrap();
    assert!(usage.contains(openssl::x509::X509KeyUsage::DIGITAL_SIGNATURE));
    assert!(!usage.contains(openssl::x509::X509KeyUsage::KEY_CERT_SIGN));
    assert!(!usage.contains(openssl::x509::X509KeyUsage::NON_REPUDIATION));
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
