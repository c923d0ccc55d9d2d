//! Unfinished small files of nodes that were lost. Those of a bundle have names of their own, which no later copy takes up.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use proto::path::PARTIAL_SUFFIX;

use crate::local::local_name::{LocalName, directory_of};
use crate::plan::PlannedFile;
use ftp::location::Location;

/// The unfinished files of one link with a node.
pub(super) struct LeftFiles {
    /// The beginning of their names.
    beginning: String,
    directories: BTreeSet<PathBuf>,
}

impl LeftFiles {
    /// Those that the session may have left of these files.
    pub(super) fn new(session: u32, files: &[PlannedFile]) -> Self {
        let directories = files.iter().filter_map(|file| match &file.destination {
            Location::Local(path) => Some(directory_of(path).to_owned()),
            _ => None,
        });
        Self {
            beginning: format!("bundle-{session:08x}"),
            directories: directories.collect(),
        }
    }

    fn remove(&self) {
        for directory in &self.directories {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            for entry in entries {
                let name = entry.file_name();
                let is_left = name.as_bytes().starts_with(self.beginning.as_bytes())
                    && name.as_bytes().ends_with(PARTIAL_SUFFIX);
                if is_left {
                    remove_file(&entry.path());
                }
            }
        }
    }
}

fn remove_file(path: &Path) {
    let removed = LocalName::at(path).map(|name| name.remove());
    tracing::debug!(path = %path.display(), ?removed, "an unfinished file of a lost node");
}

/// Removes files, when nothing else is left to do. What cannot be removed shows by its name what it is.
pub(super) async fn remove(left: Vec<LeftFiles>) {
    let removing = tokio::task::spawn_blocking(move || left.iter().for_each(LeftFiles::remove));
    let _ = removing.await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::bundle::partial_name;
    use std::ffi::OsStr;

    #[test]
    fn only_the_files_of_the_session_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let names = [
            partial_name(0x0000_0007_1234_5678, 3),
            partial_name(0x0000_0008_1234_5678, 3),
            b"bundle-00000007".to_vec(),
            b"a".to_vec(),
        ];
        let paths = names.map(|name| folder.path().join(OsStr::from_bytes(&name)));
        paths
            .iter()
            .for_each(|path| std::fs::write(path, b"x").unwrap());
        let left = LeftFiles {
            beginning: "bundle-00000007".to_owned(),
            directories: [folder.path().to_owned()].into(),
        };
        left.remove();
        let there = paths.map(|path| path.exists());
        assert_eq!(there, [false, true, true, true]);
    }
}
