use super::*;
use crate::timestamp::Timestamp;

fn bytes(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn string(text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap();
    bytes(&[&length.to_be_bytes(), text])
}

#[test]
fn a_request_is_a_packet_with_its_length_and_its_number() {
    let mut out = Vec::new();
    SftpRequest::Open(b"/a\xff", OpenFlags::Replace).put(7, &mut out);
    let wanted = bytes(&[
        &20u32.to_be_bytes(),
        &[3],
        &7u32.to_be_bytes(),
        &string(b"/a\xff"),
        &26u32.to_be_bytes(),
        &[0; 4],
    ]);
    assert_eq!(out, wanted);
    for (flags, bits) in [
        (OpenFlags::Write, 10u32),
        (OpenFlags::WriteExisting, 2),
        (OpenFlags::New, 42),
    ] {
        out.clear();
        SftpRequest::Open(b"/a", flags).put(7, &mut out);
        assert_eq!(out[15..19], bits.to_be_bytes());
    }
    let [target, link] = [b"to".as_slice(), b"name"];
    out.clear();
    SftpRequest::SymLink { target, link }.put(1, &mut out);
    assert_eq!(out[9..], bytes(&[&string(target), &string(link)]));
}

#[test]
fn a_write_without_bytes_is_no_packet() {
    let mut out = vec![1];
    let fill = |out: &mut Vec<u8>| {
        out.extend_from_slice(b"data");
        Ok::<(), ()>(())
    };
    assert_eq!(put_write(&mut out, 2, b"h", 9, fill), Ok(4));
    assert_eq!(packet_len(&out[1..]), Ok(Some(out.len() - 1)));
    assert!(out.ends_with(&string(b"data")));
    let before = out.clone();
    let none = |_: &mut Vec<u8>| Ok::<(), ()>(());
    assert_eq!(put_write(&mut out, 3, b"h", 9, none), Ok(0));
    let fails = |out: &mut Vec<u8>| {
        out.push(1);
        Err(())
    };
    assert_eq!(put_write(&mut out, 3, b"h", 9, fails), Err(()));
    assert_eq!(out, before);
}

#[test]
fn the_length_of_a_packet_is_bounded() {
    assert_eq!(packet_len(&[0, 0, 0]), Ok(None));
    assert_eq!(packet_len(&[0, 0, 0, 1]), Ok(Some(5)));
    for wrong in [0, 262_145, u32::MAX, u32::from_be_bytes(*b"Welc")] {
        assert_eq!(
            packet_len(&wrong.to_be_bytes()),
            Err(SftpError::Length(wrong))
        );
    }
}

#[test]
fn extensions_and_limits_are_read() {
    let version = bytes(&[
        &[2, 0, 0, 0, 3],
        &string(b"fsync@openssh.com"),
        &string(b"1"),
        &string(b"unknown"),
        &string(b""),
    ]);
    let extensions = SftpVersion::parse(&version).unwrap().extensions;
    assert!(extensions.fsync && !extensions.posix_rename);
    assert_eq!(
        SftpVersion::parse(&[2, 0, 0, 0, 6]),
        Err(SftpError::Version(6))
    );
    assert_eq!(SftpVersion::parse(b"Welcome"), Err(SftpError::Kind(b'W')));
    let limits = |values: [u64; 4]| SftpLimits::parse(&values.map(u64::to_be_bytes).concat());
    let of_openssh = |handles| {
        let (read, write) = (261_120, 261_120);
        Ok(SftpLimits {
            read,
            write,
            handles,
        })
    };
    assert_eq!(limits([262_144, 261_120, 261_120, 1000]), of_openssh(1000));
    assert_eq!(limits([0, 0, u64::MAX, 0]), of_openssh(u32::MAX));
    let small = limits([0, 1, 40_000, 0]).unwrap();
    assert_eq!((small.read, small.write), (1024, 40_000));
    assert_eq!(SftpLimits::parse(b"short"), Err(SftpError::Cut));
}

#[test]
fn names_have_any_bytes_and_the_attributes_that_are_there() {
    let names = bytes(&[
        &[104, 0, 0, 0, 5, 0, 0, 0, 2],
        &string(b"\xff\n"),
        &string(b"long"),
        &(attribute::SIZE | attribute::PERMISSIONS | attribute::TIMES).to_be_bytes(),
        &9u64.to_be_bytes(),
        &0o100_644u32.to_be_bytes(),
        &1u32.to_be_bytes(),
        &u32::MAX.to_be_bytes(),
        &string(b"d"),
        &string(b""),
        &(attribute::OWNER | attribute::EXTENDED).to_be_bytes(),
        &[0; 8],
        &1u32.to_be_bytes(),
        &string(b"key"),
        &string(b"value"),
    ]);
    let (5, SftpReply::Names(found)) = SftpReply::parse(&names).unwrap() else {
        panic!("no names");
    };
    assert_eq!(found[0].name, b"\xff\n");
    let attributes = found[0].attributes;
    assert_eq!(attributes.size, Some(9));
    assert_eq!(attributes.modified, Some(Timestamp(u32::MAX.into())));
    assert!(attributes.is_file() && !attributes.is_directory());
    assert_eq!(found[1].attributes, SftpAttributes::default());
    for cut in 0..names.len() {
        assert_eq!(
            SftpReply::parse(&names[..cut]),
            Err(SftpError::Cut),
            "{cut}"
        );
    }
    // A number of names, or of attributes, takes no memory by itself.
    let endless = [104, 0, 0, 0, 5, 255, 255, 255, 255];
    assert_eq!(SftpReply::parse(&endless), Err(SftpError::Cut));
}

#[test]
fn a_status_has_a_code_and_perhaps_a_text() {
    let status = |code: u32, text: &[u8]| {
        let packet = bytes(&[&[101, 0, 0, 0, 1], &code.to_be_bytes(), text]);
        match SftpReply::parse(&packet) {
            Ok((1, SftpReply::Status(status))) => status,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(status(2, b"").code, SftpStatusCode::NoSuchFile);
    assert_eq!(status(4, &string(b"No space")).text, b"No space");
    assert_eq!(status(4, &string(&[b'x'; 9000])).text.len(), 256);
    assert_eq!(status(77, b"").code, SftpStatusCode::Other(77));
}

#[test]
fn a_file_system_without_blocks_or_files_for_a_request_is_full() {
    // The size of a block, of a fragment, blocks, free ones, free for this login, files, free ones, free for this login.
    let space = |free: u64, files: u64, free_files: u64| {
        let values = [9, 512, 100, 50, free, files, 9, free_files, 0, 0, 255];
        FileSystemSpace::parse(&values.map(u64::to_be_bytes).concat()).unwrap()
    };
    assert!(space(1, 10, 1).has_room(512));
    assert!(!space(1, 10, 1).has_room(513));
    assert!(!space(u64::MAX, 10, 0).has_room(1));
    // Some have no number of files.
    assert!(space(u64::MAX, 0, 0).has_room(u64::MAX));
    assert_eq!(FileSystemSpace::parse(b"short"), Err(SftpError::Cut));
}

#[test]
fn a_checksum_is_read_in_both_forms() {
    for begin in [string(b""), string(b"check-file")] {
        let begin = &begin[if begin.len() == 4 { 4 } else { 0 }..];
        let answer = bytes(&[begin, &string(b"sha1"), &[0xab; 20]]);
        let checked = FileChecksum::parse(&answer).unwrap();
        assert_eq!(
            checked.algorithm,
            Some(crate::checksum::ChecksumAlgorithm::Sha1)
        );
        assert_eq!(checked.checksum, "ab".repeat(20));
    }
}
