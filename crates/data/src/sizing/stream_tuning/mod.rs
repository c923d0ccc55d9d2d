//! Drives `tune::streams::auto` for a sender: shows it all streams, and carries out what it answers.

use std::collections::HashMap;
use std::fmt::Write;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use proto::command::TransferMode;
use tune::Prior;
use tune::sample::{StreamId, TcpSample};
use tune::streams::auto::{
    self, AutoLimits, AutoTuner, LimiterVerdict, TransferDecision, TransferSetting,
};

use super::policy::{SampledStream, SizingSample};
use crate::options::CongestionChoice;
use crate::os::congestion::{is_lasting, settable};
use crate::os::sockopt;
use crate::settings::TransferSettings;
use crate::stream::DataStream;
use crate::transfer::ActiveTransfer;

/// One sending transfer's streams, congestion control and pace.
pub(super) struct StreamTuning<'t> {
    transfer: &'t ActiveTransfer,
    settings: &'t TransferSettings,
    /// All that is to be sent, bytes, if that is known.
    bytes: Option<u64>,
    /// From the first look on: it begins with the streams that there are.
    auto: Option<AutoTuner>,
    /// Decided, for streams that join later.
    congestion: Option<String>,
    /// Decided, bytes per second over all streams.
    pace: Option<u64>,
    given: HashMap<StreamId, AppliedStreamSettings>,
    moved: u64,
}

/// Settings that a stream was given.
struct AppliedStreamSettings {
    stream: Weak<DataStream>,
    congestion: Option<String>,
    /// Bytes per second.
    pace: Option<u64>,
}

impl<'t> StreamTuning<'t> {
    /// For a sender whose settings ask for it.
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
            given: HashMap::new(),
            moved: 0,
        })
    }

    /// Looks at all streams. `before`: what those that had left before `scene` was seen had
    /// acknowledged, bytes.
    pub(super) fn on_look(&mut self, scene: &SizingSample<'_>, before: u64) {
        let lanes = self.transfer.stream_set();
        let leaving = lanes.leaving_ids();
        let looks: Vec<TcpSample> = scene
            .streams
            .iter()
            .map(|seen| seen.sample)
            .filter(|look| !leaving.contains(&look.stream))
            .collect();
        let in_force = self.current_congestion(&scene.streams);
        self.moved = self.moved.max(before + acknowledged(&scene.streams));
        let seen = auto::TransferSample {
            at: scene.at,
            bytes_moved: self.moved,
            bytes_left: self
                .bytes
                .map(|all| all.saturating_sub(self.transfer.moved())),
            streams: &looks,
            streams_opening: count(lanes.opening_count()),
            congestion_control: in_force.as_deref().unwrap_or_default(),
            rate_limit: self.rate_limit(),
        };
        let streams = count(lanes.wanted().max(1));
        let limits = || limits(self.settings, streams);
        let mut auto = self
            .auto
            .take()
            .unwrap_or_else(|| AutoTuner::from_prior(limits(), self.initial_prior(streams)));
        if lanes.take_open_failure() {
            auto.on_stream_refused(count(lanes.active_count() + lanes.opening_count()));
        }
        for decision in auto.on_sample(&seen) {
            self.carry_out(&mut auto, decision, scene);
        }
        scene.board.set_limiter(auto.limiter());
        self.auto = Some(auto);
        self.apply_to_streams(&scene.streams);
    }

    /// The knowledge to begin with, with the streams that there are.
    fn initial_prior(&self, streams: u32) -> Prior {
        Prior {
            streams: Some(streams),
            ..self.settings.prior.clone()
        }
    }

    /// A budget that is spent holds every transfer back that draws on it, however fast that is; one that
    /// is not holds none.
    fn rate_limit(&self) -> Option<u64> {
        let limit = self.settings.options.rate.as_ref()?;
        limit.is_exhausted().then_some(0)
    }

    /// The congestion control in force. The first look at connections that an earlier transfer changed
    /// shows what they had before: `auto` takes what it sees first for the system's, to which it goes
    /// back when others share the path. Streams that join run what those do.
    fn current_congestion(&mut self, seen: &[SampledStream]) -> Option<String> {
        let now = seen.last()?.stream.congestion();
        if self.auto.is_some() || self.settings.options.congestion != CongestionChoice::Auto {
            return now;
        }
        let changed = seen.iter().find_map(|SampledStream { stream, .. }| {
            let (own, now) = (stream.first_congestion()?, stream.congestion()?);
            (own != now).then_some((own, now))
        });
        let Some((own, given)) = changed else {
            return now;
        };
        self.congestion = Some(given);
        Some(own)
    }

    /// When the next look is due, after the last.
    pub(super) fn due(&self) -> Duration {
        self.auto
            .as_ref()
            .map_or(Duration::ZERO, AutoTuner::next_sample_in)
    }

    /// The transfer is over: takes the pace back from connections that outlive it.
    pub(super) fn end(&mut self) {
        for given in self.given.values().filter(|given| given.pace.is_some()) {
            if let Some(stream) = given.stream.upgrade() {
                let lifted = sockopt::set_max_pacing_rate(stream.as_fd(), None);
                tracing::debug!(stream = stream.id(), ?lifted, "pace taken back");
            }
        }
        if let Some(auto) = &self.auto {
            let verdict = auto.verdict();
            // Streams that were asked for when nothing was left to send are none.
            let streams = self.transfer.streams_last().unwrap_or(verdict.streams);
            self.transfer
                .note_verdict(LimiterVerdict { streams, ..verdict });
        }
    }

    fn carry_out(
        &mut self,
        auto: &mut AutoTuner,
        mut decision: TransferDecision,
        scene: &SizingSample<'_>,
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
                if let Err(error) = self.try_congestion(&name, &scene.streams) {
                    auto.on_congestion_control_refused(&name);
                    let _ = write!(decision.reason, "; refused: {error}");
                } else {
                    self.congestion = Some(name);
                }
            }
        }
        tracing::debug!(step = ?decision.setting, reason = %decision.reason, "streams");
        scene.board.push_stream_decision(decision);
    }

    /// Sets a congestion control on all streams; an error if the system refuses it.
    fn try_congestion(&mut self, name: &str, seen: &[SampledStream]) -> std::io::Result<()> {
        for SampledStream { stream, .. } in seen {
            match stream.set_congestion(name) {
                Err(error) if is_lasting(&error) => return Err(error),
                // The connection may have ended meanwhile, and its transfer tells that.
                set => tracing::debug!(stream = stream.id(), name, ?set, "congestion control"),
            }
            self.given(stream).congestion = Some(name.to_owned());
        }
        Ok(())
    }

    /// Gives streams that have joined what was decided before, and all of them their part of the
    /// pace.
    fn apply_to_streams(&mut self, seen: &[SampledStream]) {
        self.given
            .retain(|_, given| given.stream.strong_count() > 0);
        let share = self
            .pace
            .map(|pace| (pace / seen.len().max(1) as u64).max(1));
        let wanted = self.congestion.clone();
        for SampledStream { stream, .. } in seen {
            let given = self.given(stream);
            if wanted.is_some() && given.congestion != wanted {
                given.congestion.clone_from(&wanted);
                let set = wanted.as_deref().map(|name| stream.set_congestion(name));
                tracing::debug!(stream = stream.id(), ?wanted, ?set, "congestion control");
            }
            if given.pace != share {
                given.pace = share;
                let set = sockopt::set_max_pacing_rate(stream.as_fd(), share);
                tracing::trace!(stream = stream.id(), ?share, ?set, "pace");
            }
        }
    }

    fn given(&mut self, stream: &Arc<DataStream>) -> &mut AppliedStreamSettings {
        self.given
            .entry(stream.id())
            .or_insert_with(|| AppliedStreamSettings {
                stream: Arc::downgrade(stream),
                congestion: None,
                pace: None,
            })
    }
}

/// Bounds on changes to a transfer that begins with so many streams.
fn limits(settings: &TransferSettings, streams: u32) -> AutoLimits {
    let lanes = settings.adapt && settings.mode == TransferMode::Extended;
    let most = count(settings.max_streams).max(streams);
    AutoLimits {
        min_streams: if lanes {
            count(settings.min_streams).clamp(1, streams.max(1))
        } else {
            streams
        },
        max_streams: if lanes { most } else { streams },
        congestion_controls: match settings.options.congestion {
            CongestionChoice::Auto => settable(),
            _ => Vec::new(),
        },
        may_pace: settings.adapt,
    }
}

/// Bytes of this transfer that the peers of these streams have acknowledged.
fn acknowledged(seen: &[SampledStream]) -> u64 {
    let of = |s: &SampledStream| {
        s.sample
            .bytes
            .saturating_sub(s.stream.acknowledged_before())
    };
    seen.iter().map(of).sum()
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
