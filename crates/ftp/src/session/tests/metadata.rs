//! Times and permissions on servers that cannot keep all of them.

use proto::timestamp::Timestamp;

use super::*;
use crate::answers::{KeptMetadata, MetadataChange};

#[tokio::test]
async fn a_server_is_not_asked_again_for_what_it_does_not_know() {
    let actions = script([
        login_script_with_feat("211-x\n MFMT\n211 End"),
        command_and_reply("MFMT 20010909014640 /a", "213 Modify=20010909014640; /a"),
        command_and_reply("SITE CHMOD 0640 /a", "500 unknown command"),
        command_and_reply("MFMT 20010909014640 /b", "550 /b: Operation not permitted"),
        command_and_reply("MFMT 20010909014640 /c", "213 Modify=20010909014640; /c"),
    ]);
    let (mut session, peer) = open_session(actions).await;
    let modified = Some(Timestamp(1_000_000_000));
    let change = |path, mode| MetadataChange {
        path,
        kept: KeptMetadata { modified, mode },
    };
    let changes = [
        change(b"/a", Some(0o640)),
        change(b"/b", Some(0o640)),
        change(b"/c", None),
    ];
    let made = session.set_metadata(&changes).await.unwrap();
    assert_eq!(made, [false, false, true]);
    peer.finish().await;
}
