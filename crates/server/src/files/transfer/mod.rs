//! Opening what a transfer reads or writes, and ending a store.

use std::sync::Arc;

use data::job::Report;
use data::recv::RecvPlan;
use data::send::SendPlan;
use data::store::claim::{Claim, Claimed, claim};
use data::store::durability::SyncPolicy;
use data::store::file::{FileSink, FileSource};
use data::store::root::{Identity, StoreError, Writable};
use data::store::{Sink, Source};
use proto::checksum::Algorithm;
use proto::command::{Mode, Type};
use proto::path::VPath;
use proto::ranges::RangeSet;
use proto::server::{
    Disposition, FileError, FileErrorKind, ListRequest, TransferError, TransferKind,
    TransferRequest,
};

use super::Files;
use super::listing::ListingSource;
use super::uploads::{Lease, LiveUpload, OwnerWatch, Storer, in_use};

mod finish;
mod sink;

use finish::Ending;
use sink::StoreSink;

/// How often a file is opened again because its name led elsewhere when it was locked.
const OPEN_ATTEMPTS: u32 = 64;

/// A transfer whose file is open.
#[derive(Debug)]
pub enum Opened {
    /// RETR, ERET and listings: the server sends.
    Send(Sending),
    /// STOR, APPE, STOU, ESTO: the server receives.
    Receive(Storing),
}

/// Something to send. A listing has its CR LF already, in every TYPE.
#[derive(Debug)]
pub struct Sending {
    /// The bytes to read.
    pub source: Arc<dyn Source>,
    /// Which bytes of it.
    pub plan: SendPlan,
    /// The file or directory.
    pub path: VPath,
}

/// A file that is open to be stored.
#[derive(Debug)]
pub struct Storing {
    /// Where bytes go.
    pub sink: Arc<dyn Sink>,
    /// Where on it.
    pub plan: RecvPlan,
    /// The file; for STOU the unique name.
    pub path: VPath,
    /// STOU made the name.
    pub unique: bool,
    /// Value for [`data::job::Settings::sum`].
    pub sum: Option<Algorithm>,
    ending: Ending,
}

/// A file that is open to be stored, and locked.
struct Owned {
    /// Closed, and with it unlocked, before the lease ends.
    file: std::fs::File,
    created: bool,
    path: VPath,
    lease: Lease,
}

/// The fields of [`TransferKind::Store`] that decide how the file is opened.
struct Store<'a> {
    path: &'a VPath,
    disposition: &'a Disposition,
    allocate: Option<u64>,
}

impl Files {
    /// Opens what a transfer reads or writes. Of a listing the first part is made here, the rest while it
    /// is sent. A store by `by` owns its file until [`Storing`] ends; it waits, bounded, for an owner that
    /// is to give way.
    ///
    /// # Errors
    /// Also [`FileErrorKind::InUse`] when another upload owns the file, and
    /// [`FileErrorKind::Aborted`] when the store's client is gone or has stopped it.
    pub fn open(&self, request: &TransferRequest, by: &Storer) -> Result<Opened, FileError> {
        match &request.what {
            TransferKind::List(list) => self.open_listing(list).map(Opened::Send),
            TransferKind::Retrieve { path, part, have } => {
                self.open_retrieve(path, *part, have).map(Opened::Send)
            }
            TransferKind::Store { .. } => self.open_store(request, by).map(Opened::Receive),
        }
    }

    fn open_listing(&self, request: &ListRequest) -> Result<Sending, FileError> {
        Ok(Sending {
            source: Arc::new(ListingSource::begin(self, request)?),
            // It is sent in order, to its end.
            plan: SendPlan {
                ranges: RangeSet::new(),
                origin: 0,
            },
            path: request.path.clone(),
        })
    }

    fn open_retrieve(
        &self,
        path: &VPath,
        part: Option<(u64, u64)>,
        have: &RangeSet,
    ) -> Result<Sending, FileError> {
        let failed = |error: std::io::Error| StoreError::from_io("open", path, &error);
        let file = self.root.open_read(path)?;
        let size = file.metadata().map_err(failed)?.len();
        let source = FileSource::new(file, path.to_string()).map_err(failed)?;
        Ok(Sending {
            source: Arc::new(source),
            plan: ranges_to_send(size, part, have),
            path: path.clone(),
        })
    }

    fn open_store(&self, request: &TransferRequest, by: &Storer) -> Result<Storing, FileError> {
        let TransferKind::Store {
            path,
            disposition,
            allocate,
            sum,
            expect,
            modify,
        } = &request.what
        else {
            return Err(not_a_store());
        };
        self.require_write()?;
        let store = Store {
            path,
            disposition,
            allocate: *allocate,
        };
        self.require_space(&store)?;
        let owned = self.own(&store, by)?;
        let path = owned.path.clone();
        let prepared = self.look_before(&owned);
        let (before, directory) = prepared.inspect_err(|_| self.discard(&owned))?;
        self.sums.forget(&before);
        self.last_upload.forget(before.inode);
        let plan = plan_of(disposition, request.mode, before.size);
        let ascii = request.type_ == Type::Ascii;
        let resumed = matches!(disposition, Disposition::Resume { .. });
        let replaces_rest = resumed && request.mode == Mode::Stream;
        // What TYPE A stores has another length than what it receives: where it ends is not known
        // afterwards.
        let cut = match disposition {
            Disposition::Truncate => Some(0),
            _ => (replaces_rest && ascii).then_some(plan.stream_start),
        };
        let failed = |error: std::io::Error| StoreError::from_io("open", &path, &error);
        let file = match FileSink::wrap(owned.file, path.to_string()) {
            Ok(file) => file,
            Err((file, error)) => {
                self.discard(&Owned { file, ..owned });
                return Err(failed(error).into());
            }
        };
        let sink = Arc::new(StoreSink::new(
            file.with_policy(self.sync, directory),
            Arc::clone(&self.root),
            path.clone(),
            owned.created,
            cut,
            owned.lease,
        ));
        let wanted = expect.as_ref().map(|(algorithm, _)| *algorithm).or(*sum);
        Ok(Storing {
            sink: Arc::clone(&sink) as Arc<dyn Sink>,
            plan,
            path,
            unique: *disposition == Disposition::Unique,
            // In TYPE A what passes is not what is stored.
            sum: wanted.filter(|_| !ascii),
            ending: Ending {
                files: self.clone(),
                sink,
                cut: replaces_rest && !ascii,
                algorithm: wanted,
                expect: expect.as_ref().map(|(_, hex)| hex.clone()),
                modify: *modify,
            },
        })
    }

    /// The state of a file that is about to be stored, and its directory.
    fn look_before(&self, owned: &Owned) -> Result<(Identity, Option<std::fs::File>), StoreError> {
        let before = Identity::of(&owned.file)
            .map_err(|error| StoreError::from_io("open", &owned.path, &error))?;
        Ok((before, self.directory_to_sync(&owned.path)?))
    }

    /// A store that does not come about leaves no file that it made.
    fn discard(&self, owned: &Owned) {
        if owned.created {
            sink::remove_unused(&self.root, &owned.path, &owned.file, &owned.lease);
        }
    }

    /// The directory of `path`, if the policy forces names to disk.
    fn directory_to_sync(&self, path: &VPath) -> Result<Option<std::fs::File>, StoreError> {
        match self.sync {
            SyncPolicy::None => Ok(None),
            SyncPolicy::File => self.root.directory_of(path),
        }
    }

    /// Opens the file of a store and becomes its owner. Nothing is cut.
    fn own(&self, store: &Store<'_>, by: &Storer) -> Result<Owned, FileError> {
        let claim = match store.disposition {
            Disposition::At(_) => Claim::Ranges,
            _ => Claim::Sole,
        };
        let mut watch = OwnerWatch::new(&self.uploads, claim, by);
        for _ in 0..OPEN_ATTEMPTS {
            by.check()?;
            let (opened, path) = self.open_for(store)?;
            let failed = |error: std::io::Error| StoreError::from_io("open", &path, &error);
            let inode = Identity::of(&opened.file).map_err(failed)?.inode;
            let Some(lease) = self.uploads.enter(inode, claim, by) else {
                drop(opened);
                watch.outlast(inode)?;
                continue;
            };
            let owned = Owned {
                file: opened.file,
                created: opened.created,
                path,
                lease,
            };
            let locked = lock(&owned.file, claim, &owned.path);
            locked.inspect_err(|_| self.discard(&owned))?;
            // Until the lock was there somebody may have put another file in this one's place.
            match self.root.identity(&owned.path) {
                Ok(there) if there.inode == inode => return Ok(owned),
                Ok(_) => {}
                Err(error) if error.kind() == FileErrorKind::NotFound => {}
                Err(error) => {
                    self.discard(&owned);
                    return Err(error.into());
                }
            }
            // Dropped in the order of its fields: unlocked, while the lease still says whose lock it is.
        }
        Err(in_use())
    }

    fn open_for(&self, store: &Store<'_>) -> Result<(Writable, VPath), FileError> {
        if *store.disposition == Disposition::Unique {
            let (file, path) = self.root.open_unique(store.path)?;
            let created = true;
            return Ok((Writable { file, created }, path));
        }
        Ok((self.root.open_write(store.path)?, store.path.clone()))
    }

    /// A file announced by ALLO that cannot fit is refused before a byte of it, or of the file
    /// that it replaces, is lost.
    fn require_space(&self, store: &Store<'_>) -> Result<(), FileError> {
        let Some(size) = store.allocate else {
            return Ok(());
        };
        let reused = match store.disposition {
            Disposition::Append | Disposition::Unique => 0,
            Disposition::Truncate | Disposition::Resume { .. } | Disposition::At(_) => {
                self.root.identity(store.path).map_or(0, |file| file.size)
            }
        };
        let free = self.root.free_space(store.path)?;
        if size.saturating_sub(reused) <= free {
            return Ok(());
        }
        Err(FileError {
            kind: FileErrorKind::NoSpace,
            errno: None,
            text: format!(
                "No space left on device: {size} bytes announced for {}, {free} free",
                store.path
            ),
        })
    }
}

impl Storing {
    /// Ends a store that arrived whole: cuts the file where that is due, syncs it as the server's
    /// policy says, verifies an announced checksum, sets the announced time, and remembers the sum.
    /// Returns the checksum of the whole file if it is known. A store that failed is just dropped: what
    /// arrived stays for a restart. What the disk says while it is synced is a failure of the store,
    /// and so is a name that leads elsewhere by now.
    /// `progress` as for [`Files::run`]: a file that did not pass whole is read for its checksum.
    pub fn finish(
        self,
        report: &Report,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<String>, TransferError> {
        self.ending.run(&self.plan, report, progress)
    }

    /// Goes on as if the disk had refused something.
    #[cfg(test)]
    pub(in crate::files) fn refuse(&self) {
        let refusal = std::io::Error::from_raw_os_error(28); // ENOSPC
        let _ = self.ending.sink.noting(Err::<(), _>(refusal));
    }

    /// Its entry among the uploads.
    pub(crate) fn upload(&self) -> &Arc<LiveUpload> {
        self.ending.sink.lease.upload()
    }
}

fn not_a_store() -> FileError {
    FileError {
        kind: FileErrorKind::Other,
        errno: None,
        text: "not a store".to_owned(),
    }
}

/// Locks the file against other processes.
pub(super) fn lock(file: &std::fs::File, how: Claim, path: &VPath) -> Result<(), FileError> {
    match claim(file, how) {
        Ok(Claimed::Held | Claimed::Unsupported) => Ok(()),
        Ok(Claimed::Busy) => Err(in_use()),
        Err(error) => Err(StoreError::from_io("lock", path, &error).into()),
    }
}

/// Wire offsets (of `part` and `have`) to file offsets, less what the receiver has.
fn ranges_to_send(size: u64, part: Option<(u64, u64)>, have: &RangeSet) -> SendPlan {
    let (origin, length) = part.unwrap_or((0, u64::MAX));
    let mut there = RangeSet::new();
    for range in have.iter() {
        there.insert(
            range.start.saturating_add(origin),
            range.end.saturating_add(origin),
        );
    }
    SendPlan {
        ranges: there.gaps(origin, size.min(origin.saturating_add(length))),
        origin,
    }
}

fn plan_of(disposition: &Disposition, mode: Mode, size: u64) -> RecvPlan {
    let (origin, stream_start) = match disposition {
        Disposition::Truncate | Disposition::Unique => (0, 0),
        Disposition::Resume { have } => match mode {
            Mode::Stream => (0, have.prefix()),
            Mode::Extended => (0, 0),
        },
        Disposition::At(offset) => (*offset, 0),
        Disposition::Append => (size, 0),
    };
    RecvPlan {
        origin,
        stream_start,
        limit: None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(text: &str) -> RangeSet {
        RangeSet::parse(text).unwrap()
    }

    #[test]
    fn sends_what_is_missing_of_the_part() {
        let plan = |part, have| {
            let plan = ranges_to_send(100, part, &have);
            (plan.ranges.to_string(), plan.origin)
        };
        assert_eq!(plan(None, RangeSet::new()), ("0-100".to_owned(), 0));
        assert_eq!(
            plan(None, set("0-10,20-30")),
            ("10-20,30-100".to_owned(), 0)
        );
        assert_eq!(
            plan(Some((40, 20)), RangeSet::new()),
            ("40-60".to_owned(), 40)
        );
        assert_eq!(plan(Some((40, 20)), set("0-5")), ("45-60".to_owned(), 40));
        assert_eq!(
            plan(Some((90, 50)), RangeSet::new()),
            ("90-100".to_owned(), 90)
        );
        assert_eq!(plan(Some((200, 5)), RangeSet::new()), (String::new(), 200));
        assert_eq!(plan(None, set("0-200")), (String::new(), 0));
    }

    proptest! {
        #[test]
        fn no_offset_overflows(size: u64, offset: u64, length: u64, a: u64, b: u64) {
            let mut have = RangeSet::new();
            have.insert(a.min(b), a.max(b));
            let plan = ranges_to_send(size, Some((offset, length)), &have);
            prop_assert!(plan.ranges.end() <= size);
            prop_assert!(plan.ranges.iter().all(|range| range.start >= offset));
        }
    }

    #[test]
    fn stores_begin_where_the_command_says() {
        let plan = |disposition, mode| {
            let plan = plan_of(&disposition, mode, 70);
            (plan.origin, plan.stream_start)
        };
        let resume = || Disposition::Resume {
            have: set("0-30,40-50"),
        };
        assert_eq!(plan(Disposition::Truncate, Mode::Stream), (0, 0));
        assert_eq!(plan(resume(), Mode::Stream), (0, 30));
        assert_eq!(plan(resume(), Mode::Extended), (0, 0));
        assert_eq!(plan(Disposition::At(9), Mode::Extended), (9, 0));
        assert_eq!(plan(Disposition::Append, Mode::Stream), (70, 0));
        assert_eq!(plan(Disposition::Unique, Mode::Extended), (0, 0));
    }
}
