//! The data connections of a session between its transfers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use data::channel::SessionDataChannel;
use data::drs::DrsEndpoint;
use proto::address::AddressFamily;
use proto::drs::DrsAddress;
use proto::server::{DriverEvent, FileError, FileErrorKind, ListenRequest};
use proto::stripes::StripeAddresses;

use crate::state::ServerState;
use crate::stripes::{NodeAccess, StripeSet};
use crate::transfer::{ControlAddresses, advertised_address};
use crate::work::{OpenedListener, SessionWork};

/// The data connections that commands have agreed on.
#[derive(Debug, Default)]
pub(super) struct DataConnections {
    /// After PASV or PORT. A running transfer has it, and gives it back at its end.
    pub(super) channel: Option<SessionDataChannel>,
    /// The data nodes, after SPAS or a striped transfer. A running transfer has them.
    pub(super) stripes: Option<StripeSet>,
    /// After SPOR: data nodes connect to the addresses.
    pub(super) nodes_connect: bool,
    /// This end of the DRS channel, for all transfers after DPSV or DPRT.
    pub(super) drs: Option<Arc<DrsEndpoint>>,
    /// Hosts that are expected to connect, for the log of a transfer without any connection.
    pub(super) expected_hosts: Vec<IpAddr>,
}

impl DataConnections {
    /// Starts to listen for data connections (PASV, EPSV), or has these data nodes listen (SPAS).
    pub(super) fn listen(
        &mut self,
        request: &ListenRequest,
        nodes: Option<NodeAccess>,
        ends: &ControlAddresses,
        shared: &Arc<ServerState>,
    ) -> SessionWork {
        // A new PASV or EPSV replaces the data connections (RFC 959 section 3.2), so the old listener
        // closes before the new one opens: with a small port range it may need that very port.
        self.drop_channel();
        self.note_expected_hosts(request, ends);
        match ends.listen_options(request, &shared.config) {
            Ok(options) => SessionWork::listen(options, nodes, ends.peer.ip(), shared),
            Err(error) => SessionWork::Immediate(DriverEvent::Listening(Err(error))),
        }
    }

    /// Closes the listener and all data connections.
    pub(super) fn drop_channel(&mut self) {
        self.channel = None;
        self.stripes = None;
        self.nodes_connect = false;
    }

    /// Keeps what [`DataConnections::listen`] has opened; returns the addresses to advertise.
    pub(super) fn keep_listener(
        &mut self,
        opened: OpenedListener,
        public: Option<IpAddr>,
    ) -> Result<StripeAddresses, FileError> {
        let channel = match opened {
            OpenedListener::Own(channel) => channel,
            OpenedListener::Striped(stripes, addresses) => {
                self.stripes = Some(stripes);
                return Ok(addresses);
            }
        };
        let address = channel
            .local_addr()
            .ok_or_else(|| FileError::new(FileErrorKind::Other, "no listener"))?;
        self.channel = Some(channel);
        let advertised = advertised_address(address, public);
        Ok(StripeAddresses::single(advertised))
    }

    /// Prepares connections to the client's listeners (PORT, EPRT), those of data nodes after SPOR.
    pub(super) fn connect_to(
        &mut self,
        targets: &StripeAddresses,
        striped: bool,
        ends: &ControlAddresses,
        shared: &ServerState,
    ) {
        let targets = targets.as_slice();
        self.expected_hosts = targets.iter().map(SocketAddr::ip).collect();
        let local = ends.bind_address(targets, shared.config.foreign_data_addresses);
        let mut channel = SessionDataChannel::connect_to(targets.to_vec(), local);
        channel.set_budget(shared.client_stream_budget(ends.peer.ip()));
        self.drop_channel();
        self.channel = Some(channel);
        self.nodes_connect = striped;
    }

    /// Starts to listen for the DRS channel (DPSV).
    pub(super) fn listen_drs(
        &mut self,
        family: AddressFamily,
        ends: &ControlAddresses,
        shared: &Arc<ServerState>,
    ) -> SessionWork {
        self.drs = None;
        match ends.listen_address(family) {
            Ok(ip) => SessionWork::listen_drs(ip, shared, ends.peer.ip()),
            Err(error) => SessionWork::Immediate(DriverEvent::DrsListening(Err(error))),
        }
    }

    /// Keeps the DRS endpoint; its address is advertised like those of data connections.
    pub(super) fn keep_drs(&mut self, endpoint: DrsEndpoint, public: Option<IpAddr>) -> DrsAddress {
        let address = endpoint.address();
        self.drs = Some(Arc::new(endpoint));
        DrsAddress {
            socket: advertised_address(address.socket, public),
            ..address
        }
    }

    /// Prepares a DRS channel to `to` (DPRT), from the local address of data connections to that host: the
    /// peer compares the two addresses.
    pub(super) fn connect_drs(&mut self, to: DrsAddress, ends: &ControlAddresses, foreign: bool) {
        let endpoint = DrsEndpoint::connect(to.socket, to.nonce);
        self.drs = Some(Arc::new(match ends.bind_address(&[to.socket], foreign) {
            Some(local) => endpoint.with_local_address(local),
            None => endpoint,
        }));
    }

    /// Notes the hosts that data connections are expected from. If any host is allowed, none is noted.
    pub(super) fn note_expected_hosts(&mut self, request: &ListenRequest, ends: &ControlAddresses) {
        self.expected_hosts = if request.any_host {
            Vec::new()
        } else {
            std::iter::once(ends.peer.ip())
                .chain(request.other_hosts.iter().copied())
                .collect()
        };
    }
}
