//! Ranges of a file, each asked for by a request of its own over a connection that is kept.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use data::job::{TransferControl, TransferReport, TransferSettings};
use data::pull::{self, PullPlan, RangeOrigin, RangeReader, ReaderContext};
use data::store::Sink;
use proto::http::content_range::ContentRange;
use proto::http::url::HttpUrl;
use proto::ranges::RangeSet;
use tune::Evidence;

use super::client::{HttpClient, HttpOrigin, HttpRequest, HttpRequestBody, HttpResponse};
use super::errors;
use super::facts::HttpFileFacts;
use crate::transfer::TransferSpec;
use crate::transfer::outcome::pull_failure;
use crate::{CopyFailure, Exit};

/// Most bytes that one of several connections is asked for at a time.
const PIECE: u64 = 32 << 20;
/// Smallest piece that is worth a request towards the end of a file, bytes.
pub(super) const LEAST: u64 = 1 << 20;

/// A file at a server, of which is known what was last seen of it.
#[derive(Debug)]
pub(super) struct HttpFile {
    pub(super) home: HttpOrigin,
    pub(super) settings: TransferSettings,
    /// Where it is asked for by name.
    pub(super) named: HttpUrl,
    pub(super) seen: HttpFileFacts,
    /// `read http://host/f`
    pub(super) doing: String,
    /// Connections of earlier requests.
    pub(super) kept: Mutex<Vec<HttpClient>>,
    /// It was found out that the server sends the whole file whatever range is asked for.
    pub(super) ignores_ranges: AtomicBool,
    /// One reader takes all, so that it may skip what comes before.
    pub(super) alone: bool,
}

/// How a file is asked for, and again in one go where the server turns out to send no parts.
pub(super) fn receive(
    mut file: HttpFile,
    sink: &Arc<dyn Sink>,
    spec: &TransferSpec,
    settings: &TransferSettings,
    control: &Arc<TransferControl>,
) -> (HttpFile, Result<TransferReport, CopyFailure>) {
    let origin = spec.part.map_or(0, |(offset, _)| offset);
    let part = spec.part.map(|(_, length)| length);
    let size = spec.size.or(part).or(file.seen.size);
    let view = sink.open_reader().map(|view| (view, 0));
    let mut settings = settings.clone();
    if file.alone {
        settings.streams = 1;
    }
    loop {
        let mut have = spec.completed_ranges.clone();
        have.extend(&control.stored());
        let missing = size.map(|size| have.gaps(0, size));
        let share = missing.as_ref().map_or(0, RangeSet::byte_count);
        let plan = PullPlan {
            origin,
            missing,
            piece: match settings.streams {
                1 => u64::MAX,
                n => (share / n as u64).clamp(LEAST, PIECE),
            },
            view: view.clone(),
        };
        let moved = pull::run(&file, sink, &plan, &settings, control);
        let learned = file.ignores_ranges.load(Ordering::Relaxed) && !file.alone;
        match moved {
            Err(_) if learned && !control.is_cancelled() => {
                file.alone = true;
                settings.streams = 1;
                settings.checksum = settings.checksum.filter(|_| control.stored().is_empty());
            }
            Ok(report) => return (file, Ok(report)),
            Err(error) => {
                let failure = pull_failure(
                    &file.home.target.authority(),
                    &file.doing,
                    &error,
                    &spec.confirmation,
                );
                return (file, Err(failure));
            }
        }
    }
}

impl RangeOrigin for HttpFile {
    fn name(&self) -> String {
        self.named.to_string()
    }

    fn reader(&self) -> io::Result<Box<dyn RangeReader + '_>> {
        let kept = lock(&self.kept).pop();
        let caller = match kept {
            Some(caller) => caller,
            None => HttpClient::new(&self.home, &self.settings).map_err(io::Error::other)?,
        };
        Ok(Box::new(HttpRangeReader {
            file: self,
            caller: Some(caller),
            body: None,
            left: None,
        }))
    }

    fn is_networked(&self) -> bool {
        true
    }

    fn min_piece(&self) -> u64 {
        LEAST
    }
}

/// The data behind is whole after every statement.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// One connection's reader.
struct HttpRangeReader<'f> {
    file: &'f HttpFile,
    caller: Option<HttpClient>,
    body: Option<Box<dyn Read + Send>>,
    /// Bytes of the piece that are still to come; `None`: until the server ends.
    left: Option<u64>,
}

impl RangeReader for HttpRangeReader<'_> {
    fn join_transfer(&mut self, duty: ReaderContext<'_>) {
        if let Some(caller) = &self.caller {
            caller.dialer.join_transfer(duty);
        }
    }

    fn leave_transfer(&mut self) -> Evidence {
        let caller = self.caller.take();
        let evidence = caller.as_ref().map(|caller| caller.dialer.leave_transfer());
        // An unread body closes its connection; the caller makes another one.
        self.body = None;
        lock(&self.file.kept).extend(caller);
        evidence.unwrap_or_default()
    }

    fn request(&mut self, start: u64, end: Option<u64>) -> io::Result<()> {
        self.body = None;
        self.begin(start, end).map_err(io::Error::other)
    }

    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some(body) = &mut self.body else {
            return Ok(0);
        };
        let room = self.left.map_or(buf.len(), |left| {
            usize::try_from(left).unwrap_or(buf.len()).min(buf.len())
        });
        let n = match body.read(&mut buf[..room]) {
            Ok(n) => n,
            Err(error) => return Err(self.broke(error)),
        };
        if n == 0 && room > 0 && self.left.is_some() {
            return Err(self.broke(io::ErrorKind::UnexpectedEof.into()));
        }
        if let Some(left) = &mut self.left {
            *left -= n as u64;
            if *left == 0 {
                return self.end().map(|()| n);
            }
        }
        Ok(n)
    }
}

impl HttpRangeReader<'_> {
    fn begin(&mut self, start: u64, end: Option<u64>) -> Result<(), CopyFailure> {
        let file = self.file;
        let whole = start == 0 && (end.is_none() || end == file.seen.size);
        let mut fields = Vec::new();
        if !whole {
            let last = end.map_or_else(String::new, |end| (end - 1).to_string());
            fields.push(("range", format!("bytes={start}-{last}")));
            match (&file.seen.etag, &file.seen.modified) {
                (Some(etag), _) => fields.push(("if-range", etag.clone())),
                (None, Some(modified)) => fields.push(("if-unmodified-since", modified.clone())),
                (None, None) => {}
            }
        }
        let reply = self.send(&fields)?;
        match reply.status() {
            200 | 206 => self.take(reply, start, end),
            _ => Err(errors::of_status(&file.doing, &reply)),
        }
    }

    /// Asks where the last redirect led, and where the file is named if that is no longer right.
    fn send(&mut self, fields: &[(&str, String)]) -> Result<HttpResponse, CopyFailure> {
        let file = self.file;
        let Some(caller) = &mut self.caller else {
            return Err(CopyFailure::new(Exit::Interrupted, "interrupted"));
        };
        let mut ask = |target: &HttpUrl| {
            let ask = HttpRequest {
                method: "GET",
                target,
                fields,
                doing: &file.doing,
            };
            caller.ask(&ask, HttpRequestBody::Empty)
        };
        let reply = ask(&file.seen.target)?;
        let expired = matches!(reply.status(), 401 | 403 | 404 | 410);
        if !expired || file.seen.target == file.named {
            return Ok(reply);
        }
        reply.skip();
        ask(&file.named)
    }

    /// The body of an answer, if it is that of the file which was seen, and of the range.
    fn take(
        &mut self,
        reply: HttpResponse,
        start: u64,
        end: Option<u64>,
    ) -> Result<(), CopyFailure> {
        let file = self.file;
        let failed = |exit, why: &str| {
            let message = format!("cannot {}: {why}", file.doing);
            Err(CopyFailure::new(exit, message))
        };
        if !file.seen.is_same(&reply) {
            return failed(
                Exit::Integrity,
                "the file changed while it was copied; start over",
            );
        }
        let coding = reply.field("content-encoding").unwrap_or("identity");
        if file.seen.size.is_some() && !coding.eq_ignore_ascii_case("identity") {
            return failed(
                Exit::Protocol,
                "the server sends it compressed, although it was asked not to",
            );
        }
        if reply.status() == 206 {
            let told = reply.field("content-range").and_then(ContentRange::parse);
            let Some(range) = told.and_then(|told| told.range) else {
                return failed(
                    Exit::Protocol,
                    "the server does not say which part of the file it sends",
                );
            };
            let wanted = end.or(file.seen.size).unwrap_or(range.end);
            if (range.start, range.end) != (start, wanted) {
                return failed(
                    Exit::Protocol,
                    "the server sends another part of the file than was asked for",
                );
            }
            let size = told.and_then(|told| told.complete_length);
            if size.is_some() && file.seen.size.is_some() && size != file.seen.size {
                return failed(
                    Exit::Integrity,
                    "the file changed while it was copied; start over",
                );
            }
            self.left = Some(range.len());
            self.body = Some(Box::new(reply.into_body()));
            return Ok(());
        }
        self.take_whole(reply, start, end)
    }

    /// The whole file came. That is no answer to a range, unless it is one's own business to skip.
    fn take_whole(
        &mut self,
        reply: HttpResponse,
        start: u64,
        end: Option<u64>,
    ) -> Result<(), CopyFailure> {
        let file = self.file;
        let length = reply
            .field("content-length")
            .and_then(proto::http::content_range::parse_number);
        if let (Some(length), Some(size)) = (length, file.seen.size)
            && length != size
        {
            let message = format!(
                "cannot {}: the file changed while it was copied; start over",
                file.doing
            );
            return Err(CopyFailure::new(Exit::Integrity, message));
        }
        let wanted = end.or(file.seen.size).or(length);
        let goes_on = wanted.is_some() && wanted != file.seen.size.or(length);
        if (start > 0 || goes_on) && !file.alone {
            file.ignores_ranges.store(true, Ordering::Relaxed);
            let message = format!("cannot {}: the server sends no parts of it", file.doing);
            return Err(CopyFailure::new(Exit::Protocol, message));
        }
        let mut body = reply.into_body();
        let skipped = io::copy(&mut (&mut body).take(start), &mut io::sink());
        self.body = Some(Box::new(body));
        self.left = wanted.map(|wanted| wanted - start);
        match skipped {
            Ok(n) if n == start => Ok(()),
            Ok(_) => Err(self.failure(&io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// All bytes of the piece are here: what follows must be the end, unless they are the beginning of a
    /// whole file.
    fn end(&mut self) -> io::Result<()> {
        if let Some(mut body) = self.body.take()
            && !self.file.alone
            && body.read(&mut [0; 1]).map_err(|e| self.broke(e))? > 0
        {
            let message = format!(
                "cannot {}: the server sends more than it said",
                self.file.doing
            );
            return Err(io::Error::other(CopyFailure::new(Exit::Protocol, message)));
        }
        Ok(())
    }

    fn broke(&self, error: io::Error) -> io::Error {
        let own = error
            .get_ref()
            .and_then(|e| e.downcast_ref::<CopyFailure>());
        match own {
            Some(_) => error,
            None => io::Error::other(self.failure(&error)),
        }
    }

    fn failure(&self, error: &io::Error) -> CopyFailure {
        let own = self.caller.as_ref().and_then(|c| c.dialer.take_failure());
        match own {
            Some(_) => errors::of_error(&self.file.doing, &ureq::Error::HostNotFound, own.as_ref()),
            None => CopyFailure::transient(
                Exit::Unreachable,
                format!(
                    "cannot {}: the connection was lost: {error}",
                    self.file.doing
                ),
            ),
        }
    }
}
