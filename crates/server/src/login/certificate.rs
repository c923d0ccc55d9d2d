//! Logins with a certificate, whose subject the gridmap maps to accounts.

use std::sync::Arc;
use std::time::SystemTime;

use security::x509::{DistinguishedName, PeerIdentity};

use super::{ANONYMOUS_NAMES, Authenticator, Login, LoginPolicy, LoginRefusal, MappingError};
use crate::config::UnlistedRights;
use crate::limits::SessionLimits;

/// Name with which clients of the globus library leave the choice of the account to the server.
const DEFAULT_ACCOUNT: &str = ":globus-mapping:";

/// The identity that a client has proved by its certificate: the subject without proxies ([`PeerIdentity::account_name`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CertifiedClient {
    /// With TLS. A client that the gridmap does not list may log in with a password.
    Tls(DistinguishedName),
    /// With GSI. The gridmap alone decides.
    Grid(DistinguishedName),
    /// With GSI and an independent proxy of this name, which is no account's.
    IndependentProxy(DistinguishedName),
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

impl Authenticator {
    /// Logs in to an account that the gridmap lists for `subject`: the one that was asked for, or the first
    /// for [`DEFAULT_ACCOUNT`]. The login ends with the certificate.
    pub(super) async fn mapped_login(
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
        if ANONYMOUS_NAMES.contains(&account.to_ascii_lowercase().as_str()) {
            return self.anonymous_login(policy, limits);
        }
        let account = policy.account(account, policy.gridmap_rights == UnlistedRights::Rw);
        let slot = limits.count_login(&account.name, policy.session_bound(&account.name))?;
        let login = self.user_login(policy, account, slot).await?;
        Ok(Login { expires, ..login })
    }
}
