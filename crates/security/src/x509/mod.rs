//! X.509 certificates: names, credentials, proxies, trust.

mod credential;
pub(crate) mod der;
mod host_name;
mod name;
mod proxy;
mod trust;

pub use credential::{CertifiedKey, CredentialError};
pub use name::DistinguishedName;
pub use proxy::{ProxyError, ProxyKind, ProxyOptions, ProxyRequest, sign_proxy};
pub use trust::{CertificateUsage, PeerIdentity, TrustError, TrustStore};
