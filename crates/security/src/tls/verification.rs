//! The checks of the peer's certificate.

use std::time::SystemTime;

use openssl::ssl::SslRef;
use openssl::x509::{X509, X509Ref, X509StoreContextRef, X509VerifyResult};
use parking_lot::Mutex;

use super::config::{ClientCertificates, ExpectedPeer, TlsConfig, TlsProfile, TlsRole};
use super::session::TlsSession;
use crate::x509::{CertificateUsage, PeerIdentity, TrustError};

/// OpenSSL's verification errors whose alert tells the owner of a certificate what to do:
/// X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED (X509_STORE_CTX_get_error(3)).
const VALIDITY_ERRORS: [i32; 2] = [9, 10];

/// Those that OpenSSL's security level makes: X509_V_ERR_EE_KEY_TOO_SMALL, CA_KEY_TOO_SMALL and
/// CA_MD_TOO_WEAK. They are final.
const WEAKNESS_ERRORS: [i32; 3] = [66, 67, 68];

/// The checks of one connection. The web profile makes them within the handshake, so that the peer
/// sees an alert. The grid profile makes them at its end, because OpenSSL does not link all chains
/// of proxies, and the whole chain is known then. A resumed handshake shows no certificate; the
/// one of its session is checked at the end, too.
pub(super) struct PeerCheck {
    config: TlsConfig,
    outcome: Mutex<Outcome>,
}

#[derive(Default)]
struct Outcome {
    verified: Option<PeerIdentity>,
    refused: Option<TrustError>,
    /// Certificates that the peer has shown, leaf first.
    shown: Vec<X509>,
    /// A date outside of a certificate's validity that OpenSSL has seen.
    validity: Option<X509VerifyResult>,
}

impl PeerCheck {
    pub(super) fn new(config: TlsConfig) -> Self {
        Self {
            config,
            outcome: Mutex::default(),
        }
    }

    /// The answer to OpenSSL's verification, which calls this for each problem (`passed` false) and
    /// for each good certificate, the leaf last (SSL_CTX_set_verify(3)). OpenSSL has no
    /// authorities here, so its opinion counts only where keys or signatures are weak.
    pub(super) fn on_certificate(&self, passed: bool, context: &mut X509StoreContextRef) -> bool {
        let options = self.config.options();
        let mut outcome = self.outcome.lock();
        if let Some(chain) = context.chain()
            && chain.len() > outcome.shown.len()
        {
            outcome.shown = chain.iter().map(ToOwned::to_owned).collect();
        }
        if options.expected == ExpectedPeer::Unverified {
            return true;
        }
        let error = context.error();
        if !passed && WEAKNESS_ERRORS.contains(&error.as_raw()) {
            outcome.refused = Some(refusal(context, error.error_string()));
            return false;
        }
        if options.profile == TlsProfile::Grid {
            return true;
        }
        if !passed {
            if VALIDITY_ERRORS.contains(&error.as_raw()) {
                outcome.validity = Some(error);
            }
            return true;
        }
        if context.error_depth() > 0 {
            return true;
        }
        let chain: Vec<X509> = context
            .chain()
            .map(|chain| chain.iter().map(ToOwned::to_owned).collect())
            .unwrap_or_default();
        match verify(&self.config, &chain) {
            Ok(peer) => {
                outcome.verified = Some(peer);
                context.set_error(X509VerifyResult::OK);
                true
            }
            Err(refused) => {
                context.set_error(alert_cause(&refused, &outcome, error));
                outcome.refused = Some(refused);
                false
            }
        }
    }

    /// The checks at the end of the handshake. Returns the peer (none where none is asked for, or
    /// nothing is checked), and its chain.
    pub(super) fn conclude(
        &self,
        ssl: &SslRef,
        resumed: Option<&TlsSession>,
    ) -> Result<(Option<PeerIdentity>, Vec<X509>), TrustError> {
        let chain = self.chain_of_peer(ssl, resumed);
        let options = self.config.options();
        if options.expected == ExpectedPeer::Unverified {
            if chain.is_empty() && self.requires_certificate() {
                return Err(TrustError::NoCertificate);
            }
            return Ok((None, chain));
        }
        if chain.is_empty() {
            if self.requires_certificate() || options.expected != ExpectedPeer::Trusted {
                return Err(TrustError::NoCertificate);
            }
            return Ok((None, chain));
        }
        let verified = self.outcome.lock().verified.take();
        let peer = match verified {
            Some(peer) => peer,
            None => verify(&self.config, &chain)?,
        };
        if options.role == TlsRole::Server && !ssl.session_reused() {
            self.config.shared().remember_chain(&chain);
        }
        Ok((Some(peer), chain))
    }

    /// Why the handshake was refused within.
    pub(super) fn refused(&self) -> Option<TrustError> {
        self.outcome.lock().refused.clone()
    }

    /// Certificates of a peer whose handshake did not complete.
    pub(super) fn shown(&self) -> Vec<X509> {
        self.outcome.lock().shown.clone()
    }

    fn requires_certificate(&self) -> bool {
        self.config.options().role == TlsRole::Client
            || self.config.client_certificates() == ClientCertificates::Required
    }

    fn chain_of_peer(&self, ssl: &SslRef, resumed: Option<&TlsSession>) -> Vec<X509> {
        let Some(leaf) = ssl.peer_certificate() else {
            return Vec::new();
        };
        if ssl.session_reused() {
            let kept = resumed.and_then(|session| session.chain_of(&leaf));
            return kept.map_or_else(|| self.config.shared().chain_of(&leaf), <[X509]>::to_vec);
        }
        // OpenSSL lists the leaf of a server, but not that of a client.
        let above = ssl.peer_cert_chain().into_iter().flatten();
        let above = above.map(ToOwned::to_owned).skip_while(|c| *c == leaf);
        std::iter::once(leaf.clone()).chain(above).collect()
    }
}

fn verify(config: &TlsConfig, chain: &[X509]) -> Result<PeerIdentity, TrustError> {
    let options = config.options();
    let Some(trust) = config.trust() else {
        return Err(TrustError::Store(
            "there are no certificate authorities to verify the peer with".to_owned(),
        ));
    };
    let usage = match (options.profile, options.role) {
        (TlsProfile::Grid, _) => CertificateUsage::Grid,
        (TlsProfile::Web, TlsRole::Client) => CertificateUsage::TlsServer,
        (TlsProfile::Web, TlsRole::Server) => CertificateUsage::TlsClient,
    };
    let peer = trust.verify(chain, usage, SystemTime::now())?;
    check_expected(&options.expected, &peer)?;
    Ok(peer)
}

fn check_expected(expected: &ExpectedPeer, peer: &PeerIdentity) -> Result<(), TrustError> {
    match expected {
        ExpectedPeer::Trusted | ExpectedPeer::Unverified => Ok(()),
        ExpectedPeer::Host(host) => peer.check_host(host),
        ExpectedPeer::Identity(identity) if peer.identity == *identity => Ok(()),
        ExpectedPeer::Identity(identity) => Err(TrustError::Name(format!(
            "the peer is {}, but must be {identity}",
            peer.identity
        ))),
        ExpectedPeer::Certificate(der) if peer.chain.first() == Some(der) => Ok(()),
        ExpectedPeer::Certificate(_) => Err(TrustError::Name(format!(
            "the peer shows another certificate than the expected one: that of {}",
            peer.subject
        ))),
    }
}

/// The verification error whose alert the peer gets.
fn alert_cause(
    refused: &TrustError,
    outcome: &Outcome,
    last: X509VerifyResult,
) -> X509VerifyResult {
    match refused {
        TrustError::UnknownAuthority { .. } | TrustError::Chain { .. } => {
            outcome.validity.unwrap_or(last)
        }
        _ => X509VerifyResult::APPLICATION_VERIFICATION,
    }
}

fn refusal(context: &X509StoreContextRef, problem: &str) -> TrustError {
    let subject = context.current_cert().map(X509Ref::subject_name);
    TrustError::Chain {
        subject: subject.map_or_else(
            || crate::x509::DistinguishedName::from_text("the certificate"),
            crate::x509::DistinguishedName::of,
        ),
        problem: problem.to_owned(),
    }
}
