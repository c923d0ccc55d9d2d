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

/// Whether the process confines itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxMode {
    /// As far as the kernel can; a message says what it cannot.
    #[default]
    Auto,
    /// Not at all, except that core dumps are forbidden.
    Off,
    /// Completely, or the server does not start.
    Required,
}

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

fn forbid_core_dumps() {
    if let Err(error) = core_dumps::forbid_core_dumps() {
        tracing::warn!(%error, "cannot forbid core dumps");
    }
}

/// The directory that holds a file: a file that is replaced by renaming is another one.
pub(crate) fn directory_of(file: &Path) -> PathBuf {
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
