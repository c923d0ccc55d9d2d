//! Verification of bearer tokens with the keys of their issuers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use proto::command::Secret;
use security::token::{BearerTokenError, TokenVerifier, VerifiedToken};
use security::x509::TrustStore;

use crate::config::{
    KeySource, TokenIssuerConfig, TokenIssuerError, TrustedIssuer, trusted_issuers,
};

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
