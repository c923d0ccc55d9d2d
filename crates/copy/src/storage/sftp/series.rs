//! Series: many small files over one connection, with requests about many of them ahead of replies.
//!
//! A server carries out the requests about one file in their order (section 6.1 of the draft). So a file takes three round trips
//! whatever its size: its handle; its bytes and all that proves them; its name. Those of different files overlap.
//!
//! A file that fails in any way fails alone, and is copied by itself later. A lost connection ends the series.

use std::sync::Arc;

use data::job::{TransferControl, TransferReport, TransferSettings};
use ftp::Failure;
use ftp::failure::Operation;
use ftp::transfer::TransferSpec;
use ftp::transfer::series::files::{SeriesEnd, SeriesFile};
use proto::bundle::BundleFailure;

use super::connection::SftpConnection;
use super::series_requests::SeriesRequests;
use super::{series_fetch, series_store};

/// Files to move, with the paths that the server has.
pub(super) struct SeriesJob {
    pub(super) server: String,
    pub(super) files: Vec<SeriesFile>,
    pub(super) end: SeriesEnd,
    /// Partial files of earlier attempts, which are removed at the end.
    pub(super) stale: Vec<Vec<u8>>,
    /// Stored files are forced to disk.
    pub(super) syncs: bool,
    pub(super) spec: TransferSpec,
    pub(super) settings: TransferSettings,
}

/// The files so far, by their positions in the bundle.
#[derive(Debug, Default)]
pub(super) struct SeriesOutcome {
    pub(super) moved: Vec<usize>,
    pub(super) begun: Vec<usize>,
    pub(super) failed: Vec<BundleFailure>,
}

/// The end of a series.
pub(super) struct EndedSeries {
    /// `None`: it is lost.
    pub(super) connection: Option<SftpConnection>,
    pub(super) outcome: SeriesOutcome,
    pub(super) result: Result<TransferReport, Failure>,
}

impl SeriesJob {
    /// Moves the files. Runs on a thread for blocking calls.
    pub(super) fn run(
        self,
        connection: SftpConnection,
        control: &Arc<TransferControl>,
    ) -> EndedSeries {
        let requests = SeriesRequests::new(connection, self.settings.options.stall);
        let (requests, result) = match &self.end {
            SeriesEnd::Receive(sink) => series_fetch::run(&self, sink, requests, control),
            SeriesEnd::Send(source) => series_store::run(&self, source, requests, control),
        };
        let Some(requests) = requests else {
            return EndedSeries {
                connection: None,
                outcome: SeriesOutcome::default(),
                result,
            };
        };
        let (connection, outcome) = requests.end();
        EndedSeries {
            // After an error nobody knows which replies are still to come.
            connection: Some(connection).filter(|_| result.is_ok()),
            outcome,
            result,
        }
    }

    pub(super) fn operation(&self) -> Operation {
        let verb = match self.end {
            SeriesEnd::Receive(_) => "read",
            SeriesEnd::Send(_) => "write",
        };
        Operation::from(format!("{verb} {} files", self.files.len()))
    }
}
