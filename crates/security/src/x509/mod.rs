//! X.509 certificates: names, credentials, proxies, trust.

mod credential;
pub(crate) mod der;
mod description;
mod host_name;
pub(crate) mod name;
mod name_constraints;
mod new_proxy;
mod proxy;
mod time;
mod trust;
mod trust_error;

pub use credential::{CertifiedKey, CredentialError};
pub use name::DistinguishedName;
pub use new_proxy::{ProxyError, ProxyOptions, ProxyRequest, sign_proxy};
pub use proxy::ProxyKind;
#[cfg(feature = "fuzzing")]
pub(crate) use trust::may_sign;
pub use trust::{
    AuthorityFile, AuthorityState, CertificateFacts, CertificateUsage, PeerIdentity, ShownChain,
    TrustStore, grid_directory, inspect_authorities,
};
pub use trust_error::TrustError;
