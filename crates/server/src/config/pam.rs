//! Settings of logins that PAM checks.

use super::UnlistedRights;

/// Smallest user ID that people have by default (`UID_MIN` of login.defs(5)).
const MIN_UID: u32 = 1000;

/// Logins of system accounts, checked by PAM. Each field names its key in the settings file, which is also its flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PamConfig {
    /// `pam`: the service whose modules decide, a file in `/etc/pam.d`; `None`: PAM is not asked.
    pub service: Option<String>,
    /// `pam-rights`: rights of accounts that the users file does not list.
    pub rights: UnlistedRights,
    /// `pam-min-uid`: accounts with smaller user IDs may not log in. Root may never.
    pub min_uid: u32,
}

impl Default for PamConfig {
    fn default() -> Self {
        Self {
            service: None,
            rights: UnlistedRights::default(),
            min_uid: MIN_UID,
        }
    }
}
