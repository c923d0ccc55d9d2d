//! A digest as a mail, handed to a program with the options of sendmail(8), which knows the way to the readers.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::anomaly::AnomalyBatch;
use super::{NotifyError, SendFailure, SendRetry};
use crate::config::MailConfig;
use crate::program::{ProgramCall, ProgramError, find_program};

/// Status of a program that failed for a reason that passes (EX_TEMPFAIL of sysexits(3)).
const TRY_AGAIN: i32 = 75;
/// Standard output of the program, bytes: it has nothing to say there.
const MAX_OUTPUT: usize = 64 << 10;

/// The program that sends mail is not on this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{program}: no such program")]
pub struct NoMailProgram {
    /// The program of the settings.
    pub program: String,
}

/// Sends digests to the readers.
#[derive(Debug)]
pub struct Mailer {
    program: PathBuf,
    config: MailConfig,
    time_limit: Duration,
    retry: SendRetry,
}

impl Mailer {
    /// Finds the program, which is killed if it takes longer than the time limit.
    ///
    /// # Errors
    /// There is no such program.
    pub fn new(
        config: &MailConfig,
        time_limit: Duration,
        retry: SendRetry,
    ) -> Result<Self, NoMailProgram> {
        let program = find_program(&config.program).ok_or_else(|| NoMailProgram {
            program: config.program.clone(),
        })?;
        Ok(Self {
            program,
            config: config.clone(),
            time_limit,
            retry,
        })
    }

    /// Sends a digest. Blocks for the time of all attempts.
    ///
    /// # Errors
    /// No attempt succeeded, or the program refused.
    pub fn send(&self, host: &str, batch: &AnomalyBatch) -> Result<(), NotifyError> {
        let message = self.message(host, batch);
        let readers = self.readers(", ");
        self.retry.run(&readers, || self.attempt(&message))
    }

    fn readers(&self, separator: &str) -> String {
        let readers: Vec<String> = self.config.to.iter().map(ToString::to_string).collect();
        readers.join(separator)
    }

    /// The message of RFC 5322, with the line ends of this system. What is missing the program adds: Date, Message-ID,
    /// and From where the settings have no sender.
    fn message(&self, host: &str, batch: &AnomalyBatch) -> String {
        let from = self.config.from.as_ref();
        let from = from.map_or_else(String::new, |from| format!("From: {from}\n"));
        // A line end in the subject would begin another field.
        let subject = batch.subject(host).replace(char::is_control, " ");
        // RFC 3834: nobody's automatic answer is wanted.
        format!(
            "{from}To: {}\nSubject: {subject}\nAuto-Submitted: auto-generated\nMIME-Version: 1.0\n\
             Content-Type: text/plain; charset=utf-8\n\n{}",
            self.readers(",\n "),
            batch.to_text()
        )
    }

    fn attempt(&self, message: &str) -> Result<(), SendFailure> {
        // The readers are those of the message, and a line with a dot does not end it.
        let mut arguments: Vec<OsString> = vec!["-i".into(), "-t".into()];
        if let Some(from) = &self.config.from {
            arguments.extend(["-f".into(), from.to_string().into()]);
        }
        let call = ProgramCall {
            program: &self.program,
            arguments,
            input: message.as_bytes(),
            time_limit: self.time_limit,
            max_output: MAX_OUTPUT,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| SendFailure::Passing(error.to_string()))?;
        let reason = |error: ProgramError| format!("{} {error}", self.program.display());
        match runtime.block_on(call.run()) {
            Ok(ran) if ran.status.success() => Ok(()),
            Ok(ran) if ran.status.code() == Some(TRY_AGAIN) => {
                Err(SendFailure::Passing(ran.complaint()))
            }
            Ok(ran) => Err(SendFailure::Lasting(ran.complaint())),
            Err(error @ ProgramError::Start(_)) => Err(SendFailure::Passing(reason(error))),
            // The mail may be on its way: another attempt could double it.
            Err(error) => Err(SendFailure::Lasting(reason(error))),
        }
    }
}
