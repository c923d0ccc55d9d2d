//! The security settings of the file.

use security::tls::ClientCertificates;

use super::{FileConfig, set_if_given};
use crate::config::{PamConfig, SecurityConfig};

impl FileConfig {
    /// Applies the security settings; takes those that are not copied.
    pub(super) fn apply_security(&mut self, config: &mut SecurityConfig) {
        config.tls = self.tls.or(config.tls);
        config.certificate = self.cert.take().or(config.certificate.take());
        config.key = self.key.take().or(config.key.take());
        config.implicit_tls = self.implicit_tls.or(config.implicit_tls);
        config.client_authorities = self.client_ca.take().or(config.client_authorities.take());
        config.gridmap = self.gridmap.take().or(config.gridmap.take());
        config.grid_authorities = self.ca_dir.take().or(config.grid_authorities.take());
        set_if_given(
            &mut config.client_certificates,
            self.client_certs.map(ClientCertificates::from),
        );
        set_if_given(&mut config.session_reuse, self.tls_session_reuse);
        set_if_given(&mut config.clear_commands, self.allow_ccc);
        set_if_given(&mut config.require_protection, self.require_protection);
        set_if_given(&mut config.clear_passwords, self.clear_passwords);
        set_if_given(&mut config.gridmap_rights, self.gridmap_rights);
        set_if_given(&mut config.token_issuers, self.token_issuer.take());
    }

    /// Applies the settings of PAM.
    pub(super) fn apply_pam(&mut self, config: &mut PamConfig) {
        config.service = self.pam.take().or(config.service.take());
        set_if_given(&mut config.rights, self.pam_rights);
        set_if_given(&mut config.min_uid, self.pam_min_uid);
    }
}
