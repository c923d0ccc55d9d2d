//! Who logs in: what a credential is, and where it comes from when the URL does not say it all (the
//! environment, ~/.netrc, anonymous).

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use proto::command::Secret;

use crate::{CopyFailure, Exit, netrc};

/// The user name of anonymous logins (RFC 1635).
const ANONYMOUS: &str = "anonymous";
/// Password of anonymous logins: who is calling.
const ANONYMOUS_PASSWORD: &str = "longhaul@";
/// Holds the password of a named user.
const PASSWORD_VARIABLE: &str = "LONGHAUL_PASSWORD";

/// Credential that a client shows a server. Secrets in it are not shown by [`std::fmt::Debug`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Credential {
    /// Nobody in particular (RFC 1635).
    Anonymous,
    /// A name and what only its owner knows.
    Password {
        /// USER
        user: String,
        /// PASS
        password: Secret,
    },
    /// An X.509 certificate, as GSI and TLS logins have it.
    Certificate {
        /// PEM file of the certificate and its chain.
        chain: PathBuf,
        /// PEM file of its key.
        key: PathBuf,
    },
    /// A bearer token (RFC 6750).
    Token(Secret),
}

impl Credential {
    /// A name and its password.
    pub fn password(user: impl Into<String>, password: impl Into<Secret>) -> Self {
        Self::Password {
            user: user.into(),
            password: password.into(),
        }
    }

    /// The name in it, unless that is everybody's.
    pub fn user(&self) -> Option<&str> {
        match self {
            Self::Password { user, .. } if user != ANONYMOUS => Some(user),
            _ => None,
        }
    }

    /// A text that the credentials of one account share, without secrets. Tokens all have the same:
    /// whose they are is not seen.
    pub(crate) fn account_key(&self) -> String {
        match self {
            Self::Anonymous => ANONYMOUS.to_owned(),
            Self::Password { user, .. } => user.clone(),
            Self::Certificate { chain, .. } => format!("\0certificate\0{}", chain.display()),
            Self::Token(_) => "\0token".to_owned(),
        }
    }

    /// Words of USER and PASS.
    ///
    /// # Errors
    /// `Usage`: it cannot be told so.
    pub(crate) fn user_and_password(&self) -> Result<(&str, Secret), CopyFailure> {
        let unspoken = |what: &str| {
            let message = format!(
                "logins with a {what} are not spoken by this version; give a user and a password"
            );
            CopyFailure::new(Exit::Usage, message)
        };
        match self {
            Self::Anonymous => Ok((ANONYMOUS, ANONYMOUS_PASSWORD.into())),
            Self::Password { user, password } => Ok((user, password.clone())),
            Self::Certificate { .. } => Err(unspoken("certificate (GSI, TLS)")),
            Self::Token(_) => Err(unspoken("token")),
        }
    }
}

/// The login for `host`: for a named user the password of the environment variable, else of
/// ~/.netrc; without a user the record of ~/.netrc, else anonymous.
pub(crate) fn find_credential(host: &str, user: Option<&str>) -> Credential {
    let variable = std::env::var(PASSWORD_VARIABLE).ok();
    let netrc = || {
        let read = read_netrc(&std::env::home_dir()?.join(".netrc"));
        if let Some(trouble) = read.problem {
            NETRC_PROBLEM.get_or_init(|| trouble);
        }
        Some(read.entries)
    };
    choose_credential(host, user, variable, netrc)
}

/// Why something in ~/.netrc was not used.
static NETRC_PROBLEM: OnceLock<String> = OnceLock::new();

/// Why ~/.netrc, or something in it, was not used when a login was looked up, and what to do: one line
/// for the user. `None`: it was used, or there is none, or nobody looked.
pub fn netrc_warning() -> Option<&'static str> {
    NETRC_PROBLEM.get().map(String::as_str)
}

fn choose_credential(
    host: &str,
    user: Option<&str>,
    variable: Option<String>,
    netrc: impl FnOnce() -> Option<Vec<netrc::NetrcEntry>>,
) -> Credential {
    if user == Some(ANONYMOUS) {
        return Credential::Anonymous;
    }
    if let (Some(user), Some(password)) = (user, &variable) {
        return Credential::password(user, password.as_str());
    }
    let entries = netrc().unwrap_or_default();
    let entry = netrc::find_entry(&entries, host, user);
    let login = user.or(entry.and_then(|e| e.login.as_deref()));
    match login {
        None => Credential::Anonymous,
        Some(login) => {
            let found = variable.map(Secret::from);
            let found = found.or_else(|| entry.and_then(|e| e.password.clone()));
            Credential::password(login, found.unwrap_or_else(|| "".into()))
        }
    }
}

/// The entries of the file, and the trouble with it.
#[derive(Debug, Default)]
struct NetrcContents {
    entries: Vec<netrc::NetrcEntry>,
    problem: Option<String>,
}

/// Reads the file. It holds passwords: one that others may read, or that somebody else wrote, is not
/// used.
fn read_netrc(path: &Path) -> NetrcContents {
    let shown = path.display();
    let ignored = |why: String| NetrcContents {
        problem: Some(format!("{shown} is not used: {why}")),
        ..NetrcContents::default()
    };
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == ErrorKind::NotFound => return NetrcContents::default(),
        Err(e) => return ignored(format!("{e}; make it readable for yourself alone")),
    };
    let me = rustix::process::geteuid().as_raw();
    if meta.uid() != me && meta.uid() != 0 {
        return ignored(format!(
            "it belongs to user {}, not to you; make it yours (chown {me} {shown})",
            meta.uid()
        ));
    }
    if meta.mode() & 0o077 != 0 {
        return ignored(format!(
            "others may read it; keep it to yourself (chmod 600 {shown})"
        ));
    }
    let text = match std::fs::read(path).map(String::from_utf8) {
        Ok(Ok(text)) => text,
        Ok(Err(_)) => return ignored("it is not UTF-8 text; write it anew".to_owned()),
        Err(e) => return ignored(format!("{e}; make it readable for yourself alone")),
    };
    let (entries, fault) = netrc::parse(&text);
    NetrcContents {
        entries,
        problem: fault.map(|fault| format!("{shown}: {fault}; mend that line")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn netrc() -> Option<Vec<netrc::NetrcEntry>> {
        Some(netrc::parse("machine h login bob password secret").0)
    }

    #[test]
    fn order_of_sources() {
        let pick = |host, user, variable: Option<&str>| {
            choose_credential(host, user, variable.map(str::to_owned), netrc)
        };
        let pair = |a: &str, b: &str| Credential::password(a, b);
        let anonymous = Credential::Anonymous;
        assert_eq!(pick("h", None, None), pair("bob", "secret"));
        assert_eq!(pick("h", Some("bob"), None), pair("bob", "secret"));
        assert_eq!(pick("h", Some("bob"), Some("env")), pair("bob", "env"));
        assert_eq!(pick("h", Some("eve"), None), pair("eve", ""));
        assert_eq!(pick("x", None, None), anonymous);
        // The variable is a person's password: it never goes out with an anonymous login.
        assert_eq!(pick("x", None, Some("env")), anonymous);
        assert_eq!(pick("h", Some(ANONYMOUS), Some("env")), anonymous);
    }

    fn unspoken() -> [(Credential, &'static str); 2] {
        let certificate = Credential::Certificate {
            chain: "/tmp/chain.pem".into(),
            key: "/tmp/key.pem".into(),
        };
        let token = Credential::Token("hush".into());
        [(certificate, "certificate"), (token, "token")]
    }

    #[test]
    fn what_user_and_pass_cannot_say_is_refused_by_name() {
        for (credential, name) in unspoken() {
            let failure = credential.user_and_password().unwrap_err();
            assert_eq!(failure.exit, Exit::Usage);
            assert!(failure.message.contains(name), "{failure}");
            assert_eq!(credential.user(), None);
        }
        let words = Credential::Anonymous.user_and_password().unwrap();
        assert_eq!(words, (ANONYMOUS, ANONYMOUS_PASSWORD.into()));
    }

    #[test]
    fn no_two_accounts_are_one() {
        let [(certificate, _), (token, _)] = unspoken();
        let all = [
            Credential::Anonymous,
            Credential::password("joe", ""),
            certificate,
            token,
        ];
        let mut accounts: Vec<_> = all.iter().map(Credential::account_key).collect();
        accounts.sort_unstable();
        accounts.dedup();
        assert_eq!(accounts.len(), all.len());
        // Whatever it said as password.
        let named = Credential::password(ANONYMOUS, "me@here");
        assert_eq!(named.account_key(), Credential::Anonymous.account_key());
        assert_eq!(named.user(), None);
    }

    #[test]
    fn secrets_are_not_shown() {
        let login = Credential::password("joe", "hush");
        let token = Credential::Token("hush".into());
        let shown = format!("{login:?} {token:?}");
        assert!(shown.contains("joe") && !shown.contains("hush"), "{shown}");
        let bytes = format!("{:?}", b"hush");
        assert!(!shown.contains(&bytes), "{shown}");
    }

    /// A file of this text and these permissions.
    fn read(text: &[u8], mode: u32) -> NetrcContents {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".netrc");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        read_netrc(&path)
    }

    const RECORD: &[u8] = b"machine h login bob password secret";

    #[test]
    fn readable_by_others_is_not_used_and_says_so() {
        let open = read(RECORD, 0o644);
        assert!(open.entries.is_empty());
        let trouble = open.problem.unwrap();
        assert!(trouble.contains("others may read it"), "{trouble}");
        assert!(trouble.contains("chmod 600 /"), "{trouble}");
        let closed = read(RECORD, 0o600);
        assert_eq!((closed.entries.len(), closed.problem), (1, None));
    }

    #[test]
    fn what_cannot_be_read_says_so() {
        let binary = read(b"\xff\xfe", 0o600);
        assert!(binary.problem.unwrap().contains("UTF-8"));
        let misspelt = read(b"machine h\n login bob\n pasword secret", 0o600);
        assert_eq!(misspelt.entries.len(), 1);
        let trouble = misspelt.problem.unwrap();
        assert!(trouble.contains("line 3: a word"), "{trouble}");
        assert!(!trouble.contains("secret"));
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_netrc(&dir.path().join("none")).problem, None);
        assert!(read_netrc(dir.path()).problem.is_some());
    }
}
