//! Whatever is said, every line has exactly one final reply and the driver exactly one thing to
//! wait for.

use std::net::SocketAddr;

use proptest::prelude::*;

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
    SessionAction, TransferError, TransferProgress,
};
use crate::sizing::BufferSizing;
use crate::stripes::StripeAddresses;

/// A request to the driver that it has not reported on yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PendingRequest {
    Nothing,
    Login,
    File,
    Checksum,
    Listen,
    ListenDrs,
    Transfer,
}

/// One move of client or driver; which of them it is depends on what is pending.
#[derive(Debug, Clone)]
struct InputStep {
    line: Vec<u8>,
    /// Chooses among the outcomes that fit.
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

fn moves() -> impl Strategy<Value = Vec<InputStep>> {
    let known = (0..LINES.len()).prop_map(|n| LINES[n].as_bytes().to_vec());
    let spoiled =
        (0..LINES.len(), prop::collection::vec(any::<u8>(), 0..12)).prop_map(|(n, tail)| {
            let verb = LINES[n].split(' ').next().unwrap_or_default();
            [verb.as_bytes(), b" ", &tail].concat()
        });
    let junk = prop::collection::vec(any::<u8>(), 0..40);
    let line = prop_oneof![8 => known, 2 => spoiled, 1 => junk];
    let one = (line, any::<u8>(), any::<bool>()).prop_map(|(line, choice, ok)| InputStep {
        line,
        choice,
        ok,
    });
    prop::collection::vec(one, 0..120)
}

fn file_error(choice: u8) -> FileError {
    let kinds = [
        FileErrorKind::NotFound,
        FileErrorKind::Denied,
        FileErrorKind::NoSpace,
        FileErrorKind::Busy,
        FileErrorKind::InUse,
        FileErrorKind::Aborted,
        FileErrorKind::Other,
    ];
    FileError {
        kind: kinds[usize::from(choice) % kinds.len()],
        errno: None,
        text: "it failed".to_owned(),
    }
}

fn progress(choice: u8) -> TransferProgress {
    let mut stored = RangeSet::new();
    stored.insert(0, u64::from(choice));
    TransferProgress {
        now: f64::from(choice),
        bytes: u64::from(choice),
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

fn answer(choice: u8) -> FileResponse {
    match choice % 3 {
        0 => FileResponse::Done,
        1 => FileResponse::Lines(vec![b"226 not the end".to_vec()]),
        _ => FileResponse::Checksum("00".to_owned()),
    }
}

fn end(choice: u8, ok: bool) -> DriverEvent {
    DriverEvent::Transferred(match choice % 5 {
        _ if ok => Ok(CompletedTransfer {
            remarks: CompletionRemarks {
                limiter: LimiterReport::new("send buffer", u32::from(choice), "cubic"),
                remark: Some("226 a\r\nremark".to_owned()),
            },
            progress: progress(choice),
        }),
        0 => Err(TransferError::File(file_error(choice))),
        1 => Err(TransferError::NoConnection("nobody came".to_owned())),
        2 => Err(TransferError::Broken("reset".to_owned())),
        3 => Err(TransferError::Superseded),
        _ => Err(TransferError::Aborted),
    })
}

/// A session with the driver's side of the contract checked at every step.
struct CheckedSession {
    session: ServerSession,
    asked: PendingRequest,
    /// Lines given and final replies seen.
    lines: usize,
    finals: usize,
    /// OPTS DRS drs1 was given.
    right_sized: bool,
    closed: bool,
}

impl CheckedSession {
    fn take(&mut self, actions: &[SessionAction]) {
        let last = actions.len().saturating_sub(1);
        for (at, action) in actions.iter().enumerate() {
            let asked = match action {
                SessionAction::Reply(reply) => {
                    self.finals += usize::from(reply.code >= 200);
                    assert!(reply.code != 126 || self.right_sized, "126 unasked");
                    assert!(!self.closed, "a reply after Close: {actions:?}");
                    continue;
                }
                SessionAction::Close => {
                    self.closed = true;
                    continue;
                }
                SessionAction::Secure(_) => panic!("no mechanism is offered"),
                SessionAction::Authenticate { .. } => PendingRequest::Login,
                SessionAction::File(FileRequest::Checksum { .. }) => PendingRequest::Checksum,
                SessionAction::File(_) => PendingRequest::File,
                SessionAction::Listen(_) => PendingRequest::Listen,
                SessionAction::ListenDrs(_) => PendingRequest::ListenDrs,
                SessionAction::SetSendBuffer(_) => {
                    assert!(self.right_sized, "a size was followed unasked");
                    continue;
                }
                SessionAction::Transfer(_) => PendingRequest::Transfer,
                _ => continue,
            };
            assert_eq!(at, last, "an outcome is asked for last: {actions:?}");
            assert_eq!(
                self.asked,
                PendingRequest::Nothing,
                "two at once: {actions:?}"
            );
            self.asked = asked;
        }
        let awaiting = match self.asked {
            _ if self.closed => ExpectedInput::Line,
            PendingRequest::Nothing => ExpectedInput::Line,
            PendingRequest::Transfer | PendingRequest::Checksum => {
                ExpectedInput::DriverEventOrUrgentLine
            }
            PendingRequest::Login
            | PendingRequest::File
            | PendingRequest::Listen
            | PendingRequest::ListenDrs => ExpectedInput::DriverEvent,
        };
        assert_eq!(self.session.expected_input(), awaiting);
    }

    fn line(&mut self, bytes: &[u8]) {
        let command = Command::parse(bytes);
        self.right_sized |=
            command == Ok(Command::Opts(OptsCommand::BufferSizing(BufferSizing::Drs1)));
        // The one line that has no reply (2003 paper §4.2).
        let tells_size =
            self.asked == PendingRequest::Transfer && matches!(command, Ok(Command::Sbuf(_)));
        let actions = self.session.on_line(&LineEvent::Line(bytes.to_vec()));
        if tells_size {
            assert!(self.right_sized && actions.len() <= 1, "{actions:?}");
        } else {
            self.lines += 1;
        }
        self.take(&actions);
    }

    fn outcome(&mut self, outcome: DriverEvent, is_last: bool) {
        if is_last {
            self.asked = PendingRequest::Nothing;
        }
        let actions = self.session.on_driver_event(outcome);
        self.take(&actions);
    }

    fn step(&mut self, next: &InputStep) {
        let InputStep { line, choice, ok } = next;
        let (choice, ok) = (*choice, *ok);
        match self.asked {
            PendingRequest::Nothing => self.line(line),
            PendingRequest::Login => {
                let result = if ok {
                    Ok(grant())
                } else {
                    Err("wrong.".to_owned())
                };
                self.outcome(DriverEvent::Login(result), true);
            }
            PendingRequest::Checksum if choice % 8 == 5 => self.line(b"ABOR"),
            PendingRequest::Checksum if choice % 8 == 6 => self.line(b"STAT"),
            PendingRequest::File | PendingRequest::Checksum if choice < 32 => {
                let ticking = DriverEvent::ChecksumProgress { now: 1.0, bytes: 5 };
                self.outcome(ticking, false);
            }
            PendingRequest::File | PendingRequest::Checksum => {
                let result = if ok {
                    Ok(answer(choice))
                } else {
                    Err(file_error(choice))
                };
                self.outcome(DriverEvent::File(result), true);
            }
            PendingRequest::Listen => {
                let result = if ok {
                    Ok(StripeAddresses::single(address()))
                } else {
                    Err(file_error(choice))
                };
                self.outcome(DriverEvent::Listening(result), true);
            }
            PendingRequest::ListenDrs => {
                let result = if ok {
                    Ok(drs_address())
                } else {
                    Err(file_error(choice))
                };
                self.outcome(DriverEvent::DrsListening(result), true);
            }
            PendingRequest::Transfer => self.transfer_step(line, choice, ok),
        }
    }

    fn transfer_step(&mut self, line: &[u8], choice: u8, ok: bool) {
        match choice % 8 {
            0 => self.outcome(end(choice / 8, ok), true),
            1 => self.outcome(
                DriverEvent::Listening(Ok(StripeAddresses::single(address()))),
                false,
            ),
            2 => {
                let unique_name = (!ok).then(VPath::root);
                self.outcome(
                    DriverEvent::Opened {
                        reused: ok,
                        unique_name,
                    },
                    false,
                );
            }
            3 => self.outcome(DriverEvent::BufferResized(choice.into()), false),
            4 => self.outcome(DriverEvent::Progress(progress(choice)), false),
            5 => self.line(b"ABOR"),
            6 => self.line(b"STAT"),
            _ if self.session.is_urgent(&LineEvent::Line(line.to_vec())) => self.line(line),
            _ => self.outcome(DriverEvent::Progress(progress(choice)), false),
        }
    }

    /// Ends what is pending.
    fn settle(&mut self) {
        while self.asked != PendingRequest::Nothing && !self.closed {
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
    fn every_line_has_one_final_reply(moves in moves(), logged_in in any::<bool>()) {
        let mut checked = CheckedSession {
            session: ServerSession::new(config()),
            asked: PendingRequest::Nothing,
            lines: 0,
            finals: 0,
            right_sized: false,
            closed: false,
        };
        if logged_in {
            checked.line(b"USER ann");
            checked.line(b"PASS x");
            checked.outcome(DriverEvent::Login(Ok(grant())), true);
        }
        for next in &moves {
            if checked.closed {
                break;
            }
            checked.step(next);
        }
        checked.settle();
        if checked.closed {
            // Lines that waited when the session ended have none.
            prop_assert!(checked.finals <= checked.lines);
        } else {
            prop_assert_eq!(checked.finals, checked.lines);
        }
    }
}
