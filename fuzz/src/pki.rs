//! An authority, a host and a user, made once per process.

use std::sync::{Arc, LazyLock};

use security::test_pki::{TestAuthority, TestCertificate, TestKey, TestUsage};
use security::tls::{ClientCertificates, TlsConfig, TlsOptions, TlsProfile, TlsRole};
use security::x509::{CertifiedKey, TrustStore};

/// Name of the host.
pub const HOST: &str = "host.example";

/// An authority, and what it has issued.
pub struct FuzzPki {
    /// The authority.
    pub authority: TestAuthority,
    /// The server's certificate.
    pub host: CertifiedKey,
    /// The client's certificate.
    pub user: CertifiedKey,
    /// Trusts the authority.
    pub trust: Arc<TrustStore>,
}

/// The infrastructure of this process.
pub static PKI: LazyLock<FuzzPki> = LazyLock::new(|| {
    let mut root = template("/O=Grid/CN=Fuzz root", TestUsage::Server);
    root.authority = true;
    root.usages.clear();
    let authority = TestAuthority::self_signed(&root);
    let mut host = template("/O=Grid/CN=host.example", TestUsage::Server);
    host.alternative_names = vec![HOST.to_owned()];
    FuzzPki {
        host: authority.issue(&host),
        user: authority.issue(&template("/O=Grid/CN=Ada", TestUsage::Client)),
        trust: Arc::new(TrustStore::exactly(vec![authority.certificate().clone()])),
        authority,
    }
});

/// A certificate with a key that is made quickly.
fn template(subject: &str, usage: TestUsage) -> TestCertificate {
    let mut template = TestCertificate::new(subject);
    template.key = TestKey::P256;
    template.usages = vec![usage];
    template
}

/// The configuration of one end. Both ends show certificates and verify the other's.
///
/// # Panics
/// OpenSSL refuses it: the run is void.
pub fn config(role: TlsRole, profile: TlsProfile) -> TlsConfig {
    let (own, options) = match (role, profile) {
        (TlsRole::Client, TlsProfile::Web) => (&PKI.user, TlsOptions::client()),
        (TlsRole::Server, TlsProfile::Web) => (&PKI.host, TlsOptions::server()),
        (TlsRole::Client, TlsProfile::Grid) => (&PKI.user, TlsOptions::grid(role)),
        (TlsRole::Server, TlsProfile::Grid) => (&PKI.host, TlsOptions::grid(role)),
    };
    let options = options
        .with_credential(own.clone())
        .asking(ClientCertificates::Required, Arc::clone(&PKI.trust));
    TlsConfig::new(match role {
        TlsRole::Client => options.for_host(HOST),
        TlsRole::Server => options,
    })
    .expect("the configuration is valid")
}
