//! X.509 certificates: names, credentials, proxies, trust.

mod credential;
mod data_credential;
pub(crate) mod der;
mod description;
mod facts;
mod host_name;
pub(crate) mod name;
mod name_constraints;
mod proxy;
mod time;
mod trust;

pub use credential::{CertifiedKey, CredentialError};
pub use facts::{CertificateFacts, ShownChain};
pub use name::DistinguishedName;
pub use proxy::{ProxyError, ProxyKind, ProxyOptions, ProxyRequest, sign_proxy};
#[cfg(feature = "fuzzing")]
pub(crate) use trust::may_sign;
pub use trust::{
    AuthorityFile, AuthorityState, CertificateUsage, PeerIdentity, TrustError, TrustStore,
    grid_directory, inspect_authorities,
};
