//! The logins of a run: one for each host and user, which all sessions there share.

use std::collections::HashMap;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tempfile::TempDir;

use super::SshTarget;
use super::host::SshHost;
use super::ports::PortMemory;
use crate::Failure;

/// Length from which a directory's name leaves a socket's no room (107 bytes, unix(7)).
const MAX_BASE: usize = 40;

/// The sockets of the logins.
#[derive(Debug, Default)]
struct Sockets {
    /// Their directory, which nobody else may enter.
    directory: Option<TempDir>,
    /// Names given so far.
    names: u32,
}

/// The logins, which end with this.
#[derive(Debug, Default)]
pub(crate) struct SshLogins {
    sockets: Mutex<Sockets>,
    hosts: Mutex<HashMap<SshTarget, Arc<SshHost>>>,
    /// Which hosts have no open ports.
    port_memory: OnceLock<Arc<dyn PortMemory>>,
}

impl SshLogins {
    /// Uses a memory of ports, unless there is one.
    pub(crate) fn remember_ports(&self, memory: Arc<dyn PortMemory>) {
        let _ = self.port_memory.set(memory);
    }

    /// The memory of ports.
    pub(crate) fn port_memory(&self) -> Option<Arc<dyn PortMemory>> {
        self.port_memory.get().cloned()
    }

    /// The host of a target, reached by `program`.
    ///
    /// # Errors
    /// As [`SshHost::find`].
    pub(super) async fn host(
        &self,
        program: &[String],
        target: &SshTarget,
    ) -> Result<Arc<SshHost>, Failure> {
        if let Some(host) = self.hosts.lock().get(target) {
            return Ok(Arc::clone(host));
        }
        let control = self.new_socket()?;
        let (program, asked) = (program.to_vec(), target.clone());
        let found = tokio::task::spawn_blocking(move || SshHost::find(program, &asked, control));
        let host = found
            .await
            .map_err(|error| Failure::local(format!("cannot ask ssh: {error}")))??;
        let mut hosts = self.hosts.lock();
        // Another session may have been faster.
        let host = hosts
            .entry(target.clone())
            .or_insert_with(|| Arc::new(host));
        Ok(Arc::clone(host))
    }

    /// The name of a socket. ssh(1) binds it under a longer name first, and a socket's name has 107 bytes at most (unix(7)).
    fn new_socket(&self) -> Result<PathBuf, Failure> {
        let mut sockets = self.sockets.lock();
        // No two hosts may have the same one: ssh would take a session to the first that has it.
        sockets.names += 1;
        let name = sockets.names.to_string();
        let place = match &mut sockets.directory {
            Some(place) => place,
            none => {
                let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
                let base = runtime.filter(|path| may_hold_sockets(path));
                let base = base.unwrap_or_else(|| PathBuf::from("/tmp"));
                let made = tempfile::Builder::new()
                    .prefix("longhaul-")
                    .permissions(Permissions::from_mode(0o700))
                    .tempdir_in(&base);
                none.insert(made.map_err(|error| {
                    Failure::local(format!(
                        "cannot make a directory for ssh's sockets in {}: {error}",
                        base.display()
                    ))
                })?)
            }
        };
        Ok(place.path().join(name))
    }
}

/// Whether a directory's name can stand in ssh's option for a socket: ssh_config(5) gives blanks and `%` a meaning.
fn may_hold_sockets(directory: &Path) -> bool {
    let name = directory.as_os_str().as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-".contains(byte);
    name.len() < MAX_BASE && name.iter().all(is_plain) && directory.is_dir()
}

impl Drop for SshLogins {
    fn drop(&mut self) {
        for (target, host) in self.hosts.get_mut() {
            host.log_out(target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_a_socket_that_nobody_else_reaches() {
        let logins = SshLogins::default();
        let [first, second] = [(); 2].map(|()| logins.new_socket().unwrap());
        assert_ne!(first, second);
        let directory = first.parent().unwrap();
        let mode = directory.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        for unusable in ["/a b", "/a%b", "/nonexistent-directory"] {
            assert!(!may_hold_sockets(Path::new(unusable)), "{unusable}");
        }
    }
}
