//! Checkpoints: forces the stored bytes of a running transfer to disk from time to time. Restart
//! markers and resume journals then name bytes that survive a power failure.

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
const MIN_INTERVAL: Duration = Duration::from_millis(500);
/// After a slow checkpoint, this multiple of its duration passes before the next one, so that a
/// slow disk does not spend its time flushing.
const PAUSE_FACTOR: u32 = 4;

/// Runs `work` (the streams) with checkpoints in a second thread if the sink forces bytes to disk.
/// A disk error ends the transfer. A failed transfer ends with a checkpoint, so that the next
/// attempt need not send the stored bytes again. A cancelled or complete one does not: its caller
/// syncs the whole file.
pub(crate) fn run_with_checkpoints<T>(
    transfer: &ActiveTransfer,
    sink: &Arc<dyn Sink>,
    work: impl FnOnce() -> Result<T, DataError>,
) -> Result<T, DataError> {
    // A store without durability promises nothing, so every stored range counts as safe.
    if !sink.is_durable() {
        return work();
    }
    let stop = WakeEvent::new().map_err(|e| DataError::setup("an event descriptor", e))?;
    let checkpoints = Checkpointer {
        control: transfer.control(),
        sink: &**sink,
    };
    checkpoints.control.promise_synced();
    let done = std::thread::scope(|scope| {
        let spawned = std::thread::Builder::new()
            .name("checkpoint".to_owned())
            .spawn_scoped(scope, || {
                if let Err(error) = checkpoints.run(&stop) {
                    transfer.fail(error);
                }
            });
        if let Err(error) = spawned {
            tracing::warn!(%error, "cannot start the checkpoint thread: no bytes are reported as safe before the end");
        }
        // The guard drops before the scope joins the thread, so the join cannot wait for ever.
        let _stop_guard = CheckpointStopGuard(&stop);
        work()
    });
    // Bytes of a failed transfer are worth a flush only if there are any and nobody cancelled.
    if done.is_err() && !transfer.control().is_cancelled() && transfer.control().bytes() > 0 {
        checkpoints.take()?;
    }
    done
}

/// Ends the checkpoint thread, also when the work panics.
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
    fn run(&self, stop: &WakeEvent) -> Result<(), DataError> {
        loop {
            let wait = self
                .control
                .time_until_checkpoint(Instant::now(), MIN_INTERVAL);
            let ended = wake::wait([(stop.as_fd(), PollFlags::IN)], wait)
                .map_err(|e| DataError::setup("poll(2)", e))?;
            if ended[0] {
                return Ok(());
            }
            // Parts of one transfer share the due time: another part's checkpoint may have moved
            // it.
            if self
                .control
                .time_until_checkpoint(Instant::now(), MIN_INTERVAL)
                .is_zero()
            {
                self.take()?;
            }
        }
    }

    /// Forces all bytes stored so far to disk.
    fn take(&self) -> Result<(), DataError> {
        let started = Instant::now();
        let failed = |error| DataError::write(self.sink, error);
        // `checkpoint` reads the stored ranges before the sync, so bytes that arrive during it are
        // not reported as safe.
        self.control
            .checkpoint(|| self.sink.sync())
            .map_err(failed)?;
        let elapsed = started.elapsed();
        self.control
            .defer_checkpoint(Instant::now() + MIN_INTERVAL.max(elapsed * PAUSE_FACTOR));
        Ok(())
    }
}
