//! Work that comes back: purging, saving of clients, the use of this machine's processors.

use std::sync::Arc;
use std::time::Duration;

use super::Core;
use crate::processor_ticks::ProcessorTicks;

/// Time between two rounds.
const ROUND: Duration = Duration::from_secs(10);

/// Runs until the service ends.
pub(super) async fn run(core: Arc<Core>) {
    let mut stop = core.stop.subscribe();
    let mut before = ProcessorTicks::now();
    loop {
        core.purge();
        core.save_changed();
        let ticks = ProcessorTicks::now();
        // 0, if it is unknown: tests are not held back for ever.
        let used = before
            .zip(ticks)
            .and_then(|(before, now)| now.used_since(before));
        core.state().cpu = used.unwrap_or(0.0);
        before = ticks;
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(ROUND) => {}
        }
    }
}
