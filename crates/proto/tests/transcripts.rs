//! Golden dialogues of the server's session: every file of `tests/transcripts` is played against
//! [`proto::server::ServerSession`]. The format is explained in `tests/transcripts/README.md`.
//!
//! `BLESS=1 cargo test -p proto --test transcripts` rewrites what the session says; the change is
//! then reviewed as text.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test reads its files, and may end at the first thing that is not as it should be"
)]

#[path = "transcripts/runner/describe.rs"]
mod describe;
#[path = "transcripts/runner/outcome.rs"]
mod outcome;
#[path = "transcripts/runner/play.rs"]
mod play;
#[path = "transcripts/runner/script.rs"]
mod script;
#[path = "transcripts/runner/tree.rs"]
mod tree;

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
fn every_transcript_is_what_the_session_says() {
    let files = transcripts();
    assert!(files.len() >= 25, "only {} transcripts", files.len());
    let bless = std::env::var_os("BLESS").is_some();
    let mut failures = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&file).expect("a transcript");
        let played = play::play(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        if bless {
            fs::write(&file, played).expect("a transcript that can be written");
        } else if let Some(difference) = first_difference(&text, &played) {
            failures.push(format!("{name}:{difference}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn first_difference(expected: &str, played: &str) -> Option<String> {
    let (mut left, mut right) = (expected.lines(), played.lines());
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
fn a_wrong_transcript_is_found() {
    let text = "login\n# wrong\nC: NOOP\nS: 500 no\n";
    let played = play::play(text).unwrap();
    let difference = first_difference(text, &played).expect("a difference");
    assert!(difference.starts_with('4'), "{difference}");
    assert!(difference.contains("200 NOOP"), "{difference}");
}
