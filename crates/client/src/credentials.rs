//! Who logs in when the URL does not say it all: the environment, ~/.netrc, anonymous.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::netrc;

/// The user name of anonymous logins (RFC 1635).
pub(crate) const ANONYMOUS: &str = "anonymous";
/// What is given as password of anonymous logins: who is calling.
const ANONYMOUS_PASSWORD: &str = "longhaul@";
/// Holds the password of a named user.
const VARIABLE: &str = "LONGHAUL_PASSWORD";

/// A login.
pub(crate) struct Credentials {
    /// USER
    pub(crate) user: String,
    /// PASS
    pub(crate) password: String,
}

/// The login for `host`: for a named user the password of the environment variable, else of
/// ~/.netrc; without a user the record of ~/.netrc, else anonymous.
pub(crate) fn lookup(host: &str, user: Option<&str>) -> Credentials {
    let variable = std::env::var(VARIABLE).ok();
    let netrc = || std::env::home_dir().and_then(|home| read_netrc(&home.join(".netrc")));
    choose(host, user, variable, netrc)
}

fn choose(
    host: &str,
    user: Option<&str>,
    variable: Option<String>,
    netrc: impl FnOnce() -> Option<Vec<netrc::Entry>>,
) -> Credentials {
    if user == Some(ANONYMOUS) {
        return anonymous();
    }
    if let (Some(user), Some(password)) = (user, &variable) {
        return Credentials {
            user: user.to_owned(),
            password: password.clone(),
        };
    }
    let entries = netrc().unwrap_or_default();
    let entry = netrc::find(&entries, host, user);
    let login = user.or(entry.and_then(|e| e.login.as_deref()));
    match login {
        None => anonymous(),
        Some(login) => Credentials {
            user: login.to_owned(),
            password: variable
                .or(entry.and_then(|e| e.password.clone()))
                .unwrap_or_default(),
        },
    }
}

fn anonymous() -> Credentials {
    Credentials {
        user: ANONYMOUS.to_owned(),
        password: ANONYMOUS_PASSWORD.to_owned(),
    }
}

/// The records of the file; `None` when there is none or others may read it.
fn read_netrc(path: &Path) -> Option<Vec<netrc::Entry>> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    if mode & 0o077 != 0 {
        let path: PathBuf = path.to_owned();
        tracing::warn!(
            "{} is not used: others may read it (chmod 600 {0})",
            path.display()
        );
        return None;
    }
    Some(netrc::parse(&std::fs::read_to_string(path).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn netrc() -> Option<Vec<netrc::Entry>> {
        Some(netrc::parse("machine h login bob password secret"))
    }

    #[test]
    fn order_of_sources() {
        let pick = |host, user, variable: Option<&str>| {
            let c = choose(host, user, variable.map(str::to_owned), netrc);
            (c.user, c.password)
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(pick("h", None, None), pair("bob", "secret"));
        assert_eq!(pick("h", Some("bob"), None), pair("bob", "secret"));
        assert_eq!(pick("h", Some("bob"), Some("env")), pair("bob", "env"));
        assert_eq!(pick("h", Some("eve"), None), pair("eve", ""));
        assert_eq!(pick("x", None, None), pair(ANONYMOUS, ANONYMOUS_PASSWORD));
        // The variable is a person's password: it never goes out with an anonymous login.
        assert_eq!(
            pick("x", None, Some("env")),
            pair(ANONYMOUS, ANONYMOUS_PASSWORD)
        );
        assert_eq!(
            pick("h", Some(ANONYMOUS), Some("env")),
            pair(ANONYMOUS, ANONYMOUS_PASSWORD)
        );
    }

    #[test]
    fn readable_by_others_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".netrc");
        std::fs::write(&path, "machine h login bob password secret").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read_netrc(&path).is_none());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_netrc(&path).unwrap().len(), 1);
    }
}
