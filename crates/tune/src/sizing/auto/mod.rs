//! The default: the kernel's autotuning, watched, and overruled only where that wins.
//!
//! Never worse than the kernel means: a buffer is taken over only where autotuning is at its end, the
//! buffer (and not the path, the peer or a program) is what limits, and more can be had; it is
//! never made smaller; a receive buffer that was raised without effect goes back to the kernel.
//! What is made smaller is the window, in two cases in which that cannot cost any speed.

mod account;
mod backlog;
mod clamp;
mod imposed;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::account::Bound;
use self::account::{Account, Setting};
use self::receiver::Receiver;
use self::sender::Sender;
use super::caps::Caps;
use super::{Change, Decision};
use crate::limiter::Role;
use crate::look::Look;
use crate::observation::{Class, Meter, Standing, Tally, Trip, Verdict};

/// One end of one stream.
#[derive(Debug, Clone)]
pub struct Auto {
    caps: Caps,
    end: End,
    meter: Meter,
    tally: Tally,
    standing: Standing,
    account: Account,
    last: Option<Look>,
}

#[derive(Debug, Clone)]
enum End {
    Sender(Sender),
    Receiver(Receiver),
}

/// Action that an end wants.
#[derive(Debug)]
struct Action {
    change: Option<Change>,
    class: Class,
    reason: String,
}

impl Auto {
    /// A stream that has just been opened.
    pub fn new(role: Role, caps: Caps) -> Self {
        Self {
            caps,
            end: match role {
                Role::Sender => End::Sender(Sender::default()),
                Role::Receiver => End::Receiver(Receiver::default()),
            },
            meter: Meter::default(),
            tally: Tally::default(),
            standing: Standing::default(),
            account: Account::default(),
            last: None,
        }
    }

    /// The stream's send buffer is known to be right at this size, bytes as reported: it is set at the
    /// first look if that is more than autotuning gives. A receiver's buffer is left to grow.
    pub fn knowing(mut self, buffer: Option<u64>) -> Self {
        if let End::Sender(sender) = &mut self.end {
            sender.know(buffer);
        }
        self
    }

    /// Takes a look. A decision comes when something is to be done, and when the limiter changes.
    /// Looks that are older than the last are ignored.
    pub fn on_look(&mut self, look: &Look) -> Option<Decision> {
        let stale = |last: &Look| look.at <= last.at || look.bytes < last.bytes;
        if self.last.as_ref().is_some_and(stale) {
            return None;
        }
        self.last = Some(*look);
        let trip = Trip::of(look);
        self.meter.on_look(look, trip);
        let verdict = self.tally.on_look(self.role(), look);
        let verdict = verdict.map(|verdict| self.without_imposed(verdict));
        if let Some(verdict) = verdict {
            let setting = self.bound_by(look, verdict.class);
            self.account.note(look, verdict, setting);
        }
        if let Some(action) = self.act(look, trip) {
            self.standing.tell(look.at, action.class);
            return Some(decision(look, action));
        }
        let Verdict { class, rate, .. } = verdict?;
        self.standing.on_class(look.at, class).then(|| {
            decision(
                look,
                Action {
                    change: None,
                    class,
                    reason: class.reason(self.role(), look, rate),
                },
            )
        })
    }

    /// When the next look is due, after the last: four times a round trip, so that a buffer that
    /// fills is seen within one, and more seldom where nothing changes.
    pub fn due(&self) -> Duration {
        const EAGER: Duration = Duration::from_millis(10);
        const CALM: Duration = Duration::from_millis(100);
        let Some(look) = &self.last else {
            return EAGER;
        };
        let trip = Trip::of(look);
        if trip.base.is_zero() {
            return EAGER;
        }
        if trip.is_short() {
            return CALM;
        }
        let quarter = (trip.base / 4).clamp(EAGER, CALM);
        if self.standing.is_old(look.at) {
            (quarter * 2).max(CALM / 2)
        } else {
            quarter
        }
    }

    /// A limit of this host that holds the stream back now, and that more streams would get
    /// around.
    pub fn bound(&self) -> Option<Bound> {
        self.account.bound
    }

    /// A limit of this host that held the stream back: which setting to raise, to what, for what gain,
    /// in plain words.
    pub fn remark(&self) -> Option<String> {
        self.account.remark(&self.caps)
    }

    /// Nobody will look at this stream again: what undoes a window that is kept small, and would
    /// stay so for a later transfer over the same connection.
    pub fn release(&mut self) -> Option<Change> {
        match (&mut self.end, &self.last) {
            (End::Receiver(receiver), Some(look)) => receiver.release(look),
            _ => None,
        }
    }

    /// A window that this end itself keeps small is not what limits.
    fn without_imposed(&self, verdict: Verdict) -> Verdict {
        match &self.end {
            End::Receiver(receiver) if verdict.class == Class::Window => Verdict {
                class: receiver.imposed().unwrap_or(Class::Window),
                ..verdict
            },
            _ => verdict,
        }
    }

    fn role(&self) -> Role {
        match self.end {
            End::Sender(_) => Role::Sender,
            End::Receiver(_) => Role::Receiver,
        }
    }

    fn act(&mut self, look: &Look, trip: Trip) -> Option<Action> {
        match &mut self.end {
            End::Sender(sender) => sender.on_look(look, self.meter.lately(), &self.caps),
            End::Receiver(receiver) => receiver.on_look(look, trip, &self.meter, &self.caps),
        }
    }

    fn bound_by(&self, look: &Look, class: Class) -> Option<Setting> {
        if Trip::of(look).is_short() {
            return None;
        }
        match (&self.end, class) {
            (End::Sender(sender), Class::SendBuffer) => sender.bound_by(look, &self.caps),
            (End::Receiver(receiver), Class::Window) => receiver.bound_by(look, &self.caps),
            _ => None,
        }
    }
}

fn decision(look: &Look, action: Action) -> Decision {
    Decision {
        stream: look.stream,
        at: look.at,
        change: action.change,
        limiter: action.class.limiter(),
        reason: action.reason,
    }
}
