//! Questions to an advice server: its client, the token, and the exit codes of failures.

use std::io;
use std::path::PathBuf;

use data::os::caps;
use enable::advice::{DataDirection, Question};
use enable::client::{EnableClient, EnableError};
use enable::method::{Method, fault};
use security::token::read_token_file;
use serde_json::Value;
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
    /// A change was refused, and the remedy.
    #[error("{refused}; {remedy}")]
    Change {
        refused: EnableError,
        remedy: &'static str,
    },
    /// A test that was asked for has no result: the reason.
    #[error("{0}")]
    NoResult(String),
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
            Self::Token(_) | Self::Change { .. } => Exit::Refused,
            Self::NoResult(_) => Exit::Partial,
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

/// Calls a method that changes something, with the token if there is one. A refusal says where the token comes from.
///
/// # Errors
/// The server's name or the token's file cannot be used, or there is no answer.
pub(crate) fn change(
    args: &AdvisorServerArgs,
    method: &Method,
    arguments: Vec<Value>,
) -> Result<Value, AskingFailure> {
    let has_token = args.token_file.is_some() || std::env::var_os(TOKEN_FILE).is_some();
    client_of(args)?.call(method, arguments).map_err(|refused| {
        let is_forbidden =
            matches!(&refused, EnableError::Refused { code, .. } if [401, fault::FORBIDDEN].contains(code));
        match (is_forbidden, has_token) {
            (false, _) => refused.into(),
            (true, false) => AskingFailure::Change {
                refused,
                remedy: "--token-file FILE (or ENABLE_TOKEN_FILE) gives it: the file that `token-file` of the server's \
                         settings names",
            },
            (true, true) => AskingFailure::Change {
                refused,
                remedy: "compare the file of --token-file (or ENABLE_TOKEN_FILE) with the one that `token-file` of the \
                         server's settings names",
            },
        }
    })
}

/// The question for a transfer of `bytes` to or from `client`, or this host, whose kernel's limits it tells.
pub(crate) fn question(
    client: Option<String>,
    bytes: Option<u64>,
    direction: DataDirection,
) -> Question {
    let own = client.is_none().then(caps::host_limits);
    Question {
        client,
        bytes,
        direction,
        max_receive_buffer: own.map(|limits| limits.max_autotuned_receive),
        max_send_buffer: own.map(|limits| limits.max_autotuned_send),
        // The kernel grants twice of what is asked for.
        max_set_buffer: own.map(|limits| match direction {
            DataDirection::Download => limits.max_unforced_receive / 2,
            DataDirection::Upload => limits.max_settable_send / 2,
        }),
        ..Question::default()
    }
}
