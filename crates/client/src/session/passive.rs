//! Data addresses: where the server listens, and telling it where this end does.
//!
//! Sources: RFC 959 §4.1.2, RFC 2428 §2-3, RFC 1123 §4.1.2.6.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

use data::channel::{AllowedPeers, ListenOptions, SessionDataChannel};
use proto::address::is_same_host;
use proto::address::{PassiveAddress, find_in_227, find_in_229};
use proto::command::{Command, EpsvArgument, SiteCommand};
use proto::reply::Reply;
use proto::sizing::SocketBuffers;
use proto::stripes::StripeAddresses;

use super::{ClientSession, replies};
use crate::{CopyFailure, Exit};

/// Warning about a data address that is not used.
const FOREIGN_ADDRESS_IGNORED: &str = "told a data address of another host; its own is used instead \
                       (--allow-foreign-data-address goes to the other one)";

/// Which passive command is tried first; the other follows when it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PassivePreference {
    /// PASV, then EPSV: IPv4.
    PasvFirst,
    /// EPSV only: PASV cannot express an IPv6 address.
    EpsvOnly,
    /// EPSV, then PASV: IPv4 behind a server that refused PASV.
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

impl ClientSession {
    /// Command that asks the server to listen: PASV or EPSV.
    pub(crate) fn passive_command(&self) -> Command {
        match self.passive_preference {
            PassivePreference::PasvFirst => Command::Pasv,
            PassivePreference::EpsvFirst | PassivePreference::EpsvOnly => {
                Command::Epsv(EpsvArgument::Any)
            }
        }
    }

    /// Takes the answer to [`ClientSession::passive_command`]: where the server listens. After a refusal the
    /// other command is tried. The addresses are as told; only what was left out is completed from the
    /// control connection.
    pub(crate) async fn handle_passive_reply(
        &mut self,
        reply: Reply,
    ) -> Result<StripeAddresses, CopyFailure> {
        let (second, order) = match self.passive_preference {
            PassivePreference::PasvFirst => (
                Command::Epsv(EpsvArgument::Any),
                PassivePreference::EpsvFirst,
            ),
            PassivePreference::EpsvFirst => (Command::Pasv, PassivePreference::PasvFirst),
            PassivePreference::EpsvOnly => return self.parse_passive_reply(&reply),
        };
        if reply.code / 100 == 5 {
            let again = self.control.call(&second).await?;
            if again.is_success() {
                self.passive_preference = order;
                return self.parse_passive_reply(&again);
            }
        }
        self.parse_passive_reply(&reply)
    }

    fn parse_passive_reply(&self, reply: &Reply) -> Result<StripeAddresses, CopyFailure> {
        if !reply.is_success() {
            return Err(replies::refusal_failure(
                self.name(),
                "open a port for the data connection (PASV, EPSV)",
                reply,
            ));
        }
        let found = if reply.code == 229 {
            find_in_229(&reply.text())
        } else {
            find_in_227(&reply.text())
        };
        found
            .map(|address| StripeAddresses::single(self.complete_passive_address(address)))
            .map_err(|error| CopyFailure {
                exit: Exit::Protocol,
                message: format!(
                    "{} told no usable data address ({error}): {}; report this to its administrator",
                    self.name(),
                    replies::display_reply(reply)
                ),
                transient: false,
            })
    }

    fn complete_passive_address(&self, told: PassiveAddress) -> SocketAddr {
        let unspecified = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        self.fill_unspecified_host(SocketAddr::new(told.ip.unwrap_or(unspecified), told.port))
    }

    /// The address as told, with the control connection's host where none was.
    fn fill_unspecified_host(&self, told: SocketAddr) -> SocketAddr {
        let peer = self.control.peer_addr().ip().to_canonical();
        match told.ip().is_unspecified() {
            true => SocketAddr::new(peer, told.port()),
            false => told,
        }
    }

    /// Where data connections to a server go that told `told`: to the server, whatever host it names
    /// (it may be behind address translation, or send its clients against others, RFC 2577 §3), unless
    /// other hosts are allowed.
    pub(crate) fn checked_data_address(
        &mut self,
        told: SocketAddr,
        warnings: &mut Vec<String>,
    ) -> SocketAddr {
        let peer = SocketAddr::new(self.control.peer_addr().ip().to_canonical(), told.port());
        if self.allow_foreign_data || is_same_host(told.ip(), peer.ip()) {
            return told;
        }
        // One that only its neighbours can reach is the usual fault of a server behind translation.
        if by_reachability(told, peer).0 == told {
            self.warn_once(warnings, FOREIGN_ADDRESS_IGNORED);
        }
        peer
    }

    /// Those of all stripes, likewise.
    pub(crate) fn checked_data_addresses(
        &mut self,
        told: &StripeAddresses,
        warnings: &mut Vec<String>,
    ) -> StripeAddresses {
        told.map(|address| self.checked_data_address(address, warnings))
    }

    /// Tells the server which other host its data connections will be with, where it wants to know:
    /// it allows those of this machine only. One that refuses says why when they are made.
    pub(crate) async fn announce_data_peer(&mut self, host: IpAddr) -> Result<(), CopyFailure> {
        let (host, own) = (host.to_canonical(), self.control.local_addr().ip());
        // Another server on this machine has this machine's address there. Loopback addresses mean
        // something only to a server that is here, too.
        let is_here = is_same_host(host, own) || (host.is_loopback() && !own.is_loopback());
        if !self.features().data_peer || is_here || self.data_peer == Some(host) {
            return Ok(());
        }
        self.control
            .call(&Command::Site(SiteCommand::DataPeer(Some(host))))
            .await?;
        self.data_peer = Some(host);
        Ok(())
    }

    /// Prepares for data connections from this machine to where the server listens. Gives the addresses
    /// to use next when the first do not answer: behind address translation a server may tell
    /// addresses that only its neighbours can reach.
    pub(crate) fn prepare_data_connections(
        &mut self,
        told: &StripeAddresses,
        warnings: &mut Vec<String>,
    ) -> Option<StripeAddresses> {
        let told = self.checked_data_addresses(told, warnings);
        let host = self.control.peer_addr().ip().to_canonical();
        let both = |told: SocketAddr| by_reachability(told, SocketAddr::new(host, told.port()));
        let first = told.map(|told| both(told).0);
        let second = told.map(|told| both(told).1);
        self.data_host = Some(first.first().ip());
        let local = self.local_address_for(first.first().ip());
        self.data_channel = Some(SessionDataChannel::connect_to(
            first.as_slice().to_vec(),
            local,
        ));
        (first != second).then_some(second)
    }

    /// The address to connect to `host` from: the control connection's own when it goes to the same
    /// host, since servers compare the two; else any.
    pub(crate) fn local_address_for(&self, host: IpAddr) -> Option<IpAddr> {
        let same_host = host == self.control.peer_addr().ip().to_canonical();
        same_host.then(|| self.control.local_addr().ip().to_canonical())
    }

    /// Notes that the data connections go to another host than the one that was tried first.
    pub(crate) fn set_data_host(&mut self, host: IpAddr) {
        self.data_host = Some(host);
    }

    /// The host at the other end of the data connections, as far as is known before they are made: a
    /// server that connects is expected to do so from where it serves.
    pub(super) fn expected_data_peer(&self) -> IpAddr {
        let control = self.control.peer_addr().ip().to_canonical();
        self.data_host.unwrap_or(control)
    }

    /// Listens on the control connection's local address, for connections with these buffers.
    pub(crate) fn listen_for_data(
        &mut self,
        ports: Option<(u16, u16)>,
        buffers: SocketBuffers,
    ) -> Result<StripeAddresses, CopyFailure> {
        let local = |reason: String| CopyFailure {
            exit: Exit::Local,
            message: format!(
                "cannot listen for data connections: {reason}; check --data-ports, or use --mode s"
            ),
            transient: false,
        };
        let options = ListenOptions {
            ip: self.control.local_addr().ip().to_canonical(),
            ports: ports.map(|(low, high)| RangeInclusive::new(low, high)),
            accept: match self.allow_foreign_data {
                true => AllowedPeers::Any,
                false => AllowedPeers::Only(self.control.peer_addr().ip().to_canonical()),
            },
            buffers,
        };
        self.data_channel = None;
        let channel =
            SessionDataChannel::listen(&options).map_err(|error| local(error.to_string()))?;
        let address = channel
            .local_addr()
            .ok_or_else(|| local("the listener has no address".to_owned()))?;
        self.data_channel = Some(channel);
        self.data_host = None;
        Ok(StripeAddresses::single(address))
    }

    /// Takes the answer to [`port_command`]. After a refusal the other command is tried, if it can
    /// express the address.
    pub(crate) async fn handle_active_reply(
        &mut self,
        addresses: &StripeAddresses,
        reply: Reply,
    ) -> Result<(), CopyFailure> {
        let mut reply = reply;
        if let [only] = addresses.as_slice()
            && replies::is_unsupported(&reply)
            && only.is_ipv4()
        {
            reply = self.control.call(&Command::Eprt(*only)).await?;
        }
        if reply.is_success() {
            return Ok(());
        }
        let doing = format!("connect to {} (PORT, EPRT)", addresses.first());
        Err(replies::refusal_failure(self.name(), &doing, &reply))
    }
}

/// Command that tells a server where to connect: PORT, or EPRT for what PORT cannot express; SPOR where there
/// are several stripes.
pub(crate) fn port_command(addresses: &StripeAddresses) -> Command {
    match addresses.as_slice() {
        [only] if only.is_ipv4() => Command::Port(*only),
        [only] => Command::Eprt(*only),
        _ => Command::Spor(addresses.clone()),
    }
}

/// Which of two addresses to try first: the told one, unless it is less reachable than the
/// control connection's.
fn by_reachability(told: SocketAddr, peer: SocketAddr) -> (SocketAddr, SocketAddr) {
    if reachability(told.ip()) < reachability(peer.ip()) {
        (peer, told)
    } else {
        (told, peer)
    }
}

/// Whether `peer` can hardly connect to `local`: a public host to a private address.
pub(super) fn is_behind_nat(local: IpAddr, peer: IpAddr) -> bool {
    reachability(peer.to_canonical()) == 2 && reachability(local.to_canonical()) < 2
}

/// From how far away an address can be reached: 0 this host, 1 a private network, 2 anywhere.
fn reachability(ip: IpAddr) -> u8 {
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
            // told, control peer, first
            ("192.168.1.5:5", "8.8.8.8:5", "8.8.8.8:5"),
            ("127.0.0.1:5", "10.0.0.2:5", "10.0.0.2:5"),
            ("10.0.0.9:5", "10.0.0.2:5", "10.0.0.9:5"),
            ("9.9.9.9:5", "8.8.8.8:5", "9.9.9.9:5"),
            ("[fd00::1]:5", "[2001:db8::1]:5", "[2001:db8::1]:5"),
        ];
        for (told, peer, first) in table {
            assert_eq!(
                by_reachability(addr(told), addr(peer)).0,
                addr(first),
                "{told}"
            );
        }
    }

    #[test]
    fn translation_is_suspected_only_towards_public_hosts() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(is_behind_nat(ip("192.168.0.2"), ip("8.8.8.8")));
        assert!(is_behind_nat(ip("::ffff:10.0.0.1"), ip("::ffff:8.8.8.8")));
        assert!(!is_behind_nat(ip("127.0.0.1"), ip("127.0.0.1")));
        assert!(!is_behind_nat(ip("10.0.0.1"), ip("10.9.0.1")));
        assert!(!is_behind_nat(ip("9.9.9.9"), ip("8.8.8.8")));
    }

    #[test]
    fn the_command_fits_the_addresses() {
        let (v4, v6) = (addr("192.0.2.1:2000"), addr("[2001:db8::1]:2000"));
        let only = StripeAddresses::single;
        assert_eq!(port_command(&only(v4)), Command::Port(v4));
        assert_eq!(port_command(&only(v6)), Command::Eprt(v6));
        let both = StripeAddresses::new(vec![v4, v6]).unwrap();
        assert_eq!(port_command(&both), Command::Spor(both.clone()));
    }
}
