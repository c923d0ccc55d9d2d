//! Files with known content.

use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};

use crate::seeded_random::SeededRandom;

/// File sizes of the matrix, bytes: empty, one byte, just below and at the usual block size, and enough for
/// many blocks per stream.
pub const SIZES: [u64; 5] = [0, 1, 65_535, 65_536, 20_000_000];

/// The same where each transfer takes a login.
pub const FEW_SIZES: [u64; 3] = [0, 65_535, 20_000_000];

/// The same for rows without longhaul, which check the harness alone.
pub const HARNESS_SIZES: [u64; 1] = [20_000_000];

/// File size for tests that need a longer transfer, bytes.
pub const LARGE: u64 = 100_000_000;

/// File sizes for rows with many repetitions, bytes.
pub const SMALL: [u64; 4] = [0, 1, 65_535, 65_536];

/// Writes a file of `size` pseudo-random bytes with this seed, readable by every account.
pub fn write(path: &Path, size: u64, seed: u64) -> Result<()> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut out = BufWriter::new(file);
    let mut random = SeededRandom::new(seed);
    let mut block = vec![0; 1 << 20];
    let mut left = size;
    while left > 0 {
        let length = usize::try_from(left.min(block.len() as u64))?;
        random.fill(&mut block[..length]);
        out.write_all(&block[..length])?;
        left -= length as u64;
    }
    out.flush().context("cannot write a test file")
}

/// The sizes of all shared files.
pub fn sizes() -> impl Iterator<Item = u64> {
    SIZES.into_iter().chain([LARGE])
}

/// Folder of the files of [`linkable`] in that of the shared ones.
const LINKABLE: &str = "linkable";

/// The folder of the shared files, one per size: `f0`, `f1`, `f65535`, `f65536`, `f20000000`,
/// `f100000000`. They are created once, and all test programs use them. Do not write there.
pub fn folder() -> Result<&'static Path> {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    if let Some(folder) = FOLDER.get() {
        return Ok(folder);
    }
    // Not in the checkout: servers that run as another account must be able to read the files.
    let account = rustix::process::getuid().as_raw();
    let folder = std::env::temp_dir().join(format!("longhaul-interop-samples-{account}"));
    make_shared(&folder)?;
    Ok(FOLDER.get_or_init(|| folder))
}

/// Path of the shared file of this size, one of [`sizes`].
pub fn shared(size: u64) -> Result<PathBuf> {
    Ok(folder()?.join(name(size)))
}

/// The file with the same content to which further names may be given: each changes the attributes of a file, and copies
/// notice that of their source.
pub fn linkable(path: &Path) -> Result<PathBuf> {
    let folder = folder()?;
    Ok(match path.strip_prefix(folder) {
        Ok(name) => folder.join(LINKABLE).join(name),
        Err(_) => path.to_owned(),
    })
}

/// Name of the shared file of this size.
#[must_use]
pub fn name(size: u64) -> String {
    format!("f{size}")
}

/// Creates missing files. A lock serialises programs and threads, and files are renamed into the folder,
/// so that it never contains an incomplete file.
fn make_shared(folder: &Path) -> Result<()> {
    let lock = File::create(folder.with_extension("lock"))?;
    lock.lock().context("cannot lock the test files")?;
    let linkable = folder.join(LINKABLE);
    std::fs::create_dir_all(&linkable)?;
    let unfinished = folder.with_extension("unfinished");
    let names = sizes().map(|size| (name(size), size));
    for (whole, size) in names.flat_map(|(name, size)| {
        let files = [folder.join(&name), linkable.join(&name)];
        files.map(|file| (file, size))
    }) {
        // The size suffices as a check, because files get here only by a rename after complete
        // writing.
        if !has_size(&whole, size) {
            write(&unfinished, size, size + 1)?;
            std::fs::rename(&unfinished, whole)?;
        }
    }
    Ok(())
}

fn has_size(path: &Path, size: u64) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.len() == size)
}

/// Fails unless both files have the same content.
pub fn ensure_same(expected: &Path, actual: &Path) -> Result<()> {
    let size = |path: &Path| -> Result<u64> {
        let metadata = path
            .metadata()
            .with_context(|| format!("no file {}", path.display()))?;
        ensure!(
            metadata.is_file(),
            "{} is not a regular file",
            path.display()
        );
        Ok(metadata.len())
    };
    ensure_same_part(expected, 0, size(expected)?, actual)
}

/// Fails unless `actual` consists of the `length` bytes of `expected` from `offset`.
pub fn ensure_same_part(expected: &Path, offset: u64, length: u64, actual: &Path) -> Result<()> {
    let mut left = open(expected)?;
    let mut right = open(actual)?;
    let got = right.metadata()?.len();
    ensure!(
        got == length,
        "{} has {got} bytes instead of {length}",
        actual.display()
    );
    left.seek(SeekFrom::Start(offset))?;
    let (mut a, mut b) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = 0;
    while at < length {
        let count = usize::try_from((length - at).min(a.len() as u64))?;
        left.read_exact(&mut a[..count])?;
        right.read_exact(&mut b[..count])?;
        if a[..count] != b[..count] {
            let first = a
                .iter()
                .zip(&b)
                .take_while(|(left, right)| left == right)
                .count();
            bail!("{} differs at byte {}", actual.display(), at + first as u64);
        }
        at += count as u64;
    }
    Ok(())
}

fn open(path: &Path) -> Result<File> {
    File::open(path).with_context(|| format!("cannot open {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_calls_create_each_file_once() {
        use std::os::unix::fs::MetadataExt;
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("samples");
        let inode = |size| folder.join(name(size)).metadata().unwrap().ino();
        let inodes = || sizes().map(inode).collect::<Vec<_>>();
        let inodes_seen = std::thread::scope(|scope| {
            let makers = [(); 4].map(|()| {
                scope.spawn(|| {
                    make_shared(&folder).unwrap();
                    inodes()
                })
            });
            makers.map(|maker| maker.join().unwrap())
        });
        assert_eq!(inodes_seen, [(); 4].map(|()| inodes()));
        // And the folder of those for further names.
        assert_eq!(
            std::fs::read_dir(&folder).unwrap().count(),
            sizes().count() + 1
        );
    }

    #[test]
    fn a_changed_missing_or_added_byte_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let [good, bad] = ["good", "bad"].map(|name| folder.path().join(name));
        write(&good, 3_000_000, 7).unwrap();
        ensure_same(&good, &good).unwrap();
        let content = std::fs::read(&good).unwrap();
        let mut changed = content.clone();
        changed[2_345_678] ^= 1;
        std::fs::write(&bad, &changed).unwrap();
        assert!(
            ensure_same(&good, &bad)
                .unwrap_err()
                .to_string()
                .contains("differs at byte 2345678")
        );
        std::fs::write(&bad, &content[1..]).unwrap();
        ensure_same(&good, &bad).unwrap_err();
        ensure_same_part(&good, 1, 2_999_999, &bad).unwrap();
        std::fs::write(&bad, [&content[..], b"x"].concat()).unwrap();
        ensure_same(&good, &bad).unwrap_err();
    }
}
