//! The copy engine between two WebDAV servers, one of which fetches files.

use std::time::Duration;

use super::{LENGTH, copy, options_with_retries};
use crate::options::Parallelism;
use crate::run::tests::options;
use crate::storage::conformance::content;
use crate::storage::webdav::WebDavServer;
use ftp::Exit;

/// The report of a copy that moved bytes and then broke.
const BROKEN: &str = "Perf Marker\nTimestamp: 1\nStripe Index: 0\nStripe Bytes Transferred: 5\nTotal Stripe Count: 1\nEnd\n";

/// Two servers; the first has the file `/f`.
fn servers() -> ([WebDavServer; 2], Vec<u8>) {
    let (servers, bytes) = ([(); 2].map(|()| WebDavServer::start()), content(9, LENGTH));
    servers[0].put("/f", &bytes);
    (servers, bytes)
}

fn copies(server: &WebDavServer) -> usize {
    server.paths_of("COPY").len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetched_file_is_verified_and_gets_its_name() {
    let ([from, to], bytes) = servers();
    to.fetch_from_others(&[]);
    let (summary, warnings) = copy(&from.url("/f"), &to.url("/g"), &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert_eq!((summary.verified.as_str(), warnings.len()), ("sha256", 0));
    assert!(to.get("/g") == Some(bytes));
    assert_eq!(to.paths(), ["/g"], "no partial file is left");
    assert_eq!((copies(&from), copies(&to)), (0, 1));
    assert!(!to.methods().contains(&"PUT".to_owned()));
    to.send_wrong_digests();
    let (summary, _) = copy(&from.url("/f"), &to.url("/h"), &options()).await;
    assert_eq!(summary.exit, Exit::Integrity);
    assert_eq!(to.get("/h"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_end_is_tried_again_and_is_no_success() {
    let ([from, to], bytes) = servers();
    to.fetch_from_others(&[BROKEN, BROKEN]);
    let (summary, _) = copy(&from.url("/f"), &to.url("/g"), &options_with_retries()).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert!(to.get("/g") == Some(bytes));
    assert_eq!((copies(&to), to.paths().len()), (3, 1));
    // A server may still write what it was asked for.
    let [first, second, third] = &to.paths_of("COPY")[..] else {
        panic!()
    };
    assert!(first != second && second != third && first != third);
    assert_eq!(first, "/g.longhaul-partial");
    to.fetch_from_others(&[BROKEN; 9]);
    let (summary, _) = copy(&from.url("/f"), &to.url("/h"), &options()).await;
    assert_eq!(summary.exit, Exit::Unreachable);
    assert_eq!(to.get("/h"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_does_not_begin_is_relayed_under_another_name() {
    let ([from, to], bytes) = servers();
    to.fetch_from_others(&[""; 9]);
    let impatient =
        options_with_retries().with(|o| o.streams.transfer.stall = Duration::from_secs(1));
    let (summary, warnings) = copy(&from.url("/f"), &to.url("/g"), &impatient).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    let [warning] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    assert!(warning.contains("moved no byte"), "{warning}");
    assert!(to.get("/g") == Some(bytes));
    assert_eq!((copies(&to), copies(&from)), (1, 0));
    let [stored] = &to.paths_of("PUT")[..] else {
        panic!()
    };
    assert_ne!(stored, "/g.longhaul-partial");
    // That of the server, which has its usual name, is removed.
    assert_eq!(to.paths(), ["/g"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_final_name_that_a_server_may_still_write_is_left_to_it() {
    let ([from, to], _) = servers();
    to.fetch_from_others(&[""; 9]);
    let impatient = options_with_retries().with(|o| {
        o.streams.transfer.stall = Duration::from_secs(1);
        o.file.in_place = true;
    });
    let (summary, _) = copy(&from.url("/f"), &to.url("/g"), &impatient).await;
    assert_eq!(summary.exit, Exit::Unreachable, "{summary:?}");
    assert_eq!(copies(&to), 1);
    assert!(!to.methods().contains(&"PUT".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_without_such_copies_are_relayed_with_one_warning() {
    let ([from, to], bytes) = servers();
    from.make_collection("/d");
    for name in ["/d/a", "/d/b", "/d/c"] {
        from.put(name, &bytes[..100_000]);
    }
    let tree = options().with(|o| {
        o.tree.recursive = true;
        o.streams.parallelism = Parallelism::Fixed(1);
    });
    let (summary, warnings) = copy(&from.url("/d"), &to.url("/d"), &tree).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let words = ["passes through this machine", "COPY"];
    assert!(
        words.iter().all(|word| warnings[0].contains(word)),
        "{warnings:?}"
    );
    assert_eq!(to.paths(), ["/d/a", "/d/b", "/d/c"]);
    assert_eq!(to.get("/d/b").as_deref(), Some(&bytes[..100_000]));
    // A refusal before the first byte is none of the file.
    let ([from, to], bytes) = servers();
    to.fetch_from_others(&["failure: no route to host\n"]);
    let (summary, warnings) = copy(&from.url("/f"), &to.url("/g"), &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert!(warnings[0].contains("no route to host"), "{warnings:?}");
    assert!(to.get("/g") == Some(bytes));
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_pass_between_servers_are_not_asked_for_here() {
    let ([from, to], bytes) = servers();
    to.fetch_from_others(&[]);
    from.make_collection("/d");
    for n in 0..4 {
        from.put(&format!("/d/{n}"), &bytes[..1000]);
    }
    let tree = options().with(|o| {
        o.tree.recursive = true;
        o.concurrency = Some(1);
    });
    let (summary, warnings) = copy(&from.url("/d"), &to.url("/d"), &tree).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?} {warnings:?}");
    assert_eq!((copies(&to), to.paths().len()), (4, 4));
    // Those of the other server.
    assert_eq!(from.paths_of("GET").len(), 4, "{:?}", from.methods());
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_a_file_are_relayed() {
    let ([from, to], bytes) = servers();
    to.fetch_from_others(&[]);
    let part = options().with(|o| {
        o.file.offset = Some(1000);
        o.file.length = Some(5000);
    });
    let (summary, warnings) = copy(&from.url("/f"), &to.url("/g"), &part).await;
    assert_eq!(summary.exit, Exit::Done, "{summary:?}");
    assert!(warnings[0].contains("whole files"), "{warnings:?}");
    assert_eq!(to.get("/g").as_deref(), Some(&bytes[1000..6000]));
    assert_eq!(copies(&to), 0);
}
