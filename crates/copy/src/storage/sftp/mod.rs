//! SFTP servers as storages, through ssh(1): for accounts that run no programs.
//!
//! A request blocks its thread, never the runtime. Dropping a future ends its connection.

mod changes;
mod connection;
mod errors;
mod fetch;
mod flow;
mod lanes;
mod opening;
mod series;
mod series_fetch;
mod series_requests;
mod series_store;
mod store;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Shutdown};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use data::checksum::ChecksumHasher;
use data::job::{TransferControl, TransferReport, TransferSettings};
use data::store::durability::SyncPolicy;
use data::store::{Sink, Source};
use proto::checksum::ChecksumAlgorithm;
use proto::listing::ListedEntry;
use proto::sftp::{
    FileChecksum, OpenFlags, SftpExtensions, SftpReply, SftpRequest, SftpStatusCode,
};
use proto::timestamp::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tune::sessions::FileMovement;

use super::capabilities::{AvailableChecksums, Capabilities};
use super::contract::{FactsUse, FilePart, RemovedKind, SessionCondition, Storage};
use super::entry_names::directory_of;
use super::optional::{
    ManyPaths, NameRules, OptionalContracts, SeriesTransfers, ServerConnection, SymbolicLinks,
    TreeListing,
};
use crate::local::partial::is_unfinished;
use connection::{LONG_WAIT, SftpConnection};
use errors::SftpFailed;
use ftp::answers::{
    EntryVisitor, ListingVisitor, MetadataChange, RenameFailure, SymlinkCheckScope,
};
use ftp::failure::Operation;
use ftp::incomplete_listing::IncompleteListing;
use ftp::location::Server;
use ftp::transfer::control_messages::add_stored_ranges;
use ftp::transfer::series::files::{FileSeries, SeriesFile, SeriesReport};
use ftp::transfer::{TransferAttempt, TransferSpec};
use ftp::{Failure, FailureKind};
use lanes::{LanePlan, Lanes};
use opening::{SftpOpener, blocking};
use series::SeriesJob;

/// Most connections for one file whose number is found by their gain. sshd(8) has ten sessions for one login, and ten
/// logins that have not succeeded yet (MaxSessions, MaxStartups).
const MAX_CONNECTIONS: u64 = 8;
/// Size from which a stored file is marked, bytes: no smaller one is worth a further connection.
const MIN_MARKED: u64 = 4 << 20;
/// Longest path that is sent: with it, no request is longer than a server takes.
const MAX_PATH: usize = 16 << 10;
/// Batches of entries queued between a directory and the visitor.
const QUEUED_BATCHES: usize = 4;

/// Algorithms of `check-file` that are worth a request, cheapest first.
const CHECKED: [ChecksumAlgorithm; 4] = [
    ChecksumAlgorithm::Sha256,
    ChecksumAlgorithm::Sha1,
    ChecksumAlgorithm::Md5,
    ChecksumAlgorithm::Sha512,
];

/// A session with an SFTP server.
#[derive(Debug)]
pub(crate) struct SftpStorage {
    opener: SftpOpener,
    /// The directory of `/~`.
    home: Vec<u8>,
    /// `None` while a request runs, and after one that has ended it.
    connection: Option<SftpConnection>,
    /// Further connections, of large files.
    spares: Vec<SftpConnection>,
    /// Algorithms that the server has refused.
    refused_checksums: Vec<ChecksumAlgorithm>,
    /// Algorithms of which it has computed checksums.
    computed_checksums: Vec<ChecksumAlgorithm>,
    rtt: Duration,
    sync_policy: SyncPolicy,
    /// Held as long as the session lives.
    _lease: Option<Arc<()>>,
}

/// Ends connections when the future of their work is dropped.
struct EndOnDrop(Vec<UnixStream>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        for socket in &self.0 {
            // An error says that it has ended.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl SftpStorage {
    /// Opens a session, which holds `lease`.
    ///
    /// # Errors
    /// Those of ssh's login; `NoProgram` and `NoCommands`: there is no SFTP; `Protocol`.
    pub(crate) async fn open(
        server: &Server,
        timeout: Duration,
        sync_policy: SyncPolicy,
        lease: Option<Arc<()>>,
    ) -> Result<Self, Failure> {
        let opener = SftpOpener {
            server: server.clone(),
            name: server.host_and_port(),
            timeout,
        };
        let opened = opener.open().await?;
        Ok(Self {
            opener,
            home: opened.home,
            connection: Some(opened.connection),
            spares: Vec::new(),
            refused_checksums: Vec::new(),
            computed_checksums: Vec::new(),
            rtt: opened.rtt,
            sync_policy,
            _lease: lease,
        })
    }

    /// A path as the server has it: `/~` is the directory of the login.
    fn path(&self, path: &[u8]) -> Vec<u8> {
        let path = match path.strip_prefix(b"/~") {
            Some(rest) if rest.is_empty() || rest.starts_with(b"/") => {
                let home = self.home.strip_suffix(b"/").unwrap_or(&self.home);
                [home, rest].concat()
            }
            _ => path.to_vec(),
        };
        let trimmed = path.strip_suffix(b"/").unwrap_or(&path);
        match trimmed {
            b"" => b"/".to_vec(),
            trimmed => trimmed.to_vec(),
        }
    }

    /// Runs requests on a thread for blocking calls.
    async fn requests<T: Send + 'static>(
        &mut self,
        operation: Operation,
        work: impl FnOnce(&mut SftpConnection) -> Result<T, SftpFailed> + Send + 'static,
    ) -> Result<T, Failure> {
        let server = self.opener.name.clone();
        self.with_connection(move |connection| {
            Ok(work(connection).map_err(|failed| failed.failure(&server, &operation)))
        })
        .await?
    }

    async fn with_connection<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut SftpConnection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let (mut connection, mut guard) = self.take_connection()?;
        let (connection, result) = blocking(move || {
            let result = work(&mut connection);
            Ok((connection, result))
        })
        .await?;
        guard.0.clear();
        self.connection = Some(connection).filter(SftpConnection::is_usable);
        result
    }

    fn take_connection(&mut self) -> Result<(SftpConnection, EndOnDrop), Failure> {
        let connection = self.connection.take().ok_or_else(|| {
            Failure::unreachable(format!("the connection with {} was lost", self.opener.name))
        })?;
        let handle = connection.handle();
        let handle = handle.map_err(|error| Failure::local(error.to_string()))?;
        Ok((connection, EndOnDrop(vec![handle])))
    }

    /// Opens a file for a transfer and runs `work` on it. The connections are kept for the next one.
    async fn transfer(
        &mut self,
        operation: Operation,
        plan: LanePlan,
        control: &Arc<TransferControl>,
        work: impl FnOnce(Lanes, &str) -> (Result<TransferReport, Failure>, Option<Lanes>)
        + Send
        + 'static,
        syncs: bool,
    ) -> Result<TransferAttempt, Failure> {
        let (first, mut guard) = self.take_connection()?;
        let mut canceller = TransferGuard(Some(Arc::clone(control)));
        let spares = std::mem::take(&mut self.spares);
        let (opener, runtime) = (self.opener.clone(), Handle::current());
        let done = blocking(move || {
            let name = opener.name.as_str();
            let lanes = match Lanes::open(first, spares, &opener, &runtime, plan) {
                Ok(lanes) => lanes,
                Err((failed, connections)) => {
                    return Ok((Err(failed.failure(name, &operation)), connections));
                }
            };
            let (report, lanes) = work(lanes, name);
            let Some(lanes) = lanes else {
                return Ok((report.map(|report| (report, 1)), Vec::new()));
            };
            let streams = lanes.count() as u64;
            let (closed, connections) = lanes.close(report.is_err(), syncs);
            let closed = closed.map_err(|failed| failed.failure(name, &operation));
            let result = report.and_then(|report| closed.map(|()| (report, streams)));
            Ok((result, connections))
        })
        .await;
        guard.0.clear();
        canceller.0 = None;
        let (result, connections) = done?;
        let mut connections = connections.into_iter().filter(SftpConnection::is_usable);
        self.connection = connections.next();
        self.spares = connections.collect();
        let (report, streams) = result?;
        Ok(TransferAttempt {
            streams,
            report,
            ..TransferAttempt::default()
        })
    }

    fn lane_plan(&self, path: &[u8], flags: OpenFlags, spec: &TransferSpec) -> LanePlan {
        let (first, most) = (u64::from(spec.streams), u64::from(spec.max_streams));
        LanePlan {
            path: self.path(path),
            flags,
            most: match most > first {
                true => most.min(MAX_CONNECTIONS),
                false => first.max(1),
            },
            wants_all: most <= first,
            is_marked: false,
            is_durable: self.sync_policy == SyncPolicy::File,
            rtt: self.rtt,
        }
    }

    async fn checksum_of(
        &mut self,
        algorithm: ChecksumAlgorithm,
        part: FilePart,
        path: &[u8],
    ) -> Result<String, Failure> {
        let available = self.available_checksums(path).await?.ranges;
        if !available.contains(&algorithm) {
            return Err(Failure::protocol(format!(
                "{} provides no {}; use cp --verify none, or another algorithm (cksum -a)",
                self.opener.name,
                algorithm.name()
            )));
        }
        if part.length == Some(0) {
            return Ok(ChecksumHasher::new(algorithm).finish());
        }
        let at = self.path(path);
        let operation = Operation::on_path("compute a checksum of", path);
        let name = algorithm.name().to_ascii_lowercase();
        let answer = self.requests(operation.clone(), move |connection| {
            let request = SftpRequest::CheckFile {
                path: &at,
                algorithm: &name,
                offset: part.offset,
                length: part.length.unwrap_or(0),
            };
            match connection.call_for(&request, LONG_WAIT)? {
                SftpReply::Extended(answer) => FileChecksum::parse(&answer)
                    .map(|answer| Ok(Some(answer)))
                    .map_err(SftpFailed::Broken),
                other => {
                    let refused = errors::unexpected(other);
                    // Of no bytes there may be no checksum (proftpd).
                    let found = changes::attributes(connection, &SftpRequest::Stat(&at));
                    match found.is_ok_and(|found| found.size == Some(part.offset)) {
                        true => Ok(Ok(None)),
                        false if refused.code().is_some() => Ok(Err(refused)),
                        false => Err(refused),
                    }
                }
            }
        });
        let answer = match answer.await? {
            Ok(Some(answer)) => answer,
            Ok(None) => return Ok(ChecksumHasher::new(algorithm).finish()),
            Err(refused) => {
                let is_unknown = refused.code() == Some(SftpStatusCode::Unsupported)
                    || refused.is_plain_refusal();
                // One that was computed before was refused for this file.
                if is_unknown && !self.computed_checksums.contains(&algorithm) {
                    self.refused_checksums.push(algorithm);
                }
                return Err(refused.failure(&self.opener.name, &operation));
            }
        };
        let is_of_algorithm =
            answer.algorithm == Some(algorithm) && answer.checksum.len() == algorithm.hex_len();
        match is_of_algorithm {
            true => {
                if !self.computed_checksums.contains(&algorithm) {
                    self.computed_checksums.push(algorithm);
                }
                Ok(answer.checksum)
            }
            false => {
                self.refused_checksums.push(algorithm);
                let reason = format_args!("{} sent another checksum", self.opener.name);
                Err(operation.failed(FailureKind::Protocol, reason))
            }
        }
    }
}

/// The extensions that an SFTP server has, of those that copies use.
///
/// # Errors
/// As for a copy: those of ssh's login; `NoProgram` and `NoCommands`: there is no SFTP.
pub async fn sftp_extensions(
    server: &Server,
    timeout: Duration,
) -> Result<SftpExtensions, Failure> {
    let session = SftpStorage::open(server, timeout, SyncPolicy::None, None).await?;
    let connection = session.connection.as_ref();
    Ok(connection.map_or_else(SftpExtensions::default, |open| open.extensions))
}

/// Cancels a transfer when its future is dropped.
struct TransferGuard(Option<Arc<TransferControl>>);

impl Drop for TransferGuard {
    fn drop(&mut self) {
        if let Some(control) = &self.0 {
            control.cancel();
        }
    }
}

/// The settings of a transfer.
fn settings_of(spec: &TransferSpec, timeout: Duration) -> TransferSettings {
    TransferSettings {
        options: spec.options.clone(),
        // However many connections there are: their bytes come in order.
        streams: 1,
        checksum: spec.checksum.filter(|_| spec.completed_ranges.is_empty()),
        connect_timeout: timeout,
        ..TransferSettings::default()
    }
}

/// Passes entries on to the visitor; `Break`: it has stopped.
fn pass_on(sender: &mpsc::Sender<Vec<ListedEntry>>, entries: Vec<ListedEntry>) -> ControlFlow<()> {
    match sender.blocking_send(entries) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    }
}

async fn visit_batches(
    mut batches: mpsc::Receiver<Vec<ListedEntry>>,
    mut visit: impl FnMut(Vec<ListedEntry>) -> ControlFlow<()>,
) {
    while let Some(entries) = batches.recv().await {
        if visit(entries).is_break() {
            batches.close();
            return;
        }
    }
}

/// Stands for a name in memory: there may be many.
fn name_hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// The last component of a path.
fn last_name(path: &[u8]) -> &[u8] {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

#[async_trait]
impl Storage for SftpStorage {
    fn name(&self) -> &str {
        &self.opener.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ranges: true,
            several_sessions: false,
            connects_here: true,
            partial_writes: true,
            resumes_uploads: true,
            stores_whole: false,
            takes_any_name: true,
            parallel: true,
            stores_any_order: true,
            sends_markers: true,
            adapts_streams: true,
            is_carried: false,
            checksums_while_storing: false,
            checksums_while_sending: false,
            sets_time: true,
            third_party: None,
            bundles: false,
            small_files: Some(FileMovement::OneConnection),
            max_queries: 32,
            is_local: false,
            length_shows_content: false,
            rtt: self.rtt,
        }
    }

    fn condition(&self) -> SessionCondition {
        SessionCondition {
            is_usable: self.connection.is_some(),
            ..SessionCondition::default()
        }
    }

    async fn facts(&mut self, path: &[u8], _purpose: FactsUse) -> Result<ListedEntry, Failure> {
        let (at, name) = (self.path(path), last_name(path).to_vec());
        let operation = Operation::on_path("read", path);
        self.requests(operation, move |connection| {
            changes::facts(connection, &at, &name)
        })
        .await
    }

    async fn list(
        &mut self,
        path: &[u8],
        _scope: SymlinkCheckScope,
        visit: &mut ListingVisitor<'_>,
    ) -> Result<(), Failure> {
        let at = self.path(path);
        let operation = Operation::on_path("list", path);
        // A bounded queue: a slow visitor slows the reading down.
        let (sender, batches) = mpsc::channel(QUEUED_BATCHES);
        let reading = self.requests(operation, move |connection| {
            let mut names = HashSet::new();
            changes::list(connection, &at, |connection, mut entries| {
                for entry in &entries {
                    if !names.insert(name_hash(&entry.name)) {
                        let twice = IncompleteListing::SameName(entry.name.clone());
                        return Err(SftpFailed::Incomplete(twice, at.clone()));
                    }
                }
                changes::read_links(connection, &at, &mut entries)?;
                Ok(pass_on(&sender, entries))
            })
        });
        let visiting = visit_batches(batches, |entries| {
            changes::checked(entries).try_for_each(&mut *visit)
        });
        let (read, ()) = tokio::join!(reading, visiting);
        read
    }

    async fn available_checksums(&mut self, _path: &[u8]) -> Result<AvailableChecksums, Failure> {
        let extensions = self.connection.as_ref().map(|open| open.extensions);
        let mut ranges = match extensions.is_some_and(|extensions| extensions.check_file) {
            true => CHECKED.to_vec(),
            false => Vec::new(),
        };
        ranges.retain(|algorithm| !self.refused_checksums.contains(algorithm));
        Ok(AvailableChecksums {
            ranges,
            whole_files: Vec::new(),
        })
    }

    async fn checksums(
        &mut self,
        algorithm: ChecksumAlgorithm,
        parts: &[FilePart],
        path: &[u8],
    ) -> Result<Vec<String>, Failure> {
        let mut sums = Vec::with_capacity(parts.len());
        for part in parts {
            sums.push(self.checksum_of(algorithm, *part, path).await?);
        }
        Ok(sums)
    }

    async fn fetch(
        &mut self,
        path: &[u8],
        sink: Arc<dyn Sink>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, Failure> {
        let operation = Operation::on_path("read", path);
        let plan = self.lane_plan(path, OpenFlags::Read, spec);
        let settings = settings_of(spec, self.opener.timeout);
        let size = spec.size.or(spec.part.map(|(_, length)| length));
        let (task_spec, task_control) = (spec.clone(), Arc::clone(control));
        let about = operation.clone();
        let work = move |lanes: Lanes, server: &str| {
            let job = fetch::FetchJob {
                server,
                operation: about,
                sink: &sink,
                spec: &task_spec,
                settings: &settings,
                size,
            };
            job.run(lanes, &task_control)
        };
        self.transfer(operation, plan, control, work, false).await
    }

    async fn store(
        &mut self,
        source: Arc<dyn Source>,
        path: &[u8],
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, Failure> {
        let operation = Operation::on_path("write", path);
        let size = store::destination_size(&*source, spec)?;
        // Without safe ranges nothing of the old content may remain.
        let begins = spec.destination_offset.is_none() && spec.completed_ranges.is_empty();
        let flags = match begins {
            true if is_unfinished(path) => OpenFlags::New,
            true => OpenFlags::Replace,
            false => OpenFlags::Write,
        };
        let mut plan = self.lane_plan(path, flags, spec);
        plan.is_marked = plan.most > 1 && size.is_none_or(|size| size > MIN_MARKED);
        let settings = settings_of(spec, self.opener.timeout);
        let (task_spec, task_control) = (spec.clone(), Arc::clone(control));
        let about = operation.clone();
        let work = move |mut lanes: Lanes, server: &str| {
            let job = store::StoreJob {
                server,
                operation: &about,
                source: &*source,
                spec: &task_spec,
                settings: &settings,
                size,
            };
            let report = job.run(&mut lanes, &task_control);
            (report, Some(lanes))
        };
        let syncs = self.sync_policy == SyncPolicy::File;
        let done = self.transfer(operation, plan, control, work, syncs).await?;
        if let Some(size) = size {
            // The last parts are forced to disk when the file is closed.
            add_stored_ranges(&spec.stored_ranges, &spec.completed_ranges.gaps(0, size));
        }
        Ok(done)
    }

    async fn make_dir(&mut self, path: &[u8]) -> Result<bool, Failure> {
        let at = self.path(path);
        let operation = Operation::on_path("make the directory", path);
        self.requests(operation, move |connection| {
            changes::make_dir(connection, &at)
        })
        .await
    }

    async fn remove_entry(&mut self, path: &[u8], kind: RemovedKind) -> Result<(), Failure> {
        let at = self.path(path);
        let operation = Operation::on_path("remove", path);
        self.requests(operation, move |connection| {
            changes::remove(connection, &at, kind)
        })
        .await
    }

    async fn rename(
        &mut self,
        from: &[u8],
        to: &[u8],
        modified: Option<Timestamp>,
    ) -> Result<(), RenameFailure> {
        let (from, to) = (self.path(from), self.path(to));
        let server = self.opener.name.clone();
        let renamed = self.with_connection(move |connection| {
            Ok(changes::rename(connection, &server, &from, &to, modified))
        });
        renamed.await?
    }

    async fn set_metadata(&mut self, changes: &[MetadataChange<'_>]) -> Result<Vec<bool>, Failure> {
        let changes: Vec<_> = changes
            .iter()
            .map(|change| (self.path(change.path), change.kept))
            .collect();
        let operation = Operation::from("set times and permissions");
        self.requests(operation, move |connection| {
            changes::set_metadata(connection, &changes)
        })
        .await
    }

    async fn set_modified(&mut self, path: &[u8], time: Timestamp) -> Result<bool, Failure> {
        let at = self.path(path);
        let operation = Operation::on_path("set the time of", path);
        self.requests(operation, move |connection| {
            changes::set_modified(connection, &at, time)
        })
        .await
    }
}

impl OptionalContracts for SftpStorage {
    fn server_connection(&self) -> Option<&dyn ServerConnection> {
        Some(self)
    }

    fn symbolic_links(&mut self) -> Option<&mut dyn SymbolicLinks> {
        Some(self)
    }

    fn tree_listing(&mut self) -> Option<&mut dyn TreeListing> {
        Some(self)
    }

    fn name_rules(&mut self) -> Option<&mut dyn NameRules> {
        Some(self)
    }

    fn many_paths(&mut self) -> Option<&mut dyn ManyPaths> {
        Some(self)
    }

    fn series(&mut self) -> Option<&mut dyn SeriesTransfers> {
        Some(self)
    }
}

#[async_trait]
impl SeriesTransfers for SftpStorage {
    async fn move_series(
        &mut self,
        series: &FileSeries,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
        report: &mut SeriesReport,
    ) -> Result<(), Failure> {
        let with_paths = |file: &SeriesFile| SeriesFile {
            path: self.path(&file.path),
            partial: self.path(&file.partial),
            ..file.clone()
        };
        let job = SeriesJob {
            server: self.opener.name.clone(),
            files: series.files.iter().map(with_paths).collect(),
            end: series.end.clone(),
            stale: series.stale.iter().map(|path| self.path(path)).collect(),
            syncs: self.sync_policy == SyncPolicy::File,
            // Each file has one of its own.
            settings: TransferSettings {
                checksum: None,
                ..settings_of(spec, self.opener.timeout)
            },
            spec: spec.clone(),
        };
        let (connection, mut guard) = self.take_connection()?;
        let mut canceller = TransferGuard(Some(Arc::clone(control)));
        let task_control = Arc::clone(control);
        tracing::debug!(files = job.files.len(), "a series begins");
        let ended = blocking(move || Ok(job.run(connection, &task_control))).await;
        guard.0.clear();
        canceller.0 = None;
        let ended = ended?;
        self.connection = ended.connection.filter(SftpConnection::is_usable);
        tracing::debug!(
            moved = ended.outcome.moved.len(),
            failed = ended.outcome.failed.len(),
            "a series has ended"
        );
        // Replies belong to their requests by numbers: nothing is to be learned about how far those may go ahead.
        report.lead = series.lead;
        report.moved = ended.outcome.moved;
        report.begun = ended.outcome.begun;
        report.failed = ended.outcome.failed;
        report.attempt = TransferAttempt {
            streams: 1,
            report: ended.result?,
            ..TransferAttempt::default()
        };
        Ok(())
    }
}

impl ServerConnection for SftpStorage {
    /// ssh may have taken any way: the addresses would say nothing about it.
    fn path_ends(&self) -> Option<(IpAddr, IpAddr)> {
        None
    }

    /// Without a connection there is no session.
    fn has_connected(&self) -> bool {
        true
    }

    fn finds_settings(&self) -> bool {
        false
    }
}

#[async_trait]
impl SymbolicLinks for SftpStorage {
    fn tells_links(&self) -> bool {
        false
    }

    fn resolve_path(&self, path: &[u8]) -> Vec<u8> {
        self.path(path)
    }

    async fn make_link(
        &mut self,
        target: &[u8],
        _absolute: &[u8],
        link: &[u8],
    ) -> Result<bool, Failure> {
        let (target, at) = (target.to_vec(), self.path(link));
        let operation = Operation::on_path("make the link", link);
        self.requests(operation, move |connection| {
            changes::make_link(connection, &target, &at)
        })
        .await
    }
}

#[async_trait]
impl TreeListing for SftpStorage {
    async fn list_tree(
        &mut self,
        path: &[u8],
        visit: &mut EntryVisitor<'_>,
    ) -> Result<bool, Failure> {
        let at = self.path(path);
        let operation = Operation::on_path("list", path);
        let (sender, batches) = mpsc::channel(QUEUED_BATCHES);
        let reading = self.requests(operation, move |connection| {
            tree::list_tree(connection, &at, |entries| pass_on(&sender, entries))
        });
        let visiting = visit_batches(batches, |entries| {
            entries.into_iter().try_for_each(&mut *visit)
        });
        let (read, ()) = tokio::join!(reading, visiting);
        read.map(|()| true)
    }
}

#[async_trait]
impl NameRules for SftpStorage {
    fn check_path(&self, path: &[u8]) -> Result<(), Failure> {
        match path.len() + self.home.len() > MAX_PATH || path.contains(&0) {
            true => Err(Failure::usage(format!(
                "{} cannot be asked for such a path in {}",
                self.opener.name,
                proto::printable::printable(directory_of(path))
            ))),
            false => Ok(()),
        }
    }

    async fn refuses_renames(&mut self, _path: &[u8]) -> Result<Option<RenameFailure>, Failure> {
        Ok(None)
    }
}

#[async_trait]
impl ManyPaths for SftpStorage {
    async fn make_dirs(
        &mut self,
        paths: &[&[u8]],
        _may_go_ahead: bool,
    ) -> Result<Vec<bool>, Failure> {
        let paths: Vec<_> = paths.iter().map(|path| self.path(path)).collect();
        let operation = Operation::from("make directories");
        self.requests(operation, move |connection| {
            let requests: Vec<_> = paths
                .iter()
                .map(|path| SftpRequest::MakeDir(path))
                .collect();
            let timeout = connection.timeout();
            let replies = connection.call_all(&requests, timeout)?;
            Ok(replies
                .into_iter()
                .map(|reply| errors::done(reply).is_ok())
                .collect())
        })
        .await
    }
}
