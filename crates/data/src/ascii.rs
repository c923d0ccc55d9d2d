//! TYPE A: line ends are CR LF on the wire and LF in the store (RFC 959 §3.1.1.1).
//!
//! Both directions are adapters of a store, so the pump needs no knowledge of text. They are
//! sequential, because the translation shifts every later offset.

use parking_lot::Mutex;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::store::{Sink, Source};

/// Bytes read from the store in one call.
const READ_SIZE: usize = 256 << 10;

/// Translates LF to CR LF. An existing CR LF stays as it is: listings are written with it, and some
/// servers wrongly double the CR.
#[derive(Debug, Default)]
struct CrLfEncoder {
    after_cr: bool,
}

impl CrLfEncoder {
    fn translate(&mut self, input: &[u8], out: &mut Vec<u8>) {
        for byte in input {
            if *byte == b'\n' && !self.after_cr {
                out.push(b'\r');
            }
            self.after_cr = *byte == b'\r';
            out.push(*byte);
        }
    }
}

/// Translates CR LF to LF. A CR without a following LF stays.
#[derive(Debug, Default)]
struct CrLfDecoder {
    pending_cr: bool,
}

impl CrLfDecoder {
    fn translate(&mut self, input: &[u8], out: &mut Vec<u8>) {
        for byte in input {
            if self.pending_cr && *byte != b'\n' {
                out.push(b'\r');
            }
            self.pending_cr = *byte == b'\r';
            if !self.pending_cr {
                out.push(*byte);
            }
        }
    }

    /// Writes a pending CR at the end of the text: no LF follows it.
    fn finish(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.pending_cr) {
            out.push(b'\r');
        }
    }
}

/// The source ended before its announced length.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the source shrank while it was sent: it ended at {at} of {expected} bytes")]
pub(crate) struct ShrunkTextError {
    /// Offset at which it ended, bytes.
    pub(crate) at: u64,
    /// The announced length, bytes.
    pub(crate) expected: u64,
}

/// A source whose line ends are translated for the wire.
#[derive(Debug)]
pub(crate) struct AsciiSource {
    inner: Arc<dyn Source>,
    state: Mutex<AsciiSourceState>,
}

#[derive(Debug)]
struct AsciiSourceState {
    encode: CrLfEncoder,
    /// Next byte of the store, and the end of the part to send.
    at: u64,
    end: u64,
    /// Translated bytes that were not taken yet.
    ready: Vec<u8>,
    taken: usize,
    /// Wire offset of the next byte to take.
    wire_offset: u64,
}

impl AsciiSource {
    /// Translates bytes `start..end` of `inner`, or up to its end if `end` is `u64::MAX`. A read
    /// fails with [`ShrunkTextError`] if the source ends before `end`.
    pub(crate) fn new(inner: Arc<dyn Source>, start: u64, end: u64) -> Self {
        let state = Mutex::new(AsciiSourceState {
            encode: CrLfEncoder::default(),
            at: start,
            end,
            ready: Vec::new(),
            taken: 0,
            wire_offset: 0,
        });
        Self { inner, state }
    }

    fn refill(&self, state: &mut AsciiSourceState) -> io::Result<()> {
        // `u64::MAX` as the end does not fit a usize on 32-bit systems; a full read is right then,
        // too.
        let want = usize::try_from(state.end - state.at)
            .unwrap_or(READ_SIZE)
            .min(READ_SIZE);
        let mut raw = vec![0; want];
        let n = self.inner.read_at(state.at, &mut raw)?;
        let announced = state.end != u64::MAX;
        // Without an announced length (a pipe), a read of 0 is the normal end.
        if n == 0 && want > 0 && announced {
            let shrunk = ShrunkTextError {
                at: state.at,
                expected: state.end,
            };
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, shrunk));
        }
        state.at += n as u64;
        state.ready.clear();
        state.taken = 0;
        state.encode.translate(&raw[..n], &mut state.ready);
        Ok(())
    }
}

impl Source for AsciiSource {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut state = self.state.lock();
        // The pump reads this source in order only; any other offset is a defect of the caller.
        if offset != state.wire_offset {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if state.taken == state.ready.len() {
            self.refill(&mut state)?;
        }
        // A translated block may be longer than the buffer, so the rest stays in `ready`.
        let n = buf.len().min(state.ready.len() - state.taken);
        buf[..n].copy_from_slice(&state.ready[state.taken..state.taken + n]);
        state.taken += n;
        state.wire_offset += n as u64;
        Ok(n)
    }

    fn len(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A sink whose line ends are translated from the wire.
#[derive(Debug)]
pub(crate) struct AsciiSink {
    inner: Arc<dyn Sink>,
    state: Mutex<AsciiSinkState>,
}

#[derive(Debug, Default)]
struct AsciiSinkState {
    decode: CrLfDecoder,
    out: Vec<u8>,
    /// Next offset on the wire, and next offset in the store.
    wire_offset: u64,
    store_offset: u64,
}

impl AsciiSink {
    /// Stores the translated bytes from `start` on. Wire offsets begin at `start`, too.
    pub(crate) fn new(inner: Arc<dyn Sink>, start: u64) -> Self {
        let state = Mutex::new(AsciiSinkState {
            wire_offset: start,
            store_offset: start,
            ..AsciiSinkState::default()
        });
        Self { inner, state }
    }

    /// Stores a CR that was held back at the end of the text.
    pub(crate) fn finish(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.out.clear();
        let AsciiSinkState { decode, out, .. } = &mut *state;
        // A single pending CR may become the last byte of the file here.
        decode.finish(out);
        self.inner.write_at(state.store_offset, &state.out)
    }
}

impl Sink for AsciiSink {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        // A skipped range would need the length of its translation, which is unknown.
        let mut state = self.state.lock();
        if offset != state.wire_offset {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "text cannot be stored out of order; use TYPE I",
            ));
        }
        state.out.clear();
        let AsciiSinkState { decode, out, .. } = &mut *state;
        decode.translate(buf, out);
        self.inner.write_at(state.store_offset, &state.out)?;
        state.wire_offset += buf.len() as u64;
        state.store_offset += state.out.len() as u64;
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_seekable(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::{MemorySink, MemorySource};
    use proptest::prelude::*;

    fn encoded(text: &[u8], step: usize) -> Vec<u8> {
        let inner = Arc::new(MemorySource::new(text.to_vec(), "m"));
        let source = AsciiSource::new(inner, 0, text.len() as u64);
        let mut all = Vec::new();
        let mut buf = vec![0; step];
        loop {
            let n = source.read_at(all.len() as u64, &mut buf).unwrap();
            if n == 0 {
                return all;
            }
            all.extend_from_slice(&buf[..n]);
        }
    }

    fn decoded(text: &[u8], step: usize) -> Vec<u8> {
        let inner = MemorySink::new(1 << 20, "m");
        let sink = AsciiSink::new(Arc::new(inner.clone()), 0);
        for (i, part) in text.chunks(step).enumerate() {
            sink.write_at((i * step) as u64, part).unwrap();
        }
        sink.finish().unwrap();
        inner.bytes()
    }

    #[test]
    fn line_ends_are_translated_in_both_directions() {
        for (stored, sent) in [
            ("", ""),
            ("a\nb\n", "a\r\nb\r\n"),
            ("\n\n", "\r\n\r\n"),
            ("a\rb\r", "a\rb\r"),
        ] {
            for step in 1..4 {
                assert_eq!(encoded(stored.as_bytes(), step), sent.as_bytes());
                assert_eq!(decoded(sent.as_bytes(), step), stored.as_bytes());
            }
        }
        assert_eq!(encoded(b"a\r\nb", 1), b"a\r\nb");
        assert_eq!(decoded(b"a\r\r\nb", 1), b"a\r\nb");
    }

    #[test]
    fn only_the_requested_part_is_translated() {
        let inner = Arc::new(MemorySource::new(b"ab\ncd\n".to_vec(), "m"));
        let source = AsciiSource::new(inner, 2, 4);
        let mut buf = [0; 9];
        assert_eq!(source.read_at(0, &mut buf).unwrap(), 3);
        assert_eq!(&buf[..3], b"\r\nc");
        assert_eq!(source.read_at(3, &mut buf).unwrap(), 0);
    }

    #[test]
    fn a_shrunk_source_is_an_error_and_not_the_end_of_text() {
        let inner = Arc::new(MemorySource::new(b"ab\n".to_vec(), "m"));
        let source = AsciiSource::new(inner, 0, 10);
        let mut buf = [0; 9];
        assert_eq!(source.read_at(0, &mut buf).unwrap(), 4);
        let error = source.read_at(4, &mut buf).unwrap_err();
        assert!(error.to_string().contains("3 of 10"), "{error}");
    }

    proptest! {
        #[test]
        fn text_without_cr_survives_a_round_trip(
            text in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'x')], 0..500),
            step in 1usize..40,
        ) {
            prop_assert_eq!(decoded(&encoded(&text, step), step), text);
        }
    }
}
