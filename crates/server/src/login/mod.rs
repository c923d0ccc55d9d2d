//! Logins: who may log in, with which root and rights.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use data::store::durability::SyncPolicy;
use data::store::root::{CreationRules, Root};
use parking_lot::RwLock;
use proto::command::Secret;
use proto::path::VPath;
use proto::printable::printable;
use proto::security::BEARER_USER;
use proto::server::{AccountRights, LoginGrant};
use security::gridmap::Gridmap;
use security::x509::{DistinguishedName, PeerIdentity};

use crate::config::{
    AccessLists, Anonymous, ServerConfig, ShareConfig, SiteTerms, ThirdPartyPolicy, UnlistedRights,
};
use crate::files::{
    ChecksumCache, DirectoryFiles, ListingMemory, QuotaLedger, UploadRegistry, Uploader,
};
use crate::limits::{FairQueue, SessionLimits, UserSlot};
use crate::pam::PamChecker;
use crate::roots::{AccountRoots, ServerRoot};
use crate::session_files::{ServedFiles, SessionFiles, VersionSums};
use crate::users::{ANONYMOUS, UserAccount, Users, is_anonymous_name};

mod bearer_token;
mod password;
mod refusal;
mod throttle;
mod token;

pub(crate) use refusal::{LoginFault, LoginRefusal, MappingError};
use throttle::LoginThrottle;
pub(crate) use token::TokenLogin;
pub use token::{CheckedIssuer, TokenSetupError, check_token_issuers};

/// Longest user name in a log line, characters.
const SHOWN_NAME: usize = 64;

/// Name with which clients of the globus library leave the choice of the account to the server.
const DEFAULT_ACCOUNT: &str = ":globus-mapping:";

/// Checks logins and gives sessions their files.
#[derive(Debug)]
pub(crate) struct Authenticator {
    policy: RwLock<Arc<LoginPolicy>>,
    root_path: PathBuf,
    root: ServerRoot,
    /// Roots of accounts that have a root of their own; `None`: the server's root is no directory, and none has one.
    roots: Option<Arc<AccountRoots>>,
    checksums: Arc<ChecksumCache>,
    versions: Arc<VersionSums>,
    uploads: Arc<UploadRegistry>,
    quotas: QuotaLedger,
    listing_memory: ListingMemory,
    /// One permit per password being checked: each check takes 19 MiB of memory.
    password_checks: Arc<FairQueue>,
    /// One permit per question to PAM.
    pam_questions: Arc<FairQueue>,
    throttle: Arc<LoginThrottle>,
}

/// A login to check.
#[derive(Debug)]
pub(crate) struct LoginRequest {
    /// Argument of USER.
    pub(crate) user: String,
    /// Argument of PASS; `None`: directly after USER, when a certificate may suffice.
    pub(crate) password: Option<Secret>,
    /// The client's address.
    pub(crate) peer: IpAddr,
    /// The client's certificate.
    pub(crate) client: Option<CertifiedClient>,
    /// End of validity of that certificate and its proxies.
    pub(crate) certified_until: Option<SystemTime>,
}

/// The result of a successful login.
#[derive(Debug)]
pub(crate) struct Login {
    /// The account, to which the shares of users belong. A token's holder has another name.
    pub(crate) account: String,
    /// The grant for the session's state machine.
    pub(crate) grant: LoginGrant,
    /// Access to the session's files.
    pub(crate) files: SessionFiles,
    /// The session's root on the host, for the log.
    pub(crate) root_path: PathBuf,
    /// End of validity of the client's token, certificate or proxy.
    pub(crate) expires: Option<SystemTime>,
    /// Counts the session for its user while it is logged in; `None`: anonymous sessions are not
    /// counted per user.
    _slot: Option<UserSlot>,
}

impl Login {
    /// Whether the session is anonymous.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.account == ANONYMOUS
    }

    /// The owner of this session's uploads; `from` is the client's address.
    pub(crate) fn uploader(&self, from: IpAddr) -> Uploader {
        // No account can have this name, because it selects an anonymous session before accounts are
        // looked up.
        match self.grant.user.as_str() {
            user if user == ANONYMOUS => Uploader::Anonymous(from.into()),
            user => Uploader::User(user.to_owned()),
        }
    }

    /// Time until what the client has logged in with expires, 0 afterwards; `None`: the login has no end.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let left = |end: SystemTime| end.duration_since(SystemTime::now()).unwrap_or_default();
        self.expires.map(left)
    }
}

impl Authenticator {
    /// Takes the configuration, the server's root and the password users.
    pub(crate) fn new(
        config: &ServerConfig,
        root: impl Into<ServerRoot>,
        users: Option<Users>,
    ) -> Self {
        let root = root.into();
        let roots = root.directory().map(|directory| {
            Arc::new(AccountRoots::new(
                Arc::clone(directory),
                config.root.clone(),
            ))
        });
        Self {
            policy: RwLock::new(Arc::new(LoginPolicy::of(config, users.map(Arc::new), None))),
            root_path: root.path(),
            roots,
            root,
            checksums: Arc::default(),
            versions: Arc::default(),
            uploads: Arc::default(),
            quotas: QuotaLedger::default(),
            listing_memory: ListingMemory::default(),
            password_checks: FairQueue::new(config.password_check_queue()),
            pam_questions: FairQueue::new(config.pam_queue()),
            throttle: Arc::default(),
        }
    }

    /// The same with the accounts of certificate subjects.
    pub(crate) fn with_gridmap(self, gridmap: Option<Arc<Gridmap>>) -> Self {
        let policy = LoginPolicy {
            gridmap,
            ..(*self.policy()).clone()
        };
        Self {
            policy: RwLock::new(Arc::new(policy)),
            ..self
        }
    }

    /// The same with what sessions get besides rights.
    pub(crate) fn with_site(self, site: Arc<SiteTerms>) -> Self {
        let policy = LoginPolicy {
            site,
            ..(*self.policy()).clone()
        };
        Self {
            policy: RwLock::new(Arc::new(policy)),
            ..self
        }
    }

    /// The server's root, if it is a directory.
    pub(crate) fn root(&self) -> Option<&Arc<Root>> {
        self.root.directory()
    }

    /// The server's root on the host.
    pub(crate) fn root_path(&self) -> &Path {
        &self.root_path
    }

    /// The password users as of the last reload.
    pub(crate) fn users(&self) -> Option<Arc<Users>> {
        self.policy().users.clone()
    }

    /// Applies new settings, users, gridmap, issuers of tokens and messages to later logins. Blocks on the file system.
    pub(crate) fn reload(
        &self,
        config: &ServerConfig,
        users: Option<Arc<Users>>,
        gridmap: Option<Arc<Gridmap>>,
        tokens: Option<Arc<TokenLogin>>,
        site: Arc<SiteTerms>,
    ) {
        self.password_checks
            .set_bounds(config.password_check_queue());
        self.pam_questions.set_bounds(config.pam_queue());
        let policy = Arc::new(LoginPolicy {
            tokens,
            site,
            ..LoginPolicy::of(config, users, gridmap)
        });
        *self.policy.write() = policy;
        self.open_account_roots();
        if let Some(roots) = &self.roots {
            roots.reopen();
        }
        // Administrators reload after changes on the host.
        self.quotas.forget_counts();
    }

    /// Checks a login. It waits for one of the few permits to hash a password, and longer after failures
    /// of its address or account. A refusal is logged without the password.
    pub(crate) async fn authenticate(
        &self,
        request: LoginRequest,
        limits: &Arc<SessionLimits>,
    ) -> Result<Login, LoginRefusal> {
        // Taken before the check consumes the name; a client can send names of thousands of characters.
        let name: String = request.user.chars().take(SHOWN_NAME).collect();
        let peer = request.peer;
        let policy = self.policy();
        let answer = self.check_login(&policy, request, limits).await;
        let answer = answer.and_then(|login| permitted(&policy, login));
        if let Err(refusal) = &answer
            && *refusal != LoginRefusal::PasswordNeeded
        {
            let user = printable(name.as_bytes());
            tracing::info!(%user, address = %peer, reason = refusal.log_reason(), "login refused");
        }
        answer
    }

    async fn check_login(
        &self,
        policy: &LoginPolicy,
        request: LoginRequest,
        limits: &Arc<SessionLimits>,
    ) -> Result<Login, LoginRefusal> {
        let LoginRequest {
            user,
            password,
            peer,
            client,
            certified_until,
        } = request;
        if user == BEARER_USER {
            let token = password.ok_or(LoginRefusal::PasswordNeeded)?;
            return self.token_login(policy, token, peer, limits).await;
        }
        match client {
            Some(CertifiedClient::Grid(subject)) => {
                return self
                    .mapped_login(policy, &subject, certified_until, &user, limits)
                    .await;
            }
            Some(CertifiedClient::IndependentProxy(name)) => {
                return Err(LoginRefusal::NotMapped(MappingError::IndependentProxy(
                    name,
                )));
            }
            Some(CertifiedClient::Carried(account)) => {
                let slot = limits.count_login(&account.name, None)?;
                return self.user_login(policy, account, slot).await;
            }
            Some(CertifiedClient::Tls(subject)) => {
                let mapped = self
                    .mapped_login(policy, &subject, certified_until, &user, limits)
                    .await;
                // Another account may still be entered with its password.
                if !matches!(mapped, Err(LoginRefusal::NotMapped(_))) {
                    return mapped;
                }
            }
            None => {}
        }
        let Some(password) = password else {
            return Err(LoginRefusal::PasswordNeeded);
        };
        if is_anonymous_name(&user) {
            return self.anonymous_login(policy, limits);
        }
        let account = self.password_account(policy, user, password, peer).await?;
        if !policy.access.permits_user(&account.name) {
            // Before the bound on sessions, whose refusal is given to the right password alone.
            return Err(LoginRefusal::NotPermitted);
        }
        // Counted only after the password was checked: otherwise guesses with a wrong password could
        // use up the user's sessions.
        let slot = limits.count_login(&account.name, policy.session_bound(&account.name))?;
        self.user_login(policy, account, slot).await
    }

    fn anonymous_login(
        &self,
        policy: &LoginPolicy,
        limits: &Arc<SessionLimits>,
    ) -> Result<Login, LoginRefusal> {
        let anonymous = policy.anonymous.ok_or(LoginRefusal::NotAnonymous)?;
        let account = ANONYMOUS.to_owned();
        // Those without a table of their own are bounded by address alone: their clients have nothing in common.
        let slot = policy
            .session_bound(&account)
            .map(|bound| limits.count_login(&account, Some(bound)))
            .transpose()?;
        let rights = AccountRights {
            write: anonymous == Anonymous::Rw,
            // Independent of the configuration: anonymous sessions must never allow FTP bounce attacks
            // (RFC 2577 section 3).
            third_party: false,
        };
        Ok(Login {
            files: self.files(policy, &self.root, rights, &account)?,
            grant: LoginGrant {
                user: account.clone(),
                home: VPath::root(),
                rights,
                welcome_lines: policy.site.welcome.clone(),
            },
            account,
            root_path: self.root_path.clone(),
            expires: None,
            _slot: slot,
        })
    }

    async fn user_login(
        &self,
        policy: &LoginPolicy,
        account: UserAccount,
        slot: UserSlot,
    ) -> Result<Login, LoginRefusal> {
        let (root, root_path) = match account.root {
            None => (self.root.clone(), self.root_path.clone()),
            Some(path) => (self.account_root(&path, &account.name).await?.into(), path),
        };
        let rights = AccountRights {
            third_party: account.rights.third_party
                && policy.third_party == ThirdPartyPolicy::Users,
            ..account.rights
        };
        Ok(Login {
            files: self.files(policy, &root, rights, &account.name)?,
            account: account.name.clone(),
            grant: LoginGrant {
                user: account.name,
                home: account.home,
                rights,
                welcome_lines: policy.site.welcome.clone(),
            },
            root_path,
            expires: None,
            _slot: Some(slot),
        })
    }

    fn files(
        &self,
        policy: &LoginPolicy,
        root: &ServerRoot,
        rights: AccountRights,
        account: &str,
    ) -> Result<SessionFiles, LoginRefusal> {
        let root = match root {
            ServerRoot::Directory(root) => Arc::clone(root),
            ServerRoot::Served(store) => {
                return Ok(SessionFiles::Served(ServedFiles::new(
                    Arc::clone(store),
                    rights,
                    Arc::clone(&self.versions),
                    Arc::clone(&self.uploads),
                    self.listing_memory.clone(),
                )));
            }
        };
        let quota = self.quotas.quota(&root, policy.shares.quota_of(account));
        let quota = quota.map_err(|error| {
            tracing::error!(%error, root = %root.host_path().display(), "cannot look at a root");
            LoginRefusal::NoRoot
        })?;
        let site = &policy.site;
        let root = match site.creation == CreationRules::default() {
            true => root,
            false => Arc::new(root.with_creation_rules(site.creation)),
        };
        let files = DirectoryFiles::new(
            root,
            rights,
            Arc::clone(&self.checksums),
            Arc::clone(&self.uploads),
            self.listing_memory.clone(),
        );
        let files = files
            .with_sync(policy.sync)
            .with_directory_message(site.directory_message.clone())
            .with_quota(quota);
        Ok(files.into())
    }

    /// Returns an account's own root, opened now or before.
    async fn account_root(&self, path: &Path, user: &str) -> Result<Arc<Root>, LoginRefusal> {
        let Some(roots) = &self.roots else {
            tracing::error!(user, root = %path.display(), "no account has a root of its own beside a bucket");
            return Err(LoginRefusal::NoRoot);
        };
        let (roots, host_path) = (Arc::clone(roots), path.to_owned());
        match tokio::task::spawn_blocking(move || roots.get(&host_path)).await {
            Ok(Ok(root)) => Ok(root),
            Ok(Err(error)) => {
                tracing::error!(user, root = %path.display(), %error, "cannot open root of user");
                Err(LoginRefusal::NoRoot)
            }
            Err(_) => Err(LoginRefusal::Internal),
        }
    }

    /// Opens the roots that the accounts name and closes all others. Must be called at the start and
    /// after each change of the accounts. Blocks on the file system.
    pub(crate) fn open_account_roots(&self) {
        let named = self.users().map(|users| users.roots());
        if let Some(roots) = &self.roots {
            roots.open_named(&named.unwrap_or_default());
        }
    }

    fn policy(&self) -> Arc<LoginPolicy> {
        Arc::clone(&self.policy.read())
    }

    /// Logs in to an account that the gridmap lists for `subject`: the one that was asked for, or the first
    /// for [`DEFAULT_ACCOUNT`]. The login ends with the certificate.
    async fn mapped_login(
        &self,
        policy: &LoginPolicy,
        subject: &DistinguishedName,
        expires: Option<SystemTime>,
        asked: &str,
        limits: &Arc<SessionLimits>,
    ) -> Result<Login, LoginRefusal> {
        let listed = policy.gridmap.as_ref().map(|map| map.accounts(subject));
        let listed = listed.unwrap_or_default();
        let account = match asked {
            DEFAULT_ACCOUNT => listed.first(),
            _ => listed.iter().find(|account| *account == asked),
        };
        let Some(account) = account else {
            return Err(LoginRefusal::NotMapped(match listed {
                [] => MappingError::NotListed(subject.clone()),
                _ => MappingError::OtherAccount(subject.clone()),
            }));
        };
        // These names mean an anonymous session everywhere.
        if is_anonymous_name(account) {
            return self.anonymous_login(policy, limits);
        }
        let account = policy.account(account, policy.gridmap_rights == UnlistedRights::Rw);
        let slot = limits.count_login(&account.name, policy.session_bound(&account.name))?;
        let login = self.user_login(policy, account, slot).await?;
        Ok(Login { expires, ..login })
    }
}

/// The login, unless the access lists exclude its account.
fn permitted(policy: &LoginPolicy, login: Login) -> Result<Login, LoginRefusal> {
    match login.account.as_str() {
        account if policy.access.permits_user(account) => Ok(login),
        account if account == ANONYMOUS => Err(LoginRefusal::NotAnonymous),
        _ => Err(LoginRefusal::NotPermitted),
    }
}

/// The identity that a client has proved by its certificate: the subject without proxies ([`PeerIdentity::account_name`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CertifiedClient {
    /// With TLS. A client that the gridmap does not list may log in with a password.
    Tls(DistinguishedName),
    /// With GSI. The gridmap alone decides.
    Grid(DistinguishedName),
    /// With GSI and an independent proxy of this name, which is no account's.
    IndependentProxy(DistinguishedName),
    /// Whoever has this process's account.
    Carried(UserAccount),
}

impl CertifiedClient {
    /// The client of a GSI session.
    pub(crate) fn of_grid(peer: &PeerIdentity) -> Self {
        match peer.account_name() {
            Some(name) => Self::Grid(name.clone()),
            None => Self::IndependentProxy(peer.identity.clone()),
        }
    }
}

/// The settings about logins; a reload replaces them.
#[derive(Debug, Clone)]
struct LoginPolicy {
    anonymous: Option<Anonymous>,
    third_party: ThirdPartyPolicy,
    users: Option<Arc<Users>>,
    gridmap: Option<Arc<Gridmap>>,
    gridmap_rights: UnlistedRights,
    tokens: Option<Arc<TokenLogin>>,
    pam: Option<Arc<PamChecker>>,
    pam_rights: UnlistedRights,
    sync: SyncPolicy,
    access: AccessLists,
    shares: ShareConfig,
    site: Arc<SiteTerms>,
}

impl LoginPolicy {
    /// The account of a client whose identity is proved: that of the users file, else one with the server's
    /// root, which may write if `write` is set.
    fn account(&self, name: &str, write: bool) -> UserAccount {
        let listed = self.users.as_ref().and_then(|users| users.account(name));
        listed.unwrap_or_else(|| Self::unlisted_account(name, write))
    }

    /// An account with the server's root, which may write if `write` is set.
    fn unlisted_account(name: &str, write: bool) -> UserAccount {
        UserAccount {
            name: name.to_owned(),
            root: None,
            rights: AccountRights {
                write,
                third_party: true,
            },
            home: VPath::root(),
        }
    }

    fn of(config: &ServerConfig, users: Option<Arc<Users>>, gridmap: Option<Arc<Gridmap>>) -> Self {
        Self {
            anonymous: config.anonymous,
            third_party: config.third_party,
            users,
            gridmap,
            gridmap_rights: config.security.gridmap_rights,
            tokens: None,
            pam: config.pam_checker.clone(),
            pam_rights: config.pam.rights,
            sync: config.sync_policy,
            access: config.access.clone(),
            shares: config.shares.clone(),
            site: Arc::default(),
        }
    }

    /// The user's own bound on sessions.
    fn session_bound(&self, user: &str) -> Option<usize> {
        self.shares.users.get(user).and_then(|own| own.max_sessions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_uploads_from_one_ipv6_64_network_have_one_owner() {
        let dir = tempfile::tempdir().unwrap();
        let config = ServerConfig {
            anonymous: Some(Anonymous::Rw),
            ..ServerConfig::default()
        };
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let logins = Authenticator::new(&config, root, None);
        let login = logins
            .anonymous_login(
                &logins.policy(),
                &SessionLimits::new(ServerConfig::default().session_bounds()),
            )
            .unwrap();
        let uploader = |text: &str| login.uploader(text.parse().unwrap());
        assert_eq!(uploader("2001:db8::1"), uploader("2001:db8::2"));
        assert_ne!(uploader("2001:db8::1"), uploader("2001:db8:0:1::1"));
        assert_eq!(uploader("::ffff:192.0.2.1"), uploader("192.0.2.1"));
        assert_ne!(uploader("192.0.2.1"), uploader("192.0.2.2"));
    }
}
