//! Anomalies reach scripted HTTP and mail servers.

#![expect(clippy::unwrap_used, reason = "a test reports by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use advisor::measurement::Quantity;
use advisor::notify::anomaly::{AnomalyBatch, AnomalyEvent};
use advisor::notify::email::{MailSecurity, MailSettings, MailSettingsError, Mailer};
use advisor::notify::notifier::{Notifier, NotifySettings};
use advisor::notify::retry::SendRetry;
use advisor::notify::webhook::Webhook;
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

/// A mail server that offers these extensions, and answers DATA with these codes in turn.
fn smtp(extensions: &'static str, data_codes: &'static [u16]) -> (SocketAddr, Receiver<String>) {
    server(data_codes.len(), move |n, stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        let mut say = |text: &str| stream.write_all(format!("{text}\r\n").as_bytes()).is_ok();
        say("220 test");
        let (mut said, mut in_data) = (String::new(), false);
        loop {
            let start = said.len();
            if reader.read_line(&mut said).unwrap_or(0) == 0 {
                return said;
            }
            let line = said[start..].trim_end().to_owned();
            let verb = line.split(' ').next().unwrap_or_default().to_owned();
            match (in_data, verb.as_str()) {
                (true, ".") => {
                    in_data = false;
                    say(&format!("{} done", data_codes[n]));
                }
                (true, _) => {}
                (false, "EHLO") => {
                    say(&format!("250-test\r\n250 {extensions}"));
                }
                (false, "DATA") => {
                    in_data = true;
                    say("354 go on");
                }
                (false, "QUIT") => {
                    say("221 bye");
                    return said;
                }
                _ => {
                    say("250 ok");
                }
            }
        }
    })
}

fn mail(address: SocketAddr, security: MailSecurity) -> MailSettings {
    MailSettings {
        server: address.ip().to_string(),
        port: address.port(),
        security,
        authority: None,
        login: None,
        from: "Advisor <advisor@dtn1.example>".to_owned(),
        to: vec!["noc@example.org".to_owned(), "ann@example.org".to_owned()],
        timeout: LONG,
        retry: RETRY,
    }
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
    let (address, sessions) = smtp("8BITMIME", &[451, 250]);
    let mailer = Mailer::new(mail(address, MailSecurity::Plain)).unwrap();
    mailer.send("dtn1", &batch()).unwrap();
    drop(mailer);
    for session in sessions.iter().take(2) {
        assert!(
            session.contains("MAIL FROM:<advisor@dtn1.example>"),
            "{session}"
        );
        assert!(session.contains("RCPT TO:<noc@example.org>"), "{session}");
        assert!(session.contains("RCPT TO:<ann@example.org>"), "{session}");
        assert!(
            session.contains("Subject: dtn1: path to 2001:db8::7"),
            "{session}"
        );
        assert!(
            session.contains("2001:db8::7: rtt went from 50.0 ms to 200.0 ms"),
            "{session}"
        );
    }
}

#[test]
fn a_refused_mail_is_not_sent_again() {
    let (address, _sessions) = smtp("8BITMIME", &[554]);
    let mailer = Mailer::new(mail(address, MailSecurity::Plain)).unwrap();
    assert_eq!(mailer.send("dtn1", &batch()).unwrap_err().attempts, 1);
}

#[test]
fn nothing_is_sent_to_a_server_without_the_required_starttls() {
    let (address, sessions) = smtp("8BITMIME", &[250]);
    let mailer = Mailer::new(mail(address, MailSecurity::StartTls)).unwrap();
    assert_eq!(mailer.send("dtn1", &batch()).unwrap_err().attempts, 1);
    drop(mailer);
    let session = sessions.recv().unwrap();
    assert!(!session.contains("MAIL"), "{session}");
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

/// Offers STARTTLS on one connection and hands on what came after the handshake.
fn starttls_server(certificate: X509, key: PKey<Private>) -> (SocketAddr, Receiver<String>) {
    server(1, move |_, mut stream| {
        let mut clear = BufReader::new(stream.try_clone().unwrap());
        for answer in ["220 test", "250-test\r\n250 STARTTLS", "220 go on"] {
            if !answer.starts_with("220 t") {
                clear.read_line(&mut String::new()).unwrap();
            }
            stream
                .write_all(format!("{answer}\r\n").as_bytes())
                .unwrap();
        }
        let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls()).unwrap();
        acceptor.set_private_key(&key).unwrap();
        acceptor.set_certificate(&certificate).unwrap();
        let Ok(stream) = acceptor.build().accept(stream) else {
            return String::new();
        };
        let mut reader = BufReader::new(stream);
        let (mut said, mut in_data) = (String::new(), false);
        loop {
            let start = said.len();
            if reader.read_line(&mut said).unwrap_or(0) == 0 {
                return said;
            }
            let line = said[start..].trim_end().to_owned();
            let answer = match (in_data, line.as_str()) {
                (false, "DATA") => "354 go on",
                (true, line) if line != "." => continue,
                (false, "QUIT") => "221 bye",
                (false, line) if line.starts_with("EHLO") => "250-test\r\n250 AUTH PLAIN",
                (false, line) if line.starts_with("AUTH") => "235 ok",
                _ => "250 ok",
            };
            in_data = line == "DATA";
            let answer = format!("{answer}\r\n");
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    })
}

#[test]
fn a_mail_with_a_login_goes_over_starttls() {
    let (certificate, key) = certificate();
    let mut settings = mail("127.0.0.1:1".parse().unwrap(), MailSecurity::StartTls);
    settings.authority = certificate.to_pem().ok();
    settings.login = Some(("ann".to_owned(), "secret".to_owned()));
    let (address, sessions) = starttls_server(certificate, key);
    settings.port = address.port();
    let mailer = Mailer::new(settings).unwrap();
    mailer.send("dtn1", &batch()).unwrap();
    drop(mailer);
    let session = sessions.recv().unwrap();
    assert!(session.contains("AUTH PLAIN"), "{session}");
    assert!(session.contains("Subject: dtn1: path to"), "{session}");
}

#[test]
fn nothing_is_sent_to_a_server_whose_certificate_nobody_vouches_for() {
    let (certificate, key) = certificate();
    let (address, sessions) = starttls_server(certificate, key);
    let mailer = Mailer::new(mail(address, MailSecurity::StartTls)).unwrap();
    assert!(mailer.send("dtn1", &batch()).is_err());
    assert_eq!(sessions.recv().unwrap(), "");
}

#[test]
fn settings_of_mail_are_checked_at_once() {
    let address = "127.0.0.1:25".parse().unwrap();
    let mut settings = mail(address, MailSecurity::Plain);
    settings.login = Some(("ann".to_owned(), "secret".to_owned()));
    assert!(matches!(
        Mailer::new(settings),
        Err(MailSettingsError::ClearPassword)
    ));
    let mut settings = mail(address, MailSecurity::Plain);
    settings.to = vec!["ann@example.org>\r\nBcc: x".to_owned()];
    assert!(matches!(
        Mailer::new(settings),
        Err(MailSettingsError::Address { .. })
    ));
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
