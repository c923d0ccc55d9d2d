//! PUT: a whole file, from its first byte to its last.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use data::job::{Control, Report, Settings};
use data::send::body::{self, Extent};
use data::store::Source;
use proto::http::target::Target;

use super::caller::{Ask, Caller, Payload};
use super::refusal;
use crate::transfer::TransferSpec;
use crate::transfer::verdict::of_pull;
use crate::{Exit, Failure};
use data::error::DataError;

/// Bodies from this size on wait for the server's consent (RFC 9110 §10.1.1), bytes: a refusal then costs no upload.
const WORTH_ASKING: u64 = 1 << 20;

/// A failure on either side.
enum Broken {
    Data(DataError),
    Refused(Failure),
}

impl From<DataError> for Broken {
    fn from(error: DataError) -> Self {
        Self::Data(error)
    }
}

/// Sends the file, or the part of it that `spec` names.
///
/// # Errors
/// The refusal by its class; `Local` for the source's errors.
pub(super) fn put(
    caller: &mut Caller,
    target: &Target,
    source: &dyn Source,
    spec: &TransferSpec,
    settings: &Settings,
    control: &Arc<Control>,
) -> Result<Report, Failure> {
    let doing = format!("write {target}");
    if spec.place.is_some_and(|place| place > 0) || !spec.have.is_empty() {
        let message = format!("cannot {doing}: HTTP servers take whole files only");
        return Err(Failure::new(Exit::Protocol, message));
    }
    let extent = Extent {
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
        let ask = Ask {
            method: "PUT",
            target,
            fields: &fields,
            doing: &doing,
        };
        spec.begun.store(true, Ordering::Relaxed);
        let reply = caller
            .ask(&ask, Payload::Bytes(bytes))
            .map_err(Broken::Refused)?;
        let done = match reply.status() {
            200 | 201 | 204 => Ok(()),
            _ => Err(Broken::Refused(refusal::of_status(&doing, &reply))),
        };
        reply.skip();
        done
    });
    sent.map_err(|broken| match broken {
        Broken::Refused(failure) => failure,
        Broken::Data(error) => of_pull(&target.authority(), &doing, &error, &spec.said),
    })
}
