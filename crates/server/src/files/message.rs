//! The message of a directory, which a client gets when it enters the directory.

use std::io::Read;
use std::sync::Arc;

use proto::path::VPath;
use proto::server::FileResponse;

use super::{Access, SessionFiles};

/// Largest message, bytes. Users write it, and it is sent at each CWD, so it is shorter than the administrator's.
const MAX_MESSAGE: u64 = 4096;

impl SessionFiles {
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
            Some(text) => FileResponse::Lines(text.lines().map(<[u8]>::to_vec).collect()),
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

/// A text in any encoding.
struct MessageText(Vec<u8>);

impl MessageText {
    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        let text = self.0.strip_suffix(b"\n").unwrap_or(&self.0);
        let lines = text.split(|byte| *byte == b'\n');
        lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line))
    }
}
