//! Carries out one transfer on its own thread.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use data::channel::SessionDataChannel;
use data::error::DataError;
use data::job::{TransferControl, TransferReport, TransferSettings};
use data::store::{Sink, Source};
use data::{recv, send};
use proto::bundle;
use proto::command::DataType;
use proto::path::VPath;
use proto::server::{CompletedTransfer, TransferError, TransferKind, TransferRequest};
use tokio::sync::mpsc;
use tune::Evidence;

use super::error::transfer_error;
use super::{
    FinishedTransfer, LimiterSummary, LocalHandles, StripeBytes, TransferOrder, TransferSummary,
    WorkerEvent, progress,
};
use crate::files::{
    OpenedBundleSource, OpenedBundleStore, OpenedStore, OpenedTransfer, PassingChecksum,
    UploadClient, transfer_error_of_file,
};
use crate::transfer_log::LoggedTransferKind;

/// Carries out an order and reports events. If the session has ended, it has also cancelled the
/// transfer, and the events are dropped.
pub(super) fn run(
    order: TransferOrder,
    handles: LocalHandles,
    control: &Arc<TransferControl>,
    reports: &mpsc::Sender<WorkerEvent>,
) {
    let LocalHandles {
        files,
        control_socket,
        channel,
        stream_budget,
        rate,
        drs,
        security,
        memory,
        permit,
        striped: _,
    } = handles;
    let mut settings = TransferSettings {
        security,
        ..order.settings(rate, drs)
    };
    if let Some(memory) = &memory {
        memory.apply(&mut settings, control_socket.min_rtt());
    }
    let mut summary = TransferSummary::of(&order.request, settings);
    // The elapsed time is monotonic; `start` is the time of day for the log only.
    let started_at = Instant::now();
    let (channel, delayed) = match order.connections.listen(stream_budget) {
        Ok(None) => (channel, None),
        Ok(Some((channel, addresses))) => (Some(channel), addresses),
        Err(error) => {
            drop(permit);
            return report(reports, WorkerEvent::Listening(Err(error)));
        }
    };
    let TransferOrder {
        request, uploader, ..
    } = order;
    let client = UploadClient {
        uploader,
        control_socket,
        control: Arc::clone(control),
        bytes: data::served::ServedBytes::All,
    };
    let mut transfer = TransferWorker {
        control,
        reports,
        summary: &mut summary,
        channel,
    };
    // The data channel is checked first: a STOR without one must not touch its file.
    let result = transfer
        .check_channel()
        .and_then(|()| {
            files
                .open(&request, &client)
                .map_err(transfer_error_of_file)
        })
        .and_then(|opened| {
            if let Some(addresses) = delayed {
                report(reports, WorkerEvent::Listening(Ok(addresses)));
            }
            transfer.carry_out(opened)
        })
        .map_err(|error| or_client_gone(error, &client));
    let channel = transfer.channel;
    summary.elapsed = started_at.elapsed();
    let measured = memory.filter(|_| result.is_ok()).map(|memory| {
        let (settings, evidence) = (summary.settings.clone(), control.evidence());
        (memory, settings, control.peers(), evidence)
    });
    let finished = finish(control, result, channel, summary);
    // Before the reply: a client may begin the next transfer as soon as it has that.
    drop(permit);
    report(reports, WorkerEvent::Ended(Box::new(finished)));
    // The client does not wait for it.
    if let Some((memory, settings, peers, evidence)) = measured {
        memory.record(&settings, &peers, &evidence);
    }
}

/// Completes the summary from the transfer's statistics, and logs its decisions.
fn finish(
    control: &TransferControl,
    result: Result<(), TransferError>,
    channel: Option<SessionDataChannel>,
    mut summary: TransferSummary,
) -> FinishedTransfer {
    summary.evidence = control.evidence();
    summary.decision = log_buffer_decisions(control);
    log_stream_decisions(control);
    summary.peers = control.peers();
    let last = progress(control, &StripeBytes::default());
    FinishedTransfer {
        result: result.map(|()| CompletedTransfer {
            progress: last.clone(),
            remarks: std::mem::take(&mut summary.limiter.client_remark),
        }),
        last,
        channel,
        stripes: None,
        summary,
    }
}

/// Reports a disconnected client instead of an abort, if the client has left without ABOR.
fn or_client_gone(error: TransferError, client: &UploadClient) -> TransferError {
    match error {
        TransferError::Aborted if client.control_socket.peer_has_closed() => {
            TransferError::Broken("the client has disconnected".to_owned())
        }
        other => other,
    }
}

struct TransferWorker<'a> {
    control: &'a Arc<TransferControl>,
    reports: &'a mpsc::Sender<WorkerEvent>,
    summary: &'a mut TransferSummary,
    channel: Option<SessionDataChannel>,
}

impl TransferWorker<'_> {
    fn check_channel(&self) -> Result<(), TransferError> {
        match &self.channel {
            Some(channel) if channel.is_usable() => Ok(()),
            _ => Err(TransferError::NoConnection(
                "no data connection: send PASV, EPSV, PORT or EPRT first".to_owned(),
            )),
        }
    }

    fn carry_out(&mut self, opened: OpenedTransfer) -> Result<(), TransferError> {
        match opened {
            OpenedTransfer::Send(sending) => {
                self.summary.path = sending.path;
                let checksum = sending.checksum;
                self.summary.settings.checksum = checksum.as_ref().map(PassingChecksum::algorithm);
                self.announce(true, None);
                let report = self.with_channel(|channel, settings, control| {
                    send::run(channel, &sending.source, &sending.plan, settings, control)
                })?;
                self.summary.limiter = LimiterSummary::of(&report);
                if let Some(checksum) = checksum {
                    checksum.sent(&report);
                }
                Ok(())
            }
            OpenedTransfer::Receive(storing) => self.store(storing),
            OpenedTransfer::SendBundle(bundle) => self.send_bundle(bundle),
            OpenedTransfer::ReceiveBundle(bundle) => self.receive_bundle(bundle),
        }
    }

    fn send_bundle(&mut self, bundle: OpenedBundleSource) -> Result<(), TransferError> {
        self.summary.settings.checksum = Some(bundle::CHECKSUM);
        self.announce(true, None);
        let source: Arc<dyn Source> = Arc::clone(&bundle.source) as Arc<dyn Source>;
        let report = self.with_channel(|channel, settings, control| {
            send::run(channel, &source, &bundle.plan, settings, control)
        })?;
        self.summary.limiter = LimiterSummary::of(&report);
        bundle.sent(report.checksum);
        Ok(())
    }

    fn receive_bundle(&mut self, bundle: OpenedBundleStore) -> Result<(), TransferError> {
        self.summary.settings.checksum = Some(bundle::CHECKSUM);
        self.announce(false, None);
        let sink: Arc<dyn Sink> = Arc::clone(&bundle.sink) as Arc<dyn Sink>;
        let report = self.with_channel(|channel, settings, control| {
            recv::run(channel, &sink, &bundle.plan, settings, control)
        })?;
        self.summary.limiter = LimiterSummary::of(&report);
        let (arrived, announced) = (report.evidence.bytes, bundle.sink.total());
        if arrived != announced {
            return Err(TransferError::Broken(format!(
                "{arrived} of the {announced} bytes of the bundle arrived"
            )));
        }
        bundle.received(report.checksum);
        Ok(())
    }

    fn store(&mut self, storing: OpenedStore) -> Result<(), TransferError> {
        self.summary.path = storing.path.clone();
        self.summary.settings.checksum = storing.checksum_algorithm;
        let unique_name = storing.has_unique_name.then(|| storing.path.clone());
        self.announce(false, unique_name);
        let upload = Arc::clone(storing.upload());
        self.receive(storing).map_err(|error| match error {
            TransferError::Aborted if upload.was_taken_over() => TransferError::Superseded,
            other => other,
        })
    }

    fn receive(&mut self, storing: OpenedStore) -> Result<(), TransferError> {
        let received = self.with_channel(|channel, settings, control| {
            recv::run(channel, &storing.sink, &storing.plan, settings, control)
        });
        let report = match received {
            Ok(report) => report,
            Err(error) => {
                storing.abandon();
                return Err(error);
            }
        };
        self.summary.limiter = LimiterSummary::of(&report);
        // Verification may read the whole file, so ABOR must be able to stop it.
        let go_on = &mut |_| !self.control.is_cancelled();
        // After a successful finish the file is on disk as far as the policy says, so all its ranges
        // can be reported as synced.
        self.summary.digest = self.control.checkpoint(|| storing.finish(&report, go_on))?;
        Ok(())
    }

    fn announce(&self, sending: bool, unique_name: Option<VPath>) {
        let reused = self.channel.as_ref().is_some_and(|c| c.has_cached(sending));
        report(
            self.reports,
            WorkerEvent::Opened {
                reused,
                unique_name,
                stripes: 0,
            },
        );
    }

    fn with_channel(
        &mut self,
        run: impl FnOnce(
            &mut SessionDataChannel,
            &TransferSettings,
            &Arc<TransferControl>,
        ) -> Result<TransferReport, DataError>,
    ) -> Result<TransferReport, TransferError> {
        let Some(channel) = &mut self.channel else {
            return self.check_channel().map(|()| TransferReport::default());
        };
        run(channel, &self.summary.settings, self.control).map_err(|error| {
            if matches!(error, DataError::Security { .. }) {
                tracing::warn!(%error, "a protected data connection was refused");
                self.summary.failed_check = Some(error.to_string());
            }
            transfer_error(&error)
        })
    }
}

impl TransferSummary {
    pub(super) fn of(request: &TransferRequest, mut settings: TransferSettings) -> Self {
        if matches!(request.kind, TransferKind::List(_)) {
            // Listings have CR LF line ends already; TYPE A would translate them to CR CR LF.
            settings.type_ = DataType::Image;
        }
        Self {
            start: SystemTime::now(),
            elapsed: Duration::ZERO,
            direction: LoggedTransferKind::of(&request.kind),
            path: request.kind.path().clone(),
            settings,
            evidence: Evidence::default(),
            peers: Vec::new(),
            decision: None,
            limiter: LimiterSummary::default(),
            digest: None,
            failed_check: None,
        }
    }
}

/// Logs the decisions about buffer sizes, and returns the last reason.
fn log_buffer_decisions(control: &TransferControl) -> Option<String> {
    let decisions = control.take_decisions();
    for decision in &decisions {
        tracing::debug!(
            stream = decision.stream,
            seconds = decision.at.as_secs_f64(),
            limiter = decision.limiter.name(),
            change = ?decision.setting,
            reason = %decision.reason,
            "buffer decision"
        );
    }
    decisions.into_iter().last().map(|last| last.reason)
}

/// Logs the decisions about the number of streams.
fn log_stream_decisions(control: &TransferControl) {
    for decision in control.take_stream_decisions() {
        tracing::debug!(
            seconds = decision.at.as_secs_f64(),
            limiter = decision.limiter.name(),
            step = ?decision.setting,
            reason = %decision.reason,
            "stream decision"
        );
    }
}

fn report(reports: &mpsc::Sender<WorkerEvent>, event: WorkerEvent) {
    // Fails only if the session has ended; then nobody needs the event.
    let _ = reports.blocking_send(event);
}
