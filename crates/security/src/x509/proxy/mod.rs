//! Proxy certificates (RFC 3820) and their older forms: recognised and verified.

mod role;
#[cfg(test)]
pub(super) mod tests;
mod verify;

pub(super) use role::{
    CertificateRole, DRAFT_INFORMATION, INDEPENDENT, INHERIT_ALL, LIMITED, ProxyRole, ProxyStyle,
    RFC_INFORMATION, identity, role,
};
pub(super) use verify::verify_proxies;

/// Kind of a proxy certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyKind {
    /// Inherits all rights of its issuer.
    Full,
    /// Limited: may not start processes by convention of the Globus toolkit; file transfer accepts it.
    Limited,
    /// An identity of its own.
    Independent,
}
