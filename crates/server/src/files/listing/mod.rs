//! Directory listings as lines of text.

use std::ops::ControlFlow;
use std::time::SystemTime;

use proto::listing::{DirectoryEntry, EntryKind, Fact, FactSet, format_ls, format_mlsx};
use proto::path::VPath;
use proto::pattern::GlobPattern;
use proto::printable::printable;
use proto::server::{FileError, FileErrorKind, ListFormat, ListRequest};
use proto::timestamp::Timestamp;

use super::{Access, DirectoryFiles, ListingMemory, ListingMemoryShare};

mod stream;

pub(crate) use stream::ListingSource;

/// Largest listing in a reply, bytes. Clients bound what they accept on the control connection.
const MAX_REPLY: usize = 32 << 20;

/// Files of a session, whose directories are listed.
pub(crate) trait ListedFiles: Clone + Send + 'static {
    /// The memory for listings in replies.
    fn listing_memory(&self) -> &ListingMemory;

    /// Writes the entries that a request asks for, until the writer breaks.
    ///
    /// # Errors
    /// The directory cannot be listed, or only in part.
    fn write_listing<F: FnMut(Vec<u8>) -> ControlFlow<()>>(
        &self,
        request: &ListRequest,
        writer: &mut ListingWriter<F>,
    ) -> Result<(), FileError>;
}

/// The lines of a listing for a reply, without line ends.
pub(crate) fn list_lines(
    files: &impl ListedFiles,
    request: &ListRequest,
) -> Result<(Vec<Vec<u8>>, ListingMemoryShare), FileError> {
    let mut lines = Vec::new();
    let mut share = files.listing_memory().share();
    let mut size = 0;
    let mut refusal = None;
    let mut writer = ListingWriter::new(request.format, |line: Vec<u8>| {
        // Two bytes for the CR LF that the reply adds.
        size += line.len() + 2;
        refusal = if size > MAX_REPLY {
            Some(too_large())
        } else if !share.reserve(size) {
            Some(no_memory())
        } else {
            lines.push(line);
            return ControlFlow::Continue(());
        };
        ControlFlow::Break(())
    });
    files.write_listing(request, &mut writer)?;
    match refusal {
        Some(error) => Err(error),
        None => Ok((lines, share)),
    }
}

impl ListedFiles for DirectoryFiles {
    fn listing_memory(&self) -> &ListingMemory {
        &self.listing_memory
    }

    fn write_listing<F: FnMut(Vec<u8>) -> ControlFlow<()>>(
        &self,
        request: &ListRequest,
        writer: &mut ListingWriter<F>,
    ) -> Result<(), FileError> {
        self.paths.check(Access::List, &request.path)?;
        let (path, pattern) = self.resolve_pattern(request);
        // A name that looks like a pattern leads to another path.
        self.paths.check(Access::List, &path)?;
        if let (ListFormat::Facts(facts), false) = (request.format, request.recursive) {
            self.write_dir_itself(&path, facts, writer)?;
        }
        if !request.prefix.is_empty() && (pattern.is_some() || !self.is_directory(&path)) {
            writer.prefix.clone_from(&request.prefix);
        }
        let mut closed = None;
        let mut visit = |mut entry: DirectoryEntry| {
            if !self.paths.shows(&path, &entry.name) {
                return ControlFlow::Continue(());
            }
            entry.permissions.write &= self.rights.write;
            let is_listed_dir = entry.kind == EntryKind::CurrentDir;
            let is_entered = entry.kind == EntryKind::Dir && entry.link_target.is_none();
            if request.recursive && is_entered && !entry.permissions.read {
                closed.get_or_insert_with(|| entry.name.clone());
            }
            self.paths.narrow_child(&mut entry, &path);
            let count = is_listed_dir
                .then(|| self.count(&path, request.format))
                .flatten();
            writer.entry(&entry, count)
        };
        if request.recursive {
            self.root.walk(&path, &mut visit)?;
        } else {
            self.root.list(&path, pattern.as_ref(), &mut visit)?;
        }
        match (closed, request.format) {
            // Nothing in the listing says that what is below it is missing.
            (Some(name), ListFormat::Facts(facts)) if !facts.contains(Fact::Perm) => {
                Err(not_shown(&name))
            }
            _ => Ok(()),
        }
    }
}

impl DirectoryFiles {
    /// See [`list_lines`].
    pub(super) fn list_lines(
        &self,
        request: &ListRequest,
    ) -> Result<(Vec<Vec<u8>>, ListingMemoryShare), FileError> {
        list_lines(self, request)
    }

    fn is_directory(&self, path: &VPath) -> bool {
        let entry = self.root.stat(path);
        entry.is_ok_and(|entry| entry.kind == EntryKind::Dir)
    }

    /// Writes the directory itself and its parent, with which MLSD and MLSC begin (RFC 3659 section
    /// 7.5.1).
    fn write_dir_itself(
        &self,
        path: &VPath,
        facts: FactSet,
        writer: &mut ListingWriter<impl FnMut(Vec<u8>) -> ControlFlow<()>>,
    ) -> Result<(), FileError> {
        let mut this = self.stat(path)?;
        if this.kind != EntryKind::Dir {
            return Ok(());
        }
        this.kind = EntryKind::CurrentDir;
        this.name = b".".to_vec();
        // The result is ignored: if `emit` breaks here, it breaks again at the next entry.
        let _ = writer.entry(&this, self.count(path, ListFormat::Facts(facts)));
        if !path.is_root() {
            let mut parent = self.stat(&path.parent())?;
            parent.kind = EntryKind::ParentDir;
            parent.name = b"..".to_vec();
            let _ = writer.entry(&parent, None);
        }
        Ok(())
    }

    /// The `X.count` fact, if it was asked for: it costs another read of the directory.
    fn count(&self, path: &VPath, form: ListFormat) -> Option<u64> {
        // Of a directory on the way to a scope, only what leads there is shown.
        let is_shown_whole = self.paths.check(Access::Read, path).is_ok();
        match form {
            ListFormat::Facts(facts) if facts.contains(Fact::XCount) && is_shown_whole => {
                self.root.count(path).ok()
            }
            _ => None,
        }
    }

    /// The path to list, and the pattern if there is one. A name that looks like a pattern is taken as a
    /// name if a file of that name exists.
    fn resolve_pattern(&self, request: &ListRequest) -> (VPath, Option<GlobPattern>) {
        let Some(pattern) = &request.pattern else {
            return (request.path.clone(), None);
        };
        match request.path.join(pattern) {
            Ok(literal) if self.root.identity(&literal).is_ok() => (literal, None),
            _ => (request.path.clone(), Some(GlobPattern::new(pattern))),
        }
    }
}

/// Formats entries in the requested form and passes them to `emit`, until `emit` breaks.
pub(crate) struct ListingWriter<F> {
    form: ListFormat,
    /// Text before each name ([`ListRequest::prefix`]).
    pub(crate) prefix: Vec<u8>,
    now: Timestamp,
    emit: F,
}

impl<F: FnMut(Vec<u8>) -> ControlFlow<()>> ListingWriter<F> {
    fn new(form: ListFormat, emit: F) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        // `ls` shows the year instead of the time for old entries, so it needs the current time.
        let seconds = now.map_or(0, |since| since.as_secs());
        Self {
            form,
            prefix: Vec::new(),
            now: Timestamp(i64::try_from(seconds).unwrap_or(i64::MAX)),
            emit,
        }
    }

    /// Writes an entry, with the number of entries in it if it is a directory and that is known.
    pub(crate) fn entry(
        &mut self,
        entry: &DirectoryEntry,
        entries_in_dir: Option<u64>,
    ) -> ControlFlow<()> {
        (self.emit)(match self.form {
            ListFormat::Facts(facts) => format_mlsx(entry, facts, entries_in_dir),
            ListFormat::LsLong => format_ls(entry, self.now),
            ListFormat::Names => replace_line_ends(&[&*self.prefix, &*entry.name].concat()),
        })
    }
}

fn not_shown(directory: &[u8]) -> FileError {
    FileError::new(
        FileErrorKind::Denied,
        format!(
            "Permission denied: {} cannot be listed, and without the fact Perm nothing would show that",
            printable(directory)
        ),
    )
}

fn too_large() -> FileError {
    FileError::new(
        FileErrorKind::Other,
        format!("the listing is larger than {MAX_REPLY} bytes; list over a data connection"),
    )
}

fn no_memory() -> FileError {
    FileError::new(FileErrorKind::Busy, "too many large listings at once")
}

/// Replaces CR, LF and NUL in a name by `?`, as [`format_mlsx`] does: a line end would split the name
/// in two.
fn replace_line_ends(name: &[u8]) -> Vec<u8> {
    name.iter()
        .map(|&b| {
            if matches!(b, b'\r' | b'\n' | 0) {
                b'?'
            } else {
                b
            }
        })
        .collect()
}
