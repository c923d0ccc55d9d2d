//! The observer of `cp` and `sync`: prints events as the flags say, and the summary at the end.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use copy::{CopyEvent, CopyObserver, CopyProgress, CopySummary, Exit};
use parking_lot::Mutex;
use proto::printable::printable;
use units::show;

use super::bar::bar_lines;
use super::console::Console;
use super::failures::{FailureGroups, KnownRetries};
use super::json;
use super::messages::{MessageLevel, event_message};
use super::pace::{Pace, PaceMeter};
use super::progress_text::{plain_line, whole_seconds};
use super::summary_text::{Continuation, SeenWork, continuation_line};

/// Time between two progress lines if standard error is a file or a pipe.
const LINE_PERIOD: Duration = Duration::from_secs(10);

/// How a copy reports its progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputStyle {
    /// `--json`
    Json,
    /// `-q`
    Quiet,
    /// Text: a progress bar if standard error is a terminal, otherwise lines.
    Human,
}

/// Contents and form of the reports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyReporting {
    /// The style.
    pub(crate) style: OutputStyle,
    /// `--dry-run`
    pub(crate) is_dry_run: bool,
    /// `-v`: details are messages, too.
    pub(crate) is_verbose: bool,
    /// How the copy can go on.
    pub(crate) continues: Continuation,
    /// `--stats`: time between two progress lines, or between two JSON objects about progress.
    pub(crate) stats: Option<Duration>,
}

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProgressView {
    None,
    Bar,
    /// Lines, or JSON objects, after this time.
    Every(Duration),
}

/// Prints the events of a copy.
pub(crate) struct CopyOutput {
    reporting: CopyReporting,
    view: ProgressView,
    console: Arc<Console>,
    state: Mutex<OutputState>,
}

#[derive(Default)]
struct OutputState {
    pace: PaceMeter,
    /// Time of the last progress line since the copy began.
    last_report: Duration,
    /// Files move, and the bar is about them.
    is_moving: bool,
    /// The last progress.
    last: Option<(CopyProgress, Pace)>,
    seen: SeenWork,
    retries: KnownRetries,
    /// A server is away, and the user knows.
    missed_since: Option<Instant>,
    failures: FailureGroups,
}

impl CopyOutput {
    /// Prints on `console`, and on standard output with `--json`.
    pub(crate) fn new(reporting: CopyReporting, console: Arc<Console>) -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        let view = match (reporting.style, reporting.stats) {
            (OutputStyle::Json, None) => ProgressView::Every(Duration::ZERO),
            (_, Some(period)) => ProgressView::Every(period),
            (OutputStyle::Quiet, None) => ProgressView::None,
            (OutputStyle::Human, None) if std::io::stderr().is_terminal() && !is_dumb => {
                ProgressView::Bar
            }
            (OutputStyle::Human, None) => ProgressView::Every(LINE_PERIOD),
        };
        Self {
            reporting,
            view,
            console,
            state: Mutex::default(),
        }
    }

    /// Shows that the copy has begun.
    pub(crate) fn begin(&self) {
        self.draw_waiting("connecting");
    }

    /// Prints the summary, which is the last line. `why`: with the bottleneck.
    pub(crate) fn print_summary(&self, summary: &CopySummary, why: bool) {
        self.end_failures();
        if self.view == ProgressView::Bar {
            self.console.clear_bar();
        }
        let (line, is_told) = self.summary_line(summary);
        match self.reporting.style {
            OutputStyle::Human if !is_told => self.console.print(&line),
            _ => self.console.add_to_log(&line),
        }
        match self.reporting.style {
            OutputStyle::Json => json::print_summary(summary),
            _ if why => self.console.print(&summary.why),
            _ => {}
        }
        let is_interrupted = summary.exit == Exit::Interrupted;
        if let Some(line) = continuation_line(summary, self.reporting.continues) {
            self.put(
                is_interrupted || self.reporting.style != OutputStyle::Json,
                [line],
            );
        }
    }

    /// The summary, and whether the messages have told all of it: that no file arrived, and why.
    fn summary_line(&self, summary: &CopySummary) -> (String, bool) {
        let seen = &self.state.lock().seen;
        let line = match self.reporting.is_dry_run {
            true => seen.dry_run_line(summary),
            false => seen.line(summary),
        };
        let all_alike = summary.failed == 1
            || matches!(&summary.most_failed_for, Some((_, files)) if *files == summary.failed);
        let is_told = summary.files == 0 && !seen.has_planned_files() && all_alike;
        (line, is_told)
    }

    /// Prints a line about the progress so far, whatever else is shown.
    pub(crate) fn print_progress(&self) {
        let last = self.state.lock().last.clone();
        match (self.reporting.style, last) {
            (OutputStyle::Json, Some((progress, pace))) => {
                json::print_event(&CopyEvent::Progress(progress), pace);
            }
            (_, Some((progress, pace))) => self.console.print(&plain_line(&progress, pace)),
            (_, None) => self.console.print("no file moves yet"),
        }
    }

    /// Says that the rate limit was suspended, or is in force again with this rate in bytes per second.
    pub(crate) fn rate_limit_changed(&self, limit: Option<u64>) {
        let text = match limit {
            None => "rate limit suspended (SIGUSR2)".to_owned(),
            Some(u64::MAX) => "rate limit in force again (SIGUSR2): off now".to_owned(),
            Some(limit) => {
                let rate = show::rate(bits(limit));
                format!("rate limit in force again (SIGUSR2): {rate}")
            }
        };
        match self.reporting.style {
            OutputStyle::Human => self.console.print(&text),
            OutputStyle::Json | OutputStyle::Quiet => self.console.add_to_log(&text),
        }
        if self.reporting.style == OutputStyle::Json {
            let in_force = limit.filter(|limit| *limit != u64::MAX);
            json::print_rate_limit(limit.is_none(), in_force.map(bits));
        }
    }

    fn message(&self, event: &CopyEvent) {
        let Some((level, text)) = event_message(event) else {
            return;
        };
        // One line, also if the name of a file has a line break: what follows that could pass for another message.
        let text = printable(&text).to_string();
        let is_verbose = self.reporting.is_verbose;
        let is_shown = match (self.reporting.style, level) {
            (_, MessageLevel::Detail) => is_verbose,
            (OutputStyle::Json, _) => false,
            (OutputStyle::Quiet, level) => level == MessageLevel::Error,
            (OutputStyle::Human, _) => true,
        };
        match level {
            MessageLevel::Detail if is_shown => self.console.print(&text),
            MessageLevel::Detail => {}
            MessageLevel::Error => {
                let is_new = self.is_new_failure(event);
                self.put(is_shown && (is_new || is_verbose), [text]);
            }
            MessageLevel::Notice => {
                let is_repeated = self.is_known_retry(event);
                self.put(is_shown && (!is_repeated || is_verbose), [text]);
            }
        }
    }

    /// Whether a failure is the first one of its cause.
    fn is_new_failure(&self, event: &CopyEvent) -> bool {
        let CopyEvent::Failed {
            source,
            failure,
            cause,
        } = event
        else {
            return true;
        };
        let message = failure.to_string();
        self.state.lock().failures.is_new((source, &message), cause)
    }

    /// Whether the user knows of a retry: another file waits for the same reason, or for a server that is away.
    fn is_known_retry(&self, event: &CopyEvent) -> bool {
        let CopyEvent::Retrying {
            reason,
            attempt,
            away,
            ..
        } = event
        else {
            return false;
        };
        let Some(away) = away else {
            return !self.state.lock().retries.is_new(reason, *attempt);
        };
        let known = self
            .state
            .lock()
            .missed_since
            .replace(Instant::now() - away.since);
        if known.is_none() {
            self.draw_waiting("reconnecting");
        }
        known.is_some()
    }

    /// Says that a server that was away can be reached again, if the event shows that.
    fn end_outage(&self, event: &CopyEvent) {
        let goes_on = match event {
            CopyEvent::Progress(progress) => progress.away.is_none(),
            CopyEvent::Planned { .. } | CopyEvent::Started { .. } | CopyEvent::Finished { .. } => {
                true
            }
            _ => false,
        };
        if !goes_on {
            return;
        }
        if let Some(since) = self.state.lock().missed_since.take() {
            let time = whole_seconds(since.elapsed());
            let is_shown = self.reporting.style == OutputStyle::Human;
            self.put(
                is_shown,
                [format!("longhaul: connected again after {time}")],
            );
        }
    }

    /// Prints lines, or adds them to the log alone.
    fn put(&self, is_shown: bool, lines: impl IntoIterator<Item = String>) {
        for line in lines {
            match is_shown {
                true => self.console.print(&line),
                false => self.console.add_to_log(&line),
            }
        }
    }

    /// Says how many more files failed for the causes that were told.
    fn end_failures(&self) {
        let rest = self.state.lock().failures.take_rest();
        let is_told = self.reporting.style == OutputStyle::Json || self.reporting.is_verbose;
        let lines = rest.iter().map(|line| printable(line).to_string());
        self.put(!is_told, lines);
    }

    fn progress(&self, progress: &CopyProgress, event: &CopyEvent) {
        let mut state = self.state.lock();
        state.is_moving = true;
        if state
            .last
            .as_ref()
            .is_some_and(|(last, _)| last.bytes < progress.bytes)
        {
            state.retries = KnownRetries::default();
        }
        let pace = state.pace.update(progress);
        state.last = Some((progress.clone(), pace));
        match self.view {
            ProgressView::None => {}
            ProgressView::Bar => self
                .console
                .draw_bar(|columns| bar_lines(progress, pace, columns)),
            ProgressView::Every(period) => {
                // Progress events arrive several times per second; a log needs only a few lines.
                if progress.elapsed.saturating_sub(state.last_report) < period {
                    return;
                }
                state.last_report = progress.elapsed;
                match self.reporting.style {
                    OutputStyle::Json => json::print_event(event, pace),
                    OutputStyle::Quiet | OutputStyle::Human => {
                        let line = plain_line(progress, pace);
                        self.console.print(&printable(&line).to_string());
                    }
                }
            }
        }
    }

    /// Shows a step before files move.
    fn draw_waiting(&self, text: &str) {
        if self.view == ProgressView::Bar && !self.state.lock().is_moving {
            self.console
                .draw_bar(|columns| vec![super::bar::shortened(text, columns)]);
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "rates have three digits")]
fn bits(bytes: u64) -> f64 {
    bytes as f64 * 8.0
}

impl CopyObserver for CopyOutput {
    fn on_event(&self, event: CopyEvent) {
        self.state.lock().seen.note(&event);
        self.end_outage(&event);
        self.message(&event);
        match &event {
            CopyEvent::Progress(progress) => return self.progress(progress, &event),
            // All that the listing has shown to fail is told before anything moves.
            CopyEvent::Listed => self.end_failures(),
            CopyEvent::Planned { files, bytes } if *files > 1 => {
                let bytes = show::bytes(*bytes);
                self.draw_waiting(&format!("{} found, {bytes}", show::count(files, "file")));
            }
            _ => {}
        }
        if self.reporting.style == OutputStyle::Json {
            json::print_event(&event, Pace::default());
        }
    }
}

impl Drop for CopyOutput {
    fn drop(&mut self) {
        self.end_failures();
        if self.view == ProgressView::Bar {
            self.console.clear_bar();
        }
    }
}
