//! Lifetime of each parameter: one transfer, one store, or a login.

use super::{code, grant, line, logged_in};
use crate::command::{DataType, TransferMode};
use crate::ranges::RangeSet;
use crate::remark::CompletionRemarks;
use crate::server::session::{ExpectedInput, ServerSession};
use crate::server::{
    CompletedTransfer, DriverEvent, FileError, FileErrorKind, FileResponse, SessionAction,
    StoreDisposition, TransferError, TransferKind, TransferProgress, TransferRequest,
};
use crate::streams::ParallelismRange;

/// Sends lines that wait for no driver event.
fn send(session: &mut ServerSession, lines: &[&str]) {
    for text in lines {
        let actions = session.on_line(&line(text));
        assert!(code(&actions) < 400, "{text}: {actions:?}");
    }
}

const PORT: &str = "PORT 127,0,0,1,156,64";

/// Starts a transfer and returns the request to the driver.
fn start(session: &mut ServerSession, command: &str) -> TransferRequest {
    match session.on_line(&line(command)).pop() {
        Some(SessionAction::Transfer(request)) => *request,
        other => panic!("{command}: {other:?}"),
    }
}

fn finish(session: &mut ServerSession) {
    session.on_driver_event(DriverEvent::Opened {
        reused: false,
        unique_name: None,
    });
    let progress = TransferProgress {
        now: 1.0,
        bytes: 0,
        stripes: Vec::new(),
        stored: RangeSet::new(),
    };
    session.on_driver_event(DriverEvent::Transferred(Ok(CompletedTransfer {
        remarks: CompletionRemarks::default(),
        progress,
    })));
    assert_eq!(session.expected_input(), ExpectedInput::Line);
}

fn fail(session: &mut ServerSession) {
    let error = FileError {
        kind: FileErrorKind::NotFound,
        errno: Some(2),
        text: "No such file or directory".to_owned(),
    };
    session.on_driver_event(DriverEvent::Transferred(Err(TransferError::File(error))));
}

fn have(request: &TransferRequest) -> String {
    match &request.kind {
        TransferKind::Retrieve {
            already_received: have,
            ..
        } => have.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn rest_applies_to_one_transfer_even_if_it_fails() {
    let mut session = logged_in();
    send(&mut session, &["TYPE I", "REST 5", PORT]);
    assert_eq!(have(&start(&mut session, "RETR /f")), "0-5");
    fail(&mut session);
    assert_eq!(have(&start(&mut session, "RETR /f")), "");
    finish(&mut session);
}

#[test]
fn rest_is_consumed_by_a_transfer_that_is_refused() {
    let mut session = logged_in();
    for refused in [
        "RETR /f",
        "STOR /f",
        "APPE /f",
        "STOU",
        "ESTO A 0 /f",
        "LIST",
        "NLST",
        "MLSD",
    ] {
        send(&mut session, &["TYPE I", "REST 5"]);
        assert_eq!(
            code(&session.on_line(&line(refused))) / 100,
            if refused == "STOU" { 5 } else { 4 }
        );
        send(&mut session, &[PORT]);
        assert_eq!(have(&start(&mut session, "RETR /f")), "", "{refused}");
        finish(&mut session);
    }
}

#[test]
fn rest_survives_commands_that_transfer_nothing() {
    let mut session = logged_in();
    send(
        &mut session,
        &["REST 5", "NOOP", "TYPE I", "PWD", "ALLO 3", PORT, "MODE S"],
    );
    session.on_line(&line("SIZE /f"));
    session.on_driver_event(DriverEvent::File(Ok(FileResponse::Done)));
    assert_eq!(have(&start(&mut session, "RETR /f")), "0-5");
}

#[test]
fn store_parameters_survive_retrieves_and_apply_to_one_store() {
    let mut session = logged_in();
    send(
        &mut session,
        &["TYPE I", "ALLO 7", "SCKS ADLER32 00000001", PORT],
    );
    start(&mut session, "RETR /f");
    finish(&mut session);
    for expected in [Some(7), None] {
        send(&mut session, &[PORT]);
        let TransferKind::Store {
            announced_size: allocate,
            expected_checksum: expect,
            ..
        } = start(&mut session, "STOR /f").kind
        else {
            panic!("not a store");
        };
        assert_eq!(allocate, expected);
        assert_eq!(expect.is_some(), expected.is_some());
        finish(&mut session);
    }
}

#[test]
fn type_mode_and_options_last_until_rein() {
    let mut session = logged_in();
    send(
        &mut session,
        &[
            "TYPE I",
            "MODE E",
            "OPTS RETR Parallelism=3;",
            "SBUF 9",
            PORT,
        ],
    );
    for _ in 0..2 {
        let request = start(&mut session, "RETR /f");
        assert_eq!(
            (request.mode, request.type_),
            (TransferMode::Extended, DataType::Image)
        );
        assert_eq!(
            (request.streams, request.buffers.send),
            (ParallelismRange::fixed(3), Some(9))
        );
        finish(&mut session);
    }
    send(&mut session, &["REIN", "USER ann"]);
    session.on_line(&line("PASS x"));
    session.on_driver_event(DriverEvent::Login(Ok(grant())));
    assert_eq!(code(&session.on_line(&line("RETR /f"))), 425);
    send(&mut session, &[PORT]);
    let request = start(&mut session, "RETR /f");
    assert_eq!(
        (request.mode, request.type_),
        (TransferMode::Stream, DataType::Ascii)
    );
    assert_eq!(
        (request.streams, request.buffers.send),
        (ParallelismRange::fixed(1), None)
    );
}

#[test]
fn an_address_serves_one_transfer_in_mode_s_and_many_in_mode_e() {
    let mut session = logged_in();
    send(&mut session, &[PORT]);
    start(&mut session, "RETR /f");
    finish(&mut session);
    assert_eq!(code(&session.on_line(&line("RETR /f"))), 425);
    send(&mut session, &["MODE E", PORT]);
    for _ in 0..3 {
        start(&mut session, "RETR /f");
        finish(&mut session);
    }
}

#[test]
fn rnfr_is_kept_until_rnto() {
    let mut session = logged_in();
    session.on_line(&line("RNFR /a"));
    assert_eq!(
        code(&session.on_driver_event(DriverEvent::File(Ok(FileResponse::Done)))),
        350
    );
    send(&mut session, &["NOOP", "TYPE I"]);
    let actions = session.on_line(&line("RNTO /b"));
    assert!(
        matches!(actions[..], [SessionAction::File(_)]),
        "{actions:?}"
    );
    session.on_driver_event(DriverEvent::File(Ok(FileResponse::Done)));
    assert_eq!(code(&session.on_line(&line("RNTO /c"))), 503);
}

#[test]
fn only_a_store_of_a_whole_image_file_computes_a_checksum() {
    let mut session = logged_in();
    send(&mut session, &["TYPE I", "OPTS STOR Checksum=CRC32;"]);
    for (lines, command, has_checksum) in [
        (&[PORT][..], "STOR /f", true),
        (&[PORT], "STOU", true),
        (&[PORT], "APPE /f", false),
        (&[PORT], "ESTO A 5 /f", false),
        (&[PORT, "REST 5"], "STOR /f", false),
        (&[PORT, "TYPE A"], "STOR /f", false),
    ] {
        send(&mut session, lines);
        let TransferKind::Store {
            checksum_algorithm: checksum,
            disposition,
            ..
        } = start(&mut session, command).kind
        else {
            panic!("not a store");
        };
        assert_eq!(
            checksum.is_some(),
            has_checksum,
            "{command} {disposition:?}"
        );
        assert!(!has_checksum || !matches!(disposition, StoreDisposition::Append));
        finish(&mut session);
    }
}
