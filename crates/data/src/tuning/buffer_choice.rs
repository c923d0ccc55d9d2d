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
        (BufferSizing::Drs1, Role::Receiver) => {
            Box::new(Drs1Receiver::new(pinned, settings.options.drs1_reads))
        }
        (BufferSizing::Drs1, Role::Sender) => Box::new(Drs1Sender::new(pinned)),
        (BufferSizing::Drs | BufferSizing::Drs2004, Role::Receiver) => {
            let receiver =
                DrsReceiver::new(endpoint, pinned, settings.options.drs_interval, security);
            match settings.options.buffers.sizing {
                BufferSizing::Drs2004 => Box::new(receiver.with_published_estimates()),
                _ => Box::new(receiver),
            }
        }
        (BufferSizing::Drs | BufferSizing::Drs2004, Role::Sender) => {
            Box::new(DrsSender::new(endpoint, pinned, security))
        }
    }
}
