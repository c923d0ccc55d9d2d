//! Series: many files over one session, each with its own transfer command, and commands sent ahead of replies
//! ([`proto::client::SeriesWindow`]).
//!
//! A file counts as moved only after everything that a copy of it alone would prove: its bytes are complete, the server
//! has confirmed the transfer, its checksum or size is right, and a stored file has its name.

use std::sync::Arc;

use data::job::TransferControl;
use proto::client::CommandLead;

use super::TransferSpec;
use crate::Failure;
use crate::session::{ClientSession, MAX_SILENCE};

mod ahead;
mod dialogue;
mod exchange;
pub mod files;
mod local_end;

use dialogue::SeriesDialogue;
use files::{FileSeries, SeriesReport};

/// Moves the files of `series`. `report` counts also when the series ends early; files that it does not name are not
/// moved.
///
/// # Errors
/// The session is lost, or the server's replies cannot be followed: drop it.
pub async fn move_series(
    session: &mut ClientSession,
    series: &FileSeries,
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
    report: &mut SeriesReport,
) -> Result<(), Failure> {
    report.lead = series.lead;
    let patience = session.control.reply_timeout();
    let mut spec = spec.clone();
    if series.lead > CommandLead::Lockstep {
        session.control.set_reply_timeout(patience.min(MAX_SILENCE));
        spec.options.stall = spec.options.stall.min(MAX_SILENCE);
    }
    let result = SeriesDialogue::new(&mut *session, series, &spec, control, report)
        .run()
        .await;
    session.control.set_reply_timeout(patience);
    result
}

#[cfg(test)]
mod tests;
