mod claims;

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as B64;
use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey};
use openssl::ecdsa::EcdsaSig;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::{Padding, Rsa};
use openssl::sign::{RsaPssSaltlen, Signer};
use serde_json::{Value, json};

use super::*;

const ISSUER: &str = "https://issuer.example.org/vo";
const US: &str = "https://storage.example.org:2811";
const NOW: u64 = 1_800_000_000;

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW)
}

/// A key that signs tokens with one algorithm.
struct SigningKey {
    id: &'static str,
    algorithm: &'static str,
    key: PKey<Private>,
}

impl SigningKey {
    fn new(id: &'static str, algorithm: &'static str) -> Self {
        let curve = |nid| {
            let group = EcGroup::from_curve_name(nid).unwrap();
            PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
        };
        let key = match algorithm {
            "ES256" => curve(Nid::X9_62_PRIME256V1),
            "ES384" => curve(Nid::SECP384R1),
            "EdDSA" => PKey::generate_ed25519().unwrap(),
            _ => PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap(),
        };
        Self { id, algorithm, key }
    }

    fn jwk(&self) -> Value {
        let mut jwk = match self.algorithm {
            "ES256" | "ES384" => {
                let key = self.key.ec_key().unwrap();
                let (mut x, mut y) = (BigNum::new().unwrap(), BigNum::new().unwrap());
                let mut context = BigNumContext::new().unwrap();
                key.public_key()
                    .affine_coordinates(key.group(), &mut x, &mut y, &mut context)
                    .unwrap();
                let (curve, bytes) = match self.algorithm {
                    "ES256" => ("P-256", 32),
                    _ => ("P-384", 48),
                };
                let number = |n: &BigNum| B64.encode(n.to_vec_padded(bytes).unwrap());
                json!({"kty": "EC", "crv": curve, "x": number(&x), "y": number(&y)})
            }
            "EdDSA" => {
                let x = B64.encode(self.key.raw_public_key().unwrap());
                json!({"kty": "OKP", "crv": "Ed25519", "x": x})
            }
            _ => {
                let key = self.key.rsa().unwrap();
                json!({"kty": "RSA", "n": B64.encode(key.n().to_vec()), "e": B64.encode(key.e().to_vec())})
            }
        };
        jwk["kid"] = self.id.into();
        jwk
    }

    fn signature(&self, message: &[u8]) -> Vec<u8> {
        let digest = match self.algorithm.get(2..) {
            Some("256") => MessageDigest::sha256(),
            Some("384") => MessageDigest::sha384(),
            _ => MessageDigest::sha512(),
        };
        match self.algorithm {
            "EdDSA" => {
                let mut signer = Signer::new_without_digest(&self.key).unwrap();
                signer.sign_oneshot_to_vec(message).unwrap()
            }
            "ES256" | "ES384" => {
                let mut signer = Signer::new(digest, &self.key).unwrap();
                let der = signer.sign_oneshot_to_vec(message).unwrap();
                let pair = EcdsaSig::from_der(&der).unwrap();
                let bytes = if self.algorithm == "ES256" { 32 } else { 48 };
                let number = |n: &openssl::bn::BigNumRef| n.to_vec_padded(bytes).unwrap();
                [number(pair.r()), number(pair.s())].concat()
            }
            other => {
                let mut signer = Signer::new(digest, &self.key).unwrap();
                if other.starts_with("PS") {
                    signer.set_rsa_padding(Padding::PKCS1_PSS).unwrap();
                    signer.set_rsa_mgf1_md(digest).unwrap();
                    signer
                        .set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH)
                        .unwrap();
                }
                signer.sign_oneshot_to_vec(message).unwrap()
            }
        }
    }

    fn header(&self) -> Value {
        json!({"alg": self.algorithm, "kid": self.id, "typ": "at+jwt"})
    }

    fn token(&self, claims: &Value) -> String {
        self.token_with(&self.header(), claims)
    }

    fn token_with(&self, header: &Value, claims: &Value) -> String {
        let message = format!(
            "{}.{}",
            B64.encode(header.to_string()),
            B64.encode(claims.to_string())
        );
        let signature = B64.encode(self.signature(message.as_bytes()));
        format!("{message}.{signature}")
    }
}

fn key_set(keys: &[&SigningKey]) -> KeySet {
    let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
    KeySet::parse(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
}

fn verifier() -> TokenVerifier {
    TokenVerifier::new(vec![Issuer {
        url: ISSUER.to_owned(),
        audiences: vec![US.to_owned(), "storage".to_owned()],
        base_path: b"/vo".to_vec(),
        account: "vo".to_owned(),
    }])
}

fn wlcg_claims() -> Value {
    json!({
        "iss": ISSUER, "sub": "9b1d", "aud": US, "exp": NOW + 3600, "nbf": NOW - 10, "iat": NOW - 10,
        "jti": "4711", "wlcg.ver": "1.0", "scope": "openid storage.read:/data",
    })
}

/// The claim that is refused.
fn refused_claim(result: Result<VerifiedToken, TokenError>) -> String {
    match result {
        Err(TokenError::Refused { claim, .. }) => claim.to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn every_asymmetric_algorithm_is_verified() {
    for algorithm in [
        "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA",
    ] {
        let key = SigningKey::new("k", algorithm);
        let keys = key_set(&[&key]);
        let token = key.token(&wlcg_claims());
        let verified = verifier().verify(token.as_bytes(), &keys, now()).unwrap();
        assert_eq!(verified.subject, "9b1d");
        assert_eq!(verified.account, "vo");
        assert_eq!(verified.id.as_deref(), Some("4711"));
        assert_eq!(verified.expires, now() + Duration::from_secs(3600));
        assert!(verified.scopes.rights(b"/vo/data/x").read);
        // One bit of the signature changes.
        let (message, signature) = token.rsplit_once('.').unwrap();
        let mut bytes = B64.decode(signature).unwrap();
        bytes[7] ^= 1;
        let forged = format!("{message}.{}", B64.encode(bytes));
        let result = verifier().verify(forged.as_bytes(), &keys, now());
        assert_eq!(refused_claim(result), "signature", "{algorithm}");
    }
}

#[test]
fn changed_claims_break_the_signature() {
    let key = SigningKey::new("k", "ES256");
    let keys = key_set(&[&key]);
    let token = key.token(&wlcg_claims());
    let parts: Vec<&str> = token.split('.').collect();
    let mut claims = wlcg_claims();
    claims["scope"] = "storage.modify:/".into();
    let forged = format!(
        "{}.{}.{}",
        parts[0],
        B64.encode(claims.to_string()),
        parts[2]
    );
    let result = verifier().verify(forged.as_bytes(), &keys, now());
    assert_eq!(refused_claim(result), "signature");
    let empty = format!("{}.{}.", parts[0], parts[1]);
    let result = verifier().verify(empty.as_bytes(), &keys, now());
    assert_eq!(refused_claim(result), "signature");
}

#[test]
fn no_algorithm_without_a_public_key_is_accepted() {
    let key = SigningKey::new("k", "RS256");
    let keys = key_set(&[&key]);
    let public = key.key.public_key_to_pem().unwrap();
    let claims = wlcg_claims();
    for algorithm in [
        "none", "None", "nOnE", "HS256", "HS384", "HS512", "ES512", "",
    ] {
        let header = json!({"alg": algorithm, "kid": "k"});
        // The public key as the secret of an HMAC (CVE-2015-9235), and no signature at all.
        let message = format!(
            "{}.{}",
            B64.encode(header.to_string()),
            B64.encode(claims.to_string())
        );
        let secret = PKey::hmac(&public).unwrap();
        let mut signer = Signer::new(MessageDigest::sha256(), &secret).unwrap();
        let hmac = B64.encode(signer.sign_oneshot_to_vec(message.as_bytes()).unwrap());
        for signature in [hmac.as_str(), ""] {
            let token = format!("{message}.{signature}");
            let result = verifier().verify(token.as_bytes(), &keys, now());
            assert_eq!(refused_claim(result), "alg", "{algorithm}");
        }
    }
}

#[test]
fn the_algorithm_must_fit_the_key() {
    let (rsa, ec) = (SigningKey::new("r", "RS256"), SigningKey::new("e", "ES256"));
    let keys = key_set(&[&rsa, &ec]);
    for (signer, algorithm, kid) in [
        (&rsa, "RS256", "e"),
        (&ec, "ES256", "r"),
        (&ec, "ES384", "e"),
        (&ec, "EdDSA", "e"),
    ] {
        let header = json!({"alg": algorithm, "kid": kid});
        let token = signer.token_with(&header, &wlcg_claims());
        let result = verifier().verify(token.as_bytes(), &keys, now());
        assert_eq!(refused_claim(result), "alg", "{algorithm} {kid}");
    }
    // A key that is declared for one algorithm is not used for another.
    let mut jwk = rsa.jwk();
    jwk["alg"] = "PS256".into();
    let keys = KeySet::parse(json!({"keys": [jwk]}).to_string().as_bytes()).unwrap();
    let result = verifier().verify(rsa.token(&wlcg_claims()).as_bytes(), &keys, now());
    assert_eq!(refused_claim(result), "alg");
}

#[test]
fn the_key_is_the_one_that_the_token_names() {
    let (first, second) = (SigningKey::new("1", "ES256"), SigningKey::new("2", "ES256"));
    let both = key_set(&[&first, &second]);
    let verify = |token: &str, keys: &KeySet| verifier().verify(token.as_bytes(), keys, now());
    verify(&second.token(&wlcg_claims()), &both).unwrap();
    let unknown = verify(&second.token(&wlcg_claims()), &key_set(&[&first])).unwrap_err();
    assert!(unknown.is_unknown_key(), "{unknown}");
    let nameless = second.token_with(&json!({"alg": "ES256"}), &wlcg_claims());
    assert!(verify(&nameless, &both).unwrap_err().is_unknown_key());
    verify(&nameless, &key_set(&[&second])).unwrap();
    assert_eq!(
        refused_claim(verify(&nameless, &key_set(&[&first]))),
        "signature"
    );
}

#[test]
fn keys_inside_the_token_are_ignored() {
    let (issuer, thief) = (SigningKey::new("k", "ES256"), SigningKey::new("k", "ES256"));
    let mut header = thief.header();
    header["jwk"] = thief.jwk();
    header["jku"] = "https://thief.example.org/keys".into();
    header["x5u"] = "https://thief.example.org/cert".into();
    let token = thief.token_with(&header, &wlcg_claims());
    let result = verifier().verify(token.as_bytes(), &key_set(&[&issuer]), now());
    assert_eq!(refused_claim(result), "signature");
}

#[test]
fn headers_that_change_the_meaning_are_refused() {
    let key = SigningKey::new("k", "ES256");
    let keys = key_set(&[&key]);
    for (name, value, expected) in [
        ("crit", json!(["b64"]), "crit"),
        ("crit", json!("x"), "crit"),
        ("typ", json!("logout+jwt"), "typ"),
        ("typ", json!("dpop+jwt"), "typ"),
    ] {
        let mut header = key.header();
        header[name] = value;
        let token = key.token_with(&header, &wlcg_claims());
        let result = verifier().verify(token.as_bytes(), &keys, now());
        assert_eq!(refused_claim(result), expected);
    }
    for typ in ["JWT", "jwt", "application/at+jwt"] {
        let mut header = key.header();
        header["typ"] = typ.into();
        let token = key.token_with(&header, &wlcg_claims());
        verifier().verify(token.as_bytes(), &keys, now()).unwrap();
    }
}

#[test]
fn garbage_is_malformed_and_never_shown_whole() {
    let key = SigningKey::new("k", "ES256");
    let keys = key_set(&[&key]);
    let token = key.token(&wlcg_claims());
    let longest = "a".repeat(MAX_TOKEN + 1);
    let header = B64.encode("[]");
    for garbage in [
        "",
        ".",
        "..",
        "...",
        "a.b",
        "a.b.c",
        "\u{0}.\u{0}.\u{0}",
        &format!("{token}.x"),
        &format!("{token}="),
        &format!("{token}%"),
        &format!(" {token}"),
        &format!("{header}.{header}.{header}"),
        &longest,
    ] {
        let error = verifier()
            .verify(garbage.as_bytes(), &keys, now())
            .unwrap_err();
        assert!(matches!(error, TokenError::Malformed(_)), "{error}");
        assert!(error.to_string().len() < 250 && !error.to_string().contains(&token));
        let _ = verifier().issuer_of(garbage.as_bytes());
    }
    assert!(verifier().issuer_of(longest.as_bytes()).is_err());
}

#[test]
fn weak_symmetric_and_foreign_keys_are_left_out_of_a_set() {
    let good = SigningKey::new("good", "ES256");
    let weak = PKey::from_rsa(Rsa::generate(1024).unwrap()).unwrap();
    let n = B64.encode(weak.rsa().unwrap().n().to_vec());
    let off_curve = {
        let mut jwk = good.jwk();
        jwk["y"] = jwk["x"].clone();
        jwk
    };
    let mut for_encryption = good.jwk();
    for_encryption["use"] = "enc".into();
    let set = json!({"keys": [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "h", "alg": "HS256"},
        {"kty": "RSA", "n": n, "e": "AQAB", "kid": "w"},
        {"kty": "RSA", "n": "AQ", "e": "AQ"},
        {"kty": "EC", "crv": "P-521", "x": "AQ", "y": "AQ"},
        {"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ"},
        {"kty": "OKP", "crv": "X25519", "x": "AQ"},
        {"kty": "OKP", "crv": "Ed25519", "x": "AQ"},
        {"kty": 7}, 12, null, "text",
        off_curve, for_encryption, good.jwk(),
    ]});
    let keys = KeySet::parse(set.to_string().as_bytes()).unwrap();
    assert_eq!(keys.len(), 1);
    for text in ["", "[]", "{}", "{\"keys\":{}}", "{\"keys\":[", "<html>"] {
        KeySet::parse(text.as_bytes()).unwrap_err();
    }
    KeySet::parse(&vec![b' '; (1 << 20) + 1]).unwrap_err();
    assert!(KeySet::parse(b"{\"keys\":[]}").unwrap().is_empty());
}
