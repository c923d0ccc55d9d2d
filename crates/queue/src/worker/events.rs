//! The lines of `longhaul cp --json`, as far as the queue uses them. Their schema is docs/json-schema/copy-events.schema.json.

use serde_json::Value;

use crate::store::JobProgress;

/// Longest text that is kept of a failure, bytes.
const LONGEST: usize = 2000;

/// How the program ended, as its guard told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GuardedEnd {
    pub(super) exit: Option<u8>,
    pub(super) signal: Option<i32>,
    /// The guard ended it.
    pub(super) is_stopped: bool,
}

/// All that the lines told.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ChildReport {
    pub(super) progress: JobProgress,
    /// The first failure.
    pub(super) failure: Option<String>,
    pub(super) bytes: Option<u64>,
    pub(super) files: Option<u64>,
    pub(super) seconds: Option<f64>,
    pub(super) verified: Option<String>,
    pub(super) end: Option<GuardedEnd>,
}

impl ChildReport {
    /// Takes one line; one that is no event is left out.
    pub(super) fn read(&mut self, line: &[u8]) {
        let Ok(event) = serde_json::from_slice::<Value>(line) else {
            return;
        };
        let number = |name: &str| event[name].as_u64();
        let real = |name: &str| event[name].as_f64().filter(|value| value.is_finite());
        match event["event"].as_str() {
            Some("progress") => {
                self.progress = JobProgress {
                    done_bytes: number("done"),
                    total_bytes: number("total_bytes"),
                    done_files: number("files"),
                    total_files: number("total_files"),
                    now_bps: real("rate_bps"),
                    left_seconds: real("eta_seconds"),
                };
            }
            Some("failed") => {
                let text = event["error"].as_str().unwrap_or_default();
                self.failure.get_or_insert_with(|| shortened(text));
            }
            Some("summary") => {
                self.bytes = number("bytes");
                self.files = number("files");
                self.seconds = real("seconds");
                self.verified = event["verified"].as_str().map(shortened);
                if let Some(text) = event["error"].as_str() {
                    self.failure = Some(shortened(text));
                }
                // The last progress was some time before the end.
                self.progress.done_files = self.files;
                self.progress.left_seconds = None;
            }
            Some("guard_ended") => {
                self.end = Some(GuardedEnd {
                    exit: number("exit").and_then(|exit| u8::try_from(exit).ok()),
                    signal: event["signal"]
                        .as_i64()
                        .and_then(|signal| i32::try_from(signal).ok()),
                    is_stopped: event["stopped"].as_bool().unwrap_or(false),
                });
            }
            _ => {}
        }
    }
}

/// A text of at most [`LONGEST`] bytes, without the byte that no text of the database may have.
pub(super) fn shortened(text: &str) -> String {
    let text: String = text.chars().filter(|c| *c != '\0').collect();
    text[..text.floor_char_boundary(LONGEST)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_failures_summary_and_end_are_taken_from_their_events() {
        let mut report = ChildReport::default();
        for line in [
            r#"{"event":"started","source":"a"}"#,
            r#"{"event":"progress","done":5,"total_bytes":9,"files":0,"total_files":1,"rate_bps":80.5,"eta_seconds":2}"#,
            "half a li",
            r#"{"event":"failed","source":"a","exit":5,"error":"lost"}"#,
            r#"{"event":"failed","source":"b","exit":5,"error":"later"}"#,
        ] {
            report.read(line.as_bytes());
        }
        assert_eq!(report.progress.done_bytes, Some(5));
        assert_eq!(report.progress.left_seconds, Some(2.0));
        assert_eq!(report.failure.as_deref(), Some("lost"));
        report.read(br#"{"event":"summary","bytes":9,"seconds":1.5,"files":1,"verified":"crc64nvme","error":null}"#);
        report.read(br#"{"event":"guard_ended","exit":0,"signal":null,"stopped":false}"#);
        assert_eq!((report.bytes, report.files), (Some(9), Some(1)));
        assert_eq!(report.verified.as_deref(), Some("crc64nvme"));
        let end = report.end.unwrap();
        assert_eq!(
            (end.exit, end.signal, end.is_stopped),
            (Some(0), None, false)
        );
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = shortened(&"ä".repeat(LONGEST));
        assert!(text.len() <= LONGEST && text.len() >= LONGEST - 1);
        assert_eq!(shortened("a\0b"), "ab");
    }
}
