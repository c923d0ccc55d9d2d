//! A running server takes other settings and users: sessions to come have them, running ones and
//! their transfers go on as they began.

use std::io;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::config::ServerConfig;
use crate::congestion;
use crate::shared::Shared;
use crate::startup::ServeError;
use crate::users::Users;

/// Settings to take, as [`crate::serve()`] gets them while it serves.
#[derive(Debug)]
pub struct Reloads {
    settings: mpsc::Receiver<ServerConfig>,
}

/// Reloads that may wait to be carried out.
const PENDING: usize = 4;

impl Reloads {
    /// None ever.
    pub fn never() -> Self {
        Self::manual().1
    }

    /// Made by hand: embedding and tests.
    pub fn manual() -> (mpsc::Sender<ServerConfig>, Self) {
        let (sender, settings) = mpsc::channel(PENDING);
        (sender, Self { settings })
    }

    /// On each SIGHUP what `load` gives. An error of it is logged, and the settings before hold.
    /// Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The signal handler could not be installed.
    pub fn on_hangup(
        load: impl Fn() -> Result<ServerConfig, String> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let mut hangup = signal(SignalKind::hangup())?;
        let (sender, reloads) = Self::manual();
        let load = Arc::new(load);
        tokio::spawn(async move {
            // The signal stays caught to the end of the process: also a server that drains must not
            // be ended by it.
            while hangup.recv().await.is_some() {
                let load = Arc::clone(&load);
                match tokio::task::spawn_blocking(move || load()).await {
                    Ok(Ok(settings)) => {
                        let _ = sender.send(settings).await;
                    }
                    Ok(Err(error)) => refused(&error),
                    Err(error) => refused(&error.to_string()),
                }
            }
        });
        Ok(reloads)
    }

    /// The next settings. Pends for ever once there can be none.
    pub(crate) async fn next(&mut self) -> ServerConfig {
        match self.settings.recv().await {
            Some(settings) => settings,
            None => std::future::pending().await,
        }
    }
}

/// The state that sessions to come share; the same as before if the settings cannot be used.
pub(crate) async fn apply(shared: &Arc<Shared>, settings: ServerConfig) -> Arc<Shared> {
    let before = Arc::clone(shared);
    let applied = tokio::task::spawn_blocking(move || take(&before, settings)).await;
    match applied {
        Ok(Ok(after)) => {
            tracing::info!("settings and users reloaded");
            Arc::new(after)
        }
        Ok(Err(error)) => {
            refused(&error.to_string());
            Arc::clone(shared)
        }
        Err(error) => {
            refused(&error.to_string());
            Arc::clone(shared)
        }
    }
}

fn refused(error: &str) {
    tracing::error!(error, "reload refused; the settings before hold");
}

fn take(shared: &Shared, mut settings: ServerConfig) -> Result<Shared, ServeError> {
    let fixed = keep_fixed(&shared.config, &mut settings);
    let users = reload_users(shared, &settings)?;
    let congestion = congestion::offered(&settings, data::os::congestion::settable())?;
    for setting in fixed {
        tracing::warn!(setting, "cannot change while the server runs; restart it");
    }
    if settings.anonymous.is_none() && users.is_none() {
        tracing::warn!("nobody can log in: neither anonymous sessions nor a users file are set");
    }
    shared.logins.reload(&settings, users);
    Ok(shared.with_settings(settings, congestion))
}

/// A file that was in use already is only looked at again: where it cannot be read any more
/// (privileges were given up) its accounts hold.
fn reload_users(
    shared: &Shared,
    settings: &ServerConfig,
) -> Result<Option<Arc<Users>>, ServeError> {
    let Some(path) = &settings.users else {
        return Ok(None);
    };
    match shared.logins.users() {
        Some(users) if users.path() == path => {
            users.refresh();
            Ok(Some(users))
        }
        _ => Ok(Some(Arc::new(Users::load(path)?))),
    }
}

/// Puts back what holds for the life of the process, and names what would have changed.
fn keep_fixed(old: &ServerConfig, new: &mut ServerConfig) -> Vec<&'static str> {
    let mut changed = Vec::new();
    let mut keep = |name, differs: bool| {
        if differs {
            changed.push(name);
        }
    };
    keep("listen", old.listen != new.listen);
    keep("root", old.root != new.root);
    keep("run-as", old.run_as != new.run_as);
    keep("transfer-log", old.transfer_log != new.transfer_log);
    keep("ftp-info-log", old.ftp_info_log != new.ftp_info_log);
    new.listen = old.listen;
    new.root.clone_from(&old.root);
    new.run_as.clone_from(&old.run_as);
    new.transfer_log.clone_from(&old.transfer_log);
    new.ftp_info_log.clone_from(&old.ftp_info_log);
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_change_is_named_and_kept() {
        let old = ServerConfig::default();
        let mut new = ServerConfig {
            listen: ([127, 0, 0, 1], 1).into(),
            root: "/elsewhere".into(),
            max_sessions: 5,
            ..ServerConfig::default()
        };
        assert_eq!(keep_fixed(&old, &mut new), ["listen", "root"]);
        assert_eq!((new.listen, new.max_sessions), (old.listen, 5));
        assert_eq!(new.root, old.root);
    }
}
