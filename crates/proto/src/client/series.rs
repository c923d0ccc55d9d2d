//! A series: many files over one session, with commands sent before earlier ones are answered.
//!
//! RFC 959 §5.4 asks the client to wait for replies. Most servers read the next command from their socket whenever they
//! are ready for it, but some read and discard commands while a transfer runs (ProFTPD: 450, Pure-FTPd: 500), and no
//! FEAT line tells. [`SeriesWindow`] therefore begins with nothing behind a running transfer, and goes ahead as far as
//! the server's replies bear out.

use super::{CommandPlanner, PlanStep, TransferRequirements};
use crate::command::{Command, TransferMode};
use crate::reply::Reply;

/// Most transfer commands without a final reply. What fails together is copied again together.
const MAX_EXTENDED_TRANSFERS: usize = 64;
/// The same in MODE S, where each file needs a data address of its own: more commands wait for nothing.
const MAX_STREAM_TRANSFERS: usize = 4;
/// Confirmed files with commands ahead after which a lost connection is no sign against the server.
const PROVEN_AFTER: usize = 4;

/// How far commands may go ahead of replies at a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum CommandLead {
    /// One command at a time.
    Lockstep,
    /// Several commands at a time, but none behind a transfer command until its final reply.
    BetweenTransfers,
    /// Also behind transfer commands.
    AcrossTransfers,
    /// Also the bytes of files whose store command is not answered, on kept data connections.
    #[default]
    WithBytes,
}

impl CommandLead {
    /// The next lower one, for a server that did not bear this out.
    #[must_use]
    pub fn lowered(self) -> Self {
        match self {
            Self::WithBytes => Self::AcrossTransfers,
            Self::AcrossTransfers => Self::BetweenTransfers,
            Self::BetweenTransfers | Self::Lockstep => Self::Lockstep,
        }
    }
}

/// How a session of a series ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeriesBreak {
    /// A reply that does not belong to the command that was sent.
    WrongReply,
    /// The connection was lost, or a reply did not come in time.
    Lost,
    /// A file whose bytes were ahead was refused, or has other bytes at the server.
    Misplaced,
}

/// Number of transfer commands that may be without a final reply.
#[derive(Debug, Clone)]
pub struct SeriesWindow {
    lead: CommandLead,
    most: usize,
    transfers: usize,
    /// Files confirmed while commands, or bytes as soon as there were any, were ahead of a transfer's end.
    proven: usize,
    /// Bytes went ahead of replies.
    has_sent_bytes: bool,
}

impl SeriesWindow {
    /// A new session with a server that is known to allow `lead`, for transfers in `mode`.
    pub fn new(lead: CommandLead, mode: TransferMode) -> Self {
        let most = match (lead, mode) {
            (CommandLead::Lockstep | CommandLead::BetweenTransfers, _) => 1,
            (_, TransferMode::Extended) => MAX_EXTENDED_TRANSFERS,
            (_, TransferMode::Stream) => MAX_STREAM_TRANSFERS,
        };
        Self {
            lead,
            most,
            transfers: 1,
            proven: 0,
            has_sent_bytes: false,
        }
    }

    /// The window of the next series of a session, whose server is known to allow `lead` by now: this one, unless it goes
    /// further ahead.
    #[must_use]
    pub fn continued(self, lead: CommandLead, mode: TransferMode) -> Self {
        match self.lead <= lead {
            true => self,
            false => Self::new(lead, mode),
        }
    }

    /// Whether each command waits for the reply to the one before.
    pub fn is_lockstep(&self) -> bool {
        self.lead == CommandLead::Lockstep
    }

    /// Whether another transfer command may be sent while `outstanding` have no final reply.
    pub fn has_room(&self, outstanding: usize) -> bool {
        outstanding < self.transfers
    }

    /// Whether other commands may be sent while `outstanding` transfer commands have no final reply.
    pub fn may_follow(&self, outstanding: usize) -> bool {
        outstanding == 0 || self.transfers > 1
    }

    /// Whether the bytes of files may be sent before the server has answered their store commands: from the first
    /// confirmed file on, for as many files as there are commands ahead.
    pub fn may_send_bytes(&self) -> bool {
        self.lead == CommandLead::WithBytes && self.transfers > 1
    }

    /// The bytes of a file are on their way before the server has answered its store command.
    pub fn on_bytes_ahead(&mut self) {
        if !std::mem::replace(&mut self.has_sent_bytes, true) {
            self.proven = 0;
        }
    }

    /// A file is confirmed by the replies, in order. `outstanding` transfer commands were behind it.
    pub fn on_confirmed(&mut self, outstanding: usize) {
        if outstanding > 0 {
            self.proven += 1;
        }
        // One more behind the first file; then as many more as have borne out.
        self.transfers = self.transfers.saturating_mul(2).min(self.most);
    }

    /// The lead for later sessions with the server.
    pub fn lead_after(&self, broken: SeriesBreak) -> CommandLead {
        let tested = match (self.transfers, self.has_sent_bytes) {
            (1, _) => self.lead.min(CommandLead::BetweenTransfers),
            (_, false) => self.lead.min(CommandLead::AcrossTransfers),
            (_, true) => self.lead,
        };
        match broken {
            // The server takes bytes that it did not read for those of the next file.
            SeriesBreak::Misplaced => self.lead.min(CommandLead::AcrossTransfers),
            // Networks lose connections too.
            SeriesBreak::Lost if self.proven >= PROVEN_AFTER => self.lead,
            SeriesBreak::Lost | SeriesBreak::WrongReply => tested.lowered(),
        }
    }
}

/// Meaning of the reply to a command of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeriesVerdict {
    /// Done.
    Done,
    /// Refused, for this file.
    Refused,
    /// The reply cannot be one to this command.
    OutOfStep,
}

/// Judges the final reply to any command of a series but a transfer command, so that a reply too many or too few is
/// noticed before it is taken for another file's.
pub fn judge_reply(command: &Command, reply: &Reply) -> SeriesVerdict {
    let refused = || match reply.code {
        // 421 ends the session.
        421 => SeriesVerdict::OutOfStep,
        400..=599 => SeriesVerdict::Refused,
        _ => SeriesVerdict::OutOfStep,
    };
    let expected = match command {
        // Without an address nothing can follow.
        Command::Pasv | Command::Epsv(_) => {
            return match reply.code {
                227 | 229 => SeriesVerdict::Done,
                _ => SeriesVerdict::OutOfStep,
            };
        }
        Command::Cksm { .. } | Command::Size(_) | Command::Mdtm(_) => reply.code == 213,
        Command::Rnfr(_) => reply.code == 350,
        Command::Mfmt(..) => matches!(reply.code, 200 | 213 | 250 | 253),
        _ => reply.code == 250,
    };
    match expected {
        true => SeriesVerdict::Done,
        false => refused(),
    }
}

impl CommandPlanner {
    /// The commands of the next transfer of a series, if they can be sent before the last one ends: all settings are in
    /// force, and the data connections are either kept (MODE E) or asked for by PASV (MODE S). Leaves out ALLO.
    pub fn steps_ahead(&self, requirements: &TransferRequirements) -> Option<Vec<PlanStep>> {
        let mut steps = self.plan(requirements);
        steps.retain(|step| !matches!(step, PlanStep::Set(Command::Allo(_), _)));
        let is_stream = requirements.mode == TransferMode::Stream;
        let can_go_ahead = |step: &PlanStep| match step {
            PlanStep::Transfer(_) => true,
            PlanStep::Listen => is_stream,
            PlanStep::Set(..) | PlanStep::Connect | PlanStep::DrsListen => false,
        };
        steps.iter().all(can_go_ahead).then_some(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::ChecksumAlgorithm;

    #[test]
    fn a_window_grows_with_confirmed_files_up_to_its_mode() {
        let grown = |lead, mode| {
            let mut window = SeriesWindow::new(lead, mode);
            assert!(window.has_room(0) && !window.has_room(1));
            for _ in 0..20 {
                window.on_confirmed(0);
            }
            (0..1000).find(|n| !window.has_room(*n)).unwrap()
        };
        let (stream, extended) = (TransferMode::Stream, TransferMode::Extended);
        assert_eq!(grown(CommandLead::WithBytes, extended), 64);
        assert_eq!(grown(CommandLead::WithBytes, stream), 4);
        assert_eq!(grown(CommandLead::AcrossTransfers, extended), 64);
        assert_eq!(grown(CommandLead::AcrossTransfers, stream), 4);
        assert_eq!(grown(CommandLead::BetweenTransfers, extended), 1);
        assert_eq!(grown(CommandLead::Lockstep, stream), 1);
    }

    #[test]
    fn nothing_follows_a_transfer_command_before_a_file_is_confirmed() {
        let mut window = SeriesWindow::new(CommandLead::AcrossTransfers, TransferMode::Stream);
        assert!(window.may_follow(0) && !window.may_follow(1));
        window.on_confirmed(0);
        assert!(window.may_follow(1) && window.has_room(1) && !window.has_room(2));
    }

    #[test]
    fn a_wrong_reply_lowers_the_lead_and_a_loss_only_before_it_is_proven() {
        let lead = CommandLead::AcrossTransfers;
        let mut window = SeriesWindow::new(lead, TransferMode::Extended);
        // Nothing was behind a transfer: several commands at a time are in doubt.
        assert_eq!(
            window.lead_after(SeriesBreak::WrongReply),
            CommandLead::Lockstep
        );
        window.on_confirmed(0);
        let between = CommandLead::BetweenTransfers;
        assert_eq!(window.lead_after(SeriesBreak::Lost), between);
        for _ in 0..PROVEN_AFTER {
            window.on_confirmed(1);
        }
        assert_eq!(window.lead_after(SeriesBreak::Lost), lead);
        assert_eq!(window.lead_after(SeriesBreak::WrongReply), between);
    }

    #[test]
    fn bytes_go_ahead_from_the_first_confirmed_file_on() {
        let new = |lead| SeriesWindow::new(lead, TransferMode::Extended);
        let mut window = new(CommandLead::WithBytes);
        assert!(!window.may_send_bytes());
        window.on_confirmed(0);
        assert!(window.may_send_bytes());
        let mut window = new(CommandLead::AcrossTransfers);
        window.on_confirmed(0);
        assert!(!window.may_send_bytes());
    }

    #[test]
    fn a_series_goes_on_where_the_last_one_ended_unless_the_lead_is_lower_by_now() {
        let mode = TransferMode::Extended;
        let mut window = SeriesWindow::new(CommandLead::WithBytes, mode);
        window.on_confirmed(0);
        let same = window.clone().continued(CommandLead::WithBytes, mode);
        assert!(same.may_send_bytes());
        let mut lower = window.continued(CommandLead::AcrossTransfers, mode);
        assert!(!lower.may_follow(1));
        lower.on_confirmed(0);
        assert!(lower.may_follow(1) && !lower.may_send_bytes());
    }

    #[test]
    fn a_server_that_does_not_bear_bytes_ahead_still_gets_commands_ahead() {
        let across = CommandLead::AcrossTransfers;
        let mut window = SeriesWindow::new(CommandLead::WithBytes, TransferMode::Extended);
        for _ in 0..=PROVEN_AFTER {
            window.on_confirmed(1);
        }
        // Commands alone were ahead.
        let between = CommandLead::BetweenTransfers;
        assert_eq!(window.lead_after(SeriesBreak::WrongReply), between);
        window.on_bytes_ahead();
        assert_eq!(window.lead_after(SeriesBreak::WrongReply), across);
        assert_eq!(window.lead_after(SeriesBreak::Lost), across);
        for _ in 0..PROVEN_AFTER {
            window.on_bytes_ahead();
            window.on_confirmed(1);
        }
        let lost = window.lead_after(SeriesBreak::Lost);
        assert_eq!(lost, CommandLead::WithBytes);
        assert_eq!(window.lead_after(SeriesBreak::Misplaced), across);
    }

    #[test]
    fn a_reply_to_another_command_is_out_of_step() {
        let judge = |command: &Command, code| judge_reply(command, &Reply::new(code, "x"));
        let path = || b"/f".to_vec();
        let checksum = Command::Cksm {
            algorithm: ChecksumAlgorithm::Md5,
            offset: 0,
            length: None,
            path: path(),
        };
        for (command, done) in [
            (checksum, 213),
            (Command::Size(path()), 213),
            (Command::Rnfr(path()), 350),
            (Command::Rnto(path()), 250),
        ] {
            assert_eq!(judge(&command, done), SeriesVerdict::Done);
            assert_eq!(judge(&command, 550), SeriesVerdict::Refused);
            assert_eq!(judge(&command, 226), SeriesVerdict::OutOfStep);
            assert_eq!(judge(&command, 421), SeriesVerdict::OutOfStep);
        }
        assert_eq!(judge(&Command::Pasv, 227), SeriesVerdict::Done);
        assert_eq!(judge(&Command::Pasv, 450), SeriesVerdict::OutOfStep);
    }
}
