//! Dynamic right-sizing with a server: the agreement, and the DRS channel to it.
//!
//! No failure here fails a transfer, except the loss of the control connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use data::drs::DrsEndpoint;
use proto::client::{RIGHT_SIZING_UNSUPPORTED, ServerDrsAddress};
use proto::command::Command;
use proto::drs::DrsAddress;
use proto::reply::Reply;
use proto::sizing::BufferSizing;

use super::ClientSession;
use crate::Failure;

/// Warning when the server announces DRS and opens no DRS channel.
const DRS_CHANNEL_UNAVAILABLE: &str =
    "opens no DRS channel; each end sizes its buffers alone (--buffer auto does without)";

/// Warning when DRS is requested and another program's connection is on the way.
const NO_RIGHT_SIZING_ON_THE_WAY: &str = "is reached through a proxy, or by ssh alone, where the two ends cannot size each other's \
     buffers (--buffer auto does without)";

impl ClientSession {
    /// Agrees with the server on who sizes buffers. Warns once if it does not support `requested`.
    pub fn negotiate_sizing(
        &mut self,
        requested: BufferSizing,
        warnings: &mut Vec<String>,
    ) -> BufferSizing {
        // Buffers at the ends do not size those of the connections at a proxy, or of ssh.
        let is_tunnelled = self.control.route().is_some();
        if is_tunnelled && requested.needs_peer_support() {
            self.warn_once(warnings, NO_RIGHT_SIZING_ON_THE_WAY);
            return BufferSizing::Auto;
        }
        let agreed = self.planner.agreed_sizing(requested);
        if agreed != requested {
            self.warn_once(warnings, RIGHT_SIZING_UNSUPPORTED);
        }
        agreed
    }

    /// Evaluates the reply to DPSV: where the server listens for the DRS channel of the session. On
    /// a refusal the transfer runs without one. The host in the reply is ignored: the channel goes
    /// to the host of the data connections.
    pub fn handle_dpsv_reply(&mut self, reply: &Reply, warnings: &mut Vec<String>) {
        let announced = match reply.is_success() {
            true => DrsAddress::find_in_229(&reply.text()).ok(),
            false => None,
        };
        match announced {
            Some(address) => self
                .planner
                .set_drs_address(ServerDrsAddress::Listens(address)),
            None => self.give_up_drs_channel(&Command::Dpsv, reply, warnings),
        }
    }

    /// Tells the server where to connect the DRS channel (DPRT), unless it knows; `false` when it
    /// refuses.
    pub async fn send_drs_address(
        &mut self,
        address: DrsAddress,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Failure> {
        let server_end = ServerDrsAddress::Connects(address);
        if self.planner.drs_address() == Some(server_end) {
            return Ok(true);
        }
        let command = Command::Dprt(address);
        let reply = self.control.call(&command).await?;
        if reply.is_success() {
            self.planner.set_drs_address(server_end);
        } else {
            self.give_up_drs_channel(&command, &reply, warnings);
        }
        Ok(reply.is_success())
    }

    /// Records that the server opens no DRS channel: for this transfer, or for the session.
    fn give_up_drs_channel(
        &mut self,
        command: &Command,
        reply: &Reply,
        warnings: &mut Vec<String>,
    ) {
        if reply.is_transient_error() {
            // 4xx: the server may open a channel for a later transfer.
            self.planner.clear_drs_address();
        } else {
            self.planner.on_refused(command);
        }
        self.warn_once(warnings, DRS_CHANNEL_UNAVAILABLE);
    }

    /// This end of the DRS channel, if the server listens for it, at the host of the data
    /// connections.
    pub fn drs_endpoint(&self) -> Option<Arc<DrsEndpoint>> {
        self.drs_endpoint_at(self.expected_data_peer())
    }

    /// This end of the DRS channel for data connections with `host`.
    pub fn drs_endpoint_at(&self, host: IpAddr) -> Option<Arc<DrsEndpoint>> {
        let Some(ServerDrsAddress::Listens(announced)) = self.planner.drs_address() else {
            return None;
        };
        let endpoint = DrsEndpoint::connect(
            SocketAddr::new(host, announced.socket.port()),
            announced.nonce,
        );
        // The channel belongs to the data connections, and the server accepts it only from the
        // client's own address.
        Some(Arc::new(match self.local_address_for(host) {
            Some(local) => endpoint.with_local_address(local),
            None => endpoint,
        }))
    }
}
