//! The report of a league as text for people, and as JSON.

use std::fmt::Write;

use units::show;

use super::{LeagueEntry, LeagueRequest};

/// Paths that are listed as the worst.
const WORST: usize = 10;

/// A league that has run.
#[derive(Debug, Clone, PartialEq)]
pub struct LeagueReport {
    /// The request.
    pub request: LeagueRequest,
    /// One entry per path, in order of the path seeds.
    pub entries: Vec<LeagueEntry>,
}

/// Distribution of one figure.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Quantiles {
    count: usize,
    worst: f64,
    tenth: f64,
    median: f64,
    mean: f64,
}

impl Quantiles {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_unstable_by(f64::total_cmp);
        let count = values.len();
        let at = |share: f64| {
            let index = (count.saturating_sub(1)) as f64 * share;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "an index of the list"
            )]
            values.get(index.round() as usize).copied().unwrap_or(0.0)
        };
        let logarithms: f64 = values.iter().map(|value| value.max(1e-9).ln()).sum();
        Self {
            count,
            worst: at(0.0),
            tenth: at(0.1),
            median: at(0.5),
            mean: (logarithms / count.max(1) as f64).exp(),
        }
    }
}

impl LeagueReport {
    /// Worst ratio, 10th percentile and median of the entries.
    pub fn ratios(&self) -> [f64; 3] {
        let all = Quantiles::of(self.entries.iter().map(|entry| entry.ratio));
        [all.worst, all.tenth, all.median]
    }

    /// Share of the paths on which `auto` used more than twice the streams of the leanest good setting.
    pub fn share_with_many_streams(&self) -> f64 {
        let many = self.entries.iter().filter(|e| e.has_many_streams()).count();
        many as f64 / self.entries.len().max(1) as f64
    }

    /// The report as text.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "{} paths, seed {}{}\n\nratio: time of the best fixed setting / time of auto\n\n",
            self.entries.len(),
            self.request.seed,
            if self.request.history {
                ", the second transfer over each path"
            } else {
                ""
            }
        );
        let _ = writeln!(
            text,
            "{:32} {:>5} {:>7} {:>7} {:>7} {:>7} {:>6}",
            "", "paths", "median", "mean", "p10", "worst", "> 2 N"
        );
        for (name, belongs) in groups() {
            let of_group = || self.entries.iter().filter(|entry| belongs(entry));
            let ratios = Quantiles::of(of_group().map(|entry| entry.ratio));
            let many = of_group().filter(|entry| entry.has_many_streams()).count();
            let _ = writeln!(
                text,
                "{name:32} {:5} {:7.3} {:7.3} {:7.3} {:7.3} {:5.1}%",
                ratios.count,
                ratios.median,
                ratios.mean,
                ratios.tenth,
                ratios.worst,
                many as f64 * 100.0 / ratios.count.max(1) as f64
            );
        }
        text += "\nmean: geometric. > 2 N: auto used more than twice the streams of the leanest fixed setting\nwithin 2 % of the best\n\n";
        self.write_costs(&mut text);
        self.write_fairness(&mut text);
        self.write_promise(&mut text);
        self.write_worst(&mut text);
        text
    }

    /// Medians of streams, queue and memory.
    fn write_costs(&self, text: &mut String) {
        let median =
            |of: fn(&LeagueEntry) -> f64| Quantiles::of(self.entries.iter().map(of)).median;
        let mean = |of: fn(&LeagueEntry) -> f64| {
            self.entries.iter().map(of).sum::<f64>() / self.entries.len().max(1) as f64
        };
        let _ = writeln!(
            text,
            "{:32} {:>9} {:>9} {:>9} {:>9}",
            "", "auto", "", "leanest", ""
        );
        let _ = writeln!(
            text,
            "{:32} {:>9} {:>9} {:>9} {:>9}",
            "", "median", "mean", "median", "mean"
        );
        type CostFigure = fn(&LeagueEntry) -> f64;
        let figures: [(&str, CostFigure, CostFigure); 4] = [
            (
                "streams",
                |e| e.auto_mean_streams,
                |e| f64::from(e.lean_streams),
            ),
            (
                "queueing delay, ms",
                |e| e.auto_queue_seconds * 1e3,
                |e| e.lean_queue_seconds * 1e3,
            ),
            (
                "queueing delay, round trips",
                |e| e.auto_queue_seconds / e.rtt_seconds,
                |e| e.lean_queue_seconds / e.rtt_seconds,
            ),
            (
                "windows and buffers, MB",
                |e| e.auto_memory_bytes / 1e6,
                |e| e.lean_memory_bytes / 1e6,
            ),
        ];
        for (name, auto, lean) in figures {
            let _ = writeln!(
                text,
                "{name:32} {:9.2} {:9.2} {:9.2} {:9.2}",
                median(auto),
                mean(auto),
                median(lean),
                mean(lean)
            );
        }
    }

    /// Shares that are left to others.
    fn write_fairness(&self, text: &mut String) {
        let kept = Quantiles::of(self.entries.iter().filter_map(|e| e.competitors_keep));
        if kept.count > 0 {
            let _ = writeln!(
                text,
                "\ncompetitors beside auto keep, of their rate beside one stream of the system's control: \
                 median {:.2}, p10 {:.2}, worst {:.2} ({} paths)",
                kept.median, kept.tenth, kept.worst, kept.count
            );
        }
    }

    /// How often the told ends were right.
    fn write_promise(&self, text: &mut String) {
        let told = || self.entries.iter().map(|e| &e.told);
        let (held, of): (usize, usize) = (told().map(|t| t.held).sum(), told().map(|t| t.of).sum());
        if of > 0 {
            let widths = Quantiles::of(told().flat_map(|t| t.half_widths.iter().copied()));
            let _ = writeln!(
                text,
                "\nthe end told while a copy runs: {:.0} % of {of} intervals held it; after 30 s they are ± {:.0} % (median of {})",
                held as f64 * 100.0 / of as f64,
                widths.median * 100.0,
                widths.count
            );
        }
    }

    fn write_worst(&self, text: &mut String) {
        let mut worst: Vec<&LeagueEntry> = self.entries.iter().collect();
        worst.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let _ = writeln!(
            text,
            "\nthe worst {} (longhaul lab league --only SEED shows one)",
            WORST.min(worst.len())
        );
        for entry in worst.into_iter().take(WORST) {
            let _ = writeln!(
                text,
                "{:.3}  {}  auto {} ({} to {} streams, mean {:.1}), best {} with {} {}\n       {}",
                entry.ratio,
                entry.path_seed,
                show_seconds(entry.auto_seconds),
                entry.auto_first_streams,
                entry.auto_peak_streams,
                entry.auto_mean_streams,
                show_seconds(entry.best_seconds),
                entry.best_streams,
                entry.best_control,
                entry.path
            );
        }
    }

    /// The report as JSON: the request and all entries.
    pub fn to_json(&self) -> String {
        let [worst, tenth, median] = self.ratios();
        let report = serde_json::json!({
            "paths": self.request.paths,
            "seed": self.request.seed,
            "history": self.request.history,
            "ratio": { "median": median, "p10": tenth, "worst": worst },
            "share_with_many_streams": self.share_with_many_streams(),
            "entries": self.entries,
        });
        format!("{report:#}\n")
    }
}

type LeagueGroup = (&'static str, fn(&LeagueEntry) -> bool);

fn groups() -> [LeagueGroup; 11] {
    [
        ("all", |_| true),
        ("cubic alone, no loss", |e| !e.permits_bbr && !e.is_lossy),
        ("cubic alone, loss", |e| !e.permits_bbr && e.is_lossy),
        ("cubic and bbr, no loss", |e| e.permits_bbr && !e.is_lossy),
        ("cubic and bbr, loss", |e| e.permits_bbr && e.is_lossy),
        ("alone on the path", |e| !e.has_competitors),
        ("with competitors", |e| e.has_competitors),
        ("best takes less than 2 s", |e| e.best_seconds < 2.0),
        ("best takes 2 to 20 s", |e| {
            (2.0..20.0).contains(&e.best_seconds)
        }),
        ("best takes 20 s or more", |e| e.best_seconds >= 20.0),
        ("extrapolated", |e| e.is_extrapolated),
    ]
}

/// A time in seconds, for people.
pub(super) fn show_seconds(seconds: f64) -> String {
    if seconds.is_finite() && seconds < 1e9 {
        show::time(std::time::Duration::from_secs_f64(seconds))
    } else {
        "never".to_owned()
    }
}
