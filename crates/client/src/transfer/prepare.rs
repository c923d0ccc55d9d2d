//! The steps before a transfer with one server, as the planner gives them: flight by flight.

use proto::client::{Need, Refusal, Step};
use proto::command::{Command, Opts};
use proto::reply::Reply;
use proto::sizing::Buffers;
use proto::sizing::Sizing;
use proto::stripes::StripeAddresses;

use super::TransferSpec;
use crate::Failure;
use crate::session::Session;
use crate::session::passive::active_command;
use crate::session::replies::{self, Cause, cause};

/// Contribution of this end to a data address.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ends {
    /// Ports to listen on.
    pub(crate) ports: Option<(u16, u16)>,
    /// The connections' socket buffers.
    pub(crate) buffers: Buffers,
}

/// How the steps before a transfer went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Prepared {
    /// The transfer command is sent.
    Ready {
        /// Where to connect if the told addresses do not answer.
        alternative: Option<StripeAddresses>,
    },
    /// MODE E was refused: plan again in MODE S.
    StreamMode,
    /// REST was refused: plan again from the first byte.
    StartOver,
    /// Something was refused that had to be in force when the transfer command behind it came. The
    /// session is given up: begin it carefully and plan again.
    Carefully,
}

/// How a flight went.
#[derive(Debug, Default)]
pub(crate) struct Flown {
    /// Where the server listens, if it was asked.
    pub(crate) told: Option<StripeAddresses>,
    /// A refusal that asks for another plan.
    pub(crate) again: Option<Prepared>,
}

impl Session {
    /// Whether questions can go out behind the transfer command of `spec` ([`Session::then_ask`]). Not
    /// in chunks, where the next one's command follows; and not where SBUF is sent in between, whose
    /// answer nothing would tell from theirs.
    pub(crate) fn asks_ahead(&self, spec: &TransferSpec) -> bool {
        self.dialogue.takes_ahead()
            && spec.chunks.is_none()
            && spec.options.buffers.sizing != Sizing::Drs1
    }

    /// Has `questions` asked together with the transfer command of `spec`, which comes next, where that
    /// can be: their answers come with the transfer's end. Each must be a command that
    /// [`Session::stat`] or [`Session::checksum`] is to send afterwards, in this order.
    pub(crate) fn then_ask(&mut self, spec: &TransferSpec, questions: Vec<Command>) {
        self.then = match self.asks_ahead(spec) {
            true => questions,
            false => Vec::new(),
        };
    }

    /// Carries out the steps up to and including the transfer command.
    pub(crate) async fn prepare(
        &mut self,
        need: &Need,
        ends: &Ends,
        doing: &str,
        warnings: &mut Vec<String>,
    ) -> Result<Prepared, Failure> {
        let mut alternative = None;
        for flight in self.dialogue.flights(need) {
            let mut here = None;
            if flight.contains(&Step::Connect) {
                let sizing = self.dialogue.agreed(need.sizing.unwrap_or_default());
                here = Some(self.listen(ends.ports, ends.buffers.with_sizing(sizing))?);
            }
            let flown = self.fly(&flight, here.as_ref(), doing, warnings).await?;
            if let Some(other) = flown.again {
                return Ok(other);
            }
            if let Some(told) = &flown.told {
                alternative = self.connect_to(told, warnings);
            }
            if here.or(flown.told).is_some() {
                self.dialogue.address_given(need);
            }
        }
        Ok(Prepared::Ready { alternative })
    }

    /// Sends a flight and takes the answers to all of it but a transfer command at its end.
    /// [`Step::Connect`] tells the server to connect to `here`.
    pub(crate) async fn fly(
        &mut self,
        flight: &[Step],
        here: Option<&StripeAddresses>,
        doing: &str,
        warnings: &mut Vec<String>,
    ) -> Result<Flown, Failure> {
        let (steps, commands): (Vec<&Step>, Vec<Command>) = flight
            .iter()
            .filter_map(|step| Some((step, self.command(step, flight, here)?)))
            .unzip();
        let transfers = matches!(flight.last(), Some(Step::Transfer(_)));
        if commands.is_empty() {
            return Ok(Flown::default());
        }
        let questions = match transfers {
            true => std::mem::take(&mut self.then),
            false => Vec::new(),
        };
        self.control.send_with(&commands, &questions).await?;
        let answered = commands.len() - usize::from(transfers);
        let replies = self.answers(answered, doing).await?;
        let answers: Vec<(&Step, Reply)> = steps.into_iter().zip(replies).collect();
        let flown = match transfers {
            true if refuses_what_decides(&answers) => self.give_up(&answers, doing),
            _ => self.take_answers(answers, here, doing, warnings).await,
        };
        if transfers && flown.is_err() {
            // A transfer that nobody attends to must not go on.
            self.control.abandon();
        }
        flown
    }

    /// The command of a step; `None` for one that is to be left out.
    fn command(
        &self,
        step: &Step,
        flight: &[Step],
        here: Option<&StripeAddresses>,
    ) -> Option<Command> {
        match step {
            Step::Set(command, _) | Step::Transfer(command) => Some(command.clone()),
            Step::DrsListen => {
                let agrees = |other: &Step| matches!(other, Step::Set(c, _) if *c == AGREE);
                let may = self.dialogue.may_listen_for_drs() || flight.iter().any(agrees);
                may.then_some(Command::Dpsv)
            }
            Step::Listen => Some(self.passive_command()),
            Step::Connect => here.map(active_command),
        }
    }

    /// So many final replies; after 421 there are no more.
    async fn answers(&mut self, count: usize, doing: &str) -> Result<Vec<Reply>, Failure> {
        let mut replies = Vec::with_capacity(count);
        while replies.len() < count {
            let reply = self.control.final_reply().await?;
            if reply.code == 421 {
                return Err(replies::refusal(self.name(), doing, &reply));
            }
            replies.push(reply);
        }
        Ok(replies)
    }

    /// The end of a session in which a transfer was begun that is not what was meant.
    fn give_up(&mut self, answers: &[(&Step, Reply)], doing: &str) -> Result<Flown, Failure> {
        self.control.abandon();
        let full = |(_, reply): &&(&Step, Reply)| is_refused(reply) && cause(reply) == Cause::Full;
        if let Some((_, reply)) = answers.iter().find(full) {
            return Err(replies::refusal(self.name(), doing, reply));
        }
        Ok(Flown {
            told: None,
            again: Some(Prepared::Carefully),
        })
    }

    async fn take_answers(
        &mut self,
        answers: Vec<(&Step, Reply)>,
        here: Option<&StripeAddresses>,
        doing: &str,
        warnings: &mut Vec<String>,
    ) -> Result<Flown, Failure> {
        let mut flown = Flown::default();
        let mut passive = None;
        for (step, reply) in answers {
            match (step, here) {
                (Step::Set(command, refusal), _) => {
                    let again = self.take_setting(command, &reply, *refusal, doing, warnings)?;
                    flown.again = flown.again.or(again);
                }
                (Step::DrsListen, _) if self.dialogue.may_listen_for_drs() => {
                    self.take_drs(&reply, warnings);
                }
                (Step::Listen, _) => passive = Some(reply),
                (Step::Connect, Some(here)) => self.take_active(here, reply).await?,
                (Step::DrsListen | Step::Connect | Step::Transfer(_), _) => {}
            }
        }
        // Last, since it may have to ask again.
        if let Some(reply) = passive.filter(|_| flown.again.is_none()) {
            self.channel = None;
            flown.told = Some(self.take_passive(reply).await?);
        }
        Ok(flown)
    }

    /// Takes the answer to a setting; `Some` when its refusal asks for another plan.
    fn take_setting(
        &mut self,
        command: &Command,
        reply: &Reply,
        refusal: Refusal,
        doing: &str,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Prepared>, Failure> {
        if !is_refused(reply) {
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

/// Agreeing on the policy that needs a DRS channel.
const AGREE: Command = Command::Opts(Opts::Sizing(Sizing::Drs));

fn is_refused(reply: &Reply) -> bool {
    !reply.is_success() && !reply.is_intermediate()
}

fn refuses_what_decides(answers: &[(&Step, Reply)]) -> bool {
    let refuses = |(step, reply): &(&Step, Reply)| step.decides() && is_refused(reply);
    answers.iter().any(refuses)
}
