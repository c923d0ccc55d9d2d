//! Logins with bearer tokens.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::RwLock;
use proto::command::Secret;
use proto::path::VPath;
use proto::printable::printable;
use proto::security::BEARER_USER;
use security::token::{BearerTokenError, VerifiedToken};

use super::{Authenticator, Login, LoginPolicy, LoginRefusal, TokenLogin};
use crate::files::PathRights;
use crate::limits::SessionLimits;

impl Authenticator {
    /// The same with the issuers of bearer tokens.
    pub(crate) fn with_tokens(self, tokens: Option<Arc<TokenLogin>>) -> Self {
        let policy = LoginPolicy {
            tokens,
            ..(*self.policy()).clone()
        };
        Self {
            policy: RwLock::new(Arc::new(policy)),
            ..self
        }
    }

    /// The issuers of bearer tokens as of the last reload.
    pub(crate) fn tokens(&self) -> Option<Arc<TokenLogin>> {
        self.policy().tokens.clone()
    }

    /// Logs in with a token: to the account of its issuer, with the rights of its scopes. Failures delay
    /// later attempts of the client's address, as wrong passwords do.
    pub(super) async fn token_login(
        &self,
        policy: &LoginPolicy,
        token: Secret,
        peer: IpAddr,
        limits: &Arc<SessionLimits>,
    ) -> Result<Login, LoginRefusal> {
        let Some(tokens) = policy.tokens.clone() else {
            return Err(LoginRefusal::NoTokens);
        };
        // Counted for the address alone: a token cannot be guessed, so no account needs protection.
        let attempt = self.throttle.begin(peer, &format!("{BEARER_USER}{peer}"));
        let mut attempt = attempt.map_err(|_| LoginRefusal::Throttled)?;
        tokio::time::sleep(attempt.wait()).await;
        let token = match tokens.verify(&token).await {
            Ok(token) => token,
            // Not the client's fault, so it does not count.
            Err(error @ BearerTokenError::Keys { .. }) => {
                return Err(LoginRefusal::TokenKeys(error));
            }
            Err(error) => {
                attempt.mark_checked();
                return Err(LoginRefusal::Token(error));
            }
        };
        attempt.mark_granted();
        let holder = holder(&token);
        let slot = limits.count_login(&holder, policy.session_bound(&token.account))?;
        // The token's scopes decide what may be written.
        let account = policy.account(&token.account, true);
        let login = self.user_login(policy, account, slot).await?;
        tracing::info!(
            holder, account = %token.account, id = token.id.as_deref(), address = %peer,
            "token accepted"
        );
        narrowed(login, token, holder)
    }
}

/// The login to the issuer's account, with the rights and the name of the token.
fn narrowed(mut login: Login, token: VerifiedToken, holder: String) -> Result<Login, LoginRefusal> {
    let may_write = token.scopes.iter().any(|(_, rights)| rights.may_create());
    let home = login.grant.home.as_bytes();
    // A home that the token does not reach would refuse every command; the root leads to all scopes.
    if !token.scopes.rights(home).is_some() && !token.scopes.is_above_a_scope(home) {
        login.grant.home = VPath::root();
    }
    login.grant.user = holder;
    login.grant.rights.write &= may_write;
    login.expires = Some(token.expires);
    let rights = PathRights::of_token(token.scopes, token.expires);
    login.files = login.files.with_path_rights(rights).map_err(|error| {
        tracing::error!(%error, "no file descriptor for a session's root");
        LoginRefusal::NoRoot
    })?;
    Ok(login)
}

/// The name of the token's holder in logs and as the owner of uploads: `SUBJECT@ISSUER`. It is unique, as
/// no issuer's URL has an `@`, and no account has such a name.
fn holder(token: &VerifiedToken) -> String {
    // Marks of text direction must not rearrange a log line.
    let subject = printable(token.subject.as_bytes());
    format!("{subject}@{}", token.issuer)
}
