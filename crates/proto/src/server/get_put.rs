//! GET and PUT (GFD.47 §4), as dCache and the clients of the Globus toolkit speak them: the address of a listener comes with
//! the transfer, as a 127.

use super::SessionAction;
use super::data_address::{PassiveReplyForm, ipv6_unsupported_reply};
use super::logged_in::LoggedInSession;
use super::replies::CommandResult;
use crate::address::AddressFamily;
use crate::command::{GetPutChannel, GetPutRequest};
use crate::stripes::StripeAddresses;

impl LoggedInSession {
    /// GET
    pub(super) fn get(&mut self, request: &GetPutRequest) -> CommandResult {
        let mut actions = self.prepare_channel("GET", request)?;
        // The new channel stays also where the transfer is refused.
        let started = self.retr("GET", None, &request.path);
        actions.extend(started.unwrap_or_else(|refusal| refusal));
        Ok(actions)
    }

    /// PUT
    pub(super) fn put(&mut self, request: &GetPutRequest) -> CommandResult {
        let mut actions = self.prepare_channel("PUT", request)?;
        let started = self.stor("PUT", &request.path);
        actions.extend(started.unwrap_or_else(|refusal| refusal));
        Ok(actions)
    }

    /// Does what MODE, PASV and PORT would do. A refusal consumes what the transfer would have consumed.
    fn prepare_channel(&mut self, verb: &'static str, request: &GetPutRequest) -> CommandResult {
        let mut actions = match request.mode {
            // Without its reply.
            Some(mode) => self.change_mode(mode),
            None => Vec::new(),
        };
        let prepared = match request.channel {
            GetPutChannel::Kept => Ok(Vec::new()),
            GetPutChannel::Passive => self.listen_with_transfer(verb),
            GetPutChannel::Active(to) => self.connect_to(verb, StripeAddresses::single(to), false),
        };
        match prepared {
            Ok(prepared) => actions.extend(prepared),
            Err(refusal) => {
                self.next_transfer = Default::default();
                actions.extend(refusal);
                return Err(actions);
            }
        }
        Ok(actions)
    }

    fn listen_with_transfer(&mut self, verb: &str) -> CommandResult {
        if let Some(refusal) = self.refuse_after_epsv_all(verb) {
            return Err(refusal);
        }
        if self.family() == AddressFamily::V6 {
            return Err(vec![SessionAction::Reply(ipv6_unsupported_reply())]);
        }
        if let Some(refusal) = self.protection.address_refusal() {
            return Err(refusal);
        }
        Ok(self.delay_passive(PassiveReplyForm::GetPut))
    }
}
