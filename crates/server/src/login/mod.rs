//! Logins: who may come in, with which files and rights.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use data::store::durability::SyncPolicy;
use data::store::root::Root;
use proto::command::Secret;
use proto::path::VPath;
use proto::printable::printable;
use proto::server::{AccountRights, LoginGrant};

use crate::config::{Anonymous, ServerConfig, ThirdPartyPolicy};
use crate::files::{ChecksumCache, ListingMemory, SessionFiles, UploadRegistry, Uploader};
use crate::limits::{FairQueue, LimitReached, SessionLimits, UserSlot, client_key};
use crate::roots::AccountRoots;
use crate::users::{UserAccount, Users};

mod throttle;

use throttle::LoginThrottle;

/// Names that mean an anonymous session, in any case (RFC 1635), and what clients of the globus
/// library send when they leave the account to the server.
const ANONYMOUS_NAMES: [&str; 3] = ["anonymous", "ftp", ":globus-mapping:"];

/// Longest user name in a log line, characters.
const SHOWN_NAME: usize = 64;

/// The accounts of a server.
#[derive(Debug)]
pub(crate) struct Authenticator {
    policy: RwLock<Arc<LoginPolicy>>,
    root_path: PathBuf,
    root: Arc<Root>,
    /// Roots of accounts that have their own.
    roots: Arc<AccountRoots>,
    sums: Arc<ChecksumCache>,
    uploads: Arc<UploadRegistry>,
    room: ListingMemory,
    /// One place per password being checked: each takes 19 MiB.
    hashes: Arc<FairQueue>,
    throttle: Arc<LoginThrottle>,
}

/// Who may log in; replaced by a reload.
#[derive(Debug)]
struct LoginPolicy {
    anonymous: Option<Anonymous>,
    third_party: ThirdPartyPolicy,
    users: Option<Arc<Users>>,
    sync: SyncPolicy,
}

/// A session's login.
#[derive(Debug)]
pub(crate) struct Login {
    /// For the state machine.
    pub(crate) grant: LoginGrant,
    /// The session's files.
    pub(crate) files: SessionFiles,
    /// Its root on the host, for the log.
    pub(crate) root_path: PathBuf,
    /// Held for as long as the session is logged in; anonymous sessions are not counted per user.
    _slot: Option<UserSlot>,
}

/// Why a login was not granted; the text is for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LoginRefusal {
    /// No anonymous sessions.
    #[error("anonymous sessions are not offered here")]
    NotAnonymous,
    /// No users file, no such user or a wrong password: which it was is nobody's business.
    #[error("wrong user name or password")]
    WrongCredentials(CredentialError),
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
pub(crate) enum CredentialError {
    /// There are no password users.
    NoUsersFile,
    /// Not in the users file.
    UnknownUser,
    /// Another password.
    WrongPassword,
}

impl LoginRefusal {
    /// Whether the session ends with 421.
    pub(crate) fn ends_session(&self) -> bool {
        matches!(self, Self::Throttled | Self::Limit(_))
    }

    /// For the log.
    fn log_reason(&self) -> String {
        match self {
            Self::WrongCredentials(CredentialError::NoUsersFile) => "no users file".to_owned(),
            Self::WrongCredentials(CredentialError::UnknownUser) => "unknown user".to_owned(),
            Self::WrongCredentials(CredentialError::WrongPassword) => "wrong password".to_owned(),
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

impl Authenticator {
    /// As configured.
    pub(crate) fn new(config: &ServerConfig, root: Arc<Root>, users: Option<Users>) -> Self {
        Self {
            policy: RwLock::new(Arc::new(LoginPolicy::of(config, users.map(Arc::new)))),
            root_path: root.host_path().to_owned(),
            roots: Arc::new(AccountRoots::new(Arc::clone(&root), config.root.clone())),
            root,
            sums: Arc::default(),
            uploads: Arc::default(),
            room: ListingMemory::default(),
            hashes: FairQueue::new(config.password_check_queue()),
            throttle: Arc::default(),
        }
    }

    /// The password users, as of the last reload.
    pub(crate) fn users(&self) -> Option<Arc<Users>> {
        self.policy().users.clone()
    }

    /// Other settings and users for the logins to come. Blocks on the file system.
    pub(crate) fn reload(&self, config: &ServerConfig, users: Option<Arc<Users>>) {
        self.hashes.set_bounds(config.password_check_queue());
        let policy = Arc::new(LoginPolicy::of(config, users));
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = policy;
        self.open_account_roots();
        self.roots.reopen();
    }

    /// Checks a login. Waits its turn: for one of the few places where hashes are computed, and
    /// after failures of its address or account. A refusal is logged, without the password.
    pub(crate) async fn authenticate(
        &self,
        user: String,
        password: Secret,
        peer: IpAddr,
        limits: &Arc<SessionLimits>,
    ) -> Result<Login, LoginRefusal> {
        let name: String = user.chars().take(SHOWN_NAME).collect();
        let answer = self.check_login(user, password, peer, limits).await;
        if let Err(refusal) = &answer {
            let user = printable(name.as_bytes());
            tracing::info!(%user, address = %peer, reason = refusal.log_reason(), "login refused");
        }
        answer
    }

    async fn check_login(
        &self,
        user: String,
        password: Secret,
        peer: IpAddr,
        limits: &Arc<SessionLimits>,
    ) -> Result<Login, LoginRefusal> {
        let policy = self.policy();
        if ANONYMOUS_NAMES.contains(&user.to_ascii_lowercase().as_str()) {
            return self.anonymous_login(&policy);
        }
        let Some(users) = policy.users.clone() else {
            return Err(LoginRefusal::WrongCredentials(CredentialError::NoUsersFile));
        };
        let account = self.verify_password(users, user, password, peer).await?;
        let slot = limits.count_login(&account.name)?;
        self.user_login(&policy, account, slot).await
    }

    /// Who waits for a failure's time to pass holds no place meanwhile.
    async fn verify_password(
        &self,
        users: Arc<Users>,
        user: String,
        password: Secret,
        peer: IpAddr,
    ) -> Result<UserAccount, LoginRefusal> {
        let crowded = |_| LoginRefusal::Throttled;
        let mut place = self.hashes.acquire(peer).await.map_err(crowded)?;
        let mut attempt = self
            .throttle
            .begin(peer, &user)
            .map_err(|_| LoginRefusal::Throttled)?;
        if !attempt.wait().is_zero() {
            drop(place);
            tokio::time::sleep(attempt.wait()).await;
            place = self.hashes.acquire(peer).await.map_err(crowded)?;
        }
        // From here on the password is tried, whether or not the client waits for the answer.
        attempt.mark_checked();
        let tried = tokio::task::spawn_blocking(move || {
            let account = users.verify(&user, &password.0).ok_or_else(|| {
                LoginRefusal::WrongCredentials(match users.has_user(&user) {
                    true => CredentialError::WrongPassword,
                    false => CredentialError::UnknownUser,
                })
            });
            (account, place)
        });
        let (account, place) = tried.await.map_err(|_| LoginRefusal::Internal)?;
        match account {
            Ok(_) => attempt.mark_granted(),
            Err(_) => drop(attempt),
        }
        // Not before: who comes next must not count this attempt as one under way.
        drop(place);
        account
    }

    fn anonymous_login(&self, policy: &LoginPolicy) -> Result<Login, LoginRefusal> {
        let anonymous = policy.anonymous.ok_or(LoginRefusal::NotAnonymous)?;
        let rights = AccountRights {
            write: anonymous == Anonymous::Rw,
            // Whatever the configuration: an anonymous bounce must be impossible (RFC 2577 §3).
            third_party: false,
        };
        Ok(Login {
            grant: LoginGrant {
                user: ANONYMOUS_NAMES[0].to_owned(),
                home: VPath::root(),
                rights,
                welcome_lines: Vec::new(),
            },
            files: self.files(policy, Arc::clone(&self.root), rights),
            root_path: self.root_path.clone(),
            _slot: None,
        })
    }

    async fn user_login(
        &self,
        policy: &LoginPolicy,
        account: UserAccount,
        slot: UserSlot,
    ) -> Result<Login, LoginRefusal> {
        let (root, root_path) = match account.root {
            None => (Arc::clone(&self.root), self.root_path.clone()),
            Some(path) => (self.account_root(&path, &account.name).await?, path),
        };
        let rights = AccountRights {
            third_party: account.rights.third_party
                && policy.third_party == ThirdPartyPolicy::Users,
            ..account.rights
        };
        Ok(Login {
            files: self.files(policy, root, rights),
            grant: LoginGrant {
                user: account.name,
                home: account.home,
                rights,
                welcome_lines: Vec::new(),
            },
            root_path,
            _slot: Some(slot),
        })
    }

    fn files(&self, policy: &LoginPolicy, root: Arc<Root>, rights: AccountRights) -> SessionFiles {
        SessionFiles::new(
            root,
            rights,
            Arc::clone(&self.sums),
            Arc::clone(&self.uploads),
            self.room.clone(),
        )
        .with_sync(policy.sync)
    }

    /// An account's own root, opened before or now.
    async fn account_root(&self, path: &Path, user: &str) -> Result<Arc<Root>, LoginRefusal> {
        let (roots, host_path) = (Arc::clone(&self.roots), path.to_owned());
        match tokio::task::spawn_blocking(move || roots.get(&host_path)).await {
            Ok(Ok(root)) => Ok(root),
            Ok(Err(error)) => {
                tracing::error!(user, root = %path.display(), %error, "cannot open root of user");
                Err(LoginRefusal::NoRoot)
            }
            Err(_) => Err(LoginRefusal::Internal),
        }
    }

    /// Opens the roots that the accounts name now and lets go of all others; to be called at the start
    /// and whenever the accounts were read anew. Blocks on the file system.
    pub(crate) fn open_account_roots(&self) {
        let named = self.users().map(|users| users.roots());
        self.roots.open_named(&named.unwrap_or_default());
    }

    fn policy(&self) -> Arc<LoginPolicy> {
        Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl LoginPolicy {
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
        let logins = Authenticator::new(&config, root, None);
        let login = logins.anonymous_login(&logins.policy()).unwrap();
        let uploader = |text: &str| login.uploader(text.parse().unwrap());
        assert_eq!(uploader("2001:db8::1"), uploader("2001:db8::2"));
        assert_ne!(uploader("2001:db8::1"), uploader("2001:db8:0:1::1"));
        assert_eq!(uploader("::ffff:192.0.2.1"), uploader("192.0.2.1"));
        assert_ne!(uploader("192.0.2.1"), uploader("192.0.2.2"));
    }
}
