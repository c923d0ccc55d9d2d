//! The connections of a session with an HTTP server: requests and transfers run on threads for blocking calls.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use data::dialer::Dialer;
use data::job::{TransferControl, TransferReport, TransferSettings};
use data::store::Sink;
use parking_lot::Mutex;
use proto::http::url::HttpUrl;

use super::client::{HttpClient, HttpOrigin};
use super::facts::HttpFileFacts;
use super::ranges::{HttpFile, receive_file};
use super::response::HttpResponse;
use crate::storage::contract::SessionCondition;
use ftp::failure::Operation;
use ftp::transfer::{TransferAttempt, TransferSpec};
use ftp::{Failure, FailureKind};

/// Most idle connections that are kept for the next file.
const MAX_IDLE_CLIENTS: usize = 64;

/// The connections of a session.
#[derive(Debug)]
pub(in crate::storage) struct HttpConnections {
    pub(in crate::storage) origin: HttpOrigin,
    settings: TransferSettings,
    /// `None` while a request runs.
    client: Option<HttpClient>,
    /// Clients from the streams of earlier files.
    idle_clients: Vec<HttpClient>,
    /// For requests whose responses may pause longer than others, while it is not used.
    patient_client: Option<HttpClient>,
    /// Round-trip time of the last connection.
    pub(in crate::storage) rtt: Duration,
    /// Addresses of this machine and of the server, or its proxy, of the last connection.
    pub(in crate::storage) path_ends: Option<(IpAddr, IpAddr)>,
    /// The last request could not connect.
    is_away: bool,
}

/// A file that is to be fetched.
pub(in crate::storage) struct RequestedFile {
    /// URL under which it was requested, before redirects.
    pub(in crate::storage) requested_url: HttpUrl,
    pub(in crate::storage) facts: HttpFileFacts,
    /// The operation for messages: `read http://host/f`.
    pub(in crate::storage) action: Operation,
    /// See [`HttpFile::is_object`].
    pub(in crate::storage) is_object: bool,
    /// See [`HttpFile::begun`].
    pub(in crate::storage) begun: Option<HttpResponse>,
}

impl HttpConnections {
    /// Connections with a server; none is made yet. `timeout`: the longest wait for a connection, and for a silent server.
    pub(in crate::storage) fn new(origin: HttpOrigin, timeout: Duration) -> Self {
        let mut settings = TransferSettings {
            connect_timeout: timeout,
            ..TransferSettings::default()
        };
        settings.options.stall = timeout;
        Self {
            origin,
            settings,
            client: None,
            idle_clients: Vec::new(),
            patient_client: None,
            rtt: Duration::ZERO,
            path_ends: None,
            is_away: false,
        }
    }

    /// The condition of the session, as its last request left it.
    pub(in crate::storage) fn condition(&self) -> SessionCondition {
        let clients = self.client.iter().chain(&self.patient_client);
        let clients = clients.chain(&self.idle_clients);
        SessionCondition {
            is_usable: true,
            is_away: self.is_away,
            retry_after: clients.filter_map(|client| client.retry_after).max(),
        }
    }

    /// From now on, requests go to this server.
    pub(in crate::storage) fn set_origin(&mut self, origin: HttpOrigin) {
        self.origin = origin;
        self.client = None;
        self.patient_client = None;
        self.idle_clients.clear();
    }

    /// As [`HttpConnections::blocking`], over a connection of its own that waits for a silent server at least for `patience`.
    pub(super) async fn blocking_patiently<T: Send + 'static>(
        &mut self,
        patience: Duration,
        work: impl FnOnce(&mut HttpClient) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        if self.patient_client.is_none() {
            let mut settings = self.settings.clone();
            settings.options.stall = settings.options.stall.max(patience);
            self.patient_client = Some(HttpClient::new(&self.origin, &settings)?);
        }
        std::mem::swap(&mut self.client, &mut self.patient_client);
        let result = self.blocking(work).await;
        std::mem::swap(&mut self.client, &mut self.patient_client);
        result
    }

    /// Runs requests on a thread for blocking calls.
    pub(in crate::storage) async fn blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut HttpClient) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
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
        let (client, result) = result.await.map_err(|e| Failure::local(e.to_string()))?;
        guard.0 = None;
        self.learn_from(&client);
        self.client = Some(client);
        self.is_away = is_away(&result);
        result
    }

    /// Fetches a file into a sink.
    ///
    /// # Errors
    /// As [`Storage::fetch`](crate::storage::contract::Storage::fetch).
    pub(in crate::storage) async fn fetch(
        &mut self,
        wanted: RequestedFile,
        sink: Arc<dyn Sink>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, Failure> {
        let settings = self.transfer_settings(spec);
        let file = HttpFile {
            origin: self.origin.clone(),
            settings: settings.clone(),
            requested_url: wanted.requested_url,
            single_reader: !wanted.facts.accepts_ranges,
            facts: wanted.facts,
            action: wanted.action,
            is_object: wanted.is_object,
            begun: Mutex::new(wanted.begun),
            idle_clients: Mutex::new(self.take_clients()),
            ignores_ranges: AtomicBool::new(false),
            omits_etag: AtomicBool::new(false),
        };
        let mut guard = StopTransferOnDrop(Some(Arc::clone(control)));
        let (task_control, task_spec) = (Arc::clone(control), spec.clone());
        let result = tokio::task::spawn_blocking(move || {
            receive_file(file, &sink, &task_spec, &settings, &task_control)
        });
        let (file, result) = result.await.map_err(|e| Failure::local(e.to_string()))?;
        guard.0 = None;
        self.keep_clients(file.idle_clients.into_inner());
        self.is_away = is_away(&result);
        Ok(attempt_of(result?, spec))
    }

    /// Runs a transfer with one client, on a thread for blocking calls. It is cancelled when the future is dropped.
    pub(in crate::storage) async fn transfer(
        &mut self,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
        work: impl FnOnce(&mut HttpClient, &TransferSettings) -> Result<TransferReport, Failure>
        + Send
        + 'static,
    ) -> Result<TransferAttempt, Failure> {
        let settings = self.transfer_settings(spec);
        let mut guard = StopTransferOnDrop(Some(Arc::clone(control)));
        let report = self.blocking(move |client| work(client, &settings)).await;
        guard.0 = None;
        Ok(attempt_of(report?, spec))
    }

    /// [`HttpConnections::transfer`] with as many clients as `spec` has streams; `work` returns them.
    pub(in crate::storage) async fn transfer_over_several(
        &mut self,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
        work: impl FnOnce(&mut Vec<HttpClient>, &TransferSettings) -> Result<TransferReport, Failure>
        + Send
        + 'static,
    ) -> Result<TransferAttempt, Failure> {
        let settings = self.transfer_settings(spec);
        let mut clients = self.take_clients();
        while clients.len() < settings.streams.clamp(1, MAX_IDLE_CLIENTS) {
            clients.push(HttpClient::new(&self.origin, &self.settings)?);
        }
        let mut guard = StopTransferOnDrop(Some(Arc::clone(control)));
        let result = tokio::task::spawn_blocking(move || {
            let result = work(&mut clients, &settings);
            (clients, result)
        });
        let (clients, result) = result.await.map_err(|e| Failure::local(e.to_string()))?;
        guard.0 = None;
        self.keep_clients(clients);
        self.is_away = is_away(&result);
        Ok(attempt_of(result?, spec))
    }

    fn take_clients(&mut self) -> Vec<HttpClient> {
        let mut clients = std::mem::take(&mut self.idle_clients);
        clients.extend(self.client.take());
        clients
    }

    fn keep_clients(&mut self, clients: Vec<HttpClient>) {
        self.idle_clients = clients;
        self.idle_clients.truncate(MAX_IDLE_CLIENTS);
        if let Some(client) = self.idle_clients.pop() {
            self.learn_from(&client);
            self.client = Some(client);
        }
    }

    /// Takes over what the last connection tells of the path and the server.
    fn learn_from(&mut self, client: &HttpClient) {
        self.rtt = client.dialer.rtt().unwrap_or(self.rtt);
        self.path_ends = client.dialer.path_ends().or(self.path_ends);
        client.note_identity();
    }

    /// The settings of a transfer.
    fn transfer_settings(&self, spec: &TransferSpec) -> TransferSettings {
        TransferSettings {
            options: spec.options.clone(),
            streams: usize::try_from(spec.streams.max(1)).unwrap_or(1),
            checksum: spec.checksum.filter(|_| spec.completed_ranges.is_empty()),
            connect_timeout: self.settings.connect_timeout,
            ..TransferSettings::default()
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

/// Ends the waits of a request when its future is dropped.
struct StopDialerOnDrop(Option<Arc<Dialer>>);

impl Drop for StopDialerOnDrop {
    fn drop(&mut self) {
        if let Some(dialer) = &self.0 {
            dialer.stop();
        }
    }
}

/// Whether a request could not connect.
fn is_away<T>(result: &Result<T, Failure>) -> bool {
    result
        .as_ref()
        .is_err_and(|failure| failure.kind() == FailureKind::Away)
}

pub(super) fn attempt_of(report: TransferReport, spec: &TransferSpec) -> TransferAttempt {
    TransferAttempt {
        streams: report.evidence.streams.max(1),
        buffers: spec.options.buffers,
        report,
        ..TransferAttempt::default()
    }
}
