use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use proptest::prelude::*;

use super::*;

fn deflated(text: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    for part in text.chunks(1000) {
        encoder.write_all(part).unwrap();
        encoder.flush().unwrap();
    }
    encoder.finish().unwrap()
}

fn read_all<'a>(
    reader: &mut InflatedText,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    for piece in pieces {
        reader.read(piece, |text| {
            read.extend_from_slice(text);
            Ok(())
        })?;
    }
    Ok(read)
}

proptest! {
    #[test]
    fn a_text_is_read_back_however_it_is_cut(
        text in proptest::collection::vec(any::<u8>(), 0..5000),
        length in 1usize..300,
    ) {
        let packed = deflated(&text);
        let mut reader = InflatedText::new();
        prop_assert_eq!(read_all(&mut reader, packed.chunks(length)).unwrap(), text);
        prop_assert!(reader.has_ended());
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
        let _ = read_all(&mut InflatedText::new(), std::iter::once(bytes.as_slice()));
    }
}

#[test]
fn a_text_that_is_cut_has_not_ended_and_one_that_goes_on_is_damaged() {
    let mut packed = deflated(&b"line\r\n".repeat(50_000));
    let mut reader = InflatedText::new();
    let cut = &packed[..packed.len() - 1];
    assert_eq!(
        read_all(&mut reader, [cut].into_iter()).unwrap().len(),
        300_000
    );
    assert!(!reader.has_ended());
    packed.push(0);
    let all = read_all(&mut InflatedText::new(), [packed.as_slice()].into_iter());
    assert_eq!(all.unwrap_err().kind(), io::ErrorKind::InvalidData);
}

#[test]
fn a_large_text_is_passed_on_in_parts() {
    let packed = deflated(&vec![b'a'; 10 << 20]);
    let mut total = 0;
    let counted = InflatedText::new().read(&packed, |text| {
        assert!(text.len() <= PART);
        total += text.len();
        Ok(())
    });
    counted.unwrap();
    assert_eq!(total, 10 << 20);
}
