//! For any input, every line has exactly one final reply, and the session waits for at most one driver
//! event.

use std::net::SocketAddr;

use proptest::prelude::*;

use super::security_invariants::{self, SECURITY_LINES, security_event};
use super::{config, grant};
use crate::command::{Command, OptsCommand};
use crate::drs::{DrsAddress, Nonce};
use crate::line::LineEvent;
use crate::path::VPath;
use crate::ranges::RangeSet;
use crate::remark::{CompletionRemarks, LimiterReport};
use crate::server::session::{ExpectedInput, ServerSession};
use crate::server::{
    CompletedTransfer, DriverEvent, FileError, FileErrorKind, FileRequest, FileResponse,
    LoginFailure, SessionAction, TransferError, TransferProgress,
};
use crate::sizing::BufferSizing;
use crate::stripes::StripeAddresses;

/// A request that the driver has not answered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PendingRequest {
    Nothing,
    Login,
    File,
    Checksum,
    Listen,
    ListenDrs,
    DataCredential,
    Security,
    Transfer,
}

/// One input, from the client or the driver; the pending request decides which.
#[derive(Debug, Clone)]
struct InputStep {
    line: Vec<u8>,
    /// Selects among the events that fit the pending request.
    choice: u8,
    ok: bool,
}

const LINES: &[&str] = &[
    "USER ann",
    "PASS x",
    "ACCT a",
    "REIN",
    "QUIT",
    "NOOP",
    "FEAT",
    "HELP",
    "HELP RETR",
    "SYST",
    "STAT",
    "STAT /f",
    "OPTS UTF8 ON",
    "OPTS MLST type;",
    "OPTS RETR Parallelism=4;",
    "OPTS RETR Markers=1;",
    "OPTS PASV AllowDelayed=1;",
    "OPTS PASV AllowDelayed=0;",
    "OPTS CKSM Markers=1;",
    "OPTS STOR Checksum=MD5;",
    "OPTS DRS auto",
    "OPTS DRS drs1",
    "OPTS DRS drs1",
    "OPTS DRS drs",
    "OPTS DRS x",
    "DPSV",
    "DPRT |1|127.0.0.1|4000|000102030405060708090a0b0c0d0e0f|",
    "DPRT |1|10.0.0.1|4000|000102030405060708090a0b0c0d0e0f|",
    "LANG",
    "CLNT x",
    "AUTH TLS",
    "ADAT dG9rZW4=",
    "MIC dG9rZW4=",
    "CCC",
    "TYPE I",
    "TYPE A",
    "MODE E",
    "MODE S",
    "STRU F",
    "ALLO 5",
    "SBUF 5",
    "DCAU N",
    "DCAU A",
    "PBSZ 0",
    "PROT C",
    "PROT P",
    "ABOR",
    "PASV",
    "EPSV",
    "EPSV ALL",
    "EPSV 2",
    "SPAS",
    "SPAS 1",
    "PORT 127,0,0,1,200,1",
    "PORT 10,0,0,1,200,1",
    "EPRT |1|127.0.0.1|4000|",
    "SPOR 127,0,0,1,200,1 127,0,0,1,200,2",
    "RETR f",
    "STOR f",
    "APPE f",
    "STOU",
    "STOU f",
    "ERET P 1 2 f",
    "ESTO A 3 f",
    "REST 5",
    "REST 0",
    "REST 0-3,5-9",
    "SIZE f",
    "MDTM f",
    "MFMT 20200101000000 f",
    "CWD d",
    "CDUP",
    "PWD",
    "MKD d",
    "RMD d",
    "DELE f",
    "RNFR f",
    "RNTO g",
    "LIST",
    "LIST -la *.c",
    "NLST",
    "MLST",
    "MLSD",
    "MLSC",
    "MLSR",
    "CKSM MD5 0 -1 f",
    "SCKS MD5 b1946ac92492d2347c6235b4d2611184",
    "TREV PERF 1",
    "SITE HELP",
    "SITE CHMOD 644 f",
    "SITE CHGRP g f",
    "SITE UTIME 20200101000000 f",
    "SITE SYMLINK a b",
    "SITE SYMLINKFROM a",
    "SITE SYMLINKTO b",
    "SITE RDEL d",
    "SITE TRNC 5 f",
    "SITE CLIENTINFO a=b;",
    "SITE TASKID x",
    "SITE WHOAMI",
    "SITE VERSION",
    "SITE STORATTR modify=20200101000000;",
    "SITE IDLE 5",
    "SITE UMASK 022",
    "SITE SBUF 7",
    "SITE NOSUCH",
    "NOSUCH",
    "",
];

fn input_steps() -> impl Strategy<Value = Vec<InputStep>> {
    let known_line = (0..LINES.len()).prop_map(|n| LINES[n].as_bytes().to_vec());
    let security_line =
        (0..SECURITY_LINES.len()).prop_map(|n| SECURITY_LINES[n].as_bytes().to_vec());
    let corrupted_line =
        (0..LINES.len(), prop::collection::vec(any::<u8>(), 0..12)).prop_map(|(n, tail)| {
            let verb = LINES[n].split(' ').next().unwrap_or_default();
            [verb.as_bytes(), b" ", &tail].concat()
        });
    let random_line = prop::collection::vec(any::<u8>(), 0..40);
    let line =
        prop_oneof![8 => known_line, 4 => security_line, 2 => corrupted_line, 1 => random_line];
    let step = (line, any::<u8>(), any::<bool>()).prop_map(|(line, choice, ok)| InputStep {
        line,
        choice,
        ok,
    });
    prop::collection::vec(step, 0..120)
}

fn file_error(choice: u8) -> FileError {
    let kinds = [
        FileErrorKind::NotFound,
        FileErrorKind::Denied,
        FileErrorKind::NoSpace,
        FileErrorKind::Unavailable,
        FileErrorKind::Unsupported,
        FileErrorKind::Busy,
        FileErrorKind::InUse,
        FileErrorKind::Aborted,
        FileErrorKind::Other,
    ];
    FileError::new(kinds[usize::from(choice) % kinds.len()], "operation failed")
}

fn progress(choice: u8) -> TransferProgress {
    let mut stored = RangeSet::new();
    stored.insert(0, u64::from(choice));
    TransferProgress {
        now: f64::from(choice),
        bytes: u64::from(choice),
        stripes: vec![0; usize::from(choice % 4)],
        stored,
    }
}

fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 40_000))
}

fn drs_address() -> DrsAddress {
    DrsAddress {
        socket: address(),
        nonce: Nonce::new([7; 16]),
    }
}

fn file_response(choice: u8) -> FileResponse {
    match choice % 3 {
        0 => FileResponse::Done,
        1 => FileResponse::Lines(vec![b"226 not the end".to_vec()]),
        _ => FileResponse::Checksum("00".to_owned()),
    }
}

fn transfer_end(choice: u8, ok: bool) -> DriverEvent {
    DriverEvent::Transferred(match choice % 5 {
        _ if ok => Ok(CompletedTransfer {
            remarks: CompletionRemarks {
                listing_bytes: None,
                limiter: LimiterReport::new("send buffer", u32::from(choice), "cubic"),
                remark: Some("226 a\r\nremark".to_owned()),
            },
            progress: progress(choice),
        }),
        0 => Err(TransferError::File(file_error(choice))),
        1 => Err(TransferError::NoConnection("no connection".to_owned())),
        2 => Err(TransferError::Broken("reset".to_owned())),
        3 => Err(TransferError::Superseded),
        _ => Err(TransferError::Aborted),
    })
}

/// A session whose contract with the driver is checked at every step.
struct CheckedSession {
    session: ServerSession,
    pending: PendingRequest,
    /// Number of lines sent and of final replies received.
    lines: usize,
    final_replies: usize,
    /// OPTS DRS drs1 was sent.
    right_sized: bool,
    closed: bool,
}

impl CheckedSession {
    fn check_actions(&mut self, actions: &[SessionAction]) {
        security_invariants::check(&self.session, actions);
        let last = actions.len().saturating_sub(1);
        for (at, action) in actions.iter().enumerate() {
            let pending = match action {
                SessionAction::Reply(reply) => {
                    self.final_replies += usize::from(reply.code >= 200);
                    assert!(
                        reply.code != 126 || self.right_sized,
                        "126 without OPTS DRS drs1"
                    );
                    assert!(!self.closed, "a reply after Close: {actions:?}");
                    continue;
                }
                SessionAction::Close => {
                    self.closed = true;
                    continue;
                }
                SessionAction::Secure(_) => PendingRequest::Security,
                SessionAction::SetDataCredential(_) => PendingRequest::DataCredential,
                SessionAction::Authenticate { .. } => PendingRequest::Login,
                SessionAction::File(FileRequest::Checksum { .. }) => PendingRequest::Checksum,
                SessionAction::File(_) => PendingRequest::File,
                SessionAction::Listen(_) => PendingRequest::Listen,
                SessionAction::ListenDrs(_) => PendingRequest::ListenDrs,
                SessionAction::SetSendBuffer(_) => {
                    assert!(self.right_sized, "SetSendBuffer without OPTS DRS drs1");
                    continue;
                }
                SessionAction::Transfer(_) => PendingRequest::Transfer,
                _ => continue,
            };
            assert_eq!(at, last, "the request is not the last action: {actions:?}");
            assert_eq!(
                self.pending,
                PendingRequest::Nothing,
                "two requests at once: {actions:?}"
            );
            self.pending = pending;
        }
        let expected = match self.pending {
            _ if self.closed => ExpectedInput::Line,
            PendingRequest::Nothing => ExpectedInput::Line,
            PendingRequest::Transfer | PendingRequest::Checksum => {
                ExpectedInput::DriverEventOrUrgentLine
            }
            PendingRequest::Login
            | PendingRequest::File
            | PendingRequest::Listen
            | PendingRequest::ListenDrs
            | PendingRequest::DataCredential
            | PendingRequest::Security => ExpectedInput::DriverEvent,
        };
        assert_eq!(self.session.expected_input(), expected);
    }

    fn line(&mut self, bytes: &[u8]) {
        let command = Command::parse(bytes);
        self.right_sized |=
            command == Ok(Command::Opts(OptsCommand::BufferSizing(BufferSizing::Drs1)));
        // SBUF during a transfer is the one line without a reply (2003 paper §4.2).
        let announces_size =
            self.pending == PendingRequest::Transfer && matches!(command, Ok(Command::Sbuf(_)));
        let line = self.line_event(bytes);
        let actions = self.session.on_line(&line);
        if announces_size {
            assert!(self.right_sized && actions.len() <= 1, "{actions:?}");
        } else {
            self.lines += 1;
        }
        self.check_actions(&actions);
    }

    /// The line as a driver passes it: plain, out of a token if the session demands that.
    fn line_event(&self, bytes: &[u8]) -> LineEvent {
        match self.session.expects_protected_lines() {
            true => LineEvent::Protected(bytes.to_vec()),
            false => LineEvent::Line(bytes.to_vec()),
        }
    }

    fn driver_event(&mut self, driver_event: DriverEvent, is_last: bool) {
        if is_last {
            self.pending = PendingRequest::Nothing;
        }
        let actions = self.session.on_driver_event(driver_event);
        self.check_actions(&actions);
    }

    fn step(&mut self, next: &InputStep) {
        let InputStep { line, choice, ok } = next;
        let (choice, ok) = (*choice, *ok);
        match self.pending {
            // The client sends a clear or forged line to a session with tokens now and then.
            PendingRequest::Nothing if choice < 8 => self.unprotected_line(line, ok),
            PendingRequest::Nothing => self.line(line),
            PendingRequest::Security => {
                self.driver_event(security_event(&self.session, choice, ok), true);
            }
            PendingRequest::DataCredential => {
                let result = ok.then_some(()).ok_or("not PEM".to_owned());
                self.driver_event(DriverEvent::DataCredential(result), true);
            }
            PendingRequest::Login => {
                let result = if ok {
                    Ok(grant())
                } else if choice.is_multiple_of(3) {
                    Err(LoginFailure::PasswordNeeded)
                } else {
                    Err(LoginFailure::Refused("wrong.".to_owned()))
                };
                self.driver_event(DriverEvent::Login(result), true);
            }
            PendingRequest::Checksum if choice % 8 == 5 => self.line(b"ABOR"),
            PendingRequest::Checksum if choice % 8 == 6 => self.line(b"STAT"),
            PendingRequest::File | PendingRequest::Checksum if choice < 32 => {
                let progress_event = DriverEvent::ChecksumProgress { now: 1.0, bytes: 5 };
                self.driver_event(progress_event, false);
            }
            PendingRequest::File | PendingRequest::Checksum => {
                let result = if ok {
                    Ok(file_response(choice))
                } else {
                    Err(file_error(choice))
                };
                self.driver_event(DriverEvent::File(result), true);
            }
            PendingRequest::Listen => {
                let result = if ok {
                    Ok(StripeAddresses::single(address()))
                } else {
                    Err(file_error(choice))
                };
                self.driver_event(DriverEvent::Listening(result), true);
            }
            PendingRequest::ListenDrs => {
                let result = if ok {
                    Ok(drs_address())
                } else {
                    Err(file_error(choice))
                };
                self.driver_event(DriverEvent::DrsListening(result), true);
            }
            PendingRequest::Transfer => self.transfer_step(line, choice, ok),
        }
    }

    fn transfer_step(&mut self, line: &[u8], choice: u8, ok: bool) {
        match choice % 8 {
            0 => self.driver_event(transfer_end(choice / 8, ok), true),
            1 => self.driver_event(
                DriverEvent::Listening(Ok(StripeAddresses::single(address()))),
                false,
            ),
            2 => {
                let unique_name = (!ok).then(VPath::root);
                self.driver_event(
                    DriverEvent::Opened {
                        reused: ok,
                        unique_name,
                    },
                    false,
                );
            }
            3 => self.driver_event(DriverEvent::BufferResized(choice.into()), false),
            4 => self.driver_event(DriverEvent::Progress(progress(choice)), false),
            5 => self.line(b"ABOR"),
            6 => self.line(b"STAT"),
            _ if self.session.is_urgent(&self.line_event(line)) => self.line(line),
            _ => self.driver_event(DriverEvent::Progress(progress(choice)), false),
        }
    }

    fn unprotected_line(&mut self, line: &[u8], forged: bool) {
        if !self.session.expects_protected_lines() {
            return self.line(line);
        }
        let actions = self.session.on_line(&match forged {
            true => LineEvent::Forged,
            false => LineEvent::Line(line.to_vec()),
        });
        self.lines += 1;
        self.check_actions(&actions);
    }

    /// Answers all pending requests.
    fn answer_all(&mut self) {
        while self.pending != PendingRequest::Nothing && !self.closed {
            let choice = 200; // ends a transfer: 200 % 8 == 0
            self.step(&InputStep {
                line: Vec::new(),
                choice,
                ok: true,
            });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_line_has_one_final_reply(
        input_steps in input_steps(),
        logged_in in any::<bool>(),
        policy in any::<u8>(),
        start in 0..3usize,
    ) {
        let config = security_invariants::with_policy(config(), policy);
        let session = security_invariants::started(config, start);
        let logged_in = logged_in && security_invariants::may_log_in(&session);
        let mut checked = CheckedSession {
            session,
            pending: PendingRequest::Nothing,
            lines: 0,
            final_replies: 0,
            right_sized: false,
            closed: false,
        };
        if logged_in {
            checked.line(b"USER ann");
            checked.line(b"PASS x");
            checked.driver_event(DriverEvent::Login(Ok(grant())), true);
        }
        for next in &input_steps {
            if checked.closed {
                break;
            }
            checked.step(next);
        }
        checked.answer_all();
        if checked.closed {
            // Lines queued when the session closed have no reply.
            prop_assert!(checked.final_replies <= checked.lines);
        } else {
            prop_assert_eq!(checked.final_replies, checked.lines);
        }
    }
}
