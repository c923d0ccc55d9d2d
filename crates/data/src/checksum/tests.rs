use super::*;
use crate::store::memory::MemorySource;
use proptest::prelude::*;

/// Check values: RFC 1950 text, the CRC catalogue's "123456789", RFC 1321, FIPS 180, BLAKE3.
fn piece(like: PartialChecksum, bytes: &[u8]) -> PartialChecksum {
    let mut run = PartialHasher::same_algorithm(like);
    let (first, second) = bytes.split_at(bytes.len() / 3);
    run.update(first);
    run.update(second);
    run.finish()
}

#[test]
fn every_algorithm_gives_its_published_check_values() {
    let checksum = |algorithm, text: &str| {
        let mut digest = ChecksumHasher::new(algorithm);
        digest.update(text.as_bytes());
        digest.finish()
    };
    assert_eq!(
        checksum(ChecksumAlgorithm::Adler32, "Wikipedia"),
        "11e60398"
    );
    assert_eq!(checksum(ChecksumAlgorithm::Crc32, "123456789"), "cbf43926");
    assert_eq!(checksum(ChecksumAlgorithm::Crc32c, "123456789"), "e3069283");
    assert_eq!(
        checksum(ChecksumAlgorithm::Md5, "abc"),
        "900150983cd24fb0d6963f7d28e17f72"
    );
    assert_eq!(
        checksum(ChecksumAlgorithm::Sha1, "abc"),
        "a9993e364706816aba3e25717850c26c9cd0d89d"
    );
    assert_eq!(
        checksum(ChecksumAlgorithm::Sha256, "abc"),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
    assert!(
        checksum(ChecksumAlgorithm::Sha512, "abc").starts_with("ddaf35a193617abacc417349ae204131")
    );
    assert!(
        checksum(ChecksumAlgorithm::Blake3, "").starts_with("af1349b9f5f9a1a6a0404dea36dcc949")
    );
    // The check value of the catalogue of CRCs.
    assert_eq!(
        checksum(ChecksumAlgorithm::Crc64Nvme, "123456789"),
        "ae8b14860a799888"
    );
    assert_eq!(checksum(ChecksumAlgorithm::Adler32, ""), "00000001");
    assert_eq!(checksum(ChecksumAlgorithm::Crc32c, ""), "00000000");
    for algorithm in ChecksumAlgorithm::CHEAPEST_FIRST {
        assert_eq!(checksum(algorithm, "x").len(), algorithm.hex_len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn partial_checksums_combine_to_the_checksum_of_the_whole(
        bytes in proptest::collection::vec(any::<u8>(), 0..200_000),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|c| c.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        for algorithm in ChecksumAlgorithm::CHEAPEST_FIRST {
            let Some(empty) = PartialChecksum::empty(algorithm) else {
                prop_assert!(!algorithm.is_combinable());
                continue;
            };
            let joined = cuts
                .windows(2)
                .map(|w| piece(empty, &bytes[w[0]..w[1]]))
                .fold(empty, PartialChecksum::combine);
            let mut whole = ChecksumHasher::new(algorithm);
            whole.update(&bytes);
            prop_assert_eq!(joined.len, bytes.len() as u64);
            prop_assert_eq!(joined.finish(), whole.finish());
        }
    }
}

#[test]
fn adler32_combines_with_the_largest_residues() {
    let bytes = vec![0xff; 400_000];
    let empty = PartialChecksum::empty(ChecksumAlgorithm::Adler32).unwrap();
    let joined = piece(empty, &bytes[..65_521]).combine(piece(empty, &bytes[65_521..]));
    let mut whole = ChecksumHasher::new(ChecksumAlgorithm::Adler32);
    whole.update(&bytes);
    assert_eq!(joined.finish(), whole.finish());
}

#[test]
fn the_checksum_of_a_range_ends_with_the_source() {
    let source = MemorySource::new(b"xx123456789yy".to_vec(), "m");
    let checksum = |offset, length| {
        checksum_source(
            ChecksumAlgorithm::Crc32,
            &source,
            offset,
            length,
            &mut |_| true,
        )
        .unwrap()
    };
    assert_eq!(checksum(2, Some(9)), "cbf43926");
    assert_eq!(checksum(2, Some(0)), "00000000");
    assert_eq!(checksum(100, None), "00000000");
    assert_eq!(checksum(u64::MAX, Some(u64::MAX)), "00000000");
    let tail = MemorySource::new(b"123456789".to_vec(), "m");
    assert_eq!(
        checksum_source(
            ChecksumAlgorithm::Crc32,
            &tail,
            0,
            Some(u64::MAX),
            &mut |_| true
        )
        .unwrap(),
        "cbf43926"
    );
}

#[test]
fn progress_can_stop_a_checksum() {
    let source = MemorySource::new(vec![0; READ_SIZE * 3], "m");
    let mut progress = Vec::new();
    let result = checksum_source(ChecksumAlgorithm::Md5, &source, 0, None, &mut |done| {
        progress.push(done);
        progress.len() < 2
    });
    assert!(matches!(result, Err(DataError::Aborted)));
    assert_eq!(progress, [READ_SIZE as u64, 2 * READ_SIZE as u64]);
}

#[test]
fn hex_checksums_of_parts_combine_to_that_of_the_whole() {
    let text = b"chunk after chunk, each with a sum of its own";
    for algorithm in [
        ChecksumAlgorithm::Adler32,
        ChecksumAlgorithm::Crc32,
        ChecksumAlgorithm::Crc32c,
    ] {
        let checksum = |bytes: &[u8]| {
            let mut digest = ChecksumHasher::new(algorithm);
            digest.update(bytes);
            digest.finish()
        };
        let parts: Vec<_> = [&text[..7], &text[7..7], &text[7..30], &text[30..]]
            .into_iter()
            .map(|part| (checksum(part), part.len() as u64))
            .collect();
        let parts = parts
            .iter()
            .map(|(checksum, length)| (checksum.as_str(), *length));
        assert_eq!(combine_checksums(algorithm, parts), Some(checksum(text)));
        assert_eq!(combine_checksums(algorithm, []), Some(checksum(b"")));
        assert_eq!(combine_checksums(algorithm, [("no sum", 3)]), None);
    }
    assert_eq!(combine_checksums(ChecksumAlgorithm::Md5, []), None);
}

#[test]
fn the_checksum_of_zeros_is_found_without_them() {
    for algorithm in [
        ChecksumAlgorithm::Adler32,
        ChecksumAlgorithm::Crc32,
        ChecksumAlgorithm::Crc32c,
    ] {
        let empty = PartialChecksum::empty(algorithm).unwrap();
        for len in [0, 1, 2, 3, 4096, 65_521, 100_003] {
            let mut hasher = ChecksumHasher::new(algorithm);
            hasher.update(&vec![0; len]);
            let zeros = empty.zeros(len as u64);
            assert_eq!(zeros.len, len as u64);
            assert_eq!(zeros.finish(), hasher.finish(), "{algorithm:?} {len}");
        }
    }
}

#[test]
fn the_checksum_of_a_sparse_file_is_that_of_its_bytes() {
    use std::os::unix::fs::FileExt;

    const LENGTH: usize = 9 << 20;
    let mut bytes = vec![0; LENGTH];
    let file = tempfile::tempfile().unwrap();
    for (at, len) in [(100_000, 5000), (1 << 20, 1 << 20), ((5 << 20) + 17, 3)] {
        bytes[at..at + len].fill(7);
        file.write_all_at(&bytes[at..at + len], at as u64).unwrap();
    }
    file.set_len(LENGTH as u64).unwrap();
    let source = crate::store::file::FileSource::new(file, "f").unwrap();
    for algorithm in ChecksumAlgorithm::CHEAPEST_FIRST {
        for (offset, length) in [
            (0, LENGTH),
            (70_000, 4 << 20),
            (6 << 20, 3 << 20),
            (1000, 0),
        ] {
            let mut hasher = ChecksumHasher::new(algorithm);
            hasher.update(&bytes[offset..offset + length]);
            let sum = checksum_source(
                algorithm,
                &source,
                offset as u64,
                Some(length as u64),
                &mut |_| true,
            );
            assert_eq!(sum.unwrap(), hasher.finish(), "{algorithm:?} {offset}");
        }
    }
}
