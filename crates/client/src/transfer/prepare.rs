//! The steps before a transfer with one server, as the planner gives them.

use std::net::SocketAddr;

use proto::client::{Need, Refusal, Step};
use proto::command::{Command, Opts};
use proto::reply::Reply;
use proto::sizing::Sizing;

use crate::Failure;
use crate::session::Session;
use crate::session::replies::{self, Cause, cause};

/// What this end contributes to a data address.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ends {
    /// Ports to listen on.
    pub(crate) ports: Option<(u16, u16)>,
    /// Socket buffers to set before listening, bytes.
    pub(crate) buffer: Option<u64>,
}

/// How the steps before a transfer went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prepared {
    /// The transfer command is sent.
    Ready {
        /// Where to connect if the told address does not answer.
        alternative: Option<SocketAddr>,
    },
    /// MODE E was refused: plan again in MODE S.
    StreamMode,
    /// REST was refused: plan again from the first byte.
    StartOver,
}

impl Session {
    /// Carries out the steps up to and including the transfer command.
    pub(crate) async fn prepare(
        &mut self,
        need: &Need,
        ends: &Ends,
        doing: &str,
        warnings: &mut Vec<String>,
    ) -> Result<Prepared, Failure> {
        let mut alternative = None;
        let mut asked = false;
        for step in self.dialogue.plan(need) {
            match step {
                Step::Set(Command::Opts(Opts::Sizing(Sizing::Drs)), refusal) => {
                    self.begin_drs(refusal, doing, warnings).await?;
                    asked = true;
                }
                Step::Set(command, refusal) => {
                    if let Some(other) = self.set(&command, refusal, doing, warnings).await? {
                        return Ok(other);
                    }
                }
                // Together with OPTS DRS.
                Step::DrsListen if asked => {}
                Step::DrsListen => {
                    self.ask_drs(warnings).await?;
                }
                Step::Listen => {
                    alternative = self.open_passive().await?;
                    self.dialogue.address_given(need);
                }
                Step::Connect => {
                    let sizing = self.dialogue.agreed(need.sizing.unwrap_or_default());
                    let address = self.listen(ends.ports, ends.buffer, sizing)?;
                    self.tell_active(address).await?;
                    self.dialogue.address_given(need);
                }
                Step::Transfer(command) => self.control.send(&command).await?,
            }
        }
        Ok(Prepared::Ready { alternative })
    }

    /// Sends one setting; `Some` when its refusal asks for another plan.
    pub(crate) async fn set(
        &mut self,
        command: &Command,
        refusal: Refusal,
        doing: &str,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Prepared>, Failure> {
        let reply = self.control.call(command).await?;
        self.take_setting(command, &reply, refusal, doing, warnings)
    }

    /// Takes the answer to a setting; likewise.
    pub(crate) fn take_setting(
        &mut self,
        command: &Command,
        reply: &Reply,
        refusal: Refusal,
        doing: &str,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Prepared>, Failure> {
        if reply.is_success() || reply.is_intermediate() {
            self.dialogue.accepted(command);
            return Ok(None);
        }
        if matches!(cause(reply), Cause::Full | Cause::Lost) {
            return Err(replies::refusal(self.name(), doing, reply));
        }
        self.dialogue.refused(command);
        match refusal {
            Refusal::Fatal => {
                let doing = format!("{doing} ({})", command.verb());
                Err(replies::refusal(self.name(), &doing, reply))
            }
            Refusal::StreamMode => Ok(Some(Prepared::StreamMode)),
            Refusal::StartOver => Ok(Some(Prepared::StartOver)),
            Refusal::Harmless => Ok(None),
            Refusal::Warn(text) => {
                self.warn(warnings, text);
                Ok(None)
            }
        }
    }
}
