//! Key sets from a server with HTTPS.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use security::test_pki::TestAuthority;
use security::tls::{Handshake, ReadResult, TlsConfig, TlsEngine, TlsOptions};

use super::*;

/// Responses by path: the head after `HTTP/1.1 ` and the body. `ORIGIN` stands for the server's URL.
type Pages = Vec<(&'static str, &'static str, Vec<u8>)>;

/// A server that answers each connection once, until the process ends.
struct KeyServer {
    origin: String,
    authority: TestAuthority,
}

impl KeyServer {
    fn start(pages: Pages) -> Self {
        let authority = TestAuthority::new("/CN=web authority");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("https://{}", listener.local_addr().unwrap());
        let host = authority.host(&["127.0.0.1"]);
        let config = TlsConfig::new(TlsOptions::server().with_credential(host)).unwrap();
        let own = origin.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                answer(&config, stream.unwrap(), &pages, &own);
            }
        });
        Self { origin, authority }
    }

    fn fetch(&self, issuer: &str, path: &str, is_metadata: bool) -> Result<FetchedKeys, String> {
        fetch_with(
            &self.authority,
            issuer,
            &format!("{}{path}", self.origin),
            is_metadata,
        )
    }
}

fn fetch_with(
    authority: &TestAuthority,
    issuer: &str,
    url: &str,
    is_metadata: bool,
) -> Result<FetchedKeys, String> {
    let trust = TrustStore::exactly(vec![authority.certificate().clone()]);
    let source = match is_metadata {
        true => KeySource::Metadata(url.to_owned()),
        false => KeySource::Url(url.to_owned()),
    };
    SystemFetcher::new(Some(Arc::new(trust))).fetch(issuer, &source)
}

fn answer(config: &TlsConfig, mut stream: TcpStream, pages: &Pages, origin: &str) {
    let mut engine = TlsEngine::new(config, None).unwrap();
    let mut request = Vec::new();
    let mut is_answered = false;
    loop {
        let ended = match engine.handshake() {
            Ok(Handshake::Complete) => {
                let mut space = [0; 4096];
                match engine.read(&mut space) {
                    Ok(ReadResult::Bytes(count)) => {
                        request.extend_from_slice(&space[..count]);
                        false
                    }
                    Ok(ReadResult::NeedsInput) => false,
                    Ok(ReadResult::Closed) | Err(_) => true,
                }
            }
            Ok(Handshake::NeedsInput) => false,
            Err(_) => true,
        };
        if request.ends_with(b"\r\n\r\n") && !is_answered {
            is_answered = true;
            // A client that has enough closes early.
            let _ = engine.write(&response(&request, pages, origin));
            let _ = engine.close();
        }
        let count = engine.outgoing().len();
        if stream.write_all(engine.outgoing()).is_err() || ended {
            return;
        }
        engine.mark_sent(count);
        let mut received = [0; 4096];
        match stream.read(&mut received) {
            Ok(0) | Err(_) => return,
            Ok(count) => engine.receive(&received[..count]),
        }
    }
}

fn response(request: &[u8], pages: &Pages, origin: &str) -> Vec<u8> {
    let text = String::from_utf8_lossy(request);
    let path = text.split(' ').nth(1).unwrap_or_default();
    let page = pages.iter().find(|(known, ..)| *known == path);
    let (head, body) = page.map_or(("404 Not Found", &b""[..]), |(_, head, body)| (*head, body));
    let body = match std::str::from_utf8(body) {
        Ok(text) => text.replace("ORIGIN", origin).into_bytes(),
        Err(_) => body.to_vec(),
    };
    let head = format!(
        "HTTP/1.1 {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        head.replace("ORIGIN", origin),
        body.len()
    );
    [head.as_bytes(), &body].concat()
}

fn metadata(issuer: &str, keys: &str) -> Vec<u8> {
    json!({"issuer": issuer, "jwks_uri": keys})
        .to_string()
        .into_bytes()
}

#[test]
fn keys_are_found_by_the_issuers_metadata() {
    let key = IssuerKey::new("k");
    let server = KeyServer::start(vec![
        ("/meta", "200 OK", metadata(ISSUER, "ORIGIN/moved")),
        ("/moved", "302 Found\r\nLocation: ORIGIN/keys", Vec::new()),
        ("/keys", "200 OK\r\nCache-Control: max-age=900", key.set()),
    ]);
    let fetched = server.fetch(ISSUER, "/meta", true).unwrap();
    assert_eq!(fetched.keys.len(), 1);
    assert_eq!(fetched.fresh_for, Duration::from_secs(900));
    let direct = server.fetch(ISSUER, "/keys", false).unwrap();
    assert_eq!(direct.keys.len(), 1);
}

#[test]
fn documents_that_are_not_the_issuers_are_refused() {
    let key = IssuerKey::new("k");
    let server = KeyServer::start(vec![
        (
            "/other",
            "200 OK",
            metadata("https://other.example.org", "ORIGIN/keys"),
        ),
        (
            "/clear",
            "200 OK",
            metadata(ISSUER, "http://127.0.0.1:1/keys"),
        ),
        ("/file", "200 OK", metadata(ISSUER, "file:///etc/passwd")),
        (
            "/redirect",
            "302 Found\r\nLocation: http://127.0.0.1:1/keys",
            Vec::new(),
        ),
        ("/loop", "302 Found\r\nLocation: ORIGIN/loop", Vec::new()),
        ("/html", "200 OK", b"<html>".to_vec()),
        ("/empty", "200 OK", b"{\"keys\":[]}".to_vec()),
        ("/large", "200 OK", vec![b' '; (1 << 20) + 1]),
        ("/keys", "200 OK", key.set()),
    ]);
    for (path, is_metadata, reason) in [
        ("/other", true, "other.example.org"),
        ("/clear", true, "https"),
        ("/file", true, "file:"),
        ("/redirect", false, "https"),
        ("/loop", false, "redirect"),
        ("/html", false, "Key Set"),
        ("/html", true, "metadata"),
        ("/empty", false, "no usable key"),
        ("/large", false, "limit"),
        ("/none", false, "404"),
    ] {
        let error = server.fetch(ISSUER, path, is_metadata).unwrap_err();
        assert!(error.contains(reason), "{path}: {error}");
    }
    server.fetch(ISSUER, "/keys", false).unwrap();
}

#[test]
fn a_server_that_cannot_be_verified_is_not_believed() {
    let server = KeyServer::start(vec![("/keys", "200 OK", IssuerKey::new("k").set())]);
    let stranger = TestAuthority::new("/CN=strange authority");
    let url = format!("{}/keys", server.origin);
    let error = fetch_with(&stranger, ISSUER, &url, false).unwrap_err();
    assert!(
        error.contains("127.0.0.1") || error.contains("authority"),
        "{error}"
    );
    // The certificate is for the address, not for this name of it.
    let named = url.replace("127.0.0.1", "localhost");
    let error = fetch_with(&server.authority, ISSUER, &named, false).unwrap_err();
    assert!(error.contains("localhost"), "{error}");
}

#[test]
fn a_server_that_is_silent_is_given_up() {
    // Connections wait in the backlog and are never answered.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/keys", listener.local_addr().unwrap());
    let authority = TestAuthority::new("/CN=web authority");
    let began = std::time::Instant::now();
    let error = fetch_with(&authority, ISSUER, &url, false).unwrap_err();
    assert!(began.elapsed() < PATIENCE, "{error}");
    assert!(error.contains("timeout"), "{error}");
}
