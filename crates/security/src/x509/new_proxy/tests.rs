use super::*;
use crate::test_pki::{ProxyForm, ProxyPolicy, TestAuthority, TestCertificate, TestProxy};
use crate::x509::proxy::tests::{check, role_of, user};

fn options(kind: ProxyKind) -> ProxyOptions {
    ProxyOptions {
        kind,
        valid: Duration::from_secs(3600),
        path_length: None,
        key_bits: 2048,
    }
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
