//! A store that a server serves in place of a directory: objects with names, which are replaced as a whole.

use std::fmt::Debug;
use std::ops::ControlFlow;
use std::sync::Arc;

use proto::checksum::ChecksumAlgorithm;
use proto::listing::ListedEntry;
use proto::path::VPath;
use proto::ranges::RangeSet;
use proto::server::FileError;

use crate::control::TransferControl;
use crate::store::{Sink, Source};

/// Receives the entries of a listing as they arrive; `Break` ends it.
pub type ServedVisitor<'v> = dyn FnMut(ListedEntry) -> ControlFlow<()> + 'v;

/// For whom a store moves bytes.
#[derive(Debug, Clone, Default)]
pub struct ServedClient {
    /// Those of one name share what the store has for one client.
    pub name: String,
    /// The transfer. After [`TransferControl::cancel`] nothing waits.
    pub control: Arc<TransferControl>,
    /// Whether it may wait until other transfers have ended.
    pub may_wait: bool,
    /// The bytes that this server moves.
    pub bytes: ServedBytes,
}

/// The bytes of a transfer that one server moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServedBytes {
    /// All of them.
    #[default]
    All,
    /// Some; which ones is told while it runs.
    Some,
    /// None: other servers move them.
    None,
}

/// The objects below one place of a store, as files. All calls block.
///
/// Errors have the kinds by which replies are chosen: `NotFound`; `Denied` if the store refuses;
/// [`Unavailable`](proto::server::FileErrorKind::Unavailable) if it cannot be reached or is busy;
/// [`Busy`](proto::server::FileErrorKind::Busy) if other transfers leave no memory for a further one; `Other`.
pub trait ServedStore: Send + Sync + Debug {
    /// Its URL, for messages.
    fn name(&self) -> &str;

    /// Checks that the store answers, and is what it is taken for.
    ///
    /// # Errors
    /// It does not.
    fn check(&self) -> Result<(), FileError>;

    /// The entry of a path. The root is always a directory. An object counts before a directory of the same name.
    ///
    /// # Errors
    /// See [`ServedStore`].
    fn stat(&self, path: &VPath) -> Result<ListedEntry, FileError>;

    /// Checks that a directory is there.
    ///
    /// # Errors
    /// See [`ServedStore`].
    fn enter(&self, path: &VPath) -> Result<(), FileError>;

    /// The entries of a directory, in pages, or the object at the path. A name may be that of an object and of a directory.
    ///
    /// # Errors
    /// See [`ServedStore`]. Also if the directory has something that no path leads to: after all that was visited.
    fn list(&self, path: &VPath, visit: &mut ServedVisitor<'_>) -> Result<(), FileError>;

    /// Everything below a directory, a directory before its content, with paths relative to it.
    ///
    /// # Errors
    /// As [`ServedStore::list`].
    fn walk(&self, path: &VPath, visit: &mut ServedVisitor<'_>) -> Result<(), FileError>;

    /// Opens an object. What is read later is of the version that it has now, or is refused.
    ///
    /// # Errors
    /// See [`ServedStore`].
    fn open(&self, path: &VPath) -> Result<Arc<dyn ServedFile>, FileError>;

    /// Begins an object. `announced`: its length in bytes, if it is known.
    ///
    /// # Errors
    /// See [`ServedStore`]. `IsADirectory` if a directory has the name.
    fn create(
        &self,
        path: &VPath,
        announced: Option<u64>,
        by: &ServedClient,
    ) -> Result<Arc<dyn ServedSink>, FileError>;

    /// Begins to write parts of an object that another server of this store has begun; `shared`: what that one tells
    /// ([`ServedSink::share`]).
    ///
    /// # Errors
    /// See [`ServedStore`]. `shared` is of another kind of store.
    fn join(
        &self,
        path: &VPath,
        shared: &str,
        by: &ServedClient,
    ) -> Result<Arc<dyn JoinedSink>, FileError>;

    /// Makes a directory, whose parent exists.
    ///
    /// # Errors
    /// See [`ServedStore`]. `Exists`.
    fn make_dir(&self, path: &VPath) -> Result<(), FileError>;

    /// Removes a directory that is empty.
    ///
    /// # Errors
    /// See [`ServedStore`]. `NotEmpty`.
    fn remove_dir(&self, path: &VPath) -> Result<(), FileError>;

    /// Removes an object.
    ///
    /// # Errors
    /// See [`ServedStore`]. `IsADirectory`.
    fn remove_file(&self, path: &VPath) -> Result<(), FileError>;

    /// Removes an object, or everything below a directory.
    ///
    /// # Errors
    /// See [`ServedStore`].
    fn remove_tree(&self, path: &VPath) -> Result<(), FileError>;

    /// Gives an object another name, and replaces an object that has it.
    ///
    /// # Errors
    /// See [`ServedStore`]. `IsADirectory`: directories are not renamed, nor replaced.
    fn rename(&self, from: &VPath, to: &VPath) -> Result<(), FileError>;
}

/// An object that is open for reading: one version of it.
pub trait ServedFile: Send + Sync + Debug {
    /// Bytes.
    fn size(&self) -> u64;

    /// A text that no other version of the object has; `None`: the store has no such texts.
    fn version(&self) -> Option<&str>;

    /// A checksum that the store keeps of the whole content, lower-case hex.
    fn checksum(&self, algorithm: ChecksumAlgorithm) -> Option<String>;

    /// Bytes that are read at a time, from a multiple of them to the next.
    fn piece(&self) -> u64;

    /// A source of these ranges, which are read about in their order, by one reader or several. It reads ahead, and holds a bounded
    /// part of them in memory.
    ///
    /// # Errors
    /// `Busy`; `Aborted` if the transfer was cancelled.
    fn source(&self, wanted: &RangeSet, by: &ServedClient) -> Result<Arc<dyn Source>, FileError>;
}

/// An object that is being written. Nobody sees it before [`ServedSink::finish`]; dropping it is [`ServedSink::abandon`].
pub trait ServedSink: Sink {
    /// Completes the object and gives it its name. `length`: its bytes, if that is known. Returns its version, if the store tells it.
    ///
    /// # Errors
    /// See [`ServedStore`]; bytes before the last one are missing. Nothing of the object is left.
    fn finish(&self, length: Option<u64>) -> Result<Option<String>, FileError>;

    /// Discards the object, and returns when nothing of it is left in the store.
    fn abandon(&self);

    /// Has other servers of the store write the object, and this one none of it: each gets all bytes of a part
    /// ([`PartPlan::part_of_arriving`](proto::s3::parts::PartPlan::part_of_arriving)), or none. Returns what they need
    /// ([`ServedStore::join`]). `algorithm`: of a checksum that is wanted of all bytes.
    ///
    /// # Errors
    /// See [`ServedStore`].
    fn share(&self, algorithm: Option<ChecksumAlgorithm>) -> Result<String, FileError>;

    /// Takes over parts that another server has written ([`JoinedSink::finish`]).
    ///
    /// # Errors
    /// `Other`: they are none.
    fn take_over(&self, parts: &[String]) -> Result<(), FileError>;

    /// The checksum of all bytes, lower-case hex, as far as the parts of other servers tell it.
    fn checksum(&self, algorithm: ChecksumAlgorithm) -> Option<String>;
}

/// Parts of an object that another server has begun and completes. Dropping it sends no more of them.
pub trait JoinedSink: Sink {
    /// All bytes that this server gets have arrived. Returns when the store has them, with a text for each part, by which the other
    /// server completes the object.
    ///
    /// # Errors
    /// See [`ServedStore`]; a part has a hole; `Aborted` if the transfer was cancelled.
    fn finish(&self) -> Result<Vec<String>, FileError>;
}
