//! Data addresses: where the server listens, and telling it where this end does.
//!
//! Sources: RFC 959 §4.1.2, RFC 2428 §2-3, RFC 1123 §4.1.2.6.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

use data::channel::{Accept, Channel, ListenOptions};
use proto::address::same_host;
use proto::address::{PassiveAddress, find_in_227, find_in_229};
use proto::command::{Command, EpsvArg, Site};
use proto::reply::Reply;
use proto::sizing::Buffers;
use proto::stripes::StripeAddresses;

use super::{Session, replies};
use crate::{Exit, Failure};

/// Warning about a data address that is not used.
const FOREIGN: &str = "told a data address of another host; its own is used instead \
                       (--allow-foreign-data-address goes to the other one)";

/// Which passive command is tried first; the other follows when it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PassivePreference {
    /// PASV, then EPSV: IPv4.
    Plain,
    /// EPSV only: PASV cannot express an IPv6 address.
    ExtendedOnly,
    /// EPSV, then PASV: IPv4 behind a server that refused PASV.
    Extended,
}

impl PassivePreference {
    pub(crate) fn of(peer: SocketAddr) -> Self {
        if peer.ip().to_canonical().is_ipv4() {
            Self::Plain
        } else {
            Self::ExtendedOnly
        }
    }
}

impl Session {
    /// Command that asks the server to listen: PASV or EPSV.
    pub(crate) fn passive_command(&self) -> Command {
        match self.passive_order {
            PassivePreference::Plain => Command::Pasv,
            PassivePreference::Extended | PassivePreference::ExtendedOnly => {
                Command::Epsv(EpsvArg::Any)
            }
        }
    }

    /// Takes the answer to [`Session::passive_command`]: where the server listens. After a refusal the
    /// other command is tried. The addresses are as told; only what was left out is completed from the
    /// control connection.
    pub(crate) async fn take_passive(&mut self, reply: Reply) -> Result<StripeAddresses, Failure> {
        let (second, order) = match self.passive_order {
            PassivePreference::Plain => (Command::Epsv(EpsvArg::Any), PassivePreference::Extended),
            PassivePreference::Extended => (Command::Pasv, PassivePreference::Plain),
            PassivePreference::ExtendedOnly => return self.read_passive(&reply),
        };
        if reply.code / 100 == 5 {
            let again = self.control.call(&second).await?;
            if again.is_success() {
                self.passive_order = order;
                return self.read_passive(&again);
            }
        }
        self.read_passive(&reply)
    }

    fn read_passive(&self, reply: &Reply) -> Result<StripeAddresses, Failure> {
        if !reply.is_success() {
            return Err(replies::refusal(
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
            .map(|address| StripeAddresses::only(self.complete(address)))
            .map_err(|error| Failure {
                exit: Exit::Protocol,
                message: format!(
                    "{} told no usable data address ({error}): {}; report this to its administrator",
                    self.name(),
                    replies::shown(reply)
                ),
                transient: false,
            })
    }

    fn complete(&self, told: PassiveAddress) -> SocketAddr {
        let unspecified = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        self.complete_address(SocketAddr::new(told.ip.unwrap_or(unspecified), told.port))
    }

    /// The address as told, with the control connection's host where none was.
    fn complete_address(&self, told: SocketAddr) -> SocketAddr {
        let peer = self.control.peer().ip().to_canonical();
        match told.ip().is_unspecified() {
            true => SocketAddr::new(peer, told.port()),
            false => told,
        }
    }

    /// Where data connections to a server go that told `told`: to the server, whatever host it names
    /// (it may be behind address translation, or send its clients against others, RFC 2577 §3), unless
    /// other hosts are allowed.
    pub(crate) fn data_address(
        &mut self,
        told: SocketAddr,
        warnings: &mut Vec<String>,
    ) -> SocketAddr {
        let peer = SocketAddr::new(self.control.peer().ip().to_canonical(), told.port());
        if self.foreign_data || same_host(told.ip(), peer.ip()) {
            return told;
        }
        // One that only its neighbours can reach is the usual fault of a server behind translation.
        if in_order(told, peer).0 == told {
            self.warn(warnings, FOREIGN);
        }
        peer
    }

    /// Those of all stripes, likewise.
    pub(crate) fn data_addresses(
        &mut self,
        told: &StripeAddresses,
        warnings: &mut Vec<String>,
    ) -> StripeAddresses {
        told.map(|address| self.data_address(address, warnings))
    }

    /// Tells the server which other host its data connections will be with, where it wants to know:
    /// it allows those of this machine only. One that refuses says why when they are made.
    pub(crate) async fn name_data_peer(&mut self, host: IpAddr) -> Result<(), Failure> {
        let (host, own) = (host.to_canonical(), self.control.local().ip());
        // Another server on this machine has this machine's address there. Loopback addresses mean
        // something only to a server that is here, too.
        let is_here = same_host(host, own) || (host.is_loopback() && !own.is_loopback());
        if !self.features().data_peer || is_here || self.data_peer == Some(host) {
            return Ok(());
        }
        self.control
            .call(&Command::Site(Site::DataPeer(Some(host))))
            .await?;
        self.data_peer = Some(host);
        Ok(())
    }

    /// Prepares for data connections from this machine to where the server listens. Gives the addresses
    /// to use next when the first do not answer: behind address translation a server may tell
    /// addresses that only its neighbours can reach.
    pub(crate) fn connect_to(
        &mut self,
        told: &StripeAddresses,
        warnings: &mut Vec<String>,
    ) -> Option<StripeAddresses> {
        let told = self.data_addresses(told, warnings);
        let host = self.control.peer().ip().to_canonical();
        let both = |told: SocketAddr| in_order(told, SocketAddr::new(host, told.port()));
        let first = told.map(|told| both(told).0);
        let second = told.map(|told| both(told).1);
        self.data_host = Some(first.first().ip());
        let local = self.local_for(first.first().ip());
        self.channel = Some(Channel::connect_to(first.as_slice().to_vec(), local));
        (first != second).then_some(second)
    }

    /// The address to connect to `host` from: the control connection's own when it goes to the same
    /// host, since servers compare the two; else any.
    pub(crate) fn local_for(&self, host: IpAddr) -> Option<IpAddr> {
        let same_host = host == self.control.peer().ip().to_canonical();
        same_host.then(|| self.control.local().ip().to_canonical())
    }

    /// Notes that the data connections go to another host than the one that was tried first.
    pub(crate) fn data_goes_to(&mut self, host: IpAddr) {
        self.data_host = Some(host);
    }

    /// The host at the other end of the data connections, as far as is known before they are made: a
    /// server that connects is expected to do so from where it serves.
    pub(super) fn data_peer(&self) -> IpAddr {
        let control = self.control.peer().ip().to_canonical();
        self.data_host.unwrap_or(control)
    }

    /// Listens on the control connection's local address, for connections with these buffers.
    pub(crate) fn listen(
        &mut self,
        ports: Option<(u16, u16)>,
        buffers: Buffers,
    ) -> Result<StripeAddresses, Failure> {
        let local = |reason: String| Failure {
            exit: Exit::Local,
            message: format!(
                "cannot listen for data connections: {reason}; check --data-ports, or use --mode s"
            ),
            transient: false,
        };
        let options = ListenOptions {
            ip: self.control.local().ip().to_canonical(),
            ports: ports.map(|(low, high)| RangeInclusive::new(low, high)),
            accept: match self.foreign_data {
                true => Accept::Any,
                false => Accept::Only(self.control.peer().ip().to_canonical()),
            },
            buffers,
        };
        self.channel = None;
        let channel = Channel::listen(&options).map_err(|error| local(error.to_string()))?;
        let address = channel
            .local_addr()
            .ok_or_else(|| local("the listener has no address".to_owned()))?;
        self.channel = Some(channel);
        self.data_host = None;
        Ok(StripeAddresses::only(address))
    }

    /// Takes the answer to [`active_command`]. After a refusal the other command is tried, if it can
    /// express the address.
    pub(crate) async fn take_active(
        &mut self,
        addresses: &StripeAddresses,
        reply: Reply,
    ) -> Result<(), Failure> {
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
        Err(replies::refusal(self.name(), &doing, &reply))
    }
}

/// Command that tells a server where to connect: PORT, or EPRT for what PORT cannot express; SPOR where there
/// are several stripes.
pub(crate) fn active_command(addresses: &StripeAddresses) -> Command {
    match addresses.as_slice() {
        [only] if only.is_ipv4() => Command::Port(*only),
        [only] => Command::Eprt(*only),
        _ => Command::Spor(addresses.clone()),
    }
}

/// Which of two addresses to try first: the told one, unless it is less reachable than the
/// control connection's.
fn in_order(told: SocketAddr, peer: SocketAddr) -> (SocketAddr, SocketAddr) {
    if reach(told.ip()) < reach(peer.ip()) {
        (peer, told)
    } else {
        (told, peer)
    }
}

/// Whether `peer` can hardly connect to `local`: a public host to a private address.
pub(super) fn behind_translation(local: IpAddr, peer: IpAddr) -> bool {
    reach(peer.to_canonical()) == 2 && reach(local.to_canonical()) < 2
}

/// From how far away an address can be reached: 0 this host, 1 a private network, 2 anywhere.
fn reach(ip: IpAddr) -> u8 {
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
            assert_eq!(in_order(addr(told), addr(peer)).0, addr(first), "{told}");
        }
    }

    #[test]
    fn translation_is_suspected_only_towards_public_hosts() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(behind_translation(ip("192.168.0.2"), ip("8.8.8.8")));
        assert!(behind_translation(
            ip("::ffff:10.0.0.1"),
            ip("::ffff:8.8.8.8")
        ));
        assert!(!behind_translation(ip("127.0.0.1"), ip("127.0.0.1")));
        assert!(!behind_translation(ip("10.0.0.1"), ip("10.9.0.1")));
        assert!(!behind_translation(ip("9.9.9.9"), ip("8.8.8.8")));
    }

    #[test]
    fn the_command_fits_the_addresses() {
        let (v4, v6) = (addr("192.0.2.1:2000"), addr("[2001:db8::1]:2000"));
        let only = StripeAddresses::only;
        assert_eq!(active_command(&only(v4)), Command::Port(v4));
        assert_eq!(active_command(&only(v6)), Command::Eprt(v6));
        let both = StripeAddresses::new(vec![v4, v6]).unwrap();
        assert_eq!(active_command(&both), Command::Spor(both.clone()));
    }
}
