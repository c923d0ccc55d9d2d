//! Many commands of one kind, sent ahead of their replies.

use std::ops::ControlFlow;

use proto::command::Command;
use proto::reply::Reply;
use proto::timestamp::Timestamp;

use super::{ClientSession, MAX_SILENCE, replies};
use crate::Failure;
use crate::failure::Operation;

/// Most commands that are sent before a reply is read: their replies stay in the socket buffers.
const MAX_AHEAD: usize = 128;

impl ClientSession {
    /// Sends commands and hands their replies to `note`, in this order, until it breaks: the replies to commands that are sent by then
    /// are handed over, too. A server that announces pipelining gets as many at a time as possible, one that may be tried
    /// (`may_go_ahead`) first one, then two, four, and so on, any other one at a time.
    ///
    /// # Errors
    /// The session is lost: also by a server that discards commands ahead, which is noticed by its silence.
    pub(super) async fn call_ahead(
        &mut self,
        mut commands: impl Iterator<Item = Command> + Send,
        may_go_ahead: bool,
        note: &mut (dyn FnMut(&Reply) -> ControlFlow<()> + Send),
    ) -> Result<(), Failure> {
        let is_known = self.supports_pipelining();
        let patience = self.control.reply_timeout();
        if !is_known && may_go_ahead {
            self.control.set_reply_timeout(patience.min(MAX_SILENCE));
        }
        let mut most = if is_known { MAX_AHEAD } else { 1 };
        let mut called = Ok(ControlFlow::Continue(()));
        while called == Ok(ControlFlow::Continue(())) {
            let group: Vec<Command> = commands.by_ref().take(most).collect();
            if group.is_empty() {
                break;
            }
            called = self.call_group(&group, note).await;
            if is_known || may_go_ahead {
                most = (most * 2).min(MAX_AHEAD);
            }
        }
        self.control.set_reply_timeout(patience);
        called.map(drop)
    }

    async fn call_group(
        &mut self,
        group: &[Command],
        note: &mut (dyn FnMut(&Reply) -> ControlFlow<()> + Send),
    ) -> Result<ControlFlow<()>, Failure> {
        self.control.send_pipelined(group).await?;
        let mut flow = ControlFlow::Continue(());
        for _ in group {
            let reply = self.control.final_reply().await?;
            if note(&reply).is_break() {
                flow = ControlFlow::Break(());
            }
        }
        Ok(flow)
    }

    /// The modification times of files by MDTM; `None` where the server does not tell.
    ///
    /// # Errors
    /// As `call_ahead`.
    pub async fn modification_times(
        &mut self,
        paths: &[Vec<u8>],
        may_go_ahead: bool,
    ) -> Result<Vec<Option<Timestamp>>, Failure> {
        let mut times = vec![None; paths.len()];
        if !self.may_have_mdtm() {
            return Ok(times);
        }
        // Each name may need a CWD before it.
        if self.habits.names_only {
            for (path, time) in paths.iter().zip(&mut times) {
                if self.check_path(path).is_ok() {
                    *time = self.modification_time(path).await?;
                }
            }
            return Ok(times);
        }
        // Names that cannot be sent keep no time.
        let sendable: Vec<usize> = (0..paths.len())
            .filter(|at| self.check_path(&paths[*at]).is_ok())
            .collect();
        let commands = sendable.iter().map(|at| Command::Mdtm(paths[*at].clone()));
        let mut lacks_mdtm = false;
        let mut lost = None;
        let mut places = sendable.iter();
        let name = self.name().to_owned();
        let mut note = |reply: &Reply| {
            if let Some(place) = places.next() {
                times[*place] = time_of_reply(reply);
            }
            lacks_mdtm |= replies::is_unsupported(reply);
            if reply.code == 421 {
                lost = Some(times_refused_failure(&name, reply));
            }
            match lacks_mdtm || lost.is_some() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        self.call_ahead(commands, may_go_ahead, &mut note).await?;
        self.lacks_mdtm |= lacks_mdtm;
        lost.map_or(Ok(times), Err)
    }

    /// The modification time of a file; `None` if the server does not tell.
    pub(super) async fn modification_time(
        &mut self,
        path: &[u8],
    ) -> Result<Option<Timestamp>, Failure> {
        if !self.may_have_mdtm() {
            return Ok(None);
        }
        let reply = self.call_about(path, Command::Mdtm).await?;
        if reply.code == 421 {
            return Err(times_refused_failure(self.name(), &reply));
        }
        self.lacks_mdtm |= replies::is_unsupported(&reply);
        Ok(time_of_reply(&reply))
    }

    fn may_have_mdtm(&self) -> bool {
        let features = self.features();
        // FEAT without MDTM saves a round trip per file.
        !self.lacks_mdtm && (features.mdtm || !features.feat_answered)
    }
}

fn times_refused_failure(server: &str, reply: &Reply) -> Failure {
    replies::refusal_failure(server, &Operation::from("read times"), reply)
}

fn time_of_reply(reply: &Reply) -> Option<Timestamp> {
    let lines = reply.lines.iter().filter(|_| reply.is_success());
    let mut texts = lines.map(|line| String::from_utf8_lossy(line));
    texts.find_map(|text| Timestamp::parse(text.trim()))
}
