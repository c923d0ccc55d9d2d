//! Copies with the advice of a service.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use copy::{AdviceOptions, AdvisorChoice, Exit};
use serde_json::{Value, json};

use crate::support::{EndToEndServer, copy, options, random_bytes};

/// Longest time for what takes a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// A service that gives everybody the same advice. Returns its address.
fn service(advice: &Value) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let body = enable::xmlrpc::write_answer(advice).unwrap();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut call = Vec::new();
            while !call.ends_with(b"</methodCall>") {
                let mut part = [0; 4096];
                match connection.read(&mut part).unwrap() {
                    0 => break,
                    n => call.extend_from_slice(part[..n].trim_ascii_end()),
                }
            }
            connection.write_all(answer.as_bytes()).unwrap();
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn advice_to_send_slowly_holds_no_copy_back() {
    let server = EndToEndServer::start().await;
    let bytes = random_bytes(24 << 20);
    server.store("f", &bytes);
    let here = tempfile::tempdir().unwrap();
    let (from, to) = (here.path().join("from"), here.path().join("to"));
    std::fs::write(&from, &bytes).unwrap();
    for pace in [8_u64, 100_000] {
        let service = service(&json!({
            "client": "127.0.0.1",
            "pace_bps": pace as f64,
            "expected_bps": pace as f64,
            "streams": 1,
            "confidence": 1.0,
            "why": "By a service that is wrong.",
        }));
        let with = options().with(|o| {
            o.advice = AdviceOptions {
                choice: AdvisorChoice::Server(service),
                token: None,
            }
        });
        let (source, up) = (server.url("f"), server.user_url("up"));
        let ends = [
            (from.to_str().unwrap(), up.as_str()),
            (source.as_str(), to.to_str().unwrap()),
        ];
        for (source, destination) in ends {
            let copied = tokio::time::timeout(PATIENCE, copy(&[source], destination, &with)).await;
            let (summary, _) = copied.expect("a copy at the pace of the path");
            assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
            assert!(
                summary.why.contains("By a service that is wrong"),
                "{}",
                summary.why
            );
        }
    }
}
