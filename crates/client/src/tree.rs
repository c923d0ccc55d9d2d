//! Directory trees: what is in them, and which names may be used.
//!
//! Names that a server lists are hostile until checked: a name with `/` or a `..` would lead out of
//! the destination.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proto::listing::{Kind, RemoteEntry};
use proto::timestamp::Timestamp;

use crate::partial::{local, modified};
use crate::session::Session;
use crate::session::links::{Marked, Scrutiny};
use crate::{Exit, Failure, Links};

mod links;

use links::Trail;

/// Deepest nesting that is walked: a server that follows links may list a loop for ever.
const MAX_DEPTH: usize = 128;

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
    /// Symbolic links to be made, and what they hold: a path within the tree.
    pub(crate) links: Vec<(Vec<u8>, Vec<u8>)>,
    /// Not copied, and why: links that nobody asked for or that lead nowhere, pipes, devices.
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

/// A directory that is still to be read.
#[derive(Debug, Clone, Default)]
struct Branch {
    /// Relative to the top.
    path: Vec<u8>,
    depth: usize,
    trail: Arc<Trail>,
}

impl Branch {
    fn top(id: Option<String>) -> Self {
        Self {
            trail: Trail::top(id),
            ..Self::default()
        }
    }
}

type Pending = Vec<Branch>;

impl Tree {
    /// Sorts one listed entry of a directory in that is no link.
    fn add_remote(&mut self, branch: &Branch, entry: &RemoteEntry, next: &mut Pending) {
        let relative = join(&branch.path, &entry.name);
        match entry.kind {
            Kind::CurrentDir | Kind::ParentDir => {}
            Kind::Dir => {
                let id = entry.unique.clone();
                if id.as_ref().is_some_and(|id| branch.trail.holds(id)) {
                    self.skipped.push((relative, links::LOOP.to_owned()));
                } else {
                    let trail = branch.trail.below(id, false);
                    self.descend(relative, branch.depth, trail, next);
                }
            }
            Kind::File => self.files.push((relative, Facts::of(entry))),
            Kind::SymLink => self.skipped.push((relative, links::NOWHERE.to_owned())),
            Kind::Other => self.skipped.push((relative, "not a regular file".into())),
        }
    }

    fn descend(&mut self, relative: Vec<u8>, depth: usize, trail: Arc<Trail>, next: &mut Pending) {
        if depth >= MAX_DEPTH {
            let why = format!("more than {MAX_DEPTH} directories deep: a loop of links?");
            self.failed
                .push((relative, Failure::new(Exit::Protocol, why)));
            return;
        }
        self.directories.push(relative.clone());
        next.push(Branch {
            path: relative,
            depth: depth + 1,
            trail,
        });
    }

    /// A followed link to a directory; `id` tells which, if it can be known.
    fn descend_link(
        &mut self,
        relative: Vec<u8>,
        branch: &Branch,
        id: Option<String>,
        next: &mut Pending,
    ) {
        match &id {
            Some(id) if branch.trail.holds(id) => {
                self.skipped.push((relative, links::LOOP.to_owned()));
            }
            None if branch.trail.blind => {
                let why = "symbolic link below a symbolic link, and the server does not tell whether \
                           that is a loop: copy it under its own name";
                self.failed
                    .push((relative, Failure::new(Exit::Protocol, why)));
            }
            _ => {
                let trail = branch.trail.below(id, true);
                self.descend(relative, branch.depth, trail, next);
            }
        }
    }

    /// A link of the directory `branch` that holds `target`, with `--links copy`.
    fn keep_link(&mut self, top: &[u8], branch: &Branch, relative: Vec<u8>, target: Option<&[u8]>) {
        let target = target.filter(|target| !target.is_empty());
        let Some(target) = target else {
            let why = "symbolic link, and the server does not tell where it points";
            self.skipped.push((relative, why.to_owned()));
            return;
        };
        match links::inner_target(top, &branch.path, target) {
            Some(target) => self.links.push((relative, target)),
            None => {
                let why = "symbolic link that points out of the copied tree".to_owned();
                self.skipped.push((relative, why));
            }
        }
    }

    /// Everything below the remote directory `top`. A directory that cannot be listed is among the
    /// failed; an error is returned only when the session is lost or `top` itself fails.
    pub(crate) async fn remote(
        session: &mut Session,
        top: &[u8],
        links: Links,
    ) -> Result<Self, Failure> {
        let mut tree = Self::default();
        let id = match links {
            Links::Follow => session.stat(top).await?.unique,
            Links::Copy | Links::Skip => None,
        };
        let mut pending: Pending = vec![Branch::top(id)];
        while let Some(branch) = pending.pop() {
            let path = match branch.path.is_empty() {
                true => top.to_vec(),
                false => join(top, &branch.path),
            };
            let mut listed = match session.list_marked(&path, Scrutiny::Directories).await {
                Ok(listed) => listed,
                Err(failure) if failure.transient || branch.path.is_empty() => return Err(failure),
                Err(failure) => {
                    tree.failed.push((branch.path, failure));
                    continue;
                }
            };
            listed.sort_by(|a, b| a.entry.name.cmp(&b.entry.name));
            listed.dedup_by(|a, b| a.entry.name == b.entry.name);
            for Marked { entry, .. } in &listed {
                if let Err(failure) = check_name(&entry.name) {
                    let relative = join(&branch.path, &entry.name);
                    tree.failed.push((relative, failure));
                } else if entry.is_link() {
                    tree.add_remote_link((session, top), links, &branch, entry, &mut pending)
                        .await?;
                } else {
                    tree.add_remote(&branch, entry, &mut pending);
                }
            }
        }
        Ok(tree)
    }

    async fn add_remote_link(
        &mut self,
        (session, top): (&mut Session, &[u8]),
        links: Links,
        branch: &Branch,
        entry: &RemoteEntry,
        next: &mut Pending,
    ) -> Result<(), Failure> {
        let relative = join(&branch.path, &entry.name);
        match links {
            Links::Skip => self.skipped.push((relative, links::NOT_ASKED.to_owned())),
            Links::Copy => self.keep_link(top, branch, relative, entry.link_target.as_deref()),
            Links::Follow => {
                let there = match session.stat(&join(top, &relative)).await {
                    Ok(there) => there,
                    Err(failure) if failure.transient => return Err(failure),
                    Err(_) => RemoteEntry::new(&entry.name, Kind::SymLink),
                };
                match there.kind {
                    Kind::Dir => self.descend_link(relative, branch, there.unique, next),
                    _ => self.add_remote(
                        branch,
                        &RemoteEntry {
                            name: entry.name.clone(),
                            ..there
                        },
                        next,
                    ),
                }
            }
        }
        Ok(())
    }

    /// Everything below the local directory `top`.
    pub(crate) fn local(top: &Path, links: Links) -> Self {
        let mut tree = Self::default();
        let id = fs::metadata(top).ok().map(|meta| inode(&meta));
        let mut pending: Pending = vec![Branch::top(id)];
        while let Some(branch) = pending.pop() {
            let path = local_path(top, &branch.path);
            match read_directory(&path) {
                Ok(names) => {
                    for name in names {
                        tree.add_local((top, &path), links, &branch, &name, &mut pending);
                    }
                }
                Err(e) => tree.failed.push((branch.path, local(&path, e))),
            }
        }
        tree
    }

    fn add_local(
        &mut self,
        (top, directory): (&Path, &Path),
        links: Links,
        branch: &Branch,
        name: &[u8],
        next: &mut Pending,
    ) {
        let path = local_path(directory, name);
        let relative = join(&branch.path, name);
        let meta = match fs::symlink_metadata(&path) {
            Ok(meta) => meta,
            Err(e) => {
                self.failed.push((relative, local(&path, e)));
                return;
            }
        };
        if meta.is_dir() {
            let trail = branch.trail.below(Some(inode(&meta)), false);
            self.descend(relative, branch.depth, trail, next);
        } else if meta.is_symlink() {
            match links {
                Links::Skip => self.skipped.push((relative, links::NOT_ASKED.to_owned())),
                Links::Copy => self.keep_local_link((top, &path), branch, relative),
                Links::Follow => match fs::metadata(&path) {
                    Ok(there) if there.is_dir() => {
                        self.descend_link(relative, branch, Some(inode(&there)), next);
                    }
                    Ok(there) => self.add_local_file(relative, &there),
                    Err(_) => self.skipped.push((relative, links::NOWHERE.to_owned())),
                },
            }
        } else {
            self.add_local_file(relative, &meta);
        }
    }

    fn add_local_file(&mut self, relative: Vec<u8>, meta: &fs::Metadata) {
        if meta.is_file() {
            self.files.push((relative, Facts::of_local(meta)));
        } else {
            self.skipped.push((relative, "not a regular file".into()));
        }
    }

    fn keep_local_link(&mut self, (top, path): (&Path, &Path), branch: &Branch, relative: Vec<u8>) {
        let top = fs::canonicalize(top).unwrap_or_else(|_| top.to_owned());
        match fs::read_link(path) {
            Ok(target) => {
                let (top, target) = (top.as_os_str().as_bytes(), target.as_os_str().as_bytes());
                self.keep_link(top, branch, relative, Some(target));
            }
            Err(e) => self.failed.push((relative, local(path, e))),
        }
    }
}

/// Device and inode.
fn inode(meta: &fs::Metadata) -> String {
    format!("{}-{}", meta.dev(), meta.ino())
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

    fn entry(name: &[u8], kind: Kind) -> RemoteEntry {
        RemoteEntry {
            size: Some(1),
            ..RemoteEntry::new(name, kind)
        }
    }

    #[test]
    fn hostile_names_are_refused() {
        for name in [
            &b"../x"[..],
            b"..",
            b".",
            b"",
            b"/etc/passwd",
            b"a/b",
            b"a\0b",
        ] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        let mut tree = Tree::default();
        let branch = Branch {
            path: b"d".to_vec(),
            ..Branch::default()
        };
        assert!(check_name(b"..x \xff").is_ok());
        tree.add_remote(&branch, &entry(b"..x \xff", Kind::File), &mut Vec::new());
        assert_eq!(tree.files[0].0, b"d/..x \xff");
    }

    #[test]
    fn special_files_are_skipped_and_depth_is_bounded() {
        let mut tree = Tree::default();
        let mut next = Vec::new();
        let top = Branch::default();
        tree.add_remote(&top, &entry(b"pipe", Kind::Other), &mut next);
        tree.add_remote(&top, &entry(b"link", Kind::SymLink), &mut next);
        assert_eq!(tree.skipped.len(), 2);
        let deep = Branch {
            depth: MAX_DEPTH,
            ..Branch::default()
        };
        tree.add_remote(&deep, &entry(b"d", Kind::Dir), &mut next);
        assert!(next.is_empty());
        assert_eq!(tree.failed.len(), 1);
    }

    #[test]
    fn a_directory_that_is_its_own_ancestor_is_a_loop() {
        let mut tree = Tree::default();
        let mut next = Vec::new();
        let top = Branch::top(Some("u1".to_owned()));
        let hidden = RemoteEntry {
            unique: Some("u1".to_owned()),
            ..entry(b"d", Kind::Dir)
        };
        tree.add_remote(&top, &hidden, &mut next);
        assert!(next.is_empty() && tree.skipped.len() == 1);
        let told = Some("u1".to_owned());
        tree.descend_link(b"l".to_vec(), &top, told, &mut next);
        assert!(next.is_empty() && tree.skipped.len() == 2);
        // Which directory it is, is not told: one such link on the way is the most.
        tree.descend_link(b"m".to_vec(), &top, None, &mut next);
        let once = next.pop().unwrap();
        tree.descend_link(b"m/m".to_vec(), &once, None, &mut next);
        assert!(next.is_empty() && tree.failed.len() == 1);
    }

    fn linked_tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        fs::create_dir_all(top.join("a/b c")).unwrap();
        fs::write(top.join("a/b c/ü"), "12").unwrap();
        fs::write(local_path(top, b"\xfe"), "1").unwrap();
        symlink(top, top.join("loop")).unwrap();
        symlink("..", top.join("a/up")).unwrap();
        symlink("nowhere", top.join("dangling")).unwrap();
        symlink("a/b c/ü", top.join("file link")).unwrap();
        symlink("/etc/hostname", top.join("outside")).unwrap();
        dir
    }

    fn names(found: &[(Vec<u8>, Facts)]) -> Vec<String> {
        let mut names: Vec<_> = found
            .iter()
            .map(|f| String::from_utf8_lossy(&f.0).into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn links_are_left_out_unless_asked_for() {
        let dir = linked_tree();
        let tree = Tree::local(dir.path(), Links::Skip);
        assert_eq!(tree.directories, [b"a".to_vec(), b"a/b c".to_vec()]);
        assert_eq!(names(&tree.files), ["a/b c/ü", "\u{fffd}"]);
        assert_eq!((tree.skipped.len(), tree.links.len()), (5, 0));
        assert!(tree.failed.is_empty());
    }

    #[test]
    fn followed_links_give_what_they_point_to_and_loops_end() {
        let dir = linked_tree();
        let tree = Tree::local(dir.path(), Links::Follow);
        let found = names(&tree.files);
        assert!(found.contains(&"file link".to_owned()), "{found:?}");
        // `loop` and `a/up` lead to the top, which they are in.
        assert_eq!(tree.directories, [b"a".to_vec(), b"a/b c".to_vec()]);
        let loops = tree.skipped.iter().filter(|s| s.1 == links::LOOP).count();
        assert_eq!(loops, 2, "{:?}", tree.skipped);
        assert!(tree.failed.is_empty());
    }

    #[test]
    fn copied_links_stay_within_the_tree() {
        let dir = linked_tree();
        let tree = Tree::local(dir.path(), Links::Copy);
        let mut links = tree.links.clone();
        links.sort();
        let link = |name: &str, target: &str| (name.into(), target.into());
        let expected: Vec<(Vec<u8>, Vec<u8>)> = vec![
            link("a/up", ".."),
            link("dangling", "nowhere"),
            link("file link", "a/b c/ü"),
            link("loop", "."),
        ];
        assert_eq!(links, expected);
        assert_eq!(tree.skipped.len(), 1, "the one that points outside");
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
