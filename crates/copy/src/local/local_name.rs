//! A name in an open directory of this machine. Whatever happens to the path of the directory meanwhile, the name stays in
//! the directory that was opened.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data::os::lookup::{LOCATE, LOCATE_LINK};
use data::os::stat;
use data::store::durability::SyncPolicy;
use data::store::naming::{FileNode, NamingError};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// Mode of new files and directories, reduced by the process's umask.
const USUAL_FILE: u32 = 0o666;
const USUAL_DIRECTORY: u32 = 0o777;

/// A name in an open directory.
#[derive(Debug, Clone)]
pub(crate) struct LocalName {
    directory: Arc<OwnedFd>,
    name: OsString,
    /// For messages.
    path: PathBuf,
    /// A symbolic link with this name stands for what it leads to.
    follows: bool,
}

impl LocalName {
    /// The name in a directory that is open. `path` is for messages. `follows`: a symbolic link with this name stands for
    /// what it leads to.
    pub(crate) fn new(directory: Arc<OwnedFd>, name: &[u8], path: &Path, follows: bool) -> Self {
        Self {
            directory,
            name: OsStr::from_bytes(name).to_owned(),
            path: path.to_owned(),
            follows,
        }
    }

    /// The last component of a path. Links before it are followed, and one that has the name itself is not.
    ///
    /// # Errors
    /// Those of openat(2), for its directory.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        Self::open(path, false)
    }

    /// A path that the user has named. All links in it are followed.
    ///
    /// # Errors
    /// As [`LocalName::at`].
    pub(crate) fn of_user(path: &Path) -> io::Result<Self> {
        Self::open(path, true)
    }

    fn open(path: &Path, follows: bool) -> io::Result<Self> {
        // A path that ends with `..`, and the root, have no name: they are `.` in themselves.
        let (directory, name) = match path.file_name() {
            Some(name) => (directory_of(path), name),
            None if path.as_os_str().is_empty() => return Err(io::ErrorKind::NotFound.into()),
            None => (path, OsStr::new(".")),
        };
        let flags = LOCATE | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, directory, flags, Mode::empty())?;
        Ok(Self::new(
            Arc::new(directory),
            name.as_bytes(),
            path,
            follows,
        ))
    }

    /// Its path, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The name.
    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    /// The open directory.
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Whether a symbolic link with this name stands for what it leads to.
    pub(crate) fn follows(&self) -> bool {
        self.follows
    }

    /// Another name in the same directory. A link that has it is not followed.
    pub(crate) fn beside(&self, name: &[u8]) -> Self {
        let name = OsStr::from_bytes(name).to_owned();
        Self {
            directory: Arc::clone(&self.directory),
            path: self.path.with_file_name(&name),
            name,
            follows: false,
        }
    }

    /// Opens the file. It is not waited for the other end of a pipe if `flags` has O_NONBLOCK.
    ///
    /// # Errors
    /// Those of openat(2). A symbolic link that is not followed is ELOOP.
    pub(crate) fn open_with(&self, flags: OFlags, mode: u32) -> io::Result<File> {
        let link = match self.follows {
            true => OFlags::empty(),
            false => OFlags::NOFOLLOW,
        };
        // A terminal must not become that of this process (open(2)).
        let flags = flags | link | OFlags::CLOEXEC | OFlags::NOCTTY;
        let mode = stat::permissions(mode);
        let opened = rustix::fs::openat(&self.directory, &*self.name, flags, mode);
        Ok(opened.map(File::from)?)
    }

    /// Opens an existing file to read it, whatever it is; does not wait for the other end of a pipe.
    ///
    /// # Errors
    /// As [`LocalName::open_with`].
    pub(crate) fn open_to_read(&self) -> io::Result<File> {
        let file = self.open_with(OFlags::RDONLY | OFlags::NONBLOCK, 0)?;
        // Reads wait: sendfile(2) would return EAGAIN otherwise.
        rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
        Ok(file)
    }

    /// A descriptor by which attributes can be changed; that of a symbolic link itself if it is not followed.
    ///
    /// # Errors
    /// Those of openat(2).
    pub(crate) fn locate(&self) -> io::Result<File> {
        let flags = match self.follows {
            true => LOCATE,
            false => LOCATE_LINK,
        };
        let (flags, mode) = (flags | OFlags::CLOEXEC, Mode::empty());
        let located = rustix::fs::openat(&self.directory, &*self.name, flags, mode);
        Ok(located.map(File::from)?)
    }

    /// Creates a file that did not exist.
    ///
    /// # Errors
    /// Those of openat(2). Something has the name: EEXIST.
    pub(crate) fn create_new(&self, mode: u32) -> io::Result<File> {
        self.open_with(OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, mode)
    }

    /// Creates a file with the mode that the umask grants, or opens it.
    ///
    /// # Errors
    /// As [`LocalName::open_with`].
    pub(crate) fn create(&self) -> io::Result<File> {
        self.open_with(OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK, USUAL_FILE)
    }

    /// The attributes of the file that has the name, or of the one that it leads to if a link is followed.
    ///
    /// # Errors
    /// Those of fstatat(2).
    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        let flags = match self.follows {
            true => AtFlags::empty(),
            false => AtFlags::SYMLINK_NOFOLLOW,
        };
        rustix::fs::statat(&self.directory, &*self.name, flags)
    }

    /// The attributes of the file or link that has the name itself.
    ///
    /// # Errors
    /// Those of fstatat(2).
    pub(crate) fn own_stat(&self) -> Result<Stat, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::statat(&self.directory, &*self.name, flags)
    }

    /// Whether something has the name.
    pub(crate) fn is_taken(&self) -> bool {
        self.own_stat().is_ok()
    }

    /// Whether the name is that of this open file.
    ///
    /// # Errors
    /// Those of fstatat(2).
    pub(crate) fn is_name_of(&self, file: &File) -> io::Result<bool> {
        let node = FileNode::of(file)?;
        Ok(node.has_name(&self.directory, self.name.as_bytes())?)
    }

    /// Removes the name if it is still that of the open file.
    ///
    /// # Errors
    /// Those of fstat(2) and unlinkat(2).
    pub(crate) fn remove_open(&self, file: &File) -> Result<(), Errno> {
        let node = FileNode::of(file)?;
        node.remove(&self.directory, self.name.as_bytes()).map(drop)
    }

    /// Gives the open file, which has this name, the name `to` in the same directory.
    ///
    /// # Errors
    /// See [`NamingError`].
    pub(crate) fn rename_open(&self, file: &File, to: &Self) -> Result<(), NamingError> {
        let (from, to) = (self.name.as_bytes(), to.name.as_bytes());
        FileNode::of(file)?.rename(&self.directory, from, to, true)
    }

    /// Renames what has this name.
    ///
    /// # Errors
    /// Those of renameat(2).
    pub(crate) fn rename(&self, to: &Self) -> Result<(), Errno> {
        rustix::fs::renameat(&self.directory, &*self.name, &to.directory, &*to.name)
    }

    /// Gives what has this name the further name `to`. A link itself gets it.
    ///
    /// # Errors
    /// Those of linkat(2).
    pub(crate) fn link(&self, to: &Self) -> Result<(), Errno> {
        let (from, flags) = (&*self.name, AtFlags::empty());
        rustix::fs::linkat(&self.directory, from, &to.directory, &*to.name, flags)
    }

    /// Removes a file or link.
    ///
    /// # Errors
    /// Those of unlinkat(2).
    pub(crate) fn remove(&self) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.directory, &*self.name, AtFlags::empty())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of unlinkat(2).
    pub(crate) fn remove_directory(&self) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.directory, &*self.name, AtFlags::REMOVEDIR)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// Those of mkdirat(2).
    pub(crate) fn make_directory(&self) -> Result<(), Errno> {
        let mode = stat::permissions(USUAL_DIRECTORY);
        rustix::fs::mkdirat(&self.directory, &*self.name, mode)
    }

    /// Makes a symbolic link with the content `target`.
    ///
    /// # Errors
    /// Those of symlinkat(2).
    pub(crate) fn make_link(&self, target: &Path) -> Result<(), Errno> {
        rustix::fs::symlinkat(target, &self.directory, &*self.name)
    }

    /// Forces the names in its directory to disk, if the policy forces anything.
    ///
    /// # Errors
    /// As [`SyncPolicy::sync_directory`].
    pub(crate) fn sync_directory(&self, policy: SyncPolicy) -> io::Result<()> {
        policy.sync_open_directory(&self.directory)
    }
}

/// The user for whom this process makes files.
pub(crate) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether it is a regular file.
pub(crate) fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Whether it is a directory.
pub(crate) fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// Whether it is a symbolic link.
pub(crate) fn is_link(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

/// The directory of a path's last component.
pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
