//! Sizes the socket buffers of a transfer while it runs: one thread a transfer, beside the
//! streams' own. It looks at each stream's kernel state, asks a controller of `tune::sizing`, and
//! sets the options that this answers; with a DRS channel it also speaks there. With the same looks
//! it asks `tune::streams::auto` about the streams that are sent over (`steering`).
//!
//! `crate::handshake` is what has to be set before there is a stream to look at; `policy` is what the
//! thread drives, one file a policy.

mod auto;
mod change_options;
mod drs;
mod drs1;
mod followed_size;
mod policy;
mod sizing_thread;
mod stream_tuning;
mod tcp_sample;

#[cfg(test)]
mod fixtures;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proto::sizing::BufferSizing;
use tune::limiter::Role;
use tune::sizing::BufferBounds;

use crate::error::DataError;
use crate::os::wake::WakeEvent;
use crate::settings::TransferSettings;
use crate::transfer::ActiveTransfer;
use policy::BufferPolicy;
use sizing_thread::SizingThread;
use stream_tuning::StreamTuning;

/// Runs `work` (the streams) with its buffers sized as `settings.options.buffers` says; `most` is what it
/// will move at most, bytes, if that is known. Nothing that fails here fails the transfer: its
/// buffers then stay as they are.
pub(crate) fn run_with_sizing<T>(
    transfer: &ActiveTransfer,
    settings: &TransferSettings,
    role: Role,
    most: Option<u64>,
    work: impl FnOnce() -> Result<T, DataError>,
) -> Result<T, DataError> {
    // A channel must be served whatever the size: the other end may not know it.
    let done = if is_worth_a_thread(most) || settings.drs.is_some() {
        let steering = match role {
            Role::Sender => StreamTuning::for_transfer(transfer, settings, most),
            Role::Receiver => None,
        };
        run_with_policy(transfer, role, policy(settings, role), steering, work)
    } else {
        work()
    };
    transfer.control().notices().on_transfer_end();
    done
}

/// Whether there is anything to do beside a transfer of so many bytes at most, if that is known: what
/// the first window holds moves without anything to size, or to add streams for.
pub(crate) fn is_worth_a_thread(most: Option<u64>) -> bool {
    most.is_none_or(|bytes| bytes > BufferBounds::default().initial)
}

/// Runs `work` with a thread beside it that drives `policy` and `steering`.
fn run_with_policy<T>(
    transfer: &ActiveTransfer,
    role: Role,
    policy: Box<dyn BufferPolicy>,
    steering: Option<StreamTuning<'_>>,
    work: impl FnOnce() -> Result<T, DataError>,
) -> Result<T, DataError> {
    let bell = match WakeEvent::new() {
        Ok(bell) => Arc::new(bell),
        Err(error) => {
            tracing::warn!(%error, "buffers are not sized");
            return work();
        }
    };
    transfer.control().notices().on_transfer_start(&bell);
    let over = AtomicBool::new(false);
    let end = SizingStop {
        over: &over,
        bell: &bell,
    };
    std::thread::scope(|scope| {
        let watch = SizingThread::new(transfer, role, policy, steering, &end);
        let spawned = std::thread::Builder::new()
            .name("sizing".to_owned())
            .spawn_scoped(scope, || watch.run());
        let done = {
            // The thread must hear of the end also when the work panics.
            let _tell = SizingStopGuard(&end);
            work()
        };
        let ended = spawned.map(std::thread::ScopedJoinHandle::join);
        if !matches!(ended, Ok(Ok(()))) {
            tracing::warn!("buffers were not sized to the end");
        }
        done
    })
}

/// Policy that decides about this end's buffers.
fn policy(settings: &TransferSettings, role: Role) -> Box<dyn BufferPolicy> {
    let pinned = match role {
        Role::Sender => settings.options.buffers.send.is_some(),
        Role::Receiver => settings.options.buffers.receive.is_some(),
    };
    let endpoint = settings.drs.as_ref();
    // A pinned end still serves the other one: it tells sizes, and echoes.
    match (settings.options.buffers.sizing, role) {
        (BufferSizing::Kernel, _) => Box::new(policy::KernelBufferPolicy),
        (BufferSizing::Auto, _) if pinned => Box::new(policy::KernelBufferPolicy),
        (BufferSizing::Auto, role) => Box::new(
            auto::AutoBufferPolicy::new(role).with_known_buffer(settings.prior.send_buffer),
        ),
        (BufferSizing::Drs1, Role::Receiver) => Box::new(drs1::Drs1Receiver::new(pinned)),
        (BufferSizing::Drs1, Role::Sender) => Box::new(followed_size::Drs1Sender::new(pinned)),
        (BufferSizing::Drs, Role::Receiver) => {
            let interval = settings.options.drs_interval;
            Box::new(drs::DrsReceiver::new(endpoint, pinned, interval))
        }
        (BufferSizing::Drs, Role::Sender) => Box::new(drs::DrsSender::new(endpoint, pinned)),
    }
}

/// Whether the work is over; the bell rings when it is, and when there is news.
struct SizingStop<'e> {
    over: &'e AtomicBool,
    bell: &'e WakeEvent,
}

/// Tells that the work is over, by being dropped.
struct SizingStopGuard<'e>(&'e SizingStop<'e>);

impl Drop for SizingStopGuard<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
        self.0.bell.wake();
    }
}
