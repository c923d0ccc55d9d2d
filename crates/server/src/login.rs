//! Logins: who may come in, with which files and rights.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use data::store::durability::SyncPolicy;
use data::store::root::Root;
use proto::path::VPath;
use proto::server::{Grant, Rights};
use tokio::sync::Semaphore;

use crate::config::{Anonymous, ServerConfig, ThirdParty};
use crate::files::{Files, Room, Sums, Uploader, Uploads};
use crate::limits::{Limits, LoginPenalties, UserSlot};
use crate::roots::AccountRoots;
use crate::users::{Account, Users};

/// Password hashes computed at once. Each takes 19 MiB: a flood of logins must not take it all.
const HASHES_AT_ONCE: usize = 2;

/// Names that mean an anonymous session, in any case (RFC 1635).
const ANONYMOUS_NAMES: [&str; 2] = ["anonymous", "ftp"];

/// The accounts of a server.
#[derive(Debug)]
pub(crate) struct Logins {
    anonymous: Option<Anonymous>,
    third_party: ThirdParty,
    users: Option<Arc<Users>>,
    root_path: PathBuf,
    root: Arc<Root>,
    /// Roots of accounts that have their own.
    roots: Arc<AccountRoots>,
    sums: Arc<Sums>,
    uploads: Arc<Uploads>,
    room: Room,
    sync: SyncPolicy,
    hashes: Semaphore,
    penalties: Mutex<LoginPenalties>,
}

/// A session's login.
#[derive(Debug)]
pub(crate) struct Login {
    /// For the state machine.
    pub(crate) grant: Grant,
    /// The session's files.
    pub(crate) files: Files,
    /// Its root on the host, for the log.
    pub(crate) root_path: PathBuf,
    /// Held for as long as the session is logged in; anonymous sessions are not counted per user.
    _slot: Option<UserSlot>,
}

/// Why a login was not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Wrong name or password; the text is for the user.
    Denied(String),
    /// Right, but a limit is reached: the session ends with 421.
    Busy(String),
}

impl Login {
    /// Whom its uploads belong to; `from` is the client's address.
    pub(crate) fn uploader(&self, from: IpAddr) -> Uploader {
        // No account has that name: it means an anonymous session before accounts are looked at.
        match self.grant.user.as_str() {
            user if user == ANONYMOUS_NAMES[0] => Uploader::Anonymous(from.to_canonical()),
            user => Uploader::User(user.to_owned()),
        }
    }
}

impl Logins {
    /// As configured.
    pub(crate) fn new(config: &ServerConfig, root: Arc<Root>, users: Option<Users>) -> Self {
        Self {
            anonymous: config.anonymous,
            third_party: config.third_party,
            users: users.map(Arc::new),
            root_path: root.host_path().to_owned(),
            roots: Arc::new(AccountRoots::new(Arc::clone(&root), config.root.clone())),
            root,
            sums: Arc::default(),
            uploads: Arc::default(),
            room: Room::default(),
            sync: config.sync_policy,
            hashes: Semaphore::new(HASHES_AT_ONCE),
            penalties: Mutex::default(),
        }
    }

    /// Checks a login. Waits its turn: after failures from the same address, and for one of the
    /// few places where hashes are computed.
    pub(crate) async fn check(
        &self,
        user: String,
        password: Vec<u8>,
        peer: IpAddr,
        limits: &Arc<Limits>,
    ) -> Result<Login, Refusal> {
        let name = user.to_ascii_lowercase();
        if ANONYMOUS_NAMES.contains(&name.as_str()) {
            return self.anonymous_login();
        }
        let Some(users) = self.users.clone() else {
            return Err(denied());
        };
        let delay = self.penalties().delay(peer, Instant::now());
        let Some(delay) = delay else {
            return Err(Refusal::Busy(
                "too many failed logins from your address".to_owned(),
            ));
        };
        tokio::time::sleep(delay).await;
        let account = self.verify(users, user, password).await;
        self.penalties()
            .note(peer, account.is_some(), Instant::now());
        let account = account.ok_or_else(denied)?;
        let slot = limits
            .login(&account.name)
            .map_err(|limit| Refusal::Busy(limit.to_string()))?;
        self.user_login(account, slot).await
    }

    async fn verify(&self, users: Arc<Users>, user: String, password: Vec<u8>) -> Option<Account> {
        let _place = self.hashes.acquire().await.ok()?;
        tokio::task::spawn_blocking(move || users.verify(&user, &password))
            .await
            .ok()
            .flatten()
    }

    fn anonymous_login(&self) -> Result<Login, Refusal> {
        let Some(anonymous) = self.anonymous else {
            return Err(Refusal::Denied(
                "anonymous sessions are not offered here".to_owned(),
            ));
        };
        let rights = Rights {
            write: anonymous == Anonymous::Rw,
            // Whatever the configuration: an anonymous bounce must be impossible (RFC 2577 §3).
            third_party: false,
        };
        Ok(Login {
            grant: Grant {
                user: ANONYMOUS_NAMES[0].to_owned(),
                home: VPath::root(),
                rights,
                message: Vec::new(),
            },
            files: self.files(Arc::clone(&self.root), rights),
            root_path: self.root_path.clone(),
            _slot: None,
        })
    }

    async fn user_login(&self, account: Account, slot: UserSlot) -> Result<Login, Refusal> {
        let (root, root_path) = match account.root {
            None => (Arc::clone(&self.root), self.root_path.clone()),
            Some(path) => (self.own_root(&path, &account.name).await?, path),
        };
        let rights = Rights {
            third_party: account.rights.third_party && self.third_party == ThirdParty::Users,
            ..account.rights
        };
        Ok(Login {
            files: self.files(root, rights),
            grant: Grant {
                user: account.name,
                home: account.home,
                rights,
                message: Vec::new(),
            },
            root_path,
            _slot: Some(slot),
        })
    }

    fn files(&self, root: Arc<Root>, rights: Rights) -> Files {
        Files::new(
            root,
            rights,
            Arc::clone(&self.sums),
            Arc::clone(&self.uploads),
            self.room.clone(),
        )
        .with_sync(self.sync)
    }

    /// An account's own root, opened before or now.
    async fn own_root(&self, path: &Path, user: &str) -> Result<Arc<Root>, Refusal> {
        let (roots, host_path) = (Arc::clone(&self.roots), path.to_owned());
        match tokio::task::spawn_blocking(move || roots.get(&host_path)).await {
            Ok(Ok(root)) => Ok(root),
            Ok(Err(error)) => {
                tracing::error!(user, root = %path.display(), %error, "cannot open root of user");
                Err(Refusal::Denied(
                    "your directory is not available".to_owned(),
                ))
            }
            Err(_) => Err(Refusal::Denied("internal error".to_owned())),
        }
    }

    /// Opens the roots that the accounts name now and lets go of all others; to be called at the start
    /// and whenever the accounts were read anew. Blocks on the file system.
    pub(crate) fn follow_roots(&self) {
        let named = self.users.as_ref().map(|users| users.roots());
        self.roots.follow(&named.unwrap_or_default());
    }

    fn penalties(&self) -> std::sync::MutexGuard<'_, LoginPenalties> {
        self.penalties
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same for an unknown user and a wrong password: which it was is nobody's business.
fn denied() -> Refusal {
    Refusal::Denied("wrong user name or password".to_owned())
}
