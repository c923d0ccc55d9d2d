//! Progress if standard error is a file or a pipe: one line every ten seconds.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use client::{CopyEvent, CopyObserver};
use units::show;

use super::{event_message, print_to_stderr, streams_text};

const LINE_PERIOD: Duration = Duration::from_secs(10);

/// Prints a progress line every [`LINE_PERIOD`].
pub(super) struct LineObserver {
    state: Mutex<LineProgress>,
}

struct LineProgress {
    last_line: Instant,
    last_bytes: u64,
    total_bytes: u64,
}

impl LineObserver {
    pub(super) fn new() -> Self {
        let state = LineProgress {
            last_line: Instant::now(),
            last_bytes: 0,
            total_bytes: 0,
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// Prints a line if the last one is old enough. `suffix` is the text about the streams.
    fn progress(&self, bytes: u64, safe: u64, suffix: &str) {
        let Ok(mut state) = self.state.lock() else {
            return;
        };
        let elapsed = state.last_line.elapsed();
        // Progress events arrive several times per second; a log file needs only a few lines.
        if elapsed < LINE_PERIOD {
            return;
        }
        #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
        let rate = bytes.saturating_sub(state.last_bytes) as f64 * 8.0 / elapsed.as_secs_f64();
        let total = match state.total_bytes {
            0 => String::new(),
            total_bytes => format!(" of {}", show::bytes(total_bytes)),
        };
        print_to_stderr(&format!(
            "{}{total}, {}{suffix}",
            // `--resume` continues from the safe bytes, so they are the progress; the rate is that of
            // the data moved.
            show::bytes(safe),
            show::rate(rate)
        ));
        state.last_line = Instant::now();
        state.last_bytes = bytes;
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
                    state.total_bytes = bytes;
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
