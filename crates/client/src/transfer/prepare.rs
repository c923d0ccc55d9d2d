//! The steps before a transfer with one server, as the planner gives them: flight by flight.

use proto::client::{PlanStep, RefusalEffect, TransferRequirements};
use proto::command::{Command, OptsCommand};
use proto::reply::Reply;
use proto::sizing::BufferSizing;
use proto::sizing::SocketBuffers;
use proto::stripes::StripeAddresses;

use super::TransferSpec;
use crate::CopyFailure;
use crate::session::ClientSession;
use crate::session::passive::port_command;
use crate::session::replies::{self, RefusalCause, refusal_cause};

/// Contribution of this end to a data address.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LocalDataEnd {
    /// Ports to listen on.
    pub(crate) ports: Option<(u16, u16)>,
    /// The connections' socket buffers.
    pub(crate) buffers: SocketBuffers,
}

/// How the steps before a transfer went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PreparationResult {
    /// The transfer command is sent.
    Ready {
        /// Where to connect if the told addresses do not answer.
        alternative: Option<StripeAddresses>,
    },
    /// MODE E was refused: plan again in MODE S.
    RetryInStreamMode,
    /// REST was refused: plan again from the first byte.
    RetryFromZero,
    /// Something was refused that had to be in force when the transfer command behind it came. The
    /// session is given up: begin it carefully and plan again.
    RetryWithoutPipelining,
}

/// How a flight went.
#[derive(Debug, Default)]
pub(crate) struct PipelineResult {
    /// Where the server listens, if it was asked.
    pub(crate) passive_addresses: Option<StripeAddresses>,
    /// A refusal that asks for another plan.
    pub(crate) replan: Option<PreparationResult>,
}

impl ClientSession {
    /// Whether questions can go out behind the transfer command of `spec` ([`ClientSession::pipeline_followups`]). Not
    /// in chunks, where the next one's command follows; and not where SBUF is sent in between, whose
    /// answer nothing would tell from theirs.
    pub(crate) fn can_pipeline_followups(&self, spec: &TransferSpec) -> bool {
        self.planner.supports_pipelining()
            && spec.chunks.is_none()
            && spec.options.buffers.sizing != BufferSizing::Drs1
    }

    /// Has `questions` asked together with the transfer command of `spec`, which comes next, where that
    /// can be: their answers come with the transfer's end. Each must be a command that
    /// [`ClientSession::stat`] or [`ClientSession::checksum`] is to send afterwards, in this order.
    pub(crate) fn pipeline_followups(&mut self, spec: &TransferSpec, questions: Vec<Command>) {
        self.followup_commands = match self.can_pipeline_followups(spec) {
            true => questions,
            false => Vec::new(),
        };
    }

    /// Carries out the steps up to and including the transfer command.
    pub(crate) async fn prepare_transfer(
        &mut self,
        need: &TransferRequirements,
        ends: &LocalDataEnd,
        doing: &str,
        warnings: &mut Vec<String>,
    ) -> Result<PreparationResult, CopyFailure> {
        let mut alternative = None;
        for flight in self.planner.pipelined_plan(need) {
            let mut here = None;
            if flight.contains(&PlanStep::Connect) {
                let sizing = self
                    .planner
                    .agreed_sizing(need.buffer_sizing.unwrap_or_default());
                here = Some(self.listen_for_data(ends.ports, ends.buffers.with_sizing(sizing))?);
            }
            let flown = self
                .send_pipeline(&flight, here.as_ref(), doing, warnings)
                .await?;
            if let Some(other) = flown.replan {
                return Ok(other);
            }
            if let Some(told) = &flown.passive_addresses {
                alternative = self.prepare_data_connections(told, warnings);
            }
            if here.or(flown.passive_addresses).is_some() {
                self.planner.on_address_given(need);
            }
        }
        Ok(PreparationResult::Ready { alternative })
    }

    /// Sends a flight and takes the answers to all of it but a transfer command at its end.
    /// [`PlanStep::Connect`] tells the server to connect to `here`.
    pub(crate) async fn send_pipeline(
        &mut self,
        flight: &[PlanStep],
        here: Option<&StripeAddresses>,
        doing: &str,
        warnings: &mut Vec<String>,
    ) -> Result<PipelineResult, CopyFailure> {
        let (steps, commands): (Vec<&PlanStep>, Vec<Command>) = flight
            .iter()
            .filter_map(|step| Some((step, self.step_command(step, flight, here)?)))
            .unzip();
        let transfers = matches!(flight.last(), Some(PlanStep::Transfer(_)));
        if commands.is_empty() {
            return Ok(PipelineResult::default());
        }
        let questions = match transfers {
            true => std::mem::take(&mut self.followup_commands),
            false => Vec::new(),
        };
        self.control
            .send_pipelined_with_prefetch(&commands, &questions)
            .await?;
        let answered = commands.len() - usize::from(transfers);
        let replies = self.read_final_replies(answered, doing).await?;
        let answers: Vec<(&PlanStep, Reply)> = steps.into_iter().zip(replies).collect();
        let flown = match transfers {
            true if has_fatal_refusal(&answers) => self.abandon_transfer(&answers, doing),
            _ => self.handle_replies(answers, here, doing, warnings).await,
        };
        if transfers && flown.is_err() {
            // A transfer that nobody attends to must not go on.
            self.control.abandon();
        }
        flown
    }

    /// The command of a step; `None` for one that is to be left out.
    fn step_command(
        &self,
        step: &PlanStep,
        flight: &[PlanStep],
        here: Option<&StripeAddresses>,
    ) -> Option<Command> {
        match step {
            PlanStep::Set(command, _) | PlanStep::Transfer(command) => Some(command.clone()),
            PlanStep::DrsListen => {
                let agrees = |other: &PlanStep| matches!(other, PlanStep::Set(c, _) if *c == AGREE);
                let may = self.planner.may_listen_for_drs() || flight.iter().any(agrees);
                may.then_some(Command::Dpsv)
            }
            PlanStep::Listen => Some(self.passive_command()),
            PlanStep::Connect => here.map(port_command),
        }
    }

    /// So many final replies; after 421 there are no more.
    async fn read_final_replies(
        &mut self,
        count: usize,
        doing: &str,
    ) -> Result<Vec<Reply>, CopyFailure> {
        let mut replies = Vec::with_capacity(count);
        while replies.len() < count {
            let reply = self.control.final_reply().await?;
            if reply.code == 421 {
                return Err(replies::refusal_failure(self.name(), doing, &reply));
            }
            replies.push(reply);
        }
        Ok(replies)
    }

    /// The end of a session in which a transfer was begun that is not what was meant.
    fn abandon_transfer(
        &mut self,
        answers: &[(&PlanStep, Reply)],
        doing: &str,
    ) -> Result<PipelineResult, CopyFailure> {
        self.control.abandon();
        let full = |(_, reply): &&(&PlanStep, Reply)| {
            is_refused(reply) && refusal_cause(reply) == RefusalCause::Full
        };
        if let Some((_, reply)) = answers.iter().find(full) {
            return Err(replies::refusal_failure(self.name(), doing, reply));
        }
        Ok(PipelineResult {
            passive_addresses: None,
            replan: Some(PreparationResult::RetryWithoutPipelining),
        })
    }

    async fn handle_replies(
        &mut self,
        answers: Vec<(&PlanStep, Reply)>,
        here: Option<&StripeAddresses>,
        doing: &str,
        warnings: &mut Vec<String>,
    ) -> Result<PipelineResult, CopyFailure> {
        let mut flown = PipelineResult::default();
        let mut passive = None;
        for (step, reply) in answers {
            match (step, here) {
                (PlanStep::Set(command, refusal), _) => {
                    let again =
                        self.handle_setting_reply(command, &reply, *refusal, doing, warnings)?;
                    flown.replan = flown.replan.or(again);
                }
                (PlanStep::DrsListen, _) if self.planner.may_listen_for_drs() => {
                    self.handle_dpsv_reply(&reply, warnings);
                }
                (PlanStep::Listen, _) => passive = Some(reply),
                (PlanStep::Connect, Some(here)) => self.handle_active_reply(here, reply).await?,
                (PlanStep::DrsListen | PlanStep::Connect | PlanStep::Transfer(_), _) => {}
            }
        }
        // Last, since it may have to ask again.
        if let Some(reply) = passive.filter(|_| flown.replan.is_none()) {
            self.data_channel = None;
            flown.passive_addresses = Some(self.handle_passive_reply(reply).await?);
        }
        Ok(flown)
    }

    /// Takes the answer to a setting; `Some` when its refusal asks for another plan.
    fn handle_setting_reply(
        &mut self,
        command: &Command,
        reply: &Reply,
        refusal: RefusalEffect,
        doing: &str,
        warnings: &mut Vec<String>,
    ) -> Result<Option<PreparationResult>, CopyFailure> {
        if !is_refused(reply) {
            self.planner.on_accepted(command);
            return Ok(None);
        }
        if matches!(
            refusal_cause(reply),
            RefusalCause::Full | RefusalCause::Lost
        ) {
            return Err(replies::refusal_failure(self.name(), doing, reply));
        }
        self.planner.on_refused(command);
        match refusal {
            RefusalEffect::Fatal => {
                let doing = format!("{doing} ({})", command.verb());
                Err(replies::refusal_failure(self.name(), &doing, reply))
            }
            RefusalEffect::FallBackToStreamMode => Ok(Some(PreparationResult::RetryInStreamMode)),
            RefusalEffect::RestartFromZero => Ok(Some(PreparationResult::RetryFromZero)),
            RefusalEffect::Ignore => Ok(None),
            RefusalEffect::Warn(text) => {
                self.warn_once(warnings, text);
                Ok(None)
            }
        }
    }
}

/// Agreeing on the policy that needs a DRS channel.
const AGREE: Command = Command::Opts(OptsCommand::BufferSizing(BufferSizing::Drs));

fn is_refused(reply: &Reply) -> bool {
    !reply.is_success() && !reply.is_intermediate()
}

fn has_fatal_refusal(answers: &[(&PlanStep, Reply)]) -> bool {
    let refuses = |(step, reply): &(&PlanStep, Reply)| step.must_succeed() && is_refused(reply);
    answers.iter().any(refuses)
}
