//! One end of a DRS channel as a state machine: bytes and time in, events and bytes out.
//!
//! What a peer can make this end do is bounded: a line's length, messages a second, bytes that
//! wait to be sent. Echoes are checked against what was announced as a whole; nothing is kept per
//! message (2004 paper, §4), so any number may be under way.

use std::fmt;
use std::time::Duration;

use super::line_buffer::{self, DrsLineBuffer, DrsLineTooLong};
use super::message::DrsMessage;
use super::nonce::Nonce;
use crate::message_rate::MessageRateLimiter;

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
pub enum DrsRole {
    /// Receives data: announces sizes, takes echoes.
    Receiver,
    /// Sends data: follows sizes, echoes.
    Sender,
}

/// News from the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrsEvent {
    /// The greeting was right: this is the peer.
    Authenticated,
    /// The data receiver has set its buffers to this many bytes; set the send buffers, then call
    /// [`DrsChannel::release_echoes`].
    BufferSize(u64),
    /// The data sender has echoed a message of so long ago: a round trip.
    RoundTrip(Duration),
}

/// Why a channel must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DrsViolation {
    /// Not `DRS <nonce>`, or not the right nonce.
    #[error("the greeting is not this channel's")]
    WrongGreeting,
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
    UnexpectedEcho,
    /// Echoes pile up because the peer does not read.
    #[error("the peer does not read its echoes")]
    UnreadEchoes,
}

impl From<DrsLineTooLong> for DrsViolation {
    fn from(_: DrsLineTooLong) -> Self {
        Self::TooLong
    }
}

/// One end of one connection. After a [`DrsViolation`] it is of no use.
pub struct DrsChannel {
    /// The nonce that the peer must say first.
    expected_nonce: Option<Nonce>,
    lines: DrsLineBuffer,
    role: DrsRoleState,
    out: Vec<u8>,
}

enum DrsRoleState {
    Receiver {
        pace: MessageRateLimiter,
        /// Announced and not echoed.
        outstanding: u32,
        /// When the last message was announced.
        latest: Duration,
    },
    Sender {
        pace: MessageRateLimiter,
        /// Lines to repeat once the sizes are set.
        echoes: Vec<u8>,
    },
}

impl DrsRoleState {
    fn of(end: DrsRole) -> Self {
        match end {
            DrsRole::Receiver => Self::Receiver {
                pace: MessageRateLimiter::new(ANNOUNCE_EVERY, ANNOUNCE_BURST),
                outstanding: 0,
                latest: Duration::ZERO,
            },
            DrsRole::Sender => Self::Sender {
                pace: MessageRateLimiter::new(ACCEPT_EVERY, ACCEPT_BURST),
                echoes: Vec::new(),
            },
        }
    }
}

impl DrsChannel {
    /// A connection that this end has made: the greeting goes first.
    pub fn connecting(end: DrsRole, nonce: Nonce) -> Self {
        Self {
            expected_nonce: None,
            lines: DrsLineBuffer::default(),
            role: DrsRoleState::of(end),
            out: format!("DRS {}\r\n", nonce.to_hex()).into_bytes(),
        }
    }

    /// A connection that this end has accepted: nothing is sent before the greeting came.
    pub fn listening(end: DrsRole, nonce: Nonce) -> Self {
        Self {
            expected_nonce: Some(nonce),
            lines: DrsLineBuffer::default(),
            role: DrsRoleState::of(end),
            out: Vec::new(),
        }
    }

    /// Whether messages may be exchanged: the listening end has heard the greeting.
    pub fn is_open(&self) -> bool {
        self.expected_nonce.is_none()
    }

    /// Takes bytes that arrived at the time `now`, by the clock of [`DrsChannel::announce`], and
    /// appends what they mean to `events`.
    ///
    /// # Errors
    /// A [`DrsViolation`]; the channel is to be closed.
    pub fn on_bytes(
        &mut self,
        now: Duration,
        mut bytes: &[u8],
        events: &mut Vec<DrsEvent>,
    ) -> Result<(), DrsViolation> {
        while !bytes.is_empty() {
            if let Some(line) = self.lines.next_line(&mut bytes)? {
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
        let DrsRoleState::Receiver {
            pace,
            outstanding,
            latest,
        } = &mut self.role
        else {
            return false;
        };
        if !open || *outstanding >= MAX_OUTSTANDING || !pace.try_take(now) {
            return false;
        }
        *outstanding += 1;
        *latest = now;
        let timestamp = now;
        let line = DrsMessage { timestamp, size }.format();
        self.out.extend_from_slice(line.as_bytes());
        self.out.extend_from_slice(b"\r\n");
        true
    }

    /// The sizes of all [`DrsEvent::BufferSize`] so far are set: their echoes may leave.
    pub fn release_echoes(&mut self) {
        if let DrsRoleState::Sender { echoes, .. } = &mut self.role {
            self.out.append(echoes);
        }
    }

    /// Bytes to be sent.
    pub fn unsent(&self) -> &[u8] {
        &self.out
    }

    /// The first `count` bytes of [`DrsChannel::unsent`] were sent.
    pub fn mark_sent(&mut self, count: usize) {
        self.out.drain(..count.min(self.out.len()));
    }

    fn on_line(&mut self, now: Duration, line: &[u8]) -> Result<Option<DrsEvent>, DrsViolation> {
        let text = line_buffer::ascii_text(line);
        if let Some(nonce) = self.expected_nonce {
            let said = text.and_then(|text| Nonce::parse(text.strip_prefix("DRS ")?));
            if said != Some(nonce) {
                return Err(DrsViolation::WrongGreeting);
            }
            self.expected_nonce = None;
            return Ok(Some(DrsEvent::Authenticated));
        }
        let message = text
            .and_then(DrsMessage::parse)
            .ok_or(DrsViolation::Malformed)?;
        match &mut self.role {
            DrsRoleState::Receiver {
                outstanding,
                latest,
                ..
            } => {
                // Forged, or repeated: the peer echoes what was announced, once.
                if *outstanding == 0 || message.timestamp > *latest {
                    return Err(DrsViolation::UnexpectedEcho);
                }
                *outstanding -= 1;
                let rtt = now.checked_sub(message.timestamp);
                Ok(rtt.filter(|rtt| *rtt <= STALE).map(DrsEvent::RoundTrip))
            }
            DrsRoleState::Sender { pace, echoes } => {
                if !pace.try_take(now) {
                    return Err(DrsViolation::Flood);
                }
                if self.out.len() + echoes.len() + line.len() > MAX_UNSENT {
                    return Err(DrsViolation::UnreadEchoes);
                }
                echoes.extend_from_slice(line);
                Ok(Some(DrsEvent::BufferSize(message.size)))
            }
        }
    }
}

impl fmt::Debug for DrsChannel {
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
