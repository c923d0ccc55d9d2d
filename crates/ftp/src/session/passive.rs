//! Data addresses: where the server listens (PASV, EPSV), and where this end listens (PORT, EPRT).
//!
//! Sources: RFC 959 §4.1.2, RFC 2428 §2-3, RFC 1123 §4.1.2.6.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use data::channel::{AllowedPeers, ListenOptions, SessionDataChannel};
use proto::address::is_same_host;
use proto::address::{AddressError, PassiveAddress, find_in_227, find_in_229};
use proto::command::{Command, EpsvArgument, SiteCommand};
use proto::reply::Reply;
use proto::sizing::SocketBuffers;
use proto::stripes::StripeAddresses;

use super::{ClientSession, replies};
use crate::Failure;
use crate::failure::Operation;

/// Warning about a data address that is ignored.
const FOREIGN_ADDRESS_IGNORED: &str = "sent a data address of another host; its own address is used instead \
                       (--allow-foreign-data-address permits the other host)";

/// Which passive command is tried first; the other follows when it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PassivePreference {
    /// PASV, then EPSV: the default with IPv4.
    PasvFirst,
    /// EPSV only: PASV cannot express an IPv6 address.
    EpsvOnly,
    /// EPSV, then PASV: IPv4, after the server refused PASV.
    EpsvFirst,
}

impl PassivePreference {
    pub(crate) fn for_peer(peer: SocketAddr) -> Self {
        if peer.ip().to_canonical().is_ipv4() {
            Self::PasvFirst
        } else {
            Self::EpsvOnly
        }
    }
}

impl PassivePreference {
    /// By a route, where the address in a reply to PASV has no use.
    pub(crate) fn by_route(peer: SocketAddr) -> Self {
        match peer.ip() {
            IpAddr::V6(ip) if !ip.is_unspecified() => Self::EpsvOnly,
            _ => Self::EpsvFirst,
        }
    }
}

impl ClientSession {
    /// The command that asks the server to listen: PASV or EPSV.
    pub fn passive_command(&self) -> Command {
        match self.passive_preference {
            PassivePreference::PasvFirst => Command::Pasv,
            PassivePreference::EpsvFirst | PassivePreference::EpsvOnly => {
                Command::Epsv(EpsvArgument::Any)
            }
        }
    }

    /// Evaluates the reply to [`ClientSession::passive_command`] and returns where the server
    /// listens. After a refusal the other command is tried. Parts that the reply leaves out come
    /// from the control connection.
    pub async fn handle_passive_reply(&mut self, reply: Reply) -> Result<StripeAddresses, Failure> {
        let (second, preference) = match self.passive_preference {
            PassivePreference::PasvFirst => (
                Command::Epsv(EpsvArgument::Any),
                PassivePreference::EpsvFirst,
            ),
            PassivePreference::EpsvFirst => (Command::Pasv, PassivePreference::PasvFirst),
            PassivePreference::EpsvOnly => return self.parse_passive_reply(&reply),
        };
        // Only a permanent refusal: after 4xx the same command may succeed later.
        if reply.code / 100 == 5 {
            let second_reply = self.control.call(&second).await?;
            if second_reply.is_success() {
                self.passive_preference = preference;
                return self.parse_passive_reply(&second_reply);
            }
        }
        self.parse_passive_reply(&reply)
    }

    /// Where the server listens, by its reply to PASV or EPSV.
    pub fn parse_passive_reply(&self, reply: &Reply) -> Result<StripeAddresses, Failure> {
        if !reply.is_success() {
            return Err(replies::refusal_failure(
                self.name(),
                &Operation::from("open a port for the data connection (PASV, EPSV)"),
                reply,
            ));
        }
        // By the code: some servers answer PASV with 229, and EPSV with 227.
        let find = match reply.code {
            229 => find_in_229,
            _ => find_in_227,
        };
        // The last line of several is the one for the program (RFC 959 §4.2).
        let mut lines = reply.lines.iter().rev();
        let found = lines.find_map(|line| find(&String::from_utf8_lossy(line)).ok());
        found
            .ok_or(AddressError::Malformed)
            .map(|address| StripeAddresses::single(self.complete_passive_address(address)))
            .map_err(|error| {
                let shown = crate::failure::display_reply(reply);
                Failure::protocol(format!(
                    "{} sent no usable data address ({error}): {shown}; report this to its administrator",
                    self.name(),
                ))
            })
    }

    fn complete_passive_address(&self, announced: PassiveAddress) -> SocketAddr {
        let unspecified = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        self.fill_unspecified_host(SocketAddr::new(
            announced.ip.unwrap_or(unspecified),
            announced.port,
        ))
    }

    /// The address, with the control connection's host where the reply has none.
    fn fill_unspecified_host(&self, announced: SocketAddr) -> SocketAddr {
        let peer = self.control.peer_addr().ip().to_canonical();
        match announced.ip().is_unspecified() {
            true => SocketAddr::new(peer, announced.port()),
            false => announced,
        }
    }

    /// The address to use for data connections, given the one that the server announced. Only its
    /// port is used, unless its host is the server's own or other hosts are allowed: a server behind
    /// NAT may announce an unreachable address, and a malicious one may direct its clients at others
    /// (RFC 2577 §3).
    pub fn checked_data_address(
        &mut self,
        announced: SocketAddr,
        warnings: &mut Vec<String>,
    ) -> SocketAddr {
        let peer = SocketAddr::new(
            self.control.peer_addr().ip().to_canonical(),
            announced.port(),
        );
        if self.allow_foreign_data || is_same_host(announced.ip(), peer.ip()) {
            return announced;
        }
        // Servers behind NAT commonly announce a private address. That needs no warning; a
        // reachable foreign address does. Where only a proxy knows the server's address, any may be its own.
        if !peer.ip().is_unspecified() && by_reachability(announced, peer).0 == announced {
            self.warn_once(warnings, FOREIGN_ADDRESS_IGNORED);
        }
        peer
    }

    /// [`ClientSession::checked_data_address`] for all stripes.
    pub fn checked_data_addresses(
        &mut self,
        announced: &StripeAddresses,
        warnings: &mut Vec<String>,
    ) -> StripeAddresses {
        announced.map(|address| self.checked_data_address(address, warnings))
    }

    /// Announces the other hosts of the data connections to a server that restricts data connections
    /// to the client's own address (SITE DATAPEER). If the server refuses, the transfer fails later
    /// with its reason.
    pub async fn announce_data_peers(&mut self, hosts: &[IpAddr]) -> Result<(), Failure> {
        let own = self.control.local_addr().ip();
        // Behind a proxy no server sees this machine's address.
        let is_direct = self.control.route().is_none();
        // Another server on this machine has this machine's address as seen from there. A loopback
        // address is meaningful only to a server on this machine.
        let is_here = |host: IpAddr| {
            is_direct && (is_same_host(host, own) || (host.is_loopback() && !own.is_loopback()))
        };
        let mut others = Vec::new();
        for host in hosts {
            // IPv4-mapped IPv6 addresses are compared in their IPv4 form.
            let host = host.to_canonical();
            if !is_here(host) && !others.contains(&host) {
                others.push(host);
            }
        }
        if !self.features().data_peer || others.is_empty() || self.data_peers == others {
            return Ok(());
        }
        self.control
            .call(&Command::Site(SiteCommand::DataPeer(others.clone())))
            .await?;
        self.data_peers = others;
        Ok(())
    }

    /// Prepares for data connections from this machine to where the server listens. Returns the
    /// addresses to try if the first do not answer: a server behind NAT may announce addresses that
    /// only its neighbours reach.
    pub fn prepare_data_connections(
        &mut self,
        announced: &StripeAddresses,
        warnings: &mut Vec<String>,
    ) -> Option<StripeAddresses> {
        if self.take_checked_stripes() {
            return self.connect_to_stripes(announced);
        }
        let announced = self.checked_data_addresses(announced, warnings);
        if let Some(route) = self.control.route() {
            // The server's host is reached as the control connection was.
            self.data_host = Some(announced.first().ip());
            self.data_channel = Some(SessionDataChannel::connect_by(
                announced.as_slice().to_vec(),
                Some(self.control.local_addr().ip().to_canonical()),
                Some(Arc::clone(route)),
            ));
            return None;
        }
        let host = self.control.peer_addr().ip().to_canonical();
        let ordered =
            |address: SocketAddr| by_reachability(address, SocketAddr::new(host, address.port()));
        let first = announced.map(|address| ordered(address).0);
        let second = announced.map(|address| ordered(address).1);
        self.data_host = Some(first.first().ip());
        let local = self.local_address_for(first.first().ip());
        self.data_channel = Some(SessionDataChannel::connect_to(
            first.as_slice().to_vec(),
            local,
        ));
        (first != second).then_some(second)
    }

    /// Finds the server's address where only a proxy knows it, for data connections with another server.
    ///
    /// # Errors
    /// `Unreachable`: this machine does not know the name.
    pub async fn find_peer_addr(&mut self) -> Result<(), Failure> {
        self.control.find_peer_addr(&self.server).await
    }

    /// The local address to connect to `host` from. For the host of the control connection it is
    /// that connection's own, since servers compare the two; otherwise any.
    pub fn local_address_for(&self, host: IpAddr) -> Option<IpAddr> {
        let same_host = host == self.control.peer_addr().ip().to_canonical();
        same_host.then(|| self.control.local_addr().ip().to_canonical())
    }

    /// Records that the data connections use another host than the one tried first.
    pub fn set_data_host(&mut self, host: IpAddr) {
        self.data_host = Some(host);
    }

    /// The host at the other end of the data connections, as far as it is known before they are
    /// open. A server that connects is expected to do so from its own address.
    pub(super) fn expected_data_peer(&self) -> IpAddr {
        let control = self.control.peer_addr().ip().to_canonical();
        self.data_host.unwrap_or(control)
    }

    /// Listens on the control connection's local address, for data connections with these buffers.
    pub fn listen_for_data(
        &mut self,
        ports: Option<(u16, u16)>,
        buffers: SocketBuffers,
        striped: bool,
    ) -> Result<StripeAddresses, Failure> {
        let failure = |reason: String| {
            Failure::local(format!(
                "cannot listen for data connections: {reason}; check --data-ports, or use --mode s"
            ))
        };
        let options = ListenOptions {
            ip: self.control.local_addr().ip().to_canonical(),
            ports: ports.map(|(low, high)| RangeInclusive::new(low, high)),
            accept: match (self.allow_foreign_data, striped) {
                (true, _) => AllowedPeers::Any,
                (false, true) => AllowedPeers::Among(self.hosts_of_stripes()),
                (false, false) => AllowedPeers::Only(self.control.peer_addr().ip().to_canonical()),
            },
            buffers,
        };
        // The old listener is closed first: its port may be the only one allowed.
        self.data_channel = None;
        let mut channel =
            SessionDataChannel::listen(&options).map_err(|error| failure(error.to_string()))?;
        let address = channel
            .local_addr()
            .ok_or_else(|| failure("the listener has no address".to_owned()))?;
        let stripes = if striped { self.stripe_count() } else { 1 };
        if striped {
            channel.set_stripes(stripes.try_into().unwrap_or(u32::MAX));
        }
        self.data_channel = Some(channel);
        self.data_host = None;
        Ok(StripeAddresses::new(vec![address; stripes])
            .unwrap_or_else(|| StripeAddresses::single(address)))
    }

    /// Evaluates the reply to PORT, EPRT or SPOR. After a refusal of PORT, EPRT is tried for an IPv4 address.
    pub async fn handle_active_reply(
        &mut self,
        addresses: &StripeAddresses,
        reply: Reply,
    ) -> Result<(), Failure> {
        let mut reply = reply;
        let is_striped = self.take_asked_stripes();
        // EPRT is an alternative for one address; SPOR has none.
        if !is_striped
            && let [only] = addresses.as_slice()
            && replies::is_unsupported(&reply)
            && only.is_ipv4()
        {
            reply = self.control.call(&Command::Eprt(*only)).await?;
        }
        if reply.is_success() {
            return Ok(());
        }
        let address = addresses.first();
        if is_striped {
            self.forget_stripes();
            // Between two servers, all stripes begin anew.
            let listener = self.data_channel.as_mut();
            if let Some(listener) = listener.filter(|here| here.local_addr() == Some(address)) {
                listener.set_stripes(1);
                reply = self.control.call(&port_command(address)).await?;
                if reply.is_success() {
                    return Ok(());
                }
            }
        }
        let operation = Operation::from(format!("connect to {address} (PORT, EPRT, SPOR)"));
        Err(replies::refusal_failure(self.name(), &operation, &reply))
    }
}

/// The command that tells a server where to connect: PORT, EPRT where PORT cannot express the address.
pub(super) fn port_command(address: SocketAddr) -> Command {
    match address.is_ipv4() {
        true => Command::Port(address),
        false => Command::Eprt(address),
    }
}

/// Two addresses in the order to try them: `announced` first, unless it is less reachable than the
/// control connection's.
fn by_reachability(announced: SocketAddr, peer: SocketAddr) -> (SocketAddr, SocketAddr) {
    if reachability(announced.ip()) < reachability(peer.ip()) {
        (peer, announced)
    } else {
        (announced, peer)
    }
}

/// Whether `peer` most likely cannot connect to `local`: a public host to a private address.
pub(super) fn is_behind_nat(local: IpAddr, peer: IpAddr) -> bool {
    reachability(peer.to_canonical()) == 2 && reachability(local.to_canonical()) < 2
}

/// From how far an address can be reached: 0 this host, 1 a private network, 2 anywhere.
pub(super) fn reachability(ip: IpAddr) -> u8 {
    let (host, private) = match ip {
        IpAddr::V4(ip) => (
            ip.is_loopback() || ip.is_unspecified(),
            ip.is_private() || ip.is_link_local(),
        ),
        IpAddr::V6(ip) => (
            ip.is_loopback() || ip.is_unspecified(),
            ip.is_unique_local() || ip.is_unicast_link_local(),
        ),
    };
    match (host, private) {
        (true, _) => 0,
        (_, true) => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_more_reachable_address_is_tried_first() {
        let table = [
            // announced, control peer, first
            ("192.168.1.5:5", "8.8.8.8:5", "8.8.8.8:5"),
            ("127.0.0.1:5", "10.0.0.2:5", "10.0.0.2:5"),
            ("10.0.0.9:5", "10.0.0.2:5", "10.0.0.9:5"),
            ("9.9.9.9:5", "8.8.8.8:5", "9.9.9.9:5"),
            ("[fd00::1]:5", "[2001:db8::1]:5", "[2001:db8::1]:5"),
        ];
        for (announced, peer, first) in table {
            assert_eq!(
                by_reachability(addr(announced), addr(peer)).0,
                addr(first),
                "{announced}"
            );
        }
    }

    #[test]
    fn nat_is_assumed_only_towards_public_hosts() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(is_behind_nat(ip("192.168.0.2"), ip("8.8.8.8")));
        assert!(is_behind_nat(ip("::ffff:10.0.0.1"), ip("::ffff:8.8.8.8")));
        assert!(!is_behind_nat(ip("127.0.0.1"), ip("127.0.0.1")));
        assert!(!is_behind_nat(ip("10.0.0.1"), ip("10.9.0.1")));
        assert!(!is_behind_nat(ip("9.9.9.9"), ip("8.8.8.8")));
    }

    #[test]
    fn port_and_eprt_are_chosen_by_address() {
        let (v4, v6) = (addr("192.0.2.1:2000"), addr("[2001:db8::1]:2000"));
        assert_eq!(port_command(v4), Command::Port(v4));
        assert_eq!(port_command(v6), Command::Eprt(v6));
    }
}
