//! Logins: who may come in, with which files and rights.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use data::store::durability::SyncPolicy;
use data::store::root::Root;
use proto::command::Secret;
use proto::path::VPath;
use proto::printable::printable;
use proto::server::{Grant, Rights};

use crate::config::{Anonymous, ServerConfig, ThirdParty};
use crate::files::{Files, Room, Sums, Uploader, Uploads};
use crate::limits::{FairQueue, LimitReached, Limits, UserSlot, client_key};
use crate::roots::AccountRoots;
use crate::users::{Account, Users};

mod throttle;

use throttle::Throttle;

/// Names that mean an anonymous session, in any case (RFC 1635), and what clients of the globus
/// library send when they leave the account to the server.
const ANONYMOUS_NAMES: [&str; 3] = ["anonymous", "ftp", ":globus-mapping:"];

/// Longest user name in a log line, characters.
const SHOWN_NAME: usize = 64;

/// The accounts of a server.
#[derive(Debug)]
pub(crate) struct Logins {
    policy: RwLock<Arc<Policy>>,
    root_path: PathBuf,
    root: Arc<Root>,
    /// Roots of accounts that have their own.
    roots: Arc<AccountRoots>,
    sums: Arc<Sums>,
    uploads: Arc<Uploads>,
    room: Room,
    /// One place per password being checked: each takes 19 MiB.
    hashes: Arc<FairQueue>,
    throttle: Arc<Throttle>,
}

/// Who may log in; replaced by a reload.
#[derive(Debug)]
struct Policy {
    anonymous: Option<Anonymous>,
    third_party: ThirdParty,
    users: Option<Arc<Users>>,
    sync: SyncPolicy,
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

/// Why a login was not granted; the text is for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// No anonymous sessions.
    #[error("anonymous sessions are not offered here")]
    NotAnonymous,
    /// No users file, no such user or a wrong password: which it was is nobody's business.
    #[error("wrong user name or password")]
    Wrong(Wrong),
    /// The user's root cannot be opened.
    #[error("your directory is not available")]
    NoRoot,
    /// A defect, logged where it happened.
    #[error("internal error")]
    Internal,
    /// Too many failures wait already.
    #[error("too many failed logins")]
    Throttled,
    /// Right, but a limit is reached.
    #[error(transparent)]
    Limit(#[from] LimitReached),
}

/// The part of a login that was wrong, for the log alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// There are no password users.
    NoUsers,
    /// Not in the users file.
    User,
    /// Another password.
    Password,
}

impl Refusal {
    /// Whether the session ends with 421.
    pub(crate) fn ends_session(&self) -> bool {
        matches!(self, Self::Throttled | Self::Limit(_))
    }

    /// For the log.
    fn class(&self) -> String {
        match self {
            Self::Wrong(Wrong::NoUsers) => "no users file".to_owned(),
            Self::Wrong(Wrong::User) => "unknown user".to_owned(),
            Self::Wrong(Wrong::Password) => "wrong password".to_owned(),
            other => other.to_string(),
        }
    }
}

impl Login {
    /// Whom its uploads belong to; `from` is the client's address.
    pub(crate) fn uploader(&self, from: IpAddr) -> Uploader {
        // No account has that name: it means an anonymous session before accounts are looked at.
        match self.grant.user.as_str() {
            user if user == ANONYMOUS_NAMES[0] => Uploader::Anonymous(client_key(from)),
            user => Uploader::User(user.to_owned()),
        }
    }
}

impl Logins {
    /// As configured.
    pub(crate) fn new(config: &ServerConfig, root: Arc<Root>, users: Option<Users>) -> Self {
        Self {
            policy: RwLock::new(Arc::new(Policy::of(config, users.map(Arc::new)))),
            root_path: root.host_path().to_owned(),
            roots: Arc::new(AccountRoots::new(Arc::clone(&root), config.root.clone())),
            root,
            sums: Arc::default(),
            uploads: Arc::default(),
            room: Room::default(),
            hashes: FairQueue::new(config.password_checks()),
            throttle: Arc::default(),
        }
    }

    /// The password users, as of the last reload.
    pub(crate) fn users(&self) -> Option<Arc<Users>> {
        self.policy().users.clone()
    }

    /// Other settings and users for the logins to come. Blocks on the file system.
    pub(crate) fn reload(&self, config: &ServerConfig, users: Option<Arc<Users>>) {
        self.hashes.resize(config.password_checks());
        let policy = Arc::new(Policy::of(config, users));
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = policy;
        self.follow_roots();
        self.roots.reopen();
    }

    /// Checks a login. Waits its turn: for one of the few places where hashes are computed, and
    /// after failures of its address or account. A refusal is logged, without the password.
    pub(crate) async fn check(
        &self,
        user: String,
        password: Secret,
        peer: IpAddr,
        limits: &Arc<Limits>,
    ) -> Result<Login, Refusal> {
        let name: String = user.chars().take(SHOWN_NAME).collect();
        let answer = self.answer(user, password, peer, limits).await;
        if let Err(refusal) = &answer {
            let user = printable(name.as_bytes());
            tracing::info!(%user, address = %peer, reason = refusal.class(), "login refused");
        }
        answer
    }

    async fn answer(
        &self,
        user: String,
        password: Secret,
        peer: IpAddr,
        limits: &Arc<Limits>,
    ) -> Result<Login, Refusal> {
        let policy = self.policy();
        if ANONYMOUS_NAMES.contains(&user.to_ascii_lowercase().as_str()) {
            return self.anonymous_login(&policy);
        }
        let Some(users) = policy.users.clone() else {
            return Err(Refusal::Wrong(Wrong::NoUsers));
        };
        let account = self.verify(users, user, password, peer).await?;
        let slot = limits.login(&account.name)?;
        self.user_login(&policy, account, slot).await
    }

    /// Who waits for a failure's time to pass holds no place meanwhile.
    async fn verify(
        &self,
        users: Arc<Users>,
        user: String,
        password: Secret,
        peer: IpAddr,
    ) -> Result<Account, Refusal> {
        let crowded = |_| Refusal::Throttled;
        let mut place = self.hashes.place(peer).await.map_err(crowded)?;
        let mut attempt = self
            .throttle
            .begin(peer, &user)
            .map_err(|_| Refusal::Throttled)?;
        if !attempt.wait().is_zero() {
            drop(place);
            tokio::time::sleep(attempt.wait()).await;
            place = self.hashes.place(peer).await.map_err(crowded)?;
        }
        // From here on the password is tried, whether or not the client waits for the answer.
        attempt.check();
        let tried = tokio::task::spawn_blocking(move || {
            let account = users.verify(&user, &password.0).ok_or_else(|| {
                Refusal::Wrong(match users.knows(&user) {
                    true => Wrong::Password,
                    false => Wrong::User,
                })
            });
            (account, place)
        });
        let (account, place) = tried.await.map_err(|_| Refusal::Internal)?;
        match account {
            Ok(_) => attempt.grant(),
            Err(_) => drop(attempt),
        }
        // Not before: who comes next must not count this attempt as one under way.
        drop(place);
        account
    }

    fn anonymous_login(&self, policy: &Policy) -> Result<Login, Refusal> {
        let anonymous = policy.anonymous.ok_or(Refusal::NotAnonymous)?;
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
            files: self.files(policy, Arc::clone(&self.root), rights),
            root_path: self.root_path.clone(),
            _slot: None,
        })
    }

    async fn user_login(
        &self,
        policy: &Policy,
        account: Account,
        slot: UserSlot,
    ) -> Result<Login, Refusal> {
        let (root, root_path) = match account.root {
            None => (Arc::clone(&self.root), self.root_path.clone()),
            Some(path) => (self.own_root(&path, &account.name).await?, path),
        };
        let rights = Rights {
            third_party: account.rights.third_party && policy.third_party == ThirdParty::Users,
            ..account.rights
        };
        Ok(Login {
            files: self.files(policy, root, rights),
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

    fn files(&self, policy: &Policy, root: Arc<Root>, rights: Rights) -> Files {
        Files::new(
            root,
            rights,
            Arc::clone(&self.sums),
            Arc::clone(&self.uploads),
            self.room.clone(),
        )
        .with_sync(policy.sync)
    }

    /// An account's own root, opened before or now.
    async fn own_root(&self, path: &Path, user: &str) -> Result<Arc<Root>, Refusal> {
        let (roots, host_path) = (Arc::clone(&self.roots), path.to_owned());
        match tokio::task::spawn_blocking(move || roots.get(&host_path)).await {
            Ok(Ok(root)) => Ok(root),
            Ok(Err(error)) => {
                tracing::error!(user, root = %path.display(), %error, "cannot open root of user");
                Err(Refusal::NoRoot)
            }
            Err(_) => Err(Refusal::Internal),
        }
    }

    /// Opens the roots that the accounts name now and lets go of all others; to be called at the start
    /// and whenever the accounts were read anew. Blocks on the file system.
    pub(crate) fn follow_roots(&self) {
        let named = self.users().map(|users| users.roots());
        self.roots.follow(&named.unwrap_or_default());
    }

    fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Policy {
    fn of(config: &ServerConfig, users: Option<Arc<Users>>) -> Self {
        Self {
            anonymous: config.anonymous,
            third_party: config.third_party,
            users,
            sync: config.sync_policy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_uploads_of_one_ipv6_network_are_one_clients() {
        let dir = tempfile::tempdir().unwrap();
        let config = ServerConfig {
            anonymous: Some(Anonymous::Rw),
            ..ServerConfig::default()
        };
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let logins = Logins::new(&config, root, None);
        let login = logins.anonymous_login(&logins.policy()).unwrap();
        let uploader = |text: &str| login.uploader(text.parse().unwrap());
        assert_eq!(uploader("2001:db8::1"), uploader("2001:db8::2"));
        assert_ne!(uploader("2001:db8::1"), uploader("2001:db8:0:1::1"));
        assert_eq!(uploader("::ffff:192.0.2.1"), uploader("192.0.2.1"));
        assert_ne!(uploader("192.0.2.1"), uploader("192.0.2.2"));
    }
}
