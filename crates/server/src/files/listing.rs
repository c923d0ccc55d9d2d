//! Directory listings as lines.

use std::ops::ControlFlow;
use std::time::SystemTime;

use data::store::root::Pattern;
use proto::listing::{Entry, Fact, FactSet, Kind, format_ls, format_mlsx};
use proto::path::VPath;
use proto::server::{FileError, FileErrorKind, ListForm, ListRequest};
use proto::timestamp::Timestamp;

use super::{Files, Share};

/// Largest listing for a data connection, bytes. It is held in memory while it is sent.
const MAX_LISTING: usize = 256 << 20;

/// Largest listing in a reply, bytes: clients bound what they take on the control connection.
const MAX_REPLY: usize = 32 << 20;

impl Files {
    /// For a reply: lines without ending.
    pub(super) fn list_lines(
        &self,
        request: &ListRequest,
    ) -> Result<(Vec<Vec<u8>>, Share), FileError> {
        let mut lines = Vec::new();
        let share = self.room.share();
        let mut writer = Writer::new(request.form, MAX_REPLY, share, |line: Vec<u8>| {
            lines.push(line);
        });
        self.write_listing(request, &mut writer)?;
        let share = writer.share;
        Ok((lines, share))
    }

    /// For a data connection: lines with CR LF, in every TYPE.
    pub(super) fn list_text(&self, request: &ListRequest) -> Result<(Vec<u8>, Share), FileError> {
        let mut text = Vec::new();
        let share = self.room.share();
        let mut writer = Writer::new(request.form, MAX_LISTING, share, |line: Vec<u8>| {
            text.extend_from_slice(&line);
            text.extend_from_slice(b"\r\n");
        });
        self.write_listing(request, &mut writer)?;
        let share = writer.share;
        Ok((text, share))
    }

    fn write_listing(
        &self,
        request: &ListRequest,
        writer: &mut Writer<impl FnMut(Vec<u8>)>,
    ) -> Result<(), FileError> {
        let (path, pattern) = self.literal_or_pattern(request);
        if let (ListForm::Facts(facts), false) = (request.form, request.recursive) {
            self.write_dir_itself(&path, facts, writer)?;
        }
        let mut visit = |mut entry: Entry| {
            entry.access.write &= self.rights.write;
            let is_top = entry.kind == Kind::CurrentDir;
            let count = is_top.then(|| self.count(&path, request.form)).flatten();
            writer.entry(&entry, count)
        };
        if request.recursive {
            self.root.walk(&path, &mut visit)?;
        } else {
            self.root.list(&path, pattern.as_ref(), &mut visit)?;
        }
        writer.finish()
    }

    /// MLSD and MLSC begin with the directory itself and its parent (RFC 3659 §7.5.1).
    fn write_dir_itself(
        &self,
        path: &VPath,
        facts: FactSet,
        writer: &mut Writer<impl FnMut(Vec<u8>)>,
    ) -> Result<(), FileError> {
        let mut this = self.stat(path)?;
        if this.kind != Kind::Dir {
            return Ok(());
        }
        this.kind = Kind::CurrentDir;
        this.name = b".".to_vec();
        let _ = writer.entry(&this, self.count(path, ListForm::Facts(facts)));
        if !path.is_root() {
            let mut parent = self.stat(&path.parent())?;
            parent.kind = Kind::ParentDir;
            parent.name = b"..".to_vec();
            let _ = writer.entry(&parent, None);
        }
        Ok(())
    }

    /// The `X.count` fact, if it is wanted: it costs another look at the directory.
    fn count(&self, path: &VPath, form: ListForm) -> Option<u64> {
        match form {
            ListForm::Facts(facts) if facts.has(Fact::XCount) => self.root.count(path).ok(),
            _ => None,
        }
    }

    /// A name may look like a pattern: what is there under that very name comes first.
    fn literal_or_pattern(&self, request: &ListRequest) -> (VPath, Option<Pattern>) {
        let Some(pattern) = &request.pattern else {
            return (request.path.clone(), None);
        };
        match request.path.join(pattern) {
            Ok(literal) if self.root.identity(&literal).is_ok() => (literal, None),
            _ => (request.path.clone(), Some(Pattern::new(pattern))),
        }
    }
}

/// Writes entries in the form wanted, up to a bound.
struct Writer<F> {
    form: ListForm,
    now: Timestamp,
    limit: usize,
    left: usize,
    share: Share,
    emit: F,
    /// Why the listing is not whole.
    stopped: Option<Stopped>,
}

enum Stopped {
    TooLarge,
    NoRoom,
}

impl<F: FnMut(Vec<u8>)> Writer<F> {
    fn new(form: ListForm, limit: usize, share: Share, emit: F) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let seconds = now.map_or(0, |since| since.as_secs());
        Self {
            form,
            now: Timestamp(i64::try_from(seconds).unwrap_or(i64::MAX)),
            limit,
            left: limit,
            share,
            emit,
            stopped: None,
        }
    }

    fn entry(&mut self, entry: &Entry, entries_in_dir: Option<u64>) -> ControlFlow<()> {
        let line = match self.form {
            ListForm::Facts(facts) => format_mlsx(entry, facts, entries_in_dir),
            ListForm::Long => format_ls(entry, self.now),
            ListForm::Names => on_one_line(&entry.name),
        };
        let stopped = match self.left.checked_sub(line.len() + 2) {
            None => Stopped::TooLarge,
            Some(left) if !self.share.grow_to(self.limit - left) => Stopped::NoRoom,
            Some(left) => {
                self.left = left;
                (self.emit)(line);
                return ControlFlow::Continue(());
            }
        };
        self.stopped = Some(stopped);
        ControlFlow::Break(())
    }

    fn finish(&self) -> Result<(), FileError> {
        let (kind, text) = match self.stopped {
            None => return Ok(()),
            Some(Stopped::TooLarge) => (
                FileErrorKind::Other,
                format!("the listing is larger than {} bytes", self.limit),
            ),
            Some(Stopped::NoRoom) => (
                FileErrorKind::Busy,
                "too many large listings at once".to_owned(),
            ),
        };
        Err(FileError {
            kind,
            errno: None,
            text,
        })
    }
}

/// A line end in a name would make two names of it; as in [`format_mlsx`] it becomes `?`.
fn on_one_line(name: &[u8]) -> Vec<u8> {
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
