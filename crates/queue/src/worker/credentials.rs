//! Credentials by name: the database has the name, and each worker knows the files and commands behind it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use crate::copy::is_name;

/// Environment variables that name a file or a socket.
const FILES: &[&str] = &[
    "X509_USER_PROXY",
    "X509_USER_CERT",
    "X509_USER_KEY",
    "BEARER_TOKEN_FILE",
    "SSH_AUTH_SOCK",
];
/// Environment variables that hold the secret itself; only a command gives them.
const SECRETS: &[&str] = &["BEARER_TOKEN", "LONGHAUL_PASSWORD"];
/// Longest run of a command.
const COMMAND_TIME: Duration = Duration::from_secs(60);
/// Longest secret, bytes.
const LONGEST_SECRET: u64 = 64 * 1024;

/// One credential: where its parts are found, by the environment variables in which the program looks for them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialSettings {
    /// Variables that name files.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Variables that hold what a command prints.
    #[serde(default)]
    pub commands: BTreeMap<String, Vec<String>>,
}

/// Why the file of credentials, or one of them, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The file cannot be read or understood.
    #[error(transparent)]
    File(#[from] smallfile::settings::SettingsFileError),
    /// A name or a variable.
    #[error("credential {name}: {variable} is none of the variables of {kind} ({known})")]
    Variable {
        /// The credential.
        name: String,
        /// The variable.
        variable: String,
        /// `files` or `commands`.
        kind: &'static str,
        /// The variables that there are.
        known: String,
    },
    /// The name of a credential.
    #[error("'{0}' is not a name of a credential")]
    Name(String),
    /// A job asks for a credential that this worker does not have.
    #[error("this worker has no credential {0} (--credentials)")]
    Missing(String),
    /// A command failed.
    #[error("credential {name}: the command of {variable} {problem}")]
    Command {
        /// The credential.
        name: String,
        /// The variable.
        variable: String,
        /// The failure.
        problem: String,
    },
}

/// Credentials by their names.
pub type Credentials = BTreeMap<String, CredentialSettings>;

/// Reads the file of credentials.
///
/// # Errors
/// See [`CredentialsError`].
pub fn load_credentials(path: &Path) -> Result<Credentials, CredentialsError> {
    let credentials: Credentials = smallfile::settings::load(path)?;
    for (name, settings) in &credentials {
        if !is_name(name) {
            return Err(CredentialsError::Name(name.clone()));
        }
        let check = |kind, known: &[&str], used: Vec<&String>| {
            let unknown = used
                .into_iter()
                .find(|used| !known.contains(&used.as_str()));
            match unknown {
                None => Ok(()),
                Some(variable) => Err(CredentialsError::Variable {
                    name: name.clone(),
                    variable: variable.clone(),
                    kind,
                    known: known.join(", "),
                }),
            }
        };
        check("files", FILES, settings.files.keys().collect())?;
        check("commands", SECRETS, settings.commands.keys().collect())?;
    }
    Ok(credentials)
}

/// The environment of a job with this credential.
///
/// # Errors
/// `Missing` or `Command`.
pub(super) async fn environment(
    credentials: &Credentials,
    name: &str,
) -> Result<Vec<(String, String)>, CredentialsError> {
    let settings = credentials
        .get(name)
        .ok_or_else(|| CredentialsError::Missing(name.to_owned()))?;
    let files = settings.files.iter();
    let mut environment: Vec<(String, String)> = files
        .map(|(variable, file)| (variable.clone(), file.clone()))
        .collect();
    for (variable, command) in &settings.commands {
        let secret = secret_of(command);
        let secret = secret.await.map_err(|problem| CredentialsError::Command {
            name: name.to_owned(),
            variable: variable.clone(),
            problem,
        })?;
        environment.push((variable.clone(), secret));
    }
    Ok(environment)
}

/// Runs a command and returns the first line that it prints.
async fn secret_of(command: &[String]) -> Result<String, String> {
    let (program, words) = command.split_first().ok_or("has no words")?;
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("cannot be started: {error}"))?;
    let output = child.stdout.take();
    let run = async {
        let mut text = String::new();
        if let Some(output) = output {
            let mut output = output.take(LONGEST_SECRET);
            output.read_to_string(&mut text).await?;
        }
        Ok::<_, std::io::Error>((text, child.wait().await?))
    };
    let (text, status) = match tokio::time::timeout(COMMAND_TIME, run).await {
        Err(_) => return Err(format!("took longer than {} s", COMMAND_TIME.as_secs())),
        Ok(Err(error)) => return Err(format!("failed: {error}")),
        Ok(Ok(ended)) => ended,
    };
    if !status.success() {
        return Err(format!("ended with {status}"));
    }
    match text.lines().next().map(str::trim) {
        Some(secret) if !secret.is_empty() && !secret.contains('\0') => Ok(secret.to_owned()),
        _ => Err("printed nothing".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(text: &str) -> Result<Credentials, CredentialsError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("credentials.toml");
        std::fs::write(&path, text).unwrap();
        load_credentials(&path)
    }

    #[tokio::test]
    async fn a_credential_is_files_and_what_commands_print() {
        let credentials = loaded(
            "[cms]\nfiles.X509_USER_PROXY = '/run/cms.pem'\ncommands.BEARER_TOKEN = ['echo', 'abc']\n\
             [broken]\ncommands.BEARER_TOKEN = ['false']\n",
        )
        .unwrap();
        let pairs = environment(&credentials, "cms").await.unwrap();
        let expected = [("X509_USER_PROXY", "/run/cms.pem"), ("BEARER_TOKEN", "abc")];
        assert_eq!(pairs, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
        let missing = environment(&credentials, "atlas").await;
        assert!(matches!(missing, Err(CredentialsError::Missing(_))));
        let broken = environment(&credentials, "broken").await;
        assert!(matches!(broken, Err(CredentialsError::Command { .. })));
    }

    #[test]
    fn a_secret_in_the_file_and_other_variables_are_refused() {
        for text in [
            "[a]\nfiles.BEARER_TOKEN = 'abc'",
            "[a]\nfiles.LD_PRELOAD = '/x'",
            "[a]\ncommands.PATH = ['x']",
        ] {
            let refused = loaded(text);
            assert!(
                matches!(refused, Err(CredentialsError::Variable { .. })),
                "{text}"
            );
        }
        assert!(matches!(
            loaded("[a]\ntoken = 'x'"),
            Err(CredentialsError::File(_))
        ));
    }
}
