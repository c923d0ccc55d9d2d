//! Credentials in words, for people.

use openssl::pkey::Id;

use super::CertifiedKey;
use super::proxy::{CertificateRole, ProxyKind, ProxyStyle, role};

impl CertifiedKey {
    /// Kind of the credential: `RFC 3820 limited proxy`, `certificate`. It decides nothing.
    pub fn describe_kind(&self) -> &'static str {
        let proxy = match role(self.leaf()) {
            Ok(CertificateRole::Proxy(proxy)) => proxy,
            Ok(CertificateRole::EndEntity | CertificateRole::Authority) => return "certificate",
            Err(_) => return "certificate or proxy that peers refuse",
        };
        match (proxy.style, proxy.kind) {
            (ProxyStyle::Rfc, ProxyKind::Full) => "RFC 3820 proxy",
            (ProxyStyle::Rfc, ProxyKind::Limited) => "RFC 3820 limited proxy",
            (ProxyStyle::Rfc, ProxyKind::Independent) => "RFC 3820 independent proxy",
            (ProxyStyle::Draft, ProxyKind::Full) => "draft proxy",
            (ProxyStyle::Draft, ProxyKind::Limited) => "draft limited proxy",
            (ProxyStyle::Draft, ProxyKind::Independent) => "draft independent proxy",
            (ProxyStyle::Legacy, ProxyKind::Limited) => "legacy limited proxy",
            (ProxyStyle::Legacy, ProxyKind::Full | ProxyKind::Independent) => "legacy proxy",
        }
    }

    /// Kind and size of the key: `RSA 2048 bits`.
    pub fn describe_key(&self) -> String {
        let kind = match self.key().id() {
            Id::RSA => "RSA",
            Id::EC => "EC",
            Id::ED25519 => "Ed25519",
            _ => "key of",
        };
        format!("{kind} {} bits", self.key().bits())
    }
}

#[cfg(test)]
mod tests;
