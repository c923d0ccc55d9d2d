//! The start of a server, and the errors that can prevent it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use data::store::root::{Root, RootError};
use history::PathHistory;
use proto::server::FileErrorKind;
use tokio::net::TcpListener;

use crate::config::{ServerConfig, SiteError, SiteTerms, UnusableSetting};
use crate::congestion::{self, CongestionError};
use crate::listen;
use crate::login::{Authenticator, TokenLogin, TokenSetupError};
use crate::pam::PamSetupError;
use crate::roots::ServerRoot;
use crate::secure::{SecurityMaterial, SecurityMaterialError};
use crate::state::{LostProcess, ServerState};
use crate::transfer_log::{LogOwner, TransferLog};
use crate::users::{Users, UsersError};
use data::os::privilege::{self, PrivilegeError};

/// The reason why a server could not start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port is in use or privileged, or the address is not this host's.
    #[error("cannot listen on {address}: {source}{}", listen_advice(.source))]
    Listen {
        /// The address to listen on.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The root directory is missing or not accessible.
    #[error("{error}{}", root_advice(.error))]
    Root {
        /// The reason.
        error: RootError,
    },
    /// The bucket that is served refuses what a server needs.
    #[error("cannot serve {name}: {reason}")]
    Store {
        /// Its URL.
        name: String,
        /// The bucket's reason.
        reason: String,
    },
    /// The users file is missing or malformed.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// A transfer log could not be opened for appending.
    #[error("cannot open the transfer log {}: {source}; its directory must exist and be writable", .path.display())]
    TransferLog {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The system does not permit the configured congestion control.
    #[error(transparent)]
    Congestion(#[from] CongestionError),
    /// The certificate, the authorities or the gridmap cannot be used.
    #[error(transparent)]
    Security(#[from] SecurityMaterialError),
    /// Logins with bearer tokens cannot be offered.
    #[error(transparent)]
    Tokens(#[from] TokenSetupError),
    /// Logins cannot be checked by PAM.
    #[error(transparent)]
    Pam(#[from] PamSetupError),
    /// A value cannot be meant.
    #[error(transparent)]
    Setting(#[from] UnusableSetting),
    /// New files cannot get their owner, or a message cannot be read.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The session that a program carries could not begin.
    #[error("cannot serve on standard input and output: {source}")]
    Carried {
        /// The system's reason.
        source: io::Error,
    },
    /// The server had started, and has lost a process that it needs.
    #[error("{0}; the server cannot go on without it and has ended: start it again")]
    Lost(#[from] LostProcess),
    /// The process could not become the account of `run_as`.
    #[error(transparent)]
    Privilege(#[from] PrivilegeError),
}

/// Advice for a control port that could not be bound.
fn listen_advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            "; another program has this port: stop it or choose another with --listen"
        }
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need root: choose a higher one or start as root with run-as"
        }
        io::ErrorKind::AddrNotAvailable => "; this host does not have that address",
        _ => "",
    }
}

/// Advice for a root that cannot be opened.
fn root_advice(error: &RootError) -> &'static str {
    match error {
        RootError::Open { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            "; the account that serves must be able to enter it"
        }
        RootError::Open { .. } => "; create the directory or choose another with --root",
        RootError::NoOpenat2 { .. } | RootError::Link { .. } => "",
    }
}

/// The ports that a server listens on.
#[derive(Debug)]
pub(crate) struct ControlListeners {
    /// The control port.
    pub(crate) control: TcpListener,
    /// The port whose connections begin with a TLS handshake.
    pub(crate) implicit_tls: Option<TcpListener>,
    /// The HTTP port for monitoring.
    pub(crate) metrics: Option<TcpListener>,
}

/// Binds the ports that were not passed, becomes the unprivileged account, and creates the state that sessions share.
///
/// Logs, the users file, keys and the gridmap are opened before the process gives up root, because they
/// may belong to root. The root directories are opened after that, because the serving account must be able to
/// reach them.
pub(crate) fn start_up(
    config: ServerConfig,
) -> Result<(ControlListeners, Arc<ServerState>), ServeError> {
    prepare(&config)?;
    let (passed, implicit_tls) = (&config.passed, config.security.implicit_tls);
    let listeners = ControlListeners {
        control: listener(passed.control.as_deref(), config.listen)?,
        implicit_tls: implicit_tls
            .map(|address| listener(passed.implicit_tls.as_deref(), address))
            .transpose()?,
        metrics: config
            .metrics
            .map(|address| listener(passed.metrics.as_deref(), address))
            .transpose()?,
    };
    let shared = create_state(config)?;
    if privilege::is_root() {
        tracing::warn!("serving with the rights of root; name an unprivileged account with run-as");
    }
    warn_if_nobody_can_log_in(&shared.config);
    Ok((listeners, shared))
}

/// The state of a process that serves one session, without any port.
///
/// # Errors
/// As [`start_up`], except for ports.
pub(crate) fn begin_carried(config: ServerConfig) -> Result<Arc<ServerState>, ServeError> {
    prepare(&config)?;
    create_state(config)
}

fn prepare(config: &ServerConfig) -> Result<(), ServeError> {
    config.require_usable()?;
    listen::raise_file_limit();
    data::os::memory::return_large_buffers();
    Ok(())
}

/// Becomes the unprivileged account, and creates the state.
fn create_state(config: ServerConfig) -> Result<Arc<ServerState>, ServeError> {
    let log = open_log_as_root(&config)?;
    let users = config.users.as_deref().map(Users::load).transpose()?;
    require_usable_users(&config, users.as_ref())?;
    let material = Arc::new(SecurityMaterial::load(&config, None)?);
    let tokens = TokenLogin::new(&config.security.token_issuers, None)?;
    if let Some(account) = &config.run_as {
        privilege::become_account(account)?;
        if users.as_ref().is_some_and(Users::is_denied) {
            tracing::warn!(
                "changes to the users file will need a restart: the account {account} may not read it; \
                 to have them noticed, give it to that account (chown {account} FILE)"
            );
        }
    }
    let log = match log {
        Some(log) => log,
        None => open_log(&config)?,
    };
    let root = open_root(&config)?;
    let site = Arc::new(SiteTerms::load(&config, privilege::is_root(), None)?);
    site.set_umask();
    let logins = Authenticator::new(&config, root, users)
        .with_site(Arc::clone(&site))
        .with_gridmap(material.gridmap())
        .with_tokens(tokens.map(Arc::new));
    logins.open_account_roots();
    // After the change of account: root may set congestion controls that other accounts may not
    // (net.ipv4.tcp_allowed_congestion_control, tcp(7)).
    let congestion = congestion::offered_controls(&config, data::os::congestion::settable())?;
    let history = open_history(&config);
    let shared = ServerState::new(config, congestion, logins, log)
        .with_material(material)
        .with_site(site)
        .with_history(history);
    Ok(Arc::new(shared))
}

/// Refuses accounts with a root of their own beside a store of objects.
pub(crate) fn require_usable_users(
    config: &ServerConfig,
    users: Option<&Users>,
) -> Result<(), UnusableSetting> {
    let has_roots = users.is_some_and(|users| !users.roots().is_empty());
    match config.served_store.is_some() && has_roots {
        true => Err(UnusableSetting::NotForObjects(
            "the root of a user in the users file",
        )),
        false => Ok(()),
    }
}

/// Opens the directory, or asks the store that is served in its place. One that cannot be reached now may be there when the first
/// client comes; one that refuses is refused.
pub(crate) fn open_root(config: &ServerConfig) -> Result<ServerRoot, ServeError> {
    let Some(store) = &config.served_store else {
        let root = Root::open(&config.root).map_err(|error| ServeError::Root { error })?;
        return Ok(Arc::new(root).into());
    };
    match store.check() {
        Ok(()) => {}
        Err(error) if error.kind == FileErrorKind::Unavailable => {
            tracing::warn!(
                reason = error.text,
                "the bucket cannot be reached; sessions are served when it can"
            );
        }
        Err(error) => {
            return Err(ServeError::Store {
                name: store.name().to_owned(),
                reason: error.text,
            });
        }
    }
    Ok(ServerRoot::Served(Arc::clone(store)))
}

/// The socket that was passed, or a new one.
fn listener(
    passed: Option<&std::net::TcpListener>,
    address: SocketAddr,
) -> Result<TcpListener, ServeError> {
    match passed {
        Some(passed) => listen::adopt(passed),
        None => listen::bind(address),
    }
    .map_err(|source| ServeError::Listen { address, source })
}

/// Logs a warning about settings that allow no login.
pub(crate) fn warn_if_nobody_can_log_in(config: &ServerConfig) {
    if !config.has_clients() {
        tracing::warn!(
            "nobody can log in: neither anonymous sessions nor users, PAM, a gridmap or tokens are set"
        );
    }
}

/// The memory of paths; `None` if it is switched off or has nowhere to write.
fn open_history(config: &ServerConfig) -> Option<PathHistory> {
    let history = PathHistory::at(config.history.clone().file()?);
    let is_writable = history.is_writable();
    if !is_writable {
        tracing::info!(
            file = %history.file().display(),
            "what transfers teach about their paths is not kept: the directory cannot be written"
        );
    }
    is_writable.then_some(history)
}

/// The transfer log; `None` if only the serving account may be able to open it: root that is not permitted
/// to write the files of others (`CAP_DAC_OVERRIDE`, capabilities(7)) cannot open that account's own log.
fn open_log_as_root(config: &ServerConfig) -> Result<Option<TransferLog>, ServeError> {
    match open_log(config) {
        Err(ServeError::TransferLog { source, .. })
            if source.kind() == io::ErrorKind::PermissionDenied && config.run_as.is_some() =>
        {
            Ok(None)
        }
        log => log.map(Some),
    }
}

fn open_log(config: &ServerConfig) -> Result<TransferLog, ServeError> {
    let json = config.transfer_log.as_deref();
    let classic = config.ftp_info_log.as_deref();
    let account = config.run_as.as_deref().map(privilege::account);
    let owner = account.transpose()?.filter(|_| privilege::is_root());
    let owner = owner.map(|account| LogOwner {
        user: account.uid.as_raw(),
        group: account.gid.as_raw(),
    });
    TransferLog::open_as(json, classic, owner).map_err(|source| ServeError::TransferLog {
        path: json.or(classic).unwrap_or(config.root.as_path()).to_owned(),
        source,
    })
}
