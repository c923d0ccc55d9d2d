//! Sizes the socket buffers of a transfer while it runs: one thread per transfer, beside the stream
//! threads. It samples each stream's kernel state, asks a tuner of `tune::sizing`, and sets the
//! socket options that this returns. It also serves the DRS channel. With the same samples it asks
//! `tune::streams::auto` about the sending streams (`stream_tuning`).
//!
//! `crate::handshake` sets what must be set before there is a stream to sample. `policy` is the
//! interface of a buffer policy; each policy has its own file.

mod auto;
mod change_options;
mod drs;
mod drs1;
mod followed_size;
mod policy;
mod sizing_thread;
mod stream_tuning;

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

/// Runs `work` (the streams) with its buffers sized as `settings.options.buffers` says. `max_bytes`
/// is the most that it will move, if that is known. No failure here fails the transfer: its
/// buffers then stay as they are.
pub(crate) fn run_with_sizing<T>(
    transfer: &ActiveTransfer,
    settings: &TransferSettings,
    role: Role,
    max_bytes: Option<u64>,
    work: impl FnOnce() -> Result<T, DataError>,
) -> Result<T, DataError> {
    // A DRS channel must be served for any size, because the peer may not know the size.
    let done = if is_worth_a_thread(max_bytes) || settings.drs.is_some() {
        let tuning = match role {
            Role::Sender => StreamTuning::for_transfer(transfer, settings, max_bytes),
            Role::Receiver => None,
        };
        run_with_policy(transfer, role, policy(settings, role), tuning, work)
    } else {
        work()
    };
    transfer.control().notices().on_transfer_end();
    done
}

/// Whether a transfer of at most `max_bytes` needs the sizing thread: data within the initial
/// window needs neither larger buffers nor more streams.
pub(crate) fn is_worth_a_thread(max_bytes: Option<u64>) -> bool {
    max_bytes.is_none_or(|bytes| bytes > BufferBounds::default().initial)
}

/// Runs `work` with a thread that drives `policy` and `tuning`.
fn run_with_policy<T>(
    transfer: &ActiveTransfer,
    role: Role,
    policy: Box<dyn BufferPolicy>,
    tuning: Option<StreamTuning<'_>>,
    work: impl FnOnce() -> Result<T, DataError>,
) -> Result<T, DataError> {
    let wake_event = match WakeEvent::new() {
        Ok(wake_event) => Arc::new(wake_event),
        Err(error) => {
            tracing::warn!(%error, "cannot create an event descriptor: buffers are not sized");
            return work();
        }
    };
    transfer.control().notices().on_transfer_start(&wake_event);
    let is_over = AtomicBool::new(false);
    let stop = SizingStop {
        is_over: &is_over,
        wake_event: &wake_event,
    };
    std::thread::scope(|scope| {
        let watch = SizingThread::new(transfer, role, policy, tuning, &stop);
        let spawned = std::thread::Builder::new()
            .name("sizing".to_owned())
            .spawn_scoped(scope, || watch.run());
        let done = {
            // The thread must end also when the work panics.
            let _stop_guard = SizingStopGuard(&stop);
            work()
        };
        let ended = spawned.map(std::thread::ScopedJoinHandle::join);
        if !matches!(ended, Ok(Ok(()))) {
            tracing::warn!("the sizing thread failed: buffers were not sized to the end");
        }
        done
    })
}

/// The policy for this end's buffers.
fn policy(settings: &TransferSettings, role: Role) -> Box<dyn BufferPolicy> {
    let pinned = match role {
        Role::Sender => settings.options.buffers.send.is_some(),
        Role::Receiver => settings.options.buffers.receive.is_some(),
    };
    let endpoint = settings.drs.as_ref();
    let security = settings.security.as_ref();
    // A pinned end still serves the other one: it announces sizes, and echoes.
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
            Box::new(drs::DrsReceiver::new(endpoint, pinned, interval, security))
        }
        (BufferSizing::Drs, Role::Sender) => {
            Box::new(drs::DrsSender::new(endpoint, pinned, security))
        }
    }
}

/// Tells the sizing thread that the work has ended. The event is set then, and when there is
/// something new.
struct SizingStop<'e> {
    is_over: &'e AtomicBool,
    wake_event: &'e WakeEvent,
}

/// Ends the sizing thread when it is dropped.
struct SizingStopGuard<'e>(&'e SizingStop<'e>);

impl Drop for SizingStopGuard<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
        self.0.wake_event.wake();
    }
}
