//! Checks of the `[[token-issuer]]` tables.

use std::path::PathBuf;

use proto::path::VPath;
use security::token::Issuer;

use super::TokenIssuerConfig;

/// Where the keys of an issuer are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// The metadata at this URL name the key set (OpenID Connect Discovery 1.0 §4).
    Metadata(String),
    /// The key set is at this URL.
    Url(String),
    /// The key set is in this file.
    File(PathBuf),
}

/// A trusted issuer with the place of its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrustedIssuer {
    pub(crate) issuer: Issuer,
    pub(crate) keys: KeySource,
}

/// A `[[token-issuer]]` table that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenIssuerError {
    /// The issuer's URL.
    #[error(
        "token-issuer: url = {0:?} is not the URL of an issuer; write https://HOST/PATH as in the iss claim of its tokens"
    )]
    Url(String),
    /// No audience.
    #[error(
        "token-issuer {0}: audience is missing; write the names of this server that its tokens may have, such as [\"https://host.example.org\"]"
    )]
    NoAudience(String),
    /// The base path.
    #[error("token-issuer {issuer}: base-path = {path:?} is not an absolute path without . and ..")]
    BasePath {
        /// The issuer.
        issuer: String,
        /// The path.
        path: String,
    },
    /// The account.
    #[error("token-issuer {issuer}: account = {account:?} is not the name of an account")]
    Account {
        /// The issuer.
        issuer: String,
        /// The account.
        account: String,
    },
    /// The place of the keys.
    #[error("token-issuer {issuer}: keys = {keys:?} is neither an https URL nor an absolute path")]
    Keys {
        /// The issuer.
        issuer: String,
        /// The place.
        keys: String,
    },
    /// Two tables for one issuer.
    #[error("token-issuer {0} is given twice; write one table per issuer")]
    Twice(String),
}

/// Checks all tables.
///
/// # Errors
/// The first mistake.
pub(crate) fn trusted_issuers(
    tables: &[TokenIssuerConfig],
) -> Result<Vec<TrustedIssuer>, TokenIssuerError> {
    let mut issuers: Vec<TrustedIssuer> = Vec::with_capacity(tables.len());
    for table in tables {
        if issuers.iter().any(|known| known.issuer.url == table.url) {
            return Err(TokenIssuerError::Twice(table.url.clone()));
        }
        issuers.push(trusted_issuer(table)?);
    }
    Ok(issuers)
}

fn trusted_issuer(table: &TokenIssuerConfig) -> Result<TrustedIssuer, TokenIssuerError> {
    if !is_https_url(&table.url) {
        return Err(TokenIssuerError::Url(table.url.clone()));
    }
    let issuer = || table.url.clone();
    if table.audience.is_empty() || table.audience.iter().any(String::is_empty) {
        return Err(TokenIssuerError::NoAudience(issuer()));
    }
    let has_dots = table.base_path.split('/').any(|c| matches!(c, "." | ".."));
    let base_path = VPath::root().resolve(table.base_path.as_bytes());
    let base_path = match base_path {
        Ok(path) if table.base_path.starts_with('/') && !has_dots => path,
        _ => {
            return Err(TokenIssuerError::BasePath {
                issuer: issuer(),
                path: table.base_path.clone(),
            });
        }
    };
    // A name with `:` would be one that means something else at a login.
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic());
    if !is_name(&table.account) || table.account.contains(':') {
        return Err(TokenIssuerError::Account {
            issuer: issuer(),
            account: table.account.clone(),
        });
    }
    let keys = match table.keys.as_deref() {
        None => KeySource::Metadata(format!(
            "{}/.well-known/openid-configuration",
            table.url.trim_end_matches('/')
        )),
        Some(url) if is_https_url(url) => KeySource::Url(url.to_owned()),
        Some(path) if path.starts_with('/') => KeySource::File(PathBuf::from(path)),
        Some(keys) => {
            return Err(TokenIssuerError::Keys {
                issuer: issuer(),
                keys: keys.to_owned(),
            });
        }
    };
    Ok(TrustedIssuer {
        issuer: Issuer {
            url: issuer(),
            audiences: table.audience.clone(),
            base_path: base_path.as_bytes().to_vec(),
            account: table.account.clone(),
        },
        keys,
    })
}

/// Whether a URL is https, names a host, and has no user, query or fragment.
fn is_https_url(url: &str) -> bool {
    let host = url
        .strip_prefix("https://")
        .and_then(|rest| rest.split('/').next());
    let is_plain = url
        .bytes()
        .all(|b| b.is_ascii_graphic() && !b"@?#\\\"<>".contains(&b));
    is_plain && host.is_some_and(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TokenIssuerConfig {
        TokenIssuerConfig {
            url: "https://issuer.example.org/vo/".to_owned(),
            audience: vec!["https://us.example.org".to_owned()],
            base_path: "/vo//data/".to_owned(),
            account: "vo".to_owned(),
            keys: None,
        }
    }

    #[test]
    fn an_issuer_is_kept_as_written_and_its_metadata_are_below_it() {
        let trusted = trusted_issuers(&[table()]).unwrap().remove(0);
        assert_eq!(trusted.issuer.url, "https://issuer.example.org/vo/");
        assert_eq!(trusted.issuer.base_path, b"/vo/data");
        let metadata = "https://issuer.example.org/vo/.well-known/openid-configuration";
        assert_eq!(trusted.keys, KeySource::Metadata(metadata.to_owned()));
        let placed = |keys: &str| {
            let keys = Some(keys.to_owned());
            trusted_issuers(&[TokenIssuerConfig { keys, ..table() }])
                .map(|mut all| all.remove(0).keys)
        };
        let url = "https://keys.example.org/jwks";
        assert_eq!(placed(url), Ok(KeySource::Url(url.to_owned())));
        assert_eq!(placed("/etc/keys"), Ok(KeySource::File("/etc/keys".into())));
        placed("http://keys.example.org/jwks").unwrap_err();
        placed("keys.json").unwrap_err();
    }

    #[test]
    fn mistakes_name_the_issuer_and_the_value() {
        let with = |change: fn(&mut TokenIssuerConfig)| {
            let mut changed = table();
            change(&mut changed);
            trusted_issuers(&[changed]).unwrap_err()
        };
        for url in [
            "http://i.example.org",
            "https://",
            "https:///x",
            "https://a@b",
            "https://h/?q",
            "i",
        ] {
            let changed = TokenIssuerConfig {
                url: url.to_owned(),
                ..table()
            };
            let error = trusted_issuers(&[changed]).unwrap_err();
            assert_eq!(error, TokenIssuerError::Url(url.to_owned()));
        }
        use TokenIssuerError as E;
        assert!(matches!(with(|t| t.audience.clear()), E::NoAudience(_)));
        assert!(matches!(
            with(|t| t.audience.push(String::new())),
            E::NoAudience(_)
        ));
        assert!(matches!(
            with(|t| t.base_path = "vo".into()),
            E::BasePath { .. }
        ));
        assert!(matches!(
            with(|t| t.base_path = "/a/../b".into()),
            E::BasePath { .. }
        ));
        assert!(matches!(
            with(|t| t.base_path = String::new()),
            E::BasePath { .. }
        ));
        assert!(matches!(
            with(|t| t.account = String::new()),
            E::Account { .. }
        ));
        assert!(matches!(
            with(|t| t.account = ":bearer:".into()),
            E::Account { .. }
        ));
        assert!(matches!(
            trusted_issuers(&[table(), table()]),
            Err(E::Twice(_))
        ));
    }
}
