//! Whether a server could start with its settings: everything but its ports, and nothing is changed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use data::store::root::Root;

use crate::config::{Anonymous, DataNode, ServerConfig, SiteTerms, TlsPolicy};
use crate::congestion;
use crate::login::TokenLogin;
use crate::pam;
use crate::secure::SecurityMaterial;
use crate::startup::{ServeError, open_root, require_usable_users};
use crate::users::Users;
use data::os::privilege;

/// Something with which a server starts, and which is hardly meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsWarning {
    /// A client of another host cannot send its password.
    #[error(
        "passwords are accepted from this host only: name a certificate with cert and key, or accept passwords in the clear with clear-passwords"
    )]
    NoPasswordsFromElsewhere,
    /// Everybody may fill the disk.
    #[error("anonymous sessions may write without a quota: everybody can fill the disk")]
    NoQuota,
    /// Anonymous sessions may write, and the account that serves may not.
    #[error("anonymous sessions may write, but the account that serves may not write in {}", .0.display())]
    NotWritable(PathBuf),
    /// Shares of a user who does not exist.
    #[error("[user.{0}]: the users file has no such user")]
    UnknownUser(String),
    /// A user who may or may not log in does not exist.
    #[error("{list}: the users file has no user {user}")]
    UnknownListedUser {
        /// The key of the list.
        list: &'static str,
        /// The name.
        user: String,
    },
    /// The account that will serve may not read the users file.
    #[error(
        "changes to the users file will need a restart: the account {account} may not read {}; give it to that account: chown {account} {0}",
        path.display()
    )]
    UsersNotReadable {
        /// The file.
        path: PathBuf,
        /// The account.
        account: String,
    },
    /// The account that will serve may not make files beside this one.
    #[error(
        "{key}: the account that serves may not write in {}: {consequence}; give the directory to it (chown)",
        directory.display()
    )]
    DirectoryNotWritable {
        /// The key of the settings.
        key: &'static str,
        /// The directory.
        directory: PathBuf,
        /// The consequence.
        consequence: &'static str,
    },
    /// Clients will refuse the certificate.
    #[error("{0}")]
    Certificate(String),
    /// Accounts may write, and the account that serves may not write in their root.
    #[error(
        "{} may write, but the account that serves may not write in {}: give the directory to it (chown), or add users with --read-only",
        some_of(users),
        root.display()
    )]
    RootNotWritable {
        /// Their names.
        users: Vec<String>,
        /// Their root.
        root: PathBuf,
    },
    /// A data node would never be used for this directory.
    #[error(
        "data-node {address} has {directory:?}, which is no directory below the root: clients' paths are meant, without that of the root"
    )]
    NodeWithoutDirectory {
        /// The address of the node.
        address: String,
        /// The directory, relative to the root.
        directory: PathBuf,
    },
    /// The root of an account cannot be opened.
    #[error("an account cannot log in: {0}")]
    AccountRoot(String),
}

/// Checks whether a server could start with `config`: the files and accounts that it names exist and can be used by
/// the account that calls this, and what the server uses as the account of `run_as` by that one. Nothing is started, bound
/// or made. The process becomes that account, as the server does: it should end afterwards.
///
/// # Errors
/// The first reason why the server could not start.
pub fn check(config: &ServerConfig) -> Result<Vec<SettingsWarning>, ServeError> {
    config.require_usable()?;
    for log in [&config.transfer_log, &config.ftp_info_log] {
        log.as_deref().map_or(Ok(()), check_log)?;
    }
    let users = config.users.as_deref().map(Users::load).transpose()?;
    require_usable_users(config, users.as_ref())?;
    let material = SecurityMaterial::load(config, None)?;
    TokenLogin::new(&config.security.token_issuers, None)?;
    if let Some(service) = &config.pam.service {
        pam::check_pam(service, config.run_as.as_deref())?;
    }
    if let Some(name) = &config.run_as {
        privilege::become_account(name)?;
    }
    let root = open_root(config)?;
    SiteTerms::load(config, privilege::is_root(), None)?;
    congestion::offered_controls(config, data::os::congestion::settable())?;
    let mut warnings = unwritable_directories(config);
    let certificate = material.certificate_problem();
    warnings.extend(certificate.map(SettingsWarning::Certificate));
    warnings.extend(nodes_without_directory(config));
    if let Some(users) = &users {
        warnings.extend(unreadable_users(config, users));
        warnings.extend(unknown_users(config, users));
        warnings.extend(
            root.directory()
                .into_iter()
                .flat_map(|root| unusable_roots(root, users)),
        );
        if config.served_store.is_none() {
            warnings.extend(unwritable_roots(users));
        }
    }
    let security = &config.security;
    let takes_passwords = security.clear_passwords || security.tls_policy() != TlsPolicy::Off;
    if config.has_passwords() && !takes_passwords && !config.listen.ip().is_loopback() {
        warnings.push(SettingsWarning::NoPasswordsFromElsewhere);
    }
    let may_write = config.served_store.is_some()
        || rustix::fs::access(&config.root, rustix::fs::Access::WRITE_OK).is_ok();
    if config.anonymous == Some(Anonymous::Rw) && !may_write {
        warnings.push(SettingsWarning::NotWritable(config.root.clone()));
    }
    // A bucket has no quota here.
    let has_quotas = config.served_store.is_none();
    if has_quotas && config.anonymous == Some(Anonymous::Rw) && config.shares.quota.bytes.is_none()
    {
        warnings.push(SettingsWarning::NoQuota);
    }
    Ok(warnings)
}

/// A log that does not exist is made at the start, so only its directory must exist.
fn check_log(path: &Path) -> Result<(), ServeError> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let failed = |source| ServeError::TransferLog {
        path: path.to_owned(),
        source,
    };
    match path.metadata() {
        Ok(meta) if !meta.is_file() => {
            return Err(failed(io::Error::other("it is no regular file")));
        }
        Ok(_) => {
            let writable = rustix::fs::access(path, rustix::fs::Access::WRITE_OK);
            return writable.map_err(|errno| failed(errno.into()));
        }
        Err(_) => {}
    }
    match directory.metadata() {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => Err(failed(io::ErrorKind::NotADirectory.into())),
        Err(source) => Err(failed(source)),
    }
}

/// The users file, if `run_as`, which this process is by now, may not read it.
fn unreadable_users(config: &ServerConfig, users: &Users) -> Option<SettingsWarning> {
    let account = config.run_as.clone().filter(|_| users.is_denied())?;
    let path = users.path().to_owned();
    Some(SettingsWarning::UsersNotReadable { path, account })
}

/// Directories of logs and of the history that the account that serves, which this process is by now, may not write in. The
/// server starts without.
fn unwritable_directories(config: &ServerConfig) -> Vec<SettingsWarning> {
    const NO_NEW_LOG: &str = "after a rotation of the log no new one can be made";
    let history = config.history.clone().file();
    let files = [
        ("transfer-log", config.transfer_log.as_deref(), NO_NEW_LOG),
        ("ftp-info-log", config.ftp_info_log.as_deref(), NO_NEW_LOG),
        (
            "history",
            history.as_deref(),
            "what transfers teach about paths is not kept",
        ),
    ];
    let warning = |(key, file, consequence): (_, Option<&Path>, _)| {
        let directory = existing_directory_of(file?);
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        let is_writable = rustix::fs::access(&directory, access).is_ok();
        (!is_writable).then_some(SettingsWarning::DirectoryNotWritable {
            key,
            directory,
            consequence,
        })
    };
    files.into_iter().filter_map(warning).collect()
}

/// The directory of a file, or the nearest one above it that exists: that of the history is made by the server.
fn existing_directory_of(file: &Path) -> PathBuf {
    let above = file.ancestors().skip(1);
    let mut there = above.filter(|directory| directory.is_dir());
    let directory = there.next().unwrap_or(Path::new("."));
    directory.to_owned()
}

/// Names in the settings that the users file does not have. A gridmap, tokens and PAM bring accounts that no file lists.
fn unknown_users(config: &ServerConfig, users: &Users) -> Vec<SettingsWarning> {
    let security = &config.security;
    if security.has_other_logins() || config.pam.service.is_some() {
        return Vec::new();
    }
    let unknown = |user: &&String| *user != "anonymous" && !users.has_user(user);
    let shares = config.shares.users.keys().filter(unknown);
    let mut warnings: Vec<_> = shares
        .map(|user| SettingsWarning::UnknownUser(user.clone()))
        .collect();
    let lists = [
        ("allow-users", &config.access.allow_users),
        ("deny-users", &config.access.deny_users),
    ];
    for (list, names) in lists {
        let listed = names.iter().filter(unknown).cloned();
        warnings.extend(listed.map(|user| SettingsWarning::UnknownListedUser { list, user }));
    }
    warnings
}

/// Directories of data nodes that this server does not have. In a bucket, directories come with the first file.
fn nodes_without_directory(config: &ServerConfig) -> Vec<SettingsWarning> {
    let nodes = config.data_nodes.iter();
    let named = nodes.flat_map(|node| node.below_root().map(move |below| (node, below)));
    let is_missing = |(_, below): &(_, &Path)| {
        config.served_store.is_none() && !config.root.join(below).is_dir()
    };
    let warning = |(node, below): (&DataNode, &Path)| SettingsWarning::NodeWithoutDirectory {
        address: node.address.clone(),
        directory: below.to_owned(),
    };
    named.filter(is_missing).map(warning).collect()
}

/// Roots of accounts with the right to write in which this process may make no files, neither in the directory where their
/// sessions begin. (In the server's root the directories that are meant to be written are often others, below it.)
fn unwritable_roots(users: &Users) -> Vec<SettingsWarning> {
    let may_not_write = |directory: &Path| {
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        // One that cannot be opened at all is told of already.
        directory.is_dir() && rustix::fs::access(directory, access).is_err()
    };
    let mut unwritable: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    for account in users.accounts() {
        let Some(root) = account.root.filter(|_| account.rights.write) else {
            continue;
        };
        let home = account.home.as_bytes();
        let home = root.join(OsStr::from_bytes(home.strip_prefix(b"/").unwrap_or(home)));
        if may_not_write(&root) && (home == root || !home.is_dir() || may_not_write(&home)) {
            unwritable.entry(root).or_default().push(account.name);
        }
    }
    let warning = |(root, users)| SettingsWarning::RootNotWritable { users, root };
    unwritable.into_iter().map(warning).collect()
}

/// `user ann`, `users ann and bob`, `users ann, bob, eve and 5 more`.
fn some_of(users: &[String]) -> String {
    match users {
        [one] => format!("user {one}"),
        [a, b, c, more @ ..] if more.len() > 1 => {
            format!("users {a}, {b}, {c} and {} more", more.len())
        }
        [first @ .., last] => format!("users {} and {last}", first.join(", ")),
        [] => String::new(),
    }
}

/// Roots of accounts that cannot be opened. The server starts without them.
fn unusable_roots(server: &Root, users: &Users) -> Vec<SettingsWarning> {
    let mut roots: Vec<PathBuf> = users.roots().into_iter().collect();
    roots.sort();
    let opened = roots
        .iter()
        .map(|path| match path.strip_prefix(server.host_path()) {
            Ok(below) => server.open_below(below),
            Err(_) => Root::open_without_links(path),
        });
    opened
        .filter_map(Result::err)
        .map(|error| SettingsWarning::AccountRoot(error.to_string()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::Ipv6Addr;

    use history::HistoryLocation;
    use proto::path::VPath;
    use proto::server::AccountRights;
    use security::test_pki::{TestAuthority, TestCertificate, write_certificates, write_key};

    use super::*;
    use crate::config::UserShares;
    use crate::users::{self, UserAccount};

    fn config(dir: &Path) -> ServerConfig {
        ServerConfig {
            root: dir.to_owned(),
            anonymous: Some(Anonymous::Ro),
            ..ServerConfig::default()
        }
    }

    #[test]
    fn settings_that_can_be_used_give_no_warning() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        config.transfer_log = Some(dir.path().join("log"));
        assert_eq!(check(&config).unwrap(), []);
        assert!(!dir.path().join("log").exists(), "nothing is made");
    }

    #[test]
    fn directories_of_data_nodes_must_be_below_the_root() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("run1")).unwrap();
        let mut config = config(dir.path());
        config.data_nodes = vec![DataNode {
            directories: vec!["/run1".into(), "/runl".into(), dir.path().join("run1")],
            ..DataNode::of_all("n:1")
        }];
        let missing = |directory: &Path| SettingsWarning::NodeWithoutDirectory {
            address: "n:1".to_owned(),
            directory: directory.to_owned(),
        };
        let doubled = dir.path().join("run1");
        let expected = [
            missing(Path::new("runl")),
            missing(doubled.strip_prefix("/").unwrap()),
        ];
        assert_eq!(nodes_without_directory(&config), expected);
    }

    /// In /proc/sys not even root may make files.
    #[test]
    fn directories_of_logs_and_history_must_be_writable() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        config.history = HistoryLocation::File("/proc/sys/missing/paths.json".into());
        let warnings = check(&config).unwrap();
        let [warning] = warnings.as_slice() else {
            panic!("{warnings:?}");
        };
        let text = warning.to_string();
        assert!(
            text.contains("history: ") && text.contains("/proc/sys"),
            "{text}"
        );
        config.history = HistoryLocation::File(dir.path().join("new/paths.json"));
        assert_eq!(check(&config).unwrap(), [], "the server makes that one");
    }

    #[test]
    fn a_certificate_that_has_expired_is_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let authority = TestAuthority::new("/O=Grid/CN=Test CA");
        let mut template = TestCertificate::new("/O=Grid/CN=late");
        template.not_after = -3600;
        let late = authority.issue(&template);
        write_certificates(&dir.path().join("cert"), &late);
        write_key(&dir.path().join("key"), &late);
        let mut config = config(dir.path());
        config.security.certificate = Some(dir.path().join("cert"));
        config.security.key = Some(dir.path().join("key"));
        let warnings = check(&config).unwrap();
        let [warning] = warnings.as_slice() else {
            panic!("{warnings:?}");
        };
        assert!(warning.to_string().contains("expired on"), "{warning}");
    }

    #[test]
    fn a_log_that_cannot_be_appended_to_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        config.transfer_log = Some(dir.path().to_owned());
        let error = check(&config).unwrap_err().to_string();
        assert!(error.contains("no regular file"), "{error}");
        let log = dir.path().join("log");
        std::fs::write(&log, "a record\n").unwrap();
        config.transfer_log = Some(log.clone());
        assert_eq!(check(&config).unwrap(), []);
        assert_eq!(std::fs::read_to_string(log).unwrap(), "a record\n");
    }

    #[test]
    fn what_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let cases: [fn(&mut ServerConfig, PathBuf); 6] = [
            |config, missing| config.root = missing,
            |config, missing| config.users = Some(missing),
            |config, missing| config.transfer_log = Some(missing.join("log")),
            |config, missing| config.security.certificate = Some(missing),
            |config, missing| config.messages.banner_file = Some(missing),
            |config, _| config.run_as = Some("missing".to_owned()),
        ];
        for change in cases {
            let mut config = config(dir.path());
            change(&mut config, missing.clone());
            let key = config.security.certificate.is_some();
            config.security.key = key.then(|| missing.clone());
            let error = check(&config).unwrap_err().to_string();
            assert!(error.contains("missing"), "{error}");
        }
    }

    /// In /proc/sys not even root may make files.
    #[test]
    fn users_who_may_write_need_a_root_that_the_server_may_write_in() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("users");
        let add = |name: &str, root: &Path, write: bool| {
            let account = UserAccount {
                name: name.to_owned(),
                root: Some(root.to_owned()),
                rights: AccountRights {
                    write,
                    third_party: false,
                },
                home: VPath::root(),
            };
            users::add(&file, &account, b"a long password").unwrap();
        };
        add("ann", dir.path(), true);
        add("reader", Path::new("/proc/sys"), false);
        let mut config = config(dir.path());
        config.users = Some(file.clone());
        assert_eq!(check(&config).unwrap(), []);
        for name in ["joe", "bob", "eve", "kim", "lee"] {
            add(name, Path::new("/proc/sys"), true);
        }
        let warnings = check(&config).unwrap();
        let [warning] = warnings.as_slice() else {
            panic!("{warnings:?}");
        };
        let text = warning.to_string();
        let expected = "users bob, eve, joe and 2 more may write, but the account that serves may not write in /proc/sys: ";
        assert!(text.starts_with(expected), "{text}");
        let names = |n: usize| some_of(&["a", "b", "c", "d"].map(str::to_owned)[..n]);
        assert_eq!(names(1), "user a");
        assert_eq!(names(2), "users a and b");
        assert_eq!(names(4), "users a, b, c and d");
    }

    #[test]
    fn what_is_hardly_meant_is_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("users");
        let account = UserAccount {
            name: "ann".to_owned(),
            root: Some(dir.path().join("gone")),
            rights: AccountRights {
                write: true,
                third_party: false,
            },
            home: VPath::root(),
        };
        users::add(&file, &account, b"a long password").unwrap();
        let mut config = config(dir.path());
        config.listen = (Ipv6Addr::UNSPECIFIED, 0).into();
        config.anonymous = Some(Anonymous::Rw);
        config.users = Some(file);
        config.access.deny_users = vec!["anonymous".to_owned(), "bob".to_owned()];
        config.shares.users = BTreeMap::from([
            ("ann".to_owned(), UserShares::default()),
            ("eve".to_owned(), UserShares::default()),
        ]);
        let warnings = check(&config).unwrap();
        let [unknown, listed, root, passwords, quota] = warnings.as_slice() else {
            panic!("{warnings:?}");
        };
        assert_eq!(*unknown, SettingsWarning::UnknownUser("eve".to_owned()));
        assert!(listed.to_string().contains("bob"), "{listed}");
        assert!(root.to_string().contains("gone"), "{root}");
        assert_eq!(*passwords, SettingsWarning::NoPasswordsFromElsewhere);
        assert_eq!(*quota, SettingsWarning::NoQuota);
    }
}
