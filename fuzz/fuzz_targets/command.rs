//! Control lines: a parsed command is encoded and parsed back unchanged.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::command::Command;

fn is_unsafe(byte: &u8) -> bool {
    matches!(byte, 0 | b'\r' | b'\n')
}

fuzz_target!(|line: &[u8]| {
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
