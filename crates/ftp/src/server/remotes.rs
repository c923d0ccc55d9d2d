//! Servers with names of their own (`cern:path`), and passwords that a run has learned from its user.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use parking_lot::Mutex;
use proto::command::Secret;

use crate::Failure;
use crate::credentials::{self, Credential, MissingPassword, VariableHolder};
use crate::server::any_bytes::encoded_rest;
use crate::server::url::percent_encode;

pub use crate::server::password_source::PasswordSource;

/// How to log in at a named server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteLogin {
    /// As for URLs: LONGHAUL_PASSWORD, if it is for this server, ~/.netrc, anonymous.
    OfUrls,
    /// With the password of this source.
    Password(PasswordSource),
    /// With the bearer token in this file.
    Token(std::path::PathBuf),
}

/// A server with a name.
#[derive(Debug)]
pub struct RemoteServer {
    name: String,
    /// `scheme://[user@]host[:port]`
    origin: String,
    /// Path below which relative paths are, percent-encoded, without a slash at its end.
    base: String,
    login: RemoteLogin,
    /// The result of asking the source, which may be a program that asks its user.
    found: OnceLock<Result<Secret, Failure>>,
}

impl RemoteServer {
    /// A server called `name` at `url`, which may have a user but no password and no query.
    ///
    /// # Errors
    /// `Usage`: the name, the URL or the user cannot be used. No message has a password.
    pub fn new(
        name: &str,
        url: &str,
        user: Option<&str>,
        login: RemoteLogin,
    ) -> Result<Self, Failure> {
        let usage = |problem: &str| Err(Failure::usage(problem));
        if !is_remote_name(name) {
            return usage(
                "a name has letters, digits, `-`, `_` and `.`, begins with a letter, and is no URL scheme",
            );
        }
        let Some((scheme, rest)) = url.split_once("://") else {
            return usage(
                "`url` begins with ftp://, ftps://, gsiftp://, ssh://, sshftp://, sftp://, http://, https:// or s3://",
            );
        };
        if !SERVER_SCHEMES.contains(&scheme) {
            return usage(
                "`url` begins with ftp://, ftps://, gsiftp://, ssh://, sshftp://, sftp://, http://, https:// or s3://",
            );
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user_of_url, address) = match authority.rsplit_once('@') {
            Some((login, address)) => (Some(login), address),
            None => (None, authority),
        };
        if user_of_url.is_some_and(|login| login.contains(':')) {
            return usage("`url` has a password: put it into `password-file` or `password`");
        }
        if scheme.starts_with("http") && path.contains(['?', '#']) {
            return usage("`url` has a query, which would be sent with every request");
        }
        let login_part = match (user_of_url, user) {
            (Some(_), Some(_)) => return usage("`url` has a user already: leave out `user`"),
            (Some(user), None) => format!("{user}@"),
            (None, Some("")) => return usage("`user` is empty: leave it out"),
            (None, Some(user)) => {
                let mut encoded = String::new();
                percent_encode(user.as_bytes(), false, &mut encoded);
                format!("{encoded}@")
            }
            (None, None) => String::new(),
        };
        match (&login, login_part.is_empty(), scheme) {
            (RemoteLogin::Password(_), _, "gsiftp") => {
                return usage("gsiftp: has no passwords: the certificate is the login (`cert`)");
            }
            (RemoteLogin::Password(PasswordSource::Netrc(_)), _, "ssh" | "sshftp" | "sftp") => {}
            (RemoteLogin::Password(_), _, "ssh" | "sshftp" | "sftp") => {
                return usage("ssh finds its keys, and asks for passwords, itself");
            }
            (RemoteLogin::Password(_), _, "s3") => {
                return usage("keys of buckets come from the profiles of AWS: `user` names one");
            }
            (RemoteLogin::Password(PasswordSource::Netrc(_)), true, _) => {}
            (RemoteLogin::Password(_), true, _) => {
                return usage("a password needs `user`");
            }
            (RemoteLogin::Token(_), false, _) => {
                return usage("a token is sent without a user: leave out `user`");
            }
            (RemoteLogin::Token(_), _, "ftps" | "https") => {}
            (RemoteLogin::Token(_), ..) => {
                return usage("a token is sent to ftps: and https: servers only");
            }
            _ => {}
        }
        let remote = Self {
            name: name.to_owned(),
            origin: format!("{scheme}://{login_part}{address}"),
            base: path.trim_end_matches('/').to_owned(),
            login,
            found: OnceLock::new(),
        };
        crate::location::Location::server_of(&remote.url(""))?;
        Ok(remote)
    }

    /// The URL of a path: below the path of the remote's URL, or from the server's root if it begins with `/`.
    fn url(&self, path: &str) -> String {
        let mut url = self.origin.clone();
        let encoded = encoded_rest(path);
        if !encoded.unwrap_or(path).starts_with('/') {
            url.push_str(&self.base);
            url.push('/');
        }
        match encoded {
            Some(encoded) => url.push_str(encoded),
            None => percent_encode(path.as_bytes(), true, &mut url),
        }
        url
    }

    /// The credential for the host, and whether a password is missing.
    fn credential(
        &self,
        host: &str,
        user: Option<&str>,
        variable: &VariableHolder,
    ) -> Result<(Credential, bool), Failure> {
        let secret = |read: &dyn Fn() -> Result<Secret, Failure>| {
            let found = self.found.get_or_init(read).clone();
            found.map_err(|failure| failure.within(format!("remote {}", self.name)))
        };
        match &self.login {
            RemoteLogin::OfUrls => Ok(credentials::find_login(host, user, variable)),
            RemoteLogin::Password(PasswordSource::Netrc(file)) => {
                credentials::find_in_netrc(file, host, user)
                    .map_err(|problem| Failure::refused(format!("remote {}: {problem}", self.name)))
            }
            RemoteLogin::Password(source) => {
                let password = secret(&|| source.read())?;
                let user = user.unwrap_or_default();
                Ok((Credential::password(user, password), false))
            }
            RemoteLogin::Token(file) => {
                let token = secret(&|| crate::protection::read_token_file(file))?;
                Ok((Credential::Token(token), false))
            }
        }
    }
}

const SERVER_SCHEMES: [&str; 9] = [
    "ftp", "ftps", "gsiftp", "ssh", "sshftp", "sftp", "http", "https", "s3",
];

/// Whether a remote may have this name.
fn is_remote_name(name: &str) -> bool {
    let is_scheme = SERVER_SCHEMES.contains(&name.to_ascii_lowercase().as_str())
        || name.eq_ignore_ascii_case("file");
    let mut letters = name.chars();
    !is_scheme
        && letters.next().is_some_and(|c| c.is_ascii_alphabetic())
        && letters.all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// The servers with names, and the passwords that were typed. Shared by all connections of a run.
#[derive(Debug, Default)]
pub struct Remotes {
    servers: Vec<RemoteServer>,
    /// By user and host.
    typed: Mutex<BTreeMap<(String, String), Secret>>,
    /// Whose password LONGHAUL_PASSWORD is.
    variable: VariableHolder,
}

impl Remotes {
    /// These servers. Of two with one name, the first counts.
    pub fn new(servers: Vec<RemoteServer>) -> Self {
        Self {
            servers,
            ..Self::default()
        }
    }

    /// `user@host`: whose password LONGHAUL_PASSWORD is, once somebody has asked for it.
    pub fn variable_holder(&self) -> Option<String> {
        self.variable.name()
    }

    /// The server and the URL that an argument `NAME:path` means; `None` if NAME is no remote. `NAME://` is
    /// left to URLs.
    pub fn expand(&self, text: &str) -> Option<(&RemoteServer, String)> {
        let (name, path) = text.split_once(':')?;
        if path.starts_with("//") {
            return None;
        }
        let remote = self.servers.iter().find(|remote| remote.name == name)?;
        Some((remote, remote.url(path)))
    }

    /// The name of the remote that an argument begins with.
    pub fn name_in(&self, text: &str) -> Option<&str> {
        self.expand(text).map(|(remote, _)| remote.name.as_str())
    }

    /// Whether an argument begins with the name of a remote that has a user.
    pub fn has_user(&self, text: &str) -> bool {
        let expanded = self.expand(text);
        expanded.is_some_and(|(remote, _)| remote.origin.contains('@'))
    }

    /// The name before the colon of an argument that is a path of this machine but looks like one of a remote; `None` if
    /// there are no remotes.
    pub fn unknown_name_in<'t>(&self, text: &'t str) -> Option<&'t str> {
        let (name, rest) = text.split_once(':')?;
        let is_known = self.servers.iter().any(|remote| remote.name == name);
        let looks_like_one = is_remote_name(name) && !is_known && !rest.starts_with("//");
        (looks_like_one && !self.servers.is_empty()).then_some(name)
    }

    /// The host of an argument that is a URL or begins with the name of a remote; `None` for local paths, and
    /// for what cannot be parsed.
    pub fn host_in(&self, text: &str) -> Option<String> {
        let expanded = self.expand(text).map(|(_, url)| url);
        let server = crate::location::Location::server_of(expanded.as_deref().unwrap_or(text));
        server.ok().flatten().map(|server| server.host)
    }

    /// The credential for a URL (`remote`: of this remote), and whether its password is missing.
    pub fn credential(
        &self,
        remote: Option<&RemoteServer>,
        host: &str,
        user: Option<&str>,
    ) -> Result<(Credential, bool), Failure> {
        let (credential, is_missing) = match remote {
            Some(remote) => remote.credential(host, user, &self.variable)?,
            None => credentials::find_login(host, user, &self.variable),
        };
        let typed = credential.user().filter(|_| is_missing).and_then(|user| {
            let key = (user.to_owned(), host.to_ascii_lowercase());
            let typed = self.typed.lock();
            typed.get(&key).cloned()
        });
        Ok(match (credential.user(), typed) {
            (Some(user), Some(password)) => (Credential::password(user, password), false),
            _ => (credential, is_missing),
        })
    }

    /// Keeps a password that the user has typed, for all sessions of the run.
    pub fn remember(&self, login: &MissingPassword, password: Secret) {
        let key = (login.user.clone(), login.host.to_ascii_lowercase());
        let mut typed = self.typed.lock();
        typed.insert(key, password);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FailureKind;

    fn remotes(url: &str, user: Option<&str>, login: RemoteLogin) -> Result<Remotes, Failure> {
        RemoteServer::new("cern", url, user, login).map(|remote| Remotes::new(vec![remote]))
    }

    fn expanded(url: &str, text: &str) -> Option<String> {
        let remotes = remotes(url, Some("ann b"), RemoteLogin::OfUrls).unwrap();
        remotes.expand(text).map(|(_, url)| url)
    }

    #[test]
    fn a_path_is_below_the_path_of_the_url_or_begins_at_the_root() {
        let url = "ftps://h:990/eos/ann/";
        let at = |text| expanded(url, text).unwrap();
        assert_eq!(at("cern:a/b c"), "ftps://ann%20b@h:990/eos/ann/a/b%20c");
        assert_eq!(at("cern:/a?b"), "ftps://ann%20b@h:990/a%3Fb");
        let bytes = |bytes: &[u8]| {
            let text = crate::location::Location::argument(
                std::os::unix::ffi::OsStrExt::from_bytes(bytes),
            );
            expanded(url, &text.unwrap()).unwrap()
        };
        assert_eq!(
            bytes(b"cern:caf\xe9%20/"),
            "ftps://ann%20b@h:990/eos/ann/caf%E9%2520/"
        );
        assert_eq!(bytes(b"cern:/\xff"), "ftps://ann%20b@h:990/%FF");
        assert_eq!(at("cern:"), "ftps://ann%20b@h:990/eos/ann/");
        assert_eq!(at("cern:d/"), "ftps://ann%20b@h:990/eos/ann/d/");
        assert_eq!(
            expanded("https://h", "cern:x").unwrap(),
            "https://ann%20b@h/x"
        );
    }

    #[test]
    fn only_the_name_of_a_remote_before_a_colon_is_one() {
        for text in [
            "cer:x",
            "./cern:x",
            "cern",
            "CERN:x",
            "cern://h/x",
            "ftp://cern:x@h/",
        ] {
            assert_eq!(expanded("ftp://h", text), None, "{text}");
        }
    }

    #[test]
    fn a_name_that_is_no_remote_is_told_if_there_are_any() {
        let remotes = remotes("ftp://h", None, RemoteLogin::OfUrls).unwrap();
        assert_eq!(remotes.unknown_name_in("cren:x"), Some("cren"));
        for text in [
            "cern:x",
            "./cren:x",
            "ftp://h/",
            "sftp://h/",
            "file:/x",
            "x",
            "10:30",
        ] {
            assert_eq!(remotes.unknown_name_in(text), None, "{text}");
        }
        assert_eq!(Remotes::default().unknown_name_in("cren:x"), None);
    }

    #[test]
    fn urls_and_names_that_cannot_be_used_are_refused_without_their_secrets() {
        let login = RemoteLogin::OfUrls;
        for (url, user) in [
            ("ftp://ann:hush@h/", None),
            ("ftp://ann@h/", Some("bob")),
            ("gopher://h/", None),
            ("h/x", None),
            ("https://h/x?hush", None),
            ("ftp://[h/", None),
            ("ftp://h", Some("")),
        ] {
            let failure = remotes(url, user, login.clone()).unwrap_err();
            assert_eq!(failure.kind(), FailureKind::Usage, "{url}");
            assert!(!failure.to_string().contains("hush"), "{failure}");
        }
        for name in ["ftp", "FILE", "", "1a", "a b", "a/b", "a:b"] {
            assert!(
                RemoteServer::new(name, "ftp://h", None, login.clone()).is_err(),
                "{name}"
            );
        }
        let password = RemoteLogin::Password(PasswordSource::Text("x".into()));
        assert!(remotes("ftp://h", None, password.clone()).is_err());
        assert!(remotes("gsiftp://h", Some("ann"), password).is_err());
        let token = RemoteLogin::Token("/t".into());
        assert!(remotes("ftp://h", None, token.clone()).is_err());
        assert!(remotes("https://h", Some("ann"), token.clone()).is_err());
        assert!(remotes("https://h", None, token).is_ok());
    }

    #[test]
    fn a_typed_password_serves_its_user_at_its_host_alone() {
        let login = RemoteLogin::Password(PasswordSource::Netrc("/none".into()));
        let remotes = remotes("ftp://h", Some("carol"), login).unwrap();
        let remote = remotes.servers.first();
        let of = |host, user| remotes.credential(remote, host, Some(user)).unwrap();
        assert_eq!(of("h", "carol"), (Credential::password("carol", ""), true));
        let missing = MissingPassword {
            user: "carol".into(),
            host: "H".into(),
        };
        remotes.remember(&missing, "pw".into());
        assert_eq!(
            of("h", "carol"),
            (Credential::password("carol", "pw"), false)
        );
        assert!(of("h", "bob").1 && of("g", "carol").1);
        assert!(!format!("{remotes:?}").contains("pw"));
    }

    #[test]
    fn a_password_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let calls = dir.path().join("calls");
        let script = format!("echo x >> {}; echo hush", calls.display());
        let command = ["sh", "-c", &script].map(Into::into).to_vec();
        let login = RemoteLogin::Password(PasswordSource::Command(command));
        let remotes = remotes("ftp://h", Some("ann"), login).unwrap();
        for _ in 0..2 {
            let found = remotes.credential(remotes.servers.first(), "h", Some("ann"));
            assert_eq!(found.unwrap(), (Credential::password("ann", "hush"), false));
        }
        assert_eq!(std::fs::read_to_string(calls).unwrap(), "x\n");
    }
}
