//! Control lines: a line that is a command is written and read back as the same command.

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
    let written = command.encode();
    assert!(!written.iter().any(is_unsafe), "one line only");
    // A CR or LF inside an argument cannot be written again; it becomes `?`.
    if !line.iter().any(is_unsafe) {
        assert_eq!(Command::parse(&written), Ok(command));
    }
});
