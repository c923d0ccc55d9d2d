//! Two congestion controls beside each other on the streams of one transfer, under the same losses.

use std::collections::BTreeMap;
use std::time::Duration;

use super::estimate::{EstimatedLoss, PathEstimate};
use super::experiment::RateMoments;
use super::loss::shows_queue;
use super::thresholds::LIMITS;
use super::transfer_sample::TransferSample;
use crate::limiter::Role;
use crate::observation::Rtt;
use crate::sample::{StreamId, TcpSample};

/// Which streams get the candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CandidateShare {
    /// Every second one: nothing is known of the path.
    Half,
    /// One beside all others.
    One,
}

/// State of the comparison.
#[derive(Debug, Clone)]
pub(super) struct SideBySide {
    pub(super) candidate: String,
    pub(super) incumbent: String,
    share: CandidateShare,
    started: Duration,
    /// Every stream, whether it has the candidate, and its sample at the start of the round.
    streams: BTreeMap<StreamId, (bool, TcpSample)>,
    round_began: Duration,
    /// Last time without a queue.
    empty_at: Duration,
    rounds: u32,
    rounds_won: u32,
    rates: [RateMoments; 2],
}

/// Result of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ControlComparison {
    Undecided,
    CandidateWins,
    IncumbentStays,
}

impl SideBySide {
    pub(super) fn new(
        candidate: String,
        incumbent: String,
        share: CandidateShare,
        at: Duration,
    ) -> Self {
        Self {
            candidate,
            incumbent,
            share,
            started: at,
            streams: BTreeMap::new(),
            round_began: at,
            empty_at: at,
            rounds: 0,
            rounds_won: 0,
            rates: [RateMoments::default(); 2],
        }
    }

    /// Takes the streams that have joined; returns those of them that get the candidate.
    pub(super) fn assign(&mut self, samples: &[TcpSample]) -> Vec<StreamId> {
        self.streams
            .retain(|id, _| samples.iter().any(|tcp| tcp.stream == *id));
        let mut assigned = Vec::new();
        for tcp in samples {
            if self.streams.contains_key(&tcp.stream) {
                continue;
            }
            let with_candidate = self.streams.values().filter(|(has, _)| *has).count();
            let takes = match self.share {
                CandidateShare::Half => with_candidate * 2 < self.streams.len(),
                CandidateShare::One => with_candidate == 0,
            };
            self.streams.insert(tcp.stream, (takes, *tcp));
            if takes {
                assigned.push(tcp.stream);
            }
        }
        assigned
    }

    /// Compares the streams at the end of each round trip. `has_losses`: something was lost without a queue.
    pub(super) fn on_sample(
        &mut self,
        sample: &TransferSample<'_>,
        rtt: Rtt,
        path: &PathEstimate,
        has_losses: bool,
    ) -> ControlComparison {
        let (to_win, to_end) = LIMITS.candidate_rounds;
        let passed = sample.at.saturating_sub(self.started);
        // One side may have lost its streams.
        if passed >= LIMITS.longest_comparison.at(rtt.smoothed) {
            return ControlComparison::IncumbentStays;
        }
        if !shows_queue(rtt) {
            self.empty_at = sample.at;
        }
        // A burst of a slow start queues for a moment.
        let round = LIMITS.comparison_round.at(rtt.smoothed);
        let is_full = sample.at.saturating_sub(self.empty_at) >= round;
        let is_lossy = matches!(path.loss, EstimatedLoss::Random { .. });
        if is_full && self.rounds > 0 {
            // A full path shows what each stream can take from the others, not what the path allows it.
            let is_early = has_losses && self.rounds_won > 0 && self.share == CandidateShare::Half;
            return if is_lossy || is_early {
                ControlComparison::CandidateWins
            } else {
                ControlComparison::IncumbentStays
            };
        }
        // Windows and buffers that the kernels still enlarge limit for some round trips.
        let without_losses = to_win * 4;
        if path.bottleneck.is_at_an_end() && self.rounds >= without_losses {
            return ControlComparison::IncumbentStays;
        }
        if sample.at.saturating_sub(self.round_began) < round {
            return ControlComparison::Undecided;
        }
        self.round_began = sample.at;
        let Some(won) = self.end_round(sample.streams) else {
            return ControlComparison::Undecided;
        };
        self.rounds += 1;
        self.rounds_won = if won { self.rounds_won + 1 } else { 0 };
        // Without losses a lead may be an early end of slow start, which lasts only on a long path.
        let needed = if has_losses { to_win } else { without_losses };
        let is_clear = self.rates[1].t_against(&self.rates[0]) >= LIMITS.clear_t || is_lossy;
        if self.rounds_won >= needed && is_clear {
            return ControlComparison::CandidateWins;
        }
        let is_over = self.rounds >= to_end && passed >= LIMITS.longest_comparison.least / 2;
        if is_over && self.rounds_won == 0 {
            return ControlComparison::IncumbentStays;
        }
        ControlComparison::Undecided
    }

    /// Mean rate of a stream with the incumbent, bytes per second.
    pub(super) fn incumbent_rate(&self) -> f64 {
        self.rates[0].mean
    }

    /// Whether the streams with the candidate were faster in this round; `None` if one side has no stream.
    fn end_round(&mut self, samples: &[TcpSample]) -> Option<bool> {
        let mut rates = [RateMoments::default(); 2];
        for tcp in samples {
            let Some((has_candidate, from)) = self.streams.get_mut(&tcp.stream) else {
                continue;
            };
            let rate = tcp.since(from, Role::Sender).rate() as f64;
            *from = *tcp;
            rates[usize::from(*has_candidate)].add(rate);
            self.rates[usize::from(*has_candidate)].add(rate);
        }
        let [incumbent, candidate] = rates.map(|rates| rates.mean);
        let is_comparable = incumbent > 0.0 && candidate > 0.0;
        is_comparable.then_some(candidate >= incumbent * LIMITS.candidate_gain)
    }
}
