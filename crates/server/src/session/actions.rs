//! The actions of the state machine.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use data::channel::SessionDataChannel;
use data::drs;
use proto::address::AddressFamily;
use proto::command::Secret;
use proto::drs::DrsAddress;
use proto::server::{
    DriverEvent, FileRequest, ListenRequest, SessionAction, TransferError, TransferRequest,
};
use proto::stripes::StripeAddresses;
use tokio::time::Instant;

use super::order::{busy_error, not_logged_in_error};
use super::{LoginStatus, SessionDriver};
use crate::limits::QueuePermit;
use crate::login::LoginRequest;
use crate::secure::SessionSecurity;
use crate::transfer::{QueuedTransfer, StopCause, TransferHandle};
use crate::transfer_log::LoggedTransferKind;
use crate::work::{FileWork, SessionWork};

impl SessionDriver {
    /// Carries out actions in order. The state machine puts an action with an outcome last.
    pub(super) fn run_actions(&mut self, actions: Vec<SessionAction>) {
        for action in actions {
            match action {
                SessionAction::Reply(reply) => self.control.queue(&reply),
                SessionAction::Secure(request) => self.secure(request),
                SessionAction::Authenticate { user, password } => self.authenticate(user, password),
                SessionAction::SetDataCredential(credential) => {
                    self.set_data_credential(&credential);
                }
                SessionAction::ClearCommands => {
                    self.clearing = true;
                    self.security.clear_commands();
                }
                SessionAction::File(request) => {
                    self.note_rename(&request);
                    self.work = self.start_file_work(request);
                }
                SessionAction::Listen(request) => self.listen(&request),
                SessionAction::ConnectTo(targets) => self.connect_to(&targets),
                SessionAction::ReportForeignHost(host) => self.log_foreign_host(host),
                SessionAction::ListenDrs(family) => self.listen_drs(family),
                SessionAction::ConnectDrs(to) => self.connect_drs(to),
                SessionAction::DropDrs => self.drs = None,
                SessionAction::SetSendBuffer(bytes) => {
                    if let SessionWork::Transfer(running) = &mut self.work {
                        running.follow_buffer(bytes);
                    }
                }
                SessionAction::DropChannel => self.channel = None,
                SessionAction::Transfer(request) => self.work = self.queue_transfer(*request),
                // Only this work can be stopped by ABOR. A login or the opening of a listener ends soon
                // by itself.
                SessionAction::Abort => match &mut self.work {
                    SessionWork::Transfer(running) => running.stop(StopCause::Abort),
                    SessionWork::Admission(waiting) => waiting.stop(StopCause::Abort),
                    SessionWork::File(work) => work.stop(),
                    _ => {}
                },
                SessionAction::LogField(key, value) => self.client_notes.set(key, value),
                SessionAction::IdleTimeout(seconds) => {
                    self.idle_timeout = Duration::from_secs(seconds.into());
                }
                SessionAction::Close => self.closing = true,
            }
        }
    }

    fn authenticate(&mut self, user: String, password: Option<Secret>) {
        let shared = Arc::clone(&self.shared);
        let request = LoginRequest {
            user,
            password,
            peer: self.addresses.peer.ip(),
            client: self.security.client(),
            certified_until: self.security.certified_until(),
        };
        self.work = SessionWork::Login(Box::pin(async move {
            let limits = &shared.session_limits;
            shared.authenticator.authenticate(request, limits).await
        }));
    }

    fn listen(&mut self, request: &ListenRequest) {
        // A new PASV or EPSV replaces the data connections (RFC 959 section 3.2), so the old listener
        // closes before the new one opens: with a small port range it may need that very port.
        self.channel = None;
        self.note_data_peers(request);
        self.work = match self.addresses.listen_options(request, &self.shared.config) {
            Ok(options) => SessionWork::listen(options, self.addresses.peer.ip(), &self.shared),
            Err(error) => SessionWork::Immediate(DriverEvent::Listening(Err(error))),
        };
    }

    fn listen_drs(&mut self, family: AddressFamily) {
        self.drs = None;
        self.work = match self.addresses.listen_address(family) {
            Ok(ip) => SessionWork::listen_drs(ip, &self.shared, self.addresses.peer.ip()),
            Err(error) => SessionWork::Immediate(DriverEvent::DrsListening(Err(error))),
        };
    }

    /// Prepares a DRS channel to `to`, from the local address of data connections to that host: the peer
    /// compares the two addresses.
    fn connect_drs(&mut self, to: DrsAddress) {
        let endpoint = drs::DrsEndpoint::connect(to.socket, to.nonce);
        let foreign = self.shared.config.foreign_data_addresses;
        self.drs = Some(Arc::new(
            match self.addresses.bind_address(&[to.socket], foreign) {
                Some(local) => endpoint.with_local_address(local),
                None => endpoint,
            },
        ));
    }

    fn connect_to(&mut self, targets: &StripeAddresses) {
        let targets = targets.as_slice();
        self.data_peers = targets.iter().map(SocketAddr::ip).collect();
        let foreign = self.shared.config.foreign_data_addresses;
        let local = self.addresses.bind_address(targets, foreign);
        let mut channel = SessionDataChannel::connect_to(targets.to_vec(), local);
        channel.set_budget(self.shared.client_stream_budget(self.addresses.peer.ip()));
        self.channel = Some(channel);
    }

    /// Notes the hosts that data connections are expected from, for the log. If any host is allowed,
    /// none is noted.
    pub(super) fn note_data_peers(&mut self, request: &ListenRequest) {
        self.data_peers = if request.any_host {
            Vec::new()
        } else {
            let peer = self.addresses.peer.ip();
            std::iter::once(peer).chain(request.other_host).collect()
        };
    }

    fn log_foreign_host(&self, host: IpAddr) {
        tracing::warn!(
            %host,
            "data connections to another host refused; the setting foreign-data-addresses allows them"
        );
    }

    fn start_file_work(&self, request: FileRequest) -> SessionWork {
        match &self.login {
            LoginStatus::LoggedIn(login) => {
                let shared = Arc::clone(&self.shared);
                SessionWork::File(Box::new(FileWork::start(
                    shared,
                    self.addresses.peer.ip(),
                    login.files.clone(),
                    request,
                )))
            }
            LoginStatus::NotLoggedIn { .. } => {
                SessionWork::Immediate(DriverEvent::File(Err(not_logged_in_error())))
            }
        }
    }

    /// Queues a transfer for its permit.
    fn queue_transfer(&self, request: TransferRequest) -> SessionWork {
        let max_wait = self.shared.config.queue_timeout;
        SessionWork::Admission(Box::new(QueuedTransfer::new(
            request,
            &self.shared.transfer_queue,
            self.addresses.peer.ip(),
            max_wait,
        )))
    }

    /// Starts a transfer that has its permit, unless its client has disconnected meanwhile.
    pub(super) fn start_transfer(
        &mut self,
        request: TransferRequest,
        permit: QueuePermit,
    ) -> SessionWork {
        // Nobody would read the final reply, and an upload must not replace a file for nobody.
        if self.control.has_ended() {
            let gone = TransferError::Broken("the client has disconnected".to_owned());
            return SessionWork::Immediate(DriverEvent::Transferred(Err(gone)));
        }
        let kind = LoggedTransferKind::of(&request.kind);
        let started = self
            .transfer_order(request, permit)
            .and_then(|(order, handles)| {
                let counted = self.shared.metrics.transfer_begins(kind);
                TransferHandle::start(order, handles, counted)
                    .map_err(|error| busy_error(error.to_string()))
            });
        match started {
            Ok(running) => SessionWork::Transfer(Box::new(running)),
            Err(error) => {
                SessionWork::Immediate(DriverEvent::Transferred(Err(TransferError::File(error))))
            }
        }
    }

    /// After REIN (RFC 959 section 4.1.1) a new login must succeed in time. Dropping the old login ends
    /// its count.
    pub(super) fn note_logout(&mut self) {
        if matches!(self.login, LoginStatus::LoggedIn(_))
            && !self.machine.is_logged_in()
            && !self.closing
        {
            if let SessionSecurity::Grid(grid) = &mut self.security {
                grid.set_data_credential(None);
            }
            self.login =
                LoginStatus::not_logged_in(Instant::now() + self.shared.config.login_timeout);
        }
    }
}
