//! Drives `tune::streams::auto` for a sender: passes it samples of all streams, and applies its
//! decisions.

use std::collections::HashMap;
use std::fmt::Write;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use proto::command::TransferMode;
use tune::Prior;
use tune::congestion::is_starved_by_pacing;
use tune::sample::{StreamId, TcpSample};
use tune::streams::auto::{
    self, AutoLimits, AutoTuner, LimiterVerdict, TransferDecision, TransferSetting,
};

use crate::options::CongestionChoice;
use crate::os::congestion::{is_lasting, settable};
use crate::os::sockopt;
use crate::settings::TransferSettings;
use crate::stream::DataStream;
use crate::transfer::ActiveTransfer;
use crate::tuning_sample::{SampledStream, TuningSample};

/// Streams, congestion control and pacing of one sending transfer.
pub(super) struct StreamTuning<'t> {
    transfer: &'t ActiveTransfer,
    settings: &'t TransferSettings,
    /// Number of bytes to send, if it is known.
    bytes: Option<u64>,
    /// Made at the first sample, from the streams that exist then.
    auto: Option<AutoTuner>,
    /// The decided congestion control, also for streams that join later.
    congestion: Option<String>,
    /// The decided pacing rate over all streams, bytes per second.
    pace: Option<u64>,
    applied: HashMap<StreamId, AppliedStreamSettings>,
    /// Streams that have another congestion control than the others, to compare.
    beside: Vec<Weak<DataStream>>,
    moved: u64,
}

/// Settings applied to one stream.
struct AppliedStreamSettings {
    stream: Weak<DataStream>,
    congestion: Option<String>,
    /// Pacing rate, bytes per second.
    pace: Option<u64>,
    /// When its congestion control was begun anew, since the transfer's start.
    restarted: Option<Duration>,
}

/// Time that a congestion control which was begun anew has to measure the path before it may be again.
const RESTART_PAUSE: Duration = Duration::from_secs(2);

impl<'t> StreamTuning<'t> {
    /// `None` if the settings do not ask for any tuning.
    pub(super) fn for_transfer(
        transfer: &'t ActiveTransfer,
        settings: &'t TransferSettings,
        bytes: Option<u64>,
    ) -> Option<Self> {
        let wanted = settings.adapt || settings.options.congestion == CongestionChoice::Auto;
        wanted.then(|| Self {
            transfer,
            settings,
            bytes,
            auto: None,
            congestion: None,
            pace: None,
            applied: HashMap::new(),
            beside: Vec::new(),
            moved: 0,
        })
    }

    /// Processes a sample of all streams. `acknowledged_before` is the number of bytes acknowledged
    /// on streams that had ended before the sample.
    pub(super) fn on_sample(&mut self, sample: &TuningSample<'_>, acknowledged_before: u64) {
        let stream_set = self.transfer.stream_set();
        let leaving = stream_set.leaving_ids();
        let samples: Vec<TcpSample> = sample
            .streams
            .iter()
            .map(|sampled| sampled.sample)
            .filter(|tcp_sample| !leaving.contains(&tcp_sample.stream))
            .collect();
        let in_force = self.current_congestion(&sample.streams);
        self.moved = self
            .moved
            .max(acknowledged_before + acknowledged(&sample.streams));
        let sampled = auto::TransferSample {
            at: sample.at,
            bytes_moved: self.moved,
            bytes_left: self
                .bytes
                .map(|all| all.saturating_sub(self.transfer.moved())),
            streams: &samples,
            streams_opening: count(stream_set.opening_count()),
            congestion_control: in_force.as_deref().unwrap_or_default(),
            rate_limit: self.rate_limit(),
        };
        let streams = count(stream_set.wanted().max(1));
        let mut auto = self.auto.take().unwrap_or_else(|| {
            let limits = tuner_limits(self.settings, streams);
            AutoTuner::from_prior(
                limits,
                self.initial_prior(streams, &sample.streams, in_force.as_ref()),
            )
        });
        if stream_set.take_open_failure() {
            // Not repeated: the tuner requests no more streams than could be opened.
            auto.on_stream_refused(count(
                stream_set.active_count() + stream_set.opening_count(),
            ));
        }
        for decision in auto.on_sample(&sampled) {
            self.apply_decision(&mut auto, decision, sample);
        }
        sample.notices.set_limiter(auto.limiter());
        self.auto = Some(auto);
        self.apply_to_streams(&sample.streams);
        if self.settings.options.congestion.pinned_name().is_none() {
            self.restart_starved_streams(sample);
        }
    }

    /// Prior knowledge of the path, with the present number of streams.
    fn initial_prior(
        &self,
        streams: u32,
        sampled: &[SampledStream],
        in_force: Option<&String>,
    ) -> Prior {
        let mut prior = self.settings.prior.clone();
        prior.streams = Some(streams);
        // An earlier transfer over these connections has settled on one.
        let is_decided = |s: &SampledStream| s.stream.is_congestion_decided();
        if let Some(settled) = &self.congestion {
            prior.congestion_control = Some(settled.clone());
        } else if prior.congestion_control.is_none() && sampled.iter().any(is_decided) {
            prior.congestion_control = in_force.cloned();
        }
        prior
    }

    /// The rate limit as an input of the tuner. An exhausted budget limits every transfer that
    /// shares it, however fast that transfer is; an unused one limits none.
    fn rate_limit(&self) -> Option<u64> {
        let limit = self.settings.options.rate.as_ref()?;
        limit.is_exhausted().then_some(0)
    }

    /// The present congestion control. At the first sample of connections that an earlier transfer
    /// changed, this is the one they had before: the tuner takes the first one it sees for the
    /// system's, and returns to it when others share the path. Streams that join get the changed
    /// one.
    fn current_congestion(&mut self, sampled: &[SampledStream]) -> Option<String> {
        // A stream that joins has the system's until the decided one is set on it.
        let decided = self.congestion.clone().filter(|_| self.beside.is_empty());
        if decided.is_some() {
            return decided;
        }
        let now = sampled.last()?.stream.congestion();
        if self.auto.is_some() || self.settings.options.congestion != CongestionChoice::Auto {
            return now;
        }
        let changed = sampled.iter().find_map(|SampledStream { stream, .. }| {
            let (own, now) = (stream.first_congestion()?, stream.congestion()?);
            (own != now).then_some((own, now))
        });
        let Some((own, applied)) = changed else {
            return now;
        };
        self.congestion = Some(applied);
        Some(own)
    }

    /// Time from the last sample to the next.
    pub(super) fn due(&self) -> Duration {
        self.auto
            .as_ref()
            .map_or(Duration::ZERO, AutoTuner::next_sample_in)
    }

    /// Ends the tuning: removes the pacing rate from connections that outlive the transfer.
    pub(super) fn end(&mut self) {
        self.end_comparison();
        self.end_trial();
        for applied in self
            .applied
            .values()
            .filter(|applied| applied.pace.is_some())
        {
            if let Some(stream) = applied.stream.upgrade() {
                let lifted = sockopt::set_max_pacing_rate(stream.as_fd(), None);
                tracing::debug!(stream = stream.id(), ?lifted, "pacing rate removed");
            }
        }
        if let Some(auto) = &self.auto {
            let verdict = auto.verdict();
            // Streams that were requested when nothing was left to send do not count.
            let streams = self
                .transfer
                .final_stream_count()
                .unwrap_or(verdict.streams);
            self.transfer
                .note_verdict(LimiterVerdict { streams, ..verdict });
            self.transfer
                .note_path(auto.pacing_rate(), auto.path_rate());
            self.note_prior_use(auto);
        }
    }

    /// Reports with which known settings the transfer began, and what became of them.
    fn note_prior_use(&self, auto: &AutoTuner) {
        let Some(known) = self.settings.prior.describe_settings() else {
            return;
        };
        let mut text = format!("it began with {known}, by what was known of the path");
        if let Some(disagreement) = auto.prior_disagreement() {
            let _ = write!(
                text,
                "; that did not hold for this path: {}",
                disagreement.describe()
            );
        }
        self.transfer.note_prior_use(text);
    }

    fn apply_decision(
        &mut self,
        auto: &mut AutoTuner,
        mut decision: TransferDecision,
        sample: &TuningSample<'_>,
    ) {
        match &decision.setting {
            None => {}
            Some(TransferSetting::Streams(streams)) => {
                let streams = usize::try_from(*streams).unwrap_or(usize::MAX);
                self.transfer.stream_set().set_wanted(streams.max(1));
            }
            Some(TransferSetting::PacingRate(pace)) => self.pace = *pace,
            Some(TransferSetting::CongestionControl(name)) => {
                let name = name.clone();
                self.beside.clear();
                if let Err(error) = self.try_congestion(&name, sample.streams.iter()) {
                    auto.on_congestion_control_refused(&name);
                    let _ = write!(decision.reason, "; refused: {error}");
                } else {
                    for sampled in &sample.streams {
                        sampled.stream.note_congestion_decided();
                    }
                    self.congestion = Some(name);
                }
            }
            Some(TransferSetting::StreamCongestionControl { streams, name }) => {
                let chosen = |sampled: &&SampledStream| streams.contains(&sampled.stream.id());
                let chosen = || sample.streams.iter().filter(chosen);
                let streams = chosen().map(|sampled| Arc::downgrade(&sampled.stream));
                self.beside.extend(streams);
                if let Err(error) = self.try_congestion(name, chosen()) {
                    self.end_comparison();
                    auto.on_congestion_control_refused(name);
                    let _ = write!(decision.reason, "; refused: {error}");
                }
            }
        }
        tracing::debug!(step = ?decision.setting, reason = %decision.reason, "streams");
        sample.notices.push_stream_decision(decision);
    }

    /// Streams that differ get the control that they had before.
    fn end_comparison(&mut self) {
        for stream in self.beside.drain(..).filter_map(|stream| stream.upgrade()) {
            let before = stream.first_congestion();
            let set = before.map(|name| stream.set_congestion(&name));
            tracing::debug!(stream = stream.id(), ?set, "congestion control of before");
        }
    }

    /// A control that has not proved itself is not left to the next transfer over these connections.
    fn end_trial(&self) {
        let replaced = self
            .auto
            .as_ref()
            .and_then(AutoTuner::unproved_control_replaced);
        let Some(name) = replaced else { return };
        for stream in self
            .applied
            .values()
            .filter_map(|applied| applied.stream.upgrade())
        {
            let set = stream.set_congestion(name);
            tracing::debug!(
                stream = stream.id(),
                ?set,
                "congestion control of before the trial"
            );
        }
    }

    /// Sets a congestion control on some streams.
    ///
    /// # Errors
    /// The system refuses it for every socket.
    fn try_congestion<'s>(
        &mut self,
        name: &str,
        sampled: impl Iterator<Item = &'s SampledStream>,
    ) -> std::io::Result<()> {
        for SampledStream { stream, .. } in sampled {
            match stream.set_congestion(name) {
                Err(error) if is_lasting(&error) => return Err(error),
                // The connection may have ended meanwhile; its transfer reports that.
                set => tracing::debug!(stream = stream.id(), name, ?set, "congestion control"),
            }
            self.applied(stream).congestion = Some(name.to_owned());
        }
        Ok(())
    }

    /// Applies earlier decisions to streams that have joined, and to all streams their share of the
    /// pacing rate.
    fn apply_to_streams(&mut self, sampled: &[SampledStream]) {
        self.applied
            .retain(|_, applied| applied.stream.strong_count() > 0);
        let share = self
            .pace
            .map(|pace| (pace / sampled.len().max(1) as u64).max(1));
        // Streams that join a comparison wait for their part in it.
        let wanted = self.congestion.clone().filter(|_| self.beside.is_empty());
        for SampledStream { stream, .. } in sampled {
            let applied = self.applied(stream);
            if wanted.is_some() && applied.congestion != wanted {
                applied.congestion.clone_from(&wanted);
                let set = wanted.as_deref().map(|name| stream.set_congestion(name));
                tracing::debug!(stream = stream.id(), ?wanted, ?set, "congestion control");
            }
            if applied.pace != share {
                applied.pace = share;
                let set = sockopt::set_max_pacing_rate(stream.as_fd(), share);
                tracing::trace!(stream = stream.id(), ?share, ?set, "pace");
            }
        }
    }

    /// Streams with bytes to send that their congestion control lets leave hardly ever get it anew.
    fn restart_starved_streams(&mut self, sample: &TuningSample<'_>) {
        // A pace or a rate limit of ours is no fault of the control.
        if self.pace.is_some() || self.settings.options.rate.is_some() {
            return;
        }
        for sampled in &sample.streams {
            if !is_starved_by_pacing(&sampled.sample) {
                continue;
            }
            let restarted = &mut self.applied(&sampled.stream).restarted;
            if restarted.is_none_or(|before| before + RESTART_PAUSE <= sample.at) {
                *restarted = Some(sample.at);
                let set = sampled.stream.restart_congestion();
                tracing::debug!(
                    stream = sampled.stream.id(),
                    ?set,
                    "congestion control begun anew"
                );
            }
        }
    }

    fn applied(&mut self, stream: &Arc<DataStream>) -> &mut AppliedStreamSettings {
        self.applied
            .entry(stream.id())
            .or_insert_with(|| AppliedStreamSettings {
                stream: Arc::downgrade(stream),
                congestion: None,
                // No share is zero: a connection may have been opened at a known pace, which the first application replaces.
                pace: Some(0),
                restarted: None,
            })
    }
}

/// Limits of the tuner for a transfer that begins with `streams` streams.
fn tuner_limits(settings: &TransferSettings, streams: u32) -> AutoLimits {
    let may_change = settings.adapt && settings.mode == TransferMode::Extended;
    let max = count(settings.max_streams).max(streams);
    AutoLimits {
        min_streams: if may_change {
            count(settings.min_streams).clamp(1, streams.max(1))
        } else {
            streams
        },
        max_streams: if may_change { max } else { streams },
        congestion_controls: match settings.options.congestion {
            CongestionChoice::Auto => settable(),
            _ => Vec::new(),
        },
        may_pace: settings.adapt,
    }
}

/// Bytes of this transfer that the peers of these streams have acknowledged.
fn acknowledged(sampled: &[SampledStream]) -> u64 {
    let of = |s: &SampledStream| {
        s.sample
            .bytes_acked
            .saturating_sub(s.stream.acknowledged_before())
    };
    sampled.iter().map(of).sum()
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
