//! Progress where standard error is a file or a pipe: a line every ten seconds.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use client::{CopyEvent, CopyObserver};
use units::show;

use super::{event_message, print_to_stderr, streams_text};

const PERIOD: Duration = Duration::from_secs(10);

/// A line now and then.
pub(super) struct LineObserver {
    state: Mutex<LineProgress>,
}

struct LineProgress {
    since: Instant,
    bytes_then: u64,
    planned: u64,
}

impl LineObserver {
    pub(super) fn new() -> Self {
        let state = LineProgress {
            since: Instant::now(),
            bytes_then: 0,
            planned: 0,
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// `wire` is what is said of the streams.
    fn progress(&self, bytes: u64, safe: u64, wire: &str) {
        let Ok(mut state) = self.state.lock() else {
            return;
        };
        let elapsed = state.since.elapsed();
        if elapsed < PERIOD {
            return;
        }
        #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
        let rate = bytes.saturating_sub(state.bytes_then) as f64 * 8.0 / elapsed.as_secs_f64();
        let of = match state.planned {
            0 => String::new(),
            planned => format!(" of {}", show::bytes(planned)),
        };
        print_to_stderr(&format!(
            "{}{of}, {}{wire}",
            show::bytes(safe),
            show::rate(rate)
        ));
        state.since = Instant::now();
        state.bytes_then = bytes;
    }
}

impl CopyObserver for LineObserver {
    fn on_event(&self, event: CopyEvent) {
        if let Some(line) = event_message(&event) {
            print_to_stderr(&line);
        }
        match event {
            CopyEvent::Planned { bytes, .. } => {
                if let Ok(mut state) = self.state.lock() {
                    state.planned = bytes;
                }
            }
            CopyEvent::Progress {
                bytes,
                safe,
                streams,
                limiter,
                ..
            } => self.progress(bytes, safe, &streams_text(streams, None, limiter)),
            _ => {}
        }
    }
}
