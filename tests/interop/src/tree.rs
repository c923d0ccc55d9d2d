//! Directory trees with unusual file names.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::seeded_random::SeededRandom;

/// Maximum number of differences in an error message.
const MAX_LISTED_DIFFERENCES: usize = 8;

/// Components of ASCII file names.
pub const ASCII: &[&str] = &[
    "plain",
    "with space",
    "two  spaces",
    "a+b&c=d",
    "semi;colon",
    "per%20cent",
    "quote'd",
    "#hash",
];

/// Components of other file names.
pub const UNICODE: &[&str] = &["überlänge", "データ", "данные", "naïve 🚀"];

/// Contents of files, by path relative to the top of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TestTree {
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl TestTree {
    /// The tree of the matrix: 1 000 files of 0 to 4 095 bytes in folders up to eight levels deep, with
    /// spaces and several scripts in their names.
    #[must_use]
    pub fn thousand() -> Self {
        Self::generate(1_000, &[ASCII, UNICODE].concat())
    }

    /// The same number of files with ASCII names, for programs that do not support others.
    #[must_use]
    pub fn thousand_ascii() -> Self {
        Self::generate(1_000, ASCII)
    }

    /// A tree with this many files, whose names are composed of `words`.
    #[must_use]
    pub fn generate(files: usize, words: &[&str]) -> Self {
        // A fixed seed: all tests see the same tree.
        let mut random = SeededRandom::new(41);
        let word = |random: &mut SeededRandom| words[index(random, words.len())];
        let mut folders = vec![PathBuf::new()];
        let mut tree = Self::default();
        while tree.files.len() < files {
            let parent = folders[index(&mut random, folders.len())].clone();
            let number = tree.files.len();
            // About one new folder per eight files.
            if parent.components().count() < 8 && random.below(8) == 0 {
                let name = format!("{} {}", word(&mut random), folders.len());
                folders.push(parent.join(name));
            }
            let mut content = vec![0; index(&mut random, 4_096)];
            random.fill(&mut content);
            let name = format!("{}.{number}", word(&mut random));
            tree.files.insert(parent.join(name), content);
        }
        tree
    }

    /// Reads a tree from a folder. Anything except regular files and folders is an error.
    pub fn read(top: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.read_below(top, Path::new(""))?;
        Ok(tree)
    }

    /// Writes the tree to `top`, a folder that every account can write.
    pub fn write(&self, top: &Path) -> Result<()> {
        make_folder(top)?;
        for (path, content) in &self.files {
            let file = top.join(path);
            if let Some(folder) = file.parent().filter(|folder| !folder.exists()) {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(&file, content)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }

    /// The same tree below a folder of this name.
    #[must_use]
    pub fn below(&self, name: &str) -> Self {
        let files = self
            .files
            .iter()
            .map(|(path, content)| (Path::new(name).join(path), content.clone()));
        Self {
            files: files.collect(),
        }
    }

    /// The same tree without the files for which `is_excluded` is true.
    #[must_use]
    pub fn without(mut self, is_excluded: impl Fn(&str) -> bool) -> Self {
        self.files
            .retain(|path, _| !is_excluded(&path.to_string_lossy()));
        self
    }

    /// A tree of empty files: so many folders, with so many files each, whose names no compression shortens much.
    #[must_use]
    pub fn empty_files(folders: usize, files: usize) -> Self {
        let mut random = SeededRandom::new(42);
        let mut path = |n: usize| {
            let mut name = [0; 24];
            random.fill(&mut name);
            let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
            PathBuf::from(format!("folder {}/{hex}", n % folders))
        };
        Self {
            files: (0..folders * files)
                .map(|n| (path(n), Vec::new()))
                .collect(),
        }
    }

    /// Path of the file with the longest content.
    #[must_use]
    pub fn longest(&self) -> PathBuf {
        let longest = self.files.iter().max_by_key(|(_, content)| content.len());
        longest.map(|(path, _)| path.clone()).unwrap_or_default()
    }

    /// Number of files.
    #[must_use]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether the tree has no files.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Fails, and names the differences, unless the folder `top` contains exactly this tree.
    pub fn ensure_same_as(&self, top: &Path) -> Result<()> {
        let found = Self::read(top)?;
        let mut differences = Vec::new();
        for (path, content) in &self.files {
            match found.files.get(path) {
                None => differences.push(format!("missing {}", path.display())),
                Some(other) if other != content => {
                    differences.push(format!("different {}", path.display()));
                }
                Some(_) => {}
            }
        }
        for path in found
            .files
            .keys()
            .filter(|path| !self.files.contains_key(*path))
        {
            differences.push(format!("extra {}", path.display()));
        }
        let count = differences.len();
        differences.truncate(MAX_LISTED_DIFFERENCES);
        ensure!(
            count == 0,
            "{count} differences in {} of {} files: {}",
            top.display(),
            self.files.len(),
            differences.join("; ")
        );
        Ok(())
    }

    /// Fails unless every file in the folder `top`, except those with unfinished names, is one of this tree with its content.
    pub fn ensure_contains(&self, top: &Path) -> Result<()> {
        let found = Self::read(top)?.without(|name| {
            name.contains(".longhaul-partial") || name.contains(".longhaul-journal")
        });
        for (path, content) in &found.files {
            ensure!(
                self.files.get(path) == Some(content),
                "{} is not a file of the tree, or differs",
                path.display()
            );
        }
        Ok(())
    }

    fn read_below(&mut self, top: &Path, folder: &Path) -> Result<()> {
        let path = top.join(folder);
        let entries =
            std::fs::read_dir(&path).with_context(|| format!("cannot list {}", path.display()))?;
        for entry in entries {
            let entry = entry?;
            let relative = folder.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.read_below(top, &relative)?;
            } else {
                ensure!(
                    kind.is_file(),
                    "{} is not a regular file",
                    entry.path().display()
                );
                self.files.insert(relative, std::fs::read(entry.path())?);
            }
        }
        Ok(())
    }
}

fn index(random: &mut SeededRandom, bound: usize) -> usize {
    usize::try_from(random.below(bound as u64)).unwrap_or(0)
}

fn make_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
    // Separate from creation, because the umask applies there.
    std::fs::set_permissions(path, Permissions::from_mode(0o777))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_tree_is_equal_when_read() {
        let folder = tempfile::tempdir().unwrap();
        let tree = TestTree::thousand();
        assert_eq!(tree.len(), 1_000);
        assert!(tree.files.keys().any(|path| path.components().count() > 5));
        tree.write(folder.path()).unwrap();
        tree.ensure_same_as(folder.path()).unwrap();
    }

    #[test]
    fn the_error_names_missing_extra_and_changed_files() {
        let folder = tempfile::tempdir().unwrap();
        let tree = TestTree::generate(20, ASCII);
        tree.write(folder.path()).unwrap();
        std::fs::write(folder.path().join("extra"), "x").unwrap();
        let first = tree.files.keys().next().unwrap();
        std::fs::write(folder.path().join(first), "changed").unwrap();
        let last = tree.files.keys().next_back().unwrap();
        std::fs::remove_file(folder.path().join(last)).unwrap();
        let error = tree.ensure_same_as(folder.path()).unwrap_err().to_string();
        for word in ["3 differences", "missing", "different", "extra extra"] {
            assert!(error.contains(word), "{error}");
        }
    }
}
