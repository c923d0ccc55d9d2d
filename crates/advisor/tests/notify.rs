//! Anomalies reach scripted HTTP servers and a scripted sendmail(8).

#![expect(clippy::unwrap_used, reason = "a test reports by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use advisor::config::{MailAddress, MailConfig};
use advisor::measurement::Quantity;
use advisor::notify::anomaly::{AnomalyBatch, AnomalyEvent};
use advisor::notify::mail::Mailer;
use advisor::notify::webhook::Webhook;
use advisor::notify::{Notifier, NotifySettings, SendRetry};
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{SslAcceptor, SslMethod};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509NameBuilder};
use tune::path::SeriesEvent;

const LONG: Duration = Duration::from_secs(120);

const RETRY: SendRetry = SendRetry {
    attempts: 3,
    first_pause: Duration::from_millis(1),
};

fn event() -> AnomalyEvent {
    AnomalyEvent {
        at: "2026-11-23T02:27:23Z".parse().unwrap(),
        client: "2001:db8::7".parse().unwrap(),
        quantity: Quantity::Rtt,
        anomaly: SeriesEvent::Shift {
            from: 0.05,
            to: 0.2,
        },
    }
}

fn batch() -> AnomalyBatch {
    AnomalyBatch {
        events: vec![event()],
        left_out: 0,
    }
}

/// Serves one connection after the other on a thread, and hands on what each one sent.
fn server(
    connections: usize,
    mut serve: impl FnMut(usize, TcpStream) -> String + Send + 'static,
) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, received) = channel();
    std::thread::spawn(move || {
        for n in 0..connections {
            let (stream, _) = listener.accept().unwrap();
            sender.send(serve(n, stream)).unwrap();
        }
    });
    (address, received)
}

/// Answers the requests with these statuses, and hands on head and body.
fn http(statuses: &'static [u16]) -> (SocketAddr, Receiver<String>) {
    server(statuses.len(), |n, stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let start = head.len();
            reader.read_line(&mut head).unwrap();
            let line = head[start..].trim().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let mut stream = stream;
        let answer = format!(
            "HTTP/1.1 {} X\r\nContent-Length: 0\r\nLocation: /other\r\nConnection: close\r\n\r\n",
            statuses[n]
        );
        stream.write_all(answer.as_bytes()).unwrap();
        head + &String::from_utf8(body).unwrap()
    })
}

fn webhook(address: SocketAddr) -> Webhook {
    Webhook::new(&format!("http://{address}/hook?key=secret"), LONG, RETRY).unwrap()
}

/// A program like sendmail(8) that ends like this in turn; and the directory of what it was given.
fn sendmail(ends: &[&str]) -> (tempfile::TempDir, MailConfig) {
    let directory = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/mail/sendmail");
    let program = directory.path().join("sendmail");
    std::os::unix::fs::symlink(script, &program).unwrap();
    std::fs::write(directory.path().join("ends"), ends.join("\n") + "\n").unwrap();
    let address = |text: &str| MailAddress::try_from(text.to_owned()).unwrap();
    let config = MailConfig {
        to: vec![address("noc@example.org"), address("ann@example.org")],
        from: Some(address("advisor@dtn1.example")),
        program: program.to_str().unwrap().to_owned(),
    };
    (directory, config)
}

#[test]
fn a_webhook_gets_the_digest_and_failures_that_pass_are_retried() {
    let (address, requests) = http(&[503, 200]);
    let hook = webhook(address).authorization("Bearer t".to_owned());
    hook.send("dtn1", &batch()).unwrap();
    for request in requests.iter().take(2) {
        assert!(
            request.starts_with("POST /hook?key=secret HTTP/1.1\r\n"),
            "{request}"
        );
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let head = head.to_ascii_lowercase();
        assert!(head.contains("authorization: bearer t"), "{head}");
        assert!(head.contains("content-type: application/json"), "{head}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["host"], "dtn1");
        assert_eq!(body["events"][0]["client"], "2001:db8::7");
        assert_eq!(body["events"][0]["quantity"], "rtt");
        assert_eq!(body["events"][0]["anomaly"]["kind"], "shift");
        assert_eq!(body["events"][0]["anomaly"]["to"], 0.2);
        assert_eq!(
            body["text"],
            "dtn1: path to 2001:db8::7: rtt went from 50.0 ms to 200.0 ms"
        );
    }
}

#[test]
fn a_webhook_is_not_retried_for_ever_and_a_refusal_not_at_all() {
    let (address, _requests) = http(&[500, 500, 500]);
    let error = webhook(address).send("dtn1", &batch()).unwrap_err();
    assert_eq!(error.attempts, 3);
    for status in [&[404], &[302]] as [&'static [u16]; 2] {
        let (address, _requests) = http(status);
        let error = webhook(address).send("dtn1", &batch()).unwrap_err();
        assert_eq!(error.attempts, 1, "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let error = Webhook::new("ftp://example.org/", LONG, RETRY);
    assert!(error.is_err());
}

#[test]
fn nothing_is_posted_to_an_https_server_whose_certificate_nobody_vouches_for() {
    let (certificate, key) = certificate();
    let (address, sessions) = server(1, move |_, stream| {
        let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls()).unwrap();
        acceptor.set_private_key(&key).unwrap();
        acceptor.set_certificate(&certificate).unwrap();
        let mut said = String::new();
        if let Ok(mut stream) = acceptor.build().accept(stream) {
            let _ = stream.read_to_string(&mut said);
        }
        said
    });
    let hook = Webhook::new(&format!("https://{address}/?key=secret"), LONG, RETRY).unwrap();
    let error = hook.send("dtn1", &batch()).unwrap_err();
    assert_eq!(error.attempts, 1, "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
    assert_eq!(sessions.recv().unwrap(), "");
}

#[test]
fn a_webhook_that_does_not_answer_is_left_after_the_time_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let once = SendRetry {
        attempts: 1,
        ..RETRY
    };
    let hook = Webhook::new(&url, Duration::from_millis(50), once).unwrap();
    let error = hook.send("dtn1", &batch()).unwrap_err();
    assert_eq!(error.reason, "no answer in time");
}

#[test]
fn a_mail_reaches_every_receiver_and_passing_failures_are_retried() {
    let (directory, config) = sendmail(&["75", "0"]);
    let mailer = Mailer::new(&config, LONG, RETRY).unwrap();
    mailer.send("dtn1", &batch()).unwrap();
    let read = |name| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let arguments = "-i -t -f advisor@dtn1.example\n";
    assert_eq!(read("arguments"), arguments.repeat(2));
    let message = "From: advisor@dtn1.example\n\
                   To: noc@example.org,\n ann@example.org\n\
                   Subject: dtn1: path to 2001:db8::7: rtt went from 50.0 ms to 200.0 ms\n\
                   Auto-Submitted: auto-generated\n\
                   MIME-Version: 1.0\n\
                   Content-Type: text/plain; charset=utf-8\n\n\
                   2026-11-23T02:27:23Z  2001:db8::7: rtt went from 50.0 ms to 200.0 ms\n";
    assert_eq!(read("messages"), message.repeat(2));
}

#[test]
fn a_refused_mail_is_not_sent_again() {
    let (_directory, config) = sendmail(&["67"]);
    let mailer = Mailer::new(&config, LONG, RETRY).unwrap();
    let error = mailer.send("dtn1", &batch()).unwrap_err();
    assert_eq!(error.attempts, 1);
    assert_eq!(
        error.to_string(),
        "cannot notify noc@example.org, ann@example.org (1 attempts): exit status: 67: mail system: 67"
    );
}

#[test]
fn a_program_that_does_not_end_is_killed_and_not_tried_again() {
    let (_directory, config) = sendmail(&["never"]);
    let mailer = Mailer::new(&config, Duration::from_millis(500), RETRY).unwrap();
    let error = mailer.send("dtn1", &batch()).unwrap_err();
    assert_eq!(error.attempts, 1);
    assert!(error.reason.ends_with("takes longer than 500ms"), "{error}");
}

#[test]
fn a_line_end_in_the_subject_begins_no_header_field() {
    let (directory, config) = sendmail(&["0"]);
    let mailer = Mailer::new(&config, LONG, RETRY).unwrap();
    mailer.send("dtn1\r\nBcc: x@example.org", &batch()).unwrap();
    let message = std::fs::read_to_string(directory.path().join("messages")).unwrap();
    assert!(!message.contains("\nBcc:"), "{message}");
    assert!(message.contains("Subject: dtn1  Bcc: x@"), "{message}");
}

#[test]
fn a_missing_mail_program_is_named_at_once() {
    let (_directory, mut config) = sendmail(&[]);
    config.program = "/nonexistent/sendmail".to_owned();
    let error = Mailer::new(&config, LONG, RETRY).unwrap_err();
    assert_eq!(error.to_string(), "/nonexistent/sendmail: no such program");
}

/// A certificate for 127.0.0.1, signed by itself, and its key.
fn certificate() -> (X509, PKey<Private>) {
    let key = PKey::from_rsa(openssl::rsa::Rsa::generate(2048).unwrap()).unwrap();
    let mut name = X509NameBuilder::new().unwrap();
    name.append_entry_by_text("CN", "127.0.0.1").unwrap();
    let name = name.build();
    let mut builder = X509Builder::new().unwrap();
    builder.set_version(2).unwrap();
    builder.set_subject_name(&name).unwrap();
    builder.set_issuer_name(&name).unwrap();
    builder.set_pubkey(&key).unwrap();
    let day = |n| openssl::asn1::Asn1Time::days_from_now(n).unwrap();
    builder.set_not_before(&day(0)).unwrap();
    builder.set_not_after(&day(2)).unwrap();
    let address = SubjectAlternativeName::new()
        .ip("127.0.0.1")
        .build(&builder.x509v3_context(None, None))
        .unwrap();
    builder.append_extension(address).unwrap();
    let authority = BasicConstraints::new().ca().build().unwrap();
    builder.append_extension(authority).unwrap();
    builder.sign(&key, MessageDigest::sha256()).unwrap();
    (builder.build(), key)
}

#[test]
fn the_notifier_sends_the_first_at_once_and_the_rest_at_its_end() {
    let (address, requests) = http(&[200, 200]);
    let notifier = Notifier::start(NotifySettings {
        host: "dtn1".to_owned(),
        webhooks: vec![webhook(address)],
        mailer: None,
        interval: Duration::from_secs(3600),
        most: 2,
    })
    .unwrap();
    notifier.notify(event());
    let first = requests.recv().unwrap();
    assert!(first.contains("\"left_out\":0"), "{first}");
    for _ in 0..5 {
        notifier.notify(event());
    }
    drop(notifier);
    let rest = requests.recv().unwrap();
    assert!(rest.contains("\"left_out\":3"), "{rest}");
}
