//! COPY between two scripted servers.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::super::connections::HttpConnections;
use super::*;

const CREATED: &str = "success: Created\n";

fn marker(bytes: u64) -> String {
    format!(
        "Perf Marker\nTimestamp: 1537788010\nStripe Index: 0\nStripe Bytes Transferred: {bytes}\nTotal Stripe Count: 1\nEnd\n"
    )
}

/// A server whose answer to COPY is this text.
fn reporting(status: &'static str, report: String) -> ScriptedHttpServer {
    ScriptedHttpServer::start(move |_| response(status, &[], report.as_bytes()))
}

/// A server that answers every request with this status.
fn refusing(status: &'static str) -> ScriptedHttpServer {
    reporting(status, String::new())
}

/// Copies `/f` of one server to `/g` of the other. The result, and the progress that was reported.
async fn copied(from: &str, to: &str) -> (Result<TransferAttempt, Failure>, Vec<u64>) {
    let ((mut source, path), (mut destination, to_path)) = (session(from), session(to));
    let reported = Mutex::new(Vec::new());
    let progress = |bytes| reported.lock().push(bytes);
    let control = Arc::new(TransferControl::new());
    let result = source
        .transfer_to(
            &path,
            &mut *destination,
            &to_path,
            &spec(Some(900), 3),
            &control,
            &progress,
        )
        .await;
    (result, reported.into_inner())
}

fn copies(server: &ScriptedHttpServer) -> Vec<ReceivedRequest> {
    let requests = server.requests();
    requests
        .into_iter()
        .filter(|request| request.method == "COPY")
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_destination_is_asked_to_fetch_the_file() {
    for status in ["201 Created", "202 Accepted"] {
        let source = refusing("500 no");
        let destination = reporting(status, marker(0) + &marker(5000) + CREATED);
        let (result, reported) = copied(&source.url("/f"), &destination.url("/g")).await;
        assert_eq!(result.unwrap().report.evidence.bytes, 900);
        // A server may count more than there is.
        assert!(reported.iter().all(|bytes| *bytes <= 900), "{reported:?}");
        assert!(source.requests().is_empty());
        let [copy] = &copies(&destination)[..] else {
            panic!()
        };
        assert_eq!(copy.path, "/g");
        assert_eq!(copy.header("source"), Some(source.url("/f").as_str()));
        assert_eq!(copy.header("credential"), Some("none"));
        assert_eq!(copy.header("x-number-of-streams"), Some("3"));
        let absent = ["transferheaderauthorization", "destination", "overwrite"];
        assert!(absent.iter().all(|name| copy.header(name).is_none()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_source_is_asked_where_the_destination_does_not_fetch() {
    for destination in [
        refusing("405 Method Not Allowed"),
        refusing("400 Bad Request"),
        refusing("403 Forbidden"),
        reporting("201 Created", "<title>Created</title>".to_owned()),
        reporting("202 Accepted", marker(0) + "failure: no route to host\n"),
    ] {
        let source = reporting("202 Accepted", CREATED.to_owned());
        let (result, _) = copied(&source.url("/f"), &destination.url("/g")).await;
        assert_eq!(result.unwrap().report.evidence.bytes, 900);
        let [copy] = &copies(&source)[..] else {
            panic!()
        };
        assert_eq!(copy.path, "/f");
        let named = copy.header("destination");
        assert_eq!(named, Some(destination.url("/g").as_str()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_copy_nothing_between_them_are_apart_and_not_asked_again() {
    let (source, destination) = (refusing("501 no"), refusing("405 no"));
    let (mut from, path) = session(&source.url("/f"));
    let (mut to, to_path) = session(&destination.url("/g"));
    let control = Arc::new(TransferControl::new());
    for _ in 0..2 {
        let spec = spec(Some(900), 1);
        let result = from.transfer_to(&path, &mut *to, &to_path, &spec, &control, &|_| ());
        let failure = result.await.unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Apart);
        assert!(failure.to_string().contains("COPY"), "{failure}");
    }
    assert_eq!((copies(&source).len(), copies(&destination).len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reason_is_that_of_the_server_which_has_such_copies() {
    let source = refusing("501 no");
    let report = "failure: remote side answered 403\x1b[2J\n".to_owned();
    let destination = reporting("202 Accepted", report);
    let (result, _) = copied(&source.url("/f"), &destination.url("/g")).await;
    let failure = result.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Apart);
    let text = failure.to_string();
    assert!(text.contains("answered 403\\x1b[2J"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_failed_or_may_go_on_is_no_reason_to_ask_the_other_server() {
    let cut = |text: String| {
        ScriptedHttpServer::start(move |_| {
            let head = "HTTP/1.1 202 Accepted\r\nConnection: close\r\nContent-Length: 5000\r\n\r\n";
            [head, &text].concat().into_bytes()
        })
    };
    for (destination, word) in [
        (
            reporting("202 Accepted", marker(5) + "failure: disk\n"),
            "disk",
        ),
        (reporting("202 Accepted", marker(900)), "before it said"),
        (cut(marker(900)), "before it said"),
        (cut(marker(900) + "success: Cr"), "before it said"),
        (cut(String::new()), "before it said"),
        (refusing("503 busy"), "503"),
    ] {
        let source = reporting("202 Accepted", CREATED.to_owned());
        let (result, _) = copied(&source.url("/f"), &destination.url("/g")).await;
        let failure = result.unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Unreachable, "{failure}");
        assert!(
            failure.may_retry() && failure.to_string().contains(word),
            "{failure}"
        );
        assert!(copies(&source).is_empty(), "{failure}");
    }
    let full = refusing("507 Insufficient Storage");
    let (result, _) = copied(&full.url("/f"), &full.url("/g")).await;
    assert_eq!(result.unwrap_err().kind(), FailureKind::ServerDiskFull);
}

#[tokio::test(flavor = "multi_thread")]
async fn within_one_server_a_copy_is_that_of_webdav_and_replaces_nothing() {
    for status in ["201 Created", "204 No Content"] {
        let server = reporting(status, "<title>Created</title>".to_owned());
        let (result, _) = copied(&server.url("/f"), &server.url("/g")).await;
        assert_eq!(result.unwrap().report.evidence.bytes, 900);
        let [copy] = &copies(&server)[..] else {
            panic!()
        };
        assert_eq!(copy.header("destination"), Some(server.url("/g").as_str()));
        assert_eq!(copy.header("overwrite"), Some("F"));
        assert_eq!(copy.header("depth"), Some("0"));
    }
    let taken = refusing("412 Precondition Failed");
    let (result, _) = copied(&taken.url("/f"), &taken.url("/g")).await;
    assert_eq!(result.unwrap_err().kind(), FailureKind::Apart);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirector_names_the_server_that_copies() {
    for (status, is_followed) in [("307 T", true), ("308 P", true), ("302 Found", false)] {
        let data_server = reporting("202 Accepted", CREATED.to_owned());
        let target = data_server.url("/g?authz=secret");
        let redirector =
            ScriptedHttpServer::start(move |_| response(status, &[("Location", &target)], b""));
        let source = refusing("501 no");
        let to = redirector.url("/g").replace("http://", "http://joe:hush@");
        let (result, _) = copied(&source.url("/f"), &to).await;
        assert_eq!(result.is_ok(), is_followed, "{status}: {result:?}");
        let asked = copies(&data_server);
        assert_eq!(asked.len(), usize::from(is_followed));
        for copy in asked {
            assert_eq!(copy.path, "/g?authz=secret");
            assert_eq!(copy.header("source"), Some(source.url("/f").as_str()));
            assert!(copy.header("authorization").is_none());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_not_given_to_another_server_in_clear() {
    let server = reporting("202 Accepted", CREATED.to_owned());
    let other = reporting("202 Accepted", CREATED.to_owned());
    let url = server.url("/f");
    let url = url.replace("http://", "http://joe:hush@");
    let (result, _) = copied(&url, &other.url("/g")).await;
    // The source is asked by its own user to write to a server without a login.
    result.unwrap();
    assert!(other.requests().is_empty());
    let both = other.url("/g").replace("http://", "http://ann:hush@");
    let (result, _) = copied(&url, &both).await;
    let failure = result.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Apart);
    assert!(
        failure.to_string().contains("over https: only"),
        "{failure}"
    );
    for request in [server.requests(), other.requests()].concat() {
        assert!(request.header("transferheaderauthorization").is_none());
        assert_eq!(request.method, "COPY");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_pass_through_this_machine() {
    let server = refusing("500 no");
    let ((mut from, path), (mut to, to_path)) = (session(&server.url("/f")), session("http://h/g"));
    let spec = TransferSpec {
        part: Some((5, 10)),
        ..spec(Some(10), 1)
    };
    let control = Arc::new(TransferControl::new());
    let result = from.transfer_to(&path, &mut *to, &to_path, &spec, &control, &|_| ());
    assert_eq!(result.await.unwrap_err().kind(), FailureKind::Apart);
    assert!(server.requests().is_empty());
}

/// Apache does so where both have the same host.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_the_source_has_made_of_its_own_instead_is_removed() {
    let source = reporting("201 Created", "<title>Created</title>".to_owned());
    let destination = refusing("405 no");
    let (result, _) = copied(&source.url("/f"), &destination.url("/g")).await;
    assert_eq!(result.unwrap_err().kind(), FailureKind::Apart);
    let requests = source.requests();
    let [copy, removal] = &requests[..] else {
        panic!("{requests:?}")
    };
    assert_eq!(copy.header("overwrite"), Some("F"));
    assert_eq!((&*removal.method, &*removal.path), ("DELETE", "/g"));
    assert_eq!(removal.header("depth"), Some("0"));
}

/// A server whose COPY reports that nothing has moved until its client is gone, which ends the thread.
fn reporting_nothing() -> (String, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/g", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let request = lines.map_while(Result::ok);
        request.take_while(|line| !line.is_empty()).for_each(drop);
        let head = "HTTP/1.1 201 Created\r\nContent-Length: 5000000\r\n\r\n";
        let mut sent = stream.write_all(head.as_bytes());
        while sent.is_ok() {
            std::thread::sleep(Duration::from_millis(100));
            sent = stream.write_all(marker(0).as_bytes());
        }
    });
    (url, serving)
}

/// Copies `/f` to another server by one that waits for a second only. The failure, and whether the copy may go on.
async fn given_up(source: &ScriptedHttpServer, to: &str) -> (Failure, bool) {
    let impatient = |url: &str| {
        let (mut storage, path) = http_session(url);
        let origin = storage.connections.origin.clone();
        storage.connections = HttpConnections::new(origin, Duration::from_secs(1));
        (storage, path)
    };
    let ((mut source, path), (mut to, to_path)) = (impatient(&source.url("/f")), impatient(to));
    let mut spec = spec(Some(900), 1);
    spec.options.stall = Duration::from_secs(1);
    let control = Arc::new(TransferControl::new());
    let result = source.transfer_to(&path, &mut to, &to_path, &spec, &control, &|_| ());
    let failure = result.await.unwrap_err();
    (failure, spec.started.load(Ordering::Relaxed))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_moves_nothing_is_given_up_and_not_asked_for_again() {
    let silent = ScriptedHttpServer::start(|_| {
        let head = "HTTP/1.1 202 Accepted\r\nContent-Length: 5000\r\n\r\n";
        [head, &marker(0)].concat().into_bytes()
    });
    let mute = ScriptedHttpServer::start(|_| {
        loop {
            std::thread::park();
        }
    });
    let (reporting_url, serving) = reporting_nothing();
    for to in [silent.url("/g"), mute.url("/g"), reporting_url] {
        let source = reporting("202 Accepted", CREATED.to_owned());
        let (failure, may_go_on) = given_up(&source, &to).await;
        assert_eq!(failure.kind(), FailureKind::Apart, "{failure}");
        assert!(failure.to_string().contains("moved no byte"), "{failure}");
        assert!(may_go_on);
        // Both servers would write the same file.
        assert!(copies(&source).is_empty());
    }
    serving.join().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_end_is_known_does_not_go_on() {
    let source = refusing("501 no");
    for destination in [
        refusing("403 no"),
        reporting("202 Accepted", marker(0) + "failure: no\n"),
        reporting("201 Created", "<title>Created</title>".to_owned()),
    ] {
        let (failure, may_go_on) = given_up(&source, &destination.url("/g")).await;
        assert_eq!(failure.kind(), FailureKind::Apart, "{failure}");
        assert!(!may_go_on);
    }
}
