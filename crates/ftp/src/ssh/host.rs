//! A host as the user's ssh_config(5) describes it, and the command that reaches it.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::SshTarget;
use super::carrier::{HostChannels, MAX_LOGINS};
use super::ports::{OpenPorts, PortSearch};
use crate::Failure;

/// For how long the login outlives its last session, seconds: between two sessions of a run, and after a run that was killed.
const LOGIN_SECONDS: u32 = 30;

/// Interval of questions to a silent far end, seconds. Three without an answer end the login (ssh_config(5)).
const ALIVE_SECONDS: u32 = 20;

/// Whose login a channel uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SshLogin {
    /// The one that the sessions of a run share.
    Shared,
    /// One of its own, with a connection of its own. Nobody is asked for anything.
    Own,
}

/// A program at the far end, and how it is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SshRun {
    /// A command for the login shell.
    Command(String),
    /// A subsystem (RFC 4254 §6.5).
    Subsystem(&'static str),
}

/// A host, and the login there.
#[derive(Debug)]
pub(crate) struct SshHost {
    /// The program and its first arguments.
    program: Vec<String>,
    settings: HostSettings,
    /// The socket of the login that sessions share; `None`: the user's configuration names one.
    control: Option<PathBuf>,
    /// Held during a login, which the sessions that wait for it share.
    pub(super) login: Arc<tokio::sync::Mutex<()>>,
    /// Which ports are open.
    pub(super) ports: watch::Sender<PortSearch>,
    /// Its channels.
    pub(super) channels: Mutex<HostChannels>,
    /// The end of the attempt of this run to put longhaul there. Held during it.
    pub(super) installation: tokio::sync::Mutex<Option<Result<(), Failure>>>,
}

/// The answers of `ssh -G` about a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct HostSettings {
    hostname: String,
    /// No other host is on the way.
    is_direct: bool,
    /// The user's configuration shares logins.
    shares_logins: bool,
    /// The user's configuration notices a connection that is dead.
    notices_death: bool,
}

impl HostSettings {
    fn parse(text: &str) -> Self {
        let value = |key: &str| {
            text.lines().find_map(|line| {
                let (name, value) = line.split_once(' ')?;
                name.eq_ignore_ascii_case(key).then_some(value)
            })
        };
        let is_set = |key| value(key).is_some_and(|value| value != "none");
        Self {
            hostname: value("hostname").unwrap_or_default().to_owned(),
            is_direct: !is_set("proxyjump") && !is_set("proxycommand"),
            // With `yes` each session is a login of its own.
            shares_logins: is_set("controlpath")
                && value("controlmaster").is_some_and(|value| value.starts_with("auto")),
            notices_death: value("serveraliveinterval").is_some_and(|value| value != "0"),
        }
    }
}

impl SshHost {
    /// Asks ssh for its settings of a server. Blocks for a moment.
    ///
    /// # Errors
    /// `Local`: there is no ssh; `Usage`: it refuses its configuration, or the name.
    pub(super) fn find(
        program: Vec<String>,
        target: &SshTarget,
        control: PathBuf,
    ) -> Result<Self, Failure> {
        let mut host = Self {
            program,
            settings: HostSettings::default(),
            control: Some(control),
            login: Arc::default(),
            ports: watch::Sender::new(PortSearch::Pending),
            channels: Mutex::default(),
            installation: tokio::sync::Mutex::default(),
        };
        let mut question = host.ssh();
        question.arg("-G").args(arguments_of(target));
        let answer = question
            .stdin(Stdio::null())
            .output()
            .map_err(|error| super::words::not_started(&question, &error))?;
        if !answer.status.success() {
            return Err(Failure::usage(format!(
                "ssh refuses {target}: {}",
                super::words::last_line(&answer.stderr)
            )));
        }
        host.settings = HostSettings::parse(&String::from_utf8_lossy(&answer.stdout));
        if host.settings.shares_logins {
            host.control = None;
        }
        Ok(host)
    }

    fn ssh(&self) -> Command {
        self.ssh_with(&[])
    }

    /// ssh with these options, which come before the user's: the first value counts (ssh_config(5)).
    fn ssh_with(&self, first: &[&str]) -> Command {
        let (program, arguments) = match self.program.split_first() {
            Some((program, arguments)) => (program.as_str(), arguments),
            None => ("ssh", [].as_slice()),
        };
        let mut command = Command::new(program);
        command.args(first).args(arguments);
        command
    }

    /// Whether there is a login that sessions share.
    pub(super) fn is_logged_in(&self) -> bool {
        let Some(control) = &self.control else {
            // The user's own configuration sees to it.
            return false;
        };
        UnixStream::connect(control).is_ok()
    }

    /// Ends the search for open ports with this result, unless it has ended. Returns the result that counts.
    pub(super) fn end_search(&self, found: OpenPorts) -> OpenPorts {
        let mut counts = found;
        self.ports.send_if_modified(|search| {
            if let PortSearch::Done(known) = search {
                counts = *known;
                return false;
            }
            *search = PortSearch::Done(found);
            true
        });
        counts
    }

    /// Whether no port there can be reached: ssh carries the data connections.
    pub(super) fn carries_data(&self) -> bool {
        matches!(&*self.ports.borrow(), PortSearch::Done(found) if !found.far)
    }

    /// The command of a channel; `is_further`: it shares a login that there is.
    pub(super) fn command(
        &self,
        target: &SshTarget,
        is_further: bool,
        connect_time: Duration,
        run: SshRun,
    ) -> Command {
        let mut command = match is_further {
            // Where the login takes no more sessions, ssh would log in once more, and ask once more.
            true => self.ssh_with(&["-oProxyCommand=false", "-oBatchMode=yes"]),
            false => self.ssh(),
        };
        if let Some(control) = &self.control {
            share_login(&mut command, control);
        }
        if !may_ask() {
            command.arg("-oBatchMode=yes");
        }
        self.complete(&mut command, target, connect_time, run);
        command
    }

    /// The command of a data connection over the shared login. Where that takes no more channels (MaxSessions in sshd_config(5)), ssh logs
    /// in once more, for this connection alone, if nobody is asked for anything.
    pub(super) fn command_of_data(
        &self,
        target: &SshTarget,
        connect_time: Duration,
        run: SshRun,
    ) -> Command {
        let mut command = self.ssh_with(&["-oControlMaster=no", "-oBatchMode=yes"]);
        if let Some(control) = &self.control {
            share_login(&mut command, control);
        }
        self.complete(&mut command, target, connect_time, run);
        command
    }

    /// The command of a channel over a login of its own, at which nobody is asked for anything. One with a number stays for a
    /// while, for the next channel of that number.
    pub(super) fn command_with_login(
        &self,
        target: &SshTarget,
        connect_time: Duration,
        run: SshRun,
        number: Option<usize>,
    ) -> Command {
        let mut command = match number.and_then(|number| self.further_control(number)) {
            Some(control) => {
                let mut command = self.ssh_with(&["-oBatchMode=yes"]);
                share_login(&mut command, &control);
                command
            }
            None => self.ssh_with(&["-oControlPath=none", "-oBatchMode=yes"]),
        };
        self.complete(&mut command, target, connect_time, run);
        command
    }

    /// The socket of a further login.
    fn further_control(&self, number: usize) -> Option<PathBuf> {
        let control = self.control.as_ref()?;
        Some(control.with_extension(number.to_string()))
    }

    fn complete(
        &self,
        command: &mut Command,
        target: &SshTarget,
        connect_time: Duration,
        run: SshRun,
    ) {
        command.arg("-oRemoteCommand=none");
        command.arg(format!(
            "-oConnectTimeout={}",
            connect_time.as_secs().max(1)
        ));
        // No terminal, no windows and no agent for the far end.
        command.args([
            "-T",
            "-x",
            "-a",
            "-oClearAllForwardings=yes",
            "-oPermitLocalCommand=no",
            // Why it fails is known by its words alone.
            "-oLogLevel=INFO",
        ]);
        if !self.settings.notices_death {
            // Otherwise a login over a network that has gone away would stay for a quarter of an hour.
            command.arg(format!("-oServerAliveInterval={ALIVE_SECONDS}"));
        }
        if let SshRun::Subsystem(_) = run {
            command.arg("-s");
        }
        command.args(arguments_of(target));
        match run {
            SshRun::Command(text) => command.arg(text),
            SshRun::Subsystem(name) => command.arg(name),
        };
    }

    /// Ends the logins.
    pub(super) fn log_out(&self, target: &SshTarget) {
        let further = (0..MAX_LOGINS).filter_map(|number| self.further_control(number));
        let controls = further.chain(self.control.clone());
        for control in controls.filter(|path| path.exists()) {
            let mut command = self.ssh();
            command.arg(format!("-oControlPath={}", control.display()));
            command.args(["-O", "exit"]).args(arguments_of(target));
            command.stdin(Stdio::null()).stdout(Stdio::null());
            // It ends by itself a little later.
            let _ = command.stderr(Stdio::null()).status();
        }
    }

    /// The host's name for this machine; `None`: another host is on the way.
    pub(super) fn direct_name(&self) -> Option<String> {
        self.settings
            .is_direct
            .then(|| self.settings.hostname.clone())
    }
}

/// Options for a login that the next channels share.
fn share_login(command: &mut Command, control: &Path) {
    command.arg("-oControlMaster=auto");
    command.arg(format!("-oControlPersist={LOGIN_SECONDS}"));
    command.arg(format!("-oControlPath={}", control.display()));
}

/// Whether ssh can ask somebody: at the terminal, or by a program of the user's.
pub(super) fn may_ask() -> bool {
    std::env::var_os("SSH_ASKPASS").is_some() || File::open("/dev/tty").is_ok()
}

/// The arguments that name a target.
fn arguments_of(target: &SshTarget) -> Vec<String> {
    let port = target.port.map(|port| format!("-p{port}"));
    let user = target.user.as_ref().map(|user| format!("-l{user}"));
    let mut arguments: Vec<String> = port.into_iter().chain(user).collect();
    arguments.extend(["--".to_owned(), target.host.clone()]);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_of_a_host_are_those_of_ssh() {
        let direct =
            "host h\nhostname h.example.org\nport 22\ncontrolmaster false\nproxyjump none\n";
        assert_eq!(
            HostSettings::parse(direct),
            HostSettings {
                hostname: "h.example.org".to_owned(),
                is_direct: true,
                shares_logins: false,
                notices_death: false,
            }
        );
        let behind = "hostname 10.0.0.1\nproxyjump gate\ncontrolmaster auto\ncontrolpath /c/%C\nserveraliveinterval 9\n";
        let behind = HostSettings::parse(behind);
        assert!(!behind.is_direct && behind.shares_logins && behind.notices_death);
    }

    #[test]
    fn the_first_result_of_a_search_counts() {
        let target = SshTarget {
            host: "h".to_owned(),
            port: None,
            user: None,
        };
        let program = vec!["true".to_owned()];
        let host = SshHost::find(program, &target, PathBuf::from("/nonexistent")).unwrap();
        let closed = OpenPorts {
            far: false,
            near: false,
        };
        let open = OpenPorts {
            far: true,
            ..closed
        };
        assert!(!host.carries_data());
        assert_eq!(host.end_search(closed), closed);
        assert_eq!(host.end_search(open), closed);
        assert!(host.carries_data());
    }
}
