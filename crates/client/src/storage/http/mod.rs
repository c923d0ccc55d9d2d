//! HTTP servers as storages: files by ranges (RFC 9110), and what WebDAV adds (RFC 4918).
//!
//! A request blocks its thread, never the runtime. Dropping a future ends the waits of its thread.

mod agent;
mod client;
mod dialogue;
mod errors;
mod facts;
mod lookup;
mod ranges;
mod request;
mod response;
#[cfg(test)]
mod scripted;
#[cfg(test)]
mod tests;
mod upload;
#[cfg(test)]
pub(crate) mod webdav;

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use data::dialer::Dialer;
use data::job::{TransferControl, TransferReport, TransferSettings};
use data::store::{Sink, Source};
use proto::checksum::ChecksumAlgorithm;
use proto::http::multistatus;
use proto::http::url::HttpUrl;
use proto::listing::{EntryKind, ListedEntry};
use proto::timestamp::Timestamp;

use super::capabilities::{AvailableChecksums, Capabilities};
use super::contract::Storage;
use crate::answers::{
    ListingVisitor, RefusedRenameStep, RenameFailure, SymlinkCheckScope, SymlinkCheckedEntry,
};
use crate::credentials::Credential;
use crate::transfer::{TransferAttempt, TransferSpec};
use crate::{ConnectionSecurity, CopyFailure, Exit};
use client::{HttpClient, HttpOrigin};
use facts::HttpFileFacts;
use lookup::{propfind, stat_resource};
use ranges::{HttpFile, receive_file};
use request::{HttpRequest, HttpRequestBody};

/// Most idle connections that are kept for the next file.
const MAX_IDLE_CLIENTS: usize = 64;

/// A session with an HTTP server.
#[derive(Debug)]
pub(crate) struct HttpStorage {
    name: String,
    origin: HttpOrigin,
    settings: TransferSettings,
    /// `None` while a request runs.
    client: Option<HttpClient>,
    /// Clients from the streams of earlier files.
    idle_clients: Vec<HttpClient>,
    /// Path and facts of the last file that was examined.
    last_facts: Option<(Vec<u8>, HttpFileFacts)>,
    /// Round-trip time of the last connection.
    rtt: Duration,
    /// Addresses of this machine and of the server, or its proxy, of the last connection.
    path_ends: Option<(IpAddr, IpAddr)>,
}

impl HttpStorage {
    /// A session with a server; no request is sent yet. `target` is any URL of the server, with the
    /// query that goes with every request.
    ///
    /// # Errors
    /// `Usage`: the credential cannot be expressed in HTTP.
    pub(crate) fn new(
        target: &HttpUrl,
        credential: &Credential,
        security: &Arc<ConnectionSecurity>,
        timeout: Duration,
    ) -> Result<Self, CopyFailure> {
        let mut settings = TransferSettings {
            connect_timeout: timeout,
            ..TransferSettings::default()
        };
        settings.options.stall = timeout;
        Ok(Self {
            name: target.authority(),
            origin: HttpOrigin::new(target.with_path(b"/"), credential, security)?,
            settings,
            client: None,
            idle_clients: Vec::new(),
            last_facts: None,
            rtt: Duration::ZERO,
            path_ends: None,
        })
    }

    fn url_for(&self, path: &[u8]) -> HttpUrl {
        self.origin.root_url.with_path(path)
    }

    /// The URL of a path as a directory, with a trailing slash.
    fn directory_url(&self, path: &[u8]) -> HttpUrl {
        match path.last() {
            Some(b'/') => self.url_for(path),
            _ => self.url_for(&[path, b"/"].concat()),
        }
    }

    /// Runs requests on a thread for blocking calls.
    async fn blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut HttpClient) -> Result<T, CopyFailure> + Send + 'static,
    ) -> Result<T, CopyFailure> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => HttpClient::new(&self.origin, &self.settings)?,
        };
        // The thread cannot be cancelled, but its socket waits can be ended.
        let mut guard = StopDialerOnDrop(Some(Arc::clone(&client.dialer)));
        let result = tokio::task::spawn_blocking(move || {
            let result = work(&mut client);
            (client, result)
        });
        let (client, result) = result
            .await
            .map_err(|e| CopyFailure::new(Exit::Local, e.to_string()))?;
        guard.0 = None;
        self.rtt = client.dialer.rtt().unwrap_or(self.rtt);
        self.path_ends = client.dialer.path_ends().or(self.path_ends);
        self.client = Some(client);
        result
    }

    /// Sends one request without a body, which must succeed.
    async fn send_command(
        &mut self,
        method: &'static str,
        target: HttpUrl,
        headers: Vec<(&'static str, String)>,
        verb: &str,
    ) -> Result<u16, (u16, CopyFailure)> {
        let action = format!("{verb} {target}");
        self.last_facts = None;
        let result = self.blocking(move |client| {
            let request = HttpRequest {
                method,
                url: &target,
                headers: &headers,
                action: &action,
            };
            let response = client.send(&request, HttpRequestBody::Empty)?;
            let status = response.status();
            let failure = errors::status_failure(&action, &response);
            response.discard_body();
            Ok(match status {
                200 | 201 | 204 => Ok(status),
                _ => Err((status, failure)),
            })
        });
        result.await.map_err(|failure| (0, failure))?
    }

    /// Facts of a file or directory.
    async fn stat_path(&mut self, path: &[u8]) -> Result<(HttpFileFacts, EntryKind), CopyFailure> {
        let url = self.url_for(path);
        let directory = self.directory_url(path);
        let (facts, kind) = self
            .blocking(move |client| stat_resource(client, &url, &directory))
            .await?;
        self.last_facts = (kind == EntryKind::File).then(|| (path.to_vec(), facts.clone()));
        Ok((facts, kind))
    }

    /// Facts of a file: the last ones if they are of the same path, otherwise current ones.
    async fn file_facts(&mut self, path: &[u8]) -> Result<HttpFileFacts, CopyFailure> {
        if let Some((at, facts)) = &self.last_facts
            && at == path
        {
            return Ok(facts.clone());
        }
        match self.stat_path(path).await? {
            (facts, EntryKind::File) => Ok(facts),
            _ => Err(CopyFailure::new(
                Exit::Usage,
                format!("{} is a directory", self.url_for(path)),
            )),
        }
    }
}

/// Ends the waits of a request when its future is dropped.
struct StopDialerOnDrop(Option<Arc<Dialer>>);

impl Drop for StopDialerOnDrop {
    fn drop(&mut self) {
        if let Some(dialer) = &self.0 {
            dialer.stop();
        }
    }
}

/// Cancels a transfer when its future is dropped.
struct StopTransferOnDrop(Option<Arc<TransferControl>>);

impl Drop for StopTransferOnDrop {
    fn drop(&mut self) {
        if let Some(control) = &self.0 {
            control.cancel();
        }
    }
}

fn last_name(path: &[u8]) -> &[u8] {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    path.rsplit(|b| *b == b'/').next().unwrap_or_default()
}

/// The settings of a transfer.
fn transfer_settings(spec: &TransferSpec, connect: Duration) -> TransferSettings {
    TransferSettings {
        options: spec.options.clone(),
        streams: usize::try_from(spec.streams.max(1)).unwrap_or(1),
        checksum: spec.checksum.filter(|_| spec.completed_ranges.is_empty()),
        connect_timeout: connect,
        ..TransferSettings::default()
    }
}

fn attempt_of(report: TransferReport, spec: &TransferSpec) -> TransferAttempt {
    TransferAttempt {
        streams: report.evidence.streams.max(1),
        buffers: spec.options.buffers,
        report,
        ..TransferAttempt::default()
    }
}

#[async_trait]
impl Storage for HttpStorage {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ranges: true,
            several_sessions: false,
            connects_here: true,
            partial_writes: false,
            resumes_uploads: false,
            parallel: true,
            stores_any_order: true,
            sends_markers: false,
            adapts_streams: false,
            checksums_while_storing: false,
            checksums_while_sending: false,
            sets_time: false,
            third_party: None,
            bundles: false,
            series: false,
            max_queries: 1,
            is_local: false,
            rtt: self.rtt,
        }
    }

    fn path_ends(&self) -> Option<(IpAddr, IpAddr)> {
        self.path_ends
    }

    fn finds_settings(&self) -> bool {
        false
    }

    async fn stat(&mut self, path: &[u8]) -> Result<ListedEntry, CopyFailure> {
        let (facts, kind) = self.stat_path(path).await?;
        Ok(facts.entry(last_name(path), kind))
    }

    async fn list(
        &mut self,
        path: &[u8],
        _scope: SymlinkCheckScope,
        visit: &mut ListingVisitor<'_>,
    ) -> Result<(), CopyFailure> {
        let target = self.directory_url(path);
        let own_url = self.url_for(path.strip_suffix(b"/").unwrap_or(path));
        let mut parts = own_url.segments();
        parts.retain(|part| !part.is_empty());
        let resources = self
            .blocking(move |client| propfind(client, &target, "1"))
            .await?;
        let (collection, entries) = multistatus::directory_entries(&resources, &parts);
        // A server lists a file as itself.
        let is_file = collection
            .as_ref()
            .is_some_and(|entry| entry.kind == EntryKind::File);
        let entries = match is_file {
            true => collection.into_iter().collect(),
            false => entries,
        };
        let mut marked = entries.into_iter().map(SymlinkCheckedEntry::certain);
        let _ = marked.try_for_each(visit);
        Ok(())
    }

    async fn available_checksums(
        &mut self,
        path: &[u8],
    ) -> Result<AvailableChecksums, CopyFailure> {
        let facts = self.file_facts(path).await?;
        Ok(AvailableChecksums {
            ranges: Vec::new(),
            whole_files: facts
                .checksums
                .iter()
                .map(|(algorithm, _)| *algorithm)
                .collect(),
        })
    }

    async fn checksum(
        &mut self,
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        path: &[u8],
    ) -> Result<String, CopyFailure> {
        // Requested again, because the file may have changed since.
        let (facts, _) = self.stat_path(path).await?;
        let is_whole = offset == 0 && (length.is_none() || length == facts.size);
        let entry = facts
            .checksums
            .iter()
            .find(|(known, _)| *known == algorithm);
        match entry.filter(|_| is_whole) {
            Some((_, checksum)) => Ok(checksum.clone()),
            None => Err(CopyFailure::new(
                Exit::Protocol,
                format!(
                    "{} does not provide {} for this file; name an algorithm that it provides (cksum -a, cp --verify), or \
                     use cp --verify none",
                    self.name,
                    algorithm.name()
                ),
            )),
        }
    }

    async fn fetch(
        &mut self,
        path: &[u8],
        sink: Arc<dyn Sink>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, CopyFailure> {
        let facts = self.file_facts(path).await?;
        // All requests of this transfer must be for these facts. The next file is examined again.
        self.last_facts = None;
        let requested_url = self.url_for(path);
        let action = format!("read {requested_url}");
        if let (None, Some(announced), Some(size)) = (spec.part, spec.size, facts.size)
            && announced != size
        {
            let message =
                format!("cannot {action}: the file changed while it was copied; start over");
            return Err(CopyFailure::new(Exit::Integrity, message));
        }
        let settings = transfer_settings(spec, self.settings.connect_timeout);
        let mut idle_clients = std::mem::take(&mut self.idle_clients);
        idle_clients.extend(self.client.take());
        let file = HttpFile {
            origin: self.origin.clone(),
            settings: settings.clone(),
            requested_url,
            single_reader: !facts.accepts_ranges,
            facts,
            action,
            idle_clients: Mutex::new(idle_clients),
            ignores_ranges: AtomicBool::new(false),
        };
        let mut guard = StopTransferOnDrop(Some(Arc::clone(control)));
        let (task_control, task_spec) = (Arc::clone(control), spec.clone());
        let result = tokio::task::spawn_blocking(move || {
            receive_file(file, &sink, &task_spec, &settings, &task_control)
        });
        let (file, result) = result
            .await
            .map_err(|e| CopyFailure::new(Exit::Local, e.to_string()))?;
        guard.0 = None;
        let idle_clients = file.idle_clients.into_inner();
        self.idle_clients = idle_clients.unwrap_or_else(std::sync::PoisonError::into_inner);
        self.idle_clients.truncate(MAX_IDLE_CLIENTS);
        self.client = self.idle_clients.pop();
        result.map(|report| attempt_of(report, spec))
    }

    async fn store(
        &mut self,
        source: Arc<dyn Source>,
        path: &[u8],
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, CopyFailure> {
        let target = self.url_for(path);
        let settings = transfer_settings(spec, self.settings.connect_timeout);
        let (task_control, task_spec) = (Arc::clone(control), spec.clone());
        self.last_facts = None;
        let mut guard = StopTransferOnDrop(Some(Arc::clone(control)));
        let report = self
            .blocking(move |client| {
                upload::put(
                    client,
                    &target,
                    &*source,
                    &task_spec,
                    &settings,
                    &task_control,
                )
            })
            .await;
        guard.0 = None;
        report.map(|report| attempt_of(report, spec))
    }

    async fn make_dir(&mut self, path: &[u8]) -> Result<bool, CopyFailure> {
        let target = self.directory_url(path);
        match self.send_command("MKCOL", target, Vec::new(), "make").await {
            Ok(_) => Ok(true),
            // RFC 4918 section 9.3.1: MKCOL on an existing resource. A server without WebDAV sends
            // the same status.
            Err((405, failure)) => match self.stat_path(path).await {
                Ok((_, EntryKind::Dir)) => Ok(false),
                _ => Err(failure),
            },
            Err((_, failure)) => Err(failure),
        }
    }

    async fn remove(&mut self, path: &[u8]) -> Result<(), CopyFailure> {
        let target = self.url_for(path);
        let result = self
            .send_command("DELETE", target, Vec::new(), "remove")
            .await;
        result.map(|_| ()).map_err(|(_, failure)| failure)
    }

    async fn remove_tree(&mut self, path: &[u8]) -> Result<(), CopyFailure> {
        let target = match self.stat_path(path).await? {
            (_, EntryKind::Dir) => self.directory_url(path),
            _ => self.url_for(path),
        };
        let result = self
            .send_command("DELETE", target, Vec::new(), "remove")
            .await;
        result.map(|_| ()).map_err(|(_, failure)| failure)
    }

    async fn rename(
        &mut self,
        from: &[u8],
        to: &[u8],
        _modified: Option<Timestamp>,
    ) -> Result<(), RenameFailure> {
        let (target, new_url) = (self.url_for(from), self.url_for(to));
        let headers = vec![
            ("destination", new_url.uri()),
            ("overwrite", "T".to_owned()),
        ];
        let verb = format!("rename to {new_url}:");
        let result = self.send_command("MOVE", target, headers, &verb).await;
        result
            .map(|_| ())
            .map_err(|(status, failure)| RenameFailure {
                failure,
                refused_step: match status {
                    412 => RefusedRenameStep::NewNameMayExist,
                    409 | 507 => RefusedRenameStep::RntoRefused,
                    _ => RefusedRenameStep::RnfrRefused,
                },
            })
    }

    async fn set_modified(&mut self, _path: &[u8], _time: Timestamp) -> Result<bool, CopyFailure> {
        Ok(false)
    }
}
