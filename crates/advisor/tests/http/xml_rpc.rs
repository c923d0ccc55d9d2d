//! XML-RPC with the client of this project, and byte by byte.

use std::sync::atomic::Ordering;
use std::time::Duration;

use enable::advice::Question;
use enable::client::{EnableClient, EnableError};
use enable::method::{self, fault};
use enable::xmlrpc::{self, AnswerError, Call};
use serde_json::{Value, json};

use crate::harness::{HttpAnswer, TOKEN, TestService, until};

const TIME: Duration = Duration::from_secs(60);

fn client(service: &TestService) -> EnableClient {
    EnableClient::new(&service.address.to_string(), TIME).unwrap()
}

fn code<T: std::fmt::Debug>(answer: Result<T, EnableError>) -> i32 {
    match answer {
        Err(EnableError::Refused { code, .. }) => code,
        other => panic!("not refused: {other:?}"),
    }
}

fn body(method: &str, arguments: &[Value]) -> String {
    let call = Call {
        method: method.to_owned(),
        arguments: arguments.to_vec(),
    };
    xmlrpc::write_call(&call).unwrap()
}

fn value(answer: &HttpAnswer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    xmlrpc::read_answer(answer.body.as_bytes()).unwrap()
}

#[test]
fn an_unknown_path_is_said_to_be_unknown_and_is_tested() {
    let service = TestService::start();
    let asking = client(&service);
    assert_eq!(code(asking.buffer_size()), fault::UNKNOWN_PATH);
    until("a test of the caller", || {
        service.runs.load(Ordering::SeqCst) > 0
    });
    let streams = asking.call(&method::GET_STREAMS, vec![json!("data")]);
    assert_eq!(code(streams), fault::UNKNOWN_PATH);
    let question = Question {
        client: Some("192.0.2.77".to_owned()),
        ..Question::default()
    };
    let advice = asking.advice(&question).unwrap();
    assert_eq!(
        (advice.confidence, advice.client.as_str()),
        (0.0, "192.0.2.77")
    );
    assert!(advice.why.contains("Nothing is known"), "{}", advice.why);
    let nameless = Question {
        client: Some("no-such-host.invalid".to_owned()),
        ..Question::default()
    };
    let advice = asking.advice(&nameless).unwrap();
    assert!(
        advice.confidence == 0.0 && advice.why.contains("no-such-host"),
        "{}",
        advice.why
    );
    let hosts = asking.call(&method::LIST_HOSTS, vec![]).unwrap();
    assert_eq!(hosts.as_array().unwrap().len(), 2, "{hosts}");
}

#[test]
fn the_path_is_to_the_caller_or_to_the_client_that_is_named() {
    let service = TestService::start();
    service.measured("127.0.0.1", 1.0, 1000.0);
    service.measured("192.0.2.1", 100.0, 100.0);
    let asking = client(&service);
    // Round trip × bandwidth.
    assert_eq!(asking.buffer_size().unwrap(), 125_000);
    for name in ["127.0.0.1", "localhost", "::ffff:127.0.0.1"] {
        let arguments = vec![json!("data"), json!(name)];
        let buffer = asking.call(&method::GET_BUFFER_SIZE, arguments).unwrap();
        assert_eq!(buffer, 125_000, "{name}");
    }
    let named = vec![json!("data"), json!("192.0.2.1")];
    let buffer = asking
        .call(&method::GET_BUFFER_SIZE, named.clone())
        .unwrap();
    assert_eq!(buffer, 1_250_000);
    let streams = asking.call(&method::GET_STREAMS, named.clone()).unwrap();
    assert!(streams.as_u64().unwrap() >= 1, "{streams}");
    let info = asking.call(&method::GET_NET_INFO, named.clone()).unwrap();
    assert_eq!(info["client"], "192.0.2.1");
    assert_eq!(info["rtt"]["trimmed_mean"], 0.1);
    assert_eq!(info["bandwidth"]["latest"], 100_000_000);
    let qos = asking.call(&method::GET_QOS, named).unwrap();
    assert_eq!((&qos["dscp"], &qos["class"]), (&json!(10), &json!("AF11")));
    let advice = asking.advice(&Question::default()).unwrap();
    assert_eq!(advice.rtt_seconds, Some(0.001));
    assert!(advice.confidence > 0.0);
}

#[test]
fn every_method_is_served_and_described() {
    let service = TestService::start();
    service.measured("127.0.0.1", 1.0, 1000.0);
    let asking = client(&service).with_token(TOKEN);
    let names = asking.call(&method::LIST_METHODS, vec![]).unwrap();
    assert_eq!(names, json!(method::ALL.map(|method| method.name)));
    for method in method::ALL {
        let help = asking
            .call(&method::METHOD_HELP, vec![json!(method.name)])
            .unwrap();
        assert_eq!(help, method.help);
        let name = vec![json!(method.name)];
        let signatures = asking.call(&method::METHOD_SIGNATURE, name).unwrap();
        assert_eq!(signatures, json!(method.signatures));
        for form in method.signatures {
            let arguments = form[1..].iter().map(|kind| match (*kind, method) {
                ("struct", method::REPORT) => json!({ "values": { "rtt": 0.5 } }),
                ("struct", _) => json!({}),
                (_, method::METHOD_HELP | method::METHOD_SIGNATURE) => json!("system.methodHelp"),
                (_, method::RUN_TEST) => json!("127.0.0.1"),
                _ => json!("127.0.0.1"),
            });
            let mut arguments: Vec<_> = arguments.collect();
            if method == method::RUN_TEST {
                arguments[1] = json!("ping");
            }
            let answer = asking.call(&method, arguments);
            // The client was removed by one of the methods before.
            let removed = matches!(&answer, Err(EnableError::Refused { code: 404, .. }));
            assert!(answer.is_ok() || removed, "{}: {answer:?}", method.name);
        }
    }
    let absent = service.request(
        "POST /RPC2 HTTP/1.1\n",
        body("EnableNothing", &[]).as_bytes(),
    );
    let refused = xmlrpc::read_answer(absent.body.as_bytes()).unwrap_err();
    assert!(
        matches!(
            refused,
            AnswerError::Fault {
                code: fault::NO_METHOD,
                ..
            }
        ),
        "{refused}"
    );
}

#[test]
fn changes_need_the_token() {
    let service = TestService::start();
    let add = |authorization: &str| {
        let head = format!("POST /RPC2 HTTP/1.1\n{authorization}");
        let answer = service.request(
            &head,
            body("EnableAddHost", &[json!("192.0.2.9")]).as_bytes(),
        );
        xmlrpc::read_answer(answer.body.as_bytes())
    };
    for wrong in [
        "",
        "Authorization: Bearer wrong\n",
        "Authorization: Digest x\n",
    ] {
        let refused = add(wrong).unwrap_err();
        assert!(
            matches!(
                refused,
                AnswerError::Fault {
                    code: fault::FORBIDDEN,
                    ..
                }
            ),
            "{refused}"
        );
    }
    assert!(service.advisor.hosts().is_empty());
    let right = format!("Authorization: Bearer {TOKEN}\n");
    assert_eq!(add(&right).unwrap(), true);
    assert_eq!(add(&right).unwrap(), false, "it is known by now");
    let closed = TestService::with(Default::default(), |config| config.token_file = None);
    let refused = client(&closed)
        .with_token(TOKEN)
        .call(&method::REMOVE_HOST, vec![json!("a")]);
    assert_eq!(code(refused), fault::FORBIDDEN);
}

#[test]
fn hosts_and_tests_are_managed() {
    let service = TestService::start();
    let asking = client(&service).with_token(TOKEN);
    let host = || json!("192.0.2.9");
    assert_eq!(asking.call(&method::ADD_HOST, vec![host()]).unwrap(), true);
    until("its first test", || service.runs.load(Ordering::SeqCst) > 0);
    let chosen = json!({ "ping": false });
    assert_eq!(
        asking
            .call(&method::SET_TESTS, vec![host(), chosen])
            .unwrap(),
        true
    );
    let tests = || {
        let tests = service.advisor.hosts()[0].1.tests.clone();
        tests.map(|tests| Value::from(tests.to_json()))
    };
    assert_eq!(tests(), Some(json!({})));
    asking
        .call(&method::SET_TESTS, vec![host(), json!({ "ping": 1 })])
        .unwrap();
    assert_eq!(tests(), Some(json!({ "ping": true })));
    asking
        .call(&method::SET_TESTS, vec![host(), json!({ "ping": "10m" })])
        .unwrap();
    let listed = asking.call(&method::LIST_HOSTS, vec![]).unwrap();
    assert_eq!(listed[0]["tests"], json!({ "ping": "600s" }));
    asking
        .call(&method::SET_TESTS, vec![host(), json!({})])
        .unwrap();
    assert_eq!(tests(), None);
    for wrong in [
        json!({ "no": true }),
        json!({ "ping": 60 }),
        json!({ "ping": "x" }),
    ] {
        let refused = asking.call(&method::SET_TESTS, vec![host(), wrong]);
        assert_eq!(code(refused), fault::ARGUMENTS);
    }
    let refused = asking.call(&method::RUN_TEST, vec![host(), json!("pong")]);
    assert_eq!(code(refused), fault::ARGUMENTS);
    assert_eq!(
        asking.call(&method::REMOVE_HOST, vec![host()]).unwrap(),
        true
    );
    assert_eq!(
        asking.call(&method::REMOVE_HOST, vec![host()]).unwrap(),
        false
    );
    let refused = asking.call(&method::RUN_TEST, vec![host(), json!("ping")]);
    assert_eq!(code(refused), fault::UNKNOWN_PATH);
}

#[test]
fn a_report_is_taken_in_and_a_wrong_one_is_refused() {
    let service = TestService::start();
    let asking = client(&service).with_token(TOKEN);
    let report = |report: Value| asking.call(&method::REPORT, vec![report]);
    let values = json!({ "rtt": 0.05, "goodput": 94_000_000_u64 });
    report(json!({ "client": "192.0.2.5", "values": values })).unwrap();
    let measured = service.advisor.measured("192.0.2.5".parse().unwrap());
    assert_eq!(measured.len(), 2);
    for wrong in [
        json!({}),
        json!({ "values": {} }),
        json!({ "values": { "speed": 1 } }),
        json!({ "values": { "rtt": -1 } }),
        json!({ "values": { "loss": 1.5 } }),
        json!({ "values": { "rtt": "fast" } }),
        json!({ "values": { "rtt": 1 }, "at": "yesterday" }),
        json!({ "values": { "rtt": 1 }, "test": "a b" }),
        json!({ "values": { "rtt": 1 }, "client": "0.0.0.0" }),
        json!({ "values": { "rtt": 1 }, "detail": "x".repeat(20_000) }),
        json!({ "values": { "rtt": 1 }, "unknown": 1 }),
    ] {
        assert_eq!(code(report(wrong.clone())), fault::ARGUMENTS, "{wrong}");
    }
}

#[test]
fn content_types_paths_and_chunks_do_not_matter() {
    let service = TestService::start();
    service.measured("127.0.0.1", 1.0, 1000.0);
    let body = body("EnableGetBufferSize", &[json!("data")]);
    for content_type in [
        "text/xml",
        "application/xml",
        "text/plain",
        "application/x-www-form-urlencoded",
    ] {
        for path in ["/", "/RPC2"] {
            let head = format!("POST {path} HTTP/1.1\nContent-Type: {content_type}\n");
            let answer = service.request(&head, body.as_bytes());
            assert_eq!(value(&answer), 125_000);
            assert!(
                answer.head.contains("content-type: text/xml"),
                "{}",
                answer.head
            );
        }
    }
    let mut chunked =
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
            .to_vec();
    for byte in body.bytes() {
        chunked.extend([b'1', b'\r', b'\n', byte, b'\r', b'\n']);
    }
    chunked.extend(b"0\r\n\r\n");
    assert_eq!(value(&service.bytes(&chunked)), 125_000);
    // A client of HTTP/1.0.
    let old = format!(
        "POST /RPC2 HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(value(&service.bytes(old.as_bytes())), 125_000);
}
