//! The local directories that a command names. What the user names may be a link, or lead through some. What is below is
//! reached from the open directory, and no link is followed on the way: somebody else who may write there, or an earlier
//! copy from a hostile server, could have put it there.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use data::os::lookup::LOCATE;
use data::store::root::{Root, StoreError};
use parking_lot::Mutex;
use proto::path::VPath;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::local::local_name::{LocalName, directory_of};

/// Trees that stay open while nobody uses them. A list of pairs may have many.
const KEPT_OPEN: usize = 16;

/// How what is below a path that the user has named is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinksBelow {
    /// No link is followed.
    Refused,
    /// As the kernel follows links (`--links follow`).
    Followed,
}

/// The paths that a command names.
#[derive(Debug, Default)]
pub(crate) struct LocalTrees(Mutex<NamedPaths>);

#[derive(Debug, Default)]
struct NamedPaths {
    named: HashMap<PathBuf, NamedPath>,
    recent: VecDeque<Arc<Root>>,
}

#[derive(Debug)]
struct NamedPath {
    links: LinksBelow,
    /// Device and inode of the directory that was opened first.
    inode: Option<(u64, u64)>,
    open: Weak<Root>,
}

impl LocalTrees {
    /// Adds a path that the user has named. One that was added before stays as it is.
    pub(crate) fn add(&self, path: &Path, links: LinksBelow) {
        let path = path.to_owned();
        self.0.lock().named.entry(path).or_insert(NamedPath {
            links,
            inode: None,
            open: Weak::new(),
        });
    }

    /// The same, if it is below a path that was added: it makes no difference elsewhere.
    pub(crate) fn add_exception(&self, path: &Path) {
        if self.is_below(path) {
            self.add(path, LinksBelow::Refused);
        }
    }

    /// Adds a directory that a copy makes, unless it is below a path that was added.
    pub(crate) fn add_tree(&self, path: &Path) {
        if !self.is_below(path) {
            self.add(path, LinksBelow::Refused);
        }
    }

    fn is_below(&self, path: &Path) -> bool {
        self.0.lock().tree_of(path).is_some()
    }

    /// The name to which a path leads.
    ///
    /// # Errors
    /// Those of openat(2), for its directory. A link that is not followed is in its way: ELOOP. The tree is another one now.
    pub(crate) fn name(&self, path: &Path) -> io::Result<LocalName> {
        match self.place(path)? {
            None => LocalName::of_user(path),
            Some((root, at)) => {
                let directory = root
                    .open_parent(&at)
                    .map_err(|error| system_error(&error))?;
                let directory = Arc::new(directory);
                Ok(LocalName::new(directory, at.name(), path, false))
            }
        }
    }

    /// As [`LocalTrees::name`], to change attributes: a named directory is the one that was opened first, whatever has its
    /// path now.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn name_for_attributes(&self, path: &Path) -> io::Result<LocalName> {
        let mut paths = self.0.lock();
        let opened = paths.root_at(path);
        let was_directory = paths.named.get(path).is_some_and(|top| top.inode.is_some());
        drop(paths);
        match opened {
            Some(Ok(root)) => Ok(LocalName::new(root.top(), b".", path, false)),
            Some(Err(error)) if was_directory => Err(error),
            // The user has named a file.
            _ => self.name(path),
        }
    }

    /// The directory of a path's last component.
    ///
    /// # Errors
    /// As [`LocalTrees::name`].
    pub(crate) fn parent(&self, path: &Path) -> io::Result<OwnedFd> {
        match self.place(path)? {
            None => Ok(rustix::fs::openat(
                CWD,
                directory_of(path),
                LOCATE | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )?),
            Some((root, at)) => root.open_parent(&at).map_err(|error| system_error(&error)),
        }
    }

    /// Whether the user has named the path, or follows links: a link as its last component stands for what it leads to.
    pub(crate) fn follows(&self, path: &Path) -> bool {
        let paths = self.0.lock();
        paths
            .tree_of(path)
            .is_none_or(|(tree, links)| tree == path || links == LinksBelow::Followed)
    }

    /// Opens a directory to read its names.
    ///
    /// # Errors
    /// As [`LocalTrees::name`].
    pub(crate) fn open_directory(&self, path: &Path) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let root = self.0.lock().root_at(path).transpose()?;
        match root {
            // A named directory is the same one from the first look to the last.
            Some(root) => root
                .open_top()
                .map(File::from)
                .map_err(|error| system_error(&error)),
            None => self.name(path)?.open_with(flags, 0),
        }
    }

    /// A directory was made, and nobody may put a link in its place.
    ///
    /// # Errors
    /// Somebody has.
    pub(crate) fn made(&self, path: &Path) -> io::Result<()> {
        let mut paths = self.0.lock();
        let Some(named) = paths.named.get_mut(path) else {
            return Ok(());
        };
        let flags = LOCATE | OFlags::DIRECTORY;
        let directory = LocalName::at(path)?.open_with(flags, 0)?;
        let root = Arc::new(Root::of_tree(directory.into(), path));
        named.inode = Some(root.inode()?);
        named.open = Arc::downgrade(&root);
        paths.keep_open(root);
        Ok(())
    }

    /// Whether a link at `path` with the content `target` leads to a place in its tree.
    ///
    /// # Errors
    /// The tree cannot be opened.
    pub(crate) fn holds_target(&self, path: &Path, target: &[u8]) -> io::Result<bool> {
        let place = self.place(path)?;
        Ok(place.is_none_or(|(root, at)| root.holds_target(&at.parent(), target)))
    }

    /// The tree in which a path is, and the place in it. `None`: links are followed on the way to it.
    fn place(&self, path: &Path) -> io::Result<Option<(Arc<Root>, VPath)>> {
        let mut paths = self.0.lock();
        let Some((tree, LinksBelow::Refused)) = paths.tree_of(path) else {
            return Ok(None);
        };
        let Ok(below) = path.strip_prefix(tree) else {
            return Ok(None);
        };
        if below.as_os_str().is_empty() {
            return Ok(None);
        }
        let below = VPath::root().resolve(below.as_os_str().as_bytes());
        let below = below.map_err(|_| io::Error::from(Errno::NAMETOOLONG))?;
        let tree = tree.to_owned();
        let root = paths.root_at(&tree).transpose()?;
        Ok(root.map(|root| (root, below)))
    }
}

impl NamedPaths {
    /// The named path that is nearest above `path`, or is the same.
    fn tree_of<'p>(&self, path: &'p Path) -> Option<(&'p Path, LinksBelow)> {
        let named = |at: &'p Path| Some((at, self.named.get(at)?.links));
        path.ancestors().find_map(named)
    }

    /// The directory at a named path below which no link is followed.
    fn root_at(&mut self, path: &Path) -> Option<io::Result<Arc<Root>>> {
        let named = self.named.get_mut(path)?;
        if named.links == LinksBelow::Followed {
            return None;
        }
        if let Some(root) = named.open.upgrade() {
            return Some(Ok(root));
        }
        let opened = Root::open_tree(path).and_then(|root| {
            let inode = root.inode()?;
            match *named.inode.get_or_insert(inode) == inode {
                true => Ok(Arc::new(root)),
                false => Err(io::Error::other("is another directory than before")),
            }
        });
        if let Ok(root) = &opened {
            named.open = Arc::downgrade(root);
            self.keep_open(Arc::clone(root));
        }
        Some(opened)
    }

    fn keep_open(&mut self, root: Arc<Root>) {
        self.recent.push_back(root);
        if self.recent.len() > KEPT_OPEN {
            self.recent.pop_front();
        }
    }
}

fn system_error(error: &StoreError) -> io::Error {
    error.errno.into()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    fn tree() -> (tempfile::TempDir, LocalTrees) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("t/d")).unwrap();
        fs::write(dir.path().join("t/d/f"), "own").unwrap();
        fs::create_dir(dir.path().join("out")).unwrap();
        fs::write(dir.path().join("out/f"), "secret").unwrap();
        (dir, LocalTrees::default())
    }

    fn read(trees: &LocalTrees, path: &Path) -> io::Result<String> {
        let file = trees.name(path)?.open_to_read()?;
        io::read_to_string(file)
    }

    #[test]
    fn what_the_user_names_may_be_a_link_and_what_is_below_may_not() {
        let (dir, trees) = tree();
        let at = |path: &str| dir.path().join(path);
        symlink("t", at("named")).unwrap();
        symlink("../out", at("t/l")).unwrap();
        symlink("../../out/f", at("t/d/m")).unwrap();
        assert_eq!(read(&trees, &at("named/l/f")).unwrap(), "secret");
        trees.add(&at("named"), LinksBelow::Refused);
        assert_eq!(read(&trees, &at("named/d/f")).unwrap(), "own");
        for link in ["named/l/f", "named/d/m"] {
            assert!(read(&trees, &at(link)).is_err(), "{link}");
            assert!(!trees.follows(&at(link)));
        }
        // A path that is named itself, also inside a tree.
        trees.add_exception(&at("named/d/m"));
        assert_eq!(read(&trees, &at("named/d/m")).unwrap(), "secret");
        trees.add(&at("named/l"), LinksBelow::Followed);
        assert_eq!(read(&trees, &at("named/l/f")).unwrap(), "secret");
    }

    #[test]
    fn a_tree_stays_the_directory_that_was_opened_first() {
        let (dir, trees) = tree();
        let at = |path: &str| dir.path().join(path);
        trees.add(&at("t"), LinksBelow::Refused);
        assert_eq!(read(&trees, &at("t/d/f")).unwrap(), "own");
        fs::create_dir(at("out/d")).unwrap();
        fs::write(at("out/d/f"), "secret").unwrap();
        fs::rename(at("t"), at("moved")).unwrap();
        symlink("out", at("t")).unwrap();
        assert_eq!(read(&trees, &at("t/d/f")).unwrap(), "own");
        let names = rustix::fs::Dir::read_from(trees.open_directory(&at("t")).unwrap());
        assert_eq!(names.unwrap().count(), 3, "`.`, `..` and `d`");
        // One that had to be closed is known again.
        trees.0.lock().recent.clear();
        assert!(read(&trees, &at("t/d/f")).is_err());
    }

    #[test]
    fn the_attributes_of_a_tree_are_those_of_the_directory_that_was_opened_first() {
        let (dir, trees) = tree();
        let at = |path: &str| dir.path().join(path);
        let inode = |path: &str| fs::metadata(at(path)).unwrap().ino();
        let found = |path: &str| {
            let located = trees.name_for_attributes(&at(path))?.locate()?;
            located.metadata().map(|metadata| metadata.ino())
        };
        trees.add(&at("t"), LinksBelow::Refused);
        trees.add(&at("out/f"), LinksBelow::Refused);
        assert_eq!(found("t").unwrap(), inode("t"));
        assert_eq!(found("t/d").unwrap(), inode("t/d"));
        assert_eq!(found("out/f").unwrap(), inode("out/f"), "a file");
        for victim in ["out", "out/f"] {
            fs::rename(at("t"), at("moved")).unwrap();
            symlink(victim, at("t")).unwrap();
            assert_eq!(found("t").unwrap(), inode("moved"));
            let open = std::mem::take(&mut trees.0.lock().recent);
            drop(open);
            assert!(found("t").is_err(), "one that had to be closed");
            fs::remove_file(at("t")).unwrap();
            fs::rename(at("moved"), at("t")).unwrap();
            assert_eq!(found("t").unwrap(), inode("t"));
        }
    }

    #[test]
    fn a_directory_that_was_made_is_not_replaced_by_a_link() {
        let (dir, trees) = tree();
        let new = dir.path().join("new");
        trees.add(&new, LinksBelow::Refused);
        symlink("out", &new).unwrap();
        assert!(trees.made(&new).is_err());
    }
}
