//! The progress bar on a terminal.

use std::sync::Mutex;
use std::time::Duration;

use client::{CopyEvent, CopyObserver};
use indicatif::{ProgressBar, ProgressStyle};
use units::show;

use super::{event_message, streams_text};

/// Weight of the newest rate in the exponential moving average that is shown.
const SMOOTHING: f64 = 0.3;

/// One bar for the whole batch.
pub(super) struct BarObserver {
    bar: ProgressBar,
    rate: Mutex<SmoothedRate>,
}

/// Exponential moving average of the rate, computed from byte totals.
#[derive(Default)]
struct SmoothedRate {
    last: Option<(std::time::Instant, u64)>,
    bytes_per_second: f64,
}

impl SmoothedRate {
    fn update(&mut self, total: u64) -> f64 {
        let now = std::time::Instant::now();
        if let Some((then, before)) = self.last {
            let seconds = now.duration_since(then).as_secs_f64();
            // A rate over a shorter time would be mostly noise.
            if seconds < 0.05 {
                return self.bytes_per_second;
            }
            #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
            let rate = total.saturating_sub(before) as f64 / seconds;
            // The first rate starts the average; otherwise it would rise slowly from 0.
            self.bytes_per_second = if self.bytes_per_second == 0.0 {
                rate
            } else {
                SMOOTHING * rate + (1.0 - SMOOTHING) * self.bytes_per_second
            };
        }
        self.last = Some((now, total));
        self.bytes_per_second
    }
}

impl BarObserver {
    pub(super) fn new() -> Self {
        let bar = Self::with_bar(ProgressBar::new(0));
        // The bar moves even if no progress event arrives, which shows that the program is alive.
        bar.bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }

    fn with_bar(bar: ProgressBar) -> Self {
        set_bar_style(&bar, false);
        Self {
            bar,
            rate: Mutex::default(),
        }
    }

    /// Updates the bar. `suffix` is the text about the streams.
    fn progress(&self, moved: u64, safe: u64, suffix: &str) {
        let rate = match self.rate.lock() {
            Ok(mut rate) => rate.update(moved),
            Err(_) => return,
        };
        let total = self.bar.length().unwrap_or(0);
        if total < safe {
            // The sizes of some files are unknown, so the total is too small.
            set_bar_style(&self.bar, false);
        }
        self.bar.set_position(safe);
        let mut message = format!("{} {}", show::bytes(safe), show::rate(rate * 8.0));
        if rate > 1.0 && total > safe {
            #[allow(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "whole seconds are shown"
            )]
            let left = ((total - safe) as f64 / rate) as u64;
            message.push_str(&format!(", {}", time_left(left)));
        }
        message.push_str(suffix);
        self.bar.set_message(message);
    }
}

/// Shows bar and percentage only if the total is known.
fn set_bar_style(bar: &ProgressBar, known: bool) {
    let template = match known {
        true => "{bar:30} {percent:>3}% {wide_msg}",
        false => "{wide_msg}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
}

/// The remaining time as text, rounded to what an estimate can provide.
fn time_left(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..3600 => format!("{minutes}:{:02} left", seconds % 60),
        3600..86_400 => format!("{hours} h {:02} min left", minutes % 60),
        86_400..8_640_000 => format!("{days} d {} h left", hours % 24),
        // More than 100 days: the transfer practically stands still.
        _ => "time left unknown".to_owned(),
    }
}

impl CopyObserver for BarObserver {
    fn on_event(&self, event: CopyEvent) {
        if let Some(line) = event_message(&event) {
            // Suspended, so that the message does not overwrite the bar.
            self.bar.suspend(|| super::print_to_stderr(&line));
        }
        match event {
            CopyEvent::Planned { bytes, .. } => {
                set_bar_style(&self.bar, bytes > 0);
                self.bar.set_length(bytes);
            }
            CopyEvent::Progress {
                bytes,
                safe,
                streams,
                buffer_bytes,
                limiter,
            } => {
                let suffix = match streams {
                    0 => String::new(),
                    _ => streams_text(streams, Some(buffer_bytes), limiter),
                };
                self.progress(bytes, safe, &suffix);
            }
            _ => {}
        }
    }
}

impl Drop for BarObserver {
    fn drop(&mut self) {
        // The summary follows and contains everything that the bar showed.
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use indicatif::{ProgressDrawTarget, TermLike};

    use super::*;

    /// A terminal that stores what was written to it.
    #[derive(Debug, Clone, Default)]
    struct CapturedTerminal(Arc<Mutex<String>>);

    impl TermLike for CapturedTerminal {
        fn width(&self) -> u16 {
            80
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_percentage_is_shown_if_the_size_is_unknown() {
        let screen = CapturedTerminal::default();
        let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
        let bar = BarObserver::with_bar(ProgressBar::with_draw_target(Some(0), target));
        let shown = |event: CopyEvent| {
            bar.on_event(event);
            screen.0.lock().unwrap().clear();
            bar.bar.force_draw();
            screen.0.lock().unwrap().clone()
        };
        let planned = |bytes| CopyEvent::Planned { files: 1, bytes };
        let safe = |safe| CopyEvent::Progress {
            bytes: safe,
            safe,
            streams: 1,
            buffer_bytes: 0,
            limiter: None,
        };
        shown(planned(0));
        let unknown = shown(safe(5));
        assert!(
            unknown.contains("5 B") && !unknown.contains('%'),
            "{unknown}"
        );
        shown(planned(10));
        let known = shown(safe(5));
        assert!(known.contains("50%"), "{known}");
        // More bytes arrived than were announced.
        let more = shown(safe(11));
        assert!(more.contains("11 B") && !more.contains('%'), "{more}");
    }

    #[test]
    fn time_left_is_shown_in_minutes_hours_or_days() {
        for (seconds, shown) in [
            (0, "0:00 left"),
            (125, "2:05 left"),
            (7_260, "2 h 01 min left"),
            (90_000, "1 d 1 h left"),
            (122_589 * 60, "85 d 3 h left"),
            (200 * 86_400, "time left unknown"),
            (u64::MAX, "time left unknown"),
        ] {
            assert_eq!(time_left(seconds), shown);
        }
    }
}
