//! Forces to disk, every now and then, what a running transfer has stored: restart markers and
//! resume journals then name bytes that a power cut cannot take back.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::control::TransferControl;
use crate::error::DataError;
use crate::os::wake::{self, WakeEvent};
use crate::store::Sink;
use crate::transfer::ActiveTransfer;

/// Least time between two checkpoints.
const EVERY: Duration = Duration::from_millis(500);
/// After a checkpoint that took long, so many times as long passes without one: a slow disk is not
/// kept busy with flushing.
const REST: u32 = 4;

/// Runs `work` (the streams), with checkpoints beside it where the sink forces bytes to disk. An
/// error of the disk ends the transfer. A transfer that broke ends with a checkpoint, so that the
/// next attempt need not send again what is here; one that was cancelled, or has come to a good end,
/// does not: whoever calls it stored syncs it as a whole.
pub(crate) fn run_with_checkpoints<T>(
    transfer: &ActiveTransfer,
    sink: &Arc<dyn Sink>,
    work: impl FnOnce() -> Result<T, DataError>,
) -> Result<T, DataError> {
    if !sink.is_durable() {
        return work();
    }
    let over = WakeEvent::new().map_err(|e| DataError::setup("an event descriptor", e))?;
    let checkpoints = Checkpointer {
        control: transfer.control(),
        sink: &**sink,
    };
    checkpoints.control.promise_synced();
    let done = std::thread::scope(|scope| {
        let spawned = std::thread::Builder::new()
            .name("checkpoint".to_owned())
            .spawn_scoped(scope, || {
                if let Err(error) = checkpoints.run(&over) {
                    transfer.fail(error);
                }
            });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no checkpoints: nothing is called safe before the end");
        }
        let _tell = CheckpointStopGuard(&over);
        work()
    });
    if done.is_err() && !transfer.control().is_cancelled() && transfer.control().bytes() > 0 {
        checkpoints.take()?;
    }
    done
}

/// Ends the thread, also when the work panics.
struct CheckpointStopGuard<'w>(&'w WakeEvent);

impl Drop for CheckpointStopGuard<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

struct Checkpointer<'t> {
    control: &'t TransferControl,
    sink: &'t dyn Sink,
}

impl Checkpointer<'_> {
    fn run(&self, over: &WakeEvent) -> Result<(), DataError> {
        loop {
            let wait = self.control.time_until_checkpoint(Instant::now(), EVERY);
            let ended = wake::wait([(over.as_fd(), PollFlags::IN)], wait)
                .map_err(|e| DataError::setup("a pause", e))?;
            if ended[0] {
                return Ok(());
            }
            if self
                .control
                .time_until_checkpoint(Instant::now(), EVERY)
                .is_zero()
            {
                self.take()?;
            }
        }
    }

    /// Forces to disk all that is stored now.
    fn take(&self) -> Result<(), DataError> {
        let begun = Instant::now();
        let failed = |error| DataError::write(self.sink, error);
        self.control
            .checkpoint(|| self.sink.sync())
            .map_err(failed)?;
        let took = begun.elapsed();
        self.control
            .defer_checkpoint(Instant::now() + EVERY.max(took * REST));
        Ok(())
    }
}
