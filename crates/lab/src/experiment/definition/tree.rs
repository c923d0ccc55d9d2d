//! Trees of files to be moved: their description in an experiment's file, and their creation. A tree depends only on
//! its description and the experiment's seed, so that every program and every machine moves the same bytes.

use std::f64::consts::TAU;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use units::splitmix::{self, SplitMix64};

use super::Mode;
use super::mode::ByMode;
use crate::experiment::process::Interrupts;

/// The largest number of files of a tree, and the largest size of one: what a mistake in a file can cost.
const MAX_FILES: u32 = 1_000_000;
const MAX_BYTES: u64 = 1 << 30;

/// A tree of files.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TreeDefinition {
    /// The number of files.
    files: ByMode<u32>,
    size: FileSizes,
    /// The number of files in each directory. A directory has at most ten others in it.
    folder: u32,
}

/// The sizes of a tree's files.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum FileSizes {
    /// All the same, as text: `1KB`.
    Same(String),
    /// Log-normal: half of the files are smaller than `median`.
    LogNormal(LogNormal),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogNormal {
    median: String,
    /// The standard deviation of the logarithm.
    spread: f64,
    /// A smaller size becomes this one, a larger one `most`.
    least: String,
    most: String,
}

/// Files and bytes of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeTotals {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

impl TreeDefinition {
    /// Checks the numbers.
    ///
    /// # Errors
    /// A message for people: the number that does not fit.
    pub(crate) fn check(&self) -> Result<(), String> {
        let must = |ok: bool, what: String| if ok { Ok(()) } else { Err(what) };
        for mode in [Mode::Full, Mode::Quick] {
            let fits = (1..=MAX_FILES).contains(self.files.for_mode(mode));
            must(fits, format!("'files' must be from 1 to {}", MAX_FILES))?;
        }
        must(self.folder > 0, "'folder' must be more than 0".to_owned())?;
        let texts = match &self.size {
            FileSizes::Same(size) => vec![size],
            FileSizes::LogNormal(sizes) => {
                let fits = (0.0..=10.0).contains(&sizes.spread);
                must(fits, "'spread' must be from 0 to 10".to_owned())?;
                vec![&sizes.median, &sizes.least, &sizes.most]
            }
        };
        for text in texts {
            let size = units::size(text).map_err(|e| e.to_string())?;
            must(size <= MAX_BYTES, format!("'{text}' is more than 1 GiB"))?;
        }
        Ok(())
    }

    /// Returns the name of its directory, which tells modes apart.
    pub(crate) fn directory_name(&self, name: &str, mode: Mode) -> String {
        format!("{name}-{}", self.files.for_mode(mode))
    }

    /// Counts its files and their bytes.
    pub(crate) fn totals(&self, mode: Mode, seed: u64) -> TreeTotals {
        TreeTotals {
            files: u64::from(*self.files.for_mode(mode)),
            bytes: self.sizes(mode, seed).sum(),
        }
    }

    /// Creates the tree at `place`. Returns whether it is whole: the user may want to stop.
    ///
    /// # Errors
    /// The file system is full.
    pub(crate) fn make(
        &self,
        place: &Path,
        (mode, seed): (Mode, u64),
        interrupts: &Interrupts,
    ) -> io::Result<bool> {
        let mut content = Vec::new();
        make_directory(place)?;
        for (number, size) in (0..).zip(self.sizes(mode, seed)) {
            if interrupts.has_signal() {
                return Ok(false);
            }
            let (folder, within) = (number / self.folder, number % self.folder);
            let directory = place.join(folder_path(folder));
            // Numbers rise, so that the directory around this one was made before.
            if within == 0 {
                make_directory(&directory)?;
            }
            // A size is at most 1 GiB.
            content.resize(usize::try_from(size).unwrap_or_default(), 0);
            SplitMix64::new(splitmix::first(seed) ^ u64::from(number)).fill(&mut content);
            let file = directory.join(format!("f{within:04}"));
            std::fs::write(&file, &content)?;
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644))?;
        }
        Ok(true)
    }

    /// Returns the sizes of the files in their order. A text that is no size counts as 0: [`Self::check`] refuses it.
    fn sizes(&self, mode: Mode, seed: u64) -> impl Iterator<Item = u64> {
        let read = |text: &String| units::size(text).unwrap_or_default();
        let (median, spread, least, most) = match &self.size {
            FileSizes::Same(size) => (read(size), 0.0, 0, MAX_BYTES),
            FileSizes::LogNormal(sizes) => {
                let (least, most) = (read(&sizes.least), read(&sizes.most));
                (read(&sizes.median), sizes.spread, least, most.max(least))
            }
        };
        let mut random = SplitMix64::new(seed);
        let files = *self.files.for_mode(mode);
        (0..files).map(move |_| log_normal(median, spread, &mut random).clamp(least, most))
    }
}

/// Draws one value of a log-normal distribution, by the method of Box and Muller.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes of at most 1 GiB"
)]
fn log_normal(median: u64, spread: f64, random: &mut SplitMix64) -> u64 {
    let mut uniform = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let normal = (-2.0 * (1.0 - uniform()).ln()).sqrt() * (TAU * uniform()).cos();
    (median as f64 * (spread * normal).exp()).round() as u64
}

/// Returns the path of directory `number`: each of its decimal digits is a level.
fn folder_path(number: u32) -> PathBuf {
    let digits = number.to_string();
    digits.chars().map(|digit| format!("d{digit}")).collect()
}

/// Makes a directory that every account can read.
fn make_directory(path: &Path) -> io::Result<()> {
    std::fs::create_dir(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> TreeDefinition {
        toml::from_str(text).unwrap()
    }

    const TINY: &str = "files = { full = 120, quick = 25 }\nsize = '1KB'\nfolder = 2\n";

    const SOURCE: &str = "files = { full = 2000, quick = 500 }\nfolder = 20\n\
        size = { median = '10KiB', spread = 1.8, least = '4KB', most = '8MB' }\n";

    fn make(definition: &TreeDefinition, place: &Path, seed: u64) {
        let interrupts = Interrupts::block().unwrap();
        assert!(
            definition
                .make(place, (Mode::Quick, seed), &interrupts)
                .unwrap()
        );
    }

    #[test]
    fn a_tree_has_its_files_in_directories_within_directories_and_depends_on_the_seed() {
        let around = tempfile::tempdir().unwrap();
        let [one, same, other] = ["one", "same", "other"].map(|name| around.path().join(name));
        let definition = tree(TINY);
        make(&definition, &one, 7);
        make(&definition, &same, 7);
        make(&definition, &other, 8);
        let content = |place: &Path, file: &str| std::fs::read(place.join(file)).unwrap();
        for file in ["d0/f0000", "d9/f0001", "d1/d2/f0000"] {
            assert_eq!(content(&one, file).len(), 1000, "{file}");
            assert_eq!(content(&one, file), content(&same, file));
            assert_ne!(content(&one, file), content(&other, file));
        }
        assert_ne!(content(&one, "d0/f0000"), content(&one, "d0/f0001"));
        let totals = definition.totals(Mode::Quick, 7);
        assert_eq!((totals.files, totals.bytes), (25, 25_000));
    }

    #[test]
    fn half_of_log_normal_sizes_are_below_the_median_and_none_is_outside_of_the_bounds() {
        let definition = tree(SOURCE);
        let sizes: Vec<u64> = definition.sizes(Mode::Full, 1).collect();
        assert_eq!(sizes.len(), 2000);
        let below = sizes.iter().filter(|size| **size < 10 << 10).count();
        assert!((900..1100).contains(&below), "{below}");
        assert!(sizes.iter().all(|size| (4_000..=8_000_000).contains(size)));
        assert!(sizes.iter().any(|size| *size > 1_000_000));
        assert_eq!(
            definition.totals(Mode::Full, 1).bytes,
            sizes.iter().sum::<u64>()
        );
    }

    #[test]
    fn a_tree_stops_where_a_signal_arrives() {
        let around = tempfile::tempdir().unwrap();
        let interrupts = Interrupts::block().unwrap();
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM).unwrap();
        let place = around.path().join("tree");
        let made = tree(TINY)
            .make(&place, (Mode::Full, 1), &interrupts)
            .unwrap();
        assert!(!made);
        // The signal is consumed here; otherwise it would end the test.
        let signals = nix::sys::signal::SigSet::from(nix::sys::signal::Signal::SIGTERM);
        signals.wait().unwrap();
        drop(interrupts);
    }

    #[test]
    fn a_tree_without_files_directories_or_legal_sizes_is_refused() {
        for (from, to, named) in [
            ("quick = 25", "quick = 0", "'files'"),
            ("folder = 2", "folder = 0", "'folder'"),
            ("1KB", "1 kay", "1 kay"),
            ("1KB", "2GiB", "'2GiB'"),
        ] {
            let message = tree(&TINY.replacen(from, to, 1)).check().unwrap_err();
            assert!(message.contains(named), "{message}");
        }
        let spread = tree(&SOURCE.replacen("1.8", "-1.0", 1));
        assert!(spread.check().is_err());
        tree(SOURCE).check().unwrap();
    }
}
