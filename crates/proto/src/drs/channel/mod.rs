//! One end of a DRS channel as a state machine: bytes and time in, events and bytes out.
//!
//! The resources that a peer can use are bounded: length of a line, messages per second, unsent bytes.
//! Echoes are checked against the count and the latest time of all announcements. No state is kept per
//! message (2004 paper, §4).

use std::fmt;
use std::time::Duration;

use units::message_rate::MessageRateLimiter;

use super::line_buffer::{self, DrsLineBuffer, DrsLineTooLong};
use super::message::DrsMessage;
use super::nonce::Nonce;

/// Rate limit of the messages that a data receiver sends: one per interval, after an initial burst.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(10);
const ANNOUNCE_BURST: u32 = 32;

/// Most messages without an echo. A peer that leaves so many unanswered is stalled, and more messages
/// would only queue.
const MAX_OUTSTANDING: u32 = 512;

/// Rate limit of the messages that a data sender accepts: twice the rate of an honest receiver, and a
/// burst of twice all its outstanding messages, which may arrive at once after an outage.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(5);
const ACCEPT_BURST: u32 = 2 * MAX_OUTSTANDING;

/// Most bytes of unsent echoes. They accumulate only if the peer does not read.
const MAX_UNSENT: usize = 64 << 10;

/// Echoes older than this are no round-trip sample.
const MAX_ROUND_TRIP: Duration = Duration::from_secs(60);

/// Role of this end in the data transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrsRole {
    /// Receives data: announces its buffer sizes and receives echoes.
    Receiver,
    /// Sends data: applies the announced sizes and echoes the messages.
    Sender,
}

/// Event on a DRS channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrsEvent {
    /// The peer has sent the right nonce.
    Authenticated,
    /// The data receiver has set its buffers to so many bytes. Set the send buffers, then call
    /// [`DrsChannel::release_echoes`].
    BufferSize(u64),
    /// The data sender has echoed a message. Holds the time since the message was sent.
    RoundTrip(Duration),
}

/// Protocol violation by the peer. The channel must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DrsViolation {
    /// The first line is not `DRS <nonce>`, or the nonce is wrong.
    #[error("the first line does not have the right nonce")]
    WrongGreeting,
    /// A line longer than [`super::MAX_LINE`].
    #[error("a line is too long")]
    TooLong,
    /// A line that is no SBUF message.
    #[error("a line is no SBUF message")]
    Malformed,
    /// The peer sends messages too fast.
    #[error("too many messages")]
    Flood,
    /// An echo of a message that was not sent.
    #[error("echo of a message that was not sent")]
    UnexpectedEcho,
    /// The peer does not read its echoes, so they accumulate.
    #[error("the peer does not read its echoes")]
    UnreadEchoes,
}

impl From<DrsLineTooLong> for DrsViolation {
    fn from(_: DrsLineTooLong) -> Self {
        Self::TooLong
    }
}

/// One end of a DRS connection. After a [`DrsViolation`] it must be closed.
pub struct DrsChannel {
    /// Nonce that the peer must send first; `None` once it has.
    expected_nonce: Option<Nonce>,
    lines: DrsLineBuffer,
    role: DrsRoleState,
    unsent: Vec<u8>,
}

enum DrsRoleState {
    Receiver {
        limiter: MessageRateLimiter,
        /// Number of messages without an echo.
        outstanding: u32,
        /// Time of the latest message.
        latest: Duration,
    },
    Sender {
        limiter: MessageRateLimiter,
        /// Echoes to send once the sizes are applied.
        echoes: Vec<u8>,
    },
}

impl DrsRoleState {
    fn of(role: DrsRole) -> Self {
        match role {
            DrsRole::Receiver => Self::Receiver {
                limiter: MessageRateLimiter::new(ANNOUNCE_INTERVAL, ANNOUNCE_BURST),
                outstanding: 0,
                latest: Duration::ZERO,
            },
            DrsRole::Sender => Self::Sender {
                limiter: MessageRateLimiter::new(ACCEPT_INTERVAL, ACCEPT_BURST),
                echoes: Vec::new(),
            },
        }
    }
}

impl DrsChannel {
    /// A connection made by this end. The nonce is sent first.
    pub fn connecting(role: DrsRole, nonce: Nonce) -> Self {
        Self {
            expected_nonce: None,
            lines: DrsLineBuffer::default(),
            role: DrsRoleState::of(role),
            unsent: format!("DRS {}\r\n", nonce.to_hex()).into_bytes(),
        }
    }

    /// A connection accepted by this end. Nothing is sent before the peer's nonce is verified.
    pub fn listening(role: DrsRole, nonce: Nonce) -> Self {
        Self {
            expected_nonce: Some(nonce),
            lines: DrsLineBuffer::default(),
            role: DrsRoleState::of(role),
            unsent: Vec::new(),
        }
    }

    /// Whether messages may be exchanged: a listening end has verified the nonce.
    pub fn is_open(&self) -> bool {
        self.expected_nonce.is_none()
    }

    /// Handles bytes that arrived at the time `now`, on the clock of [`DrsChannel::announce`], and
    /// appends the resulting events to `events`.
    ///
    /// # Errors
    /// A [`DrsViolation`]; the channel must be closed.
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

    /// Announces a buffer size, bytes, to the data sender; `now` is the time since any fixed moment.
    /// Returns `false` if it cannot now: the channel is not open, the rate limit is reached, or too many
    /// messages are outstanding.
    pub fn announce(&mut self, now: Duration, size: u64) -> bool {
        let open = self.is_open();
        let DrsRoleState::Receiver {
            limiter,
            outstanding,
            latest,
        } = &mut self.role
        else {
            return false;
        };
        // The rate limiter comes last, since it consumes a token.
        if !open || *outstanding >= MAX_OUTSTANDING || !limiter.try_take(now) {
            return false;
        }
        *outstanding += 1;
        *latest = now;
        let timestamp = now;
        let line = DrsMessage { timestamp, size }.format();
        self.unsent.extend_from_slice(line.as_bytes());
        self.unsent.extend_from_slice(b"\r\n");
        true
    }

    /// Queues the echoes of all [`DrsEvent::BufferSize`] so far, after their sizes were applied.
    pub fn release_echoes(&mut self) {
        if let DrsRoleState::Sender { echoes, .. } = &mut self.role {
            self.unsent.append(echoes);
        }
    }

    /// Bytes to send.
    pub fn unsent(&self) -> &[u8] {
        &self.unsent
    }

    /// Removes the first `count` bytes of [`DrsChannel::unsent`], which were sent.
    pub fn mark_sent(&mut self, count: usize) {
        self.unsent.drain(..count.min(self.unsent.len()));
    }

    fn on_line(&mut self, now: Duration, line: &[u8]) -> Result<Option<DrsEvent>, DrsViolation> {
        let text = line_buffer::ascii_text(line);
        if let Some(nonce) = self.expected_nonce {
            // The comparison is case-sensitive: only the exact line authenticates the peer.
            let received_nonce = text.and_then(|text| Nonce::parse(text.strip_prefix("DRS ")?));
            if received_nonce != Some(nonce) {
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
                // The echo is forged or repeated. An honest peer echoes each message once.
                if *outstanding == 0 || message.timestamp > *latest {
                    return Err(DrsViolation::UnexpectedEcho);
                }
                *outstanding -= 1;
                // The timestamp is this end's own, echoed unchanged; the size in the echo is not used.
                let rtt = now.checked_sub(message.timestamp);
                Ok(rtt
                    .filter(|rtt| *rtt <= MAX_ROUND_TRIP)
                    .map(DrsEvent::RoundTrip))
            }
            DrsRoleState::Sender { limiter, echoes } => {
                if !limiter.try_take(now) {
                    return Err(DrsViolation::Flood);
                }
                // Each accepted message adds an echo, so the bound also covers echoes not yet released.
                if self.unsent.len() + echoes.len() + line.len() > MAX_UNSENT {
                    return Err(DrsViolation::UnreadEchoes);
                }
                // The echo must repeat the exact bytes: the receiver may use a timestamp of any precision.
                echoes.extend_from_slice(line);
                Ok(Some(DrsEvent::BufferSize(message.size)))
            }
        }
    }
}

impl fmt::Debug for DrsChannel {
    /// Omits the unsent bytes, which may hold the nonce.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("open", &self.is_open())
            .field("unsent", &self.unsent.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
