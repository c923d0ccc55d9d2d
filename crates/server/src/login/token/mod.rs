//! Logins with bearer tokens.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::RwLock;
use proto::command::Secret;
use proto::path::VPath;
use proto::printable::printable;
use proto::security::BEARER_USER;
use security::token::{BearerTokenError, TokenVerifier, VerifiedToken};
use security::x509::TrustStore;

use super::{Authenticator, Login, LoginPolicy, LoginRefusal};
use crate::config::{
    KeySource, TokenIssuerConfig, TokenIssuerError, TrustedIssuer, trusted_issuers,
};
use crate::files::PathRights;
use crate::limits::SessionLimits;

mod fetch;
mod keys;

#[cfg(test)]
mod tests;

use fetch::{KeyFetcher, SystemFetcher};
use keys::IssuerKeys;

/// Verifies tokens with the keys of their issuers.
#[derive(Debug)]
pub(crate) struct TokenLogin {
    verifier: TokenVerifier,
    keys: HashMap<String, Arc<IssuerKeys>>,
}

/// Token logins cannot be offered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenSetupError {
    /// A table of the settings file is wrong.
    #[error(transparent)]
    Issuer(#[from] TokenIssuerError),
    /// The servers of issuers cannot be verified.
    #[error(
        "keys of token issuers cannot be fetched: {0}; install ca-certificates, set SSL_CERT_FILE, or name key files with keys ="
    )]
    Authorities(String),
}

/// An issuer whose keys were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedIssuer {
    /// Its URL.
    pub url: String,
    /// `Err`: the reason why its keys cannot be used.
    pub keys: Result<(), String>,
}

/// Reads the keys of each issuer as a login would. Blocks for 10 s an issuer at most.
///
/// # Errors
/// See [`TokenSetupError`].
pub fn check_token_issuers(
    tables: &[TokenIssuerConfig],
) -> Result<Vec<CheckedIssuer>, TokenSetupError> {
    let trusted = trusted_issuers(tables)?;
    let fetcher = fetcher_for(&trusted)?;
    let check = |trusted: TrustedIssuer| {
        let url = trusted.issuer.url;
        let keys = fetcher.fetch(&url, &trusted.keys).map(drop);
        CheckedIssuer { url, keys }
    };
    Ok(trusted.into_iter().map(check).collect())
}

fn is_remote(source: &KeySource) -> bool {
    !matches!(source, KeySource::File(_))
}

/// The reader of the keys of these issuers, with the system's authorities where some are remote.
fn fetcher_for(trusted: &[TrustedIssuer]) -> Result<SystemFetcher, TokenSetupError> {
    let authorities = match trusted.iter().any(|trusted| is_remote(&trusted.keys)) {
        true => {
            let store = TrustStore::system();
            let store = store.map_err(|e| TokenSetupError::Authorities(e.to_string()))?;
            Some(Arc::new(store))
        }
        false => None,
    };
    Ok(SystemFetcher::new(authorities))
}

impl TokenLogin {
    /// Trusts the issuers of these tables; `None` without tables. Key sets that `previous` has fetched from
    /// the same places are kept. Reads the system's certificate authorities.
    ///
    /// # Errors
    /// See [`TokenSetupError`].
    pub(crate) fn new(
        tables: &[TokenIssuerConfig],
        previous: Option<&Self>,
    ) -> Result<Option<Self>, TokenSetupError> {
        let trusted = trusted_issuers(tables)?;
        if trusted.is_empty() {
            return Ok(None);
        }
        let fetcher: Arc<dyn KeyFetcher> = Arc::new(fetcher_for(&trusted)?);
        let mut logins = Self::with_fetcher(trusted, &fetcher);
        for (url, keys) in &mut logins.keys {
            let kept = previous.and_then(|previous| previous.keys.get(url));
            // A file is read again, because an administrator reloads after changing it.
            if let Some(kept) = kept
                && kept.source() == keys.source()
                && is_remote(keys.source())
            {
                *keys = Arc::clone(kept);
            }
        }
        Ok(Some(logins))
    }

    fn with_fetcher(trusted: Vec<TrustedIssuer>, fetcher: &Arc<dyn KeyFetcher>) -> Self {
        let mut keys = HashMap::new();
        let mut issuers = Vec::with_capacity(trusted.len());
        for TrustedIssuer {
            issuer,
            keys: source,
        } in trusted
        {
            let url = issuer.url.clone();
            let fetcher = Arc::clone(fetcher);
            let source = IssuerKeys::new(url.clone(), source, fetcher);
            keys.insert(url, Arc::new(source));
            issuers.push(issuer);
        }
        Self {
            verifier: TokenVerifier::new(issuers),
            keys,
        }
    }

    /// Verifies a token; fetches the keys of its issuer if needed, which may take 10 s.
    ///
    /// # Errors
    /// [`BearerTokenError::Keys`] if the issuer's keys are not available; otherwise the token is refused. The
    /// text is for the log.
    pub(crate) async fn verify(&self, token: &Secret) -> Result<VerifiedToken, BearerTokenError> {
        let issuer = self.verifier.issuer_of(&token.0)?.url.clone();
        let unavailable = |problem: String| BearerTokenError::Keys {
            issuer: issuer.clone(),
            problem,
        };
        let Some(source) = self.keys.get(&issuer) else {
            return Err(unavailable("internal error".to_owned()));
        };
        let known = source.get().await.map_err(unavailable)?;
        match self.verifier.verify(&token.0, &known, SystemTime::now()) {
            Err(error) if error.is_unknown_key() => {
                // The issuer may have a new key.
                let newest = source.get_with_new_keys().await.map_err(unavailable)?;
                match Arc::ptr_eq(&newest, &known) {
                    true => Err(error),
                    false => self.verifier.verify(&token.0, &newest, SystemTime::now()),
                }
            }
            result => result,
        }
    }
}

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

impl Login {
    /// Time until what the client has logged in with expires, 0 afterwards; `None`: the login has no end.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let left = |end: SystemTime| end.duration_since(SystemTime::now()).unwrap_or_default();
        self.expires.map(left)
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
