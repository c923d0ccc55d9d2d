use std::time::Duration;

use super::*;
use crate::options::StreamOptions;
use crate::storage::entry_names::join_path;
use crate::tree::{TreeEntry, TreeVisitor};
use data::options::TransferOptions;
use ftp::session::scripted_server::{
    ScriptedAction, ScriptedFtpServer, command_and_reply, login_script_with_feat,
    pipelined_login_script,
};
use ftp::{Exit, ModeChoice};
use proto::sizing::SocketBuffers;

/// The options of `longhaul cp` without any flag.
pub(crate) fn options() -> CopyOptions {
    CopyOptions {
        streams: StreamOptions {
            transfer: TransferOptions {
                buffers: SocketBuffers::default(),
                block: 1 << 18,
                stall: Duration::from_secs(60),
                ..TransferOptions::default()
            },
            ..StreamOptions::default()
        },
        concurrency: Some(4),
        ..CopyOptions::default()
    }
}

/// Observes nothing.
pub(crate) struct IgnoringObserver;

impl CopyObserver for IgnoringObserver {
    fn on_event(&self, _: CopyEvent) {}
}

async fn run_copy(sources: &[&str], destination: &str, options: &CopyOptions) -> CopySummary {
    let sources: Vec<String> = sources.iter().map(|s| (*s).to_owned()).collect();
    copy(&sources, destination, options, Arc::new(IgnoringObserver)).await
}

#[tokio::test]
async fn invalid_requests_are_usage_errors() {
    for (sources, destination) in [
        (&["-", "a"][..], "d/"),
        (&["-"], "-"),
        (&[], "x"),
        (&["ftpes://h/a"], "x"),
        (&["-"], "/tmp/"),
    ] {
        let summary = run_copy(sources, destination, &options()).await;
        assert_eq!(summary.exit, Exit::Usage, "{sources:?} {destination}");
        assert!(summary.first_failure.is_some());
    }
}

#[tokio::test]
async fn the_trace_file_may_not_be_a_source() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("f");
    std::fs::write(&from, "kept").unwrap();
    let traced = options().with(|o| o.trace = Some(from.clone()));
    let to = dir.path().join("t").display().to_string();
    let summary = run_copy(&[&from.display().to_string()], &to, &traced).await;
    assert_eq!(summary.exit, Exit::Usage);
    assert_eq!(std::fs::read(&from).unwrap(), b"kept");
}

#[tokio::test]
async fn the_list_of_failures_may_not_be_in_a_tree_of_the_copy() {
    let dir = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("f"), "kept").unwrap();
    for (source, list) in [
        (from.join("f"), from.join("f")),
        (from.clone(), from.join("f")),
        (from.clone(), from.join("new")),
        (from.clone(), to.join("new")),
    ] {
        let listed = options().with(|o| {
            o.failed_list = Some(list.clone());
            o.tree.recursive = true;
        });
        let (source, to) = (source.display().to_string(), to.display().to_string());
        let summary = run_copy(&[&source], &to, &listed).await;
        assert_eq!(summary.exit, Exit::Usage, "{source} {}", list.display());
        assert!(!std::path::Path::new(&to).exists());
    }
    assert_eq!(std::fs::read(from.join("f")).unwrap(), b"kept");
    assert_eq!(std::fs::read_dir(&from).unwrap().count(), 1);
    // Beside the trees in an existing destination it is in nobody's way.
    std::fs::create_dir(&to).unwrap();
    for (list, exit) in [("left", Exit::Done), ("from", Exit::Usage)] {
        let listed = options().with(|o| {
            o.failed_list = Some(to.join(list));
            o.tree.recursive = true;
        });
        let (source, to) = (from.display().to_string(), to.display().to_string());
        assert_eq!(
            run_copy(&[&source], &to, &listed).await.exit,
            exit,
            "{list}"
        );
    }
    assert_eq!(std::fs::read(to.join("from/f")).unwrap(), b"kept");
    assert_eq!(std::fs::read(to.join("left")).unwrap(), b"");
}

#[tokio::test]
async fn local_copies_are_verified_and_keep_the_modification_time() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("a b");
    let to = dir.path().join("c");
    std::fs::write(&from, vec![7; 3_000_000]).unwrap();
    let file = std::fs::File::options().write(true).open(&from).unwrap();
    let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    file.set_modified(time).unwrap();
    let url = Location::Local(from.clone()).identity_key();
    let summary = run_copy(&[&url], &to.display().to_string(), &options()).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.bytes, 3_000_000);
    assert_eq!(summary.verified, "crc32c");
    assert_eq!(std::fs::read(&to).unwrap(), vec![7; 3_000_000]);
    assert_eq!(std::fs::metadata(&to).unwrap().modified().unwrap(), time);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[tokio::test]
async fn parts_are_copied_and_checked_against_the_size() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("a");
    std::fs::write(&from, b"0123456789").unwrap();
    let to = dir.path().join("b");
    let mut part = options();
    part.file.offset = Some(3);
    part.file.length = Some(4);
    let (a, b) = (from.display().to_string(), to.display().to_string());
    assert_eq!(run_copy(&[&a], &b, &part).await.exit, Exit::Done);
    assert_eq!(std::fs::read(&to).unwrap(), b"3456");
    part.file.length = Some(8);
    let summary = run_copy(&[&a], &b, &part).await;
    assert_eq!(summary.exit, Exit::Usage);
    assert_eq!(std::fs::read(&to).unwrap(), b"3456");
}

#[tokio::test]
async fn a_mix_of_success_and_failure_exits_with_partial() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("a").display().to_string();
    std::fs::write(&from, b"x").unwrap();
    let missing = dir.path().join("missing").display().to_string();
    let to = format!("{}/d/", dir.path().display());
    let summary = run_copy(&[&from, &missing], &to, &options()).await;
    assert_eq!(summary.exit, Exit::Partial);
    assert_eq!((summary.files, summary.failed), (1, 1));
    let summary = run_copy(&[&missing], &to, &options()).await;
    assert_eq!(summary.exit, Exit::NotFound);
}

#[tokio::test]
async fn keep_existing_keeps_remote_entries_of_any_type() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("f");
    std::fs::write(&from, "hello").unwrap();
    let there = "250-x\n type=OS.unix=migrated;size=7; /g\n250 End.";
    let dialogue = [
        login_script_with_feat("211-x\n MLST type*;size*;\n SIZE\n211 End."),
        command_and_reply("MLST /g", there),
        command_and_reply("MLST /g", there),
        command_and_reply("QUIT", "221 bye"),
    ];
    let fake = ScriptedFtpServer::start_session(dialogue.concat()).await;
    let keeping = options().with(|o| o.file.keep_existing = true);
    let server = &fake.server;
    let to = format!("ftp://joe:secret@{}:{}/g", server.host, server.port);
    let summary = run_copy(&[&from.display().to_string()], &to, &keeping).await;
    assert_eq!((summary.exit, summary.kept), (Exit::Done, 1), "{summary:?}");
    fake.finish().await;
}

/// A put of five bytes to `/g` in MODE E, up to its final reply.
fn extended_put(word: &'static str) -> Vec<ScriptedAction> {
    [
        command_and_reply("MODE E", "200 ok"),
        vec![
            ScriptedAction::ExpectPassiveAndReply("PASV"),
            ScriptedAction::ExpectLine("ALLO 5"),
            ScriptedAction::SendLine("200 ok"),
        ],
        vec![
            ScriptedAction::ExpectLine("STOR /g.longhaul-partial"),
            ScriptedAction::SendLine("150 go"),
        ],
        vec![
            ScriptedAction::SendLine("111 Range Marker 0-5"),
            ScriptedAction::AcceptAndHold,
            ScriptedAction::SendLine(word),
        ],
    ]
    .concat()
}

#[tokio::test]
async fn a_refused_upload_is_sent_again_in_spite_of_its_markers() {
    const GRIDFTP: &str = "211-x\n PARALLEL\n SIZE\n REST STREAM\n211 End.";
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("f");
    std::fs::write(&from, "hello").unwrap();
    let lookup = [
        command_and_reply("CWD /g", "550 Failed to change directory."),
        command_and_reply("SIZE /g", "550 Could not get file size."),
    ];
    let finish = [
        command_and_reply("CWD /g.longhaul-partial", "550 Failed to change directory."),
        command_and_reply("SIZE /g.longhaul-partial", "213 5"),
        command_and_reply("RNFR /g.longhaul-partial", "350 to"),
        command_and_reply("RNTO /g", "250 ok"),
    ];
    let first = [
        login_script_with_feat(GRIDFTP),
        lookup.concat(),
        extended_put("451 Local error"),
    ];
    // No REST, and a complete STOR although all bytes were marked.
    let second = [
        login_script_with_feat(GRIDFTP),
        extended_put("226 ok"),
        finish.concat(),
    ];
    let fake = ScriptedFtpServer::start_sessions(vec![first.concat(), second.concat()]).await;
    let mut options = options().with(|o| {
        o.streams.mode = ModeChoice::Extended;
        o.retry.retries = 1;
    });
    options.streams.transfer.stall = Duration::from_secs(60);
    let server = &fake.server;
    let to = format!("ftp://joe:secret@{}:{}/g", server.host, server.port);
    let summary = run_copy(&[&from.display().to_string()], &to, &options).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.verified, "size");
    fake.finish().await;
}

#[tokio::test]
async fn a_command_that_is_longer_than_a_record_of_its_journal_copies_everything() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("f".repeat(240));
    std::fs::create_dir(&from).unwrap();
    let names = ["a", "b"].map(|name| from.join(name).display().to_string());
    for name in &names {
        std::fs::write(name, "1").unwrap();
    }
    // A source that is named again is skipped, but belongs to the command.
    let sources = [vec![&*names[0]; 5_000], vec![&*names[1]]].concat();
    let to = dir.path().join("to");
    let kept = options().with(|o| {
        o.journal = crate::options::BatchJournalLocation::Directory(dir.path().join("journals"));
    });
    let summary = run_copy(&sources, &format!("{}/", to.display()), &kept).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(std::fs::read_dir(&to).unwrap().count(), 2);
}

#[derive(Default)]
struct WalkedPaths(Mutex<Vec<String>>);

impl TreeVisitor for WalkedPaths {
    fn visit(&self, directory: &[u8], name: &[u8], _: TreeEntry) -> Result<(), Failure> {
        let path = String::from_utf8(join_path(directory, name)).unwrap();
        self.0.lock().push(path);
        Ok(())
    }
}

#[tokio::test]
async fn a_session_that_is_lost_while_it_lists_a_whole_tree_is_replaced() {
    let feat = "211-x\n PARALLEL\n MLST type*;size*;unix.slink*;\n MLSR\n211 End.";
    let begin = [
        pipelined_login_script(feat, &[]),
        vec![
            ScriptedAction::ExpectPassiveAndReply("PASV"),
            ScriptedAction::ExpectLine("MLSR /t"),
            ScriptedAction::SendLine("150 go"),
        ],
    ]
    .concat();
    let listing = b"type=dir; d\r\ntype=file;size=1; d/a\r\n".to_vec();
    let whole = [
        &begin[..],
        &[
            ScriptedAction::SendData(listing),
            ScriptedAction::SendLine("226 done"),
        ],
    ]
    .concat();
    // The first connection ends without data and without a reply.
    let peer = ScriptedFtpServer::start_sessions(vec![begin, whole]).await;
    let options = options().with(|o| {
        o.retry.retries = 1;
        o.concurrency = Some(1);
    });
    let ctx = Arc::new(BatchContext::new(options, Arc::new(IgnoringObserver)).unwrap());
    let visited = Arc::new(WalkedPaths::default());
    let top = Location::Remote {
        server: peer.server.clone(),
        path: b"/t".to_vec(),
    };
    let visitor = Arc::clone(&visited) as Arc<dyn TreeVisitor>;
    let walked = plan::walk_tree(&ctx, &top, crate::options::SymlinkPolicy::Skip, visitor).await;
    walked.unwrap();
    assert_eq!(*visited.0.lock(), ["d", "d/a"]);
    drop(ctx);
    peer.finish().await;
}
