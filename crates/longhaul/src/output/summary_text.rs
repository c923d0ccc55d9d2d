//! The summary line of a copy for people.

use std::collections::HashMap;
use std::time::Duration;

use copy::{CopyEvent, CopySummary, Exit};
use units::show;

/// Facts of a copy that its events tell and its summary does not.
#[derive(Debug, Default)]
pub(super) struct SeenWork {
    /// Of a dry run.
    planned: PlannedWork,
    /// Files that began with bytes of an earlier run: how many, and of how many.
    continued: HashMap<String, (u64, Option<u64>)>,
    /// Files that were there already.
    in_place: u64,
    /// Files of an earlier run that are in place.
    earlier: u64,
}

/// The work that a dry run has found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PlannedWork {
    files: u64,
    /// Bytes of those whose size is known.
    bytes: u64,
    deletions: u64,
}

impl SeenWork {
    /// Takes note of an event.
    pub(super) fn note(&mut self, event: &CopyEvent) {
        match event {
            CopyEvent::WouldCopy { bytes, .. } => {
                self.planned.files += 1;
                self.planned.bytes = self.planned.bytes.saturating_add(bytes.unwrap_or(0));
            }
            CopyEvent::Forecast(forecast) => {
                (self.planned.files, self.planned.bytes) = (forecast.files, forecast.bytes);
            }
            CopyEvent::Continuing { files } => self.earlier = *files,
            CopyEvent::WouldDelete { .. } => self.planned.deletions += 1,
            CopyEvent::Started {
                source,
                bytes,
                resumed,
                ..
            } if *resumed > 0 => match Some(*resumed) == *bytes {
                true => self.in_place += 1,
                false => drop(self.continued.insert(source.clone(), (*resumed, *bytes))),
            },
            // It starts over.
            CopyEvent::Started { source, .. } if !self.continued.is_empty() => {
                self.continued.remove(source);
            }
            _ => {}
        }
    }

    /// The summary of a dry run.
    pub(super) fn dry_run_line(&self, s: &CopySummary) -> String {
        let work = self.planned;
        let mut text = match work.files {
            0 => "nothing would be copied".to_owned(),
            files => {
                let (files, bytes) = (show::count(files, "file"), show::bytes(work.bytes));
                format!("{files} would be copied, {bytes}")
            }
        };
        if work.deletions > 0 {
            text.push_str(&format!("; {} would be deleted", work.deletions));
        }
        add_exceptions(&mut text, s);
        text
    }

    /// The summary of a copy.
    pub(super) fn line(&self, s: &CopySummary) -> String {
        let time = show::time(Duration::try_from_secs_f64(s.seconds).unwrap_or_default());
        let amount = match s.bytes {
            0 => format!("{} in {time}", show::bytes(0)),
            bytes => {
                let (bytes, rate) = (show::bytes(bytes), show::rate(s.goodput_bps));
                format!("{bytes} in {time}, {rate}")
            }
        };
        let mut text = match s.files {
            0 if s.bytes > 0 => format!("no file is complete: {amount}"),
            0 if s.failed > 0 || s.exit != Exit::Done => "nothing was copied".to_owned(),
            0 => "nothing to copy".to_owned(),
            files if files == self.in_place && s.bytes == 0 => {
                format!("nothing to copy: {} there already", are(files))
            }
            files => format!("{}: {amount}", show::count(files, "file")),
        };
        if s.files > 0 {
            text.push_str(&verification_text(&s.verified));
        }
        if self.earlier > 0 {
            let files = show::count(self.earlier, "file");
            text.push_str(&format!("; {files} of an earlier run in place"));
        }
        if let Some(continued) = self.continued() {
            text.push_str(&continued);
        }
        if s.resent_bytes > 0 {
            let resent = show::bytes(s.resent_bytes);
            text.push_str(&format!("; {resent} arrived wrong and were sent again"));
        }
        add_exceptions(&mut text, s);
        text
    }

    /// `; continued at 1.20 GB of 5.00 GB`
    fn continued(&self) -> Option<String> {
        let sum = |part: fn(&(u64, Option<u64>)) -> Option<u64>| {
            let parts = self.continued.values().map(part);
            parts.sum::<Option<u64>>().map(show::bytes)
        };
        let at = sum(|(at, _)| Some(*at))?;
        let of = sum(|(_, of)| *of).map_or_else(String::new, |of| format!(" of {of}"));
        match self.continued.len() {
            0 => None,
            1 => Some(format!("; continued at {at}{of}")),
            files => Some(format!("; {files} files continued at {at}{of}")),
        }
    }

    /// Whether a dry run would copy something.
    pub(super) fn has_planned_files(&self) -> bool {
        self.planned.files > 0
    }
}

/// Whether a later run can go on where a copy ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Continuation {
    /// The same command does.
    Repeated,
    /// The same command without `--restart` does.
    WithoutRestart,
    /// No run does: the bytes went to standard output.
    Impossible,
}

/// The last line of a copy that a later run can go on with: what is safe, and how to go on.
pub(super) fn continuation_line(s: &CopySummary, continues: Continuation) -> Option<String> {
    let safe = s.safe?;
    let reason = match s.exit {
        Exit::Interrupted => "interrupted; ",
        _ => "",
    };
    let amount = match (safe.bytes, safe.of) {
        (0, _) if s.exit != Exit::Interrupted => return None,
        (0, _) => "nothing is safe yet".to_owned(),
        // Files that have failed are not in the sum.
        (bytes, Some(of)) if s.failed == 0 || s.files == 0 => {
            format!("{} of {} is safe", show::bytes(bytes), show::bytes(of))
        }
        (bytes, _) => format!("{} is safe", show::bytes(bytes)),
    };
    let how = match continues {
        Continuation::Impossible if s.exit == Exit::Interrupted => {
            return Some("longhaul: interrupted".to_owned());
        }
        Continuation::Impossible => return None,
        _ if safe.bytes == 0 => "repeat the command to try again",
        Continuation::Repeated => "repeat the command to go on from there",
        Continuation::WithoutRestart => "repeat the command without --restart to go on from there",
    };
    Some(format!("longhaul: {reason}{amount}; {how}"))
}

/// `1 file is`, `2 files are`.
pub(super) fn are(files: u64) -> String {
    let verb = if files == 1 { "is" } else { "are" };
    format!("{} {verb}", show::count(files, "file"))
}

/// Files that were not copied.
fn add_exceptions(text: &mut String, s: &CopySummary) {
    if s.kept > 0 {
        text.push_str(&format!("; kept {}", show::count(s.kept, "existing file")));
    }
    // `skipped` includes the kept files, which were counted above.
    if s.skipped > s.kept {
        text.push_str(&format!("; {} skipped", s.skipped - s.kept));
    }
    if s.deleted > 0 {
        text.push_str(&format!("; {} deleted", s.deleted));
    }
    if s.failed > 0 {
        text.push_str(&format!("; {} failed", s.failed));
        text.push_str(&match &s.most_failed_for {
            Some((cause, files)) if *files == s.failed => format!(": {cause}"),
            Some((cause, files)) => format!(", {files} of them: {cause}"),
            None => String::new(),
        });
    }
}

/// The part of the summary that says how the files were verified.
pub(super) fn verification_text(how: &str) -> String {
    match how {
        "none" => ", not verified".to_owned(),
        "size" => ", verified by size only, without a checksum".to_owned(),
        "reflink" => ", shares its blocks with the source (reflink)".to_owned(),
        how => format!(", verified by {how}"),
    }
}

#[cfg(test)]
mod tests {
    use copy::{Failure, SafeBytes};

    use super::*;

    fn summary(files: u64, bytes: u64) -> CopySummary {
        let failure = Failure::local("");
        CopySummary {
            files,
            bytes,
            failed: 0,
            seconds: 10.0,
            goodput_bps: 0.8 * bytes as f64,
            verified: "crc32c".to_owned(),
            exit: Exit::Done,
            first_failure: None,
            ..CopySummary::of_failure(&failure)
        }
    }

    fn started(source: &str, resumed: u64, bytes: u64) -> CopyEvent {
        CopyEvent::Started {
            source: source.to_owned(),
            destination: "d".to_owned(),
            bytes: Some(bytes),
            resumed,
        }
    }

    fn line(events: &[CopyEvent], summary: &CopySummary) -> String {
        let mut seen = SeenWork::default();
        events.iter().for_each(|event| seen.note(event));
        seen.line(summary)
    }

    #[test]
    fn a_copy_of_files_has_their_number_bytes_and_rate() {
        assert_eq!(
            line(&[], &summary(2, 1_000_000)),
            "2 files: 1.00 MB in 10 s, 800 kbit/s, verified by crc32c"
        );
        let long = CopySummary {
            seconds: 12_000.0,
            ..summary(1, 1)
        };
        assert!(line(&[], &long).contains(" in 3 h 20 min, "));
    }

    #[test]
    fn success_without_files_or_bytes_has_no_rate() {
        assert_eq!(line(&[], &summary(0, 0)), "nothing to copy");
        let deleted = CopySummary {
            deleted: 3,
            ..summary(0, 0)
        };
        assert_eq!(line(&[], &deleted), "nothing to copy; 3 deleted");
        let kept = CopySummary {
            kept: 2,
            skipped: 2,
            ..summary(0, 0)
        };
        assert_eq!(line(&[], &kept), "nothing to copy; kept 2 existing files");
        assert_eq!(
            line(&[], &summary(1, 0)),
            "1 file: 0 B in 10 s, verified by crc32c"
        );
        assert_eq!(
            line(&[started("a", 5, 5)], &summary(1, 0)),
            "nothing to copy: 1 file is there already, verified by crc32c"
        );
    }

    #[test]
    fn a_continued_copy_says_where_it_began() {
        let one = started("a", 1_200_000_000, 5_000_000_000);
        assert_eq!(
            line(std::slice::from_ref(&one), &summary(1, 3_800_000_000)),
            "1 file: 3.80 GB in 10 s, 3.04 Gbit/s, verified by crc32c; continued at 1.20 GB of 5.00 GB"
        );
        let two = [one.clone(), started("b", 300_000_000, 1_000_000_000)];
        let text = line(&two, &summary(2, 1));
        assert!(
            text.ends_with("; 2 files continued at 1.50 GB of 6.00 GB"),
            "{text}"
        );
        let over = [one, started("a", 0, 5_000_000_000)];
        let text = line(&over, &summary(1, 5_000_000_000));
        assert!(!text.contains("continued"), "{text}");
    }

    #[test]
    fn failures_that_files_share_are_named() {
        let failed = |most: Option<(&str, u64)>| CopySummary {
            failed: 40,
            exit: Exit::Refused,
            most_failed_for: most.map(|(cause, files)| (cause.to_owned(), files)),
            ..summary(0, 0)
        };
        assert_eq!(
            line(&[], &failed(Some(("h is gone", 40)))),
            "nothing was copied; 40 failed: h is gone"
        );
        assert_eq!(
            line(&[], &failed(Some(("h is gone", 38)))),
            "nothing was copied; 40 failed, 38 of them: h is gone"
        );
        let partial = CopySummary {
            bytes: 1_000_000,
            goodput_bps: 800_000.0,
            ..failed(None)
        };
        assert_eq!(
            line(&[], &partial),
            "no file is complete: 1.00 MB in 10 s, 800 kbit/s; 40 failed"
        );
    }

    #[test]
    fn the_last_line_says_what_is_safe_and_how_to_go_on() {
        let line = |exit, bytes, continues| {
            let ended = CopySummary {
                exit,
                safe: Some(SafeBytes {
                    bytes,
                    of: Some(5_000_000_000),
                }),
                ..summary(0, 0)
            };
            continuation_line(&ended, continues).unwrap_or_default()
        };
        let part = 1_200_000_000;
        for (exit, bytes, continues, shown) in [
            (
                Exit::Interrupted,
                part,
                Continuation::Repeated,
                "longhaul: interrupted; 1.20 GB of 5.00 GB is safe; repeat the command to go on from there",
            ),
            (
                Exit::Unreachable,
                part,
                Continuation::WithoutRestart,
                "longhaul: 1.20 GB of 5.00 GB is safe; repeat the command without --restart to go on from there",
            ),
            (
                Exit::Interrupted,
                0,
                Continuation::Repeated,
                "longhaul: interrupted; nothing is safe yet; repeat the command to try again",
            ),
            // It never began.
            (Exit::Unreachable, 0, Continuation::Repeated, ""),
            (Exit::Unreachable, part, Continuation::Impossible, ""),
            (
                Exit::Interrupted,
                part,
                Continuation::Impossible,
                "longhaul: interrupted",
            ),
        ] {
            assert_eq!(line(exit, bytes, continues), shown);
        }
        assert_eq!(
            continuation_line(&summary(1, 1), Continuation::Repeated),
            None
        );
    }

    #[test]
    fn a_dry_run_says_what_would_be_done() {
        let would_copy = CopyEvent::WouldCopy {
            source: "a".to_owned(),
            destination: "b".to_owned(),
            bytes: Some(600_000),
        };
        let would_delete = CopyEvent::WouldDelete {
            path: "c".to_owned(),
        };
        let mut seen = SeenWork::default();
        let ended = CopySummary {
            skipped: 3,
            failed: 1,
            ..summary(0, 0)
        };
        assert_eq!(
            seen.dry_run_line(&ended),
            "nothing would be copied; 3 skipped; 1 failed"
        );
        for event in [&would_copy, &would_copy, &would_delete] {
            seen.note(event);
        }
        assert_eq!(
            seen.dry_run_line(&ended),
            "2 files would be copied, 1.20 MB; 1 would be deleted; 3 skipped; 1 failed"
        );
    }
}
