//! States of the tuner.

use std::time::Duration;

use super::experiment::Experiment;
use super::pacing::{PathPace, QueueDrain};
use super::side_by_side::SideBySide;

/// State of a transfer. Each variant holds its own data.
#[derive(Debug)]
pub(super) enum TunerState {
    /// Congestion controls are compared on the streams of the transfer, at its start or later.
    Compare(SideBySide),
    /// TCP alone sets the rate.
    Steady,
    /// A change is being measured; the state under it goes on.
    Experiment(Experiment, Box<TunerState>),
    /// The transfer sends below the path's rate, to find out whose queue it is.
    QueueProbe(QueueDrain, Option<Sharing>),
    /// At the path's rate: its own queue is short.
    Paced(PathPace),
    /// Others queue as well.
    Shared(Sharing),
}

/// The kind of a [`TunerState`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StateKind {
    Compare,
    Steady,
    Experiment,
    QueueProbe,
    Paced,
    Shared,
}

/// Others that share the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sharing {
    /// When they were first and last found in the queue.
    pub(super) since: Duration,
    pub(super) seen: Duration,
}

impl TunerState {
    pub(super) fn kind(&self) -> StateKind {
        match self {
            Self::Compare(_) => StateKind::Compare,
            Self::Steady => StateKind::Steady,
            Self::Experiment(..) => StateKind::Experiment,
            Self::QueueProbe(..) => StateKind::QueueProbe,
            Self::Paced(_) => StateKind::Paced,
            Self::Shared(_) => StateKind::Shared,
        }
    }

    /// The pacing rate that follows the path, also under an experiment.
    pub(super) fn pace(&self) -> Option<&PathPace> {
        match self {
            Self::Paced(pace) => Some(pace),
            Self::Experiment(_, under) => under.pace(),
            _ => None,
        }
    }

    /// Whether a pacing rate is in force.
    pub(super) fn is_paced(&self) -> bool {
        matches!(self, Self::QueueProbe(..)) || self.pace().is_some()
    }

    /// Others that share the path, as far as this state knows.
    pub(super) fn sharing(&self) -> Option<Sharing> {
        match self {
            Self::Shared(sharing) => Some(*sharing),
            Self::QueueProbe(_, sharing) => *sharing,
            Self::Experiment(_, under) => under.sharing(),
            _ => None,
        }
    }
}
