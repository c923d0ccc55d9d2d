//! The two lines of the bar, as wide as the terminal.

use copy::{CopyProgress, MovingFile};
use proto::printable::printable;
use unicode_width::UnicodeWidthStr;
use units::show;

use super::pace::Pace;
use super::progress_text as text;

/// Between two parts of a line.
const GAP: &str = "  ";
/// A name is not shortened below this many columns.
const LEAST_NAME: usize = 12;
/// Columns of the graph, with its brackets.
const GRAPH: std::ops::RangeInclusive<usize> = 12..=32;

/// Both lines in at most `columns` columns: what moves, and how it goes.
pub(super) fn bar_lines(progress: &CopyProgress, pace: Pace, columns: usize) -> Vec<String> {
    let lines = [
        file_line(progress, pace, columns),
        rate_line(progress, pace, columns),
    ];
    // Between two files, and after the last one, there may be nothing to name.
    lines.into_iter().filter(|line| !line.is_empty()).collect()
}

/// A part of a line, and how early it is left out: the highest number first.
type LinePart = (u8, Option<String>);

/// The parts that fit, in their order.
fn fitted(parts: Vec<LinePart>, columns: usize) -> Vec<String> {
    let mut parts: Vec<(u8, String)> = parts
        .into_iter()
        .filter_map(|(rank, part)| Some((rank, part?)))
        .collect();
    while width_of(&parts) > columns {
        let Some(last) = (0..parts.len()).max_by_key(|index| parts[*index].0) else {
            break;
        };
        parts.remove(last);
    }
    parts.into_iter().map(|(_, part)| part).collect()
}

fn width_of(parts: &[(u8, String)]) -> usize {
    let gaps = parts.len().saturating_sub(1) * GAP.len();
    parts.iter().map(|(_, part)| part.width()).sum::<usize>() + gaps
}

/// `12 of 340 files  ftp://h/run7/detector.h5  41% of 1.20 GB  5.1 files/s  and 3 more`
fn file_line(progress: &CopyProgress, pace: Pace, columns: usize) -> String {
    let others = progress.moving.saturating_sub(1);
    let others = (others > 0).then(|| format!("and {others} more"));
    let file = progress.current.as_ref();
    // The name takes the room that the others leave.
    let name = file.map(|_| "x".repeat(LEAST_NAME));
    let name_rank = 1;
    let parts = vec![
        (0, text::files(progress)),
        (name_rank, name),
        (2, file.and_then(|file| file_amount(progress, file))),
        (4, others),
        (3, text::file_rate(progress, pace)),
    ];
    let placeholder = "x".repeat(LEAST_NAME);
    let mut parts = fitted(parts, columns);
    let used: usize = parts.iter().map(|part| part.width()).sum();
    let gaps = parts.len().saturating_sub(1) * GAP.len();
    let room = columns.saturating_sub(used + gaps) + LEAST_NAME;
    if let (Some(file), Some(part)) = (file, parts.iter_mut().find(|part| **part == placeholder)) {
        let verifying = match text::is_verifying(progress) {
            true => "verifying ",
            false => "",
        };
        let name = printable(&file.source).to_string();
        *part = shortened(&format!("{verifying}{name}"), room);
    }
    parts.join(GAP)
}

/// `41% of 1.20 GB`: of the file, if it is not the only one.
fn file_amount(progress: &CopyProgress, file: &MovingFile) -> Option<String> {
    let size = file.bytes.filter(|size| *size > 0)?;
    let percent = u128::from(file.done.min(size)) * 100 / u128::from(size);
    Some(match progress.total_files > 1 {
        true => format!("{percent}% of {}", show::bytes(size)),
        false => show::bytes(size),
    })
}

/// `[=====>     ]  45% of 2.70 GB  94.2 Mbit/s  ends in 3:00-3:35  4 streams  limited by receive window  8.39 MB buffer`
fn rate_line(progress: &CopyProgress, pace: Pace, columns: usize) -> String {
    // Its width depends on the terminal alone, so that it does not jump.
    let graph_columns = (columns / 5).clamp(*GRAPH.start(), *GRAPH.end());
    let graph = text::percentage(progress).map(|percent| graph_of(percent, graph_columns));
    let buffer = (progress.streams > 0 && progress.buffer_bytes > 0)
        .then(|| format!("{} buffer", show::bytes(progress.buffer_bytes)));
    let parts = vec![
        (3, graph),
        (0, Some(text::short_amount(progress))),
        (2, text::rate(progress, pace)),
        (1, text::remaining(progress, pace)),
        (4, text::streams(progress)),
        (5, text::limiter(progress)),
        (6, buffer),
    ];
    fitted(parts, columns).join(GAP)
}

/// `[====>     ]`, `columns` wide.
fn graph_of(percent: u64, columns: usize) -> String {
    let inner = columns.saturating_sub(2);
    let filled = usize::try_from(percent.min(100)).unwrap_or(0) * inner / 100;
    let tip = if filled < inner { ">" } else { "" };
    let line = format!("{}{tip}", "=".repeat(filled));
    format!("[{line:<inner$}]")
}

/// The end of a text, in at most `columns` columns: the end of a path says most.
pub(super) fn shortened(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    const DOTS: &str = "...";
    let mut start = text.len();
    for (index, _) in text.char_indices().rev() {
        if text[index..].width() + DOTS.len() > columns {
            break;
        }
        start = index;
    }
    let dots = &DOTS[..DOTS.len().min(columns)];
    format!("{dots}{}", &text[start..])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tune::forecast::Forecast;

    use super::*;

    fn progress() -> CopyProgress {
        CopyProgress {
            done: 450_000_000,
            total_bytes: 1_000_000_000,
            is_listed: true,
            files: 12,
            total_files: 340,
            current: Some(MovingFile {
                source: "ftp://data.example.org/archive/run7/detector-03.h5".to_owned(),
                bytes: Some(200_000_000),
                done: 82_000_000,
            }),
            moving: 4,
            streams: 4,
            buffer_bytes: 8_390_000,
            limiter: Some("receive window"),
            ..CopyProgress::default()
        }
    }

    fn pace() -> Pace {
        Pace {
            bytes_per_second: 11_775_000.0,
            files_per_second: 5.13,
            left: Some(Forecast {
                earliest: Duration::from_secs(180),
                expected: Duration::from_secs(192),
                latest: Duration::from_secs(211),
            }),
            silent: Duration::ZERO,
        }
    }

    #[test]
    fn a_wide_terminal_shows_everything() {
        assert_eq!(
            bar_lines(&progress(), pace(), 199),
            [
                "12 of 340 files  ftp://data.example.org/archive/run7/detector-03.h5  41% of 200 MB  and 3 more  \
                 5.1 files/s",
                "[=============>                ]  45% of 1.00 GB  94.2 Mbit/s  ends in 3:00-3:35  4 streams  \
                 limited by receive window  8.39 MB buffer",
            ]
        );
    }

    #[test]
    fn a_narrow_terminal_shows_what_matters_most() {
        assert_eq!(
            bar_lines(&progress(), pace(), 79),
            [
                "12 of 340 files  ...run7/detector-03.h5  41% of 200 MB  and 3 more  5.1 files/s",
                "[=====>       ]  45% of 1.00 GB  94.2 Mbit/s  ends in 3:00-3:35  4 streams",
            ]
        );
        assert_eq!(
            bar_lines(&progress(), pace(), 39),
            [
                "12 of 340 files  ...run7/detector-03.h5",
                "45% of 1.00 GB  ends in 3:00-3:35",
            ]
        );
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let wide_name = CopyProgress {
            current: Some(MovingFile {
                source: "数据/検出器/x\u{1b}[2J/run.h5".to_owned(),
                bytes: None,
                done: 0,
            }),
            total_files: 1_000_000,
            files: 123_456,
            ..progress()
        };
        let silent = Pace {
            silent: Duration::from_secs(100_000),
            ..pace()
        };
        for progress in [progress(), wide_name] {
            for pace in [pace(), silent] {
                for columns in 0..220 {
                    for line in bar_lines(&progress, pace, columns) {
                        assert!(line.width() <= columns, "{columns}: {line}");
                        assert!(!line.contains('\u{1b}'), "{line:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_line_without_anything_is_left_out() {
        let ended = CopyProgress {
            current: None,
            moving: 0,
            total_files: 1,
            ..progress()
        };
        assert_eq!(bar_lines(&ended, pace(), 79).len(), 1);
    }

    #[test]
    fn a_single_file_is_named_with_its_size_and_no_number_of_files() {
        let single = CopyProgress {
            files: 0,
            total_files: 1,
            moving: 1,
            ..progress()
        };
        assert_eq!(
            bar_lines(&single, pace(), 79)[0],
            "ftp://data.example.org/archive/run7/detector-03.h5  200 MB"
        );
    }
}
