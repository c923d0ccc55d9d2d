//! Reports outcomes of work to the state machine.

use std::sync::Arc;

use data::channel::SessionDataChannel;
use data::drs;
use proto::drs::DrsAddress;
use proto::ranges::RangeSet;
use proto::server::{
    DriverEvent, FileError, FileErrorKind, LoginFailure, TransferError, TransferProgress,
};
use proto::stripes::StripeAddresses;
use tokio::time::Instant;

use super::{LoginStatus, SessionDriver, SessionEnd, record};
use crate::data_address::advertised_address;
use crate::login::LoginRefusal;
use crate::transfer::{
    AdmissionResult, FinishedTransfer, TransferUpdate, WorkerEvent, seconds_since_1970,
};
use crate::work::{SessionWork, WorkEvent};

impl SessionDriver {
    pub(super) fn on_work_event(&mut self, step: WorkEvent) -> Result<(), SessionEnd> {
        let outcome = match step {
            WorkEvent::ChecksumProgress(bytes) => DriverEvent::ChecksumProgress {
                now: seconds_since_1970(),
                bytes,
            },
            WorkEvent::Transfer(update) => return self.on_transfer_update(update),
            WorkEvent::Admitted(admitted) => match *admitted {
                AdmissionResult::Granted(request, permit) => {
                    self.work = self.start_transfer(*request, permit);
                    return Ok(());
                }
                AdmissionResult::Refused(error) => {
                    // One that was aborted meanwhile was not refused.
                    if let TransferError::File(_) = error {
                        self.shared.metrics.count_refused_transfer();
                    }
                    self.finish_work(DriverEvent::Transferred(Err(error)))
                }
            },
            WorkEvent::Immediate(outcome) => self.finish_work(outcome),
            WorkEvent::File(answer, share) => {
                self.reply_memory = share;
                if let Err(error) = &answer {
                    self.refusals.log_denied_request(error);
                }
                self.on_file_answer(answer.is_ok());
                self.finish_work(DriverEvent::File(answer))
            }
            WorkEvent::Listen(opened) => {
                let opened = opened.and_then(|channel| self.keep_listener(channel));
                self.finish_work(DriverEvent::Listening(opened))
            }
            WorkEvent::ListenDrs(opened) => {
                let advertised = opened.map(|endpoint| self.keep_drs(endpoint));
                self.finish_work(DriverEvent::DrsListening(advertised))
            }
            WorkEvent::Exchange(step) => return self.on_exchange_step(step),
            WorkEvent::Login(Ok(login)) => {
                self.shared.metrics.count_login(true);
                let grant = login.grant.clone();
                tracing::info!(
                    user = %grant.user,
                    identity = self.security.identity().map(tracing::field::display),
                    protocol = %self.security.description(),
                    "logged in"
                );
                // Boxed: a session without a login should not pay for the size of one.
                self.login = LoginStatus::LoggedIn(Box::new(login));
                // A user may pipeline more than a client without a login; see `AFTER_LOGIN`.
                self.control.raise_input_limits();
                self.finish_work(DriverEvent::Login(Ok(grant)))
            }
            WorkEvent::Login(Err(LoginRefusal::PasswordNeeded)) => {
                self.finish_work(DriverEvent::Login(Err(LoginFailure::PasswordNeeded)))
            }
            WorkEvent::Login(Err(refusal)) if refusal.ends_session() => {
                self.shared.metrics.count_login(false);
                return Err(self.close_with_reply(&refusal.to_string()));
            }
            WorkEvent::Login(Err(refusal)) => {
                self.shared.metrics.count_login(false);
                let refusal = LoginFailure::Refused(refusal.to_string());
                self.finish_work(DriverEvent::Login(Err(refusal)))
            }
        };
        self.report_outcome(outcome);
        Ok(())
    }

    /// Ends the work and restarts the idle timeout.
    pub(super) fn finish_work(&mut self, outcome: DriverEvent) -> DriverEvent {
        self.work = SessionWork::None;
        self.last_activity = Instant::now();
        outcome
    }

    fn keep_listener(&mut self, channel: SessionDataChannel) -> Result<StripeAddresses, FileError> {
        let address = channel.local_addr().ok_or_else(|| FileError {
            kind: FileErrorKind::Other,
            errno: None,
            text: "no listener".to_owned(),
        })?;
        self.channel = Some(channel);
        let advertised = advertised_address(address, self.shared.config.public_address);
        Ok(StripeAddresses::single(advertised))
    }

    /// Keeps the DRS endpoint; its address is advertised like those of data connections.
    fn keep_drs(&mut self, endpoint: drs::DrsEndpoint) -> DrsAddress {
        let address = endpoint.address();
        self.drs = Some(Arc::new(endpoint));
        DrsAddress {
            socket: advertised_address(address.socket, self.shared.config.public_address),
            ..address
        }
    }

    pub(super) fn on_transfer_update(&mut self, update: TransferUpdate) -> Result<(), SessionEnd> {
        match update {
            TransferUpdate::Tick(progress) => self.report_outcome(DriverEvent::Progress(progress)),
            TransferUpdate::Resized(bytes) => {
                self.report_outcome(DriverEvent::BufferResized(bytes));
            }
            TransferUpdate::Event(WorkerEvent::Listening(Ok(addresses))) => {
                self.report_outcome(DriverEvent::Listening(Ok(addresses)));
            }
            TransferUpdate::Event(WorkerEvent::Listening(Err(error))) => {
                let outcome = self.finish_work(DriverEvent::Listening(Err(error)));
                self.report_outcome(outcome);
            }
            TransferUpdate::Event(WorkerEvent::Opened {
                reused,
                unique_name,
            }) => {
                self.report_outcome(DriverEvent::Opened {
                    reused,
                    unique_name,
                });
                // The first 112 marker is due at the start of a transfer, before any data.
                self.report_outcome(DriverEvent::Progress(zero_progress()));
            }
            TransferUpdate::Event(WorkerEvent::Ended(ended)) => self.on_transferred(*ended),
            TransferUpdate::WorkerLost => return Err(self.close_with_reply("internal error")),
        }
        Ok(())
    }

    /// Reports an outcome to the state machine and carries out the actions it returns.
    pub(super) fn report_outcome(&mut self, outcome: DriverEvent) {
        let actions = self.machine.on_driver_event(outcome);
        self.run_actions(actions);
    }

    fn on_transferred(&mut self, ended: FinishedTransfer) {
        let FinishedTransfer {
            result,
            last,
            channel,
            summary,
        } = ended;
        // Kept before the outcome is reported: the next command may use its connections at once.
        self.channel = channel;
        self.has_transferred = true;
        if result.is_err() {
            // The last 111 marker must name all bytes that are safe: the client resumes from it.
            self.report_outcome(DriverEvent::Progress(last));
        }
        // Taken here, because the result moves into the outcome.
        let error = result.as_ref().err().map(record::describe);
        let outcome = self.finish_work(DriverEvent::Transferred(result));
        let actions = self.machine.on_driver_event(outcome);
        self.record_transfer(summary, record::final_code(&actions), error);
        self.run_actions(actions);
    }
}

fn zero_progress() -> TransferProgress {
    TransferProgress {
        now: seconds_since_1970(),
        bytes: 0,
        stored: RangeSet::new(),
    }
}
