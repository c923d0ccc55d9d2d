//! Drives `tune::streams::auto` for a sender: shows it all streams, and carries out what it answers.

use std::collections::HashMap;
use std::fmt::Write;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use proto::command::Mode;
use tune::Prior;
use tune::look::{Look, StreamId};
use tune::streams::auto::{self, Auto, Decision, Limits, Step, Verdict};

use super::policy::{Scene, Seen};
use crate::options::Congestion;
use crate::os::congestion::{is_lasting, settable};
use crate::os::sockopt;
use crate::settings::Settings;
use crate::stream::Stream;
use crate::transfer::Transfer;

/// One sending transfer's streams, congestion control and pace.
pub(super) struct Steering<'t> {
    transfer: &'t Transfer,
    settings: &'t Settings,
    /// All that is to be sent, bytes, if that is known.
    bytes: Option<u64>,
    /// From the first look on: it begins with the streams that there are.
    auto: Option<Auto>,
    /// Decided, for streams that join later.
    congestion: Option<String>,
    /// Decided, bytes per second over all streams.
    pace: Option<u64>,
    given: HashMap<StreamId, Given>,
    moved: u64,
}

/// Settings that a stream was given.
struct Given {
    stream: Weak<Stream>,
    congestion: Option<String>,
    /// Bytes per second.
    pace: Option<u64>,
}

impl<'t> Steering<'t> {
    /// For a sender whose settings ask for it.
    pub(super) fn of(
        transfer: &'t Transfer,
        settings: &'t Settings,
        bytes: Option<u64>,
    ) -> Option<Self> {
        let wanted = settings.adapt || settings.options.congestion == Congestion::Auto;
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
    pub(super) fn on_look(&mut self, scene: &Scene<'_>, before: u64) {
        let lanes = self.transfer.lanes();
        let leaving = lanes.leaving();
        let looks: Vec<Look> = scene
            .seen
            .iter()
            .map(|seen| seen.look)
            .filter(|look| !leaving.contains(&look.stream))
            .collect();
        let in_force = self.in_force(&scene.seen);
        self.moved = self.moved.max(before + acknowledged(&scene.seen));
        let seen = auto::Scene {
            at: scene.at,
            moved: self.moved,
            left: self
                .bytes
                .map(|all| all.saturating_sub(self.transfer.moved())),
            looks: &looks,
            opening: count(lanes.opening()),
            congestion: in_force.as_deref().unwrap_or_default(),
            rate_limit: self.rate_limit(),
        };
        let streams = count(lanes.aimed().max(1));
        let limits = || limits(self.settings, streams);
        let mut auto = self
            .auto
            .take()
            .unwrap_or_else(|| Auto::from_prior(limits(), self.known(streams)));
        if lanes.take_refused() {
            auto.on_refused(count(lanes.staying() + lanes.opening()));
        }
        for decision in auto.on_scene(&seen) {
            self.carry_out(&mut auto, decision, scene);
        }
        scene.board.note_limiter(auto.limiter());
        self.auto = Some(auto);
        self.fit(&scene.seen);
    }

    /// The knowledge to begin with, with the streams that there are.
    fn known(&self, streams: u32) -> Prior {
        Prior {
            streams: Some(streams),
            ..self.settings.prior.clone()
        }
    }

    /// A budget that is spent holds every transfer back that draws on it, however fast that is; one that
    /// is not holds none.
    fn rate_limit(&self) -> Option<u64> {
        let limit = self.settings.options.rate.as_ref()?;
        limit.is_spent().then_some(0)
    }

    /// The congestion control in force. The first look at connections that an earlier transfer changed
    /// shows what they had before: `auto` takes what it sees first for the system's, to which it goes
    /// back when others share the path. Streams that join run what those do.
    fn in_force(&mut self, seen: &[Seen]) -> Option<String> {
        let now = seen.last()?.stream.congestion();
        if self.auto.is_some() || self.settings.options.congestion != Congestion::Auto {
            return now;
        }
        let changed = seen.iter().find_map(|Seen { stream, .. }| {
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
        self.auto.as_ref().map_or(Duration::ZERO, Auto::due)
    }

    /// The transfer is over: takes the pace back from connections that outlive it.
    pub(super) fn end(&mut self) {
        for given in self.given.values().filter(|given| given.pace.is_some()) {
            if let Some(stream) = given.stream.upgrade() {
                let lifted = sockopt::set_pace(stream.as_fd(), None);
                tracing::debug!(stream = stream.id(), ?lifted, "pace taken back");
            }
        }
        if let Some(auto) = &self.auto {
            let verdict = auto.verdict();
            // Streams that were asked for when nothing was left to send are none.
            let streams = self.transfer.streams_last().unwrap_or(verdict.streams);
            self.transfer.note_verdict(Verdict { streams, ..verdict });
        }
    }

    fn carry_out(&mut self, auto: &mut Auto, mut decision: Decision, scene: &Scene<'_>) {
        match &decision.step {
            None => {}
            Some(Step::Streams(streams)) => {
                let streams = usize::try_from(*streams).unwrap_or(usize::MAX);
                self.transfer.lanes().aim(streams.max(1));
            }
            Some(Step::Pace(pace)) => self.pace = *pace,
            Some(Step::Congestion(name)) => {
                let name = name.clone();
                if let Err(error) = self.try_congestion(&name, &scene.seen) {
                    auto.on_congestion_refused(&name);
                    let _ = write!(decision.reason, "; refused: {error}");
                } else {
                    self.congestion = Some(name);
                }
            }
        }
        tracing::debug!(step = ?decision.step, reason = %decision.reason, "streams");
        scene.board.note_streams(decision);
    }

    /// Sets a congestion control on all streams; an error if the system refuses it.
    fn try_congestion(&mut self, name: &str, seen: &[Seen]) -> std::io::Result<()> {
        for Seen { stream, .. } in seen {
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
    fn fit(&mut self, seen: &[Seen]) {
        self.given
            .retain(|_, given| given.stream.strong_count() > 0);
        let share = self
            .pace
            .map(|pace| (pace / seen.len().max(1) as u64).max(1));
        let wanted = self.congestion.clone();
        for Seen { stream, .. } in seen {
            let given = self.given(stream);
            if wanted.is_some() && given.congestion != wanted {
                given.congestion.clone_from(&wanted);
                let set = wanted.as_deref().map(|name| stream.set_congestion(name));
                tracing::debug!(stream = stream.id(), ?wanted, ?set, "congestion control");
            }
            if given.pace != share {
                given.pace = share;
                let set = sockopt::set_pace(stream.as_fd(), share);
                tracing::trace!(stream = stream.id(), ?share, ?set, "pace");
            }
        }
    }

    fn given(&mut self, stream: &Arc<Stream>) -> &mut Given {
        self.given.entry(stream.id()).or_insert_with(|| Given {
            stream: Arc::downgrade(stream),
            congestion: None,
            pace: None,
        })
    }
}

/// Bounds on changes to a transfer that begins with so many streams.
fn limits(settings: &Settings, streams: u32) -> Limits {
    let lanes = settings.adapt && settings.mode == Mode::Extended;
    let most = count(settings.most_streams).max(streams);
    Limits {
        least: if lanes {
            count(settings.least_streams).clamp(1, streams.max(1))
        } else {
            streams
        },
        most: if lanes { most } else { streams },
        congestion: match settings.options.congestion {
            Congestion::Auto => settable(),
            _ => Vec::new(),
        },
        pace: settings.adapt,
    }
}

/// Bytes of this transfer that the peers of these streams have acknowledged.
fn acknowledged(seen: &[Seen]) -> u64 {
    let of = |s: &Seen| s.look.bytes.saturating_sub(s.stream.acknowledged_before());
    seen.iter().map(of).sum()
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
