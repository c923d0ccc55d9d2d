//! Passwords leave no copy in the memory that is freed.
#![allow(
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "a test that reads the memory of its own process"
)]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use proto::command::{Command, Secret, unwrap_line};
use proto::line::{LineEvent, LineReader};

/// Hides the passwords of this test in its own code and in the needle of its search.
const MASK: u8 = 0x55;
const LENGTH: usize = 700;

/// A password, each byte masked. Each `seed` gives another one.
fn masked(seed: u32) -> Vec<u8> {
    let mut state = seed;
    let byte = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (b'a' + (state >> 24) as u8 % 26) ^ MASK
    };
    (0..LENGTH).map(byte).collect()
}

/// `PASS` with the password.
fn pass_line(masked: &[u8], ending: &[u8]) -> Secret {
    let mut line = Secret(Vec::with_capacity(5 + LENGTH + 2));
    line.0.extend_from_slice(b"PASS ");
    line.0.extend(masked.iter().map(|byte| byte ^ MASK));
    line.0.extend_from_slice(ending);
    line
}

/// Number of places in this process's heap where 32 bytes of the password are: some from its beginning,
/// but not those that the allocator overwrites when it takes memory back, or its end.
fn copies(masked: &[u8]) -> usize {
    let needles = [&masked[27..59], &masked[LENGTH - 32..]];
    let is_there = |window: &[u8], needle: &[u8]| {
        let pairs = window.iter().zip(needle);
        pairs
            .into_iter()
            .all(|(byte, hidden)| *byte == hidden ^ MASK)
    };
    let mut memory = File::open("/proc/self/mem").unwrap();
    let mut found = 0;
    for line in BufReader::new(File::open("/proc/self/maps").unwrap()).lines() {
        let line = line.unwrap();
        // Anonymous memory: the heap, and the arenas of threads.
        let words: Vec<&str> = line.split_whitespace().collect();
        if words[1] != "rw-p" || words.get(5).is_some_and(|name| *name != "[heap]") {
            continue;
        }
        let (start, end) = words[0].split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        memory.seek(SeekFrom::Start(number(start))).unwrap();
        let mut left = number(end) - number(start);
        let mut page = [0; 4096];
        while left > 0 {
            // Memory may be unmapped meanwhile.
            if memory.read_exact(&mut page).is_err() {
                break;
            }
            left -= page.len() as u64;
            // Most of the memory was never used.
            if page == [0; 4096] {
                continue;
            }
            let windows = page.windows(32);
            let hits = windows.filter(|w| needles.iter().any(|needle| is_there(w, needle)));
            found += hits.count();
        }
    }
    found
}

#[test]
fn a_copy_that_is_not_overwritten_would_be_found() {
    let masked = masked(1);
    let line = pass_line(&masked, b"");
    assert!(copies(&masked) > 0);
    drop(line);
    assert_eq!(copies(&masked), 0);
}

#[test]
fn a_password_line_that_was_read_leaves_no_copy() {
    let masked = masked(2);
    let line = pass_line(&masked, b"\r\n");
    let mut events = Vec::new();
    let mut reader = LineReader::new(1000);
    // In two pieces, so that the buffer waits in between.
    reader.feed(&line.0[..LENGTH / 2], &mut events);
    reader.feed(&line.0[LENGTH / 2..], &mut events);
    for event in &events {
        let LineEvent::Line(bytes) = event else {
            panic!("no line");
        };
        assert!(matches!(Command::parse(bytes), Ok(Command::Pass(_))));
    }
    assert_eq!(events.len(), 1);
    drop((line, events));
    assert_eq!(copies(&masked), 0);
}

#[test]
fn a_password_inside_enc_leaves_no_copy() {
    let masked = masked(3);
    let mut events = Vec::new();
    let line = LineEvent::Line(b"ENC AAAA".to_vec());
    let unwrap = |_, _: &[u8]| Ok::<_, ()>(std::mem::take(&mut pass_line(&masked, b"\r\n").0));
    unwrap_line(line, 1000, unwrap, &mut events);
    assert!(matches!(events[..], [LineEvent::Protected(_)]));
    drop(events);
    assert_eq!(copies(&masked), 0);
}

#[test]
fn a_password_that_is_sent_leaves_no_copy() {
    let masked = masked(4);
    let mut line = pass_line(&masked, b"");
    line.0.drain(..5);
    let command = Command::Pass(line);
    let mut encoded = Secret(command.encode());
    encoded.0.extend_from_slice(b"\r\n");
    assert_eq!(encoded.0.len(), 5 + LENGTH + 2);
    drop((command, encoded));
    assert_eq!(copies(&masked), 0);
}
