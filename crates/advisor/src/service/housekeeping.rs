//! Work that comes back: purging, saving of clients, the load of this machine.

use std::sync::Arc;
use std::time::Duration;

use super::Core;

/// Time between two rounds.
const ROUND: Duration = Duration::from_secs(10);

/// Runs until the service ends.
pub(super) async fn run(core: Arc<Core>) {
    let mut stop = core.stop.subscribe();
    loop {
        core.purge();
        core.save_changed();
        let cpu = cpu_load();
        core.state().cpu = cpu;
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(ROUND) => {}
        }
    }
}

/// Share of the processors that is in use, 0 to 1: the load of the last minute. 0 if it is unknown.
fn cpu_load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = text
        .split(' ')
        .next()
        .and_then(|load| load.parse().ok())
        .unwrap_or(0.0);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (load / processors as f64).clamp(0.0, 1.0)
}
