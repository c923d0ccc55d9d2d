//! Runs iproute2's `ip`, without a shell.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A failure to read or change routes.
#[derive(Debug, thiserror::Error)]
pub enum EnforceError {
    /// `ip` could not be started.
    #[error("cannot run {program}: {source}; install iproute2")]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// `ip` refused.
    #[error("`{command}` failed: {message}")]
    Refused {
        /// The command as one would type it.
        command: String,
        /// Its standard error.
        message: String,
    },
    /// The answer is not the JSON that iproute2 writes.
    #[error("cannot read the answer to `{command}`: {reason}")]
    Answer {
        /// The command as one would type it.
        command: String,
        /// The fault.
        reason: String,
    },
    /// The state file cannot be read or written.
    #[error("cannot {action} {path}: {source}")]
    State {
        /// The operation that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// `ip` of this machine.
#[derive(Debug, Clone)]
pub struct IpCommand {
    program: PathBuf,
}

impl Default for IpCommand {
    /// Where distributions install it; else by PATH. A service's PATH often lacks the sbin directories.
    fn default() -> Self {
        let places = ["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"];
        let found = places.into_iter().find(|place| Path::new(place).is_file());
        Self {
            program: PathBuf::from(found.unwrap_or("ip")),
        }
    }
}

impl IpCommand {
    /// Another program with the same arguments.
    pub fn at(program: &Path) -> Self {
        Self {
            program: program.to_owned(),
        }
    }

    /// Runs it and returns its standard output.
    ///
    /// # Errors
    /// It cannot be started, or fails.
    pub fn run(&self, args: &[String]) -> Result<String, EnforceError> {
        let output = Command::new(&self.program)
            .args(args)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .map_err(|source| EnforceError::Start {
                program: self.program.clone(),
                source,
            })?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Err(EnforceError::Refused {
                command: shown(args),
                message: message.trim().to_owned(),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs it with `-j -d` and returns what it says.
    pub(super) fn json(&self, args: &[&str]) -> Result<serde_json::Value, EnforceError> {
        let args: Vec<String> = ["-j", "-d"]
            .iter()
            .chain(args)
            .map(|&word| word.to_owned())
            .collect();
        let text = self.run(&args)?;
        // Nothing found is an empty answer in some versions, an empty list in others.
        if text.trim().is_empty() {
            return Ok(serde_json::Value::Array(Vec::new()));
        }
        serde_json::from_str(&text).map_err(|error| EnforceError::Answer {
            command: shown(&args),
            reason: error.to_string(),
        })
    }
}

/// The command as one would type it. No word needs quotes: addresses, names of devices, numbers.
pub(super) fn shown(args: &[String]) -> String {
    format!("ip {}", args.join(" "))
}
