//! Carries out the steps before a transfer with one server, as the planner orders them, one
//! pipeline after the other.

use std::collections::VecDeque;

use data::options::TransferOptions;
use proto::client::{PlanStep, RefusalEffect, TransferRequirements};
use proto::command::{Command, TransferMode};
use proto::reply::Reply;
use proto::sizing::BufferSizing;
use proto::stripes::StripeAddresses;

use super::TransferSpec;
use crate::Failure;
use crate::failure::Operation;
use crate::session::data_protection::is_in_force;
use crate::session::replies::{self, RefusalCause, refusal_cause};
use crate::session::{ClientSession, DataPurpose};

/// This end's part in agreeing on data addresses.
#[derive(Debug, Clone, Default)]
pub struct LocalDataEnd {
    /// Ports to listen on.
    pub ports: Option<(u16, u16)>,
    /// Options of the data connections' sockets.
    pub options: TransferOptions,
    /// So much is to be moved that each data node of the server is worth asking for.
    pub is_large: bool,
}

impl LocalDataEnd {
    /// The options after agreement with the server.
    fn agreed_options(&self, sizing: BufferSizing) -> TransferOptions {
        TransferOptions {
            buffers: self.options.buffers.with_sizing(sizing),
            ..self.options.clone()
        }
    }
}

/// Result of the steps before a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreparationResult {
    /// The transfer command is sent.
    Ready {
        /// Addresses to try if the announced ones do not answer.
        alternative: Option<StripeAddresses>,
    },
    /// MODE E was refused: plan again in MODE S.
    RetryInStreamMode,
    /// REST was refused: plan again from the first byte.
    RetryFromZero,
    /// A setting was refused that the pipelined transfer command depends on. The session is
    /// abandoned: reopen it without pipelining and plan again.
    RetryWithoutPipelining,
}

/// Result of a pipeline.
#[derive(Debug, Default)]
pub struct PipelineResult {
    /// Where the server listens, if it was asked.
    pub(crate) passive_addresses: Option<StripeAddresses>,
    /// Set when a refusal requires another plan.
    pub(crate) replan: Option<PreparationResult>,
}

impl ClientSession {
    /// Whether commands can be pipelined behind the transfer command of `spec`
    /// ([`ClientSession::pipeline_followups`]). Not with chunks, where the next chunk's command
    /// follows; and not with SBUF during the transfer, whose reply could not be distinguished from theirs.
    pub fn can_pipeline_followups(&self, spec: &TransferSpec) -> bool {
        self.planner.supports_pipelining()
            && spec.chunks.is_none()
            && spec.options.buffers.sizing != BufferSizing::Drs1
    }

    /// Pipelines `followups` behind the transfer command of `spec`, which comes next, where
    /// possible. Their replies follow the end of the transfer. Each must be a command that
    /// [`ClientSession::stat`] or [`ClientSession::checksum`] will send afterwards, in this order.
    pub fn pipeline_followups(&mut self, spec: &TransferSpec, followups: Vec<Command>) {
        self.followup_commands = match self.can_pipeline_followups(spec) {
            true => followups,
            false => Vec::new(),
        };
    }

    /// Discards what [`ClientSession::pipeline_followups`] was given, for a transfer that did not begin.
    pub fn discard_followups(&mut self) {
        self.followup_commands.clear();
    }

    /// Carries out the steps up to and including the transfer command.
    pub async fn prepare_transfer(
        &mut self,
        requirements: &TransferRequirements,
        local_end: &LocalDataEnd,
        operation: &Operation,
        warnings: &mut Vec<String>,
    ) -> Result<PreparationResult, Failure> {
        let mut alternative = None;
        // Added here, so that no transfer can begin without the protection of its session.
        let purpose = DataPurpose::of(&requirements.command);
        let requirements = &TransferRequirements {
            protection: self.agree_data_protection(purpose).await?,
            ..requirements.clone()
        };
        if local_end.is_large {
            self.enter_for_stripes(requirements).await?;
        }
        let striped = local_end.is_large && self.may_use_stripes(requirements);
        self.ask_for_stripes(striped && requirements.server_listens);
        let mut pipelines = VecDeque::from(self.planner.pipelined_plan(requirements));
        while let Some(mut pipeline) = pipelines.pop_front() {
            let mut local_addresses = None;
            let sizing = requirements.buffer_sizing.unwrap_or_default();
            let mut connect = pipeline.iter().position(|step| *step == PlanStep::Connect);
            if let Some(at) = connect
                && striped
            {
                // A server without the credential that its data nodes are to show names none of them.
                if pipeline.iter().any(gives_credential) {
                    pipelines.push_front(pipeline.split_off(at));
                    connect = None;
                } else {
                    self.learn_stripes().await?;
                }
            }
            // The listener must exist before PORT names its address.
            if connect.is_some() {
                let striped = striped && self.has_stripes();
                self.ask_for_stripes(striped);
                let options = local_end.agreed_options(self.planner.agreed_sizing(sizing));
                local_addresses =
                    Some(self.listen_for_data(local_end.ports, options.buffers, striped)?);
            }
            let result = self
                .send_pipeline(&pipeline, local_addresses.as_ref(), operation, warnings)
                .await?;
            if self.take_refused_privacy() {
                let again = self.prepare_transfer(requirements, local_end, operation, warnings);
                // Boxed: an async function cannot contain itself. Once, since it is not asked for again.
                return Box::pin(again).await;
            }
            if let Some(replan) = result.replan {
                return Ok(replan);
            }
            if let Some(announced) = &result.passive_addresses {
                alternative = self.prepare_data_connections(announced, warnings);
                // Commands may follow that wait for their replies, and some servers accept the connection before they
                // read a command.
                if requirements.mode == TransferMode::Stream
                    && let Some(channel) = &mut self.data_channel
                {
                    let sizing = self.planner.agreed_sizing(sizing);
                    channel.begin_connection(&local_end.agreed_options(sizing));
                }
            }
            if local_addresses.or(result.passive_addresses).is_some() {
                self.planner.on_address_given(requirements);
            }
        }
        Ok(PreparationResult::Ready { alternative })
    }

    /// Sends a pipeline and evaluates the replies to all of its commands except a transfer command
    /// at its end. [`PlanStep::Connect`] tells the server to connect to `local_addresses`.
    pub async fn send_pipeline(
        &mut self,
        pipeline: &[PlanStep],
        local_addresses: Option<&StripeAddresses>,
        operation: &Operation,
        warnings: &mut Vec<String>,
    ) -> Result<PipelineResult, Failure> {
        let (steps, commands): (Vec<&PlanStep>, Vec<Command>) = pipeline
            .iter()
            .filter_map(|step| Some((step, self.step_command(step, pipeline, local_addresses)?)))
            .unzip();
        let has_transfer = matches!(pipeline.last(), Some(PlanStep::Transfer(_)));
        if commands.is_empty() {
            return Ok(PipelineResult::default());
        }
        let followups = match has_transfer {
            // Prefetched commands belong behind the transfer command only.
            true => std::mem::take(&mut self.followup_commands),
            false => Vec::new(),
        };
        let replies = match &commands[..] {
            // Its reply is told from one to an earlier command.
            [only] if !has_transfer => vec![self.control.call(only).await?],
            _ => {
                self.control
                    .send_pipelined_with_prefetch(&commands, &followups)
                    .await?;
                // The transfer command's replies are read with the data, by the exchange.
                let answered = commands.len() - usize::from(has_transfer);
                self.read_final_replies(answered).await?
            }
        };
        if let Some(ended) = replies.iter().find(|reply| reply.code == 421) {
            return Err(replies::refusal_failure(self.name(), operation, ended));
        }
        let answers: Vec<(&PlanStep, Reply)> = steps.into_iter().zip(replies).collect();
        let result = match has_transfer {
            true if has_fatal_refusal(&answers) => self.abandon_transfer(&answers, operation),
            _ => {
                self.handle_replies(answers, local_addresses, operation, warnings)
                    .await
            }
        };
        if has_transfer && result.is_err() {
            // Nobody would read the data of this transfer, so it must not continue.
            self.control.abandon();
        }
        result
    }

    /// The command of a step; `None` for a step that is left out.
    fn step_command(
        &self,
        step: &PlanStep,
        pipeline: &[PlanStep],
        local_addresses: Option<&StripeAddresses>,
    ) -> Option<Command> {
        match step {
            PlanStep::Set(command, _) | PlanStep::Transfer(command) => Some(command.clone()),
            PlanStep::DrsListen => {
                // DPSV needs the drs policy. In a pipeline its OPTS is not answered yet, so its
                // presence counts.
                let allowed = self.planner.may_listen_for_drs()
                    || pipeline.iter().any(PlanStep::agrees_on_drs_channel);
                allowed.then_some(Command::Dpsv)
            }
            PlanStep::Listen => Some(self.listen_command()),
            PlanStep::Connect => local_addresses.map(|at| self.connect_command(at)),
        }
    }

    /// Reads this many final replies; 421 is the last one.
    async fn read_final_replies(&mut self, count: usize) -> Result<Vec<Reply>, Failure> {
        let mut replies: Vec<Reply> = Vec::with_capacity(count);
        while replies.len() < count && replies.last().is_none_or(|last| last.code != 421) {
            replies.push(self.control.final_reply().await?);
        }
        Ok(replies)
    }

    /// Abandons a session in which a transfer began with wrong settings.
    fn abandon_transfer(
        &mut self,
        answers: &[(&PlanStep, Reply)],
        operation: &Operation,
    ) -> Result<PipelineResult, Failure> {
        self.control.abandon();
        let is_full = |(_, reply): &&(&PlanStep, Reply)| {
            is_refused(reply) && refusal_cause(reply) == RefusalCause::Full
        };
        // A full disk does not change in a new session.
        if let Some((_, reply)) = answers.iter().find(is_full) {
            return Err(replies::refusal_failure(self.name(), operation, reply));
        }
        Ok(PipelineResult {
            passive_addresses: None,
            replan: Some(PreparationResult::RetryWithoutPipelining),
        })
    }

    async fn handle_replies(
        &mut self,
        answers: Vec<(&PlanStep, Reply)>,
        local_addresses: Option<&StripeAddresses>,
        operation: &Operation,
        warnings: &mut Vec<String>,
    ) -> Result<PipelineResult, Failure> {
        let mut result = PipelineResult::default();
        let mut passive = None;
        for (step, reply) in answers {
            match (step, local_addresses) {
                (PlanStep::Set(command, refusal), _) => {
                    let replan =
                        self.handle_setting_reply(command, &reply, *refusal, operation, warnings)?;
                    result.replan = result.replan.or(replan);
                }
                (PlanStep::DrsListen, _) if self.planner.may_listen_for_drs() => {
                    self.handle_dpsv_reply(&reply, warnings);
                }
                (PlanStep::Listen, _) => passive = Some(reply),
                (PlanStep::Connect, Some(local_addresses)) => {
                    self.handle_active_reply(local_addresses, reply).await?;
                }
                (PlanStep::DrsListen | PlanStep::Connect | PlanStep::Transfer(_), _) => {}
            }
        }
        // Last, since a refused PASV sends another command.
        if let Some(reply) = passive.filter(|_| result.replan.is_none()) {
            self.data_channel = None;
            result.passive_addresses = Some(self.handle_listen_reply(reply).await?);
        }
        Ok(result)
    }

    /// Evaluates the reply to a setting; `Some` when its refusal requires another plan.
    fn handle_setting_reply(
        &mut self,
        command: &Command,
        reply: &Reply,
        refusal: RefusalEffect,
        operation: &Operation,
        warnings: &mut Vec<String>,
    ) -> Result<Option<PreparationResult>, Failure> {
        if is_in_force(command, reply) {
            self.planner.on_accepted(command);
            return Ok(None);
        }
        if matches!(
            refusal_cause(reply),
            RefusalCause::Full | RefusalCause::Lost
        ) {
            return Err(replies::refusal_failure(self.name(), operation, reply));
        }
        if self.goes_without_privacy(command) {
            return Ok(None);
        }
        if refusal == RefusalEffect::Fatal
            && let Some(failure) = self.protection_refused_failure(command, reply)
        {
            return Err(failure);
        }
        self.planner.on_refused(command);
        match refusal {
            RefusalEffect::Fatal => {
                let operation = operation.by(command.verb());
                Err(replies::refusal_failure(self.name(), &operation, reply))
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

/// Whether the server gets a credential for data connections by this step.
pub(super) fn gives_credential(step: &PlanStep) -> bool {
    matches!(step, PlanStep::Set(Command::Dcsc(_), _))
}

fn is_refused(reply: &Reply) -> bool {
    !reply.is_success() && !reply.is_intermediate()
}

fn has_fatal_refusal(answers: &[(&PlanStep, Reply)]) -> bool {
    let is_fatal = |(step, reply): &(&PlanStep, Reply)| step.must_succeed() && is_refused(reply);
    answers.iter().any(is_fatal)
}
