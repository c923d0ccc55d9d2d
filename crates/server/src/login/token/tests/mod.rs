mod https;

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as B64;
use data::store::root::Root;
use openssl::pkey::{PKey, Private};
use openssl::sign::Signer;
use parking_lot::Mutex;
use proto::path::VPath;
use proto::security::BEARER_USER;
use proto::server::{FileErrorKind, FileRequest};
use security::token::KeySet;
use serde_json::{Value, json};

use super::fetch::FetchedKeys;
use super::*;
use crate::config::ServerConfig;
use crate::limits::{FREE_FAILURES, SessionLimits};
use crate::login::{Authenticator, Login, LoginRefusal, LoginRequest};

const ISSUER: &str = "https://issuer.example.org";
const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));
const PATIENCE: Duration = Duration::from_secs(60);

/// A key of an issuer.
struct IssuerKey(&'static str, PKey<Private>);

impl IssuerKey {
    fn new(id: &'static str) -> Self {
        Self(id, PKey::generate_ed25519().unwrap())
    }

    fn set(&self) -> Vec<u8> {
        let x = B64.encode(self.1.raw_public_key().unwrap());
        let jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": x, "kid": self.0});
        json!({ "keys": [jwk] }).to_string().into_bytes()
    }

    fn token(&self, change: impl FnOnce(&mut Value)) -> Secret {
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let mut claims = json!({
            "iss": ISSUER, "sub": "ann", "aud": "us", "exp": since + 600, "iat": since,
            "wlcg.ver": "1.0", "scope": "storage.read:/ storage.create:/in",
        });
        change(&mut claims);
        let header = json!({"alg": "EdDSA", "kid": self.0});
        let message = format!(
            "{}.{}",
            B64.encode(header.to_string()),
            B64.encode(claims.to_string())
        );
        let mut signer = Signer::new_without_digest(&self.1).unwrap();
        let signature = signer.sign_oneshot_to_vec(message.as_bytes()).unwrap();
        Secret(format!("{message}.{}", B64.encode(signature)).into_bytes())
    }
}

/// An issuer whose keys and failures the test decides. Each fetch waits for a permit, if there is a
/// gate.
#[derive(Debug)]
struct TestIssuer {
    answer: Mutex<Result<Vec<u8>, String>>,
    fetches: AtomicUsize,
    gate: Option<Mutex<Receiver<()>>>,
}

impl TestIssuer {
    fn new(key: &IssuerKey) -> Arc<Self> {
        Arc::new(Self {
            answer: Mutex::new(Ok(key.set())),
            fetches: AtomicUsize::new(0),
            gate: None,
        })
    }

    fn gated(key: &IssuerKey) -> (Arc<Self>, Sender<()>) {
        let (permit, permits) = channel();
        let issuer = Self {
            answer: Mutex::new(Ok(key.set())),
            fetches: AtomicUsize::new(0),
            gate: Some(Mutex::new(permits)),
        };
        (Arc::new(issuer), permit)
    }

    fn answer(&self, answer: Result<Vec<u8>, String>) {
        *self.answer.lock() = answer;
    }

    fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }
}

impl KeyFetcher for TestIssuer {
    fn fetch(&self, issuer: &str, _: &KeySource) -> Result<FetchedKeys, String> {
        assert_eq!(issuer, ISSUER);
        self.fetches.fetch_add(1, Ordering::SeqCst);
        if let Some(gate) = &self.gate {
            let permits = gate.lock();
            permits.recv_timeout(PATIENCE).map_err(|e| e.to_string())?;
        }
        let answer = self.answer.lock().clone()?;
        let keys = KeySet::parse(&answer).map_err(|error| error.to_string())?;
        Ok(FetchedKeys {
            keys,
            fresh_for: Duration::from_secs(300),
        })
    }
}

fn tables() -> Vec<TokenIssuerConfig> {
    vec![TokenIssuerConfig {
        url: ISSUER.to_owned(),
        audience: vec!["us".to_owned()],
        base_path: "/vo".to_owned(),
        account: "vo".to_owned(),
        keys: None,
    }]
}

fn logins(issuer: &Arc<TestIssuer>) -> Arc<TokenLogin> {
    let trusted = trusted_issuers(&tables()).unwrap();
    let fetcher: Arc<dyn KeyFetcher> = Arc::<TestIssuer>::clone(issuer);
    Arc::new(TokenLogin::with_fetcher(trusted, &fetcher))
}

#[tokio::test]
async fn logins_at_the_same_time_share_one_fetch() {
    let key = IssuerKey::new("k");
    let (issuer, permit) = TestIssuer::gated(&key);
    let logins = logins(&issuer);
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let (logins, token) = (Arc::clone(&logins), key.token(|_| ()));
            tokio::spawn(async move { logins.verify(&token).await.map(|token| token.subject) })
        })
        .collect();
    while issuer.fetches() == 0 {
        tokio::task::yield_now().await;
    }
    // One of the clients leaves; the others get the keys all the same.
    waiting[0].abort();
    permit.send(()).unwrap();
    for login in waiting.into_iter().skip(1) {
        assert_eq!(login.await.unwrap().unwrap(), "ann");
    }
    assert_eq!(issuer.fetches(), 1);
}

#[tokio::test]
async fn strange_keys_cause_no_flood_of_fetches() {
    let (key, other) = (IssuerKey::new("k"), IssuerKey::new("strange"));
    let issuer = TestIssuer::new(&key);
    let logins = logins(&issuer);
    for _ in 0..5 {
        let error = logins.verify(&other.token(|_| ())).await.unwrap_err();
        assert!(error.is_unknown_key(), "{error}");
    }
    assert_eq!(
        issuer.fetches(),
        1,
        "the first fetch was less than a minute ago"
    );
    logins.verify(&key.token(|_| ())).await.unwrap();
}

#[tokio::test]
async fn an_issuer_that_is_down_refuses_nobody_for_good() {
    let key = IssuerKey::new("k");
    let issuer = TestIssuer::new(&key);
    issuer.answer(Err("connection refused".to_owned()));
    let logins = logins(&issuer);
    for _ in 0..3 {
        let error = logins.verify(&key.token(|_| ())).await.unwrap_err();
        assert!(matches!(&error, BearerTokenError::Keys { .. }), "{error}");
        assert!(error.to_string().contains("connection refused"), "{error}");
    }
    assert_eq!(issuer.fetches(), 1, "no login waits for it in vain again");
}

#[tokio::test]
async fn a_token_of_another_issuer_fetches_nothing() {
    let key = IssuerKey::new("k");
    let issuer = TestIssuer::new(&key);
    let logins = logins(&issuer);
    let foreign = key.token(|claims| claims["iss"] = "https://other.example.org".into());
    let error = logins.verify(&foreign).await.unwrap_err();
    assert!(
        matches!(error, BearerTokenError::Refused { claim: "iss", .. }),
        "{error}"
    );
    assert!(logins.verify(&Secret(b"garbage".to_vec())).await.is_err());
    assert_eq!(issuer.fetches(), 0);
}

/// A server's logins with one issuer, and its root.
struct LoginFixture {
    authenticator: Authenticator,
    limits: Arc<SessionLimits>,
    dir: tempfile::TempDir,
}

impl LoginFixture {
    fn new(issuer: &Arc<TestIssuer>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("vo/in")).unwrap();
        std::fs::write(dir.path().join("vo/file"), "inside").unwrap();
        std::fs::write(dir.path().join("file"), "outside").unwrap();
        let config = ServerConfig::default();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        Self {
            authenticator: Authenticator::new(&config, root, None)
                .with_tokens(Some(logins(issuer))),
            limits: SessionLimits::new(config.session_bounds()),
            dir,
        }
    }

    async fn login(&self, token: Option<Secret>) -> Result<Login, LoginRefusal> {
        let request = LoginRequest {
            user: BEARER_USER.to_owned(),
            password: token,
            peer: PEER,
            client: None,
            certified_until: None,
        };
        self.authenticator.authenticate(request, &self.limits).await
    }
}

#[tokio::test]
async fn a_login_has_the_rights_and_the_name_of_its_token() {
    let key = IssuerKey::new("k");
    let server = LoginFixture::new(&TestIssuer::new(&key));
    let login = server.login(Some(key.token(|_| ()))).await.unwrap();
    assert_eq!(login.grant.user, format!("ann@{ISSUER}"));
    assert!(login.grant.rights.write);
    assert!(login.time_left().unwrap() > Duration::from_secs(500));
    let path = |text: &str| VPath::root().resolve(text.as_bytes()).unwrap();
    let run = |request| login.files.run(&request, &mut |_| true);
    run(FileRequest::Stat(path("/vo/file"))).unwrap();
    run(FileRequest::MakeDir(path("/vo/in/new"))).unwrap();
    assert!(server.dir.path().join("vo/in/new").is_dir());
    for request in [
        FileRequest::Stat(path("/file")),
        FileRequest::MakeDir(path("/vo/new")),
        FileRequest::Delete(path("/vo/in/new")),
    ] {
        assert_eq!(run(request).unwrap_err().kind, FileErrorKind::Denied);
    }
    let reading = key.token(|claims| claims["scope"] = "storage.read:/".into());
    let login = server.login(Some(reading)).await.unwrap();
    assert!(!login.grant.rights.write);
}

#[tokio::test]
async fn the_home_is_a_directory_that_the_token_reaches() {
    let key = IssuerKey::new("k");
    let server = LoginFixture::new(&TestIssuer::new(&key));
    let login = server.login(Some(key.token(|_| ()))).await.unwrap();
    assert_eq!(login.grant.home, VPath::root());
    let home = FileRequest::ChangeDir(login.grant.home.clone());
    login.files.run(&home, &mut |_| true).unwrap();
}

#[tokio::test]
async fn refusals_tell_the_client_nothing_and_the_log_everything() {
    let key = IssuerKey::new("k");
    let server = LoginFixture::new(&TestIssuer::new(&key));
    assert_eq!(
        server.login(None).await.unwrap_err(),
        LoginRefusal::PasswordNeeded
    );
    let wrong = key.token(|claims| claims["aud"] = "https://other.example.org".into());
    let refusal = server.login(Some(wrong)).await.unwrap_err();
    assert!(!refusal.to_string().contains("other"), "{refusal}");
    assert!(
        refusal.log_reason().contains("aud"),
        "{}",
        refusal.log_reason()
    );
    assert!(refusal.log_reason().contains("other.example.org"));
    assert!(!refusal.ends_session());
}

#[tokio::test]
async fn refused_tokens_delay_later_logins_and_a_dead_issuer_does_not() {
    let key = IssuerKey::new("k");
    let issuer = TestIssuer::new(&key);
    let server = LoginFixture::new(&issuer);
    let next_wait = || {
        let attempt = server
            .authenticator
            .throttle
            .begin(PEER, &format!("{BEARER_USER}{PEER}"))
            .unwrap();
        attempt.wait()
    };
    issuer.answer(Err("down".to_owned()));
    for _ in 0..=FREE_FAILURES {
        let refusal = server.login(Some(key.token(|_| ()))).await.unwrap_err();
        assert!(matches!(refusal, LoginRefusal::TokenKeys(_)), "{refusal:?}");
    }
    assert_eq!(next_wait(), Duration::ZERO);
    for _ in 0..FREE_FAILURES {
        let refused = Secret(b"garbage".to_vec());
        server.login(Some(refused)).await.unwrap_err();
    }
    assert_eq!(next_wait(), Duration::ZERO, "people mistake files");
    let refused = Secret(b"garbage".to_vec());
    server.login(Some(refused)).await.unwrap_err();
    assert!(!next_wait().is_zero());
}

#[test]
fn settings_become_issuers_and_a_reload_keeps_fetched_keys() {
    assert!(TokenLogin::new(&[], None).unwrap().is_none());
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys.json");
    std::fs::write(&keys, IssuerKey::new("k").set()).unwrap();
    let from_file = vec![TokenIssuerConfig {
        keys: Some(keys.display().to_string()),
        ..tables().remove(0)
    }];
    let first = TokenLogin::new(&from_file, None).unwrap().unwrap();
    let second = TokenLogin::new(&from_file, Some(&first)).unwrap().unwrap();
    assert!(
        !Arc::ptr_eq(&first.keys[ISSUER], &second.keys[ISSUER]),
        "files are read again"
    );
    let mut twice = tables();
    twice.extend(tables());
    assert!(TokenLogin::new(&twice, None).is_err());
}
