//! Control lines: a parsed command is encoded and parsed back unchanged. Paths stay below the root, and a
//! pattern without wildcards matches itself alone.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::command::Command;
use proto::path::VPath;
use proto::pattern::{GlobPattern, has_wildcard};

fn is_unsafe(byte: &u8) -> bool {
    matches!(byte, 0 | b'\r' | b'\n')
}

fn check_path(argument: &[u8]) {
    let Ok(path) = VPath::root().resolve(argument) else {
        return;
    };
    let bytes = path.as_bytes();
    assert!(bytes.starts_with(b"/") && !bytes.contains(&0));
    let mut components = bytes.split(|byte| *byte == b'/');
    assert!(!components.any(|name| name == b".."), "{path:?}");
    assert_eq!(path.resolve(bytes), Ok(path.clone()));
}

fn check_pattern(text: &[u8]) {
    let matches_itself = GlobPattern::new(text).matches(text);
    // A backslash takes the meaning from the character behind it.
    if !has_wildcard(text) && !text.contains(&b'\\') {
        assert!(matches_itself);
        assert!(!GlobPattern::new(text).matches(&[text, b"x"].concat()));
    }
}

fuzz_target!(|line: &[u8]| {
    check_path(line);
    check_pattern(line);
    let Ok(command) = Command::parse(line) else {
        return;
    };
    let encoded = command.encode();
    assert!(!encoded.iter().any(is_unsafe), "a command is one line");
    // A CR or LF inside an argument becomes `?`, so such a line is not encoded back.
    if !line.iter().any(is_unsafe) {
        assert_eq!(Command::parse(&encoded), Ok(command));
    }
});
