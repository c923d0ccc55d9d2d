use super::*;
use crate::command::{Command, packed_announcements};
use crate::timestamp::Timestamp;
use proptest::prelude::*;

fn entry(path: &[u8], size: u64) -> BundleEntry {
    BundleEntry {
        path: path.to_vec(),
        size,
        modified: Some(Timestamp(1_700_000_000)),
    }
}

fn packed(text: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text).unwrap();
    STANDARD_NO_PAD
        .encode(encoder.finish().unwrap())
        .into_bytes()
}

proptest! {
    #[test]
    fn packed_announcements_are_read_back(
        files in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 1..400), any::<u32>()), 0..300)
    ) {
        let entries: Vec<_> = files.iter().map(|(path, size)| entry(path, u64::from(*size))).collect();
        let mut read = Vec::new();
        for command in packed_announcements(&entries) {
            let line = Command::Site(command).encode();
            prop_assert!(line.len() < 60_000);
            let line = line.strip_prefix(b"SITE BUNDLE PACK ").unwrap();
            read.extend(unpack(line.trim_ascii_end()).unwrap());
        }
        prop_assert_eq!(read, entries);
    }

    #[test]
    fn any_argument_is_read_without_harm(argument in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = unpack(&argument);
    }
}

#[test]
fn many_files_take_few_bytes() {
    let path = |n: usize| format!("/put/x/d{}/f{n}", n / 250).into_bytes();
    let entries: Vec<_> = (0..2000).map(|n| entry(&path(n), 1000)).collect();
    let lines = packed_announcements(&entries);
    let bytes: usize = lines
        .into_iter()
        .map(|line| Command::Site(line).encode().len())
        .sum();
    assert!(bytes < 40_000, "{bytes} bytes for 2000 files");
}

#[test]
fn an_argument_that_expands_too_far_is_refused() {
    let bomb = vec![b' '; 10 << 20];
    assert_eq!(unpack(&packed(&bomb)), None);
    assert_eq!(
        unpack(&packed(b"1,,/a 2,,/b")).map(|found| found.len()),
        Some(2)
    );
    assert_eq!(unpack(&packed(b"1,,/a x")), None);
    let mut cut = packed(b"1,,/a 2,,/b 3,,/c");
    cut.truncate(cut.len() - 8);
    assert_eq!(unpack(&cut), None);
}
