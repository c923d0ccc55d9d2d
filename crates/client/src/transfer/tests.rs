//! Single attempts against scripted servers with odd manners.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use data::job::Control;
use data::options::{IoMethod, TransferOptions};
use data::store::memory::{MemorySink, MemorySource};
use proto::ranges::RangeSet;
use proto::sizing::Buffers;

use super::{Attempt, TransferSpec, get, put, third_party};
use crate::session::Session;
use crate::session::fake::{Act, Fake, call, login, login_with};
use crate::{Exit, Failure, ModeChoice};
use Act::{Give, Hear, Hold, Listen, Say, Take, Wait};

mod ahead;
mod between_servers;
mod endings;
mod right_sizing;

const PATIENCE: Duration = Duration::from_secs(60);
const GRIDFTP: &str = "211-x\n PARALLEL\n SIZE\n ERET\n REST STREAM\n211 End.";

pub(super) fn spec() -> TransferSpec {
    TransferSpec {
        size: None,
        part: None,
        place: None,
        chunks: None,
        have: RangeSet::new(),
        streams: 1,
        most_streams: 1,
        adapt: false,
        mode: ModeChoice::Auto,
        sum: None,
        remote_sum: None,
        options: TransferOptions {
            buffers: Buffers::default(),
            io: IoMethod::Copy,
            block: 64 << 10,
            stall: PATIENCE,
            ..TransferOptions::default()
        },
        begun: Arc::default(),
        marked: Arc::new(Mutex::new(RangeSet::new())),
        said: Arc::default(),
        data_ports: None,
    }
}

async fn opened(acts: Vec<Vec<Act>>) -> (Session, Fake) {
    let fake = Fake::start(acts.concat()).await;
    let session = Session::open(&fake.server, PATIENCE).await.unwrap();
    (session, fake)
}

fn sink() -> MemorySink {
    MemorySink::new(1 << 20, "memory")
}

async fn fetch(
    session: &mut Session,
    sink: &MemorySink,
    spec: &TransferSpec,
) -> Result<Attempt, Failure> {
    let control = Arc::new(Control::new());
    get(session, b"/f", Arc::new(sink.clone()), spec, &control).await
}

async fn store(
    session: &mut Session,
    text: &[u8],
    spec: &TransferSpec,
) -> Result<Attempt, Failure> {
    let source = Arc::new(MemorySource::new(text, "memory"));
    let control = Arc::new(Control::new());
    put(session, source, b"/f", spec, &control).await
}

#[tokio::test]
async fn an_early_refusal_stops_the_data_side_and_leaves_the_session() {
    let (mut session, fake) = opened(vec![
        login(),
        vec![Listen("PASV"), Hear("RETR /f")],
        vec![Wait(50), Say("550 /f: No such file or directory")],
        call("DELE /g", "250 gone"),
    ])
    .await;
    let failure = fetch(&mut session, &sink(), &spec()).await.unwrap_err();
    assert_eq!((failure.exit, failure.transient), (Exit::NotFound, false));
    assert!(failure.message.contains("No such file"), "{failure}");
    session.delete(b"/g").await.unwrap();
    fake.finish().await;
}

#[tokio::test]
async fn whole_only_when_the_server_says_so() {
    let (mut session, fake) = opened(vec![
        login(),
        vec![Listen("PASV"), Hear("RETR /f"), Say("150 go")],
        vec![Give(b"hello".to_vec()), Say("226 done")],
        vec![Listen("PASV"), Hear("RETR /f"), Say("150 go")],
        vec![Give(b"hel".to_vec()), Say("426 cut")],
    ])
    .await;
    let memory = sink();
    let attempt = fetch(&mut session, &memory, &spec()).await.unwrap();
    assert_eq!(
        (attempt.report.evidence.bytes, attempt.extended),
        (5, false)
    );
    assert_eq!(memory.take(), b"hello");
    let failure = fetch(&mut session, &memory, &spec()).await.unwrap_err();
    assert_eq!((failure.exit, failure.transient), (Exit::Unreachable, true));
    fake.finish().await;
}

/// Whether what arrived of `/f` counts without a checksum.
async fn disputed(bytes: &[u8], word: &'static str) -> bool {
    let (mut session, fake) = opened(vec![
        login(),
        vec![Listen("PASV"), Hear("RETR /f"), Say("150 go")],
        vec![Give(bytes.to_vec()), Say(word)],
    ])
    .await;
    let spec = spec();
    fetch(&mut session, &sink(), &spec).await.unwrap_err();
    fake.finish().await;
    spec.said.refused()
}

#[tokio::test]
async fn a_refusal_after_the_data_disputes_it() {
    for word in ["451 Local error", "426 cut", "550 Read error", "421 bye"] {
        assert!(disputed(b"hello", word).await, "{word}");
    }
}

/// A MODE E block: descriptor, length, offset.
fn block(descriptor: u8, payload: &[u8], offset: u64) -> Vec<u8> {
    let mut bytes = vec![descriptor];
    bytes.extend((payload.len() as u64).to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A MODE E get of five bytes that come in one connection, which then ends.
async fn extended(blocks: Vec<u8>, word: &'static str) -> (Failure, TransferSpec) {
    let (mut session, _fake) = opened(vec![
        login_with(GRIDFTP),
        call("MODE E", "200 ok"),
        call("OPTS RETR", "200 ok"),
        call("PORT", "200 ok"),
        vec![Hear("RETR /f"), Say("150 go"), Act::Deliver(blocks)],
        vec![Say(word)],
    ])
    .await;
    let mut spec = spec();
    spec.streams = 4;
    spec.size = Some(5);
    let failure = fetch(&mut session, &sink(), &spec).await.unwrap_err();
    (failure, spec)
}

#[tokio::test]
async fn a_226_beside_a_missing_eod_or_eof_disputes_the_data() {
    let end_without_eof = block(8, b"hello", 0);
    for blocks in [block(0, b"hello", 0), end_without_eof] {
        let (failure, spec) = extended(blocks, "226 done").await;
        assert!(spec.said.refused(), "{failure}");
    }
}

#[tokio::test]
async fn a_lost_data_connection_says_nothing_against_what_came() {
    let (failure, spec) = extended(block(0, b"hel", 0), "426 Connection closed").await;
    assert_eq!((failure.exit, failure.transient), (Exit::Unreachable, true));
    assert!(!spec.said.refused());
}

#[tokio::test]
async fn a_put_into_a_missing_directory_names_the_directory() {
    let (mut session, fake) = opened(vec![
        login(),
        vec![Listen("PASV"), Hear("ALLO"), Say("200 ok"), Hear("STOR /f")],
        vec![Say("553 Could not create file.")],
        call("CWD /", "550 Failed to change directory."),
    ])
    .await;
    let failure = store(&mut session, b"hello", &spec()).await.unwrap_err();
    assert_eq!(failure.exit, Exit::NotFound);
    assert!(failure.message.contains("no directory / "), "{failure}");
    fake.finish().await;
}

#[tokio::test]
async fn a_short_file_is_no_success() {
    let (mut session, fake) = opened(vec![
        login(),
        vec![Listen("PASV"), Hear("RETR /f"), Say("150 go")],
        vec![Give(b"hel".to_vec()), Say("226 done")],
    ])
    .await;
    let mut spec = spec();
    spec.size = Some(5);
    let failure = fetch(&mut session, &sink(), &spec).await.unwrap_err();
    assert_eq!(failure.exit, Exit::Integrity);
    assert!(failure.message.contains("3 of 5"), "{failure}");
    fake.finish().await;
}

#[tokio::test]
async fn a_file_that_grew_is_no_success() {
    let (mut session, _fake) = opened(vec![
        login(),
        vec![Listen("PASV"), Hear("RETR /f"), Say("150 go")],
        vec![Give(b"hello and more".to_vec()), Say("226 done")],
    ])
    .await;
    let mut spec = spec();
    spec.size = Some(5);
    let failure = fetch(&mut session, &sink(), &spec).await.unwrap_err();
    assert_eq!(failure.exit, Exit::Protocol);
}

#[tokio::test]
async fn a_lost_control_connection_ends_the_data_side() {
    let (mut session, _fake) = opened(vec![
        login(),
        vec![Listen("PASV"), Hear("RETR /f"), Say("150 go"), Hold],
    ])
    .await;
    let failure = fetch(&mut session, &sink(), &spec()).await.unwrap_err();
    assert_eq!((failure.exit, failure.transient), (Exit::Unreachable, true));
    assert!(failure.message.contains("control connection"), "{failure}");
}

#[tokio::test]
async fn data_that_stalls_runs_into_the_time_out() {
    let (mut session, _fake) = opened(vec![
        login(),
        vec![Listen("PASV"), Hear("RETR /f"), Say("150 go"), Hold],
        vec![Act::HearEnd],
    ])
    .await;
    let mut spec = spec();
    spec.options.stall = Duration::from_secs(1);
    let failure = fetch(&mut session, &sink(), &spec).await.unwrap_err();
    assert_eq!((failure.exit, failure.transient), (Exit::Unreachable, true));
    assert!(failure.message.contains("stalled"), "{failure}");
}

#[tokio::test]
async fn resume_goes_on_after_what_is_there() {
    let (mut session, fake) = opened(vec![
        login(),
        vec![Listen("PASV"), Hear("REST 3"), Say("350 ok")],
        vec![Hear("RETR /f"), Say("150 go")],
        vec![Give(b"lo".to_vec()), Say("226 done")],
    ])
    .await;
    let memory = sink();
    data::store::Sink::write_at(&memory, 0, b"hel").unwrap();
    let mut spec = spec();
    spec.size = Some(5);
    spec.have.insert(0, 3);
    let attempt = fetch(&mut session, &memory, &spec).await.unwrap();
    assert_eq!(attempt.report.evidence.bytes, 2);
    assert_eq!(memory.take(), b"hello");
    fake.finish().await;
}

#[tokio::test]
async fn a_server_without_rest_starts_over() {
    let (mut session, fake) = opened(vec![
        login(),
        vec![Listen("PASV"), Hear("REST 3"), Say("502 no")],
        vec![Listen("PASV"), Hear("RETR /f"), Say("150 go")],
        vec![Give(b"hello".to_vec()), Say("226 done")],
    ])
    .await;
    let memory = sink();
    let mut spec = spec();
    spec.size = Some(5);
    spec.have.insert(0, 3);
    let attempt = fetch(&mut session, &memory, &spec).await.unwrap();
    assert_eq!(attempt.report.evidence.bytes, 5);
    assert_eq!(memory.take(), b"hello");
    fake.finish().await;
}

#[tokio::test]
async fn a_part_by_rest_stops_where_it_ends() {
    let (mut session, fake) = opened(vec![
        login(),
        vec![Listen("PASV"), Hear("REST 10"), Say("350 ok")],
        vec![Hear("RETR /f"), Say("150 go")],
        vec![Give(vec![7; 300_000]), Say("426 peer closed")],
        call("DELE /g", "250 gone"),
    ])
    .await;
    let memory = sink();
    let mut spec = spec();
    spec.size = Some(1000);
    spec.part = Some((10, 1000));
    let attempt = fetch(&mut session, &memory, &spec).await.unwrap();
    assert_eq!(attempt.report.evidence.bytes, 1000);
    assert_eq!(memory.take(), vec![7; 1000]);
    assert!(session.is_usable());
    session.delete(b"/g").await.unwrap();
    fake.finish().await;
}

#[tokio::test]
async fn a_part_is_whole_also_when_the_server_says_no_last_word() {
    let (mut session, _fake) = opened(vec![
        login(),
        vec![Listen("PASV"), Hear("RETR /f"), Say("150 97.6 kbytes")],
        vec![Give(vec![7; 300_000]), Say("150 0.005 seconds")],
        vec![Act::HearEnd],
    ])
    .await;
    let memory = sink();
    let mut spec = spec();
    spec.size = Some(99_999);
    spec.part = Some((0, 99_999));
    let control = Arc::new(Control::new());
    let sink = Arc::new(memory.clone());
    let attempt = get(&mut session, b"/f", sink, &spec, &control).await;
    assert_eq!(attempt.unwrap().report.evidence.bytes, 99_999);
    assert_eq!(control.bytes(), 99_999);
    assert_eq!(memory.take(), vec![7; 99_999]);
    // Whatever it says later would be taken for the answer to another command.
    assert!(!session.is_usable());
}

#[tokio::test]
async fn an_empty_part_of_a_missing_file_is_a_refusal() {
    let (mut session, _fake) = opened(vec![
        login(),
        vec![Listen("PASV"), Hear("RETR /f"), Say("550 No such file")],
    ])
    .await;
    let mut spec = spec();
    spec.size = Some(0);
    spec.part = Some((0, 0));
    let failure = fetch(&mut session, &sink(), &spec).await.unwrap_err();
    assert_eq!(failure.exit, Exit::NotFound);
}

/// A disk that takes its time to say that it is full.
#[derive(Debug)]
struct FullDisk;

impl data::store::Sink for FullDisk {
    fn name(&self) -> String {
        "full disk".to_owned()
    }

    fn write_at(&self, _: u64, _: &[u8]) -> std::io::Result<()> {
        std::thread::sleep(Duration::from_millis(50));
        Err(std::io::ErrorKind::StorageFull.into())
    }

    fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    fn seekable(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_full_disk_here_counts_more_than_what_the_server_says_of_it() {
    let (mut session, _fake) = opened(vec![
        login(),
        vec![Listen("PASV"), Hear("RETR /f"), Say("150 go")],
        vec![Give(vec![7; 1000]), Say("426 Failure writing to network")],
    ])
    .await;
    let control = Arc::new(Control::new());
    let outcome = get(&mut session, b"/f", Arc::new(FullDisk), &spec(), &control).await;
    let failure = outcome.unwrap_err();
    assert_eq!((failure.exit, failure.transient), (Exit::Local, false));
    assert!(failure.message.contains("full disk"), "{failure}");
}

#[tokio::test]
async fn puts_in_stream_mode() {
    let (mut session, fake) = opened(vec![
        login(),
        vec![Listen("PASV"), Hear("ALLO 5"), Say("202 no need")],
        vec![Hear("STOR /f"), Say("150 go"), Take, Say("226 done")],
        vec![Listen("PASV"), Hear("ALLO 5"), Say("202 no need")],
        vec![Hear("REST 2"), Say("350 ok"), Hear("STOR /f")],
        vec![Say("150 go"), Take, Say("226 done")],
    ])
    .await;
    store(&mut session, b"hello", &spec()).await.unwrap();
    let mut rest = spec();
    rest.have.insert(0, 2);
    let attempt = store(&mut session, b"hello", &rest).await.unwrap();
    assert_eq!(attempt.report.evidence.bytes, 3);
    assert_eq!(fake.finish().await, b"hellollo");
}

#[tokio::test]
async fn part_of_a_source_becomes_the_whole_destination() {
    let (mut session, fake) = opened(vec![
        login(),
        vec![Listen("PASV"), Hear("ALLO 4"), Say("200 ok")],
        vec![Hear("STOR /f"), Say("150 go"), Take, Say("226 done")],
    ])
    .await;
    let mut spec = spec();
    spec.part = Some((2, 4));
    store(&mut session, b"0123456789", &spec).await.unwrap();
    assert_eq!(fake.finish().await, b"2345");
}

#[tokio::test]
async fn a_full_disk_at_the_server_is_named() {
    let (mut session, _fake) = opened(vec![
        login(),
        vec![Listen("PASV"), Hear("ALLO"), Say("200 ok"), Hear("STOR /f")],
        vec![Say("150 go"), Take, Say("452 No space left on device")],
    ])
    .await;
    let failure = store(&mut session, b"hello", &spec()).await.unwrap_err();
    assert_eq!((failure.exit, failure.transient), (Exit::Local, false));
    assert!(failure.message.contains("disk"), "{failure}");
}

#[tokio::test]
async fn extended_mode_sends_blocks_and_collects_markers() {
    let (mut session, fake) = opened(vec![
        login_with(GRIDFTP),
        call("MODE E", "200 ok"),
        vec![Listen("PASV"), Hear("ALLO 5"), Say("200 ok")],
        vec![Hear("STOR /f"), Say("150 go")],
        vec![Say("111 Range Marker 0-3"), Say("111 Range Marker 3-5")],
        // The connection stays open for the next transfer, so it is not read to its end here.
        vec![Hold, Wait(200), Say("226 done")],
    ])
    .await;
    let mut spec = spec();
    spec.mode = ModeChoice::Extended;
    let attempt = store(&mut session, b"hello", &spec).await.unwrap();
    assert!(attempt.extended);
    assert_eq!(attempt.report.evidence.bytes, 5);
    assert_eq!(spec.marked.lock().unwrap().to_string(), "0-5");
    fake.finish().await;
}

#[tokio::test]
async fn a_missing_extended_mode_is_said_once() {
    let acts = |mode: &'static str| {
        let mut acts = vec![login_with(GRIDFTP)];
        if !mode.is_empty() {
            acts.push(call(mode, "501 unrecognized transfer mode"));
        }
        for _ in 0..2 {
            acts.push(vec![Listen("PASV"), Hear("RETR /f"), Say("150 go")]);
            acts.push(vec![Give(b"hello".to_vec()), Say("226 done")]);
        }
        acts
    };
    let (mut session, fake) = opened(acts("MODE E")).await;
    let mut spec = spec();
    spec.streams = 4;
    let first = fetch(&mut session, &sink(), &spec).await.unwrap();
    let second = fetch(&mut session, &sink(), &spec).await.unwrap();
    assert_eq!((first.warnings.len(), second.warnings.len()), (1, 0));
    assert!(!first.extended);
    fake.finish().await;
}

#[tokio::test]
async fn a_dropped_transfer_makes_the_session_useless_rather_than_wrong() {
    let (mut session, _fake) = opened(vec![
        login(),
        vec![Listen("PASV"), Hear("RETR /f"), Say("150 go"), Hold],
        vec![Wait(60_000)],
    ])
    .await;
    let spec = spec();
    let memory = sink();
    let limit = Duration::from_millis(200);
    let cut = tokio::time::timeout(limit, fetch(&mut session, &memory, &spec)).await;
    assert!(cut.is_err());
    let failure = session.delete(b"/g").await.unwrap_err();
    assert_eq!((failure.exit, failure.transient), (Exit::Unreachable, true));
}

#[tokio::test]
async fn a_server_that_cannot_connect_back_sends_in_stream_mode() {
    let (mut session, fake) = opened(vec![
        login_with(GRIDFTP),
        call("MODE E", "200 ok"),
        call("OPTS RETR", "200 ok"),
        call("PORT", "200 ok"),
        call(
            "RETR /f",
            "500-Command failed\n500 Unable to connect to x:5",
        ),
        call("MODE S", "200 ok"),
        vec![Listen("PASV"), Hear("RETR /f"), Say("150 go")],
        vec![Give(b"hello".to_vec()), Say("226 done")],
    ])
    .await;
    let memory = sink();
    let mut spec = spec();
    spec.streams = 4;
    let attempt = fetch(&mut session, &memory, &spec).await.unwrap();
    assert!(!attempt.extended);
    assert_eq!(attempt.warnings.len(), 1);
    assert_eq!(memory.take(), b"hello");
    fake.finish().await;
}

/// What becomes of a transfer in MODE E whose server says nothing after RETR.
async fn with_a_server_that_says_nothing() -> Result<Failure, Failure> {
    let fake = Fake::start(
        [
            login_with(GRIDFTP),
            call("MODE E", "200 ok"),
            call("OPTS RETR", "200 ok"),
            call("PORT", "200 ok"),
            vec![Hear("RETR /f"), Act::HearEnd],
        ]
        .concat(),
    )
    .await;
    let patience = Duration::from_millis(500);
    let mut session = Session::open(&fake.server, patience).await?;
    let mut spec = spec();
    spec.streams = 4;
    Ok(fetch(&mut session, &sink(), &spec).await.unwrap_err())
}

#[tokio::test]
async fn a_server_that_cannot_connect_back_and_says_nothing_is_understood() {
    let mut failures = Vec::new();
    // A busy machine may be out of patience before, but not every time.
    for _ in 0..5 {
        let failure = match with_a_server_that_says_nothing().await {
            Ok(failure) | Err(failure) => failure,
        };
        assert_eq!((failure.exit, failure.transient), (Exit::Unreachable, true));
        if failure.message.contains("--mode s") {
            return;
        }
        failures.push(failure);
    }
    panic!("{failures:?}");
}
