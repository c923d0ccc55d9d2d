//! X.509 certificates: names, credentials, proxies, trust.

mod credential;
mod data_credential;
pub(crate) mod der;
mod description;
mod host_name;
pub(crate) mod name;
mod proxy;
mod time;
mod trust;

pub use credential::{CertifiedKey, CredentialError};
pub use name::DistinguishedName;
pub use proxy::{ProxyError, ProxyKind, ProxyOptions, ProxyRequest, sign_proxy};
#[cfg(feature = "fuzzing")]
pub(crate) use trust::may_sign;
pub use trust::{CertificateUsage, PeerIdentity, TrustError, TrustStore};
