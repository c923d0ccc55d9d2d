//! Dynamic right-sizing with a server: what was agreed, and the DRS channel to it.
//!
//! Nothing here can fail a transfer but the loss of the control connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use data::drs::Endpoint;
use proto::client::{DrsEnd, NO_RIGHT_SIZING};
use proto::command::Command;
use proto::drs::DrsAddress;
use proto::reply::Reply;
use proto::sizing::Sizing;

use super::Session;
use crate::Failure;

/// Message to the user when a DRS channel was to be had by the server's own word and is not.
const NO_CHANNEL: &str =
    "opens no DRS channel; each end sizes its buffers alone (--buffer auto does without)";

impl Session {
    /// Who will size buffers for which `wish` was asked; says so once when the server has no part
    /// in that.
    pub(crate) fn agree_sizing(&mut self, wish: Sizing, warnings: &mut Vec<String>) -> Sizing {
        let agreed = self.dialogue.agreed(wish);
        if agreed != wish {
            self.warn(warnings, NO_RIGHT_SIZING);
        }
        agreed
    }

    /// Takes the answer to DPSV: where the server listens for the DRS channel, which serves for the
    /// session; or it will be done without. The host in it counts for nothing: the channel goes where
    /// data connections go.
    pub(crate) fn take_drs(&mut self, reply: &Reply, warnings: &mut Vec<String>) {
        let told = match reply.is_success() {
            true => DrsAddress::find_in_229(&reply.text()).ok(),
            false => None,
        };
        match told {
            Some(address) => self.dialogue.drs_given(DrsEnd::Listens(address)),
            None => self.do_without(&Command::Dpsv, reply, warnings),
        }
    }

    /// Tells the server where to connect the DRS channel (DPRT), unless it knows; `false`: it does
    /// not take that.
    pub(crate) async fn tell_drs(
        &mut self,
        address: DrsAddress,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Failure> {
        let end = DrsEnd::Connects(address);
        if self.dialogue.drs() == Some(end) {
            return Ok(true);
        }
        let command = Command::Dprt(address);
        let reply = self.control.call(&command).await?;
        if reply.is_success() {
            self.dialogue.drs_given(end);
        } else {
            self.do_without(&command, &reply, warnings);
        }
        Ok(reply.is_success())
    }

    /// Notes that the server opens no DRS channel: for now, or for good.
    fn do_without(&mut self, command: &Command, reply: &Reply, warnings: &mut Vec<String>) {
        if reply.is_transient_error() {
            self.dialogue.drs_failed();
        } else {
            self.dialogue.refused(command);
        }
        self.warn(warnings, NO_CHANNEL);
    }

    /// This end of the DRS channel to the server, if that listens: at the host where the data
    /// connections are.
    pub(crate) fn drs(&self) -> Option<Arc<Endpoint>> {
        self.drs_at(self.data_peer())
    }

    /// This end of the DRS channel to the server for data connections with `host`.
    pub(crate) fn drs_at(&self, host: IpAddr) -> Option<Arc<Endpoint>> {
        let Some(DrsEnd::Listens(told)) = self.dialogue.drs() else {
            return None;
        };
        let endpoint = Endpoint::connect(SocketAddr::new(host, told.at.port()), told.nonce);
        Some(Arc::new(match self.local_for(host) {
            Some(local) => endpoint.bound_to(local),
            None => endpoint,
        }))
    }
}
