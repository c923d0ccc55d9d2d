//! Facts of paths, and how paths are named.

use super::*;

#[tokio::test]
async fn stat_works_without_mlst() {
    let actions = script([
        login_script(),
        command_and_reply("CWD /d/f", "550 Failed to change directory."),
        command_and_reply("SIZE /d/f", "213 42"),
        command_and_reply("MDTM /d/f", "213 20240102030405"),
        command_and_reply("CWD /d", "250 ok"),
        command_and_reply("MDTM /d", "550 not a plain file"),
        command_and_reply("CWD /none", "550 Failed to change directory."),
        command_and_reply("SIZE /none", "550 Could not get file size."),
    ]);
    let (mut session, peer) = open_session(actions).await;
    let file = session.stat(b"/d/f").await.unwrap();
    assert_eq!((file.name.as_slice(), file.size), (&b"f"[..], Some(42)));
    assert!(file.modified.is_some());
    assert_eq!(session.stat(b"/d").await.unwrap().kind, EntryKind::Dir);
    assert_eq!(
        session.stat(b"/none").await.unwrap_err().kind(),
        FailureKind::NotFound
    );
    peer.finish().await;
}

#[tokio::test]
async fn a_missing_path_is_told_by_its_words_and_else_asked_about_once_more() {
    let with_mlst = || login_script_with_feat("211-x\n MLST type*;size*;\n SIZE\n211 End");
    for (mlst, more) in [
        ("550 /x: No such file or directory", vec![]),
        (
            "550 MLST",
            script([
                command_and_reply("CWD /x", "550 no"),
                command_and_reply("SIZE /x", "550 /x does not exist"),
            ]),
        ),
    ] {
        let actions = script([with_mlst(), command_and_reply("MLST /x", mlst), more]);
        let (mut session, peer) = open_session(actions).await;
        let failure = session.stat(b"/x").await.unwrap_err();
        assert_eq!(failure.kind(), FailureKind::NotFound);
        assert!(failure.to_string().contains("has no /x"), "{failure}");
        peer.finish().await;
    }
}

/// A session that lists the directory `/` by LIST with these lines.
fn listing_of_root(lines: &str) -> Vec<ScriptedAction> {
    script([
        command_and_reply("CWD /\r\n", "250 ok"),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("LIST -a"),
            SendLine("150 go"),
            SendData(format!("drwxr-xr-x 2 u g 0 Jan 05 2024 .\r\n{lines}").into_bytes()),
            SendLine("226 done"),
        ],
    ])
}

#[tokio::test]
async fn an_unknown_command_is_no_missing_file_whatever_its_words() {
    let actions = script([
        login_script(),
        command_and_reply("CWD /f", "550 no"),
        command_and_reply("SIZE /f", "500 SIZE: command not found"),
        command_and_reply("MDTM /f", "500 MDTM: command not found"),
        listing_of_root("-rw-r--r-- 1 u g 42 Jan 05 2024 f\r\n"),
    ]);
    let (mut session, peer) = open_session(actions).await;
    let file = session.stat(b"/f").await.unwrap();
    assert_eq!((file.kind, file.size), (EntryKind::File, Some(42)));
    peer.finish().await;
}

#[tokio::test]
async fn a_path_that_no_answer_tells_of_is_unknown_and_read_all_the_same() {
    for refusal in ["500 what?", "550 No.", "550 Permission denied."] {
        let asked = || {
            let mut asked = script([
                command_and_reply("CWD /d/f", "550 No."),
                command_and_reply("SIZE /d/f", refusal),
            ]);
            if refusal.contains("Permission") {
                return asked;
            }
            asked.extend(command_and_reply("CWD /d\r\n", "250 ok"));
            for verb in ["LIST -a", "LIST\r\n", "NLST"] {
                asked.push(ExpectPassiveAndReply("PASV"));
                asked.extend(command_and_reply(verb, "502 no"));
            }
            asked
        };
        let feat = "211-x\n SIZE\n211 End";
        let mut actions = script([login_script_with_feat(feat), asked()]);
        if refusal.contains("Permission") {
            actions.extend(command_and_reply("CWD /d\r\n", "550 No."));
        }
        actions.extend(asked());
        let (mut session, peer) = open_session(actions).await;
        let unknown = session.stat(b"/d/f").await.unwrap_err();
        assert_ne!(unknown.kind(), FailureKind::NotFound, "{refusal}");
        let file = session.stat_to_read(b"/d/f").await.unwrap();
        assert_eq!((file.kind, file.size), (EntryKind::File, None));
        peer.finish().await;
    }
}

#[tokio::test]
async fn what_is_not_a_plain_file_need_not_be_a_directory() {
    let actions = script([
        login_script_with_feat("211-x\n SIZE\n211 End"),
        command_and_reply("CWD /pipe", "550 no"),
        command_and_reply("SIZE /pipe", "550 /pipe: not a plain file"),
        listing_of_root("prw-r--r-- 1 u g 0 Jan 05 2024 pipe\r\n"),
    ]);
    let (mut session, peer) = open_session(actions).await;
    let found = session.stat(b"/pipe").await.unwrap();
    assert_eq!(found.kind, EntryKind::Other);
    peer.finish().await;
}

#[tokio::test]
async fn consent_to_cwd_proves_no_directory_where_every_path_gets_it() {
    let actions = script([
        login_script_with_feat("211-x\n SIZE\n211 End"),
        command_and_reply("CWD /f", "250 ok"),
        command_and_reply("CWD /f/.longhaul-no-such-name", "250 ok"),
        listing_of_root("drwxr-xr-x 2 u g 0 Jan 05 2024 d\r\n"),
        command_and_reply("SIZE /f", "550 No such file"),
        // The server is known by now.
        command_and_reply("CWD /d", "250 ok"),
        listing_of_root("drwxr-xr-x 2 u g 0 Jan 05 2024 d\r\n"),
    ]);
    let (mut session, peer) = open_session(actions).await;
    let missing = session.stat(b"/f").await.unwrap_err();
    assert_eq!(missing.kind(), FailureKind::NotFound);
    assert_eq!(session.stat(b"/d").await.unwrap().kind, EntryKind::Dir);
    peer.finish().await;
}

#[tokio::test]
async fn a_server_that_refuses_full_paths_gets_names() {
    let actions = script([
        login_script_with_feat("211-x\n SIZE\n211 End"),
        command_and_reply("CWD /a/f", "550 no"),
        command_and_reply("SIZE /a/f", "550 Permission denied."),
        command_and_reply("CWD /a\r\n", "250 ok"),
        command_and_reply("SIZE f", "213 42"),
        // The directory is entered once.
        command_and_reply("DELE f", "250 gone"),
        command_and_reply("RNFR g", "350 go on"),
        command_and_reply("RNTO h", "250 renamed"),
    ]);
    let (mut session, peer) = open_session(actions).await;
    assert_eq!(session.stat(b"/a/f").await.unwrap().size, Some(42));
    session.delete(b"/a/f").await.unwrap();
    session.rename(b"/a/g", b"/a/h").await.unwrap();
    assert!(session.habits().names_only);
    peer.finish().await;
}

#[tokio::test]
async fn a_user_without_permission_is_told_so_and_paths_stay_as_they_are() {
    let actions = script([
        login_script(),
        command_and_reply("DELE /a/f", "550 Permission denied."),
        command_and_reply("CWD /a\r\n", "250 ok"),
        command_and_reply("CWD /a/.longhaul-no-such-name", "550 no"),
        command_and_reply("DELE f", "550 Permission denied."),
        command_and_reply("DELE /a/g", "550 Permission denied."),
    ]);
    let (mut session, peer) = open_session(actions).await;
    for path in [b"/a/f", b"/a/g"] {
        let refused = session.delete(path).await.unwrap_err();
        assert_eq!(refused.kind(), FailureKind::Refused);
    }
    assert!(!session.habits().names_only);
    peer.finish().await;
}

#[tokio::test]
async fn no_name_alone_is_deleted_where_consent_to_cwd_means_nothing() {
    let actions = script([
        login_script(),
        command_and_reply("DELE /a/f", "550 Permission denied."),
        command_and_reply("CWD /a\r\n", "250 ok"),
        command_and_reply("CWD /a/.longhaul-no-such-name", "250 ok"),
        vec![ScriptedAction::ExpectEof],
    ]);
    let (mut session, peer) = open_session(actions).await;
    let refused = session.delete(b"/a/f").await.unwrap_err();
    assert_eq!(refused.kind(), FailureKind::Refused);
    drop(session);
    peer.finish().await;
}
