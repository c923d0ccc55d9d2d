//! Removals at servers that hide links.

use std::time::Duration;

use ScriptedAction::{ExpectLine, ExpectPassiveAndReply, SendData, SendLine};
use ftp::session::scripted_server::{
    ScriptedAction, ScriptedFtpServer, command_and_reply, login_script_with_feat, script,
};

use super::*;
use crate::verbs::RemoteEntry;
use crate::verbs::removal_preview::preview_removal;

async fn open_session(actions: Vec<ScriptedAction>) -> (ClientSession, ScriptedFtpServer) {
    let peer = ScriptedFtpServer::start_session(actions).await;
    let session = ClientSession::open(&peer.server, Duration::from_secs(60)).await;
    (session.unwrap(), peer)
}

const HIDES: &str = "211-x\n MLST type*;size*;\n211 End";

/// Login and a directory `/t` whose MLSD has this text.
fn script_with_listing(facts: &str) -> Vec<ScriptedAction> {
    script([
        login_script_with_feat(HIDES),
        command_and_reply("MLST /t", "250-is\n type=dir; /t\n250 end"),
        command_and_reply("DELE /t", "550 /t: Is a directory"),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("MLSD /t"),
            SendLine("150 go"),
        ],
        vec![SendData(facts.as_bytes().to_vec()), SendLine("226 done")],
        command_and_reply("CWD /t", "250 ok"),
    ])
}

#[tokio::test]
async fn a_link_shown_as_a_directory_is_removed_and_not_entered() {
    let long = b"drwxr-xr-x 2 u g 7 Nov 20 08:21 .\r\n\
        lrwxrwxrwx 1 u g 7 Nov 20 08:21 out -> ../keep\r\n"
        .to_vec();
    let actions = script([
        script_with_listing("type=dir; out\r\n"),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("LIST -a"),
            SendLine("150 go"),
        ],
        vec![SendData(long), SendLine("226 done")],
        command_and_reply("DELE /t/out", "250 gone"),
        command_and_reply("RMD /t", "250 gone"),
    ]);
    let (mut session, peer) = open_session(actions).await;
    remove_tree(&mut session, b"/t").await.unwrap();
    peer.finish().await;
}

#[tokio::test]
async fn the_preview_of_a_removal_sends_only_listings_and_enters_no_link() {
    let long = |text: &str| text.as_bytes().to_vec();
    let all = |text: &str| format!("drwxr-xr-x 2 u g 7 Nov 20 08:21 .\r\n{text}").into_bytes();
    let listing = |command, data| {
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine(command),
            SendLine("150 go"),
            SendData(data),
            SendLine("226 done"),
        ]
    };
    let actions = script([
        login_script_with_feat(HIDES),
        command_and_reply("MLST /t", "250-is\n type=dir; /t\n250 end"),
        listing("MLSD /", long("type=dir; t\r\n")),
        command_and_reply("CWD /", "250 ok"),
        listing("LIST -a", all("drwxr-xr-x 2 u g 7 Nov 20 08:21 t\r\n")),
        listing("MLSD /t", long("type=dir; out\r\ntype=file;size=1; f\r\n")),
        command_and_reply("CWD /t", "250 ok"),
        listing(
            "LIST -a",
            all(
                "lrwxrwxrwx 1 u g 7 Nov 20 08:21 out -> ../keep\r\n-rw-r--r-- 1 u g 1 Nov 20 08:21 f\r\n",
            ),
        ),
    ]);
    let (mut session, peer) = open_session(actions).await;
    let mut paths = Vec::new();
    let mut visit = |entry: RemoteEntry| {
        paths.push(String::from_utf8(entry.name).unwrap());
        std::ops::ControlFlow::Continue(())
    };
    let previewed = preview_removal(&mut session, b"/t", true, &mut visit).await;
    previewed.unwrap();
    assert_eq!(paths, ["/t", "/t/f", "/t/out"]);
    peer.finish().await;
}

#[tokio::test]
async fn an_ambiguous_directory_is_not_entered_and_nothing_is_deleted() {
    let actions = script([
        script_with_listing("type=file;size=1; f\r\ntype=dir; d\r\n"),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("LIST -a"),
            SendLine("502 no"),
        ],
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("LIST\r"),
            SendLine("502 no"),
        ],
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("NLST\r"),
            SendLine("502 no"),
        ],
        command_and_reply("MLST /t/d", "250-is\n type=dir; /t/d\n250 end"),
        command_and_reply("DELE /t/d", "550 Delete operation failed."),
        vec![ScriptedAction::ExpectEof],
    ]);
    let (mut session, peer) = open_session(actions).await;
    let failure = remove_tree(&mut session, b"/t").await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Refused);
    assert!(
        failure.to_string().contains("/t/d")
            && failure.to_string().contains("nothing in it was deleted"),
        "{failure}"
    );
    drop(session);
    peer.finish().await;
}

#[tokio::test]
async fn a_directory_of_a_listing_is_entered_only_if_mlst_calls_it_one_too() {
    let facts = "211-x\n MLST type*;unix.slink*;\n211 End";
    let mlst = |line, text| command_and_reply(line, text);
    let actions = script([
        login_script_with_feat(facts),
        mlst("MLST /t", "250-is\n type=dir; /t\n250 end"),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("MLSD /t"),
            SendLine("150 go"),
            SendData(b"type=dir; link\r\ntype=dir; file\r\n".to_vec()),
            SendLine("226 done"),
        ],
        mlst(
            "MLST /t/link",
            "250-is\n type=OS.unix=slink:/keep; /t/link\n250 end",
        ),
        mlst(
            "MLST /t/file",
            "250-is\n type=file;size=1; /t/file\n250 end",
        ),
        command_and_reply("DELE /t/link", "250 gone"),
        command_and_reply("DELE /t/file", "250 gone"),
        command_and_reply("RMD /t", "250 gone"),
    ]);
    let (mut session, peer) = open_session(actions).await;
    remove_tree(&mut session, b"/t").await.unwrap();
    peer.finish().await;
}
