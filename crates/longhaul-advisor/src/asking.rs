//! Questions to an advice server: its client, the token, and the exit codes of failures.

use std::io;
use std::path::PathBuf;

use data::os::caps;
use enable::advice::Question;
use enable::client::{EnableClient, EnableError};
use enable::method::fault;
use security::token::read_token_file;
use units::Exit;

use command_line::flags::advisor::{AdvisorServerArgs, TOKEN_FILE};

/// A question without an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskingFailure {
    /// The server does not answer, or refuses.
    #[error(transparent)]
    Server(#[from] EnableError),
    /// The file with the token cannot be used.
    #[error("{0}")]
    Token(String),
    /// A file cannot be imported.
    #[error("{0}")]
    Import(String),
    /// Routes cannot be changed.
    #[error("{0}")]
    Enforce(String),
    /// The answer cannot be printed.
    #[error(transparent)]
    Output(#[from] io::Error),
}

impl AskingFailure {
    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Server(EnableError::Server { .. }) => Exit::Usage,
            Self::Server(EnableError::NoServer { .. } | EnableError::TimedOut { .. }) => {
                Exit::Unreachable
            }
            Self::Server(EnableError::Refused { code, .. }) => match *code {
                401 | fault::FORBIDDEN => Exit::Refused,
                fault::UNKNOWN_PATH => Exit::NotFound,
                _ => Exit::Protocol,
            },
            Self::Server(EnableError::Answer { .. }) => Exit::Protocol,
            Self::Token(_) => Exit::Refused,
            Self::Import(_) | Self::Enforce(_) | Self::Output(_) => Exit::Local,
        }
    }
}

/// A client of the server of these flags, with the token if there is one.
///
/// # Errors
/// The server's name or the token's file cannot be used.
pub(crate) fn client_of(args: &AdvisorServerArgs) -> Result<EnableClient, AskingFailure> {
    let client = EnableClient::new(&args.server, args.wait.timeout)?;
    let by_environment = || std::env::var_os(TOKEN_FILE).map(PathBuf::from);
    let Some(path) = args.token_file.clone().or_else(by_environment) else {
        return Ok(client);
    };
    let token = read_token_file(&path).map_err(|error| AskingFailure::Token(error.to_string()))?;
    Ok(client.with_token(token.as_str()))
}

/// The question for a transfer of `bytes` to `client`, or to this host, whose kernel's limits it tells.
pub(crate) fn question(client: Option<String>, bytes: Option<u64>) -> Question {
    let own = client.is_none().then(caps::host_limits);
    Question {
        client,
        bytes,
        max_receive_buffer: own.map(|limits| limits.max_autotuned_receive),
        // The kernel grants twice of what is asked for.
        max_set_buffer: own.map(|limits| limits.max_unforced_receive / 2),
        ..Question::default()
    }
}
