//! globus-url-copy (Grid Community Toolkit).

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{client_command, find_installed};
use crate::matrix::TestStore;
use crate::pki::environment::GridEnvironment;
use crate::run::{self, FinishedProgram};
use crate::tiny_disk;

/// The options by which it chooses how data connections are protected: first with one stream, the last four
/// with four streams.
pub const GSI_PROTECTION: [&[&str]; 9] = [
    &[],
    &["-nodcau"],
    &["-dcsafe"],
    &["-dcpriv"],
    &["-data-cred", "auto"],
    &["-p", "4"],
    &["-dcpriv", "-p", "4"],
    &["-dcsafe", "-p", "4"],
    &["-fast", "-dcpriv", "-p", "4"],
];

/// globus-url-copy as a client.
#[derive(Debug, Clone)]
pub struct GlobusUrlCopy {
    program: PathBuf,
    environment: GridEnvironment,
    /// The command that runs the program where another file stands for [`SSH_SCRIPT`].
    wrapper: Vec<String>,
}

/// The script by which it starts ssh.
const SSH_SCRIPT: &str = "/usr/share/globus/gridftp-ssh";

impl GlobusUrlCopy {
    /// Finds the program.
    pub fn find() -> Result<Self, String> {
        Ok(Self {
            program: find_installed("globus-url-copy")?,
            environment: GridEnvironment::default(),
            wrapper: Vec::new(),
        })
    }

    /// The same client with these credentials.
    #[must_use]
    pub fn with(&self, environment: GridEnvironment) -> Self {
        Self {
            environment,
            ..self.clone()
        }
    }

    /// The same client, which runs this command for ssh. The name of its script is fixed, and the settings of the user's ssh
    /// are not the test's.
    pub fn through(&self, ssh: &str, store: &TestStore) -> Result<Self> {
        let script = std::fs::read_to_string(SSH_SCRIPT).context(SSH_SCRIPT)?;
        let script = script.replace("exec /usr/bin/ssh ", &format!("exec {ssh} "));
        let own = store.scratch().file("gridftp-ssh", script.as_bytes())?;
        std::fs::set_permissions(&own, PermissionsExt::from_mode(0o755))?;
        let mount = format!(
            "mount --bind '{}' {SSH_SCRIPT} && exec \"$@\"",
            own.display()
        );
        let words = tiny_disk::namespace().iter().copied();
        let words = words.chain(["sh", "-c", &mount, "sh"]);
        Ok(Self {
            wrapper: words.map(str::to_owned).collect(),
            ..self.clone()
        })
    }

    /// A command that prints the control connection on standard error, still without other arguments.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = match self.wrapper.split_first() {
            None => client_command(&self.program),
            Some((first, rest)) => {
                let mut command = client_command(Path::new(first));
                command.args(rest).arg(&self.program);
                command
            }
        };
        self.environment.apply(&mut command);
        command.arg("-dbg");
        command
    }

    /// Copies with these options. An error contains the control connection.
    pub fn copy<S: AsRef<OsStr>>(
        &self,
        options: &[S],
        from: &str,
        to: &str,
    ) -> Result<FinishedProgram> {
        run::run(self.command().args(options).args([from, to]))?.expect_success()
    }
}

/// The `file:` URL of a local path.
#[must_use]
pub fn file_url(path: &Path) -> String {
    format!("file://{}", path.display())
}
