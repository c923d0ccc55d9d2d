//! A refusal, or an end without 226, is never outvoted by a length: docs/resume.md promises it.

use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use client::{CopyOptions, CopySummary, Exit, VerifyMode};

use crate::faulty_server::FaultyServer;
use crate::support::{EndToEndServer, copy, names, noise, options};

const SIZE: usize = 3 << 20;

/// A server of `/f` that refuses so many transfers when all of their bytes have moved.
fn refusing(refusals: usize) -> FaultyServer {
    FaultyServer {
        size: SIZE,
        sent: noise(SIZE),
        refusals: Arc::new(AtomicUsize::new(refusals)),
        ..FaultyServer::default()
    }
}

fn patient(retries: u32) -> CopyOptions {
    CopyOptions {
        retries,
        ..options()
    }
}

async fn get(liar: &FaultyServer, to: &Path, options: &CopyOptions) -> CopySummary {
    let url = format!("ftp://{}/f", liar.start());
    copy(&[&url], to.to_str().unwrap(), options).await.0
}

async fn put(liar: &FaultyServer, from: &Path, options: &CopyOptions) -> CopySummary {
    let url = format!("ftp://{}/g", liar.start());
    copy(&[from.to_str().unwrap()], &url, options).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_that_is_always_refused_at_its_end_fails() {
    let liar = refusing(usize::MAX);
    let here = tempfile::tempdir().unwrap();
    let summary = get(&liar, &here.path().join("f"), &patient(1)).await;
    assert_eq!(summary.exit, Exit::Unreachable);
    assert_eq!(liar.commands("RETR").len(), 2);
    assert!(liar.commands("REST").is_empty());
    assert!(names(here.path()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_that_is_refused_at_its_end_is_sent_again() {
    for verify in [VerifyMode::Auto, VerifyMode::None] {
        let liar = refusing(1);
        let here = tempfile::tempdir().unwrap();
        let to = here.path().join("f");
        let options = CopyOptions {
            verify,
            ..patient(1)
        };
        let summary = get(&liar, &to, &options).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(summary.bytes, 2 * SIZE as u64);
        assert_eq!(liar.commands("RETR").len(), 2);
        assert!(liar.commands("REST").is_empty());
        assert!(std::fs::read(&to).unwrap() == liar.sent);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checksum_outvotes_the_refusal_of_a_get() {
    let bytes = noise(SIZE);
    let mut digest =
        data::checksum::ChecksumHasher::new(proto::checksum::ChecksumAlgorithm::Crc32c);
    digest.update(&bytes);
    let liar = FaultyServer {
        sum: Some(String::leak(digest.finish())),
        ..refusing(1)
    };
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("f");
    let summary = get(&liar, &to, &patient(1)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.verified, "crc32c");
    assert_eq!(liar.commands("RETR").len(), 1);
    assert!(std::fs::read(&to).unwrap() == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_checksum_verify_none_trusts_no_refused_bytes() {
    let liar = FaultyServer {
        sum: Some("00000000"),
        ..refusing(1)
    };
    let here = tempfile::tempdir().unwrap();
    let options = CopyOptions {
        verify: VerifyMode::None,
        ..patient(1)
    };
    let summary = get(&liar, &here.path().join("f"), &options).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(liar.commands("RETR").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resume_after_a_refused_get_starts_over() {
    let liar = refusing(1);
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("f");
    let summary = get(&liar, &to, &patient(0)).await;
    assert_eq!(summary.exit, Exit::Unreachable);
    let resume = CopyOptions {
        resume: true,
        ..patient(0)
    };
    let summary = get(&liar, &to, &resume).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.bytes, SIZE as u64);
    assert!(liar.commands("REST").is_empty());
    assert!(std::fs::read(&to).unwrap() == liar.sent);
    assert_eq!(names(here.path()), ["f"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_of_all_bytes_without_a_226_is_sent_again() {
    let liar = FaultyServer {
        cut_at: Some(SIZE),
        ..refusing(0)
    };
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("f");
    let summary = get(&liar, &to, &patient(1)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.bytes, 2 * SIZE as u64);
    assert!(liar.commands("REST").is_empty());
    assert!(std::fs::read(&to).unwrap() == liar.sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn puts_that_were_refused_at_their_end_are_sent_again_or_fail() {
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("f");
    let bytes = noise(SIZE);
    std::fs::write(&from, &bytes).unwrap();
    for (refusals, cut_at, exit) in [
        (1, None, Exit::Done),
        (2, None, Exit::Unreachable),
        (0, Some(SIZE), Exit::Done),
    ] {
        let liar = FaultyServer {
            cut_at,
            ..refusing(refusals)
        };
        let summary = put(&liar, &from, &patient(1)).await;
        assert_eq!(summary.exit, exit, "{:?}", summary.first_failure);
        assert_eq!(summary.bytes, 2 * SIZE as u64);
        assert_eq!(liar.commands("STOR").len(), 2);
        assert!(liar.commands("REST").is_empty());
        let files = liar.files.lock().unwrap();
        let whole = files.get("/g");
        assert_eq!(whole.is_some_and(|f| *f == bytes), exit == Exit::Done);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resume_after_a_refused_put_starts_over() {
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("f");
    std::fs::write(&from, noise(SIZE)).unwrap();
    let liar = refusing(1);
    let address = liar.start();
    let url = format!("ftp://{address}/g");
    let from = from.to_str().unwrap();
    let (summary, _) = copy(&[from], &url, &patient(0)).await;
    assert_eq!(summary.exit, Exit::Unreachable);
    let resume = CopyOptions {
        resume: true,
        ..patient(0)
    };
    let (summary, _) = copy(&[from], &url, &resume).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.bytes, SIZE as u64);
    assert!(liar.commands("REST").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_refuses_at_its_end_is_asked_again_between_servers() {
    let liar = refusing(1);
    let server = EndToEndServer::start().await;
    let url = format!("ftp://{}/f", liar.start());
    let (summary, _) = copy(&[&url], &server.user_url("g"), &patient(1)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(liar.commands("RETR").len(), 2);
    assert!(server.read("g") == liar.sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promised_checksum_that_cannot_be_had_fails_what_was_refused() {
    let here = tempfile::tempdir().unwrap();
    let (from, to) = (here.path().join("from"), here.path().join("to"));
    std::fs::write(&from, noise(SIZE)).unwrap();
    let refusing = || FaultyServer {
        no_sum: true,
        ..refusing(1)
    };
    let got = get(&refusing(), &to, &patient(1)).await;
    let liar = refusing();
    let put = put(&liar, &from, &patient(1)).await;
    for summary in [got, put] {
        assert_eq!(summary.exit as u8, 8, "{:?}", summary.first_failure);
        let message = summary.first_failure.unwrap().message;
        assert!(message.contains("cannot sum"), "{message}");
    }
    assert!(!to.exists());
    assert!(!liar.files.lock().unwrap().contains_key("/g"));
}

/// A put to a server whose connections break when so many bytes have come over them, one after the
/// other, before any 226. Where it can sum, nobody asks it for the sum of the whole.
async fn put_cut(cuts: &[usize], sums: bool) -> (CopySummary, FaultyServer) {
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("f");
    std::fs::write(&from, noise(SIZE)).unwrap();
    let liar = FaultyServer {
        cuts: Arc::new(Mutex::new(cuts.iter().copied().collect())),
        sums,
        ..refusing(0)
    };
    let options = CopyOptions {
        verify: if sums {
            VerifyMode::None
        } else {
            VerifyMode::Auto
        },
        ..patient(3)
    };
    (put(&liar, &from, &options).await, liar)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_put_that_no_226_confirmed_is_sent_again_in_the_same_run() {
    let first = SIZE / 2;
    for sums in [false, true] {
        let (summary, liar) = put_cut(&[SIZE], sums).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(summary.bytes, 2 * SIZE as u64);
        assert!(liar.commands("REST").is_empty());

        // What the second attempt brought is all that came without a 226.
        let (summary, liar) = put_cut(&[first, SIZE - first], sums).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(liar.commands("STOR").len(), 3);
        assert_eq!(liar.commands("REST"), vec![format!("REST {first}"); 2]);
        assert!(liar.files.lock().unwrap()["/g"] == noise(SIZE));

        // The last bytes are sent again, and the 226 to that confirms what is there.
        let (summary, liar) = put_cut(&[SIZE - 1], sums).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(liar.commands("REST"), [format!("REST {}", SIZE - 1)]);
        assert!(liar.files.lock().unwrap()["/g"] == noise(SIZE));
    }
}
