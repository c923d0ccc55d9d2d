//! A transfer from beginning to end, on a blocking thread.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use data::channel::Channel;
use data::job::{Control, Report, Settings};
use data::{recv, send};
use proto::command::Type;
use proto::path::VPath;
use proto::server::{TransferDone, TransferError, TransferKind, TransferRequest};
use tokio::sync::mpsc;
use tune::Evidence;

use super::error::transfer_error;
use super::{Ended, Event, Limits, LocalHandles, Summary, TransferOrder, progress};
use crate::files::{Opened, Storer, Storing, transfer_failure};
use crate::transfer_log::Direction;

/// Carries out an order and reports. A session that is gone takes no reports: it has cancelled.
pub(super) fn run(
    order: TransferOrder,
    handles: LocalHandles,
    control: &Arc<Control>,
    reports: &mpsc::Sender<Event>,
) {
    let LocalHandles {
        files,
        line,
        channel,
        streams,
        rate,
        drs,
        place: _place,
    } = handles;
    let mut summary = Summary::of(&order.request, order.settings(rate, drs));
    let begun = Instant::now();
    let (channel, delayed) = match order.connections.listen(streams) {
        Ok(None) => (channel, None),
        Ok(Some((channel, addresses))) => (Some(channel), addresses),
        Err(error) => return report(reports, Event::Listening(Err(error))),
    };
    let TransferOrder {
        request, uploader, ..
    } = order;
    let storer = Storer {
        uploader,
        line,
        control: Arc::clone(control),
    };
    let mut transfer = Transfer {
        control,
        reports,
        summary: &mut summary,
        channel,
    };
    // The channel comes first: a STOR that has none does not touch the file it names.
    let result = transfer
        .check_channel()
        .and_then(|()| files.open(&request, &storer).map_err(transfer_failure))
        .and_then(|opened| {
            if let Some(addresses) = delayed {
                report(reports, Event::Listening(Ok(addresses)));
            }
            transfer.carry_out(opened)
        })
        .map_err(|error| unless_gone(error, &storer));
    let channel = transfer.channel;
    summary.elapsed = begun.elapsed();
    summary.evidence = control.evidence();
    summary.decision = log_decisions(control);
    log_stream_decisions(control);
    summary.peers = control.peers();
    let last = progress(control);
    let ended = Ended {
        result: result.map(|()| TransferDone {
            progress: last.clone(),
            said: std::mem::take(&mut summary.limits.said),
        }),
        last,
        channel,
        summary,
    };
    report(reports, Event::Ended(Box::new(ended)));
}

/// Nobody aborted what a client left behind.
fn unless_gone(error: TransferError, storer: &Storer) -> TransferError {
    match error {
        TransferError::Aborted if storer.line.has_ended() => {
            TransferError::Broken("client is gone".to_owned())
        }
        other => other,
    }
}

struct Transfer<'a> {
    control: &'a Arc<Control>,
    reports: &'a mpsc::Sender<Event>,
    summary: &'a mut Summary,
    channel: Option<Channel>,
}

impl Transfer<'_> {
    fn check_channel(&self) -> Result<(), TransferError> {
        match &self.channel {
            Some(channel) if channel.usable() => Ok(()),
            _ => Err(TransferError::NoConnection(
                "no data connection: send PASV, EPSV, PORT or EPRT first".to_owned(),
            )),
        }
    }

    fn carry_out(&mut self, opened: Opened) -> Result<(), TransferError> {
        match opened {
            Opened::Send(sending) => {
                self.summary.path = sending.path;
                self.announce(true, None);
                let report = self.with_channel(|channel, settings, control| {
                    send::run(channel, &sending.source, &sending.plan, settings, control)
                })?;
                self.summary.limits = Limits::of(&report);
                Ok(())
            }
            Opened::Receive(storing) => self.store(storing),
        }
    }

    fn store(&mut self, storing: Storing) -> Result<(), TransferError> {
        self.summary.path = storing.path.clone();
        self.summary.settings.sum = storing.sum;
        let unique_name = storing.unique.then(|| storing.path.clone());
        self.announce(false, unique_name);
        let upload = Arc::clone(storing.upload());
        self.receive(storing).map_err(|error| match error {
            TransferError::Aborted if upload.was_taken_over() => TransferError::TakenOver,
            other => other,
        })
    }

    fn receive(&mut self, storing: Storing) -> Result<(), TransferError> {
        let report = self.with_channel(|channel, settings, control| {
            recv::run(channel, &storing.sink, &storing.plan, settings, control)
        })?;
        self.summary.limits = Limits::of(&report);
        let go_on = &mut |_| !self.control.cancelled();
        // A good end has forced everything to disk that was to be.
        self.summary.digest = self.control.checkpoint(|| storing.finish(&report, go_on))?;
        Ok(())
    }

    fn announce(&self, sending: bool, unique_name: Option<VPath>) {
        let reused = self.channel.as_ref().is_some_and(|c| c.has_cached(sending));
        report(
            self.reports,
            Event::Opened {
                reused,
                unique_name,
            },
        );
    }

    fn with_channel(
        &mut self,
        run: impl FnOnce(
            &mut Channel,
            &Settings,
            &Arc<Control>,
        ) -> Result<Report, data::error::DataError>,
    ) -> Result<Report, TransferError> {
        let Some(channel) = &mut self.channel else {
            return self.check_channel().map(|()| Report::default());
        };
        run(channel, &self.summary.settings, self.control).map_err(|error| transfer_error(&error))
    }
}

impl Summary {
    fn of(request: &TransferRequest, mut settings: Settings) -> Self {
        let (direction, path) = match &request.what {
            TransferKind::Retrieve { path, .. } => (Direction::Retrieve, path),
            TransferKind::Store { path, .. } => (Direction::Store, path),
            TransferKind::List(list) => {
                // Listings are written with CR LF already; translated they would end CR CR LF.
                settings.type_ = Type::Image;
                (Direction::List, &list.path)
            }
        };
        Self {
            start: SystemTime::now(),
            elapsed: Duration::ZERO,
            direction,
            path: path.clone(),
            settings,
            evidence: Evidence::default(),
            peers: Vec::new(),
            decision: None,
            limits: Limits::default(),
            digest: None,
        }
    }
}

/// Tells what was decided about buffers, and gives the last reason.
fn log_decisions(control: &Control) -> Option<String> {
    let decisions = control.decisions();
    for decision in &decisions {
        tracing::debug!(
            stream = decision.stream,
            seconds = decision.at.as_secs_f64(),
            limiter = decision.limiter.name(),
            change = ?decision.change,
            reason = %decision.reason,
            "buffer decision"
        );
    }
    decisions.into_iter().last().map(|last| last.reason)
}

/// Tells what was decided about the streams that were sent over.
fn log_stream_decisions(control: &Control) {
    for decision in control.stream_decisions() {
        tracing::debug!(
            seconds = decision.at.as_secs_f64(),
            limiter = decision.limiter.name(),
            step = ?decision.step,
            reason = %decision.reason,
            "stream decision"
        );
    }
}

fn report(reports: &mpsc::Sender<Event>, event: Event) {
    // Fails only when the session is gone; then nobody needs to know.
    let _ = reports.blocking_send(event);
}
