//! Dynamic right-sizing with a server: what was agreed, and the DRS channel to it.
//!
//! Nothing here can fail a transfer but the loss of the control connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use data::drs::DrsEndpoint;
use proto::client::{RIGHT_SIZING_UNSUPPORTED, ServerDrsAddress};
use proto::command::Command;
use proto::drs::DrsAddress;
use proto::reply::Reply;
use proto::sizing::BufferSizing;

use super::ClientSession;
use crate::CopyFailure;

/// Message to the user when a DRS channel was to be had by the server's own word and is not.
const DRS_CHANNEL_UNAVAILABLE: &str =
    "opens no DRS channel; each end sizes its buffers alone (--buffer auto does without)";

impl ClientSession {
    /// Who will size buffers for which `wish` was asked; says so once when the server has no part
    /// in that.
    pub(crate) fn negotiate_sizing(
        &mut self,
        wish: BufferSizing,
        warnings: &mut Vec<String>,
    ) -> BufferSizing {
        let agreed = self.planner.agreed_sizing(wish);
        if agreed != wish {
            self.warn_once(warnings, RIGHT_SIZING_UNSUPPORTED);
        }
        agreed
    }

    /// Takes the answer to DPSV: where the server listens for the DRS channel, which serves for the
    /// session; or it will be done without. The host in it counts for nothing: the channel goes where
    /// data connections go.
    pub(crate) fn handle_dpsv_reply(&mut self, reply: &Reply, warnings: &mut Vec<String>) {
        let told = match reply.is_success() {
            true => DrsAddress::find_in_229(&reply.text()).ok(),
            false => None,
        };
        match told {
            Some(address) => self
                .planner
                .set_drs_address(ServerDrsAddress::Listens(address)),
            None => self.give_up_drs_channel(&Command::Dpsv, reply, warnings),
        }
    }

    /// Tells the server where to connect the DRS channel (DPRT), unless it knows; `false`: it does
    /// not take that.
    pub(crate) async fn send_drs_address(
        &mut self,
        address: DrsAddress,
        warnings: &mut Vec<String>,
    ) -> Result<bool, CopyFailure> {
        let end = ServerDrsAddress::Connects(address);
        if self.planner.drs_address() == Some(end) {
            return Ok(true);
        }
        let command = Command::Dprt(address);
        let reply = self.control.call(&command).await?;
        if reply.is_success() {
            self.planner.set_drs_address(end);
        } else {
            self.give_up_drs_channel(&command, &reply, warnings);
        }
        Ok(reply.is_success())
    }

    /// Notes that the server opens no DRS channel: for now, or for good.
    fn give_up_drs_channel(
        &mut self,
        command: &Command,
        reply: &Reply,
        warnings: &mut Vec<String>,
    ) {
        if reply.is_transient_error() {
            self.planner.clear_drs_address();
        } else {
            self.planner.on_refused(command);
        }
        self.warn_once(warnings, DRS_CHANNEL_UNAVAILABLE);
    }

    /// This end of the DRS channel to the server, if that listens: at the host where the data
    /// connections are.
    pub(crate) fn drs_endpoint(&self) -> Option<Arc<DrsEndpoint>> {
        self.drs_endpoint_at(self.expected_data_peer())
    }

    /// This end of the DRS channel to the server for data connections with `host`.
    pub(crate) fn drs_endpoint_at(&self, host: IpAddr) -> Option<Arc<DrsEndpoint>> {
        let Some(ServerDrsAddress::Listens(told)) = self.planner.drs_address() else {
            return None;
        };
        let endpoint = DrsEndpoint::connect(SocketAddr::new(host, told.socket.port()), told.nonce);
        Some(Arc::new(match self.local_address_for(host) {
            Some(local) => endpoint.with_local_address(local),
            None => endpoint,
        }))
    }
}
