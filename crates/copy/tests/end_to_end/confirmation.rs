//! A refusal, or an end without 226, is never overruled by a length, as docs/resume.md promises.

use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use copy::{CopyOptions, CopySummary, Exit, VerifyMode};

use crate::faulty_server::FaultyServer;
use crate::support::{EndToEndServer, copy, file_names, options, random_bytes};

const SIZE: usize = 3 << 20;

/// A server of `/f` that refuses this many transfers after all of their bytes have moved.
fn server_refusing(refusals: usize) -> FaultyServer {
    FaultyServer {
        size: SIZE,
        sent: random_bytes(SIZE),
        refusals: Arc::new(AtomicUsize::new(refusals)),
        ..FaultyServer::default()
    }
}

fn options_with_retries(retries: u32) -> CopyOptions {
    options().with(|o| o.retry.retries = retries)
}

async fn get(faulty: &FaultyServer, to: &Path, options: &CopyOptions) -> CopySummary {
    let url = format!("ftp://{}/f", faulty.start());
    copy(&[&url], to.to_str().unwrap(), options).await.0
}

async fn put(faulty: &FaultyServer, from: &Path, options: &CopyOptions) -> CopySummary {
    let url = format!("ftp://{}/g", faulty.start());
    copy(&[from.to_str().unwrap()], &url, options).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_always_refused_at_its_end_fails() {
    let faulty = server_refusing(usize::MAX);
    let workdir = tempfile::tempdir().unwrap();
    let summary = get(&faulty, &workdir.path().join("f"), &options_with_retries(1)).await;
    assert_eq!(summary.exit, Exit::Unreachable);
    assert_eq!(faulty.commands("RETR").len(), 2);
    assert!(faulty.commands("REST").is_empty());
    assert!(file_names(workdir.path()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_refused_at_its_end_is_repeated() {
    for verify in [VerifyMode::Auto, VerifyMode::None] {
        let faulty = server_refusing(1);
        let workdir = tempfile::tempdir().unwrap();
        let to = workdir.path().join("f");
        let options = options_with_retries(1).with(|o| o.file.verify = verify);
        let summary = get(&faulty, &to, &options).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(summary.bytes, 2 * SIZE as u64);
        assert_eq!(faulty.commands("RETR").len(), 2);
        assert!(faulty.commands("REST").is_empty());
        assert!(std::fs::read(&to).unwrap() == faulty.sent);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checksum_overrules_the_refusal_of_a_get() {
    let bytes = random_bytes(SIZE);
    let mut digest =
        data::checksum::ChecksumHasher::new(proto::checksum::ChecksumAlgorithm::Crc32c);
    digest.update(&bytes);
    let faulty = FaultyServer {
        sum: Some(String::leak(digest.finish())),
        ..server_refusing(1)
    };
    let workdir = tempfile::tempdir().unwrap();
    let to = workdir.path().join("f");
    let summary = get(&faulty, &to, &options_with_retries(1)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.verified, "crc32c");
    assert_eq!(faulty.commands("RETR").len(), 1);
    assert!(std::fs::read(&to).unwrap() == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_none_does_not_trust_refused_bytes() {
    let faulty = FaultyServer {
        sum: Some("00000000"),
        ..server_refusing(1)
    };
    let workdir = tempfile::tempdir().unwrap();
    let options = options_with_retries(1).with(|o| o.file.verify = VerifyMode::None);
    let summary = get(&faulty, &workdir.path().join("f"), &options).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(faulty.commands("RETR").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn resuming_a_refused_get_starts_from_zero() {
    let faulty = server_refusing(1);
    let workdir = tempfile::tempdir().unwrap();
    let to = workdir.path().join("f");
    let summary = get(&faulty, &to, &options_with_retries(0)).await;
    assert_eq!(summary.exit, Exit::Unreachable);
    let resume = options_with_retries(0).with(|o| o.file.resume = true);
    let summary = get(&faulty, &to, &resume).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.bytes, SIZE as u64);
    assert!(faulty.commands("REST").is_empty());
    assert!(std::fs::read(&to).unwrap() == faulty.sent);
    assert_eq!(file_names(workdir.path()), ["f"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_of_all_bytes_without_226_is_repeated() {
    let faulty = FaultyServer {
        interrupt_at: Some(SIZE),
        ..server_refusing(0)
    };
    let workdir = tempfile::tempdir().unwrap();
    let to = workdir.path().join("f");
    let summary = get(&faulty, &to, &options_with_retries(1)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.bytes, 2 * SIZE as u64);
    assert!(faulty.commands("REST").is_empty());
    assert!(std::fs::read(&to).unwrap() == faulty.sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn puts_refused_at_their_end_are_repeated_or_fail() {
    let workdir = tempfile::tempdir().unwrap();
    let from = workdir.path().join("f");
    let bytes = random_bytes(SIZE);
    std::fs::write(&from, &bytes).unwrap();
    for (refusals, interrupt_at, exit) in [
        (1, None, Exit::Done),
        (2, None, Exit::Unreachable),
        (0, Some(SIZE), Exit::Done),
    ] {
        let faulty = FaultyServer {
            interrupt_at,
            ..server_refusing(refusals)
        };
        let summary = put(&faulty, &from, &options_with_retries(1)).await;
        assert_eq!(summary.exit, exit, "{:?}", summary.first_failure);
        assert_eq!(summary.bytes, 2 * SIZE as u64);
        assert_eq!(faulty.commands("STOR").len(), 2);
        assert!(faulty.commands("REST").is_empty());
        let files = faulty.files.lock().unwrap();
        let whole = files.get("/g");
        assert_eq!(whole.is_some_and(|f| *f == bytes), exit == Exit::Done);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resuming_a_refused_put_starts_from_zero() {
    let workdir = tempfile::tempdir().unwrap();
    let from = workdir.path().join("f");
    std::fs::write(&from, random_bytes(SIZE)).unwrap();
    let faulty = server_refusing(1);
    let address = faulty.start();
    let url = format!("ftp://{address}/g");
    let from = from.to_str().unwrap();
    let (summary, _) = copy(&[from], &url, &options_with_retries(0)).await;
    assert_eq!(summary.exit, Exit::Unreachable);
    let resume = options_with_retries(0).with(|o| o.file.resume = true);
    let (summary, _) = copy(&[from], &url, &resume).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.bytes, SIZE as u64);
    assert!(faulty.commands("REST").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_server_that_refuses_at_its_end_is_asked_again() {
    let faulty = server_refusing(1);
    let server = EndToEndServer::start().await;
    let url = format!("ftp://{}/f", faulty.start());
    let (summary, _) = copy(&[&url], &server.user_url("g"), &options_with_retries(1)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(faulty.commands("RETR").len(), 2);
    assert!(server.read("g") == faulty.sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_bytes_without_the_announced_checksum_fail() {
    let workdir = tempfile::tempdir().unwrap();
    let (from, to) = (workdir.path().join("from"), workdir.path().join("to"));
    std::fs::write(&from, random_bytes(SIZE)).unwrap();
    let without_checksum_reply = || FaultyServer {
        refuse_checksum: true,
        ..server_refusing(1)
    };
    let got = get(&without_checksum_reply(), &to, &options_with_retries(1)).await;
    let faulty = without_checksum_reply();
    let put = put(&faulty, &from, &options_with_retries(1)).await;
    for summary in [got, put] {
        assert_eq!(summary.exit as u8, 8, "{:?}", summary.first_failure);
        let message = summary.first_failure.unwrap().to_string();
        assert!(message.contains("cannot sum"), "{message}");
    }
    assert!(!to.exists());
    assert!(!faulty.files.lock().unwrap().contains_key("/g"));
}

/// A put to a server whose connections break after these numbers of bytes, one after the other,
/// before any 226. Where the server has checksums, verification is off, so that only resuming uses
/// them.
async fn put_with_interruptions(
    interruptions: &[usize],
    true_checksums: bool,
) -> (CopySummary, FaultyServer) {
    let workdir = tempfile::tempdir().unwrap();
    let from = workdir.path().join("f");
    std::fs::write(&from, random_bytes(SIZE)).unwrap();
    let faulty = FaultyServer {
        interruptions: Arc::new(Mutex::new(interruptions.iter().copied().collect())),
        true_checksums,
        ..server_refusing(0)
    };
    let options = options_with_retries(3).with(|o| {
        o.file.verify = if true_checksums {
            VerifyMode::None
        } else {
            VerifyMode::Auto
        }
    });
    (put(&faulty, &from, &options).await, faulty)
}

#[tokio::test(flavor = "multi_thread")]
async fn unconfirmed_bytes_of_a_put_are_sent_again_in_the_same_run() {
    let first = SIZE / 2;
    for true_checksums in [false, true] {
        let (summary, faulty) = put_with_interruptions(&[SIZE], true_checksums).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(summary.bytes, 2 * SIZE as u64);
        assert!(faulty.commands("REST").is_empty());

        // Only the second attempt's bytes were stored without a 226.
        let (summary, faulty) =
            put_with_interruptions(&[first, SIZE - first], true_checksums).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(faulty.commands("STOR").len(), 3);
        assert_eq!(faulty.commands("REST"), vec![format!("REST {first}"); 2]);
        assert!(faulty.files.lock().unwrap()["/g"] == random_bytes(SIZE));

        // The last bytes are sent again, and the 226 to them confirms what is stored.
        let (summary, faulty) = put_with_interruptions(&[SIZE - 1], true_checksums).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(faulty.commands("REST"), [format!("REST {}", SIZE - 1)]);
        assert!(faulty.files.lock().unwrap()["/g"] == random_bytes(SIZE));
    }
}
