//! Where the password of a named server is.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use proto::command::Secret;
use zeroize::Zeroizing;

use crate::{Failure, private_file};

/// Longest password file, and longest output of a command, bytes.
const MAX_PASSWORD: u64 = 64 << 10;

/// The source of a password. [`std::fmt::Debug`] does not show the password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PasswordSource {
    /// The password itself.
    Text(Secret),
    /// The value of an environment variable.
    Variable(String),
    /// The first line of a file that nobody else may read.
    File(PathBuf),
    /// The first line that a program prints; the first element is the program.
    Command(Vec<OsString>),
    /// The record of a file in the format of netrc(5).
    Netrc(PathBuf),
}

impl PasswordSource {
    /// The password. A source that is named must have one.
    ///
    /// # Errors
    /// `Refused`: the source cannot be used.
    pub(crate) fn read(&self) -> Result<Secret, Failure> {
        let refused = |problem: String| Err(Failure::refused(problem));
        let (bytes, source) = match self {
            Self::Text(password) => return Ok(password.clone()),
            Self::Variable(name) => match std::env::var(name) {
                Ok(password) => return Ok(Secret::from(password)),
                Err(std::env::VarError::NotPresent) => {
                    return refused(format!(
                        "the environment variable {name}, which has the password, is not set"
                    ));
                }
                Err(_) => return refused(format!("the password in {name} is not UTF-8")),
            },
            Self::File(path) => match private_file::read(path, MAX_PASSWORD) {
                Ok(bytes) => (bytes, path.display().to_string()),
                Err(problem) => return refused(format!("cannot use the password file: {problem}")),
            },
            Self::Command(words) => (run(words)?, "the password command".to_owned()),
            Self::Netrc(path) => {
                return refused(format!("{} is a file of records", path.display()));
            }
        };
        first_line(&bytes).map_or_else(|problem| refused(format!("{source} {problem}")), Ok)
    }
}

/// The standard output of a program. It may ask its user: it has the standard input and error of this one.
fn run(words: &[OsString]) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let refused = |problem: String| Failure::refused(problem);
    let Some((program, arguments)) = words.split_first() else {
        return Err(refused("the password command is empty".to_owned()));
    };
    let name = program.to_string_lossy();
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::inherit())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| refused(format!("cannot run the password command {name}: {error}")))?;
    let bytes = Zeroizing::new(output.stdout);
    if !output.status.success() {
        let status = output.status;
        return Err(refused(format!(
            "the password command {name} failed: {status}"
        )));
    }
    Ok(bytes)
}

/// The first line as a password.
fn first_line(bytes: &[u8]) -> Result<Secret, &'static str> {
    let line = bytes
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match line {
        [] => Err("has no password in its first line"),
        // The password travels in a PASS line.
        line if line.iter().any(|byte| matches!(byte, 0 | b'\r')) => {
            Err("has a password with NUL or CR")
        }
        line => Ok(Secret(line.to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::FailureKind;

    #[test]
    fn the_first_line_of_a_file_or_a_command_is_the_password() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pw");
        std::fs::write(&path, "hush \r\nsecond\n").unwrap();
        let file = PasswordSource::File(path.clone());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let failure = file.read().unwrap_err();
        assert!(
            failure.to_string().contains("others may read it"),
            "{failure}"
        );
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(file.read().unwrap(), "hush ".into());
        let command =
            |words: &[&str]| PasswordSource::Command(words.iter().map(Into::into).collect()).read();
        assert_eq!(command(&["echo", "a b"]).unwrap(), "a b".into());
        for (words, problem) in [
            (&["false"][..], "failed"),
            (&["true"], "no password"),
            (&["/no/such/program"], "cannot run"),
            (&[], "empty"),
        ] {
            let failure = command(words).unwrap_err();
            assert_eq!(failure.kind(), FailureKind::Refused);
            assert!(failure.to_string().contains(problem), "{failure}");
        }
    }

    #[test]
    fn a_variable_that_is_not_set_is_named() {
        let source = PasswordSource::Variable("LONGHAUL_NO_SUCH_VARIABLE".into());
        let failure = source.read().unwrap_err();
        assert!(
            failure.to_string().contains("LONGHAUL_NO_SUCH_VARIABLE"),
            "{failure}"
        );
    }
}
