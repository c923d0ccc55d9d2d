//! Conformance suite of stores: the rules that every source and sink keeps.

use std::io;
use std::sync::Arc;

use super::{Sink, Source};

/// Reads a whole source through a buffer of `step` bytes.
fn read_all(source: &dyn Source, step: usize) -> Vec<u8> {
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

/// Checks that a source made of given bytes returns them in any steps, and reports its
/// capabilities.
pub(crate) fn check_source(make: impl Fn(&[u8]) -> Arc<dyn Source>, random: bool) {
    let bytes: Vec<u8> = (0..50_000u32).map(|i| (i % 251) as u8).collect();
    for step in [1usize << 20, 4096, 777] {
        assert_eq!(read_all(&*make(&bytes), step), bytes);
    }
    assert!(read_all(&*make(b""), 10).is_empty());
    let source = make(&bytes);
    assert!(!source.name().is_empty());
    let mut buf = [0; 10];
    if random {
        assert_eq!(source.len().unwrap(), Some(bytes.len() as u64));
        assert_eq!(source.read_at(40_000, &mut buf).unwrap(), 10);
        assert_eq!(buf, bytes[40_000..40_010]);
        assert_eq!(source.read_at(5, &mut buf).unwrap(), 10);
        assert_eq!(buf, bytes[5..15]);
        assert_eq!(source.read_at(50_000, &mut buf).unwrap(), 0);
        assert_eq!(source.read_at(1 << 40, &mut buf).unwrap(), 0);
    } else {
        assert_eq!(source.len().unwrap(), None);
        assert!(source.fd().is_none());
        let n = source.read_at(0, &mut buf).unwrap() as u64;
        let error = source.read_at(n + 1, &mut buf).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(source.read_at(n, &mut buf).unwrap() > 0);
    }
}

/// Checks that a sink for any order holds every byte at its offset.
pub(crate) fn check_random_sink(sink: &dyn Sink) {
    assert!(sink.is_seekable());
    sink.write_at(1000, b"later").unwrap();
    sink.write_at(0, b"first").unwrap();
    sink.write_at(2, b"RST").unwrap();
    sink.write_at(7, b"").unwrap();
    let view = sink.open_reader().expect("a sink under test can be read");
    let all = read_all(&*view, 4096);
    assert_eq!(all.len(), 1005);
    assert_eq!(&all[..5], b"fiRST");
    assert!(all[5..1000].iter().all(|b| *b == 0));
    assert_eq!(&all[1000..], b"later");
}

/// Checks that a sequential sink accepts gapless offsets and refuses others without effect.
pub(crate) fn check_sequential_sink(sink: impl Sink, read_back: impl FnOnce() -> Vec<u8>) {
    assert!(!sink.is_seekable());
    assert!(sink.fd().is_none());
    sink.write_at(0, b"one").unwrap();
    for offset in [0, 2, 4] {
        let error = sink.write_at(offset, b"x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    sink.write_at(3, b"two").unwrap();
    drop(sink);
    assert_eq!(read_back(), b"onetwo");
}
