//! The user's certificate and key.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use security::x509::{CertifiedKey, CredentialError};

use crate::Failure;

/// Advice to a user without a usable credential.
pub(crate) const ADVICE: &str =
    "make a proxy with `longhaul proxy init`, or name a certificate with --cert and --key";

/// Where GSI credentials are looked for. The first that is there counts.
#[derive(Debug, Clone, Default)]
struct CredentialPlaces {
    /// X509_USER_PROXY
    named_proxy: Option<PathBuf>,
    /// `/tmp/x509up_uUID`
    default_proxy: PathBuf,
    /// X509_USER_CERT and X509_USER_KEY
    named_pair: Option<(PathBuf, PathBuf)>,
    /// `~/.globus/usercert.pem` and `~/.globus/userkey.pem`
    default_pair: Option<(PathBuf, PathBuf)>,
}

/// Path of the user's proxy: X509_USER_PROXY, else `/tmp/x509up_uUID`.
pub fn default_proxy_path() -> PathBuf {
    let places = CredentialPlaces::of_environment();
    places.named_proxy.unwrap_or(places.default_proxy)
}

/// The user's certificate and key, without proxies: X509_USER_CERT and X509_USER_KEY, else those of
/// `~/.globus`. The files need not exist.
pub fn default_certificate_paths() -> Option<(PathBuf, PathBuf)> {
    let places = CredentialPlaces::of_environment();
    places.named_pair.or(places.default_pair)
}

/// The user's GSI credential: the proxy of X509_USER_PROXY, of `/tmp/x509up_uUID`, the pair of
/// X509_USER_CERT and X509_USER_KEY, that of `~/.globus`.
///
/// # Errors
/// `Refused`: there is none, it has expired, or it cannot be used.
pub fn find_user_credential() -> Result<CertifiedKey, Failure> {
    CredentialPlaces::of_environment().find()
}

/// A credential and its place.
#[derive(Debug, Clone)]
pub struct FoundCredential {
    /// Kind and file, for messages: `the proxy FILE`, `the certificate FILE`.
    pub name: String,
    /// The credential.
    pub credential: CertifiedKey,
}

/// The credential that [`find_user_credential`] returns, with its place; `None`: there is none.
///
/// # Errors
/// `Refused`: it has expired, or it cannot be used.
pub fn locate_user_credential() -> Result<Option<FoundCredential>, Failure> {
    CredentialPlaces::of_environment().locate()
}

impl CredentialPlaces {
    fn of_environment() -> Self {
        let variable = |name: &str| {
            let value = std::env::var_os(name).filter(|value| !value.is_empty());
            value.map(PathBuf::from)
        };
        let uid = rustix::process::geteuid().as_raw();
        let globus = std::env::home_dir().map(|home| home.join(".globus"));
        Self {
            named_proxy: variable("X509_USER_PROXY"),
            default_proxy: PathBuf::from(format!("/tmp/x509up_u{uid}")),
            named_pair: variable("X509_USER_CERT").zip(variable("X509_USER_KEY")),
            default_pair: globus
                .map(|folder| (folder.join("usercert.pem"), folder.join("userkey.pem"))),
        }
    }

    fn find(&self) -> Result<CertifiedKey, Failure> {
        let found = self.locate()?;
        found
            .map(|found| found.credential)
            .ok_or_else(|| self.missing())
    }

    fn locate(&self) -> Result<Option<FoundCredential>, Failure> {
        if let Some(path) = &self.named_proxy {
            let name = format!("the proxy {} (X509_USER_PROXY)", path.display());
            let credential = CertifiedKey::from_proxy_file(path).map_err(|e| unusable(&e))?;
            check_validity(&credential, &name)?;
            return Ok(Some(FoundCredential { name, credential }));
        }
        let mut expired = None;
        if self.default_proxy.exists() {
            let path = &self.default_proxy;
            let name = format!("the proxy {}", path.display());
            let credential = CertifiedKey::from_proxy_file(path).map_err(|e| unusable(&e))?;
            match check_validity(&credential, &name) {
                Ok(()) => return Ok(Some(FoundCredential { name, credential })),
                // An old proxy does not hide a certificate that is still valid.
                Err(failure) => expired = Some(failure),
            }
        }
        let default_pair = self.default_pair.as_ref().filter(|(cert, _)| cert.exists());
        let Some((certificate, key)) = self.named_pair.as_ref().or(default_pair) else {
            return expired.map_or(Ok(None), Err);
        };
        match load(certificate, Some(key)) {
            Ok(credential) => {
                let name = format!("the certificate {}", certificate.display());
                check_validity(&credential, &name)?;
                Ok(Some(FoundCredential { name, credential }))
            }
            // The key of `~/.globus` usually has a passphrase, so an expired proxy is the reason.
            Err(failure) => Err(expired.unwrap_or(failure)),
        }
    }

    fn missing(&self) -> Failure {
        Failure::refused(format!(
            "no certificate for gsiftp: was found (X509_USER_PROXY, {}, X509_USER_CERT and \
                 X509_USER_KEY, ~/.globus/usercert.pem): {ADVICE}",
            self.default_proxy.display()
        ))
    }
}

/// Reads a certificate and its key; without `key` both are in one file.
///
/// # Errors
/// `Refused`
pub(crate) fn load(certificate: &Path, key: Option<&Path>) -> Result<CertifiedKey, Failure> {
    let loaded = match key {
        Some(key) => CertifiedKey::from_files(certificate, key, None),
        None => CertifiedKey::from_proxy_file(certificate),
    };
    loaded.map_err(|error| unusable(&error))
}

/// Refuses a credential that has expired. `name` is its name in the message.
///
/// # Errors
/// `Refused`
pub(crate) fn check_validity(credential: &CertifiedKey, name: &str) -> Result<(), Failure> {
    let expires = credential.expires();
    match SystemTime::now().duration_since(expires) {
        Err(_) => Ok(()),
        Ok(_) => Err(Failure::refused(format!(
            "{name} expired at {}: {ADVICE}",
            show_time(expires)
        ))),
    }
}

/// A time for people, UTC.
pub fn show_time(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map_or_else(
        |_| "an unknown time".to_owned(),
        |stamp| stamp.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
    )
}

pub(crate) fn unusable(error: &CredentialError) -> Failure {
    Failure::refused(format!("cannot use your certificate: {error}; {ADVICE}"))
}

/// Makes the throw-away credential for data connections. Blocks for some tenths of a second.
///
/// # Errors
/// `Local`
pub(crate) fn new_data_credential() -> Result<CertifiedKey, Failure> {
    CertifiedKey::new_data_credential().map_err(|error| no_data_credential(&error.to_string()))
}

/// The failure when there is no throw-away credential.
pub(crate) fn no_data_credential(reason: &str) -> Failure {
    Failure::local(format!(
        "cannot make a credential for data connections: {reason}; use --delegate limited"
    ))
}

#[cfg(test)]
mod tests {
    use security::test_pki::{TestAuthority, write_certificates, write_credential, write_key};

    use super::*;
    use crate::FailureKind;

    /// A folder with a credential in each of the four places, named after the place.
    fn all_places(folder: &Path) -> CredentialPlaces {
        let authority = TestAuthority::new("/O=Grid/CN=CA");
        let proxy = |name: &str| {
            let path = folder.join(name);
            write_credential(&path, &authority.user(name));
            path
        };
        let pair = |name: &str| {
            let (certificate, key) = (folder.join(format!("{name}cert")), folder.join(name));
            let user = authority.user(name);
            write_certificates(&certificate, &user);
            write_key(&key, &user);
            (certificate, key)
        };
        CredentialPlaces {
            named_proxy: Some(proxy("named proxy")),
            default_proxy: proxy("default proxy"),
            named_pair: Some(pair("named pair")),
            default_pair: Some(pair("default pair")),
        }
    }

    fn found(places: &CredentialPlaces) -> String {
        places.find().unwrap().subject().to_string()
    }

    #[test]
    fn credentials_are_searched_in_the_order_of_the_grid() {
        let dir = tempfile::tempdir().unwrap();
        let mut places = all_places(dir.path());
        assert!(found(&places).ends_with("CN=named proxy"));
        places.named_proxy = None;
        assert!(found(&places).ends_with("CN=default proxy"));
        places.default_proxy = dir.path().join("none");
        assert!(found(&places).ends_with("CN=named pair"));
        places.named_pair = None;
        assert!(found(&places).ends_with("CN=default pair"));
        places.default_pair = None;
        let failure = places.find().unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Refused);
        assert!(
            failure.to_string().contains("longhaul proxy init"),
            "{failure}"
        );
    }

    #[test]
    fn a_proxy_that_is_named_but_missing_is_not_replaced_by_another() {
        let dir = tempfile::tempdir().unwrap();
        let mut places = all_places(dir.path());
        places.named_proxy = Some(dir.path().join("gone"));
        let failure = places.find().unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Refused);
        assert!(failure.to_string().contains("gone"), "{failure}");
    }

    #[test]
    fn an_expired_proxy_gives_way_to_a_certificate_and_is_named_if_there_is_none() {
        use security::test_pki::TestCertificate;
        let dir = tempfile::tempdir().unwrap();
        let mut places = all_places(dir.path());
        places.named_proxy = None;
        let old = TestCertificate {
            not_before: -200,
            not_after: -100,
            ..TestCertificate::new("/O=Grid/CN=Old")
        };
        let expired = TestAuthority::new("/O=Grid/CN=CA").issue(&old);
        write_credential(&places.default_proxy, &expired);
        assert!(found(&places).ends_with("CN=named pair"));
        places.named_pair = None;
        places.default_pair = None;
        let failure = places.find().unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Refused);
        assert!(
            failure.to_string().contains("expired at")
                && failure.to_string().contains("proxy init"),
            "{failure}"
        );
    }
}
