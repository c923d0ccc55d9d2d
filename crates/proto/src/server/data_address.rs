//! Where data connections come from or go to: PASV EPSV SPAS PORT EPRT SPOR.
//!
//! A peer may send data only to and from itself. An account with the third-party right may name one
//! other host (SITE DATAPEER), or use any where the administrator allows it; an FTP bounce (RFC 2577
//! §3) is impossible without, and ports below 1024 are never connected to.

use std::net::{IpAddr, SocketAddr};

use super::passive_reply::{PassiveReplyForm, ipv6_unsupported_reply};
use super::replies::{self, CommandFailure};
use super::session_state::{DataChannel, LoggedInSession, PendingTask};
use super::{FileError, ListenRequest, SessionAction};
use crate::address::AddressFamily;
use crate::command::EpsvArgument;
use crate::stripes::StripeAddresses;

/// Lowest port that data connections are made to (RFC 2577 §3).
const LOWEST_PORT: u16 = 1024;

/// Why an address is refused that might be allowed.
const FOREIGN_HOST: &str = "data connections to hosts other than yours need an account that may make \
                       third-party transfers (it names the host with SITE DATAPEER), or the server's \
                       setting foreign-data-addresses";

impl LoggedInSession {
    /// PASV
    pub(super) fn pasv(&mut self) -> Vec<SessionAction> {
        if let Some(refusal) = self.refuse_after_epsv_all("PASV") {
            return refusal;
        }
        if self.family() == AddressFamily::V6 {
            return vec![SessionAction::Reply(ipv6_unsupported_reply())];
        }
        self.enter_passive(PassiveReplyForm::Pasv)
    }

    /// EPSV (RFC 2428 §3, §4). Data connections use the control connection's family.
    pub(super) fn epsv(&mut self, argument: EpsvArgument) -> Vec<SessionAction> {
        match (argument, self.family()) {
            (EpsvArgument::All, _) => {
                self.parameters.epsv_only = true;
                replies::reply(200, "EPSV ALL command successful.")
            }
            (EpsvArgument::Family(asked), own) if asked != own => {
                let number = match own {
                    AddressFamily::V4 => 1,
                    AddressFamily::V6 => 2,
                };
                let text = format!("Network protocol not supported, use ({number}).");
                replies::reply(522, text)
            }
            (EpsvArgument::Any | EpsvArgument::Family(_), _) => {
                self.enter_passive(PassiveReplyForm::Epsv)
            }
        }
    }

    /// SPAS; any argument asks for the extended form, the family is the control connection's.
    pub(super) fn spas(&mut self, argument: Option<AddressFamily>) -> Vec<SessionAction> {
        if let Some(refusal) = self.refuse_after_epsv_all("SPAS") {
            return refusal;
        }
        match (argument, self.family()) {
            (Some(_), _) => self.enter_passive(PassiveReplyForm::SpasExtended),
            (None, AddressFamily::V4) => self.enter_passive(PassiveReplyForm::Spas),
            (None, AddressFamily::V6) => vec![SessionAction::Reply(ipv6_unsupported_reply())],
        }
    }

    fn enter_passive(&mut self, form: PassiveReplyForm) -> Vec<SessionAction> {
        if self.parameters.allow_delayed {
            self.data_channel = DataChannel::DelayedPassive(form);
            let mut actions = vec![SessionAction::DropChannel];
            actions.extend(replies::reply(200, "Passive delayed."));
            return actions;
        }
        self.data_channel = DataChannel::None;
        self.pending = PendingTask::Listen(form);
        vec![SessionAction::Listen(self.listen_request())]
    }

    /// The listener that this session may have.
    pub(super) fn listen_request(&self) -> ListenRequest {
        ListenRequest {
            family: self.family(),
            any_host: self.any_host,
            other_host: self.data_peer,
            buffers: self.listener_buffers(),
        }
    }

    /// The listener is open, or is not.
    pub(super) fn on_listening(
        &mut self,
        form: PassiveReplyForm,
        addresses: Result<StripeAddresses, FileError>,
    ) -> Vec<SessionAction> {
        match addresses {
            Ok(addresses) => {
                self.data_channel = DataChannel::Passive { used: false };
                vec![SessionAction::Reply(form.reply(&addresses, false))]
            }
            Err(error) => replies::refuse(&CommandFailure::Listen(&error)),
        }
    }

    /// PORT, EPRT and SPOR: all that is asked is checked before anything changes.
    pub(super) fn port(&mut self, verb: &'static str, to: StripeAddresses) -> Vec<SessionAction> {
        if let Some(refusal) = self.refuse_after_epsv_all(verb) {
            return refusal;
        }
        let objection = |(_, address)| Some((address, self.address_refusal(address)?));
        if let Some((address, why)) = to.iter().find_map(objection) {
            let mut actions = Vec::new();
            if why == FOREIGN_HOST {
                actions.push(SessionAction::ReportForeignHost(
                    address.ip().to_canonical(),
                ));
            }
            let text = format!("Illegal {verb} command: {why}.");
            actions.extend(replies::reply(501, text));
            return actions;
        }
        self.data_channel = DataChannel::Active {
            to: to.clone(),
            used: false,
        };
        let mut actions = vec![SessionAction::ConnectTo(to)];
        actions.extend(replies::reply(200, "PORT Command successful."));
        actions
    }

    /// Why data may not be sent to an address.
    pub(super) fn address_refusal(&self, address: SocketAddr) -> Option<&'static str> {
        let host = address.ip().to_canonical();
        if address.port() < LOWEST_PORT {
            return Some("ports below 1024 are refused");
        }
        if host == self.peer || Some(host) == self.data_peer {
            return None;
        }
        let no_host = self.foreign_host_refusal(host);
        no_host.or((!self.any_host).then_some(FOREIGN_HOST))
    }

    /// SITE DATAPEER. What it allows lasts until the next one; a listener that is open keeps what it
    /// was opened with.
    pub(super) fn site_datapeer(&mut self, address: Option<IpAddr>) -> Vec<SessionAction> {
        let host = address.map(|ip| ip.to_canonical());
        let other = host.filter(|host| *host != self.peer);
        if let Some(why) = other.and_then(|host| self.foreign_host_refusal(host)) {
            return replies::reply(501, format!("Illegal SITE DATAPEER command: {why}."));
        }
        self.data_peer = other;
        replies::reply(
            200,
            match host {
                Some(host) => format!("Data connections with {host} are allowed."),
                None => "Data connections are with you alone.".to_owned(),
            },
        )
    }

    /// Why data connections with a host other than the control peer may not be had at all.
    fn foreign_host_refusal(&self, host: IpAddr) -> Option<&'static str> {
        if !self.rights.third_party {
            return Some("this account may not have data connections to other hosts");
        }
        if host.is_unspecified() || host.is_multicast() || is_broadcast(host) {
            return Some("the address is not that of a host");
        }
        // What listens on this host for itself only is not for those who come from outside.
        if host.is_loopback() && !self.peer.is_loopback() {
            return Some("loopback addresses are for local clients");
        }
        None
    }

    pub(super) fn refuse_after_epsv_all(&self, verb: &str) -> Option<Vec<SessionAction>> {
        self.parameters
            .epsv_only
            .then(|| replies::reply(503, format!("{verb} is refused after EPSV ALL.")))
    }

    /// The control connection's family; the peer's address is canonical already.
    pub(super) fn family(&self) -> AddressFamily {
        match self.peer {
            IpAddr::V4(_) => AddressFamily::V4,
            IpAddr::V6(_) => AddressFamily::V6,
        }
    }
}

fn is_broadcast(host: IpAddr) -> bool {
    matches!(host, IpAddr::V4(v4) if v4.is_broadcast())
}
