//! The logins of a run: one for each host and user, which all sessions there share.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tempfile::TempDir;

use super::SshTarget;
use super::host::SshHost;
use crate::Failure;

/// The logins, which end with this.
#[derive(Debug, Default)]
pub(crate) struct SshLogins {
    /// The directory of their sockets, which nobody else may enter.
    directory: Mutex<Option<TempDir>>,
    hosts: Mutex<HashMap<SshTarget, Arc<SshHost>>>,
}

impl SshLogins {
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
        let mut directory = self.directory.lock();
        let place = match &mut *directory {
            Some(place) => place,
            none => {
                let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
                let base = runtime.filter(|path| path.is_dir() && path.as_os_str().len() < 40);
                let base = base.unwrap_or_else(|| PathBuf::from("/tmp"));
                let made = tempfile::Builder::new()
                    .prefix("longhaul-")
                    .tempdir_in(&base);
                none.insert(made.map_err(|error| {
                    Failure::local(format!(
                        "cannot make a directory for ssh's sockets in {}: {error}",
                        base.display()
                    ))
                })?)
            }
        };
        Ok(place.path().join(self.hosts.lock().len().to_string()))
    }
}

impl Drop for SshLogins {
    fn drop(&mut self) {
        for (target, host) in self.hosts.get_mut() {
            host.log_out(target);
        }
    }
}
