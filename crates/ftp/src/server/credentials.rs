//! Login credentials: their types, and where they come from when the URL does not hold them all
//! (the environment, ~/.netrc, anonymous).

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::OnceLock;

use parking_lot::Mutex;
use proto::command::Secret;
use smallfile::regular_file;
use zeroize::Zeroizing;

use crate::server::{netrc, private_file};

/// A login whose password no source has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingPassword {
    /// The user.
    pub user: String,
    /// The host, as the URL names it.
    pub host: String,
}

/// The user name of anonymous logins (RFC 1635).
const ANONYMOUS: &str = "anonymous";
/// Password of anonymous logins. RFC 1635 asks for an address of the caller; this names the
/// program.
const ANONYMOUS_PASSWORD: &str = "longhaul@";
/// The user name for the account that a GSI server maps a certificate to (globus-gridftp-server).
pub const GRID_MAPPING: &str = ":globus-mapping:";
/// The user name of logins with a token, which is the password.
const BEARER: &str = ":bearer:";
/// Environment variable with the password of a named user.
const PASSWORD_VARIABLE: &str = "LONGHAUL_PASSWORD";
/// Longest ~/.netrc, bytes.
const MAX_NETRC_BYTES: u64 = 1 << 20;

/// Credential that a client presents to a server. [`std::fmt::Debug`] does not show the secrets in
/// it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Credential {
    /// Anonymous login (RFC 1635).
    Anonymous,
    /// User name and password.
    Password {
        /// USER
        user: String,
        /// PASS
        password: Secret,
    },
    /// The account that a GSI server maps the certificate of the session to.
    GridMapping,
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

    /// The user name, unless the login is anonymous.
    pub fn user(&self) -> Option<&str> {
        match self {
            // `anonymous` with a password is the anonymous login all the same.
            Self::Password { user, .. } if user != ANONYMOUS => Some(user),
            _ => None,
        }
    }

    /// A key without secrets, equal for credentials of the same account. All tokens share one key,
    /// since a token does not show whose it is.
    pub fn account_key(&self) -> String {
        match self {
            Self::Anonymous => ANONYMOUS.to_owned(),
            Self::Password { user, .. } => user.clone(),
            // A NUL byte cannot occur in a user name, so these keys never equal one.
            Self::GridMapping => "\0mapping".to_owned(),
            Self::Token(_) => "\0token".to_owned(),
        }
    }

    /// The arguments of USER and PASS. A token must only be sent over a verified TLS connection.
    pub fn user_and_password(&self) -> (&str, Secret) {
        match self {
            Self::Anonymous => (ANONYMOUS, ANONYMOUS_PASSWORD.into()),
            Self::Password { user, password } => (user, password.clone()),
            // The certificate is the proof, so any password will do.
            Self::GridMapping => (GRID_MAPPING, "".into()),
            Self::Token(token) => (BEARER, token.clone()),
        }
    }

    /// Whether USER and PASS carry a secret of a person.
    pub fn has_secret(&self) -> bool {
        match self {
            Self::Anonymous | Self::GridMapping => false,
            Self::Password { user, password } => user != ANONYMOUS && !password.0.is_empty(),
            Self::Token(_) => true,
        }
    }
}

/// The login of the password in the environment variable, which does not say for whom it is: the first one of a run that
/// asks for it. No other server gets it.
#[derive(Debug, Default)]
pub struct VariableHolder(Mutex<Option<(String, String)>>);

impl VariableHolder {
    /// Whether the password is that of this user at this host.
    fn claim(&self, user: &str, host: &str) -> bool {
        let asking = (user.to_owned(), host.to_ascii_lowercase());
        let mut holder = self.0.lock();
        *holder.get_or_insert_with(|| asking.clone()) == asking
    }

    /// `user@host`, if the password is somebody's.
    pub fn name(&self) -> Option<String> {
        let holder = self.0.lock();
        let (user, host) = holder.as_ref()?;
        Some(format!("{user}@{host}"))
    }
}

/// The credential for `host`, and whether its password is missing. For a named user: the password of the environment
/// variable, if it is his, else of ~/.netrc. Without a user: the record of ~/.netrc, else anonymous.
pub fn find_login(host: &str, user: Option<&str>, holder: &VariableHolder) -> (Credential, bool) {
    let variable = std::env::var(PASSWORD_VARIABLE).ok();
    // An anonymous login has no password of a person.
    let named = user.filter(|user| *user != ANONYMOUS);
    let variable = variable.filter(|_| named.is_some_and(|user| holder.claim(user, host)));
    let netrc = || {
        let read = read_netrc(&std::env::home_dir()?.join(".netrc"));
        if let Some(problem) = read.problem {
            // Only the first problem is kept: one warning per run is enough.
            NETRC_PROBLEM.get_or_init(|| problem);
        }
        Some(read.entries)
    };
    choose_credential(host, user, variable.as_deref(), netrc)
}

/// [`find_login`] with this file alone.
///
/// # Errors
/// One line: the reason why the file, or a part of it, cannot be used.
pub fn find_in_netrc(
    file: &Path,
    host: &str,
    user: Option<&str>,
) -> Result<(Credential, bool), String> {
    let read = read_netrc(file);
    match read.problem {
        Some(problem) => Err(problem),
        None => Ok(choose_credential(host, user, None, || Some(read.entries))),
    }
}

/// The first problem found in ~/.netrc. Process-wide, since every URL looks there.
static NETRC_PROBLEM: OnceLock<String> = OnceLock::new();

/// One line for the user: why ~/.netrc, or a part of it, was not used, and what to do. `None` if it
/// was used, does not exist, or was not read.
pub fn netrc_warning() -> Option<&'static str> {
    NETRC_PROBLEM.get().map(String::as_str)
}

fn choose_credential(
    host: &str,
    user: Option<&str>,
    variable: Option<&str>,
    netrc: impl FnOnce() -> Option<Vec<netrc::NetrcEntry>>,
) -> (Credential, bool) {
    // LONGHAUL_PASSWORD is a personal password, so it never goes with an anonymous login.
    if user == Some(ANONYMOUS) {
        return (Credential::Anonymous, false);
    }
    if let (Some(user), Some(password)) = (user, variable) {
        return (Credential::password(user, password), false);
    }
    let entries = netrc().unwrap_or_default();
    let entry = netrc::find_entry(&entries, host, user);
    let login = user.or(entry.and_then(|e| e.login.as_deref()));
    match login {
        None => (Credential::Anonymous, false),
        Some(login) => {
            let found = entry.and_then(|e| e.password.clone());
            // RFC 959 servers may accept USER alone; an empty password is sent only if they ask for
            // one.
            let is_missing = found.is_none();
            let password = found.unwrap_or_else(|| "".into());
            (Credential::password(login, password), is_missing)
        }
    }
}

/// Contents of ~/.netrc, and the first problem in it.
#[derive(Debug, Default)]
struct NetrcContents {
    entries: Vec<netrc::NetrcEntry>,
    problem: Option<String>,
}

/// Reads the file. A file with passwords is ignored if others may read it or another user owns it.
fn read_netrc(path: &Path) -> NetrcContents {
    let display_path = path.display();
    let ignored = |reason: String| NetrcContents {
        problem: Some(format!("{display_path} is ignored: {reason}")),
        ..NetrcContents::default()
    };
    let unreadable =
        |error: std::io::Error| ignored(format!("{error}; make it readable for yourself alone"));
    let (file, meta) = match regular_file::open(path) {
        Ok(opened) => opened,
        Err(e) if e.kind() == ErrorKind::NotFound => return NetrcContents::default(),
        Err(e) => return unreadable(e),
    };
    if let Some(reason) = private_file::exposure_of_file(&meta, path) {
        return ignored(reason);
    }
    let mut bytes = Zeroizing::new(Vec::new());
    if let Err(e) = file.take(MAX_NETRC_BYTES + 1).read_to_end(&mut bytes) {
        return unreadable(e);
    }
    if bytes.len() as u64 > MAX_NETRC_BYTES {
        return ignored("it is longer than 1 MiB; remove what is no record".to_owned());
    }
    let Ok(text) = std::str::from_utf8(&bytes) else {
        return ignored("it is not UTF-8 text; rewrite it as UTF-8".to_owned());
    };
    let (entries, problem) = netrc::parse(text);
    NetrcContents {
        entries,
        problem: problem.map(|problem| format!("{display_path}: {problem}; correct that line")),
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
    fn environment_then_netrc_then_anonymous_supply_the_credential() {
        let pick =
            |host, user, variable: Option<&str>| choose_credential(host, user, variable, netrc).0;
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
        // Nor to a user that only a record of ~/.netrc names.
        assert_eq!(pick("h", None, Some("env")), pair("bob", "secret"));
    }

    #[test]
    fn the_password_of_the_environment_is_for_the_first_login_that_asks_for_it() {
        let holder = VariableHolder::default();
        assert_eq!(holder.name(), None);
        assert!(holder.claim("joe", "A.example"));
        assert!(holder.claim("joe", "a.example"));
        assert!(!holder.claim("joe", "b.example") && !holder.claim("ann", "a.example"));
        assert_eq!(holder.name().unwrap(), "joe@a.example");
    }

    #[test]
    fn a_password_is_missing_only_where_a_named_user_has_none() {
        let is_missing =
            |host, user, variable: Option<&str>| choose_credential(host, user, variable, netrc).1;
        assert!(is_missing("h", Some("eve"), None));
        assert!(!is_missing("h", Some("eve"), Some("env")));
        assert!(!is_missing("h", Some("bob"), None));
        assert!(!is_missing("x", None, None));
        assert!(!is_missing("x", Some(ANONYMOUS), None));
    }

    #[test]
    fn certificates_and_tokens_have_user_names_of_their_own() {
        let words = Credential::Anonymous.user_and_password();
        assert_eq!(words, (ANONYMOUS, ANONYMOUS_PASSWORD.into()));
        let mapping = Credential::GridMapping;
        assert_eq!(mapping.user_and_password(), (":globus-mapping:", "".into()));
        let token = Credential::Token("hush".into());
        assert_eq!(token.user_and_password(), (":bearer:", "hush".into()));
        assert_eq!((mapping.user(), token.user()), (None, None));
        assert!(token.has_secret() && !mapping.has_secret());
        assert!(!Credential::password(ANONYMOUS, "me@here").has_secret());
    }

    #[test]
    fn different_accounts_have_different_keys() {
        let all = [
            Credential::Anonymous,
            Credential::password("joe", ""),
            Credential::GridMapping,
            Credential::Token("hush".into()),
        ];
        let mut accounts: Vec<_> = all.iter().map(Credential::account_key).collect();
        accounts.sort_unstable();
        accounts.dedup();
        assert_eq!(accounts.len(), all.len());
        // Anonymous by name is the same account, whatever its password.
        let named = Credential::password(ANONYMOUS, "me@here");
        assert_eq!(named.account_key(), Credential::Anonymous.account_key());
        assert_eq!(named.user(), None);
    }

    #[test]
    fn debug_output_hides_secrets() {
        let login = Credential::password("joe", "hush");
        let token = Credential::Token("hush".into());
        let display_path = format!("{login:?} {token:?}");
        assert!(
            display_path.contains("joe") && !display_path.contains("hush"),
            "{display_path}"
        );
        let bytes = format!("{:?}", b"hush");
        assert!(!display_path.contains(&bytes), "{display_path}");
    }

    /// Reads a file with this text and these permissions.
    fn read(text: &[u8], mode: u32) -> NetrcContents {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".netrc");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        read_netrc(&path)
    }

    const RECORD: &[u8] = b"machine h login bob password secret";

    #[test]
    fn netrc_readable_by_others_is_ignored_with_a_message() {
        let open = read(RECORD, 0o644);
        assert!(open.entries.is_empty());
        let problem = open.problem.unwrap();
        assert!(problem.contains("others may read it"), "{problem}");
        assert!(problem.contains("chmod 600 /"), "{problem}");
        let closed = read(RECORD, 0o600);
        assert_eq!((closed.entries.len(), closed.problem), (1, None));
    }

    #[test]
    fn unreadable_netrc_is_reported() {
        let binary = read(b"\xff\xfe", 0o600);
        assert!(binary.problem.unwrap().contains("UTF-8"));
        let misspelt = read(b"machine h\n login bob\n pasword secret", 0o600);
        assert_eq!(misspelt.entries.len(), 1);
        let problem = misspelt.problem.unwrap();
        assert!(problem.contains("line 3: a word"), "{problem}");
        assert!(!problem.contains("secret"));
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_netrc(&dir.path().join("none")).problem, None);
        assert!(read_netrc(dir.path()).problem.is_some());
    }

    #[test]
    fn a_netrc_that_is_no_regular_file_is_ignored_and_never_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = crate::test_files::make_pipe(dir.path());
        for special in [pipe.as_path(), Path::new("/dev/zero"), dir.path()] {
            let problem = read_netrc(special).problem.unwrap();
            assert!(problem.contains("not a regular file"), "{problem}");
        }
    }

    #[test]
    fn an_endless_netrc_is_ignored() {
        let text = vec![b'#'; usize::try_from(MAX_NETRC_BYTES).unwrap() + 1];
        assert!(read(&text, 0o600).problem.unwrap().contains("1 MiB"));
        assert_eq!(read(&text[1..], 0o600).problem, None);
    }
}
