//! Certificates, chains, credentials, and requests for proxies.

#![no_main]

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use libfuzzer_sys::fuzz_target;
use longhaul_fuzz::pki::PKI;
use openssl::x509::X509;
use security::x509::{
    CertificateUsage, CertifiedKey, ProxyKind, ProxyOptions, ProxyRequest, TrustStore, sign_proxy,
};

const USAGES: [CertificateUsage; 3] = [
    CertificateUsage::TlsServer,
    CertificateUsage::TlsClient,
    CertificateUsage::Grid,
];

/// Requests take an RSA key, which is slow to make: these serve the whole run.
static REQUESTS: LazyLock<std::sync::Mutex<Vec<ProxyRequest>>> = LazyLock::new(|| {
    let requests = (0..4).filter_map(|_| ProxyRequest::new(2048).ok());
    std::sync::Mutex::new(requests.collect())
});

fuzz_target!(|input: &[u8]| {
    let mut chain = X509::stack_from_pem(input).unwrap_or_default();
    chain.extend(X509::from_der(input));
    check_chain(&chain);
    check_credential(input);
    check_delegation(input, &chain);
});

fn check_chain(chain: &[X509]) {
    let now = SystemTime::now();
    for usage in USAGES {
        // This authority's key is unknown to the fuzzer.
        assert!(PKI.trust.verify(chain, usage, now).is_err());
    }
    let Some(anchor) = chain.last() else { return };
    let store = TrustStore::exactly(vec![anchor.clone()]);
    for usage in USAGES {
        let Ok(peer) = store.verify(chain, usage, now) else {
            continue;
        };
        assert!(peer.expires >= now, "an expired chain is refused");
        assert_eq!(peer.chain.first(), chain[0].to_der().ok().as_ref());
        let _ = peer.check_host("host.example");
    }
}

fn check_credential(input: &[u8]) {
    let Ok(credential) = CertifiedKey::from_pem(input, "input") else {
        return;
    };
    let pem = credential.to_pem().expect("what was read can be written");
    let again = CertifiedKey::from_pem(&pem, "again").expect("what was written can be read");
    assert_eq!(again.subject(), credential.subject());
    assert_eq!(again.identity(), credential.identity());
    assert_eq!(again.expires(), credential.expires());
    assert_eq!(again.chain().len(), credential.chain().len());
    let _ = (credential.describe_kind(), credential.describe_key());
}

fn check_delegation(input: &[u8], chain: &[X509]) {
    let options = ProxyOptions {
        kind: ProxyKind::Limited,
        valid: Duration::from_secs(600),
        path_length: None,
        key_bits: 2048,
    };
    if let Ok(der) = sign_proxy(&PKI.user, input, &options) {
        let proxy = X509::from_der(&der).expect("a signed proxy is a certificate");
        let signer = PKI.user.leaf().public_key().expect("a key");
        assert!(proxy.verify(&signer).unwrap_or(false));
    }
    // A certificate for a key that is not in the input is never accepted. The request is used up.
    let request = REQUESTS.lock().ok().and_then(|mut all| all.pop());
    if let Some(request) = request {
        assert!(request.complete(input, chain).is_err());
    }
}
