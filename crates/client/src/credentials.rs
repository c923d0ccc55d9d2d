//! Who logs in when the URL does not say it all: the environment, ~/.netrc, anonymous.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;

use crate::netrc;

/// The user name of anonymous logins (RFC 1635).
pub(crate) const ANONYMOUS: &str = "anonymous";
/// Password of anonymous logins: who is calling.
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
    let netrc = || {
        let read = read_netrc(&std::env::home_dir()?.join(".netrc"));
        if let Some(trouble) = read.trouble {
            TROUBLE.get_or_init(|| trouble);
        }
        Some(read.entries)
    };
    choose(host, user, variable, netrc)
}

/// Why something in ~/.netrc was not used.
static TROUBLE: OnceLock<String> = OnceLock::new();

/// Why ~/.netrc, or something in it, was not used when a login was looked up, and what to do: one line
/// for the user. `None`: it was used, or there is none, or nobody looked.
pub fn ignored_netrc() -> Option<&'static str> {
    TROUBLE.get().map(String::as_str)
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

/// The entries of the file, and the trouble with it.
#[derive(Debug, Default)]
struct Netrc {
    entries: Vec<netrc::Entry>,
    trouble: Option<String>,
}

/// Reads the file. It holds passwords: one that others may read, or that somebody else wrote, is not
/// used.
fn read_netrc(path: &Path) -> Netrc {
    let shown = path.display();
    let ignored = |why: String| Netrc {
        trouble: Some(format!("{shown} is not used: {why}")),
        ..Netrc::default()
    };
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == ErrorKind::NotFound => return Netrc::default(),
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
    Netrc {
        entries,
        trouble: fault.map(|fault| format!("{shown}: {fault}; mend that line")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn netrc() -> Option<Vec<netrc::Entry>> {
        Some(netrc::parse("machine h login bob password secret").0)
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

    /// A file of this text and these permissions.
    fn read(text: &[u8], mode: u32) -> Netrc {
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
        let trouble = open.trouble.unwrap();
        assert!(trouble.contains("others may read it"), "{trouble}");
        assert!(trouble.contains("chmod 600 /"), "{trouble}");
        let closed = read(RECORD, 0o600);
        assert_eq!((closed.entries.len(), closed.trouble), (1, None));
    }

    #[test]
    fn what_cannot_be_read_says_so() {
        let binary = read(b"\xff\xfe", 0o600);
        assert!(binary.trouble.unwrap().contains("UTF-8"));
        let misspelt = read(b"machine h\n login bob\n pasword secret", 0o600);
        assert_eq!(misspelt.entries.len(), 1);
        let trouble = misspelt.trouble.unwrap();
        assert!(trouble.contains("line 3: a word"), "{trouble}");
        assert!(!trouble.contains("secret"));
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_netrc(&dir.path().join("none")).trouble, None);
        assert!(read_netrc(dir.path()).trouble.is_some());
    }
}
