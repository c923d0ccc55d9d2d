//! Resuming: stored bytes are kept only when they are provably of the same source.

use std::path::Path;
use std::time::Duration;

use copy::{CopyOptions, Exit, Parallelism};

use crate::support::{
    EndToEndServer, copy, copy_and_interrupt, file_names, options, random_bytes, rate_limited,
    write_private,
};

const SIZE: usize = 24 << 20;

/// Slow enough that the interruption comes in the middle, also on a busy machine.
fn slow_options(streams: u32) -> CopyOptions {
    options().with(|o| {
        o.streams.transfer = rate_limited(4 << 20);
        o.streams.parallelism = Parallelism::Fixed(streams);
    })
}

/// Options of a later run without any flag.
fn later_options(streams: u32) -> CopyOptions {
    options().with(|o| o.streams.parallelism = Parallelism::Fixed(streams))
}

fn resume_options(streams: u32) -> CopyOptions {
    options().with(|o| {
        o.file.resume = true;
        o.streams.parallelism = Parallelism::Fixed(streams);
    })
}

/// Number of safe bytes at which a copy is interrupted.
const INTERRUPT_AT: u64 = 6 << 20;

/// Interrupts a get, which leaves a partial file and its journal.
async fn interrupted_get(server: &EndToEndServer, to: &Path, streams: u32) {
    let at = (INTERRUPT_AT, &*to.with_extension("longhaul-partial"));
    copy_and_interrupt(
        &server.url("f"),
        to.to_str().unwrap(),
        &slow_options(streams),
        at,
    )
    .await;
    let there = file_names(to.parent().unwrap());
    assert_eq!(there, ["t.longhaul-journal", "t.longhaul-partial"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_gets_are_resumed() {
    let server = EndToEndServer::start().await;
    let bytes = random_bytes(SIZE);
    server.store("f", &bytes);
    for later in [
        later_options(1),
        later_options(4),
        resume_options(1),
        resume_options(4),
    ] {
        let workdir = tempfile::tempdir().unwrap();
        let to = workdir.path().join("t");
        let streams = match later.streams.parallelism {
            Parallelism::Fixed(streams) => streams,
            _ => 1,
        };
        interrupted_get(&server, &to, streams).await;
        let (summary, events) = copy(&[&server.url("f")], to.to_str().unwrap(), &later).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert!(
            summary.bytes > 0 && summary.bytes < 20 << 20,
            "{}",
            summary.bytes
        );
        assert_eq!(events.warnings(), Vec::<String>::new());
        assert_eq!(summary.verified, "crc32c");
        assert!(std::fs::read(&to).unwrap() == bytes);
        assert_eq!(file_names(workdir.path()), ["t"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_puts_are_resumed() {
    let bytes = random_bytes(SIZE);
    let workdir = tempfile::tempdir().unwrap();
    let from = workdir.path().join("f");
    std::fs::write(&from, &bytes).unwrap();
    for streams in [1, 4] {
        let server = EndToEndServer::start().await;
        let (from, to) = (from.to_str().unwrap(), server.url("t"));
        let partial = server.root().join("t.longhaul-partial");
        copy_and_interrupt(from, &to, &slow_options(streams), (INTERRUPT_AT, &partial)).await;
        assert_eq!(file_names(&server.root()), ["t.longhaul-partial"]);
        let (summary, events) = copy(&[from], &to, &later_options(streams)).await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert!(
            summary.bytes > 0 && summary.bytes < 20 << 20,
            "{}",
            summary.bytes
        );
        assert_eq!(events.warnings(), Vec::<String>::new());
        assert!(server.read("t") == bytes);
        assert_eq!(file_names(&server.root()), ["t"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_restart_a_copy_starts_from_zero_and_says_what_that_discards() {
    let server = EndToEndServer::start().await;
    let bytes = random_bytes(SIZE);
    server.store("f", &bytes);
    let workdir = tempfile::tempdir().unwrap();
    let restart = options().with(|o| o.file.restart = true);
    let to = workdir.path().join("t");
    interrupted_get(&server, &to, 1).await;
    let source = server.url("f");
    let (summary, events) = copy(&[&source], to.to_str().unwrap(), &restart).await;
    assert_eq!(summary.exit, Exit::Done);
    assert_eq!(summary.bytes, SIZE as u64);
    let [warning] = &events.warnings()[..] else {
        panic!("{:?}", events.warnings());
    };
    assert!(warning.contains("starting over, without the "), "{warning}");
    assert!(std::fs::read(&to).unwrap() == bytes);

    let from = workdir.path().join("f");
    std::fs::write(&from, &bytes).unwrap();
    let (from, to) = (from.to_str().unwrap(), server.url("t"));
    let partial = server.root().join("t.longhaul-partial");
    copy_and_interrupt(from, &to, &slow_options(4), (INTERRUPT_AT, &partial)).await;
    let (summary, events) = copy(&[from], &to, &restart).await;
    assert_eq!((summary.exit, summary.bytes), (Exit::Done, SIZE as u64));
    assert!(
        events.warnings()[0].contains("starting over, without the "),
        "{:?}",
        events.warnings()
    );
    assert!(server.read("t") == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_source_starts_from_zero_with_a_warning() {
    let server = EndToEndServer::start().await;
    server.store("f", &random_bytes(SIZE));
    let workdir = tempfile::tempdir().unwrap();
    let to = workdir.path().join("t");
    interrupted_get(&server, &to, 1).await;
    let changed: Vec<u8> = random_bytes(SIZE).into_iter().map(|b| b ^ 1).collect();
    server.store("f", &changed);
    let late = std::time::SystemTime::now() + Duration::from_secs(100);
    let file = std::fs::File::options()
        .write(true)
        .open(server.root().join("f"))
        .unwrap();
    file.set_modified(late).unwrap();
    let (summary, events) = copy(
        &[&server.url("f")],
        to.to_str().unwrap(),
        &resume_options(1),
    )
    .await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.bytes, SIZE as u64);
    assert!(
        events.warnings()[0].contains("starting over"),
        "{:?}",
        events.warnings()
    );
    assert!(std::fs::read(&to).unwrap() == changed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_partial_file_is_detected() {
    let server = EndToEndServer::start().await;
    let bytes = random_bytes(SIZE);
    server.store("f", &bytes);
    // A corrupted end is found by the checks before resuming; a corrupted start only by the checksum of
    // the whole, and repaired.
    for from_end in [true, false] {
        let workdir = tempfile::tempdir().unwrap();
        let to = workdir.path().join("t");
        interrupted_get(&server, &to, 1).await;
        let partial = workdir.path().join("t.longhaul-partial");
        let mut corrupted = std::fs::read(&partial).unwrap();
        let last = corrupted.len() - 1;
        let range = if from_end {
            last - (4 << 20)..last
        } else {
            0..1
        };
        for byte in &mut corrupted[range] {
            *byte ^= 0x55;
        }
        std::fs::write(&partial, corrupted).unwrap();
        let (summary, events) = copy(
            &[&server.url("f")],
            to.to_str().unwrap(),
            &resume_options(1),
        )
        .await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        let found = match from_end {
            true => "starting over",
            false => "some bytes arrived wrong",
        };
        let warnings = events.warnings();
        assert!(warnings.iter().any(|w| w.contains(found)), "{warnings:?}");
        assert!(std::fs::read(&to).unwrap() == bytes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partial_file_without_journal_counts_only_by_checksum() {
    let server = EndToEndServer::start().await;
    let bytes = random_bytes(3 << 20);
    server.store("f", &bytes);
    let workdir = tempfile::tempdir().unwrap();
    let to = workdir.path().join("t");
    let partial = workdir.path().join("t.longhaul-partial");
    write_private(&partial, &bytes[..2 << 20]);
    let (summary, _) = copy(
        &[&server.url("f")],
        to.to_str().unwrap(),
        &resume_options(1),
    )
    .await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.bytes, 1 << 20);
    write_private(&partial, &[0; 2 << 20]);
    let (summary, events) = copy(
        &[&server.url("f")],
        to.to_str().unwrap(),
        &resume_options(1),
    )
    .await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.bytes, 3 << 20);
    assert_eq!(events.warnings().len(), 1);
    assert!(std::fs::read(&to).unwrap() == bytes);
}

/// A complete copy is compared and not transferred again.
async fn assert_not_transferred_again(from: &str, to: &str) {
    let (summary, events) = copy(&[from], to, &resume_options(4)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!((summary.bytes, summary.files), (0, 1));
    assert_eq!(summary.verified, "crc32c");
    assert_eq!(events.warnings(), Vec::<String>::new());
}

async fn assert_transferred_again(from: &str, to: &str, options: &CopyOptions) {
    let (summary, _) = copy(&[from], to, options).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert!(summary.bytes > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_complete_copy_is_not_transferred_again() {
    let (server, other) = (EndToEndServer::start().await, EndToEndServer::start().await);
    let bytes = random_bytes(3 << 20);
    server.store("f", &bytes);
    let workdir = tempfile::tempdir().unwrap();
    let (from, to) = (workdir.path().join("f"), workdir.path().join("t"));
    std::fs::write(&from, &bytes).unwrap();
    let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
    let ends = [
        (server.url("f"), to.to_owned()),
        (from.to_owned(), server.url("t")),
        (server.user_url("f"), other.user_url("t")),
    ];
    for (from, to) in &ends {
        assert_transferred_again(from, to, &resume_options(1)).await;
        assert_not_transferred_again(from, to).await;
        // Without --resume it is transferred again.
        assert_transferred_again(from, to, &options()).await;
    }
    // The journal left behind by a kill after the rename is removed, too, and is reason enough to compare.
    let journal = workdir.path().join("t.longhaul-journal");
    for options in [&resume_options(4), &options()] {
        std::fs::write(&journal, "x").unwrap();
        let (summary, _) = copy(&[&ends[0].0], &ends[0].1, options).await;
        assert_eq!((summary.exit, summary.bytes), (Exit::Done, 0));
        assert_eq!(file_names(workdir.path()), ["f", "t"]);
    }

    // An equal size proves nothing.
    let changed: Vec<u8> = bytes.iter().map(|b| b ^ 1).collect();
    server.store("f", &changed);
    std::fs::write(from, &changed).unwrap();
    for (from, to) in &ends {
        assert_transferred_again(from, to, &resume_options(1)).await;
    }
    assert!(std::fs::read(to).unwrap() == changed);
    assert!(server.read("t") == changed && other.read("t") == changed);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_length_of_a_sequentially_written_partial_file_counts() {
    let server = EndToEndServer::start().await;
    let bytes = random_bytes(SIZE);
    server.store("f", &bytes);
    let workdir = tempfile::tempdir().unwrap();
    let to = workdir.path().join("t");
    interrupted_get(&server, &to, 1).await;
    // Bytes written after the last journal entry, as by a process that was killed.
    let partial = workdir.path().join("t.longhaul-partial");
    std::fs::write(&partial, &bytes[..20 << 20]).unwrap();
    let (summary, events) = copy(
        &[&server.url("f")],
        to.to_str().unwrap(),
        &resume_options(1),
    )
    .await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.bytes, 4 << 20);
    assert_eq!(events.warnings(), Vec::<String>::new());
    assert!(std::fs::read(&to).unwrap() == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_length_of_a_partial_file_with_holes_does_not_count() {
    let server = EndToEndServer::start().await;
    let bytes = random_bytes(SIZE);
    server.store("f", &bytes);
    let workdir = tempfile::tempdir().unwrap();
    let to = workdir.path().join("t");
    interrupted_get(&server, &to, 4).await;
    // A hole between the safe bytes and the end, where the checks before resuming look.
    let partial = workdir.path().join("t.longhaul-partial");
    let mut holey = vec![0; SIZE];
    holey[..1 << 20].copy_from_slice(&bytes[..1 << 20]);
    holey[16 << 20..].copy_from_slice(&bytes[16 << 20..]);
    std::fs::write(&partial, &holey).unwrap();
    let journal = workdir.path().join("t.longhaul-journal");
    let text = std::fs::read_to_string(&journal).unwrap();
    let header = text.lines().next().unwrap();
    std::fs::write(
        &journal,
        format!("{header}\n{}\n", journal_line("0-1048576")),
    )
    .unwrap();
    // Resumed over one stream and interrupted early: the length of the file still proves nothing.
    let unverified = |options: CopyOptions| {
        options.with(|o| {
            o.file.verify = copy::VerifyMode::None;
            o.file.resume = true;
        })
    };
    let (url, path) = (server.url("f"), to.to_str().unwrap());
    // All but the hole is proven by checksums.
    let early = (11 << 20, &*to.with_extension("longhaul-partial"));
    copy_and_interrupt(&url, path, &unverified(slow_options(1)), early).await;
    let (summary, _) = copy(&[&url], path, &unverified(resume_options(1))).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert!(summary.bytes > 4 << 20, "{}", summary.bytes);
    assert!(std::fs::read(&to).unwrap() == bytes);
}

/// Most bytes that a resume over four streams may move when `partial` is stored of `bytes`.
fn max_bytes_to_move(partial: &[u8], bytes: &[u8]) -> u64 {
    let pages = bytes.chunks(4096).zip(partial.chunks(4096));
    let there: usize = pages.filter(|(a, b)| a == b).map(|(a, _)| a.len()).sum();
    let blocks = 4 * (256 << 10);
    assert!(there > blocks, "nothing worth proving: {there} bytes");
    (bytes.len() - there + bytes.len() / 100 + blocks) as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_bytes_without_a_marker_are_not_sent_again() {
    let bytes = random_bytes(SIZE);
    let workdir = tempfile::tempdir().unwrap();
    let from = workdir.path().join("f");
    std::fs::write(&from, &bytes).unwrap();
    let server = EndToEndServer::start().await;
    let (from, to) = (from.to_str().unwrap(), server.url("t"));
    let partial = server.root().join("t.longhaul-partial");
    copy_and_interrupt(from, &to, &slow_options(4), (INTERRUPT_AT, &partial)).await;
    let most = max_bytes_to_move(&std::fs::read(&partial).unwrap(), &bytes);
    let (summary, events) = copy(&[from], &to, &resume_options(4)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert!(summary.bytes <= most, "{} of {most}", summary.bytes);
    assert_eq!(events.warnings(), Vec::<String>::new());
    assert!(server.read("t") == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_without_a_journal_entry_are_not_fetched_again() {
    let server = EndToEndServer::start().await;
    let bytes = random_bytes(SIZE);
    server.store("f", &bytes);
    for noted in [Some("0-1048576"), None] {
        let workdir = tempfile::tempdir().unwrap();
        let to = workdir.path().join("t");
        interrupted_get(&server, &to, 4).await;
        let journal = workdir.path().join("t.longhaul-journal");
        let text = std::fs::read_to_string(&journal).unwrap();
        match noted {
            Some(noted) => {
                let header = text.lines().next().unwrap();
                std::fs::write(&journal, format!("{header}\n{}\n", journal_line(noted))).unwrap();
            }
            None => std::fs::remove_file(&journal).unwrap(),
        }
        let partial = std::fs::read(workdir.path().join("t.longhaul-partial")).unwrap();
        let most = max_bytes_to_move(&partial, &bytes);
        let (summary, events) = copy(
            &[&server.url("f")],
            to.to_str().unwrap(),
            &resume_options(4),
        )
        .await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert!(summary.bytes <= most, "{} of {most}", summary.bytes);
        assert_eq!(events.warnings(), Vec::<String>::new());
        assert!(std::fs::read(&to).unwrap() == bytes);
    }
}

/// A line of a journal.
fn journal_line(safe: &str) -> String {
    let payload = format!("{{\"safe\":\"{safe}\"}}");
    let mut digest =
        data::checksum::ChecksumHasher::new(proto::checksum::ChecksumAlgorithm::Crc32c);
    digest.update(payload.as_bytes());
    format!("{} {payload}", digest.finish())
}
