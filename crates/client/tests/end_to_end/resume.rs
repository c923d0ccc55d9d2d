//! Resuming: data that is there is built upon only when it is provably of the same source.

use std::path::Path;
use std::time::Duration;

use client::{CopyOptions, Exit, Parallelism};

use crate::support::{EndToEndServer, copy, copy_cut, limited, names, noise, options};

const SIZE: usize = 24 << 20;

/// Slow enough that the cut comes in the middle.
fn slow(streams: u32) -> CopyOptions {
    CopyOptions {
        transfer: limited(6 << 20),
        parallelism: Parallelism::Fixed(streams),
        ..options()
    }
}

fn resume(streams: u32) -> CopyOptions {
    CopyOptions {
        resume: true,
        parallelism: Parallelism::Fixed(streams),
        ..options()
    }
}

/// So many bytes are safe when a copy is cut.
const CUT: u64 = 6 << 20;

/// A get that was cut: a partial file and its journal.
async fn cut_get(server: &EndToEndServer, to: &Path, streams: u32) {
    let at = (CUT, &*to.with_extension("longhaul-partial"));
    copy_cut(&server.url("f"), to.to_str().unwrap(), &slow(streams), at).await;
    let there = names(to.parent().unwrap());
    assert_eq!(there, ["t.longhaul-journal", "t.longhaul-partial"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn gets_go_on() {
    let server = EndToEndServer::start().await;
    let bytes = noise(SIZE);
    server.store("f", &bytes);
    for streams in [1, 4] {
        let here = tempfile::tempdir().unwrap();
        let to = here.path().join("t");
        cut_get(&server, &to, streams).await;
        let (summary, seen) =
            copy(&[&server.url("f")], to.to_str().unwrap(), &resume(streams)).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert!(
            summary.bytes > 0 && summary.bytes < 20 << 20,
            "{}",
            summary.bytes
        );
        assert_eq!(seen.warnings(), Vec::<String>::new());
        assert_eq!(summary.verified, "crc32c");
        assert!(std::fs::read(&to).unwrap() == bytes);
        assert_eq!(names(here.path()), ["t"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn puts_go_on() {
    let bytes = noise(SIZE);
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("f");
    std::fs::write(&from, &bytes).unwrap();
    for streams in [1, 4] {
        let server = EndToEndServer::start().await;
        let (from, to) = (from.to_str().unwrap(), server.url("t"));
        let partial = server.root().join("t.longhaul-partial");
        copy_cut(from, &to, &slow(streams), (CUT, &partial)).await;
        assert_eq!(names(&server.root()), ["t.longhaul-partial"]);
        let (summary, seen) = copy(&[from], &to, &resume(streams)).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert!(
            summary.bytes > 0 && summary.bytes < 20 << 20,
            "{}",
            summary.bytes
        );
        assert_eq!(seen.warnings(), Vec::<String>::new());
        assert!(server.read("t") == bytes);
        assert_eq!(names(&server.root()), ["t"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_resume_it_starts_over() {
    let server = EndToEndServer::start().await;
    let bytes = noise(SIZE);
    server.store("f", &bytes);
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("t");
    cut_get(&server, &to, 1).await;
    let (summary, _) = copy(&[&server.url("f")], to.to_str().unwrap(), &options()).await;
    assert_eq!(summary.exit, Exit::Done);
    assert_eq!(summary.bytes, SIZE as u64);
    assert!(std::fs::read(&to).unwrap() == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_changed_starts_over_with_a_warning() {
    let server = EndToEndServer::start().await;
    server.store("f", &noise(SIZE));
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("t");
    cut_get(&server, &to, 1).await;
    let changed: Vec<u8> = noise(SIZE).into_iter().map(|b| b ^ 1).collect();
    server.store("f", &changed);
    let late = std::time::SystemTime::now() + Duration::from_secs(100);
    let file = std::fs::File::options()
        .write(true)
        .open(server.root().join("f"))
        .unwrap();
    file.set_modified(late).unwrap();
    let (summary, seen) = copy(&[&server.url("f")], to.to_str().unwrap(), &resume(1)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.bytes, SIZE as u64);
    assert!(
        seen.warnings()[0].contains("starting over"),
        "{:?}",
        seen.warnings()
    );
    assert!(std::fs::read(&to).unwrap() == changed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spoiled_partial_is_found() {
    let server = EndToEndServer::start().await;
    let bytes = noise(SIZE);
    server.store("f", &bytes);
    // Near its end, where the checks look before going on; and at its start, which only the sum
    // of the whole finds.
    for from_end in [true, false] {
        let here = tempfile::tempdir().unwrap();
        let to = here.path().join("t");
        cut_get(&server, &to, 1).await;
        let partial = here.path().join("t.longhaul-partial");
        let mut spoiled = std::fs::read(&partial).unwrap();
        let last = spoiled.len() - 1;
        let range = if from_end {
            last - (4 << 20)..last
        } else {
            0..1
        };
        for byte in &mut spoiled[range] {
            *byte ^= 0x55;
        }
        std::fs::write(&partial, spoiled).unwrap();
        let (summary, seen) = copy(&[&server.url("f")], to.to_str().unwrap(), &resume(1)).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert!(
            seen.warnings().iter().any(|w| w.contains("starting over")),
            "{:?}",
            seen.warnings()
        );
        assert!(std::fs::read(&to).unwrap() == bytes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_partial_counts_only_by_its_checksum() {
    let server = EndToEndServer::start().await;
    let bytes = noise(3 << 20);
    server.store("f", &bytes);
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("t");
    let partial = here.path().join("t.longhaul-partial");
    std::fs::write(&partial, &bytes[..2 << 20]).unwrap();
    let (summary, _) = copy(&[&server.url("f")], to.to_str().unwrap(), &resume(1)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.bytes, 1 << 20);
    std::fs::write(&partial, vec![0; 2 << 20]).unwrap();
    let (summary, seen) = copy(&[&server.url("f")], to.to_str().unwrap(), &resume(1)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.bytes, 3 << 20);
    assert_eq!(seen.warnings().len(), 1);
    assert!(std::fs::read(&to).unwrap() == bytes);
}

/// A whole copy is compared and left alone.
async fn left_alone(from: &str, to: &str) {
    let (summary, seen) = copy(&[from], to, &resume(4)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!((summary.bytes, summary.files), (0, 1));
    assert_eq!(summary.verified, "crc32c");
    assert_eq!(seen.warnings(), Vec::<String>::new());
}

async fn moved_again(from: &str, to: &str, options: &CopyOptions) {
    let (summary, _) = copy(&[from], to, options).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert!(summary.bytes > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_whole_is_not_moved_again() {
    let (server, other) = (EndToEndServer::start().await, EndToEndServer::start().await);
    let bytes = noise(3 << 20);
    server.store("f", &bytes);
    let here = tempfile::tempdir().unwrap();
    let (from, to) = (here.path().join("f"), here.path().join("t"));
    std::fs::write(&from, &bytes).unwrap();
    let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
    let ends = [
        (server.url("f"), to.to_owned()),
        (from.to_owned(), server.url("t")),
        (server.user_url("f"), other.user_url("t")),
    ];
    for (from, to) in &ends {
        moved_again(from, to, &resume(1)).await;
        left_alone(from, to).await;
        // Only where it is asked for.
        moved_again(from, to, &options()).await;
    }
    // A journal that a kill after the rename left behind is gone, too.
    let journal = here.path().join("t.longhaul-journal");
    std::fs::write(&journal, "x").unwrap();
    left_alone(&ends[0].0, &ends[0].1).await;
    assert_eq!(names(here.path()), ["f", "t"]);

    // The size alone proves nothing.
    let changed: Vec<u8> = bytes.iter().map(|b| b ^ 1).collect();
    server.store("f", &changed);
    std::fs::write(from, &changed).unwrap();
    for (from, to) in &ends {
        moved_again(from, to, &resume(1)).await;
    }
    assert!(std::fs::read(to).unwrap() == changed);
    assert!(server.read("t") == changed && other.read("t") == changed);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_order_the_length_of_the_partial_file_counts() {
    let server = EndToEndServer::start().await;
    let bytes = noise(SIZE);
    server.store("f", &bytes);
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("t");
    cut_get(&server, &to, 1).await;
    // Written after the last line of the journal, as by a process that was killed.
    let partial = here.path().join("t.longhaul-partial");
    std::fs::write(&partial, &bytes[..20 << 20]).unwrap();
    let (summary, seen) = copy(&[&server.url("f")], to.to_str().unwrap(), &resume(1)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.bytes, 4 << 20);
    assert_eq!(seen.warnings(), Vec::<String>::new());
    assert!(std::fs::read(&to).unwrap() == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_length_of_a_file_with_holes_does_not_count() {
    let server = EndToEndServer::start().await;
    let bytes = noise(SIZE);
    server.store("f", &bytes);
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("t");
    cut_get(&server, &to, 4).await;
    // A hole between what is safe and the end, where the checks before going on look.
    let partial = here.path().join("t.longhaul-partial");
    let mut holey = vec![0; SIZE];
    holey[..1 << 20].copy_from_slice(&bytes[..1 << 20]);
    holey[16 << 20..].copy_from_slice(&bytes[16 << 20..]);
    std::fs::write(&partial, &holey).unwrap();
    let journal = here.path().join("t.longhaul-journal");
    let text = std::fs::read_to_string(&journal).unwrap();
    let header = text.lines().next().unwrap();
    std::fs::write(&journal, format!("{header}\n{}\n", sealed("0-1048576"))).unwrap();
    // Now in order, and cut again early: the length of the file still means nothing.
    let unverified = |options: CopyOptions| CopyOptions {
        verify: client::VerifyMode::None,
        resume: true,
        ..options
    };
    let (url, path) = (server.url("f"), to.to_str().unwrap());
    // Of what is there, all but the hole is proved.
    let early = (11 << 20, &*to.with_extension("longhaul-partial"));
    copy_cut(&url, path, &unverified(slow(1)), early).await;
    let (summary, _) = copy(&[&url], path, &unverified(resume(1))).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert!(summary.bytes > 4 << 20, "{}", summary.bytes);
    assert!(std::fs::read(&to).unwrap() == bytes);
}

/// Most bytes that a resume with four streams may move when `partial` is there of `bytes`.
fn most_to_move(partial: &[u8], bytes: &[u8]) -> u64 {
    let pages = bytes.chunks(4096).zip(partial.chunks(4096));
    let there: usize = pages.filter(|(a, b)| a == b).map(|(a, _)| a.len()).sum();
    let blocks = 4 * (256 << 10);
    assert!(there > blocks, "nothing worth proving: {there} bytes");
    (bytes.len() - there + bytes.len() / 100 + blocks) as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_a_server_stored_and_did_not_name_are_not_sent_again() {
    let bytes = noise(SIZE);
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("f");
    std::fs::write(&from, &bytes).unwrap();
    let server = EndToEndServer::start().await;
    let (from, to) = (from.to_str().unwrap(), server.url("t"));
    let partial = server.root().join("t.longhaul-partial");
    copy_cut(from, &to, &slow(4), (CUT, &partial)).await;
    let most = most_to_move(&std::fs::read(&partial).unwrap(), &bytes);
    let (summary, seen) = copy(&[from], &to, &resume(4)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert!(summary.bytes <= most, "{} of {most}", summary.bytes);
    assert_eq!(seen.warnings(), Vec::<String>::new());
    assert!(server.read("t") == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_a_killed_get_wrote_and_did_not_note_are_not_fetched_again() {
    let server = EndToEndServer::start().await;
    let bytes = noise(SIZE);
    server.store("f", &bytes);
    for noted in [Some("0-1048576"), None] {
        let here = tempfile::tempdir().unwrap();
        let to = here.path().join("t");
        cut_get(&server, &to, 4).await;
        let journal = here.path().join("t.longhaul-journal");
        let text = std::fs::read_to_string(&journal).unwrap();
        match noted {
            Some(noted) => {
                let header = text.lines().next().unwrap();
                std::fs::write(&journal, format!("{header}\n{}\n", sealed(noted))).unwrap();
            }
            None => std::fs::remove_file(&journal).unwrap(),
        }
        let partial = std::fs::read(here.path().join("t.longhaul-partial")).unwrap();
        let most = most_to_move(&partial, &bytes);
        let (summary, seen) = copy(&[&server.url("f")], to.to_str().unwrap(), &resume(4)).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert!(summary.bytes <= most, "{} of {most}", summary.bytes);
        assert_eq!(seen.warnings(), Vec::<String>::new());
        assert!(std::fs::read(&to).unwrap() == bytes);
    }
}

/// A line of a journal.
fn sealed(safe: &str) -> String {
    let payload = format!("{{\"safe\":\"{safe}\"}}");
    let mut digest =
        data::checksum::ChecksumHasher::new(proto::checksum::ChecksumAlgorithm::Crc32c);
    digest.update(payload.as_bytes());
    format!("{} {payload}", digest.finish())
}
