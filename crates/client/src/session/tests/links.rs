//! Links on servers that hide them.

use super::*;
use crate::remove::remove_tree;

const HIDES: &str = "211-x\n MLST type*;size*;\n211 End";

/// The top is a directory, and its MLSD shows this.
fn top_with(facts: &str) -> Vec<Act> {
    script([
        login_with(HIDES),
        call("MLST /t", "250-is\n type=dir; /t\n250 end"),
        call("DELE /t", "550 /t: Is a directory"),
        vec![Listen("PASV"), Hear("MLSD /t"), Say("150 go")],
        vec![Give(facts.as_bytes().to_vec()), Say("226 done")],
        call("CWD /t", "250 ok"),
    ])
}

#[tokio::test]
async fn a_link_that_facts_show_as_a_directory_is_removed_and_not_entered() {
    let long = b"lrwxrwxrwx 1 u g 7 Nov 20 08:21 out -> ../keep\r\n".to_vec();
    let acts = script([
        top_with("type=dir; out\r\n"),
        vec![Listen("PASV"), Hear("LIST -a"), Say("150 go")],
        vec![Give(long), Say("226 done")],
        call("DELE /t/out", "250 gone"),
        call("RMD /t", "250 gone"),
    ]);
    let (mut session, fake) = opened(acts).await;
    remove_tree(&mut session, b"/t").await.unwrap();
    fake.finish().await;
}

#[tokio::test]
async fn what_may_be_a_link_elsewhere_is_not_entered_and_nothing_is_deleted() {
    let acts = script([
        top_with("type=file;size=1; f\r\ntype=dir; d\r\n"),
        vec![Listen("PASV"), Hear("LIST -a"), Say("502 no")],
        vec![Listen("PASV"), Hear("LIST\r"), Say("502 no")],
        vec![Listen("PASV"), Hear("NLST\r"), Say("502 no")],
        call("DELE /t/d", "550 Delete operation failed."),
        vec![Act::HearEnd],
    ]);
    let (mut session, fake) = opened(acts).await;
    let failure = remove_tree(&mut session, b"/t").await.unwrap_err();
    assert_eq!(failure.exit, Exit::Refused);
    assert!(
        failure.message.contains("/t/d") && failure.message.contains("nothing in it was deleted"),
        "{failure}"
    );
    drop(session);
    fake.finish().await;
}

#[tokio::test]
async fn a_link_that_is_named_is_looked_at_where_it_leads() {
    let acts = script([
        login_with(HIDES),
        call(
            "MLST /l",
            "250-is\n type=OS.unix=slink:;size=9; /l\n250 end",
        ),
        call("CWD /l", "550 no directory"),
        call("SIZE /l", "213 5000"),
        call(
            "MLST /gone",
            "250-is\n type=OS.unix=slink:x; /gone\n250 end",
        ),
        call("CWD /gone", "550 no directory"),
        call("SIZE /gone", "550 No such file or directory"),
    ]);
    let (mut session, fake) = opened(acts).await;
    let there = session.stat(b"/l").await.unwrap();
    assert_eq!((there.kind, there.size), (Kind::File, Some(5000)));
    assert!(there.is_link());
    assert_eq!(session.stat(b"/gone").await.unwrap().kind, Kind::SymLink);
    fake.finish().await;
}
