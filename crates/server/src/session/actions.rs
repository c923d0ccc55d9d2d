//! Actions that the machine asks for, carried out.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use data::channel::Channel;
use data::drs;
use proto::address::Family;
use proto::command::Secret;
use proto::drs::DrsAddress;
use proto::server::{
    Action, FileRequest, ListenRequest, Outcome, SecurityFailure, SecurityRequest, TransferError,
    TransferRequest,
};
use proto::stripes::StripeAddresses;
use tokio::time::Instant;

use super::order::{busy, not_logged_in};
use super::{Driver, Who};
use crate::limits::Place;
use crate::transfer::{Admission, Running, Stop};
use crate::work::{FileWork, Work};

impl Driver {
    /// Carries out actions in order. The machine puts the one that has an outcome last.
    pub(super) fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Reply(reply) => self.control.queue(&reply),
                Action::Secure(request) => self.secure(&request),
                Action::Authenticate { user, password } => self.authenticate(user, password),
                Action::File(request) => {
                    self.note_rename(&request);
                    self.work = self.file_work(request);
                }
                Action::Listen(request) => self.listen(&request),
                Action::ConnectTo(targets) => self.connect_to(&targets),
                Action::NoteForeign(host) => self.note_foreign(host),
                Action::ListenDrs(family) => self.listen_drs(family),
                Action::ConnectDrs(to) => self.connect_drs(to),
                Action::DropDrs => self.drs = None,
                Action::FollowBuffer(bytes) => {
                    if let Work::Transfer(running) = &mut self.work {
                        running.follow_buffer(bytes);
                    }
                }
                Action::DropChannel => self.channel = None,
                Action::Transfer(request) => self.work = self.admission(*request),
                Action::Abort => match &mut self.work {
                    Work::Transfer(running) => running.stop(Stop::Abort),
                    Work::Admission(waiting) => waiting.stop(Stop::Abort),
                    Work::File(work) => work.stop(),
                    _ => {}
                },
                Action::Note(key, value) => self.notes.set(key, value),
                Action::IdleTimeout(seconds) => {
                    self.idle_timeout = Duration::from_secs(seconds.into());
                }
                Action::Close => self.closing = true,
            }
        }
    }

    /// No mechanism is carried, and none is offered (`SessionConfig::mechanisms`).
    fn secure(&mut self, request: &SecurityRequest) {
        let failure = match request {
            SecurityRequest::Begin(_) if self.control.has_read_ahead() => {
                SecurityFailure::ReadAhead
            }
            _ => SecurityFailure::Unavailable("this server carries no mechanism".to_owned()),
        };
        self.work = Work::Known(Outcome::Security(Err(failure)));
    }

    fn authenticate(&mut self, user: String, password: Secret) {
        let shared = Arc::clone(&self.shared);
        let peer = self.ends.peer.ip();
        self.work = Work::Login(Box::pin(async move {
            shared
                .logins
                .check(user, password, peer, &shared.limits)
                .await
        }));
    }

    fn listen(&mut self, request: &ListenRequest) {
        self.channel = None;
        self.expect_data_from(request);
        self.work = match self.ends.listen_options(request, &self.shared.config) {
            Ok(options) => Work::listen(options, self.ends.peer.ip(), &self.shared),
            Err(error) => Work::Known(Outcome::Listening(Err(error))),
        };
    }

    fn listen_drs(&mut self, family: Family) {
        self.drs = None;
        self.work = match self.ends.listen_on(family) {
            Ok(ip) => Work::listen_drs(ip, &self.shared, self.ends.peer.ip()),
            Err(error) => Work::Known(Outcome::DrsListening(Err(error))),
        };
    }

    /// From the same address as data connections to that host: the peer compares the two.
    fn connect_drs(&mut self, to: DrsAddress) {
        let endpoint = drs::Endpoint::connect(to.at, to.nonce);
        let foreign = self.shared.config.foreign_data_addresses;
        self.drs = Some(Arc::new(match self.ends.connect_from(&[to.at], foreign) {
            Some(local) => endpoint.bound_to(local),
            None => endpoint,
        }));
    }

    fn connect_to(&mut self, targets: &StripeAddresses) {
        let targets = targets.as_slice();
        self.data_peers = targets.iter().map(SocketAddr::ip).collect();
        let foreign = self.shared.config.foreign_data_addresses;
        let local = self.ends.connect_from(targets, foreign);
        let mut channel = Channel::connect_to(targets.to_vec(), local);
        channel.set_budget(self.shared.streams_of(self.ends.peer.ip()));
        self.channel = Some(channel);
    }

    /// For the log; from anywhere is nowhere in particular.
    pub(super) fn expect_data_from(&mut self, request: &ListenRequest) {
        self.data_peers = if request.any_host {
            Vec::new()
        } else {
            let peer = self.ends.peer.ip();
            std::iter::once(peer).chain(request.other_host).collect()
        };
    }

    fn note_foreign(&self, host: IpAddr) {
        tracing::warn!(
            %host,
            "data connections to another host refused; the setting foreign-data-addresses allows them"
        );
    }

    fn file_work(&self, request: FileRequest) -> Work {
        match &self.who {
            Who::User(login) => {
                let shared = Arc::clone(&self.shared);
                Work::File(Box::new(FileWork::start(
                    shared,
                    self.ends.peer.ip(),
                    login.files.clone(),
                    request,
                )))
            }
            Who::Stranger { .. } => Work::Known(Outcome::File(Err(not_logged_in()))),
        }
    }

    /// A transfer begins when it has its place.
    fn admission(&self, request: TransferRequest) -> Work {
        let patience = self.shared.config.queue_timeout;
        Work::Admission(Box::new(Admission::new(
            request,
            &self.shared.transfers,
            self.ends.peer.ip(),
            patience,
        )))
    }

    /// The transfer has its place. A command that waited its turn may find its client gone.
    pub(super) fn transfer(&mut self, request: TransferRequest, place: Place) -> Work {
        if self.control.ended() {
            let gone = TransferError::Broken("client is gone".to_owned());
            return Work::Known(Outcome::Transferred(Err(gone)));
        }
        let started = self.order(request, place).and_then(|(order, handles)| {
            Running::start(order, handles).map_err(|error| busy(error.to_string()))
        });
        match started {
            Ok(running) => Work::Transfer(Box::new(running)),
            Err(error) => Work::Known(Outcome::Transferred(Err(TransferError::File(error)))),
        }
    }

    /// After REIN somebody must log in again, in time; the old login counts no more.
    pub(super) fn note_logout(&mut self) {
        if matches!(self.who, Who::User(_)) && !self.machine.logged_in() && !self.closing {
            self.who = Who::stranger(Instant::now() + self.shared.config.login_timeout);
        }
    }
}
