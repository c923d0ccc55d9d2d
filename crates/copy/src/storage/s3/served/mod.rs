//! A place in a bucket as the root of a server: its sessions see objects as files, and prefixes as directories.
//!
//! A server's threads may block, so requests run on the thread that needs them, each on a connection of its own.

mod access;
mod arriving;
mod failures;
mod memory;
mod read_ahead;
mod shared_parts;
mod source;
#[cfg(test)]
mod tests;
mod upload;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use data::served::{JoinedSink, ServedClient, ServedFile, ServedSink, ServedStore, ServedVisitor};
use ftp::failure::Operation;
use ftp::location::{Location, Scheme};
use ftp::{ConnectionSecurity, Credential, Failure, FailureKind};
use proto::listing::{EntryKind, ListedEntry};
use proto::path::VPath;
use proto::s3::documents::ListingPage;
use proto::s3::parts::MAX_OBJECT;
use proto::server::{FileError, FileErrorKind};

use self::access::BucketAccess;
use self::failures::file_error;
use self::memory::TransferMemoryBudget;
use self::source::BucketFile;
use self::upload::{BucketUpload, JoinedUpload};
use super::UNORDERED;
use super::changes::{self, DirectoryContent, PlaceInBucket, content_of, put_mark};
use super::listing::EntryReader;
use super::requests::{ObjectFacts, WantedPage, command, has_objects, head, list_page};
use super::settings::{S3Environment, S3Settings};
use crate::storage::contract::RemovedKind;
use crate::storage::http::client::HttpClient;
use crate::storage::http::session::last_name;

/// A directory of a bucket, which a server has as its root.
#[derive(Debug)]
pub struct ServedBucket {
    /// Its URL.
    name: String,
    /// The path of the root in the bucket, without a slash at its end: empty for the bucket itself.
    base: Vec<u8>,
    access: Arc<BucketAccess>,
    memory: Arc<TransferMemoryBudget>,
}

impl ServedBucket {
    /// The place that an `s3:` URL names, with the credentials of this process's environment. No request is sent yet. `timeout`:
    /// longest wait for a connection, and for a silent server.
    ///
    /// # Errors
    /// `Usage`, `Refused`: the URL, a profile or a file cannot be used.
    pub fn open(url: &str, timeout: Duration) -> Result<Self, Failure> {
        let location = Location::parse(url)?;
        let Location::Remote { server, path } = location else {
            return Err(not_a_bucket(url));
        };
        if server.scheme != Scheme::S3 {
            return Err(not_a_bucket(url));
        }
        let profile = match &server.credential {
            Credential::Password { user, .. } => Some(user.as_str()),
            _ => None,
        };
        let settings = S3Settings::load(profile, &S3Environment::of_process())?;
        Self::with_settings(&server.host, &path, settings, &server.security, timeout)
    }

    /// The same with given settings.
    pub(super) fn with_settings(
        bucket: &str,
        path: &[u8],
        settings: S3Settings,
        security: &Arc<ConnectionSecurity>,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let access = BucketAccess::new(bucket, settings, security, timeout);
        let base = path.strip_suffix(b"/").unwrap_or(path);
        let place = super::bucket::S3Bucket::new(bucket, &access.settings());
        // A prefix that no key can have is told now.
        place.prefix(base)?;
        Ok(Self {
            name: place.shown(base),
            base: base.to_vec(),
            access: Arc::new(access),
            memory: Arc::default(),
        })
    }

    /// Directories of this machine with files that are read again for each key: a confined server must be able to. A file that
    /// is replaced is another one, so its directory counts.
    #[must_use]
    pub fn directories_of_keys(&self) -> Vec<PathBuf> {
        let files = self.access.settings().files_of_keys().into_iter();
        let directory = |file: PathBuf| match file.parent() {
            Some(parent) if !file.is_dir() => parent.to_owned(),
            _ => file,
        };
        files.map(directory).collect()
    }

    /// Whether a program has to be started for a key (`credential_process`).
    #[must_use]
    pub fn starts_programs(&self) -> bool {
        self.access.settings().starts_programs()
    }

    /// The path of a file in the bucket.
    fn path(&self, path: &VPath) -> Vec<u8> {
        match path.is_root() {
            true => self.base.clone(),
            false => [&self.base, path.as_bytes()].concat(),
        }
    }

    /// An operation on a file.
    fn operation(&self, verb: &'static str, path: &VPath) -> Operation {
        Operation::on_path(verb, path.as_bytes())
    }

    fn place(&self, path: &VPath) -> Result<PlaceInBucket, Failure> {
        self.access.current()?.place(&self.path(path))
    }

    /// Sends requests that change nothing; they are repeated if a connection is lost.
    fn ask<T>(
        &self,
        path: &VPath,
        work: impl Fn(&mut HttpClient, &PlaceInBucket) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let at = self.path(path);
        self.access.ask(|client, current| {
            let place = current.place(&at)?;
            work(client, &place)
        })
    }

    fn object(&self, path: &VPath) -> Result<ObjectFacts, Failure> {
        let action = self.operation("read", path);
        if path.is_root() {
            return Err(action.failed(FailureKind::NotFound, "it is a directory"));
        }
        self.ask(path, |client, at| {
            head(client, &at.bucket, &at.key, &action)
        })
    }

    fn is_directory(&self, path: &VPath) -> Result<bool, Failure> {
        if path.is_root() {
            return Ok(true);
        }
        let action = self.operation("read", path);
        self.ask(path, |client, at| {
            has_objects(client, &at.bucket, &at.prefix, &action)
        })
    }

    /// The entry of a path.
    fn look_at(&self, path: &VPath) -> Result<ListedEntry, Failure> {
        let name = last_name(path.as_bytes());
        let missing = match self.object(path) {
            Ok(found) => return Ok(found.file.entry(name, EntryKind::File)),
            Err(missing) if missing.is_missing() => missing,
            Err(failure) => return Err(failure),
        };
        match self.is_directory(path)? {
            true => Ok(ListedEntry::new(name, EntryKind::Dir)),
            false => Err(missing),
        }
    }

    /// Reads the pages of a listing; `visit` gets each and returns whether it wants more.
    fn pages(
        &self,
        path: &VPath,
        is_grouped: bool,
        visit: &mut dyn FnMut(&ListingPage) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Failure> {
        let action = self.operation("list", path);
        let mut token = None;
        loop {
            let page = self.ask(path, |client, at| {
                let wanted = WantedPage {
                    prefix: at.prefix.clone(),
                    is_grouped,
                    token: token.clone(),
                    ..WantedPage::default()
                };
                list_page(client, &at.bucket, &wanted, &action)
            })?;
            if visit(&page).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            match page.next {
                None => return Ok(ControlFlow::Continue(())),
                next => token = next,
            }
        }
    }

    /// Lists a directory, or a tree; `false`: nothing is there.
    fn list_entries(
        &self,
        path: &VPath,
        is_tree: bool,
        visit: &mut ServedVisitor<'_>,
    ) -> Result<bool, FileError> {
        let prefix = self.place(path).map_err(|failure| file_error(&failure))?;
        let mut reader = EntryReader::new(&prefix.prefix).with_same_names();
        let mut visit_page = |page: &ListingPage| {
            let entries = match is_tree {
                true => reader.tree_entries(page),
                false => reader.entries(page),
            };
            entries.into_iter().try_for_each(&mut *visit)
        };
        let read = self.pages(path, !is_tree, &mut visit_page);
        if read.map_err(|failure| file_error(&failure))?.is_break() {
            return Ok(true);
        }
        let is_there = reader.is_there || path.is_root();
        match reader.finish() {
            None => Ok(is_there),
            Some(reason) => {
                let failure = reason.failure(&self.name, path.as_bytes());
                // No attempt later finds a way to say it.
                Err(FileError::new(
                    FileErrorKind::Denied,
                    failure.reason().to_string(),
                ))
            }
        }
    }

    /// Sends a request that changes something, once.
    fn change<T>(
        &self,
        path: &VPath,
        work: impl FnOnce(&mut HttpClient, &PlaceInBucket) -> Result<T, Failure>,
    ) -> Result<T, FileError> {
        let at = self.path(path);
        let (changed, _) = self
            .access
            .send(|client, current| work(client, &current.place(&at)?));
        changed.map_err(|failure| file_error(&failure))
    }

    /// Removes something. The directory that had it stays, as everywhere else: without a mark, it would end with its last object.
    fn keeping_parent(
        &self,
        path: &VPath,
        remove: impl FnOnce() -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        remove()?;
        let parent = path.parent();
        if !parent.is_root() && !self.has_directory(&parent)? {
            let action = self.operation("make", &parent);
            self.change(&parent, |client, at| {
                put_mark(client, &at.bucket, &at.prefix, &action)
            })?;
        }
        Ok(())
    }

    fn has_directory(&self, path: &VPath) -> Result<bool, FileError> {
        self.is_directory(path)
            .map_err(|failure| file_error(&failure))
    }

    fn stat_if_there(&self, path: &VPath) -> Result<Option<ListedEntry>, FileError> {
        match self.stat(path) {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if error.kind == FileErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn refuse_root(&self, path: &VPath) -> Result<(), FileError> {
        match path.is_root() {
            true => Err(FileError::new(
                FileErrorKind::Denied,
                "Permission denied: this is the root",
            )),
            false => Ok(()),
        }
    }

    fn no_directory(&self, path: &VPath) -> FileError {
        let action = self.operation("list", path);
        let failure = action.failed(FailureKind::NotFound, "the bucket has no such directory");
        file_error(&failure)
    }
}

fn not_a_bucket(url: &str) -> Failure {
    Failure::usage(format!(
        "{url} is no bucket: give a directory, or s3://BUCKET/PREFIX"
    ))
}

impl ServedStore for ServedBucket {
    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self) -> Result<(), FileError> {
        let action = Operation::on("list", &self.name);
        let checked = self.ask(&VPath::root(), |client, at| {
            let wanted = WantedPage {
                prefix: at.prefix.clone(),
                most: 1,
                ..WantedPage::default()
            };
            list_page(client, &at.bucket, &wanted, &action)
        });
        // The administrator gets the advice, too.
        checked.map(drop).map_err(|failure| FileError {
            text: failure.to_string(),
            ..file_error(&failure)
        })
    }

    fn stat(&self, path: &VPath) -> Result<ListedEntry, FileError> {
        if path.is_root() {
            return Ok(ListedEntry::new(b"", EntryKind::Dir));
        }
        self.look_at(path).map_err(|failure| file_error(&failure))
    }

    fn enter(&self, path: &VPath) -> Result<(), FileError> {
        match self
            .is_directory(path)
            .map_err(|failure| file_error(&failure))?
        {
            true => Ok(()),
            // A client takes this for the word that it is a file.
            false => match self.stat(path) {
                Ok(_) => Err(not_a_directory("enter", path)),
                Err(error) => Err(error),
            },
        }
    }

    fn list(&self, path: &VPath, visit: &mut ServedVisitor<'_>) -> Result<(), FileError> {
        if self.list_entries(path, false, visit)? {
            return Ok(());
        }
        let entry = self.stat(path)?;
        let _ = visit(entry);
        Ok(())
    }

    fn walk(&self, path: &VPath, visit: &mut ServedVisitor<'_>) -> Result<(), FileError> {
        let current = self
            .access
            .current()
            .map_err(|failure| file_error(&failure))?;
        if current.bucket.name.ends_with(UNORDERED) {
            return Err(FileError::new(
                FileErrorKind::Unsupported,
                "this kind of bucket lists its keys in no order: list one directory after the other",
            ));
        }
        match self.list_entries(path, true, visit)? {
            true => Ok(()),
            false => Err(self.no_directory(path)),
        }
    }

    fn open(&self, path: &VPath) -> Result<Arc<dyn ServedFile>, FileError> {
        let found = self
            .object(path)
            .map_err(|failure| match failure.is_missing() {
                // Reading a directory has a reason of its own.
                true if self.is_directory(path).is_ok_and(|is_there| is_there) => {
                    is_a_directory("open", path)
                }
                _ => file_error(&failure),
            })?;
        let action = self.operation("read", path);
        if let Some(class) = &found.archive {
            let class = proto::printable::printable(class.as_bytes());
            let reason =
                format_args!("it is in the archive {class}, and no copy of it is restored");
            return Err(file_error(&action.failed(FailureKind::Refused, reason)));
        }
        let file = BucketFile::new(found.file, action, Arc::clone(&self.access), &self.memory);
        Ok(Arc::new(file.map_err(|failure| file_error(&failure))?))
    }

    fn create(
        &self,
        path: &VPath,
        announced: Option<u64>,
        by: &ServedClient,
    ) -> Result<Arc<dyn ServedSink>, FileError> {
        if announced.is_some_and(|size| size > MAX_OBJECT) {
            let text = "No space left: no object of a bucket has more than 5 TiB";
            return Err(FileError::new(FileErrorKind::NoSpace, text));
        }
        if path.is_root() || self.has_directory(path)? {
            return Err(is_a_directory("write", path));
        }
        let action = self.operation("write", path);
        let place = self.path(path);
        // A key that no object can have is told before anything is sent.
        self.place(path).map_err(|failure| file_error(&failure))?;
        let (access, memory) = (&self.access, &self.memory);
        let upload = BucketUpload::begin(place, action, announced, access, memory, by)?;
        Ok(Arc::new(upload))
    }

    fn join(
        &self,
        path: &VPath,
        shared: &str,
        by: &ServedClient,
    ) -> Result<Arc<dyn JoinedSink>, FileError> {
        let (action, place) = (self.operation("write", path), self.path(path));
        let upload = JoinedUpload::begin(place, action, shared, &self.access, &self.memory, by)?;
        Ok(Arc::new(upload))
    }

    fn make_dir(&self, path: &VPath) -> Result<(), FileError> {
        let action = self.operation("make", path);
        if path.is_root() || self.stat_if_there(path)?.is_some() {
            let text = format!("cannot make {path}: File exists");
            return Err(FileError::new(FileErrorKind::Exists, text));
        }
        if !self.has_directory(&path.parent())? {
            return Err(self.no_directory(&path.parent()));
        }
        self.change(path, |client, at| {
            put_mark(client, &at.bucket, &at.prefix, &action)
        })
    }

    fn remove_dir(&self, path: &VPath) -> Result<(), FileError> {
        let action = self.operation("remove", path);
        self.refuse_root(path)?;
        let content = self.ask(path, |client, at| {
            content_of(client, &at.bucket, &at.prefix, &action)
        });
        match content.map_err(|failure| file_error(&failure))? {
            DirectoryContent::Entries => Err(FileError::new(
                FileErrorKind::NotEmpty,
                format!("cannot remove {path}: Directory not empty"),
            )),
            DirectoryContent::Missing => match self.stat(path) {
                Ok(_) => Err(not_a_directory("remove", path)),
                Err(error) => Err(error),
            },
            DirectoryContent::Mark => self.keeping_parent(path, || {
                self.change(path, |client, at| {
                    let url = at.bucket.object_url(&at.prefix, &[]);
                    command(client, "DELETE", &url, &[], &action)
                })
            }),
        }
    }

    fn remove_file(&self, path: &VPath) -> Result<(), FileError> {
        let action = self.operation("remove", path);
        if self.stat(path)?.kind == EntryKind::Dir {
            return Err(is_a_directory("remove", path));
        }
        self.keeping_parent(path, || {
            self.change(path, |client, at| {
                let url = at.bucket.object_url(&at.key, &[]);
                command(client, "DELETE", &url, &[], &action)
            })
        })
    }

    fn remove_tree(&self, path: &VPath) -> Result<(), FileError> {
        let action = self.operation("remove", path);
        self.refuse_root(path)?;
        self.keeping_parent(path, || {
            self.change(path, |client, at| {
                changes::remove(client, at, RemovedKind::Tree, &action)
            })
        })
    }

    fn rename(&self, from: &VPath, to: &VPath) -> Result<(), FileError> {
        let action = self.operation("rename", from).to(to);
        self.refuse_root(from)?;
        if self.stat(from)?.kind == EntryKind::Dir {
            return Err(FileError::new(
                FileErrorKind::IsADirectory,
                format!(
                    "cannot rename {from}: Is a directory; those of a bucket have no name of their own: copy what is in it, and \
                     remove it then"
                ),
            ));
        }
        if to.is_root() || self.has_directory(to)? {
            return Err(is_a_directory("replace", to));
        }
        if from == to {
            return Ok(());
        }
        let headers = self.access.settings().encryption_headers();
        let new_name = self.path(to);
        self.keeping_parent(from, || {
            let renamed = self.access.send_patiently(|client, current| {
                let (source, target) =
                    (current.place(&self.path(from))?, current.place(&new_name)?);
                changes::rename(client, &source, &target, &headers, &action)
                    .map_err(|refused| refused.failure)
            });
            renamed.map_err(|failure| file_error(&failure))
        })
    }
}

fn is_a_directory(verb: &str, path: &VPath) -> FileError {
    FileError::new(
        FileErrorKind::IsADirectory,
        format!("cannot {verb} {path}: Is a directory"),
    )
}

fn not_a_directory(verb: &str, path: &VPath) -> FileError {
    FileError::new(
        FileErrorKind::NotADirectory,
        format!("cannot {verb} {path}: Not a directory"),
    )
}
