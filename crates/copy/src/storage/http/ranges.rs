//! Ranges of a file, each fetched by a request of its own over a persistent connection.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use data::error::DataError;
use data::job::{TransferControl, TransferReport, TransferSettings};
use data::pull::{self, PullPlan, RangeOrigin, RangeReader, ReaderContext};
use data::store::Sink;
use parking_lot::Mutex;
use proto::http::content_range::ContentRange;
use proto::http::url::HttpUrl;
use proto::printable::printable;
use proto::ranges::RangeSet;
use tune::Evidence;

use super::client::{HttpClient, HttpOrigin};
use super::errors;
use super::facts::HttpFileFacts;
use super::lookup::FileUrls;
use super::request::{HttpRequest, HttpRequestBody};
use super::response::HttpResponse;
use ftp::failure::Operation;
use ftp::transfer::TransferSpec;
use ftp::transfer::outcome::pull_failure;
use ftp::{Failure, FailureKind};

/// Most bytes per request when several connections fetch a file.
const MAX_REQUEST_BYTES: u64 = 32 << 20;
/// Fewest bytes per request, towards the end of a file.
pub(super) const MIN_REQUEST_BYTES: u64 = 1 << 20;

/// A file at a server, with its facts when it was last examined.
#[derive(Debug)]
pub(in crate::storage) struct HttpFile {
    pub(super) origin: HttpOrigin,
    pub(super) settings: TransferSettings,
    /// URL under which the file was requested, before redirects.
    pub(super) requested_url: HttpUrl,
    pub(super) facts: HttpFileFacts,
    /// The operation for messages: `read http://host/f`.
    pub(super) action: Operation,
    /// It is an object, which the server replaces as a whole: every request has its tag as a condition, and it is sent as it is
    /// stored.
    pub(super) is_object: bool,
    /// The response with the whole file, of the request that has examined it.
    pub(super) begun: Mutex<Option<HttpResponse>>,
    /// Clients of earlier requests.
    pub(super) idle_clients: Mutex<Vec<HttpClient>>,
    /// The server was found to send the whole file for any range.
    pub(super) ignores_ranges: AtomicBool,
    /// The server was found to send ranges without the entity tag that it has told before.
    pub(super) omits_etag: AtomicBool,
    /// A single reader fetches all bytes, so it may skip bytes that it does not need.
    pub(super) single_reader: bool,
}

/// From this size on, a file is examined once more after it was fetched, bytes: it may have been overwritten while the server
/// read it.
const EXAMINED_AGAIN_FROM: u64 = 1 << 20;

/// Fetches a file. All of it is of one version: ranges are joined only if each has the entity tag of the others. If the server
/// turns out to ignore ranges, fetches the rest again in one request; if it has no strong tag, everything in one.
pub(super) fn receive_file(
    mut file: HttpFile,
    sink: &Arc<dyn Sink>,
    spec: &TransferSpec,
    settings: &TransferSettings,
    control: &Arc<TransferControl>,
) -> (HttpFile, Result<TransferReport, Failure>) {
    let part = spec.part.map(|(_, length)| length);
    let size = spec.size.or(part).or(file.facts.size);
    let mut settings = settings.clone();
    if !file.joins_ranges() {
        // Without a tag, what arrives counts if all of it does, or if a checksum of the whole proves it.
        file.single_reader = true;
    }
    if file.single_reader {
        settings.streams = 1;
    }
    loop {
        let mut completed = spec.completed_ranges.clone();
        if file.joins_ranges() {
            completed.extend(&control.stored());
        }
        let missing = size.map(|size| completed.gaps(0, size));
        let plan = PullPlan {
            origin: spec.part.map_or(0, |(offset, _)| offset),
            piece: piece(missing.as_ref(), settings.streams),
            missing,
            view: sink.open_reader().map(|view| (view, 0)),
        };
        let moved = pull::run(&file, sink, &plan, &settings, control);
        let is_without_tag = !file.joins_ranges() && spec.completed_ranges.is_empty();
        let must_read_whole =
            !file.single_reader && (file.ignores_ranges.load(Ordering::Relaxed) || is_without_tag);
        match moved {
            Err(_) if must_read_whole && !control.is_cancelled() => {
                file.single_reader = true;
                settings.streams = 1;
                // The bytes stored so far stay if they can: the single reader skips them.
                let keeps = file.joins_ranges() && !control.stored().is_empty();
                settings.checksum = settings.checksum.filter(|_| !keeps);
            }
            moved => {
                let is_started = !sink.is_seekable() && !control.stored().is_empty();
                let result = match moved {
                    Ok(report) => file.check_unchanged(size).map(|()| report),
                    Err(error) => Err(file.transfer_failure(&error, spec)),
                };
                let result =
                    result.map_err(|failure| file.final_failure(failure, spec, is_started));
                return (file, result);
            }
        }
    }
}

/// Most bytes of one request: a share for each stream, so that all of them end at about the same time.
fn piece(missing: Option<&RangeSet>, streams: usize) -> u64 {
    let share = missing.map_or(0, RangeSet::byte_count);
    match streams {
        1 => u64::MAX,
        n => (share / n as u64).clamp(MIN_REQUEST_BYTES, MAX_REQUEST_BYTES),
    }
}

impl HttpFile {
    /// An object of a bucket, whose ranges are asked for over the connections of `client`.
    pub(in crate::storage) fn object(
        origin: HttpOrigin,
        settings: &TransferSettings,
        facts: HttpFileFacts,
        action: Operation,
        client: HttpClient,
    ) -> Self {
        Self {
            origin,
            settings: settings.clone(),
            requested_url: facts.url.clone(),
            facts,
            action,
            is_object: true,
            begun: Mutex::default(),
            idle_clients: Mutex::new(vec![client]),
            ignores_ranges: AtomicBool::new(false),
            omits_etag: AtomicBool::new(false),
            single_reader: false,
        }
    }

    /// The clients of its requests.
    pub(in crate::storage) fn into_clients(self) -> Vec<HttpClient> {
        self.idle_clients.into_inner()
    }

    /// Whether ranges can be told to be of one version.
    fn joins_ranges(&self) -> bool {
        self.facts.strong_etag().is_some() && !self.omits_etag.load(Ordering::Relaxed)
    }

    /// Fails if the file, of `size` bytes, has another version now than before it was fetched, or if the server that has told its
    /// version before does not now. What it tells to nobody (405 and 501) is no sign of a change.
    fn check_unchanged(&self, size: Option<u64>) -> Result<(), Failure> {
        let is_short = size.is_some_and(|size| size < EXAMINED_AGAIN_FROM);
        if self.joins_ranges() && (is_short || self.is_object) {
            return Ok(());
        }
        let urls = FileUrls {
            requested: self.requested_url.clone(),
            last_target: Some(self.facts.url.clone()),
        };
        let mut client = self.client()?;
        let mut now = urls.head(&mut client);
        // The server may have closed the connection after the file.
        if now
            .as_ref()
            .is_err_and(|refused| refused.status.is_none() && refused.failure.may_retry())
        {
            now = urls.head(&mut client);
        }
        self.idle_clients.lock().push(client);
        match now {
            Ok((now, _)) if !self.facts.may_be_same(&now) => Err(errors::changed(&self.action)),
            Err(refused) if !matches!(refused.status, Some(405 | 501)) => Err(refused.failure),
            _ => Ok(()),
        }
    }

    fn transfer_failure(&self, error: &DataError, spec: &TransferSpec) -> Failure {
        let server = self.origin.root_url.authority();
        pull_failure(&server, &self.action, error, &spec.confirmation)
    }

    /// The failure of an attempt: without a tag, nothing of it counts. `is_started`: bytes went to a pipe, which must be continued if
    /// anything.
    fn final_failure(&self, failure: Failure, spec: &TransferSpec, is_started: bool) -> Failure {
        if !self.joins_ranges() {
            spec.confirmation.mark_refused();
        }
        if failure.may_retry() && is_started && !self.joins_ranges() {
            return failure.retried(false).remark(
                "the output cannot be continued, since no strong ETag shows that the file is the same: copy to a file",
            );
        }
        failure
    }

    fn client(&self) -> Result<HttpClient, Failure> {
        let idle = self.idle_clients.lock().pop();
        idle.map_or_else(|| HttpClient::new(&self.origin, &self.settings), Ok)
    }
}

impl RangeOrigin for HttpFile {
    fn name(&self) -> String {
        self.requested_url.to_string()
    }

    fn reader(&self) -> io::Result<Box<dyn RangeReader + '_>> {
        let client = self.client().map_err(io::Error::other)?;
        Ok(Box::new(HttpRangeReader {
            file: self,
            client: Some(client),
            body: None,
            remaining: None,
            must_end: true,
        }))
    }

    fn is_networked(&self) -> bool {
        true
    }

    fn min_piece(&self) -> u64 {
        MIN_REQUEST_BYTES
    }
}

/// Reader of one connection.
struct HttpRangeReader<'f> {
    file: &'f HttpFile,
    client: Option<HttpClient>,
    body: Option<Box<dyn Read + Send>>,
    /// Bytes of the range that are still to come. `None`: until the server closes.
    remaining: Option<u64>,
    /// The body ends with the range.
    must_end: bool,
}

impl RangeReader for HttpRangeReader<'_> {
    fn join_transfer(&mut self, context: ReaderContext<'_>) {
        if let Some(client) = &self.client {
            client.dialer.join_transfer(context);
        }
    }

    fn leave_transfer(&mut self) -> Evidence {
        let client = self.client.take();
        let evidence = client.as_ref().map(|client| client.dialer.leave_transfer());
        // An unread body makes ureq close its connection. The client opens another one.
        self.body = None;
        self.file.idle_clients.lock().extend(client);
        evidence.unwrap_or_default()
    }

    fn request(&mut self, start: u64, end: Option<u64>) -> io::Result<()> {
        self.body = None;
        self.request_range(start, end).map_err(io::Error::other)
    }

    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some(body) = &mut self.body else {
            return Ok(0);
        };
        let room = self.remaining.map_or(buf.len(), |remaining_bytes| {
            usize::try_from(remaining_bytes)
                .unwrap_or(buf.len())
                .min(buf.len())
        });
        let n = match body.read(&mut buf[..room]) {
            Ok(n) => n,
            Err(error) => return Err(self.wrap_error(error)),
        };
        if n == 0 && room > 0 && self.remaining.is_some() {
            return Err(self.wrap_error(io::ErrorKind::UnexpectedEof.into()));
        }
        if let Some(remaining_bytes) = &mut self.remaining {
            *remaining_bytes -= n as u64;
            if *remaining_bytes == 0 {
                return self.check_body_end().map(|()| n);
            }
        }
        Ok(n)
    }
}

impl HttpRangeReader<'_> {
    fn request_range(&mut self, start: u64, end: Option<u64>) -> Result<(), Failure> {
        let file = self.file;
        let is_whole = start == 0 && (end.is_none() || end == file.facts.size);
        let begun = file.begun.lock().take();
        if let Some(response) = begun.filter(|_| is_whole) {
            return self.accept_response(response, start, end);
        }
        let mut headers = Vec::new();
        if !is_whole {
            let last = end.map_or_else(String::new, |end| (end - 1).to_string());
            headers.push(("range", format!("bytes={start}-{last}")));
        }
        // Both require a strong validator (RFC 9110 sections 13.1.1 and 13.1.5).
        let etag = file.facts.strong_etag();
        let condition = match file.is_object {
            true => Some("if-match"),
            false => (!is_whole).then_some("if-range"),
        };
        headers.extend(
            etag.zip(condition)
                .map(|(etag, name)| (name, etag.to_owned())),
        );
        let response = self.send(&headers)?;
        match (response.status(), &self.client) {
            (200 | 206, _) => self.accept_response(response, start, end),
            (412, _) if file.is_object => Err(errors::changed(&file.action)),
            (_, Some(client)) => Err(client.failure_of(&file.action, response)),
            (_, None) => Err(errors::status_failure(&file.action, &response)),
        }
    }

    /// Requests the URL where the last redirect led. If that URL has expired, requests the original
    /// one.
    fn send(&mut self, headers: &[(&str, String)]) -> Result<HttpResponse, Failure> {
        let file = self.file;
        let Some(client) = &mut self.client else {
            return Err(Failure::new(FailureKind::Interrupted, "interrupted"));
        };
        let mut request = |target: &HttpUrl| {
            let request = HttpRequest {
                method: "GET",
                url: target,
                headers,
                action: &file.action,
            };
            client.send(&request, HttpRequestBody::Empty)
        };
        let response = request(&file.facts.url)?;
        // Signed URLs behind a redirect expire; the original URL redirects to a fresh one.
        let expired = matches!(response.status(), 401 | 403 | 404 | 410);
        if !expired || file.facts.url == file.requested_url {
            return Ok(response);
        }
        response.discard_body();
        request(&file.requested_url)
    }

    /// Accepts a response if its body belongs to the known file and the requested range.
    fn accept_response(
        &mut self,
        response: HttpResponse,
        start: u64,
        end: Option<u64>,
    ) -> Result<(), Failure> {
        let file = self.file;
        let failed = |kind, reason: &str| Err(file.action.failed(kind, reason));
        let now = HttpFileFacts::from_response(&response);
        if !file.facts.may_be_same(&now) {
            return Err(errors::changed(&file.action));
        }
        let size = now.size.or(file.facts.size);
        let is_whole = response.status() == 200 && start == 0 && (end.is_none() || end == size);
        // Several readers are stopped by the first that finds it out.
        let must_have_tag = file.joins_ranges() || !file.single_reader;
        if must_have_tag && now.strong_etag().is_none() && !is_whole {
            file.omits_etag.store(true, Ordering::Relaxed);
            return failed(
                FailureKind::Protocol,
                "the server does not say which version of the file it sends",
            );
        }
        // A coded body has other lengths and offsets than the file.
        if !file.is_object
            && let Some(coding) = response.foreign_coding(&file.requested_url)
        {
            let coding = printable(coding.as_bytes());
            let reason = format!(
                "the server sends it in the content coding {coding}, which was not asked for"
            );
            let failure = file.action.failed(FailureKind::Protocol, reason);
            return Err(
                failure.advise("fetch it with a program that decodes it (curl --compressed)")
            );
        }
        if response.status() == 206 {
            let content_range = response
                .header("content-range")
                .and_then(ContentRange::parse);
            let Some(range) = content_range.and_then(|content_range| content_range.range) else {
                return failed(
                    FailureKind::Protocol,
                    "the server does not say which part of the file it sends",
                );
            };
            let expected = end.or(file.facts.size).unwrap_or(range.end);
            if (range.start, range.end) != (start, expected) {
                return failed(
                    FailureKind::Protocol,
                    "the server sends a different part of the file than requested",
                );
            }
            self.remaining = Some(range.len());
            self.must_end = true;
            self.body = Some(Box::new(response.into_body()));
            return Ok(());
        }
        self.accept_whole_file(response, start, end)
    }

    /// Handles a response with the whole file. It answers a range request only if this is the
    /// single reader, which may skip bytes.
    fn accept_whole_file(
        &mut self,
        response: HttpResponse,
        start: u64,
        end: Option<u64>,
    ) -> Result<(), Failure> {
        let file = self.file;
        let length = response.length();
        let expected = end.or(file.facts.size).or(length);
        let is_partial = expected.is_some() && expected != file.facts.size.or(length);
        if (start > 0 || is_partial) && !file.single_reader {
            file.ignores_ranges.store(true, Ordering::Relaxed);
            let reason = "the server does not send ranges of it";
            return Err(file.action.failed(FailureKind::Protocol, reason));
        }
        let mut body = response.into_body();
        let skipped = io::copy(&mut (&mut body).take(start), &mut io::sink());
        self.body = Some(Box::new(body));
        self.remaining = expected.map(|expected| expected - start);
        self.must_end = !is_partial;
        match skipped {
            Ok(n) if n == start => Ok(()),
            Ok(_) => Err(self.connection_failure(&io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(self.connection_failure(&error)),
        }
    }

    /// All bytes of the range have arrived. The body must end here, unless it is the whole file and the range is not its end.
    fn check_body_end(&mut self) -> io::Result<()> {
        if let Some(mut body) = self.body.take()
            && self.must_end
            && body.read(&mut [0; 1]).map_err(|e| self.wrap_error(e))? > 0
        {
            let reason = "the server sends more than announced";
            let failure = self.file.action.failed(FailureKind::Protocol, reason);
            return Err(io::Error::other(failure));
        }
        Ok(())
    }

    fn wrap_error(&self, error: io::Error) -> io::Error {
        let own_failure = error.get_ref().and_then(|e| e.downcast_ref::<Failure>());
        match own_failure {
            Some(_) => error,
            None => io::Error::other(self.connection_failure(&error)),
        }
    }

    fn connection_failure(&self, error: &io::Error) -> Failure {
        let own_failure = self.client.as_ref().and_then(|c| c.dialer.take_failure());
        match own_failure {
            Some(_) => errors::request_failure(
                &self.file.action,
                &ureq::Error::HostNotFound,
                own_failure.as_ref(),
            ),
            None => {
                let reason = format_args!("the connection was lost: {error}");
                self.file
                    .action
                    .failed(FailureKind::Unreachable, reason)
                    .retried(true)
            }
        }
    }
}
