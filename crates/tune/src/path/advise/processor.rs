//! Streams by the processors of both ends (section 7 of the paper). Table 2 of the paper is their reason: a receiver whose
//! processor was busy with one stream received less with two, and a fifth with four.

use units::show;

use super::KnownPath;
use crate::limiter::Limiter;
use crate::path::facts::{ClientLimits, ProcessorCapacity, SendingEnd};

/// The processors of both ends beside the rate of a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct BusyProcessors {
    path_bps: u64,
    receiver: Option<ProcessorCapacity>,
    sender: Option<ProcessorCapacity>,
}

impl BusyProcessors {
    pub(super) fn of(path: &KnownPath, client: &ClientLimits, sender: &SendingEnd) -> Self {
        Self {
            path_bps: path.usable_bps,
            receiver: client.processor,
            sender: sender.processor,
        }
    }

    /// Streams where `wanted` fill the path: as many as cores are needed for its rate. Where all cores of an end are too
    /// slow for it, no more than there are cores, because more streams would only take them from each other.
    pub(super) fn streams(&self, wanted: u32) -> u32 {
        let busy = self.ends().map(|end| end.busy_cores(self.path_bps));
        let needed = busy.max().unwrap_or(1);
        let exceeded = self.ends().filter(|end| end.is_exceeded_by(self.path_bps));
        let most = exceeded.map(|end| end.cores.max(1)).min();
        wanted.max(needed).min(most.unwrap_or(u32::MAX))
    }

    /// A predicted rate, bits per second, with what the processors can move.
    pub(super) fn bound(&self, bps: u64) -> u64 {
        self.ends().map(|end| end.bps).fold(bps, u64::min)
    }

    /// The end whose processors are slower than the path; the slower one of two.
    pub(super) fn limiter(&self) -> Option<Limiter> {
        self.slower().map(|(limiter, _)| limiter)
    }

    /// The sentence that explains the streams.
    pub(super) fn reason(&self) -> Option<String> {
        let (limiter, end) = self.slower()?;
        let what = match limiter {
            Limiter::SenderCpu => "sender",
            _ => "receiver",
        };
        Some(format!(
            "By estimate, the {what} moves {} with {}, so that more streams would take the processor from each other.",
            show::bits(end.bps),
            show::count(end.cores.max(1), "core")
        ))
    }

    fn slower(&self) -> Option<(Limiter, ProcessorCapacity)> {
        let receiver = self.receiver.map(|end| (Limiter::ReceiverCpu, end));
        let sender = self.sender.map(|end| (Limiter::SenderCpu, end));
        let ends = receiver.into_iter().chain(sender);
        ends.filter(|(_, end)| end.is_exceeded_by(self.path_bps))
            .min_by_key(|(_, end)| end.bps)
    }

    fn ends(&self) -> impl Iterator<Item = ProcessorCapacity> {
        self.receiver.into_iter().chain(self.sender)
    }
}
