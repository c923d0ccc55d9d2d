//! Series: many files over one session, each with its own transfer command, and commands sent ahead of replies
//! ([`proto::client::SeriesWindow`]).
//!
//! A file counts as moved only after everything that a copy of it alone would prove: its bytes are complete, the server
//! has confirmed the transfer, its checksum or size is right, and a stored file has its name.

use std::sync::Arc;
use std::time::Duration;

use data::job::TransferControl;
use data::store::Sink;
use data::store::bundle::BundleSource;
use proto::bundle::BundleFailure;
use proto::client::CommandLead;
use proto::timestamp::Timestamp;

use super::{TransferAttempt, TransferSpec};
use crate::CopyFailure;
use crate::session::ClientSession;

mod dialogue;
mod exchange;
mod local_end;

use dialogue::SeriesDialogue;

/// Longest wait for a reply, or for data, while commands are ahead: a server that discards commands is noticed by its
/// silence.
const MAX_SILENCE: Duration = Duration::from_secs(20);

/// A file of a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeriesFile {
    /// Its position in the bundle.
    pub(crate) index: usize,
    /// Its offset in the bytes of the bundle, bytes.
    pub(crate) start: u64,
    /// Size, bytes.
    pub(crate) size: u64,
    /// Path at the server.
    pub(crate) path: Vec<u8>,
    /// Path at the server until the file is complete and verified (puts).
    pub(crate) partial: Vec<u8>,
    /// Modification time that a stored file gets.
    pub(crate) modified: Option<Timestamp>,
}

/// This machine's end: all files, one directly after the other.
#[derive(Debug, Clone)]
pub(crate) enum SeriesEnd {
    /// Files are fetched.
    Receive(Arc<dyn Sink>),
    /// Files are stored.
    Send(Arc<BundleSource>),
}

/// Files to move in this order.
#[derive(Debug)]
pub(crate) struct FileSeries {
    pub(crate) files: Vec<SeriesFile>,
    pub(crate) end: SeriesEnd,
    /// How far commands may go ahead of replies.
    pub(crate) lead: CommandLead,
}

/// Outcome of the files so far.
#[derive(Debug, Default)]
pub(crate) struct SeriesReport {
    /// Positions of the files that are moved and verified.
    pub(crate) moved: Vec<usize>,
    /// Files that the server refused, or whose bytes are wrong.
    pub(crate) failed: Vec<BundleFailure>,
    /// How far commands may go ahead of replies in later sessions.
    pub(crate) lead: CommandLead,
    /// The last transfer, with the bytes of all.
    pub(crate) attempt: TransferAttempt,
}

/// Moves the files of `series`. `report` counts also when the series ends early; files that it does not name are not
/// moved.
///
/// # Errors
/// The session is lost, or the server's replies cannot be followed: drop it.
pub(crate) async fn move_series(
    session: &mut ClientSession,
    series: &FileSeries,
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
    report: &mut SeriesReport,
) -> Result<(), CopyFailure> {
    report.lead = series.lead;
    let patience = session.control.reply_timeout();
    let mut spec = spec.clone();
    if series.lead > CommandLead::Lockstep {
        session.control.set_reply_timeout(patience.min(MAX_SILENCE));
        spec.options.stall = spec.options.stall.min(MAX_SILENCE);
    }
    let result = SeriesDialogue::new(&mut *session, series, (&spec, control), report)
        .run()
        .await;
    session.control.set_reply_timeout(patience);
    result
}

#[cfg(test)]
mod tests;
