//! Configuration of TLS connections.

use std::sync::Arc;

use openssl::error::ErrorStack;
use openssl::rand::rand_bytes;
use openssl::ssl::{
    SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions, SslSessionCacheMode, SslVersion,
};
use openssl::x509::{X509, X509VerifyResult};
use parking_lot::Mutex;

use super::TlsError;
use super::error::in_words;
use super::newest_session;
use super::ticket_secret::TicketSecret;
use crate::x509::{CertifiedKey, DistinguishedName, TrustStore};

/// TLS 1.2 suites of the web profile.
const WEB_CIPHERS: &str = "ECDHE+AESGCM:ECDHE+CHACHA20";

/// TLS 1.2 suites of the grid profile: the same first, then what older toolkits have. Suites
/// without authentication, encryption or ephemeral keys are excluded.
const GRID_CIPHERS: &str = "ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:DHE+AESGCM:HIGH:\
     !kRSA:!aNULL:!eNULL:!MD5:!3DES:!PSK:!SRP:!CAMELLIA:!ARIA";

/// OpenSSL's security level: at least 112 bits, that is RSA of 2048 bits and SHA-256
/// (SSL_CTX_set_security_level(3)).
const SECURITY_LEVEL: u32 = 2;

/// Longest chain of issuers: proxies of proxies are common on the grid.
const MAX_ISSUERS: u32 = 100;

/// Tickets that a server gives after a full handshake. Two connections may open at once.
const TICKETS: usize = 2;

/// Sessions that a server keeps for clients without tickets; a context serves the connections of one
/// client.
const KEPT_SESSIONS: i32 = 8;

/// Chains that a server keeps for resumed sessions; a context serves the connections of one client.
const MAX_CHAINS: usize = 8;

/// Side of a TLS connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsRole {
    /// Sends the ClientHello.
    Client,
    /// Answers it.
    Server,
}

/// Oldest TLS version that is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    #[default]
    V1_2,
    /// TLS 1.3 (RFC 8446).
    V1_3,
}

/// Rules of the certificates and ciphers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsProfile {
    /// The web's rules: purposes checked, no proxies. FTPS (RFC 4217) and HTTPS.
    Web,
    /// GSI: any purpose, proxies, no session tickets, the certificate authority is sent with the
    /// chain. The TLS 1.2 suites without encryption are never offered or accepted.
    Grid,
}

/// Whether a server asks clients for certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientCertificates {
    /// No.
    #[default]
    None,
    /// Asks; a client without one is served, one with an invalid one is not.
    Optional,
    /// Refuses clients without one.
    Required,
}

/// Who the peer must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedPeer {
    /// Anyone whose chain is trusted.
    Trusted,
    /// The certificate names this host.
    Host(String),
    /// The identity is this one (DCAU A and S).
    Identity(DistinguishedName),
    /// The leaf is exactly this certificate (DER).
    Certificate(Vec<u8>),
    /// Nothing is checked (`--insecure`).
    Unverified,
}

/// Options of TLS connections. They begin with [`TlsOptions::client`], [`TlsOptions::server`] or
/// [`TlsOptions::grid`]: TLS 1.2 at least, and a peer that must be trusted.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// Side.
    pub role: TlsRole,
    /// Rules.
    pub profile: TlsProfile,
    /// Own certificate; a server needs one.
    pub credential: Option<CertifiedKey>,
    /// Authorities for the peer's certificate; `None` with [`ExpectedPeer::Unverified`], for a
    /// server that asks for no certificates, or with [`ExpectedPeer::Certificate`], which is then
    /// trusted itself.
    pub trust: Option<Arc<TrustStore>>,
    /// Server: client certificates. The grid profile always requires them, at both ends.
    pub client_certificates: ClientCertificates,
    /// Who the peer must be.
    pub expected: ExpectedPeer,
    /// Host for SNI, client only. An address is not named to the server (RFC 6066 §3).
    pub server_name: Option<String>,
    /// Oldest version.
    pub oldest: TlsVersion,
    /// Server: session tickets may be given, so that a second connection resumes the first's
    /// session. Tickets are valid only for connections of the same [`TlsConfig`]: a server makes one
    /// per control connection, so a resumed data connection is the control connection's client.
    pub tickets: bool,
    /// Server: the keys of the tickets, so that sessions resume with every server that has them; `None`: nobody else has them.
    pub ticket_secret: Option<TicketSecret>,
}

/// A checked configuration, shared by connections. Cheap to clone.
#[derive(Clone)]
pub struct TlsConfig {
    inner: Arc<TlsConfigInner>,
}

struct TlsConfigInner {
    options: TlsOptions,
    /// The options' authorities, or the expected certificate itself.
    trust: Option<Arc<TrustStore>>,
    shared: Arc<SharedContext>,
}

/// The parts that the connections of one context share: OpenSSL's context with the keys of the tickets, and
/// the chains behind the tickets.
pub(super) struct SharedContext {
    pub(super) context: SslContext,
    /// Server: chains that were verified, newest last. A ticket holds the client's leaf alone.
    verified_chains: Mutex<Vec<Vec<X509>>>,
}

impl TlsConfig {
    /// Checks the options and loads the credential into a new context.
    ///
    /// # Errors
    /// [`TlsError::Config`]
    pub fn new(options: TlsOptions) -> Result<Self, TlsError> {
        Self::with_newest(options, None)
    }

    /// The newest version of TLS can be limited, for tests.
    pub(crate) fn with_newest(
        options: TlsOptions,
        newest: Option<SslVersion>,
    ) -> Result<Self, TlsError> {
        check_combination(&options)?;
        let trust = effective_trust(&options)?;
        let context = build_context(&options, newest)?;
        let shared = SharedContext {
            context,
            verified_chains: Mutex::default(),
        };
        Ok(Self {
            inner: Arc::new(TlsConfigInner {
                options,
                trust,
                shared: Arc::new(shared),
            }),
        })
    }

    /// The same configuration for another expected peer. Sessions of the one resume in the other;
    /// the peer of a resumed session is checked like any other.
    ///
    /// # Errors
    /// [`TlsError::Config`]
    pub fn with_expected(&self, expected: ExpectedPeer) -> Result<Self, TlsError> {
        let options = TlsOptions {
            expected,
            ..self.inner.options.clone()
        };
        check_combination(&options)?;
        Ok(Self {
            inner: Arc::new(TlsConfigInner {
                trust: effective_trust(&options)?,
                options,
                shared: Arc::clone(&self.inner.shared),
            }),
        })
    }

    /// The same configuration of a server whose connections give no tickets of TLS 1.3, and resume sessions as before. A
    /// client that closes its socket before such a ticket arrives resets the connection, and the server loses what it has
    /// not read.
    #[must_use]
    pub fn without_new_tickets(&self) -> Self {
        let options = TlsOptions {
            tickets: false,
            ..self.inner.options.clone()
        };
        Self {
            inner: Arc::new(TlsConfigInner {
                trust: self.inner.trust.clone(),
                options,
                shared: Arc::clone(&self.inner.shared),
            }),
        }
    }

    /// The options.
    pub fn options(&self) -> &TlsOptions {
        &self.inner.options
    }

    /// The authorities that the peer is verified against.
    pub(super) fn trust(&self) -> Option<&TrustStore> {
        self.inner.trust.as_deref()
    }

    pub(super) fn shared(&self) -> &Arc<SharedContext> {
        &self.inner.shared
    }

    /// How a server asks for certificates.
    pub(super) fn client_certificates(&self) -> ClientCertificates {
        self.inner.options.effective_client_certificates()
    }
}

impl SharedContext {
    /// Keeps the chain that a client has shown, for its later tickets.
    pub(super) fn remember_chain(&self, chain: &[X509]) {
        let Some(leaf) = chain.first() else { return };
        let mut chains = self.verified_chains.lock();
        chains.retain(|c| c.first().is_none_or(|first| first != leaf));
        if chains.len() == MAX_CHAINS {
            chains.remove(0);
        }
        chains.push(chain.to_vec());
    }

    /// The chain above this leaf, with it; the leaf alone if it is not known.
    pub(super) fn chain_of(&self, leaf: &X509) -> Vec<X509> {
        self.verified_chains
            .lock()
            .iter()
            .find(|chain| chain.first() == Some(leaf))
            .cloned()
            .unwrap_or_else(|| vec![leaf.clone()])
    }
}

impl TlsOptions {
    /// A client with the web's rules: it shows no certificate, and its server must be trusted.
    /// Authorities or another expectation must follow.
    pub fn client() -> Self {
        Self::new(TlsRole::Client, TlsProfile::Web)
    }

    /// A server with the web's rules: it asks for no certificates and gives no tickets. Its credential
    /// must follow.
    pub fn server() -> Self {
        Self::new(TlsRole::Server, TlsProfile::Web)
    }

    /// One end of a GSI connection; both show certificates. A credential and authorities must follow.
    pub fn grid(role: TlsRole) -> Self {
        Self {
            client_certificates: ClientCertificates::Required,
            ..Self::new(role, TlsProfile::Grid)
        }
    }

    fn new(role: TlsRole, profile: TlsProfile) -> Self {
        Self {
            role,
            profile,
            credential: None,
            trust: None,
            client_certificates: ClientCertificates::None,
            expected: ExpectedPeer::Trusted,
            server_name: None,
            oldest: TlsVersion::V1_2,
            tickets: false,
            ticket_secret: None,
        }
    }

    /// With this own certificate.
    #[must_use]
    pub fn with_credential(self, credential: CertifiedKey) -> Self {
        Self {
            credential: Some(credential),
            ..self
        }
    }

    /// With these authorities for the peer.
    #[must_use]
    pub fn with_trust(self, trust: Arc<TrustStore>) -> Self {
        Self {
            trust: Some(trust),
            ..self
        }
    }

    /// The peer must be this one.
    #[must_use]
    pub fn expecting(self, expected: ExpectedPeer) -> Self {
        Self { expected, ..self }
    }

    /// The server must be this host, which is also named to it (SNI).
    #[must_use]
    pub fn for_host(self, host: &str) -> Self {
        Self {
            expected: ExpectedPeer::Host(host.to_owned()),
            server_name: Some(host.to_owned()),
            ..self
        }
    }

    /// Nothing of the peer is checked, also if there are authorities.
    #[must_use]
    pub fn unverified(self) -> Self {
        self.expecting(ExpectedPeer::Unverified)
    }

    /// Server: asks clients for certificates of these authorities.
    #[must_use]
    pub fn asking(self, certificates: ClientCertificates, trust: Arc<TrustStore>) -> Self {
        Self {
            client_certificates: certificates,
            ..self.with_trust(trust)
        }
    }

    /// Server: gives session tickets.
    #[must_use]
    pub fn with_tickets(self) -> Self {
        Self {
            tickets: true,
            ..self
        }
    }

    fn effective_client_certificates(&self) -> ClientCertificates {
        match self.profile {
            TlsProfile::Web => self.client_certificates,
            TlsProfile::Grid => ClientCertificates::Required,
        }
    }

    /// Whether the peer is asked for a certificate at all.
    fn asks_peer(&self) -> bool {
        self.role == TlsRole::Client
            || self.effective_client_certificates() != ClientCertificates::None
    }
}

fn check_combination(options: &TlsOptions) -> Result<(), TlsError> {
    let problem = |text: &str| Err(TlsError::Config(text.to_owned()));
    let grid = options.profile == TlsProfile::Grid;
    if options.role == TlsRole::Server && options.credential.is_none() {
        return problem("a TLS server needs a certificate and its key");
    }
    if grid && options.credential.is_none() {
        return problem("GSI needs a certificate and its key, or a proxy");
    }
    let without_trust = matches!(
        options.expected,
        ExpectedPeer::Unverified | ExpectedPeer::Certificate(_)
    );
    if options.asks_peer() && options.trust.is_none() && !without_trust {
        return problem("there are no certificate authorities to verify the peer with");
    }
    let anyone = matches!(
        options.expected,
        ExpectedPeer::Trusted | ExpectedPeer::Unverified
    );
    if !options.asks_peer() && !anyone {
        return problem("a server that expects one client must ask for certificates");
    }
    Ok(())
}

/// The authorities, or a store of the expected certificate where none are given.
fn effective_trust(options: &TlsOptions) -> Result<Option<Arc<TrustStore>>, TlsError> {
    match (&options.trust, &options.expected) {
        (Some(trust), _) => Ok(Some(Arc::clone(trust))),
        (None, ExpectedPeer::Certificate(der)) => {
            let certificate = X509::from_der(der).map_err(|e| {
                TlsError::Config(format!("the expected certificate is invalid: {e}"))
            })?;
            Ok(Some(Arc::new(TrustStore::exactly(vec![certificate]))))
        }
        (None, _) => Ok(None),
    }
}

fn build_context(options: &TlsOptions, newest: Option<SslVersion>) -> Result<SslContext, TlsError> {
    let failed = |step: &'static str| {
        move |e: ErrorStack| TlsError::Config(format!("cannot {step}: {}", in_words(&e)))
    };
    let method = match options.role {
        TlsRole::Client => SslMethod::tls_client(),
        TlsRole::Server => SslMethod::tls_server(),
    };
    let mut builder = SslContextBuilder::new(method).map_err(failed("start TLS"))?;
    set_protocol(&mut builder, options).map_err(failed("set the TLS version and ciphers"))?;
    builder
        .set_max_proto_version(newest)
        .map_err(failed("set the TLS version"))?;
    set_sessions(&mut builder, options).map_err(failed("set up TLS sessions"))?;
    if let Some(secret) = &options.ticket_secret {
        secret.apply(&mut builder)?;
    }
    if let Some(credential) = &options.credential {
        set_credential(&mut builder, options.profile, credential)
            .map_err(failed("use the certificate"))?;
    }
    Ok(builder.build())
}

/// Versions, ciphers and limits. The order of the ciphers is OpenSSL's: AES-256-GCM first, then
/// ChaCha20, then AES-128-GCM. In TLS 1.2 the web profile takes only ephemeral keys with
/// authenticated encryption.
fn set_protocol(builder: &mut SslContextBuilder, options: &TlsOptions) -> Result<(), ErrorStack> {
    let oldest = match options.oldest {
        TlsVersion::V1_2 => SslVersion::TLS1_2,
        TlsVersion::V1_3 => SslVersion::TLS1_3,
    };
    builder.set_min_proto_version(Some(oldest))?;
    builder.set_cipher_list(match options.profile {
        TlsProfile::Web => WEB_CIPHERS,
        TlsProfile::Grid => GRID_CIPHERS,
    })?;
    builder.set_security_level(SECURITY_LEVEL);
    builder.set_options(SslOptions::NO_RENEGOTIATION | SslOptions::NO_COMPRESSION);
    builder.set_mode(SslMode::RELEASE_BUFFERS | SslMode::AUTO_RETRY | SslMode::NO_AUTO_CHAIN);
    builder.set_verify_depth(MAX_ISSUERS);
    Ok(())
}

fn set_sessions(builder: &mut SslContextBuilder, options: &TlsOptions) -> Result<(), ErrorStack> {
    match options.role {
        // A ticket belongs to the connection that is kept by its owner; OpenSSL keeps none.
        TlsRole::Client if options.profile == TlsProfile::Web => {
            builder.set_session_cache_mode(
                SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL,
            );
            newest_session::keep_newest(builder)?;
        }
        TlsRole::Client => {
            builder.set_session_cache_mode(SslSessionCacheMode::OFF);
            builder.set_options(SslOptions::NO_TICKET);
        }
        TlsRole::Server => {
            // Clients of TLS 1.2 without tickets (curl) resume by the session's name, from this memory.
            // Sessions with tickets are not kept in it.
            if options.tickets && options.profile == TlsProfile::Web {
                builder.set_session_cache_mode(SslSessionCacheMode::SERVER);
                builder.set_session_cache_size(KEPT_SESSIONS);
            } else {
                builder.set_session_cache_mode(SslSessionCacheMode::OFF);
            }
            let mut context_name = [0; 32];
            rand_bytes(&mut context_name)?;
            let shared = options.ticket_secret.as_ref();
            let name = shared.map_or(&context_name[..], TicketSecret::context_name);
            builder.set_session_id_context(name)?;
            if options.tickets && options.profile == TlsProfile::Web {
                builder.set_num_tickets(TICKETS)?;
            } else {
                builder.set_num_tickets(0)?;
                builder.set_options(SslOptions::NO_TICKET);
            }
        }
    }
    Ok(())
}

fn set_credential(
    builder: &mut SslContextBuilder,
    profile: TlsProfile,
    credential: &CertifiedKey,
) -> Result<(), ErrorStack> {
    builder.set_certificate(credential.leaf())?;
    builder.set_private_key(credential.key())?;
    builder.check_private_key()?;
    for issuer in credential.chain() {
        // Peers of the web have the authority; peers of the grid may look for it in the chain.
        let is_root = issuer.issued(issuer) == X509VerifyResult::OK;
        if profile == TlsProfile::Grid || !is_root {
            builder.add_extra_chain_cert(issuer.clone())?;
        }
    }
    Ok(())
}

impl std::fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsConfig")
            .field("role", &self.inner.options.role)
            .field("profile", &self.inner.options.profile)
            .finish_non_exhaustive()
    }
}
