//! A listing for a data connection. Its text is produced while it is sent.
//!
//! One thread reads the directory and stays a few buffers ahead of the sender. So a listing takes
//! the same memory whatever the size of the directory and the speed of the client.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use data::store::Source;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use parking_lot::Mutex;
use proto::server::{FileError, FileErrorKind, ListRequest};

use super::{ListedFiles, ListingWriter};

/// Size of a buffer of text, bytes; its last line may exceed it.
const BUFFER_SIZE: usize = 64 << 10;

/// Number of buffers that the thread may be ahead.
const BUFFERS_AHEAD: usize = 4;

/// A message of the thread that reads the directory.
enum ListingMessage {
    Text(Vec<u8>),
    /// The listing failed and is incomplete.
    Failed(FileError),
    /// The listing is complete.
    End,
}

/// The text of a listing as a source of bytes: lines with CR LF, in every TYPE. It must be read in
/// order; dropping it ends the thread.
pub(crate) struct ListingSource {
    name: String,
    state: Mutex<ListingStreamState>,
}

struct ListingStreamState {
    messages: Receiver<ListingMessage>,
    text: Vec<u8>,
    /// Bytes of `text` that were read.
    taken: usize,
    /// Bytes read in total.
    offset: u64,
    ended: bool,
}

impl ListingSource {
    /// Starts a listing. A directory that cannot be listed is an error here, before the transfer begins.
    pub(crate) fn start(
        files: &impl ListedFiles,
        request: &ListRequest,
    ) -> Result<Self, FileError> {
        let (sender, messages) = sync_channel(BUFFERS_AHEAD);
        let (files, request) = (files.clone(), request.clone());
        let name = request.path.to_string();
        std::thread::Builder::new()
            .name("listing".to_owned())
            .spawn(move || produce_listing(&files, &request, &sender))
            .map_err(|error| FileError {
                kind: FileErrorKind::Busy,
                errno: error.raw_os_error(),
                text: format!("no thread for a listing: {error}"),
            })?;
        let mut state = ListingStreamState {
            messages,
            text: Vec::new(),
            taken: 0,
            offset: 0,
            ended: false,
        };
        // Waiting for the first text shows errors of opening the directory before the 150 reply.
        state.receive_text()?;
        Ok(Self {
            name,
            state: Mutex::new(state),
        })
    }
}

impl ListingStreamState {
    fn receive_text(&mut self) -> Result<(), FileError> {
        self.taken = 0;
        self.text.clear();
        match self.messages.recv() {
            Ok(ListingMessage::Text(text)) => self.text = text,
            Ok(ListingMessage::End) => self.ended = true,
            Ok(ListingMessage::Failed(error)) => return Err(error),
            // The thread panicked; the panic hook has logged the defect.
            Err(_) => {
                return Err(FileError::new(FileErrorKind::Other, "internal error"));
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for ListingSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListingSource")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Source for ListingSource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut state = self.state.lock();
        // The text is produced once and not kept, so it cannot be read out of order.
        if offset != state.offset {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        while state.taken == state.text.len() && !state.ended {
            state.receive_text().map_err(|error| match error.errno {
                Some(errno) => io::Error::from_raw_os_error(errno),
                None => io::Error::other(error.text),
            })?;
        }
        let rest = &state.text[state.taken..];
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        state.taken += n;
        state.offset += n as u64;
        Ok(n)
    }

    fn len(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Runs on the thread. Sending fails when the source was dropped; then the thread ends.
fn produce_listing(
    files: &impl ListedFiles,
    request: &ListRequest,
    messages: &SyncSender<ListingMessage>,
) {
    let mut text = Vec::new();
    let mut has_begun = false;
    let mut compressor = request.deflate.then(TextCompressor::default);
    let mut writer = ListingWriter::new(request.format, |line: Vec<u8>| {
        text.extend_from_slice(&line);
        text.extend_from_slice(b"\r\n");
        if text.len() < BUFFER_SIZE {
            return ControlFlow::Continue(());
        }
        let full = std::mem::take(&mut text);
        let part = match &mut compressor {
            Some(compressor) => compressor.part(&full),
            None => full,
        };
        has_begun = true;
        match messages.send(ListingMessage::Text(part)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    });
    let result = files.write_listing(request, &mut writer);
    if result.is_ok()
        && let Some(compressor) = compressor
    {
        text = compressor.end(&text);
    }
    // A listing that fails before its first buffer is full is refused without a text.
    if !text.is_empty() && (result.is_ok() || has_begun) {
        let _ = messages.send(ListingMessage::Text(text));
    }
    let _ = messages.send(match result {
        Ok(()) => ListingMessage::End,
        Err(error) => ListingMessage::Failed(error),
    });
}

/// Compresses a text part by part, so that the receiver can read each when it arrives.
struct TextCompressor(ZlibEncoder<Vec<u8>>);

impl Default for TextCompressor {
    fn default() -> Self {
        Self(ZlibEncoder::new(Vec::new(), Compression::default()))
    }
}

// Writing into memory does not fail.
impl TextCompressor {
    fn part(&mut self, text: &[u8]) -> Vec<u8> {
        let _ = self.0.write_all(text);
        let _ = self.0.flush();
        std::mem::take(self.0.get_mut())
    }

    fn end(mut self, text: &[u8]) -> Vec<u8> {
        let _ = self.0.write_all(text);
        self.0.finish().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use data::store::root::Root;
    use proto::path::VPath;
    use proto::server::{AccountRights, ListFormat};

    use super::*;
    use crate::files::{DirectoryFiles, ListingMemory};

    fn files(names: usize) -> (tempfile::TempDir, DirectoryFiles) {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..names {
            File::create(dir.path().join(format!("{n:0>200}"))).unwrap();
        }
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let rights = AccountRights {
            write: true,
            third_party: false,
        };
        (
            dir,
            DirectoryFiles::new(
                root,
                rights,
                Arc::default(),
                Arc::default(),
                ListingMemory::default(),
            ),
        )
    }

    fn names() -> ListRequest {
        ListRequest {
            path: VPath::root(),
            pattern: None,
            prefix: Vec::new(),
            format: ListFormat::Names,
            recursive: false,
            deflate: false,
        }
    }

    #[test]
    fn a_listing_is_read_in_order_and_completely() {
        let (_dir, files) = files(4000);
        let source = ListingSource::start(&files, &names()).unwrap();
        let mut text = Vec::new();
        let mut buf = [0; 7001];
        loop {
            let n = source.read_at(text.len() as u64, &mut buf).unwrap();
            if n == 0 {
                break;
            }
            text.extend_from_slice(&buf[..n]);
        }
        assert_eq!(text.len(), 4000 * 202);
        assert!(text.ends_with(format!("{:0>200}\r\n", 3999).as_bytes()));
        assert!(source.read_at(0, &mut buf).is_err());
    }

    #[test]
    fn the_thread_is_only_a_few_buffers_ahead() {
        let (_dir, files) = files(4000);
        let source = ListingSource::start(&files, &names()).unwrap();
        // The thread blocks at the bound, so it has produced all that it may.
        let produced = |state: &ListingStreamState| {
            let messages = std::iter::from_fn(|| state.messages.try_recv().ok());
            messages.take(BUFFERS_AHEAD + 1).count()
        };
        let state = source.state.lock();
        assert!(produced(&state) <= BUFFERS_AHEAD + 1 && state.text.len() < 2 * BUFFER_SIZE);
    }

    #[test]
    fn a_missing_directory_is_an_error_at_the_start() {
        let (_dir, files) = files(0);
        let request = ListRequest {
            path: VPath::root().join(b"none").unwrap(),
            ..names()
        };
        let error = ListingSource::start(&files, &request).err().unwrap();
        assert_eq!(error.kind, FileErrorKind::NotFound);
    }
}
