//! Which policy sizes the socket buffers of one end of a transfer.

use proto::sizing::BufferSizing;
use tune::limiter::Role;

use super::buffers::auto::AutoBufferPolicy;
use super::buffers::drs::{DrsReceiver, DrsSender};
use super::buffers::drs1::{Drs1Receiver, Drs1Sender};
use super::buffers::{BufferPolicy, KernelBufferPolicy};
use crate::settings::TransferSettings;

/// The policy for this end's buffers.
pub(super) fn buffer_policy(settings: &TransferSettings, role: Role) -> Box<dyn BufferPolicy> {
    let pinned = match role {
        Role::Sender => settings.options.buffers.send.is_some(),
        Role::Receiver => settings.options.buffers.receive.is_some(),
    };
    let endpoint = settings.drs.as_ref();
    let security = settings.security.as_ref();
    // A pinned end still serves the other one: it announces sizes, and echoes.
    match (settings.options.buffers.sizing, role) {
        (BufferSizing::Kernel, _) => Box::new(KernelBufferPolicy),
        (BufferSizing::Auto, _) if pinned => Box::new(KernelBufferPolicy),
        (BufferSizing::Auto, role) => {
            Box::new(AutoBufferPolicy::new(role).with_known_buffer(settings.prior.send_buffer))
        }
        (BufferSizing::Drs1, Role::Receiver) => Box::new(Drs1Receiver::new(pinned)),
        (BufferSizing::Drs1, Role::Sender) => Box::new(Drs1Sender::new(pinned)),
        (BufferSizing::Drs, Role::Receiver) => {
            let interval = settings.options.drs_interval;
            Box::new(DrsReceiver::new(endpoint, pinned, interval, security))
        }
        (BufferSizing::Drs, Role::Sender) => Box::new(DrsSender::new(endpoint, pinned, security)),
    }
}
