//! The service of PAM whose modules decide about logins.

use std::path::{Path, PathBuf};

use data::os::pam::{PamLibrary, PamLibraryError};
use nix::unistd::User;

use data::os::privilege;

/// Where Linux-PAM looks for files of services (pam.d(5)). Without one it would apply the rules of the service
/// `other`, which nobody wrote for this program.
const DIRECTORIES: [&str; 3] = ["/etc/pam.d", "/usr/lib/pam.d", "/usr/etc/pam.d"];
/// The rules of all services, where no directory is (pam.conf(5)).
const ONE_FILE: &str = "/etc/pam.conf";
/// Longest name of a service, bytes.
const MAX_NAME: usize = 64;

/// The reason why logins cannot be checked by PAM; the text says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PamSetupError {
    /// The name is no name of a file in `/etc/pam.d`.
    #[error("\"{0}\" is not a service of PAM: use small letters, digits, -, _ and .")]
    Name(String),
    /// The system or this program has no PAM.
    #[error(
        "{0}; install PAM and use a binary that is not static (docs/install.md), or leave --pam out"
    )]
    Library(#[from] PamLibraryError),
    /// No rules for the service.
    #[error(
        "PAM has no service {service}: create /etc/pam.d/{service} (docs/server.md has an example), or leave --pam out"
    )]
    NoService {
        /// The service.
        service: String,
    },
    /// The process that serves could read what only PAM should.
    #[error(
        "--pam needs --run-as: a server that serves as root could read /etc/shadow itself; name an unprivileged account"
    )]
    ServesAsRoot,
    /// The process that asks PAM found one of these reasons.
    #[error("{0}")]
    Unusable(String),
    /// The process that asks PAM cannot be started, or does not answer.
    #[error("cannot start the process that asks PAM: {0}")]
    Start(String),
}

/// Checks that PAM can be asked, by the process that calls this, for a server of the account `run_as`.
///
/// # Errors
/// See [`PamSetupError`].
pub fn check_pam(service: &str, run_as: Option<&str>) -> Result<(), PamSetupError> {
    check_place(run_as)?;
    check_service(service)?;
    PamLibrary::load()?;
    Ok(())
}

/// Checks that the process that serves has no rights that would make the separation worthless.
pub(super) fn check_place(run_as: Option<&str>) -> Result<(), PamSetupError> {
    let gives_up = match run_as.map(privilege::account) {
        None => false,
        Some(Ok(user)) => !user.uid.is_root(),
        // An account that does not exist is refused elsewhere, with a better reason.
        Some(Err(_)) => true,
    };
    match privilege::is_root() && !gives_up {
        true => Err(PamSetupError::ServesAsRoot),
        false => Ok(()),
    }
}

/// Checks that the service has rules.
pub(super) fn check_service(service: &str) -> Result<(), PamSetupError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
    let is_name = service.starts_with(|c: char| c.is_ascii_alphanumeric());
    if service.len() > MAX_NAME || !is_name || !service.chars().all(is_plain) {
        return Err(PamSetupError::Name(service.to_owned()));
    }
    match has_rules(service) {
        true => Ok(()),
        false => Err(PamSetupError::NoService {
            service: service.to_owned(),
        }),
    }
}

fn has_rules(service: &str) -> bool {
    let directories: Vec<PathBuf> = DIRECTORIES.iter().map(PathBuf::from).collect();
    let has_file = |directory: &PathBuf| directory.join(service).is_file();
    if directories.iter().any(has_file) {
        return true;
    }
    // Linux-PAM reads it only where the directory is missing.
    let has_directory = directories.iter().any(|directory| directory.is_dir());
    let text = std::fs::read_to_string(Path::new(ONE_FILE)).unwrap_or_default();
    let mut names = text
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    !has_directory && names.any(|name| name == service)
}

/// Checks that a login may be asked about: an account of the system of exactly this name, which is no system
/// account.
///
/// # Errors
/// The reason, for the log.
pub(super) fn check_account(user: &str, least_uid: u32) -> Result<(), String> {
    // Neither can be part of a name in passwd(5), and no path may be made of one.
    if user.is_empty() || user.starts_with('-') || user.contains([':', '/', '\0', '\n']) {
        return Err("not a name of an account".to_owned());
    }
    let account = User::from_name(user);
    let account = account.map_err(|error| format!("cannot look the account up: {error}"))?;
    let account = account.ok_or("the system has no such account")?;
    // Directories that ignore case know `Ann` as `ann`: lists of users must not be evaded that way.
    if account.name != user {
        return Err(format!("the account is called {}", account.name));
    }
    let uid = account.uid.as_raw();
    match uid == 0 || uid < least_uid {
        true => Err(format!(
            "the account has user ID {uid}, below pam-min-uid ({least_uid})"
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_a_plain_name_with_rules() {
        for name in ["", "../passwd", "a/b", "Longhaul", ".hidden", "a b"] {
            let refused = check_service(name);
            assert_eq!(refused, Err(PamSetupError::Name(name.to_owned())));
        }
        let missing = check_service("longhaul-no-such-service").unwrap_err();
        assert!(matches!(&missing, PamSetupError::NoService { .. }));
        assert!(
            missing.to_string().contains("create /etc/pam.d/"),
            "{missing}"
        );
    }

    #[test]
    fn root_system_accounts_and_unknown_names_are_not_asked_about() {
        for (user, least, reason) in [
            ("root", 0, "user ID 0"),
            ("root", 1000, "below pam-min-uid (1000)"),
            ("longhaul-no-such-account", 1000, "no such account"),
            ("", 0, "not a name"),
            ("../ann", 0, "not a name"),
            ("-ann", 0, "not a name"),
        ] {
            let refused = check_account(user, least).unwrap_err();
            assert!(refused.contains(reason), "{user}: {refused}");
        }
        let daemon = User::from_name("daemon").unwrap().unwrap();
        let uid = daemon.uid.as_raw();
        assert_eq!(check_account("daemon", uid), Ok(()));
        assert!(check_account("daemon", uid + 1).is_err());
    }
}
