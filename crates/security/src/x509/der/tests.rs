use proptest::prelude::*;

use super::*;

#[test]
fn lengths_take_as_few_bytes_as_possible() {
    assert_eq!(element(SEQUENCE, &[]), [0x30, 0]);
    assert_eq!(element(SEQUENCE, &[7; 127])[..2], [0x30, 127]);
    assert_eq!(element(SEQUENCE, &[7; 128])[..3], [0x30, 0x81, 128]);
    assert_eq!(element(SEQUENCE, &[7; 256])[..4], [0x30, 0x82, 1, 0]);
}

#[test]
fn integers_are_never_negative() {
    assert_eq!(integer(0), [2, 1, 0]);
    assert_eq!(integer(127), [2, 1, 127]);
    assert_eq!(integer(128), [2, 2, 0, 128]);
    assert_eq!(integer(u32::MAX), [2, 5, 0, 255, 255, 255, 255]);
}

#[test]
fn elements_are_read_as_they_are_written() {
    for length in [0, 1, 127, 128, 255, 256, 70_000] {
        let mut bytes = element(SEQUENCE, &vec![7; length]);
        bytes.push(9);
        assert_eq!(read(&bytes), Some((SEQUENCE, &*vec![7; length], &[9][..])));
    }
    for value in [0, 1, 127, 128, 65_535, u32::MAX] {
        let bytes = integer(value);
        assert_eq!(read_integer(&bytes), Some(value));
    }
    assert_eq!(read(&[0x30, 0x80]), None);
    assert_eq!(read(&[0x30, 2, 0]), None);
    assert_eq!(read(&[0x3f, 0x81, 1, 0]), None);
    for bytes in [
        &[2, 1, 0xff][..],
        &[2, 0],
        &[2, 5, 1, 0, 0, 0, 0],
        &[2, 1, 1, 0],
        &[4, 1, 1],
    ] {
        assert_eq!(read_integer(bytes), None, "{bytes:?}");
    }
}

proptest! {
    #[test]
    fn reading_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        read(&bytes);
        read_integer(&bytes);
    }
}
