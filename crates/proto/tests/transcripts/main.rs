//! Golden dialogues of the server session: every `*.txt` file of this folder is run against
//! [`proto::server::ServerSession`]. `README.md` explains the format.
//!
//! `BLESS=1 cargo test -p proto --test transcripts` rewrites the output of the session in the files; the
//! change is then reviewed as text.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test reads files, and may stop at the first error"
)]

mod runner;

use std::fs;
use std::path::{Path, PathBuf};

fn transcripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the folder of transcripts")
        .map(|entry| entry.expect("an entry of the folder").path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .collect();
    files.sort();
    files
}

#[test]
fn the_session_output_matches_every_transcript() {
    let files = transcripts();
    assert!(files.len() >= 25, "only {} transcripts", files.len());
    let bless = std::env::var_os("BLESS").is_some();
    let mut failures = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&file).expect("a transcript");
        let actual = runner::play(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        if bless {
            fs::write(&file, actual).expect("a transcript that can be written");
        } else if let Some(difference) = first_difference(&text, &actual) {
            failures.push(format!("{name}:{difference}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn first_difference(expected: &str, actual: &str) -> Option<String> {
    let (mut left, mut right) = (expected.lines(), actual.lines());
    for number in 1.. {
        match (left.next(), right.next()) {
            (None, None) => return None,
            (a, b) if a == b => {}
            (a, b) => {
                let (a, b) = (a.unwrap_or("(end)"), b.unwrap_or("(end)"));
                return Some(format!("{number}\n  expected {a}\n  got      {b}"));
            }
        }
    }
    None
}

/// The runner must be able to fail.
#[test]
fn a_wrong_transcript_is_reported_with_its_line() {
    let text = "login\n# wrong\nC: NOOP\nS: 500 no\n";
    let actual = runner::play(text).unwrap();
    let difference = first_difference(text, &actual).expect("a difference");
    assert!(difference.starts_with('4'), "{difference}");
    assert!(difference.contains("200 NOOP"), "{difference}");
}
