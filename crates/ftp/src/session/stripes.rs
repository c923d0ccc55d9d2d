//! A server's data nodes (GFD.20 §3): how many there are, and data connections with each.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use data::channel::SessionDataChannel;
use proto::address::{AddressFamily, parse_spas_lines};
use proto::client::TransferRequirements;
use proto::command::{Command, TransferMode};
use proto::reply::Reply;
use proto::s3::parts::PartPlan;
use proto::stripes::StripeAddresses;

use super::ClientSession;
use super::passive::{port_command, reachability};
use super::path_names::directory_and_name;
use crate::Failure;

/// Lowest port of a data node that this end connects to.
const MIN_PORT: u16 = 1024;

/// Of a server's data nodes.
#[derive(Debug, Default)]
pub(crate) struct ServerStripes {
    /// Their hosts, one for each stripe; `None`: not asked yet.
    hosts: Option<Vec<IpAddr>>,
    /// The directory that `hosts` have, at a server whose nodes differ by directory.
    directory: Option<Vec<u8>>,
    /// SPAS comes in place of PASV or EPSV, and SPOR in place of PORT or EPRT.
    is_asked: bool,
    /// The addresses of the last reply to SPAS may be connected to as they are.
    are_checked: bool,
}

impl ClientSession {
    /// Whether the data connections of a transfer may be with data nodes: in MODE E, directly, where the server knows SPAS and is not
    /// known to have none that can be used.
    pub(crate) fn may_use_stripes(&self, requirements: &TransferRequirements) -> bool {
        let has_none = self.stripes.hosts.as_ref().is_some_and(Vec::is_empty);
        self.can_use_stripes(requirements) && !has_none
    }

    /// The same, whatever nodes have the file.
    fn can_use_stripes(&self, requirements: &TransferRequirements) -> bool {
        requirements.mode == TransferMode::Extended
            && self.features().spas
            && !self.habits.is_without_stripes()
            && !self.is_carried()
            && self.control.route().is_none()
    }

    /// Enters the directory of the file that comes next, at a server whose data nodes differ by directory: SPAS names those of the
    /// current one.
    pub(crate) async fn enter_for_stripes(
        &mut self,
        requirements: &TransferRequirements,
    ) -> Result<(), Failure> {
        let path = requirements.command.transferred_file();
        let (Some(path), true) = (path, self.features().nodes_by_directory) else {
            return Ok(());
        };
        if !self.can_use_stripes(requirements) {
            return Ok(());
        }
        let current = self.current_directory.as_deref();
        let directory = directory_and_name(path).0.or(current);
        let directory = directory.unwrap_or(b"/").to_vec();
        if self.stripes.directory.as_ref() != Some(&directory) {
            // Others may have this one, and the connections are with those of another.
            self.stripes = ServerStripes::default();
            self.data_channel = None;
            self.planner.on_channel_lost();
        }
        let is_there = self.current_directory.as_ref() == Some(&directory);
        if !is_there && self.change_directory(&directory).await?.is_some() {
            // The transfer itself tells why.
            self.stripes.directory = None;
            self.stripes.hosts = Some(Vec::new());
            return Ok(());
        }
        self.stripes.directory = Some(directory);
        Ok(())
    }

    /// Whether the server has named data nodes.
    pub(crate) fn has_stripes(&self) -> bool {
        let hosts = self.stripes.hosts.as_ref();
        hosts.is_some_and(|all| !all.is_empty())
    }

    /// Number of stripes of the server, at least 1.
    pub(crate) fn stripe_count(&self) -> usize {
        self.stripes
            .hosts
            .as_ref()
            .map_or(1, |all| all.len().max(1))
    }

    /// Bytes of a file of `size` bytes that one of the server's data nodes gets whole; `None`: any node takes any bytes. Nodes that
    /// store a file as an object put a part of it together each.
    pub(crate) fn stripe_unit(&self, size: Option<u64>) -> Option<u64> {
        let is_object = self.stripe_count() > 1 && self.features().stores_whole;
        is_object.then(|| PartPlan::part_of_arriving(size))
    }

    /// The hosts of the server's data nodes, and its own.
    pub(crate) fn hosts_of_stripes(&self) -> Arc<[IpAddr]> {
        let own = self.control.peer_addr().ip().to_canonical();
        let nodes = self.stripes.hosts.iter().flatten().copied();
        nodes.chain([own]).collect()
    }

    /// Whether the server's data nodes listen (SPAS) or connect (SPOR) next.
    pub(crate) fn ask_for_stripes(&mut self, is_asked: bool) {
        self.stripes.is_asked = is_asked;
    }

    /// The command that tells the server where to connect.
    pub(crate) fn connect_command(&self, addresses: &StripeAddresses) -> Command {
        match self.stripes.is_asked {
            true => Command::Spor(addresses.clone()),
            false => port_command(addresses.first()),
        }
    }

    /// The command that asks the server to listen.
    pub(crate) fn listen_command(&self) -> Command {
        match self.stripes.is_asked {
            true => self.spas_command(),
            false => self.passive_command(),
        }
    }

    /// Evaluates the reply to [`ClientSession::listen_command`]. A server that refuses SPAS, or names nodes that this end must not
    /// connect to, is asked again without it.
    pub(crate) async fn handle_listen_reply(
        &mut self,
        reply: Reply,
    ) -> Result<StripeAddresses, Failure> {
        if !self.take_asked_stripes() {
            return self.handle_passive_reply(reply).await;
        }
        if let Some(addresses) = self.note_stripes(&reply) {
            self.stripes.are_checked = true;
            return Ok(addresses);
        }
        let passive = self.passive_command();
        let reply = self.control.call(&passive).await?;
        self.handle_passive_reply(reply).await
    }

    /// Asks the server for its data nodes, unless they are known: they will connect to this end.
    pub(crate) async fn learn_stripes(&mut self) -> Result<(), Failure> {
        if self.stripes.hosts.is_none() {
            let spas = self.spas_command();
            let reply = self.control.call(&spas).await?;
            self.note_stripes(&reply);
        }
        Ok(())
    }

    /// Takes note whether SPOR was sent.
    pub(super) fn take_asked_stripes(&mut self) -> bool {
        std::mem::take(&mut self.stripes.is_asked)
    }

    /// Whether the addresses that the server has told are those of data nodes, which this end may connect to.
    pub(crate) fn take_checked_stripes(&mut self) -> bool {
        std::mem::take(&mut self.stripes.are_checked)
    }

    /// Connects to the data nodes when the next transfer begins. Returns the address to try if a single one does not answer: it may be
    /// that of a server behind NAT.
    pub(super) fn connect_to_stripes(
        &mut self,
        addresses: &StripeAddresses,
    ) -> Option<StripeAddresses> {
        self.data_host = Some(addresses.first().ip());
        let local = self.local_address_for(addresses.first().ip());
        let targets = addresses.as_slice().to_vec();
        let mut channel = SessionDataChannel::connect_to(targets, local);
        channel.set_stripes(addresses.as_slice().len().try_into().unwrap_or(u32::MAX));
        self.data_channel = Some(channel);
        let [only] = addresses.as_slice() else {
            return None;
        };
        let own = self.control.peer_addr().ip().to_canonical();
        let own = SocketAddr::new(own, only.port());
        (own != *only).then(|| StripeAddresses::single(own))
    }

    fn spas_command(&self) -> Command {
        match self.control.peer_addr().ip().to_canonical() {
            IpAddr::V4(_) => Command::Spas(None),
            IpAddr::V6(_) => Command::Spas(Some(AddressFamily::V6)),
        }
    }

    /// Notes the nodes that a reply to SPAS names; `None`: it names none that may be used.
    fn note_stripes(&mut self, reply: &Reply) -> Option<StripeAddresses> {
        let own = self.control.peer_addr().ip().to_canonical();
        // Firewalls that open the data ports of servers read the replies to PASV and EPSV, and not this one. A server without data nodes
        // is asked again in their words.
        let is_own = |all: &StripeAddresses| matches!(all.as_slice(), [only] if only.ip() == own);
        let named = self.parse_stripes(reply).filter(|all| !is_own(all));
        let hosts = named
            .as_ref()
            .map(|all| all.as_slice().iter().map(SocketAddr::ip).collect());
        self.stripes.hosts = Some(hosts.unwrap_or_default());
        named
    }

    /// The addresses of a reply to SPAS. A server must not direct its clients at hosts that only they can reach (RFC 2577 §3), so
    /// no node may be in a narrower network than the server itself.
    fn parse_stripes(&self, reply: &Reply) -> Option<StripeAddresses> {
        let own = self.control.peer_addr().ip().to_canonical();
        let inner = reply.lines.get(1..reply.lines.len().saturating_sub(1))?;
        let lines: Vec<_> = inner
            .iter()
            .map(|line| String::from_utf8_lossy(line))
            .collect();
        let named = parse_spas_lines(lines.iter().map(AsRef::as_ref)).ok()?;
        let addresses: Option<Vec<_>> = named
            .into_iter()
            .map(|node| {
                let ip = node.ip.filter(|ip| !ip.is_unspecified()).unwrap_or(own);
                let may_connect = self.allow_foreign_data || reachability(ip) >= reachability(own);
                let at = SocketAddr::new(ip.to_canonical(), node.port);
                (reply.is_success() && may_connect && node.port >= MIN_PORT).then_some(at)
            })
            .collect();
        StripeAddresses::new(addresses?)
    }
}
