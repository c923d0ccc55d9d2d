//! Certificates in values, for reports to people.

use std::time::{SystemTime, UNIX_EPOCH};

use openssl::x509::{X509, X509Ref};

use super::{CertificateUsage, PeerIdentity, TrustStore};
use crate::x509::host_name::HostNames;
use crate::x509::time::{end, system_time};
use crate::x509::{CertifiedKey, DistinguishedName, TrustError};

/// Values of a certificate. They decide nothing: [`TrustStore::verify`] does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Subject.
    pub subject: DistinguishedName,
    /// Subject of the signer.
    pub issuer: DistinguishedName,
    /// Start of validity.
    pub starts: SystemTime,
    /// End of validity.
    pub expires: SystemTime,
    names: HostNames,
}

impl CertificateFacts {
    /// Reads a certificate.
    pub fn of(certificate: &X509Ref) -> Self {
        Self {
            subject: DistinguishedName::of_subject(certificate),
            issuer: DistinguishedName::of_issuer(certificate),
            starts: system_time(certificate.not_before()).unwrap_or(UNIX_EPOCH),
            expires: end(certificate),
            names: HostNames::of(certificate),
        }
    }

    /// The hosts that it names, as text: DNS names and addresses, or the CN without such names.
    pub fn host_names(&self) -> String {
        self.names.describe()
    }

    /// Whether it names a host: a DNS name in ASCII, or an address. The CN counts for the grid only
    /// ([`PeerIdentity::check_host`]).
    pub fn is_for(&self, host: &str, usage: CertificateUsage) -> bool {
        self.names.is_match(host, usage == CertificateUsage::Grid)
    }

    /// Whether it names itself as its signer.
    pub fn is_self_signed(&self) -> bool {
        self.subject == self.issuer
    }
}

/// The certificates that a server has shown, or would show, leaf first. Nothing of it is verified.
#[derive(Debug, Clone)]
pub struct ShownChain(Vec<X509>);

impl ShownChain {
    /// A chain, leaf first.
    pub fn new(certificates: Vec<X509>) -> Self {
        Self(certificates)
    }

    /// The chain of a credential.
    pub fn of(credential: &CertifiedKey) -> Self {
        let leaf = std::iter::once(credential.leaf().clone());
        Self(leaf.chain(credential.chain().iter().cloned()).collect())
    }

    /// The facts of each certificate, leaf first.
    pub fn facts(&self) -> Vec<CertificateFacts> {
        self.0.iter().map(|one| CertificateFacts::of(one)).collect()
    }

    /// Checks the chain and that it names `host`; `None`: any host.
    ///
    /// # Errors
    /// See [`TrustError`].
    pub fn check(
        &self,
        trust: &TrustStore,
        usage: CertificateUsage,
        host: Option<&str>,
        now: SystemTime,
    ) -> Result<PeerIdentity, TrustError> {
        let peer = trust.verify(&self.0, usage, now)?;
        host.map_or(Ok(()), |host| peer.check_host(host))?;
        Ok(peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_pki::TestAuthority;

    #[test]
    fn a_host_certificate_names_its_hosts_and_its_issuer() {
        let authority = TestAuthority::new("/O=Grid/CN=Test root");
        let host = authority.host(&["data.example", "192.0.2.7"]);
        let facts = CertificateFacts::of(host.leaf());
        assert_eq!(facts.subject.as_str(), "/O=Grid/CN=data.example");
        assert_eq!(facts.issuer.as_str(), "/O=Grid/CN=Test root");
        assert_eq!(facts.host_names(), "data.example, 192.0.2.7");
        assert!(!facts.is_self_signed() && facts.starts < facts.expires);
        let usage = CertificateUsage::TlsServer;
        assert!(facts.is_for("DATA.example", usage) && facts.is_for("192.0.2.7", usage));
        assert!(!facts.is_for("other.example", usage));
        assert!(CertificateFacts::of(authority.certificate()).is_self_signed());
    }

    #[test]
    fn a_chain_is_checked_against_authority_and_host() {
        let authority = TestAuthority::new("/O=Grid/CN=Test root");
        let chain = ShownChain::of(&authority.host(&["data.example"]));
        let check = |trust: &TestAuthority, host| {
            let trust = TrustStore::exactly(vec![trust.certificate().clone()]);
            let usage = CertificateUsage::TlsServer;
            chain.check(&trust, usage, Some(host), SystemTime::now())
        };
        assert!(check(&authority, "data.example").is_ok());
        let other = check(&authority, "other.example").unwrap_err();
        assert!(matches!(other, TrustError::Name(_)), "{other}");
        assert!(check(&TestAuthority::new("/CN=Stranger"), "data.example").is_err());
    }
}
