//! Protection of this client's connections: the user's choices ([`SecurityOptions`]), and the
//! credentials and authorities that they lead to. Every session of a run shares one
//! [`ConnectionSecurity`] by its [`crate::location::Server`], so that second sessions have the
//! identity and the protection of the first.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use proto::command::Secret;
use security::tls::{ExpectedPeer, TlsConfig, TlsOptions, TlsRole};
use security::x509::{CertifiedKey, TrustStore};

use crate::location::{Scheme, Server};
use crate::server::server_identity::ServerIdentity;
use crate::server::{protection_failures, user_credential};
use crate::ssh::{InstallChoice, PortMemory, SshLogins};
use crate::{Credential, Failure, Remotes};

pub use crate::server::channel_places::ChannelPlace;
use crate::server::channel_places::ChannelPlaces;
pub(crate) use crate::server::protection_failures::{
    auth_refused_failure, clear_fallback_warning, config_failure, exchange_refused_failure,
    gsi_failure, handshake_failure, tls_failure, tls_withdrawn_failure,
};
pub use crate::server::proxy_certificate::{
    NewProxy, ProxyFacts, describe_proxy, destroy_proxy, make_proxy,
};
pub use crate::server::security_options::{
    DataProtectionChoice, DelegationChoice, SecurityOptions, TlsUse,
};
pub use crate::server::user_credential::{
    FoundCredential, default_certificate_paths, default_proxy_path, find_user_credential,
    locate_user_credential, show_time,
};

use crate::server::token::DiscoveredToken;
pub(crate) use crate::server::token::read_token_file;

/// The protection in force if no transfer was protected.
pub const NO_SECURITY: &str = "none";

/// Receives warnings for the user.
pub type WarningSink = Arc<dyn Fn(&str) + Send + Sync>;

/// The protection of the connections of one run: choices and what was loaded for them. Equality and
/// hash are those of the choices.
pub struct ConnectionSecurity {
    options: SecurityOptions,
    /// The token of `--token`.
    token: Option<Secret>,
    /// The token of the environment, looked for when a server takes tokens.
    discovered_token: OnceLock<Option<DiscoveredToken>>,
    /// The certificate of `--cert`.
    certificate: Option<CertifiedKey>,
    system_trust: OnceLock<Arc<TrustStore>>,
    grid_trust: OnceLock<Arc<TrustStore>>,
    /// The throw-away credential for data connections (DCSC), the same for all servers of a run.
    data_credential: tokio::sync::OnceCell<CertifiedKey>,
    /// The logins of ssh, one for each host and user.
    ssh_logins: SshLogins,
    /// The servers with names.
    remotes: Arc<Remotes>,
    warn: Option<WarningSink>,
    given_warnings: Mutex<BTreeSet<String>>,
    /// Names (`host:port`) of servers that have agreed to TLS in this run.
    with_tls: Mutex<BTreeSet<String>>,
    /// Servers by ssh that have SFTP alone, as URLs.
    sftp_only: Mutex<BTreeSet<String>>,
    /// Servers by ssh whose sessions have a connection each, as URLs.
    separate_logins: Mutex<BTreeSet<String>>,
    /// Servers by ssh that refused a login beside the shared one, as URLs.
    refused_logins: Mutex<BTreeSet<String>>,
    channel_places: ChannelPlaces,
    /// Protections of the transfers so far, for people.
    in_force: Mutex<BTreeSet<String>>,
    /// How servers have shown themselves, by name and port.
    identities: Mutex<BTreeMap<String, ServerIdentity>>,
}

impl ConnectionSecurity {
    /// Checks the options and reads the files that they name. Warnings go to `warn`, each once.
    ///
    /// # Errors
    /// `Usage` for options that contradict each other; `Refused` for a token or certificate that
    /// cannot be used.
    pub fn new(options: SecurityOptions, warn: WarningSink) -> Result<Arc<Self>, Failure> {
        Self::with_remotes(options, Arc::default(), warn)
    }

    /// [`ConnectionSecurity::new`]; arguments may name these remotes.
    ///
    /// # Errors
    /// As [`ConnectionSecurity::new`].
    pub fn with_remotes(
        options: SecurityOptions,
        remotes: Arc<Remotes>,
        warn: WarningSink,
    ) -> Result<Arc<Self>, Failure> {
        options.check()?;
        let token = match &options.token {
            Some(path) => Some(read_token_file(path)?),
            None => None,
        };
        let certificate = match &options.certificate {
            Some(path) => Some(user_credential::load(path, options.key.as_deref())?),
            None => None,
        };
        Ok(Arc::new(Self {
            token,
            certificate,
            remotes,
            warn: Some(warn),
            options,
            ..Self::default()
        }))
    }

    /// Uses a memory of the ports of hosts that are reached by ssh, unless there is one.
    pub fn remember_ports(&self, memory: Arc<dyn PortMemory>) {
        self.ssh_logins.remember_ports(memory);
    }

    /// The logins of ssh.
    pub(crate) fn ssh_logins(&self) -> &SshLogins {
        &self.ssh_logins
    }

    /// The user's choices.
    pub fn options(&self) -> &SecurityOptions {
        &self.options
    }

    /// The servers with names, and the passwords that were typed.
    pub fn remotes(&self) -> &Remotes {
        &self.remotes
    }

    /// Refuses a URL whose scheme cannot have what the options ask for.
    ///
    /// # Errors
    /// `Usage`
    pub fn check_scheme(&self, scheme: Scheme, url: &str) -> Result<(), Failure> {
        let usage = |message: String| Err(Failure::usage(message));
        if scheme.is_ssh() && self.options.insecure {
            return usage(format!(
                "{}: hosts are verified by ssh and its known_hosts: leave out --insecure ({url})",
                scheme.name()
            ));
        }
        if matches!(scheme, Scheme::Https | Scheme::Gsiftp | Scheme::S3) && self.options.insecure {
            return usage(format!(
                "{}: servers are always verified: leave out --insecure, and name the server's authority with \
                 --ca if it is unknown ({url})",
                scheme.name()
            ));
        }
        let asked = self.options.data_protection;
        let name = asked.name();
        if !asked.excludes_clear() {
            return Ok(());
        }
        let uses_tls = self.requires_tls(scheme);
        match scheme {
            Scheme::Ftp if !uses_tls => usage(format!(
                "--data-protection {name} needs a protected session: use ftps: or gsiftp:, or add --tls \
                 require ({url})"
            )),
            Scheme::Ftp | Scheme::Ftps if asked != DataProtectionChoice::Private => usage(format!(
                "--data-protection {name} exists for gsiftp: only; data connections of FTP over TLS are \
                 clear or private ({url})"
            )),
            Scheme::Sshftp => usage(format!(
                "--data-protection {name} cannot be had from sshftp:, whose data connections are clear: use ssh: where \
                 longhaul is installed ({url})"
            )),
            Scheme::Http => usage(format!(
                "--data-protection {name} cannot be had from http:, which is clear: use https: ({url})"
            )),
            _ => Ok(()),
        }
    }

    /// Refuses options that none of these URLs uses, except for defaults.
    ///
    /// # Errors
    /// `Usage`
    pub fn check_use(&self, servers: &[&Server]) -> Result<(), Failure> {
        let usage = |message: &str| Err(Failure::usage(message));
        let takes_token = |server: &Server| matches!(server.credential, Credential::Token(_));
        if self.options.is_asked("token")
            && self.token.is_some()
            && !servers.iter().any(|server| takes_token(server))
        {
            return usage(
                "--token is sent to ftps: and https: URLs without a user (and to ftp: with --tls require) \
                 only: change the URL, or leave it out",
            );
        }
        let takes_delegation = |server: &Server| match server.scheme {
            Scheme::Gsiftp => true,
            Scheme::Https => {
                takes_token(server) && self.options.delegation == DelegationChoice::Full
            }
            _ => false,
        };
        if self.options.is_asked("delegate")
            && self.options.delegation != DelegationChoice::None
            && !servers.iter().any(|server| takes_delegation(server))
        {
            return usage(
                "--delegate is for gsiftp: URLs (and --delegate full for https: with a token) only: leave it out",
            );
        }
        let takes_certificate = |server: &Server| {
            server.scheme.is_ftp() && !server.scheme.is_ssh() && self.may_protect(server.scheme)
        };
        if self.options.is_asked("cert")
            && self.certificate.is_some()
            && !servers.iter().any(|server| takes_certificate(server))
        {
            return usage(
                "--cert is for ftps: and gsiftp: URLs (and ftp: with --tls): change the URL, or leave it out",
            );
        }
        // Who gives one of them believes that the connection is protected.
        let is_protected = servers.iter().any(|server| self.may_protect(server.scheme));
        if self.options.is_asked("insecure") && self.options.insecure && !is_protected {
            return usage(
                "--insecure is for ftps: URLs (and ftp: with --tls): no connection is \
                 protected here, so change the URL, or leave it out",
            );
        }
        // The proxy of an http: URL may be reached over TLS.
        let is_http = servers.iter().any(|server| server.scheme == Scheme::Http);
        if self.options.is_asked("ca") && self.options.ca.is_some() && !is_protected && !is_http {
            return usage(
                "--ca is for ftps:, gsiftp: and https: URLs (and ftp: with --tls): no connection is \
                 protected here, so change the URL, or leave it out",
            );
        }
        Ok(())
    }

    /// Whether sessions with this scheme may be protected.
    fn may_protect(&self, scheme: Scheme) -> bool {
        match scheme {
            Scheme::Ftp => self.options.tls != TlsUse::Off,
            Scheme::Ftps
            | Scheme::Gsiftp
            | Scheme::Ssh
            | Scheme::Sftp
            | Scheme::Https
            | Scheme::S3 => true,
            Scheme::Sshftp | Scheme::Http => false,
        }
    }

    /// Whether sessions with this scheme have TLS or fail.
    pub fn requires_tls(&self, scheme: Scheme) -> bool {
        match scheme {
            Scheme::Ftps | Scheme::Https => true,
            Scheme::Ftp => matches!(self.options.tls, TlsUse::Require | TlsUse::Implicit),
            _ => false,
        }
    }

    /// The credential of a URL without a user, if it is the token of `--token`.
    pub fn token_for(&self, scheme: Scheme) -> Option<Credential> {
        let token = self.token.clone()?;
        self.requires_tls(scheme)
            .then_some(Credential::Token(token))
    }

    /// The token of the environment, if it is for this verified server, which accepts tokens. A token that is there but
    /// unusable is a warning.
    pub fn discovered_token_for(&self, host: &str) -> Option<Secret> {
        let found = self.discovered_token()?;
        found.for_host(host, &self.options.token_hosts)
    }

    /// Whether there is a token in the environment that is not known to be for this server.
    pub fn withholds_token(&self, host: &str) -> bool {
        self.discovered_token().is_some() && self.discovered_token_for(host).is_none()
    }

    fn discovered_token(&self) -> Option<&DiscoveredToken> {
        if self.options.insecure {
            return None;
        }
        let found = self.discovered_token.get_or_init(|| {
            DiscoveredToken::find().unwrap_or_else(|problem| {
                self.warn_once(&problem);
                None
            })
        });
        found.as_ref()
    }

    /// The TLS configuration of sessions with an FTP server (RFC 4217). Its data connections use the
    /// same one.
    ///
    /// # Errors
    /// `Refused`: the authorities cannot be read.
    pub fn tls_config(&self, server: &Server) -> Result<TlsConfig, Failure> {
        let trust = match self.options.insecure {
            true => None,
            false => Some(self.tls_trust()?),
        };
        let options = TlsOptions {
            credential: self.certificate.clone(),
            trust,
            expected: self.expected_server(server),
            ..TlsOptions::client().for_host(&server.host)
        };
        TlsConfig::new(options).map_err(|error| config_failure(&error))
    }

    /// The configuration of the control connection of a GSI session, and the user's credential.
    ///
    /// # Errors
    /// `Refused`: there is no usable credential, or the authorities cannot be read.
    pub fn gsi_config(&self, server: &Server) -> Result<(TlsConfig, CertifiedKey), Failure> {
        let own = match &self.certificate {
            Some(given) => user_credential::check_validity(given, "the certificate of --cert")
                .map(|()| given.clone())?,
            None => find_user_credential()?,
        };
        let options = TlsOptions::grid(TlsRole::Client)
            .with_credential(own.clone())
            .with_trust(self.grid_trust()?)
            .for_host(&server.host);
        let config = TlsConfig::new(options).map_err(|error| config_failure(&error))?;
        Ok((config, own))
    }

    /// Warns if an `http:` request will show a password to the network.
    pub fn warn_of_clear_http_login(&self, server: &Server) {
        if server.credential.has_secret() && !server.is_loopback() {
            let warning = format!(
                "the password travels to {} in clear: use https:",
                server.host
            );
            self.warn_once(&warning);
        }
    }

    /// The authorities for TLS: those of `--ca`, else the system's.
    ///
    /// # Errors
    /// `Refused`: they cannot be read.
    pub fn tls_trust(&self) -> Result<Arc<TrustStore>, Failure> {
        self.trust(&self.system_trust, TrustStore::system)
    }

    /// The authorities for grid certificates: those of `--ca`, else the grid's.
    ///
    /// # Errors
    /// `Refused`: they cannot be read.
    pub fn grid_trust(&self) -> Result<Arc<TrustStore>, Failure> {
        self.trust(&self.grid_trust, TrustStore::grid)
    }

    fn trust(
        &self,
        loaded: &OnceLock<Arc<TrustStore>>,
        default: fn() -> Result<TrustStore, security::x509::TrustError>,
    ) -> Result<Arc<TrustStore>, Failure> {
        if let Some(trust) = loaded.get() {
            return Ok(Arc::clone(trust));
        }
        let trust = match &self.options.ca {
            Some(path) => TrustStore::from_path(path),
            None => default(),
        };
        let trust = trust.map_err(|error| protection_failures::authorities_failure(&error))?;
        Ok(Arc::clone(loaded.get_or_init(|| Arc::new(trust))))
    }

    /// The TLS server to verify; with `--insecure` none, and a warning.
    fn expected_server(&self, server: &Server) -> ExpectedPeer {
        if !self.options.insecure {
            return ExpectedPeer::Host(server.host.clone());
        }
        self.warn_once(
            "--insecure: servers are not verified, so anybody on the path can read and change \
             everything, passwords included",
        );
        ExpectedPeer::Unverified
    }

    /// The throw-away credential for data connections of this run. Its key is made once, on a
    /// blocking thread.
    ///
    /// # Errors
    /// `Local`: OpenSSL cannot make it.
    pub async fn data_credential(&self) -> Result<CertifiedKey, Failure> {
        let make = || async {
            let made = tokio::task::spawn_blocking(user_credential::new_data_credential).await;
            made.unwrap_or_else(|_| Err(user_credential::no_data_credential("its thread ended")))
        };
        self.data_credential.get_or_try_init(make).await.cloned()
    }

    /// Warns the user; equal texts once.
    pub fn warn_once(&self, text: &str) {
        if !self.given_warnings.lock().insert(text.to_owned()) {
            return;
        }
        match &self.warn {
            Some(warn) => warn(text),
            None => tracing::warn!("{text}"),
        }
    }

    /// Notes that a server has agreed to TLS: with [`TlsUse::Try`] its later sessions have TLS or fail.
    /// Otherwise somebody on the path could cut a protected session and refuse TLS to the next one.
    pub fn note_tls(&self, server: &str) {
        self.with_tls.lock().insert(server.to_lowercase());
    }

    /// Whether a server has agreed to TLS in this run.
    pub fn had_tls(&self, server: &str) -> bool {
        self.with_tls.lock().contains(&server.to_lowercase())
    }

    /// Notes that a server's login by ssh runs no longhaul: its further sessions use SFTP at once.
    pub fn note_sftp_only(&self, server: &Server) {
        self.sftp_only.lock().insert(server.to_string());
    }

    /// Whether [`ConnectionSecurity::note_sftp_only`] was called for a server.
    pub fn is_sftp_only(&self, server: &Server) -> bool {
        self.sftp_only.lock().contains(&server.to_string())
    }

    /// Notes that a server by ssh may confuse the sessions of one connection.
    pub fn note_separate_logins(&self, server: &Server) {
        self.separate_logins.lock().insert(server.to_string());
    }

    /// Whether [`ConnectionSecurity::note_separate_logins`] was called for a server.
    pub fn needs_separate_logins(&self, server: &Server) -> bool {
        self.separate_logins.lock().contains(&server.to_string())
    }

    /// Notes that a server by ssh lets nobody in beside the shared login without a question.
    pub fn note_refused_login(&self, server: &Server) {
        self.refused_logins.lock().insert(server.to_string());
    }

    /// Whether [`ConnectionSecurity::note_refused_login`] was called for a server.
    pub fn has_refused_login(&self, server: &Server) -> bool {
        self.refused_logins.lock().contains(&server.to_string())
    }

    /// A place for a session in the shared login at a server by ssh. `None`: another one has a place there, and the server may
    /// confuse them.
    pub fn channel_place(&self, server: &Server) -> Option<ChannelPlace> {
        let alone = self.needs_separate_logins(server);
        self.channel_places.take(server.to_string(), alone)
    }

    /// Whether the session with this place may keep it: it was the first, or the server confuses none.
    pub fn may_keep_place(&self, server: &Server, place: &ChannelPlace) -> bool {
        let name = server.to_string();
        !self.needs_separate_logins(server) || self.channel_places.is_first(&name, place)
    }

    /// Whether the user has chosen the program at the far end of ssh: URLs, so that nothing else may take its place.
    pub fn insists_on_far_end(&self) -> bool {
        let far_end = &self.options.far_end;
        far_end.program.is_some() || far_end.install == InstallChoice::Always
    }

    /// Notes the protection of a transfer.
    pub fn note_in_force(&self, description: String) {
        self.in_force.lock().insert(description);
    }

    /// The protections of the transfers so far; `none` without any.
    pub fn in_force(&self) -> String {
        let all: Vec<String> = self.in_force.lock().iter().cloned().collect();
        match all.is_empty() {
            true => NO_SECURITY.to_owned(),
            false => all.join("; "),
        }
    }

    /// Notes how a server has shown itself. Of several texts or certificates of one server the first counts.
    pub fn note_identity(&self, server: &str, identity: ServerIdentity) {
        if identity != ServerIdentity::default() {
            let mut identities = self.identities.lock();
            let known = identities.entry(server.to_owned()).or_default();
            known.learn(identity);
        }
    }

    /// The servers of this run that have shown something, by name and port.
    pub fn identities(&self) -> BTreeMap<String, ServerIdentity> {
        self.identities.lock().clone()
    }
}

impl Default for ConnectionSecurity {
    /// No choices: `ftp:` in clear, servers of other schemes verified with the system's and the
    /// grid's authorities. Warnings go to the log.
    fn default() -> Self {
        Self {
            options: SecurityOptions::default(),
            token: None,
            discovered_token: OnceLock::new(),
            certificate: None,
            ssh_logins: SshLogins::default(),
            remotes: Arc::default(),
            system_trust: OnceLock::new(),
            grid_trust: OnceLock::new(),
            data_credential: tokio::sync::OnceCell::new(),
            warn: None,
            given_warnings: Mutex::default(),
            with_tls: Mutex::default(),
            sftp_only: Mutex::default(),
            separate_logins: Mutex::default(),
            refused_logins: Mutex::default(),
            channel_places: ChannelPlaces::default(),
            in_force: Mutex::default(),
            identities: Mutex::default(),
        }
    }
}

impl std::fmt::Debug for ConnectionSecurity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ConnectionSecurity")
            .field(&self.options)
            .finish()
    }
}

impl PartialEq for ConnectionSecurity {
    fn eq(&self, other: &Self) -> bool {
        self.options == other.options
    }
}

impl Eq for ConnectionSecurity {}

impl Hash for ConnectionSecurity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.options.hash(state);
    }
}

#[cfg(test)]
mod tests;
