//! Defence in depth: what the process may still do if a session takes it over.
//!
//! [`enter`] confines the process that serves, before it starts any thread: no core dumps, no new
//! privileges, only the files that serving needs (`files`, Landlock), only the system calls that
//! serving needs (`system_calls`, seccomp). docs/server.md has the lists. Nothing here replaces a
//! check elsewhere.

use std::path::{Path, PathBuf};

use data::os::core_dumps;

mod files;
mod system_calls;

pub use files::{FileAccess, can_confine_files};

use crate::config::{SandboxMode, ServerConfig};
use crate::users::Users;

/// The reason why the process could not confine itself.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The kernel has no Landlock, or an old one.
    #[error("this kernel cannot confine file access completely (Landlock, Linux 5.19 or newer)")]
    NoLandlock,
    /// Confined, a server could not carry out renames from one directory to another.
    #[error(
        "file access is not confined: the Landlock of this kernel would refuse all renames from one directory to \
         another (Linux 5.19 or newer permits them)"
    )]
    NoRenames,
    /// A path cannot be permitted.
    #[error("cannot confine file access: {0}")]
    Files(String),
    /// The filter of system calls was refused.
    #[error("cannot filter system calls: {0}")]
    SystemCalls(String),
}

/// Confines this process and all threads that it starts later. Call it while there is one thread.
///
/// # Errors
/// With [`SandboxMode::Required`], what cannot be confined. [`SandboxMode::Auto`] logs it.
pub fn enter(mode: SandboxMode, access: &FileAccess) -> Result<(), SandboxError> {
    // Nothing that a server does needs core files, so no mode permits them.
    forbid_core_dumps();
    if mode == SandboxMode::Off {
        return Ok(());
    }
    let files = files::check_renames().and_then(|()| files::confine(access));
    let calls = system_calls::filter(system_calls::SERVER);
    for (what, done) in [("files", &files), ("system calls", &calls)] {
        match done {
            Ok(()) => tracing::debug!("confined: {what}"),
            Err(error) if mode == SandboxMode::Auto => {
                tracing::warn!(%error, "the server runs with less protection against a session that takes it over");
            }
            Err(_) => {}
        }
    }
    match mode {
        SandboxMode::Required => files.and(calls),
        _ => Ok(()),
    }
}

/// Confines the process that holds the private key to reading these files and signing.
///
/// # Errors
/// The part that cannot be confined.
pub(crate) fn enter_key_holder(readable: &[&Path]) -> Result<(), SandboxError> {
    forbid_core_dumps();
    let access = FileAccess {
        // A renewed certificate replaces the file, so its directory is needed.
        read: readable.iter().map(|path| directory_of(path)).collect(),
        write: Vec::new(),
    };
    files::confine(&access)?;
    system_calls::filter(system_calls::KEY_HOLDER)
}

impl FileAccess {
    /// The files that a server with these settings uses: its roots and those of the accounts for
    /// writing, its logs, and for reading everything that it reads again on a reload. `settings`: the
    /// settings file. A root that an account gets later is reachable only below one of these until the
    /// server is restarted.
    pub fn of_server(config: &ServerConfig, settings: Option<&Path>) -> Self {
        let security = &config.security;
        let mut write = vec![config.root.clone()];
        // Errors of the users file are reported when the server starts.
        let users = config
            .users
            .as_deref()
            .and_then(|path| Users::load(path).ok());
        write.extend(users.iter().flat_map(Users::roots));
        let logs = [&config.transfer_log, &config.ftp_info_log];
        write.extend(logs.into_iter().flatten().map(|log| directory_of(log)));
        let history = config.history.clone().file();
        write.extend(history.as_deref().map(directory_of));
        // The process that holds the key reads both.
        let own_key = config.key_holder.is_none();
        let files = [
            settings,
            config.users.as_deref(),
            security.certificate.as_deref().filter(|_| own_key),
            security.key.as_deref().filter(|_| own_key),
            security.gridmap.as_deref(),
            security.client_authorities.as_deref(),
            config.messages.banner_file.as_deref(),
            config.messages.welcome_file.as_deref(),
        ];
        let mut read: Vec<PathBuf> = files.into_iter().flatten().map(directory_of).collect();
        let keys = security.token_issuers.iter();
        read.extend(
            keys.filter_map(|issuer| issuer.keys.as_deref())
                .map(|keys| directory_of(Path::new(keys))),
        );
        read.extend(security.client_authorities.clone());
        read.extend(security.grid_authorities.clone());
        read.extend(environment_paths());
        Self { read, write }
    }

    /// Whether a file is permitted for reading. Links are followed as the kernel follows them.
    pub fn permits_reading(&self, file: &Path) -> bool {
        let real = |path: &Path| path.canonicalize().ok();
        let Some(file) = real(file) else {
            return false;
        };
        let own = self.read.iter().chain(&self.write).map(PathBuf::as_path);
        let mut permitted = own.chain(files::SYSTEM.iter().map(Path::new));
        permitted.any(|path| real(path).is_some_and(|path| file.starts_with(path)))
    }
}

/// Places of certificate authorities that the environment names, and those of the user.
fn environment_paths() -> impl Iterator<Item = PathBuf> {
    let named = ["X509_CERT_DIR", "SSL_CERT_DIR", "SSL_CERT_FILE"];
    let home = std::env::home_dir().map(|home| home.join(".globus/certificates"));
    let named = named.into_iter().filter_map(std::env::var_os);
    named.map(PathBuf::from).chain(home)
}

fn forbid_core_dumps() {
    if let Err(error) = core_dumps::forbid_core_dumps() {
        tracing::warn!(%error, "cannot forbid core dumps");
    }
}

/// The directory that holds a file: a file that is replaced by renaming is another one.
fn directory_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Resource, getrlimit};

    #[test]
    fn a_server_without_sandbox_forbids_core_dumps_too() {
        let access = FileAccess {
            read: Vec::new(),
            write: Vec::new(),
        };
        enter(SandboxMode::Off, &access).unwrap();
        assert_eq!(getrlimit(Resource::Core).maximum, Some(0));
    }
}
