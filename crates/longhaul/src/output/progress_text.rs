//! The words that describe the progress of a copy: what the bar and the plain lines are made of.

use std::time::Duration;

use copy::CopyProgress;
use tune::forecast::Forecast;
use units::show;

use super::pace::Pace;

/// An interval of this width, or of a tenth of the time, is shown as one time.
const NARROW: Duration = Duration::from_secs(2);
/// Longer times are not shown.
const LONGEST_SHOWN: Duration = Duration::from_secs(100 * 86_400);
/// Silence from which it is shown, where this machine moves the bytes.
const SILENT_HERE: Duration = Duration::from_secs(3);
/// Silence from which it is shown between two servers, which report every few seconds.
const SILENT_THERE: Duration = Duration::from_secs(12);

/// The share that is done, in whole per cent; `None`: the total is unknown.
pub(super) fn percentage(progress: &CopyProgress) -> Option<u64> {
    let (done, total) = (progress.done, progress.total_bytes);
    let is_known = progress.is_listed && total > 0 && done <= total;
    let percent = u128::from(done) * 100 / u128::from(total.max(1));
    u64::try_from(percent).ok().filter(|_| is_known)
}

/// `45% of 2.70 GB`; while files are found `1.20 GB of 2.70 GB found`; `1.20 GB` if the total is unknown.
pub(super) fn short_amount(progress: &CopyProgress) -> String {
    let total = show::bytes(progress.total_bytes);
    match percentage(progress) {
        Some(percent) => format!("{percent}% of {total}"),
        None => unknown_amount(progress),
    }
}

/// `1.20 GB of 2.70 GB (45%)`, or as [`short_amount`].
pub(super) fn amount(progress: &CopyProgress) -> String {
    let total = show::bytes(progress.total_bytes);
    match percentage(progress) {
        Some(percent) => format!("{} of {total} ({percent}%)", show::bytes(progress.done)),
        None => unknown_amount(progress),
    }
}

fn unknown_amount(progress: &CopyProgress) -> String {
    let done = show::bytes(progress.done);
    match progress.done <= progress.total_bytes && progress.total_bytes > 0 {
        true => format!("{done} of {} found", show::bytes(progress.total_bytes)),
        // The sizes of some files are unknown, so the total is too small.
        false => done,
    }
}

/// `12 of 340 files`; `None` for a single file.
pub(super) fn files(progress: &CopyProgress) -> Option<String> {
    let more = if progress.is_listed { "" } else { " found" };
    let is_batch = progress.total_files > 1;
    is_batch.then(|| format!("{} of {} files{more}", progress.files, progress.total_files))
}

/// `5.1 files/s`; `None` for a single file, and while none is complete.
pub(super) fn file_rate(progress: &CopyProgress, pace: Pace) -> Option<String> {
    let shown = match pace.files_per_second {
        rate if rate < 0.05 => return None,
        rate if rate < 9.95 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    };
    (progress.total_files > 1).then(|| format!("{shown} files/s"))
}

/// The text in place of the rate while nothing moves.
fn standstill(progress: &CopyProgress, pace: Pace) -> Option<String> {
    reconnecting(progress).or_else(|| silence(progress, pace))
}

/// `reconnecting for 45 s`, if a server is away and nothing moves through this machine.
fn reconnecting(progress: &CopyProgress) -> Option<String> {
    let away = progress.away.filter(|_| progress.streams == 0);
    away.map(|away| format!("reconnecting for {}", whole_seconds(away)))
}

/// `no data for 12 s`, if nothing has moved for some time although something could.
pub(super) fn silence(progress: &CopyProgress, pace: Pace) -> Option<String> {
    let waits = progress.moving > 0 && !is_verifying(progress);
    let (text, limit) = match progress.streams {
        0 => ("nothing reported", SILENT_THERE),
        _ => ("no data", SILENT_HERE),
    };
    let is_silent = waits && pace.silent >= limit;
    is_silent.then(|| format!("{text} for {}", whole_seconds(pace.silent)))
}

/// Whether the file that is named has all its bytes.
pub(super) fn is_verifying(progress: &CopyProgress) -> bool {
    let current = progress.current.as_ref();
    current.is_some_and(|file| file.done > 0 && file.bytes.is_some_and(|all| file.done >= all))
}

/// The rate, or that there is none; `None` when all bytes have moved.
pub(super) fn rate(progress: &CopyProgress, pace: Pace) -> Option<String> {
    let is_complete = progress.total_bytes > 0 && progress.done == progress.total_bytes;
    if is_complete && progress.is_listed {
        return None;
    }
    let rate = || show::rate(pace.bytes_per_second * 8.0);
    Some(standstill(progress, pace).unwrap_or_else(rate))
}

/// `ends in 3:10-3:40`; `None` if it is unknown, over, or nothing moves.
pub(super) fn remaining(progress: &CopyProgress, pace: Pace) -> Option<String> {
    let moves = progress.done < progress.total_bytes && standstill(progress, pace).is_none();
    pace.left.filter(|_| moves).map(ends_in)
}

/// The end as an interval; as one time if that says the same.
fn ends_in(left: Forecast) -> String {
    match time_range(left) {
        Some(range) => format!("ends in {range}"),
        None => "end unknown".to_owned(),
    }
}

/// `3:10-3:40`, or `3:20` if the interval is narrow. `None`: more than 100 days, the transfer practically stands still.
pub(super) fn time_range(left: Forecast) -> Option<String> {
    let width = left.latest.saturating_sub(left.earliest);
    if left.expected >= LONGEST_SHOWN {
        return None;
    }
    let is_narrow = width <= (left.expected / 10).max(NARROW);
    let step = match left.expected.as_secs() {
        _ if is_narrow => 1,
        0..60 => 1,
        60..600 => 5,
        600..3600 => 30,
        3600..86_400 => 60,
        _ => 3600,
    };
    if is_narrow {
        return Some(clock(left.expected.as_secs()));
    }
    let earliest = clock(left.earliest.as_secs() / step * step);
    if left.latest >= LONGEST_SHOWN {
        return Some(format!("{earliest} or later"));
    }
    let latest = clock(left.latest.as_secs().div_ceil(step) * step);
    let between = if latest.contains(' ') { " to " } else { "-" };
    Some(format!("{earliest}{between}{latest}"))
}

/// `3:12`, `3 h 12 min`, `2 d 3 h`.
fn clock(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..3600 => format!("{minutes}:{:02}", seconds % 60),
        3600..86_400 => format!("{hours} h {:02} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// `4 streams`; `None` without any.
pub(super) fn streams(progress: &CopyProgress) -> Option<String> {
    (progress.streams > 0).then(|| show::count(progress.streams, "stream"))
}

/// `limited by receive window`, if known.
pub(super) fn limiter(progress: &CopyProgress) -> Option<String> {
    let limiter = progress.limiter.filter(|_| progress.streams > 0);
    limiter.map(|limiter| format!("limited by {limiter}"))
}

/// One plain line with everything.
pub(super) fn plain_line(progress: &CopyProgress, pace: Pace) -> String {
    let name = progress.current.as_ref().map(|file| {
        let verifying = if is_verifying(progress) {
            "verifying "
        } else {
            ""
        };
        format!("{verifying}{}", file.source)
    });
    let parts = [
        Some(amount(progress)),
        rate(progress, pace),
        remaining(progress, pace),
        files(progress),
        file_rate(progress, pace),
        streams(progress),
        limiter(progress),
        name,
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// A time in whole seconds, from a minute on with minutes, from an hour on with hours.
pub(super) fn whole_seconds(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 if seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds @ 60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use copy::MovingFile;

    use super::*;

    fn progress() -> CopyProgress {
        CopyProgress {
            done: 450,
            total_bytes: 1000,
            is_listed: true,
            files: 12,
            total_files: 340,
            current: Some(MovingFile {
                source: "ftp://h/a".to_owned(),
                bytes: Some(500),
                done: 100,
            }),
            moving: 1,
            streams: 4,
            limiter: Some("receive window"),
            ..CopyProgress::default()
        }
    }

    fn forecast([earliest, expected, latest]: [u64; 3]) -> Forecast {
        Forecast {
            earliest: Duration::from_secs(earliest),
            expected: Duration::from_secs(expected),
            latest: Duration::from_secs(latest),
        }
    }

    fn pace() -> Pace {
        Pace {
            bytes_per_second: 125_000.0,
            files_per_second: 5.13,
            left: Some(forecast([180, 192, 211])),
            silent: Duration::ZERO,
        }
    }

    #[test]
    fn a_plain_line_has_everything() {
        assert_eq!(
            plain_line(&progress(), pace()),
            "450 B of 1.00 kB (45%), 1.00 Mbit/s, ends in 3:00-3:35, 12 of 340 files, 5.1 files/s, 4 streams, \
             limited by receive window, ftp://h/a"
        );
    }

    #[test]
    fn no_percentage_is_shown_while_files_are_found_or_if_sizes_are_unknown() {
        let known = progress();
        assert_eq!(short_amount(&known), "45% of 1.00 kB");
        let listing = CopyProgress {
            is_listed: false,
            ..progress()
        };
        assert_eq!(short_amount(&listing), "450 B of 1.00 kB found");
        assert_eq!(files(&listing).unwrap(), "12 of 340 files found");
        for total_bytes in [0, 449] {
            let unknown = CopyProgress {
                total_bytes,
                ..progress()
            };
            assert_eq!(amount(&unknown), "450 B");
        }
    }

    #[test]
    fn silence_is_shown_unless_the_file_is_complete() {
        let silent = |seconds| Pace {
            silent: Duration::from_secs(seconds),
            ..pace()
        };
        let rate = |progress: &CopyProgress, pace| rate(progress, pace).unwrap();
        assert_eq!(rate(&progress(), silent(2)), "1.00 Mbit/s");
        assert_eq!(rate(&progress(), silent(12)), "no data for 12 s");
        assert_eq!(rate(&progress(), silent(90)), "no data for 1 min 30 s");
        assert_eq!(rate(&progress(), silent(7300)), "no data for 2 h 1 min");
        let between_servers = CopyProgress {
            streams: 0,
            ..progress()
        };
        assert_eq!(rate(&between_servers, silent(5)), "1.00 Mbit/s");
        assert_eq!(
            rate(&between_servers, silent(12)),
            "nothing reported for 12 s"
        );
        let complete = CopyProgress {
            current: Some(MovingFile {
                source: "a".to_owned(),
                bytes: Some(500),
                done: 500,
            }),
            ..progress()
        };
        assert_eq!(silence(&complete, silent(12)), None);
        assert_eq!(remaining(&progress(), silent(12)), None);
        assert!(plain_line(&complete, silent(12)).ends_with("verifying a"));
    }

    #[test]
    fn a_server_that_is_away_takes_the_place_of_the_rate_and_the_time_left() {
        let away = CopyProgress {
            away: Some(Duration::from_secs(75)),
            streams: 0,
            ..progress()
        };
        let shown = "reconnecting for 1 min 15 s";
        assert_eq!(rate(&away, pace()).unwrap(), shown);
        assert_eq!(remaining(&away, pace()), None);
        assert!(plain_line(&away, pace()).contains(shown));
        // Other files move.
        let streams = CopyProgress { streams: 1, ..away };
        assert_eq!(rate(&streams, pace()).unwrap(), "1.00 Mbit/s");
    }

    #[test]
    fn the_end_is_an_interval_or_one_time_if_that_is_narrow() {
        for (seconds, shown) in [
            ([0, 0, 1], "ends in 0:00"),
            ([9, 12, 16], "ends in 0:09-0:16"),
            ([121, 125, 130], "ends in 2:05"),
            ([193, 202, 218], "ends in 3:10-3:40"),
            ([3_500, 3_900, 4_400], "ends in 58:00 to 1 h 14 min"),
            ([7_200, 7_260, 7_300], "ends in 2 h 01 min"),
            ([80_000, 90_000, 110_000], "ends in 22 h 00 min to 1 d 7 h"),
            (
                [8_000_000, 8_600_000, 9_000_000],
                "ends in 92 d 14 h or later",
            ),
            ([0, 200 * 86_400, u64::MAX], "end unknown"),
        ] {
            assert_eq!(ends_in(forecast(seconds)), shown);
        }
    }
}
