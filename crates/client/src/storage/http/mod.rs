//! HTTP servers as storages: files by ranges (RFC 9110), and what WebDAV adds (RFC 4918).
//!
//! A request blocks its thread; the runtime never does. Dropping a future ends the waits of its
//! thread.

mod agent;
mod client;
mod errors;
mod facts;
mod lookup;
mod ranges;
#[cfg(test)]
mod scripted;
#[cfg(test)]
mod tests;
mod upload;
#[cfg(test)]
pub(crate) mod webdav;

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

use super::contract::{AvailableChecksums, Capabilities, Storage};
use crate::answers::{RefusedRenameStep, RenameFailure, SymlinkCheckedEntry};
use crate::credentials::Credential;
use crate::transfer::{TransferAttempt, TransferSpec};
use crate::{CopyFailure, Exit};
use client::{HttpClient, HttpOrigin, HttpRequest, HttpRequestBody};
use facts::HttpFileFacts;
use lookup::{look, propfind};
use ranges::{HttpFile, receive};

/// Connections that are kept for the next file.
const MOST_KEPT: usize = 64;

/// An HTTP server, and the requests that are made of it.
#[derive(Debug)]
pub(crate) struct HttpStorage {
    name: String,
    home: HttpOrigin,
    settings: TransferSettings,
    /// Away while a request is made.
    caller: Option<HttpClient>,
    /// Of the streams of earlier files.
    kept: Vec<HttpClient>,
    /// The file that was looked at last.
    seen: Option<(Vec<u8>, HttpFileFacts)>,
    /// Learned of the last connection.
    rtt: Duration,
}

impl HttpStorage {
    /// A session with a server; nothing is asked of it yet. `target` is any URL of the server, with the
    /// query that goes with every request.
    ///
    /// # Errors
    /// `Usage`: the credential cannot be told over HTTP.
    pub(crate) fn new(
        target: &HttpUrl,
        credential: &Credential,
        timeout: Duration,
    ) -> Result<Self, CopyFailure> {
        let mut settings = TransferSettings {
            connect_timeout: timeout,
            ..TransferSettings::default()
        };
        settings.options.stall = timeout;
        Ok(Self {
            name: target.authority(),
            home: HttpOrigin::new(target.with_path(b"/"), credential)?,
            settings,
            caller: None,
            kept: Vec::new(),
            seen: None,
            rtt: Duration::ZERO,
        })
    }

    fn at(&self, path: &[u8]) -> HttpUrl {
        self.home.target.with_path(path)
    }

    /// The same as a directory.
    fn directory(&self, path: &[u8]) -> HttpUrl {
        match path.last() {
            Some(b'/') => self.at(path),
            _ => self.at(&[path, b"/"].concat()),
        }
    }

    /// Makes requests in a thread of their own.
    async fn blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut HttpClient) -> Result<T, CopyFailure> + Send + 'static,
    ) -> Result<T, CopyFailure> {
        let mut caller = match self.caller.take() {
            Some(caller) => caller,
            None => HttpClient::new(&self.home, &self.settings)?,
        };
        let mut guard = StopDialerOnDrop(Some(Arc::clone(&caller.dialer)));
        let done = tokio::task::spawn_blocking(move || {
            let done = work(&mut caller);
            (caller, done)
        });
        let (caller, done) = done
            .await
            .map_err(|e| CopyFailure::new(Exit::Local, e.to_string()))?;
        guard.0 = None;
        self.rtt = caller.dialer.rtt().unwrap_or(self.rtt);
        self.caller = Some(caller);
        done
    }

    /// One request without a body, whose answer must be a success.
    async fn order(
        &mut self,
        method: &'static str,
        target: HttpUrl,
        fields: Vec<(&'static str, String)>,
        what: &str,
    ) -> Result<u16, (u16, CopyFailure)> {
        let doing = format!("{what} {target}");
        self.seen = None;
        let done = self.blocking(move |caller| {
            let ask = HttpRequest {
                method,
                target: &target,
                fields: &fields,
                doing: &doing,
            };
            let reply = caller.ask(&ask, HttpRequestBody::Empty)?;
            let status = reply.status();
            let failure = errors::of_status(&doing, &reply);
            reply.skip();
            Ok(match status {
                200 | 201 | 204 => Ok(status),
                _ => Err((status, failure)),
            })
        });
        done.await.map_err(|failure| (0, failure))?
    }

    /// Looks at a file or directory.
    async fn look(&mut self, path: &[u8]) -> Result<(HttpFileFacts, EntryKind), CopyFailure> {
        let named = self.at(path);
        let directory = self.directory(path);
        let (seen, kind) = self
            .blocking(move |caller| look(caller, &named, &directory))
            .await?;
        self.seen = (kind == EntryKind::File).then(|| (path.to_vec(), seen.clone()));
        Ok((seen, kind))
    }

    /// Facts of a file: those seen before, else those of now.
    async fn known(&mut self, path: &[u8]) -> Result<HttpFileFacts, CopyFailure> {
        if let Some((at, seen)) = &self.seen
            && at == path
        {
            return Ok(seen.clone());
        }
        match self.look(path).await? {
            (seen, EntryKind::File) => Ok(seen),
            _ => Err(CopyFailure::new(
                Exit::Usage,
                format!("{} is a directory", self.at(path)),
            )),
        }
    }
}

/// Ends the waits of a request that nobody waits for any more.
struct StopDialerOnDrop(Option<Arc<Dialer>>);

impl Drop for StopDialerOnDrop {
    fn drop(&mut self) {
        if let Some(dialer) = &self.0 {
            dialer.stop();
        }
    }
}

/// Ends a transfer that nobody waits for any more.
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
fn settings_of(spec: &TransferSpec, connect: Duration) -> TransferSettings {
    TransferSettings {
        options: spec.options.clone(),
        streams: usize::try_from(spec.streams.max(1)).unwrap_or(1),
        checksum: spec.checksum.filter(|_| spec.completed_ranges.is_empty()),
        connect_timeout: connect,
        ..TransferSettings::default()
    }
}

fn attempt(report: TransferReport, spec: &TransferSpec) -> TransferAttempt {
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
            partial_writes: false,
            resumes_uploads: false,
            parallel: true,
            any_order: true,
            markers: false,
            adapts_streams: false,
            checksums_while_storing: false,
            sets_time: false,
            third_party: None,
            concurrency: 1,
            is_here: false,
            rtt: self.rtt,
        }
    }

    async fn stat(&mut self, path: &[u8]) -> Result<ListedEntry, CopyFailure> {
        let (seen, kind) = self.look(path).await?;
        Ok(seen.entry(last_name(path), kind))
    }

    async fn list(&mut self, path: &[u8]) -> Result<Vec<SymlinkCheckedEntry>, CopyFailure> {
        let target = self.directory(path);
        let own = self.at(path.strip_suffix(b"/").unwrap_or(path));
        let mut parts = own.segments();
        parts.retain(|part| !part.is_empty());
        let resources = self
            .blocking(move |caller| propfind(caller, &target, "1"))
            .await?;
        let (itself, entries) = multistatus::directory_entries(&resources, &parts);
        // Of a file a server tells all the same.
        let is_file = itself.as_ref().is_some_and(|it| it.kind == EntryKind::File);
        let entries = match is_file {
            true => itself.into_iter().collect(),
            false => entries,
        };
        let marked = entries.into_iter().map(|entry| SymlinkCheckedEntry {
            entry,
            is_certain: true,
        });
        Ok(marked.collect())
    }

    async fn available_checksums(
        &mut self,
        path: &[u8],
    ) -> Result<AvailableChecksums, CopyFailure> {
        let seen = self.known(path).await?;
        Ok(AvailableChecksums {
            parts: Vec::new(),
            whole: seen.sums.iter().map(|(algorithm, _)| *algorithm).collect(),
        })
    }

    async fn checksum(
        &mut self,
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        path: &[u8],
    ) -> Result<String, CopyFailure> {
        // Asked again: the file may have changed since.
        let (seen, _) = self.look(path).await?;
        let is_whole = offset == 0 && (length.is_none() || length == seen.size);
        let known = seen.sums.iter().find(|(known, _)| *known == algorithm);
        match known.filter(|_| is_whole) {
            Some((_, sum)) => Ok(sum.clone()),
            None => Err(CopyFailure::new(
                Exit::Protocol,
                format!(
                    "{} tells no {} of this; name an algorithm that it has (cksum -a, cp --verify), or \
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
        let seen = self.known(path).await?;
        // What is seen now is what later requests must be of; the next file is looked at anew.
        self.seen = None;
        let named = self.at(path);
        let doing = format!("read {named}");
        if let (None, Some(told), Some(size)) = (spec.part, spec.size, seen.size)
            && told != size
        {
            let message =
                format!("cannot {doing}: the file changed while it was copied; start over");
            return Err(CopyFailure::new(Exit::Integrity, message));
        }
        let settings = settings_of(spec, self.settings.connect_timeout);
        let mut kept = std::mem::take(&mut self.kept);
        kept.extend(self.caller.take());
        let file = HttpFile {
            home: self.home.clone(),
            settings: settings.clone(),
            named,
            alone: !seen.ranges,
            seen,
            doing,
            kept: Mutex::new(kept),
            ignores_ranges: AtomicBool::new(false),
        };
        let mut guard = StopTransferOnDrop(Some(Arc::clone(control)));
        let (running, asked) = (Arc::clone(control), spec.clone());
        let moved =
            tokio::task::spawn_blocking(move || receive(file, &sink, &asked, &settings, &running));
        let (file, moved) = moved
            .await
            .map_err(|e| CopyFailure::new(Exit::Local, e.to_string()))?;
        guard.0 = None;
        let kept = file.kept.into_inner();
        self.kept = kept.unwrap_or_else(std::sync::PoisonError::into_inner);
        self.kept.truncate(MOST_KEPT);
        self.caller = self.kept.pop();
        moved.map(|report| attempt(report, spec))
    }

    async fn store(
        &mut self,
        source: Arc<dyn Source>,
        path: &[u8],
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, CopyFailure> {
        let target = self.at(path);
        let settings = settings_of(spec, self.settings.connect_timeout);
        let (running, asked) = (Arc::clone(control), spec.clone());
        self.seen = None;
        let mut guard = StopTransferOnDrop(Some(Arc::clone(control)));
        let report = self
            .blocking(move |caller| {
                upload::put(caller, &target, &*source, &asked, &settings, &running)
            })
            .await;
        guard.0 = None;
        report.map(|report| attempt(report, spec))
    }

    async fn make_dir(&mut self, path: &[u8]) -> Result<bool, CopyFailure> {
        let target = self.directory(path);
        match self.order("MKCOL", target, Vec::new(), "make").await {
            Ok(_) => Ok(true),
            // RFC 4918 §9.3.1: only where nothing is; a server without WebDAV says the same.
            Err((405, failure)) => match self.look(path).await {
                Ok((_, EntryKind::Dir)) => Ok(false),
                _ => Err(failure),
            },
            Err((_, failure)) => Err(failure),
        }
    }

    async fn remove(&mut self, path: &[u8]) -> Result<(), CopyFailure> {
        let target = self.at(path);
        let done = self.order("DELETE", target, Vec::new(), "remove").await;
        done.map(|_| ()).map_err(|(_, failure)| failure)
    }

    async fn remove_tree(&mut self, path: &[u8]) -> Result<(), CopyFailure> {
        let target = match self.look(path).await? {
            (_, EntryKind::Dir) => self.directory(path),
            _ => self.at(path),
        };
        let done = self.order("DELETE", target, Vec::new(), "remove").await;
        done.map(|_| ()).map_err(|(_, failure)| failure)
    }

    async fn rename(
        &mut self,
        from: &[u8],
        to: &[u8],
        _modified: Option<Timestamp>,
    ) -> Result<(), RenameFailure> {
        let (target, next) = (self.at(from), self.at(to));
        let fields = vec![("destination", next.uri()), ("overwrite", "T".to_owned())];
        let what = format!("rename to {next}:");
        let done = self.order("MOVE", target, fields, &what).await;
        done.map(|_| ()).map_err(|(status, failure)| RenameFailure {
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
