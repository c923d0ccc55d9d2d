use super::*;
use crate::FailureKind::{
    DestinationBusy, NameTooLong, NotFound, Protocol, Refused, ServerDiskFull, Unreachable, Usage,
};

fn reply(code: u16, lines: &[&str]) -> Reply {
    Reply {
        code,
        lines: lines.iter().map(|l| l.as_bytes().to_vec()).collect(),
    }
}

#[test]
fn a_reply_stands_inside_a_sentence() {
    let shown = |text| crate::failure::display_reply(&reply(530, &[text]));
    assert_eq!(shown("Send AUTH TLS first. "), "530 Send AUTH TLS first");
    assert_eq!(shown("Wait ..."), "530 Wait ...");
    assert_eq!(shown("No"), "530 No");
}

#[test]
fn refusal_texts_of_real_servers_have_exit_classes() {
    let table: &[(u16, &[&str], FailureKind, bool)] = &[
        (550, &["Failed to open file."], NotFound, false),
        (550, &["/x: No such file or directory"], NotFound, false),
        (
            550,
            &["GlobusError: v=1 c=PATH_NOT_FOUND", "End."],
            NotFound,
            false,
        ),
        (
            500,
            &[
                "Command failed. : x",
                "globus_xio: System error in open: Permission denied",
            ],
            Refused,
            false,
        ),
        (550, &["Permission denied."], Refused, false),
        (530, &["Please login with USER and PASS."], Refused, false),
        (552, &["Exceeded storage allocation"], ServerDiskFull, false),
        (452, &["Transfer failed."], ServerDiskFull, false),
        (451, &["No space left on device"], ServerDiskFull, false),
        (
            500,
            &[
                "Command failed. : x",
                "globus_xio: System error in write: Disk quota exceeded",
            ],
            ServerDiskFull,
            false,
        ),
        (450, &["file busy"], Unreachable, true),
        (421, &["Idle Timeout"], Unreachable, true),
        (425, &["Can't open data connection."], Unreachable, true),
        (426, &["Failure writing network stream."], Unreachable, true),
        (
            500,
            &[
                "Command failed. : x",
                "globus_xio: Unable to connect to 1.2.3.4:5",
            ],
            Unreachable,
            true,
        ),
        (500, &["Unknown command."], Protocol, false),
        (550, &["/d: File exists"], Protocol, false),
        (521, &["Directory exists"], Protocol, false),
        (
            522,
            &["Data connections must be encrypted."],
            Refused,
            false,
        ),
        (
            521,
            &["Data connection cannot be opened with this PROT setting"],
            Refused,
            false,
        ),
        (550, &["/d: Is a directory"], Usage, false),
        (550, &["/d: Not a regular file"], Usage, false),
        (553, &["File name too long"], NameTooLong, false),
        (451, &["Directory not empty"], Protocol, false),
    ];
    for (code, lines, kind, may_retry) in table {
        let failure = refusal_failure("h:21", &Operation::on("read", "/x"), &reply(*code, lines));
        assert_eq!(
            (failure.kind(), failure.may_retry()),
            (*kind, *may_retry),
            "{code} {lines:?}"
        );
        assert!(failure.to_string().contains("h:21") && failure.to_string().contains("/x"));
    }
}

#[test]
fn a_concurrent_upload_is_reported_as_occupied() {
    let refused =
        |code, text| refusal_failure("h:21", &Operation::on("write", "/x"), &reply(code, &[text]));
    let taken = "/x: another upload took this file over.";
    for (code, text) in [
        (450, "/x: another upload is writing this file"),
        (426, taken),
    ] {
        let failure = refused(code, text);
        assert_eq!(failure.kind(), DestinationBusy, "{text}");
    }
    assert!(refused(450, "/x: file busy").kind() != DestinationBusy);
    assert!(refused(226, "another upload").kind() != DestinationBusy);
}

#[test]
fn another_login_is_advised_only_where_it_may_help() {
    let advice = |text| {
        let failure = refusal_failure("h:21", &Operation::on("write", "/x"), &reply(550, &[text]));
        assert_eq!(failure.kind(), Refused, "{text}");
        failure.to_string().contains("log in as a user who may")
    };
    assert!(advice("/x: Permission denied"));
    for text in [
        "cannot open /x: Permission denied; the account that the server runs as may not do this, which its \
         administrator can change",
        "cannot open /x: Read-only file system; the server has this file system mounted read-only, which its \
         administrator can change",
    ] {
        assert!(!advice(text), "{text}");
    }
}

#[test]
fn a_limit_of_sessions_is_told_by_code_or_words() {
    for (code, text) in [
        (421, "Service not available"),
        (530, "Sorry, the maximum number of clients is connected"),
        (530, "You are already logged in"),
    ] {
        assert!(names_session_limit(&reply(code, &[text])), "{text}");
    }
    assert!(!names_session_limit(&reply(530, &["Login incorrect."])));
}

#[test]
fn only_unknown_commands_count_as_unsupported() {
    assert!(is_unsupported(&reply(500, &["Unknown command."])));
    assert!(is_unsupported(&reply(502, &["Command not implemented."])));
    assert!(!is_unsupported(&reply(550, &["Permission denied."])));
    let globus = ["Command failed. : x", "No such file or directory"];
    assert!(!is_unsupported(&reply(500, &globus)));
}

#[test]
fn words_beside_the_code_of_an_unknown_command_say_nothing_about_the_file() {
    for (code, text) in [
        (500, "SIZE: command not found"),
        (500, "x: No such file or directory"),
        (502, "SIZE not found"),
        (504, "Permission denied"),
    ] {
        assert!(is_unsupported(&reply(code, &[text])), "{code} {text}");
    }
}

#[test]
fn a_name_that_is_too_long_is_a_reason() {
    for code in [550, 553] {
        assert!(!gives_no_reason(&reply(code, &["/x: File name too long"])));
        assert!(gives_no_reason(&reply(code, &["Could not create file."])));
    }
}

#[test]
fn only_verbs_that_take_trees_are_told_to() {
    let refused = reply(550, &["/d: Is a directory"]);
    let text = |verb: &'static str| {
        let failure = refusal_failure("h:21", &Operation::on(verb, "/d"), &refused);
        assert_eq!(failure.kind(), Usage, "{verb}");
        failure.to_string()
    };
    assert!(text("read").ends_with("use -r"));
    assert!(text("remove").ends_with("use -r"));
    assert_eq!(
        text("rename"),
        "h:21 refused to rename /d: 550 /d: Is a directory"
    );
    assert!(!text("compute SHA256 of").contains("-r"));
}

#[test]
fn only_an_explicit_text_means_directory() {
    let cause = |text| refusal_cause(&reply(550, &[text]));
    assert_eq!(cause("/d: Is a directory"), RefusalCause::Directory);
    // A device, say.
    assert_eq!(cause("/d: not a plain file"), RefusalCause::NoFile);
    assert_eq!(cause("Delete operation failed."), RefusalCause::Other);
    assert_eq!(cause("No such file or directory"), RefusalCause::Missing);
}
