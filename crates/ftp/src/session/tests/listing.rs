//! Listings on servers with and without MLSD.

use super::*;

#[tokio::test]
async fn list_shows_names_that_begin_with_a_dot() {
    let text = b"total 8\r\n\
        drwxr-xr-x    2 0 0  4096 Nov 20 08:21 .\r\n\
        drwxr-xr-x    2 0 0  4096 Nov 20 08:21 ..\r\n\
        -rw-r--r--    1 0 0     7 Nov 20 08:21 .hidden\r\n\
        -rw-r--r--    1 0 0    42 Nov 20 08:21 a b\r\n";
    let actions = script([
        login_script(),
        command_and_reply("CWD /d", "250 ok"),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("LIST -a"),
            SendLine("150 go"),
        ],
        vec![SendData(text.to_vec()), SendLine("226 done")],
    ]);
    let (mut session, peer) = open_session(actions).await;
    let names: Vec<_> = session
        .list(b"/d")
        .await
        .unwrap()
        .into_iter()
        .map(|e| (e.name, e.size))
        .collect();
    assert_eq!(
        names,
        [(b".hidden".to_vec(), Some(7)), (b"a b".to_vec(), Some(42))]
    );
    peer.finish().await;
}

#[tokio::test]
async fn nlst_is_used_when_list_is_unsupported() {
    let actions = script([
        login_script(),
        command_and_reply("CWD /d", "250 ok"),
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
            SendLine("150 go"),
        ],
        vec![SendData(b"f\r\n/d/g\r\n".to_vec()), SendLine("226 done")],
        command_and_reply("CWD /d/f", "550 no"),
        command_and_reply("SIZE /d/f", "213 1"),
        command_and_reply("MDTM /d/f", "502 no"),
        // It is not asked for again.
        command_and_reply("CWD /d/g", "250 ok"),
    ]);
    let (mut session, peer) = open_session(actions).await;
    let entries = session.list(b"/d").await.unwrap();
    let kinds: Vec<_> = entries
        .iter()
        .map(|e| (e.name.as_slice(), e.kind))
        .collect();
    assert_eq!(
        kinds,
        [(&b"f"[..], EntryKind::File), (b"g", EntryKind::Dir)]
    );
    peer.finish().await;
}

#[tokio::test]
async fn a_directory_that_a_login_may_not_list_in_full_is_not_known_to_be_complete() {
    let actions = script([
        login_script_with_feat("211-x\n MLST type*;perm*;\n211 End"),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("MLSD /d"),
            SendLine("150 go"),
            SendData(b"type=cdir;perm=e; .\r\ntype=dir;perm=el; sub\r\n".to_vec()),
            SendLine("226 done"),
        ],
    ]);
    let (mut session, peer) = open_session(actions).await;
    let reason = session.list(b"/d").await.unwrap_err();
    assert!(
        reason.to_string().contains("may not see everything"),
        "{reason}"
    );
    peer.finish().await;
}

#[tokio::test]
async fn epsv_follows_a_refused_pasv() {
    let actions = script([
        login_script_with_feat("211-x\n MLST type*;size*;\n211 End"),
        command_and_reply("PASV", "500 no PASV here"),
        vec![
            ExpectPassiveAndReply("EPSV"),
            ExpectLine("MLSD /d"),
            SendLine("150 go"),
        ],
        vec![SendData(
            b"type=cdir; .\r\nType=file;Size=3; x;y z\r\n".to_vec(),
        )],
        vec![
            SendLine("226 done"),
            ExpectPassiveAndReply("EPSV"),
            ExpectLine("MLSD /e"),
        ],
        vec![SendLine("550 /e: No such file or directory")],
        command_and_reply("CWD /e", "550 no"),
    ]);
    let (mut session, peer) = open_session(actions).await;
    let entries = session.list(b"/d").await.unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].name, b"x;y z");
    let failure = session.list(b"/e").await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::NotFound);
    peer.finish().await;
}
