//! Copies of single files: gets, puts, between servers, parts, devices.

use std::time::{Duration, SystemTime};

use copy::{CopyEvent, Exit, ModeChoice, VerifyMode};
use proto::checksum::ChecksumAlgorithm;

use crate::support::{EndToEndServer, copy, file_names, options, random_bytes, streams};

const SIZES: [usize; 5] = [0, 1, 65_535, 65_536, 3_000_001];

#[tokio::test(flavor = "multi_thread")]
async fn gets_of_all_sizes_work_in_both_modes() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    for (n, options) in [options(), streams(4)].into_iter().enumerate() {
        for size in SIZES {
            let bytes = random_bytes(size);
            server.store("a b", &bytes);
            let to = workdir.path().join(format!("{n}-{size}"));
            let (summary, events) =
                copy(&[&server.url("a%20b")], to.to_str().unwrap(), &options).await;
            assert_eq!(
                summary.exit,
                Exit::Done,
                "{size}: {:?}",
                summary.first_failure
            );
            assert_eq!(summary.verified, "crc32c");
            assert_eq!(summary.bytes, size as u64);
            assert!(std::fs::read(&to).unwrap() == bytes, "{size} bytes differ");
            assert_eq!(events.count(|e| matches!(e, CopyEvent::Finished { .. })), 1);
            assert_eq!(events.warnings(), Vec::<String>::new());
        }
    }
    assert_eq!(
        file_names(workdir.path()).len(),
        2 * SIZES.len(),
        "nothing is left over"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn puts_of_all_sizes_work_in_both_modes() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let from = workdir.path().join("ü");
    for (n, options) in [options(), streams(4)].into_iter().enumerate() {
        for size in SIZES {
            let bytes = random_bytes(size);
            std::fs::write(&from, &bytes).unwrap();
            let name = format!("{n}-{size}");
            let (summary, events) =
                copy(&[from.to_str().unwrap()], &server.url(&name), &options).await;
            assert_eq!(
                summary.exit,
                Exit::Done,
                "{size}: {:?}",
                summary.first_failure
            );
            assert_eq!(summary.verified, "crc32c");
            assert!(server.read(&name) == bytes, "{size} bytes differ");
            assert_eq!(events.warnings(), Vec::<String>::new());
        }
    }
    assert_eq!(
        file_names(&server.root()).len(),
        2 * SIZES.len(),
        "nothing is left over"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn third_party_copies_work_in_both_modes() {
    let from = EndToEndServer::start().await;
    let to = EndToEndServer::start().await;
    let bytes = random_bytes(2_000_003);
    from.store("f", &bytes);
    for options in [options(), streams(4)] {
        let (summary, _) = copy(&[&from.user_url("f")], &to.user_url("g"), &options).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(summary.verified, "crc32c");
        assert!(to.read("g") == bytes);
        let why = summary.why;
        assert!(why.contains("reported by the sending server"), "{why}");
    }
    assert_eq!(file_names(&to.root()), ["g"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn modification_times_are_kept_both_ways() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let (a, b) = (workdir.path().join("a"), workdir.path().join("b"));
    std::fs::write(&a, "x").unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = std::fs::File::options().write(true).open(&a).unwrap();
    file.set_modified(time).unwrap();
    copy(&[a.to_str().unwrap()], &server.url("r"), &options()).await;
    let there = std::fs::metadata(server.root().join("r")).unwrap();
    assert_eq!(there.modified().unwrap(), time);
    copy(&[&server.url("r")], b.to_str().unwrap(), &options()).await;
    assert_eq!(std::fs::metadata(&b).unwrap().modified().unwrap(), time);
}

#[tokio::test(flavor = "multi_thread")]
async fn keep_existing_keeps_files_and_reports_differences() {
    let (server, other) = (EndToEndServer::start().await, EndToEndServer::start().await);
    let workdir = tempfile::tempdir().unwrap();
    let path = |name: &str| workdir.path().join(name).display().to_string();
    let keep = options().with(|o| o.file.keep_existing = true);
    std::fs::write(path("a"), "x").unwrap();
    server.store("a", b"x");
    for (from, to) in [
        (path("a"), server.url("t")),
        (server.url("a"), path("t")),
        (server.user_url("a"), other.user_url("t")),
        (path("a"), path("u")),
    ] {
        // The destination does not exist yet.
        let (summary, _) = copy(&[&from], &to, &keep).await;
        assert_eq!((summary.exit, summary.files), (Exit::Done, 1));
        let (summary, events) = copy(&[&from], &to, &keep).await;
        assert_eq!((summary.exit, summary.files), (Exit::Done, 0));
        assert_eq!((summary.kept, summary.skipped, summary.failed), (1, 1, 0));
        assert_eq!(events.warnings(), Vec::<String>::new());
    }
    std::fs::write(path("t"), "other").unwrap();
    let (summary, events) = copy(&[&server.url("a")], &path("t"), &keep).await;
    assert_eq!((summary.exit, summary.kept), (Exit::Done, 1));
    assert!(
        events.warnings()[0].contains("another size"),
        "{:?}",
        events.warnings()
    );
    assert_eq!(std::fs::read(path("t")).unwrap(), b"other");
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_files_are_copied_and_bounds_checked() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let bytes = random_bytes(300_000);
    server.store("f", &bytes);
    let to = workdir.path().join("part");
    let local = workdir.path().join("local");
    std::fs::write(&local, &bytes).unwrap();
    for mode in [ModeChoice::Stream, ModeChoice::Extended] {
        let part = options().with(|o| {
            o.file.offset = Some(100_000);
            o.file.length = Some(70_000);
            o.streams.mode = mode;
        });
        let (summary, _) = copy(&[&server.url("f")], to.to_str().unwrap(), &part).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(summary.verified, "crc32c");
        assert!(std::fs::read(&to).unwrap() == bytes[100_000..170_000]);
        let (summary, _) = copy(&[local.to_str().unwrap()], &server.url("p"), &part).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert!(server.read("p") == bytes[100_000..170_000]);
    }
    let beyond = options().with(|o| o.file.offset = Some(300_001));
    let (summary, _) = copy(&[&server.url("f")], to.to_str().unwrap(), &beyond).await;
    assert_eq!(summary.exit, Exit::Usage);
    assert!(
        summary
            .first_failure
            .unwrap()
            .to_string()
            .contains("300000 bytes")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_are_written_directly() {
    let server = EndToEndServer::start().await;
    server.store("f", &random_bytes(2_000_000));
    for options in [options(), streams(4)] {
        let (summary, _) = copy(&[&server.url("f")], "/dev/null", &options).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(summary.verified, "crc32c");
        assert_eq!(summary.bytes, 2_000_000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_verified_by_the_requested_algorithm() {
    let server = EndToEndServer::start().await;
    server.store("f", &random_bytes(100_000));
    for (requested, label) in [
        (VerifyMode::None, "none"),
        (VerifyMode::With(ChecksumAlgorithm::Sha256), "sha256"),
        (VerifyMode::With(ChecksumAlgorithm::Blake3), "blake3"),
    ] {
        let wished = options().with(|o| o.file.verify = requested);
        let (summary, _) = copy(&[&server.url("f")], "/dev/null", &wished).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(summary.verified, label);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_have_their_exit_codes() {
    let server = EndToEndServer::start().await;
    server.store("d/f", b"x");
    let workdir = tempfile::tempdir().unwrap();
    let to = workdir.path().join("t");
    let to = to.to_str().unwrap();
    let exit = async |source: &str, to: &str| copy(&[source], to, &options()).await.0.exit;
    assert_eq!(exit(&server.url("missing"), to).await, Exit::NotFound);
    let (summary, _) = copy(&[&server.url("d")], to, &options()).await;
    assert_eq!(summary.exit, Exit::Usage);
    assert!(summary.first_failure.unwrap().to_string().contains("-r"));
    let wrong = server.user_url("d/f").replace("secret", "wrong");
    assert_eq!(exit(&wrong, to).await, Exit::Refused);
    let once = options().with(|o| o.retry.retries = 0);
    let (summary, _) = copy(&["ftp://127.0.0.1:1/x"], to, &once).await;
    assert_eq!(summary.exit, Exit::Unreachable);
    assert_eq!(
        exit(&server.url("d/f"), "/proc/nowhere/x").await,
        Exit::Local
    );
    let same = server.url("d/f");
    assert_eq!(exit(&same, &server.url("d/../d/f")).await, Exit::Usage);
    assert_eq!(server.read("d/f"), b"x");
    assert!(
        file_names(workdir.path()).is_empty(),
        "nothing is left over"
    );
}
