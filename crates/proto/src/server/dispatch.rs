//! Dispatch of the commands and driver events of a logged-in session.

use super::parameters::{lang, stru};
use super::replies::{self, CommandResult};
use super::session_state::{LoggedInSession, PendingTask};
use super::{DriverEvent, SessionAction, SessionConfig};
use crate::command::{Command, DataType, ExtendedRetrieve, ExtendedStore, TransferMode};
use crate::marker::checksum_marker_reply;
use crate::reply::Reply;
use crate::stripes::StripeAddresses;

impl LoggedInSession {
    /// Handles a command while nothing is pending.
    pub(super) fn on_command(
        &mut self,
        config: &SessionConfig,
        command: Command,
    ) -> Vec<SessionAction> {
        self.on_file_command(config, command)
            .unwrap_or_else(|refusal| refusal)
    }

    /// Handles commands with a path. The error holds the reply that refuses the path or restart marker.
    fn on_file_command(&mut self, config: &SessionConfig, command: Command) -> CommandResult {
        match command {
            Command::Cwd(path) => self.cwd(&path),
            Command::Mkd(path) => self.mkd(&path),
            Command::Rmd(path) => self.rmd(&path),
            Command::Dele(path) => self.dele(&path),
            Command::Rnfr(path) => self.rnfr(&path),
            Command::Rnto(path) => self.rnto(&path),
            Command::Size(path) => self.size(&path),
            Command::Mdtm(path) => self.mdtm(&path),
            Command::Mfmt(time, path) => self.mfmt(time, &path),
            Command::Stat(Some(path)) => self.stat_path(&path),
            Command::Mlst(path) => self.mlst(path.as_deref()),
            Command::Mlsc(path) => self.mlsc(path.as_deref()),
            Command::List(path) => self.list(path.as_deref()),
            Command::Nlst(path) => self.nlst(path.as_deref()),
            Command::Mlsd(path) => self.mlsd(path.as_deref()),
            Command::Mlsr(path) => self.mlsr(path.as_deref()),
            Command::Retr(path) => self.retr("RETR", None, &path),
            Command::Eret(ExtendedRetrieve::Partial { offset, length }, path) => {
                self.retr("ERET", Some((offset, length)), &path)
            }
            Command::Eret(ExtendedRetrieve::Bundle { count }, path) => {
                self.retrieve_bundle(count, &path)
            }
            Command::Stor(path) => self.stor(&path),
            Command::Appe(path) => self.appe(&path),
            Command::Stou(path) => self.stou(path.as_deref()),
            Command::Esto(ExtendedStore::Adjusted { offset }, path) => self.esto(offset, &path),
            Command::Esto(ExtendedStore::Bundle { count }, path) => self.store_bundle(count, &path),
            Command::Cksm {
                algorithm,
                offset,
                length,
                path,
            } => self.cksm(algorithm, offset, length, &path),
            Command::Site(site) => self.site(config, site),
            other => Ok(self.on_parameter_command(config, other)),
        }
    }

    /// Handles commands without a path.
    fn on_parameter_command(
        &mut self,
        config: &SessionConfig,
        command: Command,
    ) -> Vec<SessionAction> {
        match command {
            Command::Cdup => self.cdup(),
            Command::Pwd => self.pwd(),
            Command::Syst => replies::reply(215, "UNIX Type: L8"),
            Command::Stat(_) => vec![SessionAction::Reply(self.status(config))],
            Command::Acct(_) => replies::reply(202, "ACCT is not needed here."),
            Command::Abor => replies::reply(226, "Abort successful"),
            Command::Lang(tag) => lang(tag.as_deref()),
            Command::Opts(opts) => self.opts(config, opts),
            Command::Type(type_) => self.set_type(type_),
            Command::Mode(mode) => self.set_mode(mode),
            Command::Stru(code) => stru(code),
            Command::Rest(restart) => self.rest(restart),
            Command::Allo(bytes) => self.allo(bytes),
            Command::Sbuf(bytes) => self.sbuf(bytes),
            Command::Dcsc(credential) => self.dcsc(credential),
            Command::Pasv => self.pasv(),
            Command::Epsv(argument) => self.epsv(argument),
            Command::Spas(argument) => self.spas(argument),
            Command::Port(address) => self.port("PORT", StripeAddresses::single(address)),
            Command::Eprt(address) => self.port("EPRT", StripeAddresses::single(address)),
            Command::Spor(addresses) => self.port("SPOR", addresses),
            Command::Dpsv => self.dpsv(),
            Command::Dprt(address) => self.dprt(address),
            Command::Scks(algorithm, hex) => self.scks(algorithm, hex),
            Command::Trev(event, seconds) => self.trev(event, seconds),
            other => replies::reply(503, format!("{} is not possible now.", other.verb())),
        }
    }

    /// STAT without path: the server's status (RFC 959 §4.1.3).
    fn status(&self, config: &SessionConfig) -> Reply {
        let type_ = match self.parameters.type_ {
            DataType::Ascii => "A",
            DataType::Image => "I",
        };
        let mode = match self.parameters.mode {
            TransferMode::Stream => "S",
            TransferMode::Extended => "E",
        };
        let lines = vec![
            format!("Version: {}", config.version).into_bytes(),
            format!("Logged in as {}", self.user).into_bytes(),
            format!("TYPE {type_}, MODE {mode}, STRU F").into_bytes(),
            format!("Parallelism {}", self.parameters.parallelism.start).into_bytes(),
        ];
        Reply::with_inner_lines(211, "Server status:", lines, "End.")
    }

    /// Handles a driver event. An event that nothing waits for changes nothing.
    pub(super) fn on_driver_event(&mut self, event: DriverEvent) -> Vec<SessionAction> {
        // The pending task is moved out; arms that continue put it back.
        match (std::mem::take(&mut self.pending), event) {
            (PendingTask::File(task), DriverEvent::File(response)) => {
                self.on_file_response(*task, response)
            }
            (PendingTask::File(task), DriverEvent::ChecksumProgress { now, bytes }) => {
                self.pending = PendingTask::File(task);
                vec![SessionAction::Reply(checksum_marker_reply(now, bytes))]
            }
            (PendingTask::Listen(form), DriverEvent::Listening(addresses)) => {
                self.on_listening(form, addresses)
            }
            (PendingTask::ListenDrs, DriverEvent::DrsListening(address)) => {
                self.on_drs_listening(address)
            }
            (PendingTask::DataCredential, DriverEvent::DataCredential(result)) => match result {
                Ok(()) => replies::reply(250, "OK."),
                Err(reason) => replies::reply(500, format!("Credential import failed: {reason}")),
            },
            (PendingTask::Transfer(running), event) => self.on_transfer_event(running, event),
            (pending, _) => {
                self.pending = pending;
                Vec::new()
            }
        }
    }
}
