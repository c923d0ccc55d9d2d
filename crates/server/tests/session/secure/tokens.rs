//! Logins with bearer tokens: `USER :bearer:` and the token as the password.

use std::fs;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as B64;
use openssl::pkey::{PKey, Private};
use openssl::sign::Signer;
use serde_json::{Value, json};
use server::config::TokenIssuerConfig;

use super::super::data_port;
use super::super::in_process_server::eventually;
use super::client::SecureClient;
use super::data;
use super::server::{SecureServer, TestPki};

const ISSUER: &str = "https://issuer.example.org";

/// An issuer whose keys are in a file, and a server that trusts it for `/vo`.
struct TokenFixture {
    pki: TestPki,
    server: SecureServer,
    key: PKey<Private>,
}

impl TokenFixture {
    fn new() -> Self {
        let pki = TestPki::new();
        let key = PKey::generate_ed25519().unwrap();
        let x = B64.encode(key.raw_public_key().unwrap());
        let jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": x, "kid": "k"});
        let keys = pki.path("keys.json");
        fs::write(&keys, json!({ "keys": [jwk] }).to_string()).unwrap();
        let server = SecureServer::with_config(&pki, |config| {
            config.security.token_issuers = vec![TokenIssuerConfig {
                url: ISSUER.to_owned(),
                audience: vec!["us".to_owned()],
                base_path: "/vo".to_owned(),
                account: "vo".to_owned(),
                keys: Some(keys.display().to_string()),
            }];
        });
        fs::create_dir(server.path("vo")).unwrap();
        fs::create_dir(server.path("other")).unwrap();
        Self { pki, server, key }
    }

    /// A token for `scope` that is valid for `seconds`.
    fn token(&self, scope: &str, seconds: u64) -> String {
        self.token_with(scope, seconds, |_| ())
    }

    fn token_with(&self, scope: &str, seconds: u64, change: impl FnOnce(&mut Value)) -> String {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let mut claims = json!({
            "iss": ISSUER, "sub": "ann", "aud": "us", "exp": now + seconds, "iat": now,
            "wlcg.ver": "1.0", "scope": scope,
        });
        change(&mut claims);
        let header = json!({"alg": "EdDSA", "kid": "k"});
        let message = format!(
            "{}.{}",
            B64.encode(header.to_string()),
            B64.encode(claims.to_string())
        );
        let mut signer = Signer::new_without_digest(&self.key).unwrap();
        let signature = signer.sign_oneshot_to_vec(message.as_bytes()).unwrap();
        format!("{message}.{}", B64.encode(signature))
    }

    fn connect(&self) -> SecureClient {
        SecureClient::with_tls(self.server.address(), &self.pki.web_client(None))
    }

    fn log_in(&self, token: &str) -> SecureClient {
        let mut client = self.connect();
        client.expect("USER :bearer:", 331);
        client.expect(&format!("PASS {token}"), 230);
        client.expect("TYPE I", 200);
        client.protect();
        client
    }
}

#[test]
fn a_token_gives_the_rights_of_its_scopes() {
    let site = TokenFixture::new();
    let bytes = site.server.create_file("vo/f", 100_000);
    site.server.create_file("other/secret", 10);
    let mut client = site.log_in(&site.token("storage.read:/ storage.create:/in", 600));
    let shown = client.expect("SITE WHOAMI", 200);
    assert!(
        shown.text.contains("ann@https://issuer.example.org"),
        "{shown:?}"
    );
    let config = site.pki.web_client(None);
    let received = client.receive("RETR /vo/f", &config, None).unwrap();
    assert_eq!(received, bytes);
    client.expect_transferred();
    client.expect("MKD /vo/in", 257);
    client.expect("MKD /vo/elsewhere", 550);
    client.expect("DELE /vo/f", 550);
    client.expect("SIZE /other/secret", 550);
    client.expect("CWD /other", 550);
    client.pasv();
    client.expect("RETR /other/secret", 550);
    client.pasv();
    client.expect("STOR /other/new", 550);
    assert!(!site.server.path("other/new").exists());
    client.expect("QUIT", 221);
    eventually("the log names the holder", || {
        site.server.log().contains("ann@https://issuer.example.org")
    });
}

#[test]
fn tokens_are_accepted_over_tls_only() {
    let site = TokenFixture::new();
    let mut clear = SecureClient::connect(site.server.address());
    clear.expect("USER :bearer:", 530);
    clear.expect("PASS x", 503);
    let mut client = site.connect();
    let features = client.expect("FEAT", 211);
    assert!(
        features.text.contains("BEARER USER=:bearer:;"),
        "{features:?}"
    );
}

#[test]
fn a_refused_token_teaches_nothing_and_the_server_serves_on() {
    let site = TokenFixture::new();
    let scope = "storage.read:/";
    let good = site.token(scope, 600);
    let tampered = format!("{}AAAA", &good[..good.len() - 4]);
    let long = "a".repeat(15_000);
    let mut texts = Vec::new();
    for token in [
        site.token_with(scope, 600, |claims| claims["aud"] = "others".into()),
        site.token_with(scope, 600, |claims| {
            claims["iss"] = "https://thief.example.org".into();
        }),
        site.token("openid", 600),
        tampered,
    ] {
        let mut client = site.connect();
        client.expect("USER :bearer:", 331);
        texts.push(client.expect(&format!("PASS {token}"), 530).text);
    }
    texts.dedup();
    assert_eq!(texts.len(), 1, "{texts:?}");
    // The client's address waits now, so the rest is tried in the same session.
    let mut client = site.connect();
    client.expect("USER :bearer:", 331);
    client.expect(&format!("PASS {long}"), 530);
    client.expect("USER :bearer:", 331);
    client.expect(&format!("PASS {good}"), 230);
}

#[test]
fn a_session_ends_with_its_token_and_a_running_transfer_does_not() {
    let site = TokenFixture::new();
    let bytes = site.server.create_file("vo/large", 24 << 20);
    let token = site.token("storage.read:/ storage.modify:/", 4);
    let mut idle = site.log_in(&token);
    let mut busy = site.log_in(&token);
    let end = SystemTime::now() + Duration::from_secs(5);
    let address = busy.pasv();
    busy.send("RETR /vo/large");
    let stream = data_port::connect(address);
    busy.expect_code(150);
    let refused = idle.expect_code(421);
    assert!(refused.text.contains("expired"), "{refused:?}");
    eventually("the token expires", || SystemTime::now() > end);
    let config = site.pki.web_client(None);
    assert_eq!(data::read_all(stream, &config, None).unwrap(), bytes);
    busy.expect_code(226);
    busy.expect_code(421);
    // A replayed token opens nothing.
    let mut late = site.connect();
    late.expect("USER :bearer:", 331);
    late.expect(&format!("PASS {token}"), 530);
}
