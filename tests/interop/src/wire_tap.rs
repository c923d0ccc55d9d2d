//! Looks for the content of a file in the packets of the loopback interface.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::peer::{is_root, python};
use crate::process::ProcessGuard;

/// Prints `ready`, reads packets until its standard input ends, and prints whether one had a pattern.
const SCRIPT: &str = "
import select, socket, sys
patterns = [bytes.fromhex(word) for word in sys.argv[1:]]
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
packets.setsockopt(socket.SOL_SOCKET, 33, 1 << 27)
packets.bind(('lo', 0))
found = False
queued = 20000
print('ready', flush=True)
while True:
    readable = select.select([packets, sys.stdin], [], [])[0]
    # Other tests fill the interface all the time: the end is a number of packets away, not silence.
    left = queued if sys.stdin in readable else 1
    while left and select.select([packets], [], [], 0)[0]:
        packet = packets.recv(1 << 17)
        found = found or any(pattern in packet for pattern in patterns)
        left -= 1
    if sys.stdin in readable:
        break
print('found' if found else 'absent', flush=True)
";

/// Length of each pattern, bytes.
const PATTERN_LENGTH: usize = 24;

/// Number of patterns: enough that one of them is within a packet, and not across two.
const PATTERNS: usize = 8;

/// Reads all packets of the loopback interface until it is asked for its finding.
#[derive(Debug)]
pub struct WireTap {
    guard: ProcessGuard,
    output: BufReader<std::process::ChildStdout>,
}

impl WireTap {
    /// Whether packets can be read: by root only.
    pub fn find() -> Result<(), String> {
        python::with_module("socket")?;
        if is_root() {
            Ok(())
        } else {
            Err("only root can read packets".to_owned())
        }
    }

    /// Begins to look for the content of `file`, which must be random, longer than a kilobyte, and in no
    /// other transfer at the same time.
    pub fn start(file: &Path) -> Result<Self> {
        let content = std::fs::read(file)?;
        ensure!(content.len() > PATTERNS * PATTERN_LENGTH, "a short file");
        let step = content.len() / PATTERNS;
        let patterns = content.chunks_exact(step).map(|part| {
            let pattern = &part[..PATTERN_LENGTH];
            pattern.iter().map(|byte| format!("{byte:02x}")).collect()
        });
        let patterns: Vec<String> = patterns.collect();
        let program = python::with_module("socket").map_err(anyhow::Error::msg)?;
        let mut command = Command::new(program);
        command
            .args(["-c", SCRIPT])
            .args(patterns)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut guard = ProcessGuard::spawn(&mut command)?;
        let stdout = guard.child().stdout.take().context("no pipe")?;
        let mut output = BufReader::new(stdout);
        let mut line = String::new();
        output.read_line(&mut line)?;
        ensure!(line == "ready\n", "packets cannot be read: {line}");
        Ok(Self { guard, output })
    }

    /// Whether a part of the file was in a packet.
    pub fn has_seen_content(mut self) -> Result<bool> {
        drop(self.guard.child().stdin.take());
        let mut finding = String::new();
        self.output.read_to_string(&mut finding)?;
        match finding.trim() {
            "found" => Ok(true),
            "absent" => Ok(false),
            other => anyhow::bail!("packets could not be read: {other}"),
        }
    }
}
