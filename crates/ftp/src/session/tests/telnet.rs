//! The byte 255, which some servers take for the beginning of a Telnet sequence.

use super::*;
use crate::session::scripted_server::toolkit_login_script;

#[tokio::test]
async fn a_name_with_0xff_is_refused_for_globus_before_anything_is_sent() {
    let mut actions = toolkit_login_script("500 what?", &[]);
    actions.extend(command_and_reply("DELE /ok", "250 gone"));
    let (mut session, peer) = open_session(actions).await;
    let dir = session.make_dir(b"/a\xffb").await.map(drop);
    let missing = session.delete(b"/a\xff").await;
    let facts = session.stat(b"/\xff\xff/b").await.map(drop);
    let named = session.rename(b"/a", b"/a\xff").await;
    for refused in [dir, missing, facts, named] {
        let failure = refused.unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Usage);
        assert!(!failure.may_retry());
        assert!(failure.to_string().contains("the byte 0xFF"), "{failure}");
        assert_eq!(failure.to_string().lines().count(), 1);
    }
    session.delete(b"/ok").await.unwrap();
    peer.finish().await;
}
