//! The commands of a logged-in session, one line each, and the outcomes of its work.

use super::parameters::{dcau, language, prot, structure};
use super::replies::{self, Step};
use super::state::{LoggedIn, Pending};
use super::{Action, Outcome, SessionConfig};
use crate::command::{Command, Mode, Type};
use crate::marker::checksum_reply;
use crate::reply::Reply;
use crate::stripes::StripeAddresses;

impl LoggedIn {
    /// A command while nothing is pending.
    pub(super) fn on_command(&mut self, config: &SessionConfig, command: Command) -> Vec<Action> {
        self.on_file_command(config, command)
            .unwrap_or_else(|refusal| refusal)
    }

    /// Commands with a path; the error is a refusal of the path or its restart marker.
    fn on_file_command(&mut self, config: &SessionConfig, command: Command) -> Step {
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
            Command::Eret(part, path) => self.retr("ERET", Some(part), &path),
            Command::Stor(path) => self.stor(&path),
            Command::Appe(path) => self.appe(&path),
            Command::Stou(path) => self.stou(path.as_deref()),
            Command::Esto(offset, path) => self.esto(offset, &path),
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

    /// Commands without a path.
    fn on_parameter_command(&mut self, config: &SessionConfig, command: Command) -> Vec<Action> {
        match command {
            Command::Cdup => self.cdup(),
            Command::Pwd => self.pwd(),
            Command::Syst => replies::reply(215, "UNIX Type: L8"),
            Command::Stat(_) => vec![Action::Reply(self.status(config))],
            Command::Acct(_) => replies::reply(202, "ACCT is not needed here."),
            Command::Abor => replies::reply(226, "Abort successful"),
            Command::Lang(tag) => language(tag.as_deref()),
            Command::Opts(opts) => self.opts(config, opts),
            Command::Type(type_) => self.set_type(type_),
            Command::Mode(mode) => self.set_mode(mode),
            Command::Stru(code) => structure(code),
            Command::Rest(restart) => self.rest(restart),
            Command::Allo(bytes) => self.allo(bytes),
            Command::Sbuf(bytes) => self.sbuf(bytes),
            Command::Dcau(mode) => dcau(&mode),
            Command::Pbsz(size) => replies::reply(200, format!("PBSZ={size}")),
            Command::Prot(level) => prot(level),
            Command::Pasv => self.pasv(),
            Command::Epsv(argument) => self.epsv(argument),
            Command::Spas(argument) => self.spas(argument),
            Command::Port(address) => self.port("PORT", StripeAddresses::only(address)),
            Command::Eprt(address) => self.port("EPRT", StripeAddresses::only(address)),
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
        let type_ = match self.settings.type_ {
            Type::Ascii => "A",
            Type::Image => "I",
        };
        let mode = match self.settings.mode {
            Mode::Stream => "S",
            Mode::Extended => "E",
        };
        let lines = vec![
            format!("Version: {}", config.version).into_bytes(),
            format!("Logged in as {}", self.user).into_bytes(),
            format!("TYPE {type_}, MODE {mode}, STRU F").into_bytes(),
            format!("Parallelism {}", self.settings.parallelism.start).into_bytes(),
        ];
        Reply::data(211, "Server status:", lines, "End.")
    }

    /// Takes what the driver reports; an outcome that nothing waits for changes nothing.
    pub(super) fn on_outcome(&mut self, outcome: Outcome) -> Vec<Action> {
        match (std::mem::take(&mut self.pending), outcome) {
            (Pending::File(task), Outcome::File(answer)) => self.on_file(*task, answer),
            (Pending::File(task), Outcome::ChecksumProgress { now, bytes }) => {
                self.pending = Pending::File(task);
                vec![Action::Reply(checksum_reply(now, bytes))]
            }
            (Pending::Listen(form), Outcome::Listening(addresses)) => {
                self.on_listening(form, addresses)
            }
            (Pending::ListenDrs, Outcome::DrsListening(address)) => self.on_drs_listening(address),
            (Pending::Transfer(running), outcome) => self.on_running(running, outcome),
            (pending, _) => {
                self.pending = pending;
                Vec::new()
            }
        }
    }
}
