//! Buckets of Amazon S3, and of servers that speak its protocol, as storages.
//!
//! The bytes go over the connections of [`http`](super::http); requests are signed by the crate `rusty-s3`.

mod bucket;
#[cfg(test)]
pub(crate) mod bucket_server;
mod changes;
mod checksums;
mod composite;
mod customer_key;
mod dialect;
mod form_signature;
mod listing;
mod parts;
mod record;
mod requests;
pub(crate) mod served;
pub(crate) mod settings;
mod temporary_keys;
#[cfg(test)]
mod tests;
mod unfinished;
mod upload;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use data::job::TransferControl;
use data::store::{Sink, Source};
use ftp::answers::{
    EntryVisitor, ListingVisitor, MetadataChange, RenameFailure, SourceVersion, SymlinkCheckScope,
    SymlinkCheckedEntry,
};
use ftp::failure::Operation;
use ftp::transfer::{TransferAttempt, TransferSpec};
use ftp::{ConnectionSecurity, Failure, FailureKind};
use proto::checksum::ChecksumAlgorithm;
use proto::listing::{EntryKind, ListedEntry};
use proto::s3::documents::ListingPage;
use proto::s3::parts::PartPlan;
use proto::timestamp::Timestamp;
use tune::sessions::{FileMovement, MAX_SESSIONS};

use self::bucket::S3Bucket;
use self::changes::PlaceInBucket;
use self::dialect::S3Dialect;
use self::listing::{EntryReader, visit_all};
use self::record::{BegunUpload, UploadRecord};
use self::requests::{ObjectFacts, WantedPage, examine, has_objects, head, list_page, region_of};
use self::settings::S3Settings;
use self::temporary_keys::TemporaryKey;
use self::unfinished::{FoundUploads, UploadSelection};
use self::upload::UploadTarget;
use super::capabilities::{AvailableChecksums, Capabilities};
use crate::local::disk::run_blocking;
use crate::storage::contract::{FactsUse, FilePart, RemovedKind, SessionCondition, Storage};
use crate::storage::http::client::{HttpClient, HttpOrigin};
use crate::storage::http::connections::{HttpConnections, RequestedFile};
use crate::storage::http::errors;
use crate::storage::http::expected::ExpectedFetch;
use crate::storage::http::facts::HttpFileFacts;
use crate::storage::http::session::last_name;
use crate::storage::optional::{
    CompositeSum, CompositeSums, LeftPart, NameRules, OptionalContracts, ServerConnection,
    SharedUpload, SharedUploads, TreeListing, UnfinishedUpload, UnfinishedUploads, UploadMark,
    VersionedFiles,
};

/// The end of the names of buckets whose keys are listed in no order (S3 Express One Zone).
const UNORDERED: &str = "--x-s3";

/// A session with a bucket.
#[derive(Debug)]
pub(crate) struct S3Storage {
    name: String,
    settings: S3Settings,
    security: Arc<ConnectionSecurity>,
    bucket: S3Bucket,
    connections: HttpConnections,
    /// The region of the bucket is known.
    is_located: bool,
    /// The key that the source of the settings has given.
    key: Option<TemporaryKey>,
    /// Path and facts of the last object that was examined.
    last_facts: Option<(Vec<u8>, HttpFileFacts)>,
    /// The same of the last object that this session has examined since it changed anything, and perhaps fetched: a fetch is of
    /// this version.
    last_version: Option<(Vec<u8>, ObjectFacts)>,
    next: ExpectedFetch,
}

impl S3Storage {
    /// A session with a bucket; no request is sent yet.
    pub(crate) fn new(
        bucket: &str,
        settings: S3Settings,
        security: &Arc<ConnectionSecurity>,
        timeout: Duration,
    ) -> Self {
        let place = S3Bucket::new(bucket, &settings);
        let origin = origin(&place, &settings, security);
        Self {
            name: format!("s3://{bucket}"),
            // Only Amazon has regions.
            is_located: settings.endpoint.is_some(),
            bucket: place,
            connections: HttpConnections::new(origin, timeout),
            security: Arc::clone(security),
            settings,
            key: None,
            last_facts: None,
            last_version: None,
            next: ExpectedFetch::default(),
        }
    }

    /// Whether the connections of the session are encrypted.
    pub(crate) fn is_protected(&self) -> bool {
        self.bucket.server.secure
    }

    /// Gets a key if there is none that lasts, and finds the region of the bucket, once: requests are signed for it.
    async fn get_ready(&mut self) -> Result<(), Failure> {
        if let Some(source) = &self.settings.key_source
            && !self.key.as_ref().is_some_and(TemporaryKey::is_fresh)
        {
            let (source, security) = (source.clone(), Arc::clone(&self.security));
            let key = run_blocking(move || source.key(&security)).await?;
            self.settings.credentials = Some(key.credentials.clone());
            self.key = Some(key);
            let origin = origin(&self.bucket, &self.settings, &self.security);
            self.connections.set_origin(origin);
        }
        if self.is_located {
            return Ok(());
        }
        let (bucket, action) = (self.bucket.clone(), Operation::on("find", &self.name));
        let found = self
            .connections
            .blocking(move |client| region_of(client, &bucket, &action));
        if let Some(region) = found.await?
            && region != self.settings.region
        {
            self.settings.region = region;
            self.bucket = S3Bucket::new(&self.bucket.name, &self.settings);
            let origin = origin(&self.bucket, &self.settings, &self.security);
            self.connections.set_origin(origin);
        }
        self.is_located = true;
        Ok(())
    }

    async fn blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut HttpClient) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        self.get_ready().await?;
        self.connections.blocking(work).await
    }

    fn place(&self, path: &[u8]) -> Result<PlaceInBucket, Failure> {
        let path = path.strip_suffix(b"/").unwrap_or(path);
        Ok(PlaceInBucket {
            key: self.bucket.key(path)?,
            prefix: self.bucket.prefix(path)?,
            bucket: self.bucket.clone(),
        })
    }

    /// The facts of an object.
    async fn object(&mut self, path: &[u8]) -> Result<ObjectFacts, Failure> {
        self.next.drop_begun();
        self.get_ready().await?;
        let (bucket, key) = (self.bucket.clone(), self.bucket.key(path)?);
        let action = bucket.operation("read", path);
        let found = self
            .blocking(move |client| head(client, &bucket, &key, &action))
            .await?;
        self.remember(path, &found);
        Ok(found)
    }

    /// Forgets what the session knows of objects, which it is about to change.
    fn forget(&mut self) {
        self.last_facts = None;
        self.last_version = None;
        self.next.drop_begun();
    }

    fn remember(&mut self, path: &[u8], found: &ObjectFacts) {
        let facts = (path.to_vec(), found.file.clone());
        self.last_facts = found.archive.is_none().then_some(facts);
        self.last_version = Some((path.to_vec(), found.clone()));
    }

    /// The facts of an object. If it is small, and fetched next, one request asks for its bytes as well.
    async fn object_to_fetch(
        &mut self,
        path: &[u8],
        is_expected: bool,
    ) -> Result<ObjectFacts, Failure> {
        if !is_expected {
            return self.object(path).await;
        }
        self.get_ready().await?;
        let (bucket, key) = (self.bucket.clone(), self.bucket.key(path)?);
        let action = bucket.operation("read", path);
        let got = self
            .blocking(move |client| examine(client, "GET", &bucket, &key, &action))
            .await;
        match got {
            // Without a length it is not known whether it is the object that was listed.
            Ok((found, response)) if response.status() == 200 && found.file.size.is_some() => {
                self.remember(path, &found);
                self.next.begin(path, response);
                Ok(found)
            }
            // The bytes may be refused where the facts are not, as of an archived object.
            Err(failure) if failure.kind() != FailureKind::Refused => Err(failure),
            _ => self.object(path).await,
        }
    }

    /// The facts of an object that is to be read.
    ///
    /// # Errors
    /// As [`Storage::facts`]; `Refused` if it must be restored from an archive first.
    async fn readable(&mut self, path: &[u8]) -> Result<HttpFileFacts, Failure> {
        if let Some((at, facts)) = &self.last_facts
            && at == path
        {
            return Ok(facts.clone());
        }
        let found = self.object(path).await?;
        match &found.archive {
            None => Ok(found.file),
            Some(class) => Err(self.archived(path, class)),
        }
    }

    /// The facts of the version that was fetched or stored last, if it is this object; otherwise those that it has now. They
    /// are used once: later ones may be others.
    async fn known_version(&mut self, path: &[u8]) -> Result<ObjectFacts, Failure> {
        let known = self.last_version.take().filter(|(at, known)| {
            // Fetches without a tag may be of another version.
            at == path && known.file.strong_etag().is_some()
        });
        match known {
            Some((_, found)) => Ok(found),
            None => self.object(path).await,
        }
    }

    fn archived(&self, path: &[u8], class: &str) -> Failure {
        let action = self.bucket.operation("read", path);
        let class = proto::printable::printable(class.as_bytes());
        action
            .failed(
                FailureKind::Refused,
                format_args!("it is in the archive {class}, and no copy of it is restored"),
            )
            .advise("restore it first (aws s3api restore-object), and wait until that is done")
    }

    /// Whether a path is a directory.
    async fn is_directory(&mut self, path: &[u8]) -> Result<bool, Failure> {
        self.get_ready().await?;
        let (bucket, prefix) = (self.bucket.clone(), self.bucket.prefix(path)?);
        let action = bucket.operation("read", path);
        let found = self.blocking(move |client| {
            // A bucket is one, though it may be empty.
            if prefix.is_empty() {
                let wanted = WantedPage {
                    most: 1,
                    ..WantedPage::default()
                };
                return list_page(client, &bucket, &wanted, &action).map(|_| true);
            }
            has_objects(client, &bucket, &prefix, &action)
        });
        found.await
    }

    /// Reads the pages of a listing; `visit` gets each and returns whether it wants more.
    async fn pages(
        &mut self,
        path: &[u8],
        is_grouped: bool,
        visit: &mut (dyn FnMut(&ListingPage) -> bool + Send),
    ) -> Result<bool, Failure> {
        self.get_ready().await?;
        let mut wanted = WantedPage {
            prefix: self.bucket.prefix(path)?,
            is_grouped,
            ..WantedPage::default()
        };
        loop {
            let (bucket, page) = (self.bucket.clone(), wanted.clone());
            let action = bucket.operation("list", path);
            let page = self
                .blocking(move |client| list_page(client, &bucket, &page, &action))
                .await?;
            if !visit(&page) {
                return Ok(false);
            }
            match page.next {
                None => return Ok(true),
                token => wanted.token = token,
            }
        }
    }

    fn upload_target(&self, path: &[u8]) -> Result<UploadTarget, Failure> {
        let key = self.bucket.key(path)?;
        let url = self.bucket.object_url(&key, &[]);
        Ok(UploadTarget {
            action: self.bucket.operation("write", path),
            headers: self.settings.encryption_headers(),
            sends_checksums: self.settings.sends_checksums,
            record: UploadRecord::of(&url.uri()),
            bucket: self.bucket.clone(),
            key,
        })
    }

    /// Tells the user of uploads with which nobody here goes on.
    fn tell_of_unfinished(&self, path: &[u8]) {
        let url = self.bucket.shown(path);
        self.security.warn_once(&format!(
            "{url} has unfinished uploads, whose parts cost storage: `longhaul doctor {url}` shows them, `longhaul rm \
             --unfinished {url}` removes those that nothing was added to for a day"
        ));
    }
}

fn origin(
    bucket: &S3Bucket,
    settings: &S3Settings,
    security: &Arc<ConnectionSecurity>,
) -> HttpOrigin {
    let dialect = S3Dialect::new(bucket, settings);
    HttpOrigin::with_dialect(bucket.server.clone(), Arc::new(dialect), security)
}

#[async_trait]
impl Storage for S3Storage {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ranges: true,
            several_sessions: false,
            connects_here: true,
            partial_writes: false,
            resumes_uploads: true,
            stores_whole: true,
            takes_any_name: true,
            parallel: true,
            stores_any_order: true,
            sends_markers: true,
            adapts_streams: false,
            is_carried: false,
            checksums_while_storing: false,
            checksums_while_sending: false,
            sets_time: false,
            third_party: None,
            bundles: false,
            small_files: Some(FileMovement::Requests { most: MAX_SESSIONS }),
            max_queries: 1,
            is_local: false,
            length_shows_content: false,
            rtt: self.connections.rtt,
        }
    }

    fn condition(&self) -> SessionCondition {
        self.connections.condition()
    }

    async fn facts(&mut self, path: &[u8], purpose: FactsUse) -> Result<ListedEntry, Failure> {
        let name = last_name(path).to_vec();
        let is_object_path = !matches!(path, b"" | b"/") && !path.ends_with(b"/");
        let missing = match is_object_path {
            false => None,
            true => match self.object(path).await {
                Ok(found) => {
                    let archive = found.archive.filter(|_| purpose == FactsUse::Reading);
                    return match archive {
                        Some(class) => Err(self.archived(path, &class)),
                        None => Ok(found.file.entry(&name, EntryKind::File)),
                    };
                }
                Err(missing) if missing.is_missing() => Some(missing),
                Err(failure) => return Err(failure),
            },
        };
        match self.is_directory(path).await? {
            true => Ok(ListedEntry::new(&name, EntryKind::Dir)),
            false => Err(missing.unwrap_or_else(|| {
                let action = self.bucket.operation("read", path);
                action.failed(FailureKind::NotFound, "the bucket has no such directory")
            })),
        }
    }

    async fn list(
        &mut self,
        path: &[u8],
        _scope: SymlinkCheckScope,
        visit: &mut ListingVisitor<'_>,
    ) -> Result<(), Failure> {
        let mut reader = EntryReader::new(&self.bucket.prefix(path)?);
        let mut visit_page = |page: &ListingPage| {
            let entries = reader.entries(page);
            visit_all(entries.into_iter().map(SymlinkCheckedEntry::certain), visit)
        };
        if !self.pages(path, true, &mut visit_page).await? {
            return Ok(());
        }
        if !reader.is_there && !matches!(path, b"" | b"/") {
            // An object is listed as itself.
            let entry = self
                .object(path.strip_suffix(b"/").unwrap_or(path))
                .await?
                .file;
            let entry = entry.entry(last_name(path), EntryKind::File);
            let _ = visit(SymlinkCheckedEntry::certain(entry));
            return Ok(());
        }
        match reader.finish() {
            Some(reason) => Err(reason.failure(&self.name, path)),
            None => Ok(()),
        }
    }

    fn expect_fetch(&mut self, path: &[u8], size: u64) {
        if self.next.expect(path, size) {
            self.last_facts = None;
        }
    }

    async fn available_checksums(&mut self, path: &[u8]) -> Result<AvailableChecksums, Failure> {
        let is_expected = self.next.take_expected(path);
        // Those of an object in an archive are known, too.
        let known = self.last_facts.clone().filter(|(at, _)| at == path);
        let facts = match known {
            Some((_, facts)) => facts,
            None => self.object_to_fetch(path, is_expected).await?.file,
        };
        Ok(AvailableChecksums {
            ranges: Vec::new(),
            whole_files: facts.checksums.iter().map(|(known, _)| *known).collect(),
        })
    }

    async fn checksums(
        &mut self,
        algorithm: ChecksumAlgorithm,
        parts: &[FilePart],
        path: &[u8],
    ) -> Result<Vec<String>, Failure> {
        let facts = self.known_version(path).await?.file;
        let sum_of = |part| facts.checksum_of(algorithm, part, &self.name);
        parts.iter().map(sum_of).collect()
    }

    async fn fetch(
        &mut self,
        path: &[u8],
        sink: Arc<dyn Sink>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, Failure> {
        let facts = self.readable(path).await?;
        // All requests of this transfer must be for these facts. The next object is examined again.
        self.last_facts = None;
        let begun = self.next.take_begun(path);
        let action = self.bucket.operation("read", path);
        if let (None, Some(announced), Some(size)) = (spec.part, spec.size, facts.size)
            && announced != size
        {
            return Err(errors::changed(&action));
        }
        let wanted = RequestedFile {
            requested_url: facts.url.clone(),
            facts,
            action,
            is_object: true,
            begun,
        };
        self.connections.fetch(wanted, sink, spec, control).await
    }

    async fn store(
        &mut self,
        source: Arc<dyn Source>,
        path: &[u8],
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, Failure> {
        self.get_ready().await?;
        self.forget();
        let target = self.upload_target(path)?;
        if let Some(found) = target.record.load().filter(|begun| begun.is_found) {
            match spec.completed_ranges.is_empty() {
                // It has the parts of another file.
                true => {
                    target.record.forget();
                    self.tell_of_unfinished(path);
                }
                false => {
                    target.record.save(&BegunUpload {
                        is_found: false,
                        ..found
                    });
                }
            }
        }
        let (task_control, mut task_spec) = (Arc::clone(control), spec.clone());
        if source.len().is_ok_and(|length| length.is_none()) {
            // One part is read while another is sent.
            task_spec.streams = task_spec.streams.max(2);
        }
        let spec = task_spec.clone();
        self.connections
            .transfer_over_several(&spec, control, move |clients, settings| {
                upload::store(
                    clients,
                    &target,
                    &*source,
                    &task_spec,
                    settings,
                    &task_control,
                )
            })
            .await
    }

    async fn make_dir(&mut self, path: &[u8]) -> Result<bool, Failure> {
        self.get_ready().await?;
        if matches!(path, b"" | b"/") {
            // Buckets are made by their owners.
            return self.is_directory(path).await.map(|_| false);
        }
        let (at, action) = (self.place(path)?, self.bucket.operation("make", path));
        self.blocking(move |client| changes::make_directory(client, &at, &action))
            .await
    }

    async fn remove_entry(&mut self, path: &[u8], kind: RemovedKind) -> Result<(), Failure> {
        self.get_ready().await?;
        self.forget();
        let (at, action) = (self.place(path)?, self.bucket.operation("remove", path));
        let target = self.upload_target(path)?;
        let removed = self.blocking(move |client| {
            // The parts that an earlier copy has left of it go, too.
            if kind != RemovedKind::EmptyDirectory {
                upload::abandon(client, &target)?;
            }
            let wanted = UploadSelection::At(at.key.clone());
            changes::remove(client, &at, kind, &action)?;
            // Whoever may not ask is not told.
            Ok(kind == RemovedKind::Tree
                && unfinished::has_some(client, &at.bucket, &wanted, &action).unwrap_or(false))
        });
        if removed.await? {
            self.tell_of_unfinished(path);
        }
        Ok(())
    }

    async fn rename(
        &mut self,
        from: &[u8],
        to: &[u8],
        _modified: Option<Timestamp>,
    ) -> Result<(), RenameFailure> {
        self.get_ready().await?;
        self.forget();
        let (source, new_name) = (self.place(from)?, self.place(to)?);
        let action = self
            .bucket
            .operation("rename", from)
            .to(self.bucket.shown(to));
        let headers = self.settings.encryption_headers();
        let renamed = self.blocking(move |client| {
            Ok(changes::rename(
                client, &source, &new_name, &headers, &action,
            ))
        });
        renamed.await?
    }

    async fn set_metadata(&mut self, changes: &[MetadataChange<'_>]) -> Result<Vec<bool>, Failure> {
        Ok(vec![false; changes.len()])
    }

    async fn set_modified(&mut self, _path: &[u8], _time: Timestamp) -> Result<bool, Failure> {
        Ok(false)
    }
}

impl OptionalContracts for S3Storage {
    fn server_connection(&self) -> Option<&dyn ServerConnection> {
        Some(self)
    }

    fn tree_listing(&mut self) -> Option<&mut dyn TreeListing> {
        Some(self)
    }

    fn versioned_files(&mut self) -> Option<&mut dyn VersionedFiles> {
        Some(self)
    }

    fn name_rules(&mut self) -> Option<&mut dyn NameRules> {
        Some(self)
    }

    fn unfinished_uploads(&mut self) -> Option<&mut dyn UnfinishedUploads> {
        Some(self)
    }

    fn shared_uploads(&mut self) -> Option<&mut dyn SharedUploads> {
        Some(self)
    }

    fn composite_sums(&mut self) -> Option<&mut dyn CompositeSums> {
        Some(self)
    }
}

impl ServerConnection for S3Storage {
    fn path_ends(&self) -> Option<(IpAddr, IpAddr)> {
        self.connections.path_ends
    }

    fn finds_settings(&self) -> bool {
        false
    }
}

#[async_trait]
impl TreeListing for S3Storage {
    async fn list_tree(
        &mut self,
        path: &[u8],
        visit: &mut EntryVisitor<'_>,
    ) -> Result<bool, Failure> {
        if self.bucket.name.ends_with(UNORDERED) {
            return Ok(false);
        }
        let mut reader = EntryReader::new(&self.bucket.prefix(path)?);
        let mut visit_page = |page: &ListingPage| visit_all(reader.tree_entries(page), visit);
        if !self.pages(path, false, &mut visit_page).await? {
            return Ok(true);
        }
        if !reader.is_there && !matches!(path, b"" | b"/") {
            let action = self.bucket.operation("list", path);
            return Err(action.failed(FailureKind::NotFound, "the bucket has no such directory"));
        }
        match reader.finish() {
            Some(reason) => Err(reason.failure(&self.name, path)),
            None => Ok(true),
        }
    }
}

#[async_trait]
impl VersionedFiles for S3Storage {
    async fn version(&mut self, path: &[u8]) -> Result<SourceVersion, Failure> {
        let facts = self.readable(path).await?;
        Ok(match facts.strong_etag() {
            Some(etag) => SourceVersion::Tag(etag.to_owned()),
            None => SourceVersion::Unknown,
        })
    }
}

#[async_trait]
impl NameRules for S3Storage {
    fn check_path(&self, path: &[u8]) -> Result<(), Failure> {
        self.bucket.key(path).map(|_| ())
    }

    async fn refuses_renames(&mut self, _path: &[u8]) -> Result<Option<RenameFailure>, Failure> {
        // Nothing needs a rename to get its name.
        Ok(None)
    }
}

#[async_trait]
impl CompositeSums for S3Storage {
    async fn composite_sum(&mut self, path: &[u8]) -> Result<Option<CompositeSum>, Failure> {
        let found = self.known_version(path).await?;
        let (size, stored) = (found.file.size, found.composite);
        let (Some(stored), Some(size)) = (stored, size) else {
            return Ok(None);
        };
        let (bucket, key) = (self.bucket.clone(), self.bucket.key(path)?);
        let action = bucket.operation("read", path);
        // Most uploads have parts of one size, and a value that is not certain proves nothing if it differs.
        let count = (stored.parts, stored.algorithm != ChecksumAlgorithm::Md5);
        let parts = self.blocking(move |client| {
            composite::part_ranges(client, &bucket, &key, count, size, &action)
        });
        let Some(parts) = parts.await? else {
            self.security.warn_once(&format!(
                "{}: objects have checksums of their parts, whose lengths the server does not tell: these are not compared",
                self.name
            ));
            return Ok(None);
        };
        Ok(Some(CompositeSum {
            algorithm: stored.algorithm,
            parts,
            sum: stored.sum,
            is_certain: stored.is_certain,
        }))
    }
}

#[async_trait]
impl SharedUploads for S3Storage {
    fn takes_parts(&self) -> bool {
        true
    }

    async fn share_upload(
        &mut self,
        _source: &Arc<dyn Source>,
        path: &[u8],
        (spec, size): (&TransferSpec, u64),
        _control: &Arc<TransferControl>,
    ) -> Result<Option<SharedUpload>, Failure> {
        let (target, completed) = (self.upload_target(path)?, spec.completed_ranges.clone());
        self.blocking(move |client| upload::share(client, &target, size, &completed))
            .await
    }

    async fn give_up_shared(
        &mut self,
        path: &[u8],
        upload: &SharedUpload,
        failure: Failure,
    ) -> Failure {
        let target = match self.upload_target(path) {
            Ok(target) => target,
            Err(_) => return failure,
        };
        let (id, told) = (upload.id.clone(), failure.clone());
        let given_up = self.blocking(move |client| Ok(upload::give_up(client, &target, &id, told)));
        given_up.await.unwrap_or(failure)
    }

    async fn store_parts(
        &mut self,
        source: Arc<dyn Source>,
        path: &[u8],
        upload: &SharedUpload,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, Failure> {
        self.get_ready().await?;
        let (target, upload) = (self.upload_target(path)?, upload.clone());
        let (task_control, task_spec) = (Arc::clone(control), spec.clone());
        self.connections
            .transfer_over_several(spec, control, move |clients, settings| {
                let source = &*source;
                upload::store_shared(
                    (clients, &upload),
                    &target,
                    source,
                    &task_spec,
                    settings,
                    &task_control,
                )
            })
            .await
    }
}

#[async_trait]
impl UnfinishedUploads for S3Storage {
    async fn left_parts(&mut self, path: &[u8], size: u64) -> Result<Vec<LeftPart>, Failure> {
        self.get_ready().await?;
        let target = self.upload_target(path)?;
        let is_in_parts = PartPlan::for_object(size, 1).is_some_and(|plan| plan.count() > 1);
        if is_in_parts && target.record.load().is_none() {
            let asked = target.clone();
            // Nobody can tell how the objects of others' uploads will be encrypted.
            let is_plain =
                self.settings.encryption.is_none() && self.settings.customer_key.is_none();
            let found =
                self.blocking(move |client| unfinished::find_left(client, &asked, size, is_plain));
            // Whoever may not ask stores the whole file.
            let FoundUploads { left, others } = found.await.unwrap_or_default();
            if others > 0 {
                self.tell_of_unfinished(path);
            }
            if let Some(left) = left {
                target.record.save(&left);
            }
        }
        self.blocking(move |client| upload::left_parts(client, &target, size))
            .await
    }

    async fn unfinished(
        &mut self,
        path: &[u8],
        after: Option<UploadMark>,
    ) -> Result<(Vec<UnfinishedUpload>, Option<UploadMark>), Failure> {
        self.get_ready().await?;
        let wanted = match path {
            b"" | b"/" => UploadSelection::Below(String::new()),
            path if path.ends_with(b"/") => UploadSelection::Below(self.bucket.prefix(path)?),
            path => UploadSelection::At(self.bucket.key(path)?),
        };
        let bucket = self.bucket.clone();
        let action = bucket.operation("list the unfinished uploads of", path);
        self.blocking(move |client| {
            unfinished::unfinished(client, &bucket, &wanted, after.as_ref(), &action)
        })
        .await
    }

    async fn abort_upload(&mut self, upload: &UnfinishedUpload) -> Result<(), Failure> {
        self.get_ready().await?;
        let (bucket, key) = (self.bucket.clone(), self.bucket.key(&upload.path)?);
        let action = bucket.operation("remove the unfinished upload of", &upload.path);
        let id = upload.id.clone();
        self.blocking(move |client| unfinished::abort(client, &bucket, &key, &id, &action))
            .await
    }
}
