//! Bundles of files: announcements, the command that ends a bundle and its reply are encoded and read back unchanged, and
//! nothing is out of its bounds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::bundle::{BundleEntry, BundleOutcome, MAX_FILES, announcement_lines};
use proto::command::{Command, SiteCommand};
use proto::path::MAX_PATH;
use proto::ranges::MAX_FILE_OFFSET;
use proto::reply::{Reply, ReplyReader};

fn check_announcements(line: &[u8]) {
    let words = line.split(|byte| *byte == b' ');
    let entries: Vec<BundleEntry> = words.filter_map(BundleEntry::parse).collect();
    for entry in &entries {
        assert!(entry.size <= MAX_FILE_OFFSET);
        assert!(!entry.path.is_empty() && entry.path.len() <= MAX_PATH);
    }
    let lines = announcement_lines(&entries);
    let read_back: Option<Vec<BundleEntry>> = lines
        .iter()
        .flat_map(|line| line.split(' '))
        .map(|word| BundleEntry::parse(word.as_bytes()))
        .collect();
    assert_eq!(read_back, Some(entries));
}

fn check_command(arguments: &[u8]) {
    let line = [b"SITE BUNDLE ", arguments].concat();
    let Ok(command) = Command::parse(&line) else {
        return;
    };
    if let Command::Site(SiteCommand::BundleEnd(Some(proof))) = &command {
        assert!(proof.without.iter().all(|index| *index < MAX_FILES));
        assert_eq!(proof.checksum.len(), proof.algorithm.hex_len());
    }
    if let Command::Site(SiteCommand::BundleAdd(_) | SiteCommand::BundleEnd(_)) = &command {
        assert_eq!(Command::parse(&command.encode()), Ok(command));
    }
}

fn check_reply(reply: &Reply, count: usize) {
    let Some(outcome) = BundleOutcome::from_reply(reply, count) else {
        return;
    };
    assert!(outcome.failures.iter().all(|failure| failure.index < count));
    assert!(outcome.sums.is_empty() || outcome.sums.len() == count);
    let again = BundleOutcome::from_reply(&outcome.reply(), count).expect("it is read back");
    assert_eq!(again.checksum, outcome.checksum);
    assert_eq!(again.sums, outcome.sums);
    // A reason may become shorter, and printable.
    let indices = |outcome: &BundleOutcome| -> Vec<usize> {
        let failures = outcome.failures.iter();
        failures.map(|failure| failure.index).collect()
    };
    assert_eq!(indices(&again), indices(&outcome));
}

// The first byte is the number of files.
fuzz_target!(|data: &[u8]| {
    check_announcements(data);
    check_command(data);
    let Some((count, replies)) = data.split_first() else {
        return;
    };
    let (mut reader, mut read) = (ReplyReader::new(), Vec::new());
    let _ = reader.feed(replies, &mut read);
    for reply in &read {
        check_reply(reply, usize::from(*count));
    }
});
