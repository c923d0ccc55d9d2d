//! One end of a DRS channel as a state machine: bytes and time in, events and bytes out.
//!
//! What a peer can make this end do is bounded: a line's length, messages a second, bytes that
//! wait to be sent. Echoes are checked against what was announced as a whole; nothing is kept per
//! message (2004 paper, §4), so any number may be under way.

use std::fmt;
use std::time::Duration;

use super::lines::{self, Lines, TooLong};
use super::message::Message;
use super::nonce::Nonce;
use crate::pace::Pace;

/// Messages that a data receiver sends: at most one each so often, after a few at once.
const ANNOUNCE_EVERY: Duration = Duration::from_millis(10);
const ANNOUNCE_BURST: u32 = 32;

/// Messages that may be under way. A path that holds as many does not answer; more would only queue.
const MAX_OUTSTANDING: u32 = 512;

/// Messages that a data sender takes before it calls them a flood: twice the pace of an honest
/// receiver, and all that such a one can have under way arriving at once after an outage.
const ACCEPT_EVERY: Duration = Duration::from_millis(5);
const ACCEPT_BURST: u32 = 2 * MAX_OUTSTANDING;

/// Bytes of echoes that may wait for a peer that does not read; an honest one has far fewer under
/// way.
const MAX_UNSENT: usize = 64 << 10;

/// An echo that took longer tells nothing about the path any more.
const STALE: Duration = Duration::from_secs(60);

/// Which end of the data channel this end of the DRS channel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Receives data: announces sizes, takes echoes.
    Receiver,
    /// Sends data: follows sizes, echoes.
    Sender,
}

/// News from the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The greeting was right: this is the peer.
    Proven,
    /// The data receiver has set its buffers to this many bytes; set the send buffers, then call
    /// [`Channel::applied`].
    Size(u64),
    /// The data sender has echoed a message of so long ago: a round trip.
    Echo(Duration),
}

/// Why a channel must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Not `DRS <nonce>`, or not the right nonce.
    #[error("the greeting is not this channel's")]
    Greeting,
    /// A line longer than [`super::MAX_LINE`].
    #[error("a line is too long")]
    TooLong,
    /// Not an SBUF message.
    #[error("not an SBUF message")]
    Malformed,
    /// More messages than any receiver needs to send.
    #[error("too many messages")]
    Flood,
    /// An echo of what was not announced.
    #[error("an echo of a message that was never sent")]
    Unasked,
    /// Echoes pile up because the peer does not read.
    #[error("the peer does not read its echoes")]
    Deaf,
}

impl From<TooLong> for Violation {
    fn from(_: TooLong) -> Self {
        Self::TooLong
    }
}

/// One end of one connection. After a [`Violation`] it is of no use.
pub struct Channel {
    /// The nonce that the peer must say first.
    awaited: Option<Nonce>,
    lines: Lines,
    duty: Duty,
    out: Vec<u8>,
}

enum Duty {
    Receiver {
        pace: Pace,
        /// Announced and not echoed.
        outstanding: u32,
        /// When the last message was announced.
        latest: Duration,
    },
    Sender {
        pace: Pace,
        /// Lines to repeat once the sizes are set.
        echoes: Vec<u8>,
    },
}

impl Duty {
    fn of(end: End) -> Self {
        match end {
            End::Receiver => Self::Receiver {
                pace: Pace::new(ANNOUNCE_EVERY, ANNOUNCE_BURST),
                outstanding: 0,
                latest: Duration::ZERO,
            },
            End::Sender => Self::Sender {
                pace: Pace::new(ACCEPT_EVERY, ACCEPT_BURST),
                echoes: Vec::new(),
            },
        }
    }
}

impl Channel {
    /// A connection that this end has made: the greeting goes first.
    pub fn connecting(end: End, nonce: Nonce) -> Self {
        Self {
            awaited: None,
            lines: Lines::default(),
            duty: Duty::of(end),
            out: format!("DRS {}\r\n", nonce.to_hex()).into_bytes(),
        }
    }

    /// A connection that this end has accepted: nothing is sent before the greeting came.
    pub fn listening(end: End, nonce: Nonce) -> Self {
        Self {
            awaited: Some(nonce),
            lines: Lines::default(),
            duty: Duty::of(end),
            out: Vec::new(),
        }
    }

    /// Whether messages may be exchanged: the listening end has heard the greeting.
    pub fn is_open(&self) -> bool {
        self.awaited.is_none()
    }

    /// Takes bytes that arrived at the time `now`, by the clock of [`Channel::announce`], and
    /// appends what they mean to `events`.
    ///
    /// # Errors
    /// A [`Violation`]; the channel is to be closed.
    pub fn receive(
        &mut self,
        now: Duration,
        mut bytes: &[u8],
        events: &mut Vec<Event>,
    ) -> Result<(), Violation> {
        while !bytes.is_empty() {
            if let Some(line) = self.lines.next(&mut bytes)? {
                events.extend(self.on_line(now, &line)?);
            }
        }
        Ok(())
    }

    /// Tells the data sender of a size, bytes, with the time `now` since any fixed moment.
    /// `false`: not now; the channel is not open, the last message was sent too short a time ago,
    /// or too many are under way.
    pub fn announce(&mut self, now: Duration, size: u64) -> bool {
        let open = self.is_open();
        let Duty::Receiver {
            pace,
            outstanding,
            latest,
        } = &mut self.duty
        else {
            return false;
        };
        if !open || *outstanding >= MAX_OUTSTANDING || !pace.take(now) {
            return false;
        }
        *outstanding += 1;
        *latest = now;
        let timestamp = now;
        let line = Message { timestamp, size }.format();
        self.out.extend_from_slice(line.as_bytes());
        self.out.extend_from_slice(b"\r\n");
        true
    }

    /// The sizes of all [`Event::Size`] so far are set: their echoes may leave.
    pub fn applied(&mut self) {
        if let Duty::Sender { echoes, .. } = &mut self.duty {
            self.out.append(echoes);
        }
    }

    /// Bytes to be sent.
    pub fn unsent(&self) -> &[u8] {
        &self.out
    }

    /// The first `count` bytes of [`Channel::unsent`] were sent.
    pub fn sent(&mut self, count: usize) {
        self.out.drain(..count.min(self.out.len()));
    }

    fn on_line(&mut self, now: Duration, line: &[u8]) -> Result<Option<Event>, Violation> {
        let text = lines::text(line);
        if let Some(nonce) = self.awaited {
            let said = text.and_then(|text| Nonce::parse(text.strip_prefix("DRS ")?));
            if said != Some(nonce) {
                return Err(Violation::Greeting);
            }
            self.awaited = None;
            return Ok(Some(Event::Proven));
        }
        let message = text.and_then(Message::parse).ok_or(Violation::Malformed)?;
        match &mut self.duty {
            Duty::Receiver {
                outstanding,
                latest,
                ..
            } => {
                // Forged, or repeated: the peer echoes what was announced, once.
                if *outstanding == 0 || message.timestamp > *latest {
                    return Err(Violation::Unasked);
                }
                *outstanding -= 1;
                let rtt = now.checked_sub(message.timestamp);
                Ok(rtt.filter(|rtt| *rtt <= STALE).map(Event::Echo))
            }
            Duty::Sender { pace, echoes } => {
                if !pace.take(now) {
                    return Err(Violation::Flood);
                }
                if self.out.len() + echoes.len() + line.len() > MAX_UNSENT {
                    return Err(Violation::Deaf);
                }
                echoes.extend_from_slice(line);
                Ok(Some(Event::Size(message.size)))
            }
        }
    }
}

impl fmt::Debug for Channel {
    /// Without the bytes, which may be those of the nonce.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("open", &self.is_open())
            .field("unsent", &self.out.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
