//! The settings that decide about logins.

use std::sync::Arc;

use data::store::durability::SyncPolicy;
use proto::path::VPath;
use proto::server::AccountRights;
use security::gridmap::Gridmap;

use super::TokenLogin;
use crate::config::{
    AccessLists, Anonymous, ServerConfig, ShareConfig, ThirdPartyPolicy, UnlistedRights,
};
use crate::pam::PamChecker;
use crate::site::SiteTerms;
use crate::users::{UserAccount, Users};

/// The settings about logins; a reload replaces them.
#[derive(Debug, Clone)]
pub(super) struct LoginPolicy {
    pub(super) anonymous: Option<Anonymous>,
    pub(super) third_party: ThirdPartyPolicy,
    pub(super) users: Option<Arc<Users>>,
    pub(super) gridmap: Option<Arc<Gridmap>>,
    pub(super) gridmap_rights: UnlistedRights,
    pub(super) tokens: Option<Arc<TokenLogin>>,
    pub(super) pam: Option<Arc<PamChecker>>,
    pub(super) pam_rights: UnlistedRights,
    pub(super) sync: SyncPolicy,
    pub(super) access: AccessLists,
    pub(super) shares: ShareConfig,
    pub(super) site: Arc<SiteTerms>,
}

impl LoginPolicy {
    /// The account of a client whose identity is proved: that of the users file, else one with the server's
    /// root, which may write if `write` is set.
    pub(super) fn account(&self, name: &str, write: bool) -> UserAccount {
        let listed = self.users.as_ref().and_then(|users| users.account(name));
        listed.unwrap_or_else(|| Self::unlisted_account(name, write))
    }

    /// An account with the server's root, which may write if `write` is set.
    pub(super) fn unlisted_account(name: &str, write: bool) -> UserAccount {
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

    pub(super) fn of(
        config: &ServerConfig,
        users: Option<Arc<Users>>,
        gridmap: Option<Arc<Gridmap>>,
    ) -> Self {
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
    pub(super) fn session_bound(&self, user: &str) -> Option<usize> {
        self.shares.users.get(user).and_then(|own| own.max_sessions)
    }
}
