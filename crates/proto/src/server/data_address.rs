//! Addresses of data connections: PASV EPSV SPAS PORT EPRT SPOR.
//!
//! Data connections are allowed with the control peer only. An account with the third-party right may
//! name other hosts (SITE DATAPEER), or use any host if the administrator allows it. Other accounts
//! cannot start an FTP bounce attack (RFC 2577 §3). Ports below 1024 are always refused.

use std::net::{IpAddr, SocketAddr};

use super::logged_in::{DataChannel, LoggedInSession, PendingTask};
use super::replies::{self, CommandFailure, CommandResult};
use super::{FileError, ListenRequest, SessionAction};
use crate::address::{AddressFamily, format_eprt, format_port};
use crate::command::EpsvArgument;
use crate::reply::Reply;
use crate::security::{DataChannelAuth, ProtectionLevel};
use crate::stripes::StripeAddresses;

/// Lowest port that the server connects to (RFC 2577 §3).
const MIN_PORT: u16 = 1024;

/// Reason for refusing a foreign address. The administrator could allow it.
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
            // RFC 2428 §3: the 522 lists the supported protocols. Only the control connection's family is
            // offered, since the client reaches the server's control address in that family.
            (EpsvArgument::Family(requested), own) if requested != own => {
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

    /// SPAS. Any argument selects the extended form; the family is that of the control connection.
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
        if let Some(refusal) = self.protection.address_refusal() {
            return refusal;
        }
        // The listener opens with the transfer command, when the server knows which data node serves
        // the file (globus delayed passive).
        if self.parameters.allow_delayed {
            let mut actions = self.delay_passive(form);
            actions.extend(replies::reply(200, "Passive delayed."));
            return actions;
        }
        // The previous address is invalid from now on, even if the listener cannot be opened.
        self.data_channel = DataChannel::None;
        self.pending = PendingTask::Listen(form);
        let is_striped = matches!(
            form,
            PassiveReplyForm::Spas | PassiveReplyForm::SpasExtended
        );
        vec![SessionAction::Listen(ListenRequest {
            striped: is_striped.then(|| self.cwd.clone()),
            ..self.listen_request()
        })]
    }

    /// The listener opens with the next transfer.
    pub(super) fn delay_passive(&mut self, form: PassiveReplyForm) -> Vec<SessionAction> {
        self.data_channel = DataChannel::DelayedPassive(form);
        vec![SessionAction::DropChannel]
    }

    /// Closes the connections of an earlier transfer, which were made with settings that no longer hold. An
    /// address that has not been used yet stays valid.
    pub(super) fn drop_cached_connections(&mut self) -> Option<SessionAction> {
        self.data_channel.is_cached().then(|| {
            self.data_channel = DataChannel::None;
            SessionAction::DropChannel
        })
    }

    /// Whether data connections may be with any host. What ssh carries gives the right to any host that shows its certificate,
    /// so those without one have it only if the far end was told so.
    fn may_use_any_host(&self) -> bool {
        let channel = &self.protection.channel;
        let shows_none = channel.authentication == DataChannelAuth::None
            && channel.level == ProtectionLevel::Clear;
        let is_open = shows_none && !self.protection.is_clear_from_start();
        self.any_host && !(self.is_carried() && is_open)
    }

    /// Listener with the hosts that this session may accept connections from.
    pub(super) fn listen_request(&self) -> ListenRequest {
        ListenRequest {
            family: self.family(),
            any_host: self.may_use_any_host(),
            other_hosts: self.data_peers.clone(),
            striped: None,
            buffers: self.listener_buffers(),
        }
    }

    /// Handles the result of opening the listener.
    pub(super) fn on_listening(
        &mut self,
        form: PassiveReplyForm,
        addresses: Result<StripeAddresses, FileError>,
    ) -> Vec<SessionAction> {
        match addresses {
            Ok(addresses) => {
                self.data_channel = DataChannel::Passive { cached: false };
                vec![SessionAction::Reply(form.reply(&addresses, false))]
            }
            Err(error) => replies::refuse(&CommandFailure::Listen(&error)),
        }
    }

    /// PORT, EPRT and SPOR.
    pub(super) fn port(
        &mut self,
        verb: &'static str,
        to: StripeAddresses,
        striped: bool,
    ) -> Vec<SessionAction> {
        match self.connect_to(verb, to, striped) {
            Ok(mut actions) => {
                actions.extend(replies::reply(200, "PORT Command successful."));
                actions
            }
            Err(refusal) => refusal,
        }
    }

    /// The next transfer connects to these addresses. All are checked before any state changes.
    ///
    /// # Errors
    /// The refusal.
    pub(super) fn connect_to(
        &mut self,
        verb: &'static str,
        to: StripeAddresses,
        striped: bool,
    ) -> CommandResult {
        if let Some(refusal) = self.refuse_after_epsv_all(verb) {
            return Err(refusal);
        }
        if let Some(refusal) = self.protection.address_refusal() {
            return Err(refusal);
        }
        let refusal_of = |(_, address)| Some((address, self.address_refusal(address)?));
        if let Some((address, reason)) = to.iter().find_map(refusal_of) {
            let mut actions = Vec::new();
            // Only this refusal depends on a setting of the administrator.
            if reason == FOREIGN_HOST {
                actions.push(SessionAction::ReportForeignHost(
                    address.ip().to_canonical(),
                ));
            }
            let text = format!("Illegal {verb} command: {reason}.");
            actions.extend(replies::reply(501, text));
            return Err(actions);
        }
        self.data_channel = DataChannel::Active {
            to: to.clone(),
            cached: false,
        };
        Ok(vec![SessionAction::ConnectTo { to, striped }])
    }

    /// Reason why data connections to this address are refused; `None` if they are allowed.
    pub(super) fn address_refusal(&self, address: SocketAddr) -> Option<&'static str> {
        let host = address.ip().to_canonical();
        if address.port() < MIN_PORT {
            return Some("ports below 1024 are refused");
        }
        // The client's own host is always allowed: this is the normal case of active mode.
        if host == self.peer || self.data_peers.contains(&host) {
            return None;
        }
        // An ssh login may connect to every host anyway.
        let may_connect = self.may_use_any_host() || self.protection.is_clear_from_start();
        let foreign_refusal = self.foreign_host_refusal(host);
        foreign_refusal.or((!may_connect).then_some(FOREIGN_HOST))
    }

    /// SITE DATAPEER. The permission lasts until the next SITE DATAPEER. An open listener keeps the
    /// hosts that it was opened with.
    pub(super) fn site_datapeer(&mut self, hosts: &[IpAddr]) -> Vec<SessionAction> {
        let hosts: Vec<IpAddr> = hosts.iter().map(IpAddr::to_canonical).collect();
        // Naming the own host is allowed to every account, and resets the permission.
        let others = || hosts.iter().filter(|host| **host != self.peer).copied();
        if let Some(reason) = others().find_map(|host| self.foreign_host_refusal(host)) {
            return replies::reply(501, format!("Illegal SITE DATAPEER command: {reason}."));
        }
        self.data_peers = others().collect();
        let text = match hosts.as_slice() {
            [] => "Data connections are with you alone.".to_owned(),
            [host] => format!("Data connections with {host} are allowed."),
            hosts => format!("Data connections with {} hosts are allowed.", hosts.len()),
        };
        replies::reply(200, text)
    }

    /// Reason why data connections with this host, which is not the control peer, are always refused.
    fn foreign_host_refusal(&self, host: IpAddr) -> Option<&'static str> {
        if !self.rights.third_party {
            return Some("this account may not have data connections to other hosts");
        }
        // connect(2) to the unspecified address would reach this host itself.
        if host.is_unspecified() || host.is_multicast() || is_broadcast(host) {
            return Some("the address is not that of a host");
        }
        // Services bound to loopback expect local clients only; a remote client must not reach them
        // through this server.
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

    /// Address family of the control connection; `peer` is canonical already.
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

/// Form of the reply that holds a passive address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PassiveReplyForm {
    /// PASV: 227 with `h1,h2,h3,h4,p1,p2`.
    Pasv,
    /// EPSV: 229 with the port only.
    Epsv,
    /// SPAS: multi-line 229, one `h1,h2,h3,h4,p1,p2` per stripe.
    Spas,
    /// SPAS with an argument: multi-line 229, one address in EPRT form per stripe.
    SpasExtended,
    /// GET and PUT: 127 with `h1,h2,h3,h4,p1,p2`, always with the transfer.
    GetPut,
}

impl PassiveReplyForm {
    /// The reply with the addresses: 227 or 229, or 127 or 129 as the preliminary reply of a
    /// delayed-passive transfer. PASV and EPSV hold the first address only.
    pub(super) fn reply(self, addresses: &StripeAddresses, preliminary: bool) -> Reply {
        // GridFTP delayed passive: the same text with a 1xx code (127, 129).
        let minus = if preliminary { 100 } else { 0 };
        let first = addresses.first();
        let reply = match self {
            Self::Epsv => Some(Reply::new(
                229 - minus,
                format!("Entering Extended Passive Mode (|||{}|)", first.port()),
            )),
            Self::Pasv => format_port(first)
                .map(|text| Reply::new(227 - minus, format!("Entering Passive Mode ({text})"))),
            Self::GetPut => {
                format_port(first).map(|text| Reply::new(127, format!("PORT ({text})")))
            }
            Self::Spas => striped_reply(229 - minus, addresses, format_port),
            Self::SpasExtended => striped_reply(229 - minus, addresses, |a| Some(format_eprt(a))),
        };
        reply.unwrap_or_else(ipv6_unsupported_reply)
    }
}

/// Reply to SPAS. The text must not contain a parenthesis, or the globus client parses it as the reply
/// to EPSV. `None` when an address cannot be written in this form.
fn striped_reply(
    code: u16,
    addresses: &StripeAddresses,
    form: impl Fn(SocketAddr) -> Option<String>,
) -> Option<Reply> {
    let lines = addresses
        .iter()
        .map(|(_, address)| form(address).map(String::into_bytes));
    let lines = lines.collect::<Option<Vec<_>>>()?;
    Some(Reply::with_inner_lines(
        code,
        "Entering Striped Passive Mode.",
        lines,
        "End",
    ))
}

/// Reply when an IPv6 address would have to be written as six numbers (RFC 2428 §3).
pub(super) fn ipv6_unsupported_reply() -> Reply {
    Reply::new(
        522,
        "Network protocol not supported: use EPSV or SPAS 2 over IPv6.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spas_replies_list_every_stripe_and_pasv_only_the_first() {
        let at = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let two = StripeAddresses::new(vec![at(256), at(257)]).unwrap();
        let text = |form: PassiveReplyForm| form.reply(&two, false).text();
        assert!(text(PassiveReplyForm::Pasv).contains("(192,0,2,1,1,0)"));
        assert!(text(PassiveReplyForm::Epsv).contains("(|||256|)"));
        let lines = |form: PassiveReplyForm| form.reply(&two, true).lines;
        let plain = lines(PassiveReplyForm::Spas);
        assert!(plain.iter().any(|l| l.ends_with(b"192,0,2,1,1,0")));
        assert!(plain.iter().any(|l| l.ends_with(b"192,0,2,1,1,1")));
        let extended = lines(PassiveReplyForm::SpasExtended);
        assert!(extended.iter().any(|l| l.ends_with(b"|1|192.0.2.1|257|")));
    }

    #[test]
    fn pasv_and_spas_refuse_an_ipv6_address() {
        let v6 = StripeAddresses::single("[2001:db8::1]:9".parse().unwrap());
        for form in [PassiveReplyForm::Pasv, PassiveReplyForm::Spas] {
            assert_eq!(form.reply(&v6, false), ipv6_unsupported_reply());
        }
    }
}
