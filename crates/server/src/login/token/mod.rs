//! Logins with bearer tokens.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use proto::command::Secret;
use security::token::{TokenError, TokenVerifier, VerifiedToken};
use security::x509::TrustStore;

use crate::config::{KeySource, TokenIssuerConfig, TokenIssuerError, trusted_issuers};

mod fetch;
mod keys;

#[cfg(test)]
mod tests;

use fetch::{KeyFetcher, SystemFetcher};
use keys::IssuerKeys;

/// Name after USER that announces a token as the password.
pub(crate) const TOKEN_USER: &str = ":bearer:";

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
        let is_remote = |source: &KeySource| !matches!(source, KeySource::File(_));
        let authorities = match trusted.iter().any(|trusted| is_remote(&trusted.keys)) {
            true => {
                let store = TrustStore::system();
                let store = store.map_err(|e| TokenSetupError::Authorities(e.to_string()))?;
                Some(Arc::new(store))
            }
            false => None,
        };
        if trusted.is_empty() {
            return Ok(None);
        }
        let fetcher: Arc<dyn KeyFetcher> = Arc::new(SystemFetcher::new(authorities));
        let keys = trusted.iter().map(|trusted| {
            let url = trusted.issuer.url.clone();
            let kept = previous
                .and_then(|previous| previous.keys.get(&url))
                .filter(|kept| *kept.source() == trusted.keys && is_remote(kept.source()));
            let keys = kept.map(Arc::clone).unwrap_or_else(|| {
                Arc::new(IssuerKeys::new(
                    url.clone(),
                    trusted.keys.clone(),
                    Arc::clone(&fetcher),
                ))
            });
            (url, keys)
        });
        let keys = keys.collect();
        let issuers = trusted.into_iter().map(|trusted| trusted.issuer).collect();
        Ok(Some(Self {
            verifier: TokenVerifier::new(issuers),
            keys,
        }))
    }

    /// Verifies a token; fetches the keys of its issuer if needed, which may take 10 s.
    ///
    /// # Errors
    /// [`TokenError::Keys`] if the issuer's keys are not available; otherwise the token is refused. The
    /// text is for the log.
    pub(crate) async fn verify(&self, token: &Secret) -> Result<VerifiedToken, TokenError> {
        let issuer = self.verifier.issuer_of(&token.0)?.url.clone();
        let unavailable = |problem: String| TokenError::Keys {
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

/// The name of the token's holder in logs and as the owner of uploads: `SUBJECT@ISSUER`. It is unique, as
/// no issuer's URL has an `@`, and no account has such a name.
pub(crate) fn holder(token: &VerifiedToken) -> String {
    format!("{}@{}", token.subject, token.issuer)
}
