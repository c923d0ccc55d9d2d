//! Reloading of settings and users: new sessions use them, running sessions and their transfers go on
//! unchanged.

use std::sync::Arc;
use std::{fmt, io};

use security::x509::DistinguishedName;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::config::{ServerConfig, SiteTerms};
use crate::congestion;
use crate::login::TokenLogin;
use crate::secure::SecurityMaterial;
use crate::startup::{self, ServeError};
use crate::state::ServerState;
use crate::users::{Users, UsersError};
use data::os::privilege;

/// New settings that arrive while [`crate::serve_with_reloads`] serves.
#[derive(Debug)]
pub struct ReloadRequests {
    settings: mpsc::Receiver<ServerConfig>,
}

/// Capacity of the channel: reloads that may wait to be applied.
const PENDING: usize = 4;

impl ReloadRequests {
    /// No reloads.
    pub fn never() -> Self {
        Self::manual().1
    }

    /// Reloads made by the program: for embedding and tests.
    pub fn manual() -> (mpsc::Sender<ServerConfig>, Self) {
        let (sender, settings) = mpsc::channel(PENDING);
        (sender, Self { settings })
    }

    /// Calls `load` on each SIGHUP. If it fails, the error is logged and the current settings stay. Must
    /// be called inside a tokio runtime.
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
            // The handler stays installed until the process ends, because the default action of SIGHUP
            // would kill a server that drains.
            while hangup.recv().await.is_some() {
                let load = Arc::clone(&load);
                match tokio::task::spawn_blocking(move || load()).await {
                    Ok(Ok(settings)) => {
                        let _ = sender.send(settings).await;
                    }
                    Ok(Err(error)) => log_refused_reload(&error),
                    Err(error) => log_refused_reload(&error.to_string()),
                }
            }
        });
        Ok(reloads)
    }

    /// Waits for the next settings; waits for ever once the sender is dropped.
    pub(crate) async fn next_settings(&mut self) -> ServerConfig {
        match self.settings.recv().await {
            Some(settings) => settings,
            None => std::future::pending().await,
        }
    }
}

/// Applies new settings. Returns the state for new sessions, or the current state if the settings
/// cannot be used.
pub(crate) async fn apply(shared: &Arc<ServerState>, settings: ServerConfig) -> Arc<ServerState> {
    let before = Arc::clone(shared);
    let applied = tokio::task::spawn_blocking(move || build_state(&before, settings)).await;
    match applied {
        Ok(Ok((after, report))) => {
            report.log();
            Arc::new(after)
        }
        Ok(Err(error)) => {
            log_refused_reload(&error.to_string());
            Arc::clone(shared)
        }
        Err(error) => {
            log_refused_reload(&error.to_string());
            Arc::clone(shared)
        }
    }
}

fn log_refused_reload(error: &str) {
    tracing::error!(error, "reload refused; the current settings stay");
}

fn build_state(
    shared: &ServerState,
    mut settings: ServerConfig,
) -> Result<(ServerState, ReloadReport), ServeError> {
    // Everything that can fail comes before `authenticator.reload`: a refused reload changes nothing.
    let fixed = keep_restart_only_settings(&shared.config, &mut settings);
    let (users, users_kept) = reload_users(shared, &settings)?;
    let material = SecurityMaterial::load(&settings, Some(&shared.material))?;
    let tokens_before = shared.authenticator.tokens();
    let tokens = TokenLogin::new(&settings.security.token_issuers, tokens_before.as_deref())?;
    let congestion = congestion::offered_controls(&settings, data::os::congestion::settable())?;
    settings.require_usable()?;
    let site = SiteTerms::load(&settings, privilege::is_root(), Some(&shared.site));
    let site = Arc::new(site.map_err(ServeError::Site)?);
    site.set_umask();
    startup::warn_if_nobody_can_log_in(&settings);
    let is_denied = users_kept.as_ref().is_some_and(UsersError::is_denied);
    let taken_over = users.as_deref().filter(|_| users_kept.is_none());
    let report = ReloadReport {
        loaded: loaded_files(taken_over, &material),
        unreadable: unreadable_files(&settings, is_denied, &material),
        users_refused: users_kept.filter(|_| !is_denied),
        fixed,
    };
    let gridmap = material.gridmap();
    let tokens = tokens.map(Arc::new);
    shared
        .authenticator
        .reload(&settings, users, gridmap, tokens, Arc::clone(&site));
    let state = shared.with_settings(settings, congestion, Arc::new(material), site);
    Ok((state, report))
}

/// A line of the log: the parts that a reload took over, and those that stayed.
#[derive(Debug)]
struct ReloadReport {
    /// Files that have been read, each with its size or its end.
    loaded: Vec<String>,
    /// Keys of files that this process may not read, so that their content stayed.
    unreadable: Vec<&'static str>,
    /// Why the users file cannot be used, so that the accounts stayed.
    users_refused: Option<UsersError>,
    /// Settings that cannot change while the server runs, and differ.
    fixed: Vec<&'static str>,
}

impl ReloadReport {
    fn log(&self) {
        let line = self.to_string();
        let is_complete = self.unreadable.is_empty() && self.fixed.is_empty();
        match &self.users_refused {
            Some(_) => tracing::error!("{line}"),
            None if is_complete => tracing::info!("{line}"),
            None => tracing::warn!("{line}"),
        }
    }
}

impl fmt::Display for ReloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.users_refused {
            None => f.write_str("settings and users reloaded")?,
            Some(reason) => write!(f, "settings reloaded; users unchanged: {reason}")?,
        }
        if !self.loaded.is_empty() {
            write!(f, "; {}", self.loaded.join(", "))?;
        }
        if !self.unreadable.is_empty() {
            let keys = self.unreadable.join(", ");
            write!(
                f,
                "; unchanged, because the server's account may not read them: {keys}"
            )?;
        }
        if !self.fixed.is_empty() {
            let keys = self.fixed.join(", ");
            write!(f, "; unchanged until a restart: {keys}")?;
        }
        Ok(())
    }
}

fn loaded_files(users: Option<&Users>, material: &SecurityMaterial) -> Vec<String> {
    let users = users.map(|users| format!("users: {}", users.count()));
    let certificate = material.credential().map(|credential| {
        let leaf = credential.leaf();
        let subject = DistinguishedName::of_subject(leaf);
        format!("certificate {subject} valid until {}", leaf.not_after())
    });
    let gridmap = material.gridmap().map(|gridmap| {
        let subjects = gridmap.entries().count();
        format!("subjects of the gridmap: {subjects}")
    });
    users
        .into_iter()
        .chain(certificate)
        .chain(gridmap)
        .collect()
}

fn unreadable_files(
    settings: &ServerConfig,
    are_users_denied: bool,
    material: &SecurityMaterial,
) -> Vec<&'static str> {
    let users = Some("users").filter(|_| are_users_denied);
    let files = material.unreadable_files(settings.key_holder.is_none());
    users.into_iter().chain(files).collect()
}

/// Loads the users file. The file that is in use is only refreshed: if the server can no longer use it, for example because it
/// gave up root and may not read it, the accounts read before stay, and the reason is returned.
fn reload_users(
    shared: &ServerState,
    settings: &ServerConfig,
) -> Result<(Option<Arc<Users>>, Option<UsersError>), ServeError> {
    let Some(path) = &settings.users else {
        return Ok((None, None));
    };
    match shared.authenticator.users() {
        Some(users) if users.path() == path => {
            let kept = users.refresh().err();
            Ok((Some(users), kept))
        }
        _ => Ok((Some(Arc::new(Users::load(path)?)), None)),
    }
}

/// Restores the settings that cannot change while the server runs, and returns the names of those
/// that differ.
fn keep_restart_only_settings(old: &ServerConfig, new: &mut ServerConfig) -> Vec<&'static str> {
    let mut changed = Vec::new();
    let mut keep = |name, differs: bool| {
        if differs {
            changed.push(name);
        }
    };
    keep("listen", old.listen != new.listen);
    keep("root", old.root != new.root);
    keep("run-as", old.run_as != new.run_as);
    let (old_tls, new_tls) = (old.security.implicit_tls, new.security.implicit_tls);
    keep("implicit-tls", old_tls != new_tls);
    keep("sandbox", old.sandbox != new.sandbox);
    if old.key_holder.is_some() {
        // The process that holds the key was told its files at its start.
        let files = |config: &ServerConfig| {
            let security = &config.security;
            (security.certificate.clone(), security.key.clone())
        };
        keep("cert and key", files(old) != files(new));
        (new.security.certificate, new.security.key) = files(old);
    }
    // The process that asks PAM was told these at its start.
    let pam = |config: &ServerConfig| (config.pam.service.clone(), config.pam.min_uid);
    keep("pam and pam-min-uid", pam(old) != pam(new));
    (new.pam.service, new.pam.min_uid) = pam(old);
    keep("metrics", old.metrics != new.metrics);
    keep("advisor", old.advisor != new.advisor);
    keep("transfer-log", old.transfer_log != new.transfer_log);
    keep("ftp-info-log", old.ftp_info_log != new.ftp_info_log);
    keep("log", old.log != new.log);
    new.log = old.log;
    keep("history", old.history != new.history);
    new.history.clone_from(&old.history);
    new.listen = old.listen;
    new.sandbox = old.sandbox;
    new.key_holder.clone_from(&old.key_holder);
    new.pam_checker.clone_from(&old.pam_checker);
    new.service_manager.clone_from(&old.service_manager);
    new.passed.clone_from(&old.passed);
    new.advisor.clone_from(&old.advisor);
    new.metrics = old.metrics;
    new.advisor_port = old.advisor_port;
    new.root.clone_from(&old.root);
    new.served_store.clone_from(&old.served_store);
    new.run_as.clone_from(&old.run_as);
    new.security.implicit_tls = old.security.implicit_tls;
    new.transfer_log.clone_from(&old.transfer_log);
    new.ftp_info_log.clone_from(&old.ftp_info_log);
    changed
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use data::store::root::Root;

    use super::*;
    use crate::config::{Anonymous, PamConfig, UnlistedRights};
    use crate::limits::NoPermit;
    use crate::login::Authenticator;
    use crate::transfer_log::TransferLog;

    #[tokio::test]
    async fn every_limit_follows_a_reload() {
        let dir = tempfile::tempdir().unwrap();
        let config = |bound: usize| ServerConfig {
            root: dir.path().to_owned(),
            anonymous: Some(Anonymous::Ro),
            max_streams: 2 * bound,
            max_transfers_per_address: Some(bound),
            max_checksums: Some(bound),
            max_listings: 2 * bound,
            max_sessions_per_address: bound,
            ..ServerConfig::default()
        };
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let logins = Authenticator::new(&config(1), root, None);
        let log = TransferLog::open(None, None).unwrap();
        let before = Arc::new(ServerState::new(config(1), Arc::default(), logins, log));
        let peer = IpAddr::from([192, 0, 2, 1]);
        let queues = [
            &before.transfer_queue,
            &before.checksum_queue,
            &before.listing_queue,
        ];
        // Before the reload one client may have one permit of each kind, after it two, and two sessions.
        let mut held = Vec::new();
        for queue in queues {
            held.push(queue.acquire(peer).await.unwrap());
            let second = queue.acquire_within(peer, Duration::ZERO).await;
            assert!(matches!(second, Err(NoPermit::Timeout(_))));
        }
        let _session = before.session_limits.admit(peer).unwrap();
        assert!(before.session_limits.admit(peer).is_err());
        let after = apply(&before, config(2)).await;
        for queue in queues {
            held.push(queue.acquire_within(peer, Duration::ZERO).await.unwrap());
        }
        before.session_limits.admit(peer).unwrap();
        // The queues are the same ones, and smaller bounds apply, too.
        let after = apply(&after, config(1)).await;
        for queue in [
            &after.transfer_queue,
            &after.checksum_queue,
            &after.listing_queue,
        ] {
            assert_eq!(queue.permits_in_use(), 2);
            let third = queue.acquire_within(peer, Duration::ZERO).await;
            assert!(matches!(third, Err(NoPermit::Timeout(_))));
        }
    }

    #[test]
    fn a_reload_says_in_one_line_what_it_took_over_and_what_not() {
        let report = ReloadReport {
            loaded: vec!["users: 2".to_owned(), "certificate /CN=h".to_owned()],
            unreadable: vec!["gridmap"],
            users_refused: None,
            fixed: vec!["listen", "root"],
        };
        assert_eq!(
            report.to_string(),
            "settings and users reloaded; users: 2, certificate /CN=h; unchanged, because the server's account may not \
             read them: gridmap; unchanged until a restart: listen, root"
        );
    }

    #[test]
    fn settings_that_need_a_restart_are_named_and_kept() {
        let old = ServerConfig::default();
        let mut new = ServerConfig {
            listen: ([127, 0, 0, 1], 1).into(),
            root: "/elsewhere".into(),
            max_sessions: 5,
            pam: PamConfig {
                service: Some("lab".to_owned()),
                rights: UnlistedRights::Ro,
                min_uid: 1,
            },
            ..ServerConfig::default()
        };
        assert_eq!(
            keep_restart_only_settings(&old, &mut new),
            ["listen", "root", "pam and pam-min-uid"]
        );
        let rights_alone = PamConfig {
            rights: UnlistedRights::Ro,
            ..old.pam.clone()
        };
        assert_eq!(new.pam, rights_alone, "rights follow a reload");
        assert_eq!((new.listen, new.max_sessions), (old.listen, 5));
        assert_eq!(new.root, old.root);
    }
}
