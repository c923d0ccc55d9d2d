//! Dynamic right-sizing with a server: what was agreed, and the DRS channel to it.
//!
//! Nothing here can fail a transfer but the loss of the control connection.

use std::net::SocketAddr;
use std::sync::Arc;

use data::drs::Endpoint;
use proto::client::{DrsEnd, NO_RIGHT_SIZING, Refusal};
use proto::command::{Command, Opts};
use proto::drs::DrsAddress;
use proto::reply::Reply;
use proto::sizing::Sizing;

use super::{Session, passive};
use crate::Failure;

/// What the user is told when a DRS channel was to be had by the server's own word and is not.
const NO_CHANNEL: &str = "opens no DRS channel; the receiver of data sizes its buffers alone (--buffer auto does without)";

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

    /// Asks the server where it listens for the DRS channel (DPSV); its address serves for the
    /// session. `None`: it will be done without.
    pub(crate) async fn ask_drs(
        &mut self,
        warnings: &mut Vec<String>,
    ) -> Result<Option<DrsAddress>, Failure> {
        if !self.dialogue.may_open_drs() {
            return Ok(None);
        }
        let reply = self.control.call(&Command::Dpsv).await?;
        Ok(self.take_drs(&reply, warnings))
    }

    /// Agrees with the server on [`Sizing::Drs`] and asks where it listens, in one round trip: what
    /// it says to DPSV counts if it took OPTS DRS.
    pub(crate) async fn begin_drs(
        &mut self,
        refusal: Refusal,
        doing: &str,
        warnings: &mut Vec<String>,
    ) -> Result<(), Failure> {
        let agree = Command::Opts(Opts::Sizing(Sizing::Drs));
        let [agreed, told] = self.control.call_both(&agree, &Command::Dpsv).await?;
        self.take_setting(&agree, &agreed, refusal, doing, warnings)?;
        if self.dialogue.may_open_drs() {
            self.take_drs(&told, warnings);
        }
        Ok(())
    }

    /// Takes the answer to DPSV.
    fn take_drs(&mut self, reply: &Reply, warnings: &mut Vec<String>) -> Option<DrsAddress> {
        let told = match reply.is_success() {
            true => DrsAddress::find_in_229(&reply.text()).ok(),
            false => None,
        };
        let Some(told) = told else {
            self.dialogue.refused(&Command::Dpsv);
            self.warn(warnings, NO_CHANNEL);
            return None;
        };
        let address = DrsAddress {
            at: self.complete_address(told.at),
            ..told
        };
        self.dialogue.drs_given(DrsEnd::Listens(address));
        Some(address)
    }

    /// Tells the server where to connect the DRS channel (DPRT), unless it knows.
    pub(crate) async fn tell_drs(
        &mut self,
        address: DrsAddress,
        warnings: &mut Vec<String>,
    ) -> Result<(), Failure> {
        let end = DrsEnd::Connects(address);
        if self.dialogue.drs() == Some(end) || !self.dialogue.may_open_drs() {
            return Ok(());
        }
        let command = Command::Dprt(address);
        if self.control.call(&command).await?.is_success() {
            self.dialogue.drs_given(end);
        } else {
            self.dialogue.refused(&command);
            self.warn(warnings, NO_CHANNEL);
        }
        Ok(())
    }

    /// This end of the DRS channel to the server, if that listens: at the host where its data
    /// connections are looked for first.
    pub(crate) fn drs(&self) -> Option<Arc<Endpoint>> {
        let Some(DrsEnd::Listens(told)) = self.dialogue.drs() else {
            return None;
        };
        let peer = self.control.peer().ip().to_canonical();
        let (at, _) = passive::in_order(told.at, SocketAddr::new(peer, told.at.port()));
        Some(Arc::new(Endpoint::connect(at, told.nonce)))
    }
}
