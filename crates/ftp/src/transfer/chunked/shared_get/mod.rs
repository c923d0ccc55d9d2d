//! Gets from servers that keep the number of streams they are told: one long transfer, which this end
//! watches. More streams come with further sessions that take ranges from the file's end
//! ([`range_board`]); the session that fetched such a range until then stops where the other begins.
//! Nothing is stopped and started again, so that slow start is paid once.
//!
//! In MODE E a session has several streams, in MODE S one.

mod fetch;
mod further_sessions;
mod range_board;

use std::sync::Arc;

use data::job::TransferControl;
use data::store::Sink;
use proto::command::TransferMode;
use proto::ranges::RangeSet;

use self::fetch::{SessionStreams, SharedFetch};
use self::further_sessions::FurtherSessions;
use crate::Failure;
use crate::session::ClientSession;
use crate::transfer::{TransferAttempt, TransferSpec, negotiation, restart};

/// Fetches the `missing` ranges of the destination over `session`, and over further ones as far as they pay
/// and the server permits them.
///
/// # Errors
/// As a get in one piece; of several sessions that failed, the failure of the last one.
pub(super) async fn get(
    session: &mut ClientSession,
    path: &[u8],
    sink: Arc<dyn Sink>,
    missing: RangeSet,
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
) -> Result<TransferAttempt, Failure> {
    let mut warnings = Vec::new();
    let may_extend = session.planner.may_use_extended_mode() && session.server_can_connect();
    let mode = match may_extend {
        true => negotiation::get_mode(session, spec, &mut warnings),
        // A plain FTP server, or one behind a proxy, is no reason for a warning: several sessions do as well.
        false => TransferMode::Stream,
    };
    let (rtt, opener) = (session.rtt(), session.opener());
    let fetch = SharedFetch::new(path, sink, mode, spec, control, missing, rtt);
    let fetch = Arc::new(fetch);
    let mut further = FurtherSessions::new(&fetch, opener, spec.max_streams.max(spec.streams));
    let streams = match mode {
        TransferMode::Extended => spec.streams.max(1),
        // The first number of streams is one of sessions.
        TransferMode::Stream => {
            further.open(spec.streams.saturating_sub(1));
            1
        }
    };
    let first = SessionStreams { number: 0, streams };
    loop {
        let fetching = fetch.fetch_ranges(session, first);
        further.run_beside(fetching).await?;
        if fetch.is_complete() {
            break;
        }
        // Others have ended early and left ranges.
        if !session.is_usable() {
            return Err(fetch.failure(session.name()));
        }
    }
    if fetch.lacks_restart_proof() && restart::needs_proof(session, TransferMode::Stream) {
        let proved = match session.is_usable() {
            true => restart::prove(session, path, spec).await,
            false => {
                let mut another = session.open_another().await?;
                let proved = restart::prove(&mut another, path, spec).await;
                session.note_restart(another.habits().restart);
                proved
            }
        };
        // All ranges are in doubt, also those that the server has confirmed.
        proved.inspect_err(|_| spec.confirmation.mark_misplaced())?;
    }
    let mut attempt = fetch.finish();
    warnings.append(&mut attempt.warnings);
    Ok(TransferAttempt {
        warnings,
        ..attempt
    })
}

#[cfg(test)]
mod tests;
