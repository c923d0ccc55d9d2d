//! Credentials in words, for people.

use openssl::pkey::Id;

use super::CertifiedKey;

/// DER of the policy language of limited proxies (1.3.6.1.4.1.3536.1.1.1.9).
const LIMITED: &[u8] = b"\x06\x0b\x2b\x06\x01\x04\x01\x9b\x50\x01\x01\x01\x09";
/// DER of the policy language of independent proxies (1.3.6.1.5.5.7.21.2, RFC 3820 §3.8.2).
const INDEPENDENT: &[u8] = b"\x06\x08\x2b\x06\x01\x05\x05\x07\x15\x02";
/// DER of the extension of proxies (1.3.6.1.5.5.7.1.14, RFC 3820 §3.8).
const PROXY_EXTENSION: &[u8] = b"\x06\x08\x2b\x06\x01\x05\x05\x07\x01\x0e";
/// DER of its draft (1.3.6.1.4.1.3536.1.222).
const DRAFT_EXTENSION: &[u8] = b"\x06\x0a\x2b\x06\x01\x04\x01\x9b\x50\x01\x81\x5e";

impl CertifiedKey {
    /// Kind of the credential: `RFC 3820 limited proxy`, `certificate`. It decides nothing.
    pub fn describe_kind(&self) -> &'static str {
        let der = self.leaf().to_der().unwrap_or_default();
        let contains = |part: &[u8]| der.windows(part.len()).any(|window| window == part);
        let subject = self.subject();
        match () {
            () if contains(PROXY_EXTENSION) && contains(LIMITED) => "RFC 3820 limited proxy",
            () if contains(PROXY_EXTENSION) && contains(INDEPENDENT) => {
                "RFC 3820 independent proxy"
            }
            () if contains(PROXY_EXTENSION) => "RFC 3820 proxy",
            () if contains(DRAFT_EXTENSION) && contains(LIMITED) => "draft limited proxy",
            () if contains(DRAFT_EXTENSION) => "draft proxy",
            () if subject.as_str().ends_with("/CN=limited proxy") => "legacy limited proxy",
            () if subject.as_str().ends_with("/CN=proxy") => "legacy proxy",
            () => "certificate",
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
