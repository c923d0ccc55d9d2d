//! PUT: a whole file, from its first byte to its last.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use data::job::{TransferControl, TransferReport, TransferSettings};
use data::send::body::{self, BodyRange};
use data::store::Source;
use proto::http::url::HttpUrl;

use super::client::{HttpClient, HttpRequest, HttpRequestBody};
use super::errors;
use crate::transfer::TransferSpec;
use crate::transfer::outcome::pull_failure;
use crate::{CopyFailure, Exit};
use data::error::DataError;

/// Bodies from this size on wait for the server's consent (RFC 9110 §10.1.1), bytes: a refusal then costs no upload.
const WORTH_ASKING: u64 = 1 << 20;

/// A failure on either side.
enum PutError {
    Data(DataError),
    Refused(CopyFailure),
}

impl From<DataError> for PutError {
    fn from(error: DataError) -> Self {
        Self::Data(error)
    }
}

/// Sends the file, or the part of it that `spec` names.
///
/// # Errors
/// The refusal by its class; `Local` for the source's errors.
pub(super) fn put(
    caller: &mut HttpClient,
    target: &HttpUrl,
    source: &dyn Source,
    spec: &TransferSpec,
    settings: &TransferSettings,
    control: &Arc<TransferControl>,
) -> Result<TransferReport, CopyFailure> {
    let doing = format!("write {target}");
    if spec.destination_offset.is_some_and(|place| place > 0) || !spec.completed_ranges.is_empty() {
        let message = format!("cannot {doing}: HTTP servers take whole files only");
        return Err(CopyFailure::new(Exit::Protocol, message));
    }
    let extent = BodyRange {
        offset: spec.part.map_or(0, |(offset, _)| offset),
        length: spec.size.or(spec.part.map(|(_, length)| length)),
    };
    let mut fields = vec![("content-type", "application/octet-stream".to_owned())];
    if let Some(length) = extent.length {
        fields.push(("content-length", length.to_string()));
    }
    if extent.length.is_none_or(|length| length >= WORTH_ASKING) {
        fields.push(("expect", "100-continue".to_owned()));
    }
    let dialer = Arc::clone(&caller.dialer);
    let sent = body::run(source, extent, settings, (control, &dialer), |bytes| {
        let ask = HttpRequest {
            method: "PUT",
            target,
            fields: &fields,
            doing: &doing,
        };
        spec.started.store(true, Ordering::Relaxed);
        let reply = caller
            .ask(&ask, HttpRequestBody::Bytes(bytes))
            .map_err(PutError::Refused)?;
        let done = match reply.status() {
            200 | 201 | 204 => Ok(()),
            _ => Err(PutError::Refused(errors::of_status(&doing, &reply))),
        };
        reply.skip();
        done
    });
    sent.map_err(|broken| match broken {
        PutError::Refused(failure) => failure,
        PutError::Data(error) => {
            pull_failure(&target.authority(), &doing, &error, &spec.confirmation)
        }
    })
}
