//! Bearer tokens, their claims and scopes, and the key sets of issuers.

#![no_main]

use std::sync::LazyLock;
use std::time::SystemTime;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as B64;
use libfuzzer_sys::fuzz_target;
use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey};
use openssl::ecdsa::EcdsaSig;
use openssl::nid::Nid;
use openssl::pkey::Private;
use openssl::sha::sha256;
use security::token::{Issuer, KeySet, PathScopes, TokenProfile, TokenVerifier};

const ISSUER: &str = "https://issuer.example";
const BASE: &[u8] = b"/data";
/// Keys that a set may hold.
const MAX_KEYS: usize = 100;

static KEY: LazyLock<EcKey<Private>> = LazyLock::new(|| {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect("P-256");
    EcKey::generate(&group).expect("a key")
});

static KEYS: LazyLock<KeySet> = LazyLock::new(|| {
    let (mut x, mut y) = (BigNum::new().expect("room"), BigNum::new().expect("room"));
    let mut context = BigNumContext::new().expect("room");
    KEY.public_key()
        .affine_coordinates(KEY.group(), &mut x, &mut y, &mut context)
        .expect("a point");
    let text = |number: &BigNum| B64.encode(&number.to_vec_padded(32).expect("32 bytes"));
    let document = serde_json::json!({"keys": [{
        "kty": "EC", "crv": "P-256", "alg": "ES256", "x": text(&x), "y": text(&y),
    }]});
    let keys = KeySet::parse(document.to_string().as_bytes()).expect("a key set");
    assert_eq!(keys.len(), 1);
    keys
});

static VERIFIER: LazyLock<TokenVerifier> = LazyLock::new(|| {
    TokenVerifier::new(vec![Issuer {
        url: ISSUER.to_owned(),
        audiences: vec!["here".to_owned()],
        base_path: BASE.to_vec(),
        account: "ann".to_owned(),
    }])
});

fuzz_target!(|input: &[u8]| {
    if let Ok(keys) = KeySet::parse(input) {
        assert!(keys.len() <= MAX_KEYS, "a key set is bounded");
    }
    let now = SystemTime::now();
    // Nobody but the issuer can sign.
    assert!(VERIFIER.verify(input, &KEYS, now).is_err());
    let _ = VERIFIER.issuer_of(input);
    check_claims(input, now);
    check_scopes(&String::from_utf8_lossy(input));
});

/// The input as the claims of a token that the issuer has signed.
fn check_claims(claims: &[u8], now: SystemTime) {
    let token = signed(claims);
    let Ok(verified) = VERIFIER.verify(token.as_bytes(), &KEYS, now) else {
        return;
    };
    assert_eq!(verified.issuer, ISSUER);
    assert_eq!(verified.account, "ann");
    assert!(verified.expires > now, "an expired token is refused");
    assert!(
        VERIFIER
            .verify(token.as_bytes(), &KEYS, verified.expires)
            .is_err()
    );
    check_below_base(&verified.scopes);
    // Another signature is refused.
    let (signed_part, _) = token.rsplit_once('.').expect("three parts");
    let forged = format!("{signed_part}.{}", B64.encode(&[7; 64]));
    assert!(VERIFIER.verify(forged.as_bytes(), &KEYS, now).is_err());
}

fn check_scopes(text: &str) {
    for profile in [TokenProfile::SciTokens, TokenProfile::Wlcg] {
        if let Ok(scopes) = PathScopes::parse(profile, text, BASE) {
            check_below_base(&scopes);
        }
    }
}

/// No scope reaches outside the base path.
fn check_below_base(scopes: &PathScopes) {
    for (path, rights) in scopes.iter() {
        assert!(path == BASE || path.starts_with(b"/data/"), "{path:?}");
        assert!(!path.split(|byte| *byte == b'/').any(|part| part == b".."));
        assert_eq!(
            scopes.rights(path).read | rights.read,
            scopes.rights(path).read
        );
    }
    for outside in [&b"/"[..], b"/dat", b"/data2", b"/etc/passwd"] {
        let rights = scopes.rights(outside);
        assert!(!rights.read && !rights.is_some(), "{outside:?}");
    }
}

fn signed(claims: &[u8]) -> String {
    let header = B64.encode(br#"{"alg":"ES256","typ":"at+jwt"}"#);
    let message = format!("{header}.{}", B64.encode(claims));
    let signature = EcdsaSig::sign(&sha256(message.as_bytes()), &KEY).expect("a signature");
    let half = |number: &openssl::bn::BigNumRef| number.to_vec_padded(32).expect("32 bytes");
    let bytes = [half(signature.r()), half(signature.s())].concat();
    format!("{message}.{}", B64.encode(&bytes))
}
