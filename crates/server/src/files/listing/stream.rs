//! A listing for a data connection: its text is made while it is sent.
//!
//! One thread reads the directory and stays a few pieces of text ahead of what was sent. So a
//! listing takes the same memory whatever the directory's size and the client's speed.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use data::store::Source;
use proto::server::{FileError, FileErrorKind, ListRequest};

use super::{ListingWriter, SessionFiles};

/// Text in a piece, bytes; the last line may exceed it.
const PIECE: usize = 64 << 10;

/// Pieces that are made ahead.
const AHEAD: usize = 4;

/// A message of the directory's thread.
enum ListingMessage {
    Text(Vec<u8>),
    /// The listing is not whole.
    Failed(FileError),
    /// It is.
    End,
}

/// Lines with CR LF, in every TYPE, as they are made. Read in order; dropping it ends the thread.
pub(in crate::files) struct ListingSource {
    name: String,
    state: Mutex<ListingStreamState>,
}

struct ListingStreamState {
    pieces: Receiver<ListingMessage>,
    text: Vec<u8>,
    /// Of `text`, sent.
    sent: usize,
    /// Sent in all.
    offset: u64,
    ended: bool,
}

impl ListingSource {
    /// Begins a listing; what cannot be listed at all is refused here.
    pub(in crate::files) fn start(
        files: &SessionFiles,
        request: &ListRequest,
    ) -> Result<Self, FileError> {
        let (sender, pieces) = sync_channel(AHEAD);
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
            pieces,
            text: Vec::new(),
            sent: 0,
            offset: 0,
            ended: false,
        };
        state.receive_text()?;
        Ok(Self {
            name,
            state: Mutex::new(state),
        })
    }
}

impl ListingStreamState {
    fn receive_text(&mut self) -> Result<(), FileError> {
        self.sent = 0;
        self.text.clear();
        match self.pieces.recv() {
            Ok(ListingMessage::Text(text)) => self.text = text,
            Ok(ListingMessage::End) => self.ended = true,
            Ok(ListingMessage::Failed(error)) => return Err(error),
            // The thread died (a defect; the panic hook logged it).
            Err(_) => {
                return Err(FileError {
                    kind: FileErrorKind::Other,
                    errno: None,
                    text: "internal error".to_owned(),
                });
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
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if offset != state.offset {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        while state.sent == state.text.len() && !state.ended {
            state.receive_text().map_err(|error| match error.errno {
                Some(errno) => io::Error::from_raw_os_error(errno),
                None => io::Error::other(error.text),
            })?;
        }
        let rest = &state.text[state.sent..];
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        state.sent += n;
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

/// The thread's work. A send fails when nobody wants the listing any more.
fn produce_listing(
    files: &SessionFiles,
    request: &ListRequest,
    pieces: &SyncSender<ListingMessage>,
) {
    let mut text = Vec::new();
    let mut writer = ListingWriter::new(request.format, |line: Vec<u8>| {
        text.extend_from_slice(&line);
        text.extend_from_slice(b"\r\n");
        if text.len() >= PIECE
            && pieces
                .send(ListingMessage::Text(std::mem::take(&mut text)))
                .is_err()
        {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    let result = files.write_listing(request, &mut writer);
    if !text.is_empty() {
        let _ = pieces.send(ListingMessage::Text(text));
    }
    let _ = pieces.send(match result {
        Ok(()) => ListingMessage::End,
        Err(error) => ListingMessage::Failed(error),
    });
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use data::store::root::Root;
    use proto::path::VPath;
    use proto::server::{AccountRights, ListFormat};

    use super::*;
    use crate::files::ListingMemory;

    fn files(names: usize) -> (tempfile::TempDir, SessionFiles) {
        let place = tempfile::tempdir().unwrap();
        for n in 0..names {
            File::create(place.path().join(format!("{n:0>200}"))).unwrap();
        }
        let root = Arc::new(Root::open(place.path()).unwrap());
        let rights = AccountRights {
            write: true,
            third_party: false,
        };
        (
            place,
            SessionFiles::new(
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
            format: ListFormat::Names,
            recursive: false,
        }
    }

    #[test]
    fn it_is_read_in_order_and_comes_whole() {
        let (_place, files) = files(4000);
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
    fn it_is_made_a_few_pieces_ahead_and_not_further() {
        let (_place, files) = files(4000);
        let source = ListingSource::start(&files, &names()).unwrap();
        // The thread blocks at the bound: what it made is all that it may.
        let made = |state: &ListingStreamState| {
            let pieces = std::iter::from_fn(|| state.pieces.try_recv().ok());
            pieces.take(AHEAD + 1).count()
        };
        let state = source.state.lock().unwrap();
        assert!(made(&state) <= AHEAD + 1 && state.text.len() < 2 * PIECE);
    }

    #[test]
    fn a_directory_that_is_not_there_is_refused_at_once() {
        let (_place, files) = files(0);
        let request = ListRequest {
            path: VPath::root().join(b"none").unwrap(),
            ..names()
        };
        let error = ListingSource::start(&files, &request).err().unwrap();
        assert_eq!(error.kind, FileErrorKind::NotFound);
    }
}
