//! PUT of a whole file.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use data::job::{TransferControl, TransferReport, TransferSettings};
use data::send::body::{self, BodyRange};
use data::store::Source;
use proto::http::url::HttpUrl;
use proto::listing::EntryKind;

use super::client::HttpClient;
use super::lookup::{FileUrls, WebDavSupport, examine};
use super::request::{HttpRequest, HttpRequestBody};
use data::error::DataError;
use ftp::failure::Operation;
use ftp::transfer::TransferSpec;
use ftp::transfer::outcome::pull_failure;
use ftp::{Failure, FailureKind};

/// Size from which a body waits for 100 Continue (RFC 9110 section 10.1.1), bytes. A refusal then
/// costs no upload.
const EXPECT_CONTINUE_FROM: u64 = 1 << 20;

/// A failure of the local transfer or of the server.
pub(in crate::storage) enum PutError {
    Data(DataError),
    Refused(Failure),
}

impl From<DataError> for PutError {
    fn from(error: DataError) -> Self {
        Self::Data(error)
    }
}

/// Sends the file, or the part of it that `spec` names.
///
/// # Errors
/// The refusal by its class. `Local` for errors of the source.
pub(super) fn put(
    client: &mut HttpClient,
    target: &HttpUrl,
    source: &dyn Source,
    spec: &TransferSpec,
    settings: &TransferSettings,
    control: &Arc<TransferControl>,
) -> Result<TransferReport, Failure> {
    let action = Operation::on("write", target);
    if spec.destination_offset.is_some_and(|offset| offset > 0) || !spec.completed_ranges.is_empty()
    {
        return Err(action.failed(
            FailureKind::Protocol,
            "HTTP servers accept whole files only",
        ));
    }
    let range = BodyRange {
        offset: spec.part.map_or(0, |(offset, _)| offset),
        length: spec.size.or(spec.part.map(|(_, length)| length)),
    };
    let mut headers = vec![("content-type", "application/octet-stream".to_owned())];
    if let Some(length) = range.length {
        headers.push(("content-length", length.to_string()));
    }
    if range
        .length
        .is_none_or(|length| length >= EXPECT_CONTINUE_FROM)
    {
        headers.push(("expect", "100-continue".to_owned()));
    }
    let request = HttpRequest {
        method: "PUT",
        url: target,
        headers: &headers,
        action: &action,
    };
    let sent = send_file(client, &request, source, range, spec, settings, control);
    sent.map_err(|(status, error)| match (status, error) {
        (Some(status @ (400 | 409)), PutError::Refused(failure)) => {
            refused_name(client, target, status, failure)
        }
        (_, PutError::Refused(failure)) => failure,
        (_, PutError::Data(error)) => {
            pull_failure(&target.authority(), &action, &error, &spec.confirmation)
        }
    })
}

/// Sends one request with bytes of `source` as its body.
///
/// # Errors
/// The status, if there was a response, and why it is none of success.
pub(in crate::storage) fn send_file(
    client: &mut HttpClient,
    request: &HttpRequest<'_>,
    source: &dyn Source,
    range: BodyRange,
    spec: &TransferSpec,
    settings: &TransferSettings,
    control: &Arc<TransferControl>,
) -> Result<TransferReport, (Option<u16>, PutError)> {
    let dialer = Arc::clone(&client.dialer);
    let mut answered = None;
    let sent = body::run(source, range, settings, control, &dialer, |bytes| {
        // From here on the server may have received bytes.
        spec.started.store(true, Ordering::Relaxed);
        let response = client
            .send(request, HttpRequestBody::Bytes(bytes))
            .map_err(PutError::Refused)?;
        let status = response.status();
        answered = Some(status);
        match status {
            200 | 201 | 204 => {
                // The connection can then carry the next request.
                response.discard_body();
                return Ok(());
            }
            // It has stored none of them.
            400..=499 => spec.started.store(false, Ordering::Relaxed),
            _ => {}
        }
        Err(PutError::Refused(
            client.failure_of(request.action, response),
        ))
    });
    sent.map_err(|error| (answered, error))
}

/// The failure of a PUT of which the server may not accept the name. 409 is first of all the status of a missing directory
/// (RFC 4918 section 9.7.1).
fn refused_name(
    client: &mut HttpClient,
    target: &HttpUrl,
    status: u16,
    failure: Failure,
) -> Failure {
    if failure.is_missing() {
        let directory = target.parent();
        let urls = FileUrls {
            requested: directory,
            last_target: None,
        };
        let found = examine(client, &urls, b"", WebDavSupport::Unknown);
        if !found.is_ok_and(|found| found.entry.kind == EntryKind::Dir) {
            return failure;
        }
    }
    let reason = format_args!("the server does not accept this name (HTTP {status})");
    Operation::on("write", target).failed(FailureKind::Refused, reason)
}
