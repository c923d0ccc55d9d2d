//! Bearer tokens that fail a check.

use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use interop::cells::MatrixRow;
use interop::longhaul::copy;
use interop::longhaul::rows::path_argument;
use interop::matrix;
use interop::pki::environment::GridEnvironment;
use interop::test_files;
use openssl::pkey::{PKey, Private};
use openssl::sign::Signer;
use serde_json::{Value, json};

use super::session::IntruderSession;
use super::target::AttackTarget;

const ISSUER: &str = "https://issuer.example.org";

/// An issuer whose key the server knows.
struct ForgedTokens {
    key: PKey<Private>,
}

impl ForgedTokens {
    /// A token with these changes of its header and claims.
    fn token(&self, change: impl FnOnce(&mut Value, &mut Value)) -> Result<String> {
        let now = SystemTime::UNIX_EPOCH.elapsed()?.as_secs();
        let mut header = json!({"alg": "EdDSA", "kid": "k"});
        let mut claims = json!({
            "iss": ISSUER, "sub": "ann", "aud": "us", "exp": now + 600, "iat": now,
            "wlcg.ver": "1.0", "scope": "storage.read:/",
        });
        change(&mut header, &mut claims);
        let message = format!(
            "{}.{}",
            BASE64.encode(header.to_string()),
            BASE64.encode(claims.to_string())
        );
        let mut signer = Signer::new_without_digest(&self.key)?;
        let signature = signer.sign_oneshot_to_vec(message.as_bytes())?;
        Ok(format!("{message}.{}", BASE64.encode(signature)))
    }

    fn claim(&self, name: &str, value: impl Into<Value>) -> Result<String> {
        self.token(|_, claims| claims[name] = value.into())
    }
}

fn start() -> Result<(AttackTarget, ForgedTokens)> {
    let key = PKey::generate_ed25519()?;
    let x = BASE64.encode(key.raw_public_key()?);
    let jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": x, "kid": "k"});
    let target = AttackTarget::start_with(|pki, command| {
        let keys = pki.path("keys.json");
        std::fs::write(&keys, json!({ "keys": [jwk] }).to_string())?;
        let settings = format!(
            "[[token-issuer]]\nurl = \"{ISSUER}\"\naudience = [\"us\"]\nbase-path = \"/src\"\n\
             account = \"vo\"\nkeys = \"{}\"\n",
            keys.display()
        );
        std::fs::write(pki.path("serve.toml"), settings)?;
        Ok(command.option("--config", &pki.text_path("serve.toml")))
    })?;
    Ok((target, ForgedTokens { key }))
}

/// `longhaul cp` with a token of a file and with those of the environment.
#[test]
fn cp_logs_in_with_a_token_as_it_is_found() {
    let (target, site) = start().unwrap();
    let port = target.server.address().port();
    let url = format!("ftps://localhost:{port}/src/f1");
    let local = target.store.local();
    let to = path_argument(&local);
    let authorities = target.pki.text_path("certificates");
    let get = |environment: &GridEnvironment, options: &[&str]| {
        let fixed = ["--retries", "0", "--ca", &authorities];
        let arguments = [&fixed[..], options, &[&url, &to]].concat();
        copy::run_in(environment, &arguments)
    };
    let write = |name: &str, token: &str| -> Result<String> {
        let path = target.pki.path(name);
        std::fs::write(&path, token)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
        Ok(target.pki.text_path(name))
    };
    let good = site.claim("sub", "ann").unwrap();
    let file = write("good", &good).unwrap();
    let other = site.claim("scope", "storage.read:/deeper").unwrap();
    let other = write("other", &other).unwrap();
    let expired = write("expired", &site.claim("exp", 1).unwrap()).unwrap();
    let none = GridEnvironment::default;
    let mut cells = MatrixRow::new("cp with tokens");
    for (name, environment, options) in [
        ("--token", none(), &["--token", &*file][..]),
        (
            "BEARER_TOKEN",
            none().with("BEARER_TOKEN", &good),
            &["--token-host", "localhost"],
        ),
        (
            "BEARER_TOKEN_FILE",
            none().with("BEARER_TOKEN_FILE", &file),
            &["--token-host", "a.example,localhost"],
        ),
    ] {
        cells.check(name, || {
            let mark = target.log_mark();
            get(&environment, options)?.expect_success()?;
            matrix::check_and_remove(&test_files::shared(1)?, &local)?;
            let log = target.server.messages();
            ensure!(!log[mark..].contains(&good), "the token is in the log");
            ensure!(log[mark..].contains("token accepted"), "no login with it");
            Ok(())
        });
    }
    for (name, file, code) in [
        ("a path outside of the scope", &other, 3),
        ("an expired token", &expired, 3),
    ] {
        cells.check(name, || {
            get(&none(), &["--token", file])?.expect_code(code)?;
            ensure!(!local.exists(), "there is a file");
            Ok(())
        });
    }
    // Its audience is the server `us`, which nobody has named here.
    cells.check("BEARER_TOKEN for another server", || {
        let environment = none().with("BEARER_TOKEN", &good);
        for named in [&[][..], &["--token-host", "us"]] {
            let mark = target.log_mark();
            // Anonymous sessions may read here.
            get(&environment, named)?.expect_success()?;
            let log = target.server.messages();
            ensure!(!log[mark..].contains("token accepted"), "it was sent");
        }
        Ok(())
    });
    cells.finish();
}

/// Each row: the token, and the words of the log about it.
fn rows(site: &ForgedTokens) -> Result<Vec<(&'static str, String, Vec<&'static str>)>> {
    let now = SystemTime::UNIX_EPOCH.elapsed()?.as_secs();
    let good = site.claim("sub", "ann")?;
    let stranger = ForgedTokens {
        key: PKey::generate_ed25519()?,
    };
    let (unsigned, _) = good.rsplit_once('.').unwrap_or_default();
    let mut none = unsigned.to_owned();
    if let Some((_, claims)) = unsigned.split_once('.') {
        let header = BASE64.encode(json!({"alg": "none"}).to_string());
        none = format!("{header}.{claims}.");
    }
    Ok(vec![
        ("aud", site.claim("aud", "others")?, vec!["aud:", "others"]),
        (
            "iss",
            site.claim("iss", "https://thief.example.org")?,
            vec!["iss:", "thief.example.org"],
        ),
        (
            "exp",
            site.claim("exp", now - 3600)?,
            vec!["exp:", "expired"],
        ),
        (
            "nbf",
            site.claim("nbf", now + 3600)?,
            vec!["nbf:", "not yet valid"],
        ),
        (
            "scope",
            site.claim("scope", "openid")?,
            vec!["scope:", "openid"],
        ),
        (
            "the signature",
            stranger.claim("sub", "ann")?,
            vec!["signature:"],
        ),
        ("alg none", none, vec!["alg", "none"]),
        (
            "kid",
            site.token(|header, _| header["kid"] = "other".into())?,
            vec!["kid:", "other"],
        ),
        ("no token at all", "x".to_owned(), vec!["token:"]),
    ])
}

#[test]
fn forged_tokens_are_refused_and_the_log_names_the_claim() {
    let (target, site) = start().unwrap();
    let config = target.pki.web_client(None).unwrap();
    let address = target.server.address();
    let log_in = |host: u8, token: &str, code: &str| -> Result<String> {
        let mut session = IntruderSession::connect_from(host, address)?;
        session.start_tls(&config)?;
        session.expect("USER :bearer:", "331")?;
        session.expect(&format!("PASS {token}"), code)
    };
    let mut cells = MatrixRow::new("forged tokens");
    let mut texts = Vec::new();
    for (host, (name, token, words)) in (100..).zip(rows(&site).unwrap()) {
        cells.check(name, || {
            let mark = target.log_mark();
            texts.push(log_in(host, &token, "530")?);
            let words = [&["login refused", ":bearer:"], &words[..]].concat();
            let line = target.server.wait_for_message(mark, &words)?;
            // A token in the log could be replayed.
            ensure!(
                token.len() < 10 || !line.contains(&token),
                "the token is in the log"
            );
            Ok(())
        });
    }
    cells.check("the client learns nothing", || {
        texts.dedup();
        ensure!(texts.len() == 1, "{texts:?}");
        Ok(())
    });
    cells.check("a path outside of the scope", || {
        let token = site.claim("scope", "storage.read:/deeper storage.modify:/deeper")?;
        let mut session = IntruderSession::connect_from(120, address)?;
        session.start_tls(&config)?;
        session.expect("USER :bearer:", "331")?;
        session.expect(&format!("PASS {token}"), "230")?;
        for command in ["SIZE /src/f1", "SIZE /up", "DELE /src/f1", "MKD /src/made"] {
            let mark = target.log_mark();
            session.expect(command, "5")?;
            let (_, path) = command.split_once(' ').unwrap_or_default();
            let words = ["request refused", "127.0.0.120", path, "no right"];
            target.server.wait_for_message(mark, &words)?;
        }
        Ok(())
    });
    cells.check("in the clear", || {
        let mut session = IntruderSession::connect_from(121, address)?;
        let mark = target.log_mark();
        session.expect("USER :bearer:", "530")?;
        let words = ["command refused", "127.0.0.121", "USER", "530"];
        target.server.wait_for_message(mark, &words).map(drop)
    });
    cells.check("replayed after its end", || {
        let now = SystemTime::UNIX_EPOCH.elapsed()?.as_secs();
        // Long enough for a login on a busy machine.
        let end = now + 8;
        let token = site.claim("exp", end)?;
        log_in(122, &token, "230")?;
        // The token itself is the clock.
        while SystemTime::UNIX_EPOCH.elapsed()?.as_secs() < end {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let mark = target.log_mark();
        log_in(123, &token, "530")?;
        let words = ["login refused", "exp:", "expired"];
        target.server.wait_for_message(mark, &words).map(drop)
    });
    cells.check("a valid token still works", || {
        log_in(124, &site.claim("sub", "ann")?, "230").map(drop)
    });
    cells.check("the server serves on", || target.serves_others());
    cells.finish();
}
