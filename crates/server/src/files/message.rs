//! The message of a directory, which a client gets when it enters the directory.

use std::io::Read;
use std::sync::Arc;

use proto::path::VPath;
use proto::server::FileResponse;

use super::{Access, DirectoryFiles};

/// Largest message, bytes. Users write it, and it is sent at each CWD, so it is shorter than the administrator's.
const MAX_MESSAGE: u64 = 4096;

impl DirectoryFiles {
    /// The same files, where the file `name` of a directory is its message.
    #[must_use]
    pub fn with_directory_message(self, name: Option<Arc<str>>) -> Self {
        Self {
            directory_message: name,
            ..self
        }
    }

    /// The message of a directory as the answer to CWD. A file that the session may not read, or that is too
    /// long, is no message.
    pub(super) fn message_of(&self, directory: &VPath) -> FileResponse {
        match self.read_message(directory) {
            Some(text) => FileResponse::Lines(text.lines().map(shown).collect()),
            None => FileResponse::Done,
        }
    }

    fn read_message(&self, directory: &VPath) -> Option<MessageText> {
        let name = self.directory_message.as_deref()?;
        let path = directory.join(name.as_bytes()).ok()?;
        self.paths.check(Access::Read, &path).ok()?;
        let file = self.root.open_read(&path).ok()?;
        let mut text = Vec::new();
        file.take(MAX_MESSAGE + 1).read_to_end(&mut text).ok()?;
        (text.len() as u64 <= MAX_MESSAGE).then_some(MessageText(text))
    }
}

/// A line without control characters: another user wrote it, and it is shown on the client's terminal. IAC, which a client
/// may take for a command of telnet (RFC 854), is replaced, too.
fn shown(line: &[u8]) -> Vec<u8> {
    const IAC: u8 = 255;
    let is_shown = |letter: char| letter == '\t' || !letter.is_control();
    match std::str::from_utf8(line) {
        Ok(text) => text.replace(|letter| !is_shown(letter), "?").into_bytes(),
        // One of ISO 8859, whose control characters are those of Unicode.
        Err(_) => {
            let is_byte_shown = |byte: u8| is_shown(char::from(byte)) && byte != IAC;
            let bytes = line.iter();
            bytes
                .map(|byte| if is_byte_shown(*byte) { *byte } else { b'?' })
                .collect()
        }
    }
}

/// A text in any encoding.
struct MessageText(Vec<u8>);

impl MessageText {
    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        let text = self.0.strip_suffix(b"\n").unwrap_or(&self.0);
        let lines = text.split(|byte| *byte == b'\n');
        lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line))
    }
}
