//! Links on servers that hide them.

use super::*;

const HIDES: &str = "211-x\n MLST type*;size*;\n211 End";

#[tokio::test]
async fn stat_of_a_link_shows_its_target() {
    let actions = script([
        login_script_with_feat(HIDES),
        command_and_reply(
            "MLST /l",
            "250-is\n type=OS.unix=slink:;size=9; /l\n250 end",
        ),
        command_and_reply("CWD /l", "550 no directory"),
        command_and_reply("SIZE /l", "213 5000"),
        command_and_reply(
            "MLST /gone",
            "250-is\n type=OS.unix=slink:x; /gone\n250 end",
        ),
        command_and_reply("CWD /gone", "550 no directory"),
        command_and_reply("SIZE /gone", "550 No such file or directory"),
    ]);
    let (mut session, peer) = open_session(actions).await;
    let there = session.stat(b"/l").await.unwrap();
    assert_eq!((there.kind, there.size), (EntryKind::File, Some(5000)));
    assert!(there.is_symlink());
    assert_eq!(
        session.stat(b"/gone").await.unwrap().kind,
        EntryKind::SymLink
    );
    peer.finish().await;
}
