//! Outcomes of work, told to the machine.

use std::sync::Arc;

use data::channel::Channel;
use data::drs;
use proto::drs::DrsAddress;
use proto::ranges::RangeSet;
use proto::server::{FileError, FileErrorKind, Outcome, Progress};
use proto::stripes::StripeAddresses;
use tokio::time::Instant;

use super::{Driver, End, Who, record};
use crate::data_address::told;
use crate::transfer::{Admitted, Ended, Event, Seen, seconds_since_1970};
use crate::work::{Step, Work};

impl Driver {
    pub(super) fn on_step(&mut self, step: Step) -> Result<(), End> {
        let outcome = match step {
            Step::Summed(bytes) => Outcome::ChecksumProgress {
                now: seconds_since_1970(),
                bytes,
            },
            Step::Transfer(seen) => return self.on_transfer(seen),
            Step::Admitted(admitted) => match *admitted {
                Admitted::Begin(request, place) => {
                    self.work = self.transfer(*request, place);
                    return Ok(());
                }
                Admitted::Refused(error) => self.done(Outcome::Transferred(Err(error))),
            },
            Step::Known(outcome) => self.done(outcome),
            Step::File(answer, share) => {
                self.reply_share = share;
                self.on_renamed(answer.is_ok());
                self.done(Outcome::File(answer))
            }
            Step::Listen(made) => {
                let made = made.and_then(|channel| self.keep_listener(channel));
                self.done(Outcome::Listening(made))
            }
            Step::ListenDrs(made) => {
                let told = made.map(|endpoint| self.keep_drs(endpoint));
                self.done(Outcome::DrsListening(told))
            }
            Step::Login(Ok(login)) => {
                let grant = login.grant.clone();
                tracing::info!(user = %grant.user, "logged in");
                self.who = Who::User(Box::new(login));
                self.control.trust();
                self.done(Outcome::Login(Ok(grant)))
            }
            Step::Login(Err(refusal)) if refusal.ends_session() => {
                return Err(self.farewell(&refusal.to_string()));
            }
            Step::Login(Err(refusal)) => self.done(Outcome::Login(Err(refusal.to_string()))),
        };
        self.report(outcome);
        Ok(())
    }

    /// The work is over: the clock of idleness begins again.
    fn done(&mut self, outcome: Outcome) -> Outcome {
        self.work = Work::None;
        self.active = Instant::now();
        outcome
    }

    fn keep_listener(&mut self, channel: Channel) -> Result<StripeAddresses, FileError> {
        let address = channel.local_addr().ok_or_else(|| FileError {
            kind: FileErrorKind::Other,
            errno: None,
            text: "no listener".to_owned(),
        })?;
        self.channel = Some(channel);
        let told = told(address, self.shared.config.public_address);
        Ok(StripeAddresses::only(told))
    }

    /// The address to tell is the one that data connections are told.
    fn keep_drs(&mut self, endpoint: drs::Endpoint) -> DrsAddress {
        let address = endpoint.address();
        self.drs = Some(Arc::new(endpoint));
        DrsAddress {
            at: told(address.at, self.shared.config.public_address),
            ..address
        }
    }

    pub(super) fn on_transfer(&mut self, seen: Seen) -> Result<(), End> {
        match seen {
            Seen::Tick(progress) => self.report(Outcome::Progress(progress)),
            Seen::Resized(bytes) => self.report(Outcome::Resized(bytes)),
            Seen::Event(Event::Listening(Ok(addresses))) => {
                self.report(Outcome::Listening(Ok(addresses)));
            }
            Seen::Event(Event::Listening(Err(error))) => {
                let outcome = self.done(Outcome::Listening(Err(error)));
                self.report(outcome);
            }
            Seen::Event(Event::Opened {
                reused,
                unique_name,
            }) => {
                self.report(Outcome::Opened {
                    reused,
                    unique_name,
                });
                self.report(Outcome::Progress(nothing_moved()));
            }
            Seen::Event(Event::Ended(ended)) => self.on_transferred(*ended),
            Seen::Lost => return Err(self.farewell("internal error")),
        }
        Ok(())
    }

    /// Tells the machine, and carries out what it answers.
    fn report(&mut self, outcome: Outcome) {
        let actions = self.machine.on_outcome(outcome);
        self.carry_out(actions);
    }

    fn on_transferred(&mut self, ended: Ended) {
        let Ended {
            result,
            last,
            channel,
            summary,
        } = ended;
        self.channel = channel;
        self.transferred = true;
        if result.is_err() {
            // The last 111 must tell everything that is safe.
            self.report(Outcome::Progress(last));
        }
        let error = result.as_ref().err().map(record::describe);
        let outcome = self.done(Outcome::Transferred(result));
        let actions = self.machine.on_outcome(outcome);
        self.record(summary, record::final_code(&actions), error);
        self.carry_out(actions);
    }
}

fn nothing_moved() -> Progress {
    Progress {
        now: seconds_since_1970(),
        bytes: 0,
        stored: RangeSet::new(),
    }
}
