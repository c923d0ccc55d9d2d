//! Local copies: through memory, by copy_file_range(2), and by sharing blocks.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Result, ensure};
use interop::longhaul::copy;
use interop::longhaul::rows::path_argument;
use interop::require;
use interop::scratch::ScratchFolder;
use interop::test_files;
use interop::volume::ReflinkVolume;

/// Size of the file, large enough for several threads, bytes.
const SIZE: u64 = 72 << 20;

fn same(a: &Path, b: &Path) -> Result<()> {
    ensure!(fs::read(a)? == fs::read(b)?, "{} differs", b.display());
    Ok(())
}

#[test]
fn a_local_copy_shares_blocks_if_the_file_system_can() {
    require!(ReflinkVolume::is_supported());
    let volume = ReflinkVolume::new().unwrap();
    let (from, to) = (volume.folder().join("from"), volume.folder().join("to"));
    test_files::write(&from, SIZE, 3).unwrap();
    let free = || {
        nix::sys::statvfs::statvfs(&volume.folder())
            .unwrap()
            .blocks_free()
    };
    let before = free();
    let summary = copy::cp(&[path_argument(&from), path_argument(&to)]).unwrap();
    assert_eq!(
        (summary.verified.as_str(), summary.bytes),
        ("reflink", SIZE)
    );
    same(&from, &to).unwrap();
    let taken = before.saturating_sub(free()) * 4096;
    assert!(
        taken < SIZE / 8,
        "{taken} bytes for a copy that shares its blocks"
    );
    // With a checksum algorithm the copy is verified by it.
    let named = [
        &path_argument(&from),
        &path_argument(&to),
        "--verify",
        "crc32c",
    ];
    assert_eq!(copy::cp(&named).unwrap().verified, "crc32c");
    // Blocks cannot be shared with another file system.
    let other = volume.other_file_system().join("to");
    assert_eq!(
        copy::cp(&[path_argument(&from), path_argument(&other)])
            .unwrap()
            .verified,
        "crc32c"
    );
    same(&from, &other).unwrap();
}

#[test]
fn local_copies_are_identical_with_several_threads_and_by_the_kernel() {
    let scratch = ScratchFolder::new().unwrap();
    let (from, to) = (scratch.join("from"), scratch.join("to"));
    test_files::write(&from, SIZE + 12_345, 4).unwrap();
    for options in [
        &["-p", "4"][..],
        &["--verify", "none"],
        &["--verify", "sha256", "-p", "3"],
        &["--limit-rate", "3gbit"],
    ] {
        let ends = [path_argument(&from), path_argument(&to)];
        let arguments: Vec<&str> = options
            .iter()
            .copied()
            .chain(ends.iter().map(String::as_str))
            .collect();
        copy::cp(&arguments).unwrap();
        same(&from, &to).unwrap();
        let times = [&from, &to].map(|path| fs::metadata(path).unwrap().mtime());
        assert_eq!(times[0], times[1], "{options:?}");
        fs::remove_file(&to).unwrap();
    }
}

#[test]
fn a_local_copy_of_a_part_contains_only_that_part() {
    let scratch = ScratchFolder::new().unwrap();
    let (from, to) = (scratch.join("from"), scratch.join("to"));
    test_files::write(&from, SIZE, 5).unwrap();
    let part = ["--offset", "1000001", "--length", "20000003"];
    let ends = [path_argument(&from), path_argument(&to)];
    let arguments: Vec<&str> = part
        .into_iter()
        .chain(ends.iter().map(String::as_str))
        .collect();
    copy::cp(&arguments).unwrap();
    let wanted = &fs::read(&from).unwrap()[1_000_001..21_000_004];
    assert!(fs::read(&to).unwrap() == wanted);
}
