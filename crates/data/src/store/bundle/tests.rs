use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;
use crate::store::durability::SyncPolicy;
use crate::store::naming::FileNode;
use crate::store::{Sink, Source};

/// Files `0`, `1`, ... of a directory, written as `0.new`, ...
struct Numbered(PathBuf);

impl BundleTarget for Numbered {
    fn create(&self, index: usize) -> io::Result<File> {
        File::create_new(self.0.join(format!("{index}.new")))
    }

    fn open(&self, index: usize) -> io::Result<File> {
        File::open(self.0.join(format!("{index}.new")))
    }

    fn put_in_place(&self, index: usize, created: FileNode) -> io::Result<()> {
        let directory = File::open(&self.0)?;
        let (from, to) = (format!("{index}.new"), index.to_string());
        let renamed = created.rename(directory, from.as_bytes(), to.as_bytes(), true);
        Ok(renamed?)
    }

    fn remove(&self, index: usize) {
        std::fs::remove_file(self.0.join(format!("{index}.new"))).unwrap();
    }
}

fn members(sizes: &[u64]) -> Vec<BundleMember> {
    let member = |size: &u64| BundleMember {
        size: *size,
        modified: Some(Timestamp(1_700_000_000)),
    };
    sizes.iter().map(member).collect()
}

fn content(index: usize, size: u64) -> Vec<u8> {
    let byte = |n: u64| u8::try_from((n * 7 + index as u64) % 251).unwrap();
    (0..size).map(byte).collect()
}

fn make_files(directory: &Path, sizes: &[u64]) {
    for (index, size) in sizes.iter().enumerate() {
        let path = directory.join(index.to_string());
        std::fs::write(&path, content(index, *size)).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        let time =
            std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
        file.set_modified(time).unwrap();
    }
}

fn source(directory: &Path, sizes: &[u64]) -> BundleSource {
    let directory = directory.to_owned();
    BundleSource::new(members(sizes), move |index| {
        File::open(directory.join(index.to_string()))
    })
}

/// Passes blocks of `block` bytes from a source to a sink, every second one later.
fn pass(source: &dyn Source, sink: &dyn Sink, block: usize) {
    let total = source.len().unwrap().unwrap();
    let offsets: Vec<u64> = (0..total).step_by(block).collect();
    let (even, odd): (Vec<_>, Vec<_>) = offsets
        .into_iter()
        .partition(|offset| (offset / block as u64).is_multiple_of(2));
    for offset in odd.into_iter().chain(even) {
        let length = block.min(usize::try_from(total - offset).unwrap());
        let mut bytes = vec![0xaa; length];
        assert_eq!(source.read_at(offset, &mut bytes).unwrap(), length);
        sink.write_at(offset, &bytes).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn files_of_any_sizes_pass_in_blocks_of_any_size(
        sizes in proptest::collection::vec(0u64..3000, 1..20),
        block in 1usize..5000,
    ) {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        make_files(from.path(), &sizes);
        let source = source(from.path(), &sizes);
        let sink = BundleSink::new(members(&sizes), Numbered(to.path().to_owned()), SyncPolicy::None);
        pass(&source, &sink, block);
        prop_assert_eq!(source.finish(), Vec::new());
        prop_assert_eq!(sink.finish().unwrap(), Vec::new());
        for (index, size) in sizes.iter().enumerate() {
            let path = to.path().join(index.to_string());
            prop_assert_eq!(std::fs::read(&path).unwrap(), content(index, *size));
            prop_assert_eq!(std::fs::metadata(&path).unwrap().mtime(), 1_700_000_000);
        }
    }
}

#[test]
fn a_file_that_is_gone_or_changed_is_named_and_the_others_pass() {
    let sizes = [10, 20, 0, 3000, 5];
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    make_files(from.path(), &sizes);
    std::fs::remove_file(from.path().join("1")).unwrap();
    std::fs::remove_file(from.path().join("2")).unwrap();
    std::fs::write(from.path().join("3"), "other").unwrap();
    let source = source(from.path(), &sizes);
    let target = Numbered(to.path().to_owned());
    let sink = BundleSink::new(members(&sizes), target, SyncPolicy::File);
    pass(&source, &sink, 1000);
    let failures = source.finish();
    let failed: Vec<usize> = failures.iter().map(|failure| failure.index).collect();
    assert_eq!(failed, [1, 2, 3]);
    sink.drop_members(&failures);
    assert_eq!(sink.finish().unwrap(), failures);
    drop(sink);
    let mut names: Vec<_> = std::fs::read_dir(to.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["0", "4"]);
}

#[test]
fn a_file_that_changes_while_it_is_read_is_named() {
    let from = tempfile::tempdir().unwrap();
    make_files(from.path(), &[3000]);
    let source = source(from.path(), &[3000]);
    let mut half = [0; 1500];
    source.read_at(0, &mut half).unwrap();
    std::fs::write(from.path().join("0"), content(9, 3000)).unwrap();
    source.read_at(1500, &mut half).unwrap();
    assert_eq!(source.finish().len(), 1);
}

#[test]
fn an_unfinished_file_that_was_swapped_gets_no_name() {
    let to = tempfile::tempdir().unwrap();
    let target = Numbered(to.path().to_owned());
    let sink = BundleSink::new(members(&[10, 10, 10]), target, SyncPolicy::None);
    sink.write_at(0, &[1; 30]).unwrap();
    let at = |name: &str| to.path().join(name);
    // Another file takes the place of one, and two of the bundle change places.
    std::fs::write(at("foreign"), "0123456789").unwrap();
    std::fs::rename(at("foreign"), at("0.new")).unwrap();
    std::fs::rename(at("1.new"), at("kept")).unwrap();
    std::fs::rename(at("2.new"), at("1.new")).unwrap();
    std::fs::rename(at("kept"), at("2.new")).unwrap();
    let failures = sink.finish().unwrap();
    let failed: Vec<usize> = failures.iter().map(|failure| failure.index).collect();
    assert_eq!(failed, [0, 1, 2]);
    for name in ["0", "1", "2"] {
        assert!(!at(name).exists(), "{name}");
    }
}

#[test]
fn a_bundle_that_is_not_finished_leaves_nothing() {
    let to = tempfile::tempdir().unwrap();
    let target = Numbered(to.path().to_owned());
    let sink = BundleSink::new(members(&[10, 10]), target, SyncPolicy::None);
    sink.write_at(0, &[1; 15]).unwrap();
    drop(sink);
    assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), 0);
}

#[test]
fn files_that_lack_bytes_get_no_name() {
    let to = tempfile::tempdir().unwrap();
    let target = Numbered(to.path().to_owned());
    let sink = BundleSink::new(members(&[10, 10]), target, SyncPolicy::None);
    sink.write_at(0, &[1; 15]).unwrap();
    let failures = sink.finish().unwrap();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].index, 1);
    assert!(to.path().join("0").exists() && !to.path().join("1").exists());
}

#[test]
fn bytes_beyond_the_files_are_refused() {
    let to = tempfile::tempdir().unwrap();
    let target = Numbered(to.path().to_owned());
    let sink = BundleSink::new(members(&[10]), target, SyncPolicy::None);
    sink.write_at(5, &[1; 6]).unwrap_err();
    sink.write_at(u64::MAX, &[1; 6]).unwrap_err();
}

#[test]
fn a_peer_that_begins_every_file_cannot_take_all_descriptors() {
    let to = tempfile::tempdir().unwrap();
    let target = Numbered(to.path().to_owned());
    let sink = BundleSink::new(members(&[2; 600]), target, SyncPolicy::None);
    for index in 0..600 {
        sink.write_at(index * 2, &[1]).unwrap();
    }
    assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), 512);
    for index in 0..600 {
        sink.write_at(index * 2 + 1, &[1]).unwrap();
    }
    let failures = sink.finish().unwrap();
    let failed: Vec<usize> = failures.iter().map(|failure| failure.index).collect();
    assert_eq!(failed, Vec::from_iter(512..600));
}

#[test]
fn both_ends_have_the_checksum_of_each_file() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sizes = [10, 0, 300, 7];
    make_files(from.path(), &sizes);
    std::fs::remove_file(from.path().join("3")).unwrap();
    let source = source(from.path(), &sizes);
    let target = Numbered(to.path().to_owned());
    let sink = BundleSink::new(members(&sizes), target, SyncPolicy::None);
    pass(&source, &sink, 64);
    let (sent, stored) = (source.checksums(), sink.checksums());
    assert_eq!(sent[..3], stored[..3]);
    assert!(sent[..3].iter().all(Option::is_some));
    assert_eq!(
        (sent[1].as_deref(), sent[3].as_deref()),
        (Some("00000000"), None)
    );
    // A byte that changes after it was written.
    let path = to.path().join("2.new");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[5] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let again = sink.checksums();
    assert_eq!((&again[0], &again[1]), (&sent[0], &sent[1]));
    assert_ne!(again[2], sent[2]);
}
