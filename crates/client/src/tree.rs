//! Directory trees: what is in them, and which names may be used.
//!
//! Names that a server lists are hostile until checked: a name with `/` or a `..` would lead out of
//! the destination.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use proto::listing::{Kind, RemoteEntry};
use proto::timestamp::Timestamp;

use crate::partial::{local, modified};
use crate::session::Session;
use crate::{Exit, Failure};

/// Deepest nesting that is walked: a server that follows links may list a loop for ever.
const MAX_DEPTH: usize = 128;

/// Most entries of a tree, files and directories: a copy's plan holds them all, some 200 bytes for each.
const MAX_ENTRIES: usize = 5_000_000;

/// What is known of a source file before it is moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Bytes.
    pub(crate) size: Option<u64>,
    /// Modification time.
    pub(crate) modified: Option<Timestamp>,
}

impl Facts {
    /// Of an entry of a listing.
    pub(crate) fn of(entry: &RemoteEntry) -> Self {
        Self {
            size: entry.size,
            modified: entry.modified,
        }
    }

    /// Of a local file.
    pub(crate) fn of_local(meta: &fs::Metadata) -> Self {
        Self {
            size: Some(meta.len()),
            modified: modified(meta),
        }
    }
}

/// A tree's content. Paths are relative to its top, components separated by `/`.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Directories below the top, parents first.
    pub(crate) directories: Vec<Vec<u8>>,
    /// Regular files.
    pub(crate) files: Vec<(Vec<u8>, Facts)>,
    /// Not copied, and why: links to nowhere, pipes, devices.
    pub(crate) skipped: Vec<(Vec<u8>, String)>,
    /// Refused or unreadable.
    pub(crate) failed: Vec<(Vec<u8>, Failure)>,
}

/// Whether one component may be created below a destination: not empty, not `.` or `..`, without
/// `/` and NUL.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Failure> {
    let refuse = |why: &str| {
        let shown = String::from_utf8_lossy(name);
        Err(Failure::new(
            Exit::Protocol,
            format!("refused the name {shown:?}: {why}"),
        ))
    };
    match name {
        b"" => refuse("it is empty"),
        b"." | b".." => refuse("it names a directory above the file"),
        _ if name.contains(&b'/') => refuse("it would lead out of the destination"),
        _ if name.contains(&0) => refuse("it contains a NUL byte"),
        _ => Ok(()),
    }
}

/// Whether a name can be sent on an FTP control channel.
pub(crate) fn check_sendable(name: &[u8]) -> Result<(), Failure> {
    if name.iter().any(|b| matches!(b, b'\r' | b'\n')) {
        let shown = String::from_utf8_lossy(name);
        return Err(Failure::new(
            Exit::Protocol,
            format!("{shown:?}: FTP cannot carry a name with a line break"),
        ));
    }
    Ok(())
}

/// `directory/name`, or `name` at the top.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() {
        return name.to_vec();
    }
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat()
}

/// A directory that is still to be read, with its depth.
type Pending = Vec<(Vec<u8>, usize)>;

impl Tree {
    /// Sorts one listed entry of `directory` in.
    fn add_remote(
        &mut self,
        directory: &[u8],
        depth: usize,
        entry: &RemoteEntry,
        next: &mut Pending,
    ) {
        let relative = join(directory, &entry.name);
        if let Err(failure) = check_name(&entry.name) {
            self.failed.push((relative, failure));
            return;
        }
        match entry.kind {
            Kind::CurrentDir | Kind::ParentDir => {}
            Kind::Dir => self.descend(relative, depth, next),
            Kind::File => self.files.push((relative, Facts::of(entry))),
            Kind::SymLink => self.skipped.push((
                relative,
                "symbolic link that the server does not follow".into(),
            )),
            Kind::Other => self.skipped.push((relative, "not a regular file".into())),
        }
    }

    /// Whether the tree may be held.
    fn check_size(&self, top: &[u8], most: usize) -> Result<(), Failure> {
        let kinds = [self.directories.len(), self.files.len(), self.skipped.len()];
        if kinds.iter().sum::<usize>() + self.failed.len() <= most {
            return Ok(());
        }
        let shown = String::from_utf8_lossy(top);
        Err(Failure::new(
            Exit::Protocol,
            format!(
                "{shown:?} has more than {most} entries below it: name its directories one by one"
            ),
        ))
    }

    fn descend(&mut self, relative: Vec<u8>, depth: usize, next: &mut Pending) {
        if depth >= MAX_DEPTH {
            let why = format!("more than {MAX_DEPTH} directories deep: a loop of links?");
            self.failed
                .push((relative, Failure::new(Exit::Protocol, why)));
            return;
        }
        self.directories.push(relative.clone());
        next.push((relative, depth + 1));
    }

    /// Everything below the remote directory `top`. A directory that cannot be listed is among the
    /// failed; an error is returned only when the session is lost or `top` itself fails.
    pub(crate) async fn remote(session: &mut Session, top: &[u8]) -> Result<Self, Failure> {
        let mut tree = Self::default();
        let mut pending: Pending = vec![(Vec::new(), 0)];
        while let Some((directory, depth)) = pending.pop() {
            let path = if directory.is_empty() {
                top.to_vec()
            } else {
                join(top, &directory)
            };
            let mut entries = match session.list(&path).await {
                Ok(entries) => entries,
                Err(failure) if failure.transient || directory.is_empty() => return Err(failure),
                Err(failure) => {
                    tree.failed.push((directory, failure));
                    continue;
                }
            };
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            entries.dedup_by(|a, b| a.name == b.name);
            for entry in &entries {
                tree.add_remote(&directory, depth, entry, &mut pending);
            }
            tree.check_size(top, MAX_ENTRIES)?;
        }
        Ok(tree)
    }

    /// Everything below the local directory `top`. Symbolic links to directories are not followed.
    pub(crate) fn local(top: &Path) -> Self {
        let mut tree = Self::default();
        let mut pending: Pending = vec![(Vec::new(), 0)];
        while let Some((directory, depth)) = pending.pop() {
            let path = local_path(top, &directory);
            match read_directory(&path) {
                Ok(names) => {
                    for name in names {
                        tree.add_local(&path, &directory, depth, &name, &mut pending);
                    }
                }
                Err(e) => tree.failed.push((directory, local(&path, e))),
            }
        }
        tree
    }

    fn add_local(
        &mut self,
        path: &Path,
        directory: &[u8],
        depth: usize,
        name: &[u8],
        next: &mut Pending,
    ) {
        let path = local_path(path, name);
        let relative = join(directory, name);
        let kind = match fs::symlink_metadata(&path) {
            Ok(meta) => meta.file_type(),
            Err(e) => {
                self.failed.push((relative, local(&path, e)));
                return;
            }
        };
        if kind.is_dir() {
            self.descend(relative, depth, next);
            return;
        }
        match fs::metadata(&path) {
            Ok(meta) if meta.is_file() => self.files.push((relative, Facts::of_local(&meta))),
            Ok(meta) if meta.is_dir() => self
                .skipped
                .push((relative, "symbolic link to a directory".into())),
            Ok(_) => self.skipped.push((relative, "not a regular file".into())),
            Err(_) if kind.is_symlink() => self
                .skipped
                .push((relative, "symbolic link to nowhere".into())),
            Err(e) => self.failed.push((relative, local(&path, e))),
        }
    }
}

/// Names in a directory, sorted.
fn read_directory(path: &Path) -> std::io::Result<Vec<Vec<u8>>> {
    let mut names = fs::read_dir(path)?
        .map(|entry| Ok(entry?.file_name().as_bytes().to_vec()))
        .collect::<std::io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// `top` followed by relative bytes.
pub(crate) fn local_path(top: &Path, relative: &[u8]) -> PathBuf {
    if relative.is_empty() {
        return top.to_owned();
    }
    top.join(std::ffi::OsStr::from_bytes(relative))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_tree_beyond_the_bound_is_refused_by_name() {
        let mut tree = Tree::default();
        for name in [b"a", b"b", b"c"] {
            tree.add_remote(b"", 0, &entry(name, Kind::File), &mut Vec::new());
        }
        assert!(tree.check_size(b"/top", 3).is_ok());
        let failure = tree.check_size(b"/top", 2).unwrap_err();
        assert!(
            failure.message.contains("\"/top\" has more than 2 entries"),
            "{failure}"
        );
    }

    fn entry(name: &[u8], kind: Kind) -> RemoteEntry {
        RemoteEntry {
            name: name.to_vec(),
            kind,
            size: Some(1),
            modified: None,
            mode: None,
            owner: None,
            group: None,
        }
    }

    #[test]
    fn hostile_names_are_refused() {
        let mut tree = Tree::default();
        let mut next = Vec::new();
        for name in [
            &b"../x"[..],
            b"..",
            b".",
            b"",
            b"/etc/passwd",
            b"a/b",
            b"a\0b",
        ] {
            tree.add_remote(b"d", 0, &entry(name, Kind::File), &mut next);
            tree.add_remote(b"d", 0, &entry(name, Kind::Dir), &mut next);
        }
        assert!(tree.files.is_empty() && tree.directories.is_empty() && next.is_empty());
        assert_eq!(tree.failed.len(), 14);
        tree.add_remote(b"d", 0, &entry(b"..x \xff", Kind::File), &mut next);
        assert_eq!(tree.files[0].0, b"d/..x \xff");
    }

    #[test]
    fn special_files_are_skipped_and_depth_is_bounded() {
        let mut tree = Tree::default();
        let mut next = Vec::new();
        tree.add_remote(b"", 0, &entry(b"pipe", Kind::Other), &mut next);
        tree.add_remote(b"", 0, &entry(b"link", Kind::SymLink), &mut next);
        assert_eq!(tree.skipped.len(), 2);
        tree.add_remote(b"", MAX_DEPTH, &entry(b"d", Kind::Dir), &mut next);
        assert!(next.is_empty());
        assert_eq!(tree.failed.len(), 1);
    }

    #[test]
    fn local_tree_with_links() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        fs::create_dir_all(top.join("a/b c")).unwrap();
        fs::write(top.join("a/b c/ü"), "12").unwrap();
        fs::write(local_path(top, b"\xfe"), "1").unwrap();
        symlink(top, top.join("loop")).unwrap();
        symlink("nowhere", top.join("dangling")).unwrap();
        symlink("a/b c/ü", top.join("file link")).unwrap();
        let tree = Tree::local(top);
        assert_eq!(tree.directories, [b"a".to_vec(), b"a/b c".to_vec()]);
        let mut names: Vec<_> = tree.files.iter().map(|f| f.0.clone()).collect();
        names.sort();
        assert_eq!(
            names,
            [
                "a/b c/ü".as_bytes().to_vec(),
                b"file link".to_vec(),
                b"\xfe".to_vec()
            ]
        );
        assert_eq!(tree.skipped.len(), 2);
        assert!(tree.failed.is_empty());
    }

    proptest! {
        #[test]
        fn accepted_names_stay_below(name: Vec<u8>) {
            if check_name(&name).is_ok() {
                let path = local_path(Path::new("/top"), &name);
                prop_assert_eq!(path.parent(), Some(Path::new("/top")));
                prop_assert_eq!(path.file_name().map(OsStrExt::as_bytes), Some(name.as_slice()));
            }
        }
    }
}
