//! The reasons why a login is refused.

use security::token::BearerTokenError;
use security::x509::DistinguishedName;

use crate::limits::LimitReached;

/// The reason why a login was refused; its text is for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LoginRefusal {
    /// Anonymous sessions are not allowed.
    #[error("anonymous sessions are not offered here")]
    NotAnonymous,
    /// No users file, no such user or a wrong password. The client must not learn which.
    #[error("wrong user name or password")]
    WrongCredentials(LoginFault),
    /// PAM refused the login. The client must not learn why.
    #[error("wrong user name or password")]
    Pam(String),
    /// PAM gave no answer. The client must not learn it: names that PAM is not asked about are refused like this, too.
    #[error("wrong user name or password")]
    PamBroken(String),
    /// The certificate alone does not suffice: PASS must follow.
    #[error("a password is needed")]
    PasswordNeeded,
    /// The client's certificate has no account here, or not the one that it asked for.
    #[error(
        "your certificate has no such account here; ask the administrator to list its subject in the gridmap"
    )]
    NotMapped(MappingError),
    /// The token is not valid, or not for this server. The client must not learn which check failed.
    #[error("this token is not accepted here; get a new one for this server")]
    Token(BearerTokenError),
    /// No issuer of tokens is trusted.
    #[error("tokens are not accepted here")]
    NoTokens,
    /// The keys of the token's issuer are not available.
    #[error("tokens cannot be checked at the moment; try again later")]
    TokenKeys(BearerTokenError),
    /// The access lists of the server exclude the account. The client must not learn that its password was right.
    #[error("wrong user name or password")]
    NotPermitted,
    /// The root of the user cannot be opened.
    #[error("your directory is not available")]
    NoRoot,
    /// A defect; it was logged where it happened.
    #[error("internal error")]
    Internal,
    /// Too many logins are waiting.
    #[error("too many failed logins")]
    Throttled,
    /// The password is right, but a session limit is reached.
    #[error(transparent)]
    Limit(#[from] LimitReached),
}

/// The part of the credentials that was wrong, for the log only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoginFault {
    /// The server has no users file.
    NoUsersFile,
    /// The user is not in the users file.
    UnknownUser,
    /// The password is wrong.
    WrongPassword,
}

/// The reason why a certificate has no account, for the log only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MappingError {
    /// The gridmap does not list the subject.
    NotListed(DistinguishedName),
    /// The gridmap lists other accounts.
    OtherAccount(DistinguishedName),
    /// The owner of the certificate has chosen the name.
    IndependentProxy(DistinguishedName),
}

impl LoginRefusal {
    /// Whether the session must end with 421.
    pub(crate) fn ends_session(&self) -> bool {
        matches!(self, Self::Throttled | Self::Limit(_))
    }

    /// The reason for the log.
    pub(super) fn log_reason(&self) -> String {
        match self {
            Self::WrongCredentials(LoginFault::NoUsersFile) => "no users file".to_owned(),
            Self::WrongCredentials(LoginFault::UnknownUser) => "unknown user".to_owned(),
            Self::WrongCredentials(LoginFault::WrongPassword) => "wrong password".to_owned(),
            Self::Pam(reason) | Self::PamBroken(reason) => format!("PAM: {reason}"),
            Self::NotPermitted => "allow-users and deny-users exclude the account".to_owned(),
            Self::NotMapped(MappingError::NotListed(subject)) => {
                format!("the gridmap does not list {subject}")
            }
            Self::NotMapped(MappingError::OtherAccount(subject)) => {
                format!("the gridmap lists other accounts for {subject}")
            }
            Self::NotMapped(MappingError::IndependentProxy(name)) => {
                format!("an independent proxy has no account, whatever it is called: {name}")
            }
            Self::Token(error) | Self::TokenKeys(error) => format!("token: {error}"),
            other => other.to_string(),
        }
    }
}
