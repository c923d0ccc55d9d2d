//! Waits for the handshakes of data connections.
//!
//! A connection that this end opened is needed, so its failure matters to the transfer. One that was
//! accepted may be a stranger's: until its handshake is complete it is one of several candidates, and
//! its failure closes only itself.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::error::DataError;
use crate::os::wake::{self, WakeEvent};
use crate::security::{ProtectionError, ProtectionFault};
use crate::stream::DataStream;
use crate::transfer::ActiveTransfer;

/// Longest handshake: many round trips of a very long path, with lost segments.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);

/// Time for the handshake of a connection that the sender no longer needs. A server that waits for it may
/// fail the whole transfer when it is cut off (globus-gridftp-server does); one that is silent holds no
/// transfer up for long.
pub(crate) const UNNEEDED_HANDSHAKE_WAIT: Duration = Duration::from_secs(5);

/// Time for a valid connection to come after the handshake of another one has failed. The failed one may
/// have been a stranger's, and then the peer's own needs the round trips that it is late, and one for a lost
/// segment (RFC 6298 §2.1). A peer that has failed waits for a reply, and has no other reason to connect.
const GRACE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The same after a peer has proved another identity than the expected one: a stranger can hardly do that, so
/// most likely the expected one is wrong.
const GRACE_AFTER_OTHER_IDENTITY: Duration = Duration::from_millis(200);

/// How often the time limits of accepted connections are checked.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Most accepted connections of a sender whose handshakes run at once. A sender needs one.
const MAX_CANDIDATES: usize = 16;

/// Failures of strangers that are logged for one transfer; the others are counted.
const MAX_LOGGED: u32 = 10;

/// Completes the handshake of a connection that takes part in the transfer. Returns at once if there
/// is none, or if it is complete. Returns false if it is not complete soon after `unless` was woken
/// ([`UNNEEDED_HANDSHAKE_WAIT`]). Call it in the thread that serves the connection.
///
/// # Errors
/// [`DataError::Security`], [`DataError::Wire`], [`DataError::Aborted`].
pub(crate) fn complete_handshake(
    transfer: &ActiveTransfer,
    stream: &DataStream,
    mut unless: Option<&WakeEvent>,
) -> Result<bool, DataError> {
    let is_optional = unless.is_some();
    let mut until = Instant::now() + HANDSHAKE_TIMEOUT;
    let wire_error = |error| DataError::wire(stream.peer(), error);
    loop {
        transfer.check()?;
        let Some(ready) = stream.transport().handshake().map_err(wire_error)? else {
            return Ok(true);
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            if is_optional && unless.is_none() {
                return Ok(false);
            }
            return Err(wire_error(timeout_error().into()));
        }
        let stop = transfer.stop_wake();
        let fds = [
            (stream.as_fd(), ready),
            (stop.as_fd(), PollFlags::IN),
            // Without another event, the stop event stands in, so that the array has a fixed size.
            (unless.unwrap_or(stop).as_fd(), PollFlags::IN),
        ];
        let [_, _, not_needed] = wake::wait(fds, left).map_err(wire_error)?;
        if not_needed && unless.take().is_some() {
            until = until.min(Instant::now() + UNNEEDED_HANDSHAKE_WAIT);
        }
    }
}

fn timeout_error() -> ProtectionError {
    ProtectionError::Timeout {
        seconds: HANDSHAKE_TIMEOUT.as_secs(),
    }
}

/// An accepted connection whose handshake is under way.
#[derive(Debug)]
pub(crate) struct HandshakingStream {
    stream: DataStream,
    /// The event that the handshake waits for.
    ready: PollFlags,
    since: Instant,
}

impl HandshakingStream {
    pub(crate) fn new(stream: DataStream) -> Self {
        Self {
            stream,
            ready: PollFlags::IN,
            since: Instant::now(),
        }
    }

    /// Continues as far as possible without waiting. Returns whether the handshake is complete.
    ///
    /// # Errors
    /// [`DataError::Security`], [`DataError::Wire`].
    pub(crate) fn advance(&mut self) -> Result<bool, DataError> {
        let progress = self.stream.transport().handshake();
        let progress = progress.map_err(|e| DataError::wire(self.stream.peer(), e))?;
        match progress {
            None => return Ok(true),
            Some(ready) => self.ready = ready,
        }
        if self.since.elapsed() < HANDSHAKE_TIMEOUT {
            return Ok(false);
        }
        Err(DataError::wire(self.stream.peer(), timeout_error().into()))
    }

    pub(crate) fn poll_fd(&self) -> PollFd<'_> {
        PollFd::from_borrowed_fd(self.stream.as_fd(), self.ready)
    }

    pub(crate) fn into_stream(self) -> DataStream {
        self.stream
    }
}

/// Accepted connections of a sender, of which the first with a complete handshake is used.
#[derive(Debug, Default)]
pub(crate) struct SenderCandidates {
    connections: VecDeque<HandshakingStream>,
    failures: FailedHandshakes,
}

impl SenderCandidates {
    /// Adds a connection. Too many are strangers: the oldest is closed.
    pub(crate) fn add(&mut self, stream: DataStream) {
        if self.connections.len() >= MAX_CANDIDATES {
            self.connections.pop_front();
        }
        self.connections.push_back(HandshakingStream::new(stream));
    }

    /// Continues all handshakes. Returns the first connection whose handshake is complete.
    pub(crate) fn advance(&mut self) -> Option<DataStream> {
        for _ in 0..self.connections.len() {
            let mut connection = self.connections.pop_front()?;
            match connection.advance() {
                Ok(true) => return Some(connection.into_stream()),
                Ok(false) => self.connections.push_back(connection),
                Err(error) => self.failures.note(error),
            }
        }
        None
    }

    /// The first failure, when nothing more is waited for. `waited`: the time that the transfer gave its
    /// connections, in which an unfinished handshake has failed, too.
    pub(crate) fn take_failure(&mut self, waited: Duration) -> Option<DataError> {
        for unfinished in self.connections.drain(..) {
            let late = ProtectionError::Timeout {
                seconds: waited.as_secs(),
            };
            let peer = unfinished.stream.peer();
            self.failures.note(DataError::wire(peer, late.into()));
        }
        self.failures.take_first()
    }

    /// Longest wait until [`SenderCandidates::advance`]: handshakes have a time limit.
    pub(crate) fn max_wait(&self) -> Duration {
        match self.connections.is_empty() {
            true => Duration::MAX,
            false => CHECK_INTERVAL,
        }
    }

    /// Time left for another connection, if one has failed and none is under way; see
    /// [`FailedHandshakes::time_left`].
    pub(crate) fn time_left(&self) -> Duration {
        match self.connections.is_empty() {
            true => self.failures.time_left(),
            false => Duration::MAX,
        }
    }

    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.connections.iter().map(HandshakingStream::poll_fd)
    }
}

/// Failed handshakes of accepted connections: the first ones are logged, the others counted, because a
/// flood of them must not fill the log.
#[derive(Debug, Default)]
pub(crate) struct FailedHandshakes {
    first: Option<DataError>,
    count: u32,
    /// Until then a valid connection may come.
    until: Option<Instant>,
}

impl FailedHandshakes {
    /// Takes the first failure.
    pub(crate) fn take_first(&mut self) -> Option<DataError> {
        self.first.take()
    }

    /// Time left for a valid connection after the last failure; without a failure, for ever.
    pub(crate) fn time_left(&self) -> Duration {
        self.until.map_or(Duration::MAX, |until| {
            until.saturating_duration_since(Instant::now())
        })
    }

    pub(crate) fn note(&mut self, error: DataError) {
        let grace = match &error {
            DataError::Security {
                fault: ProtectionFault::OtherIdentity,
                ..
            } => GRACE_AFTER_OTHER_IDENTITY,
            _ => GRACE_AFTER_FAILURE,
        };
        self.until = Some(Instant::now() + grace);
        self.count = self.count.saturating_add(1);
        if self.count <= MAX_LOGGED {
            tracing::warn!(%error, "closed a data connection whose handshake failed");
        }
        self.first.get_or_insert(error);
    }
}

impl Drop for FailedHandshakes {
    fn drop(&mut self) {
        let more = self.count.saturating_sub(MAX_LOGGED);
        if more > 0 {
            tracing::warn!(
                more,
                "closed further data connections whose handshakes failed"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;

    use ::security::gsi::DataHandshakeMode;
    use ::security::tls::TlsError;
    use ::security::x509::TrustError;

    use super::*;
    use crate::security::{ConnectionOpener, DataSecurity};
    use crate::settings::TransferSettings;

    fn accepted(listener: &TcpListener, settings: &TransferSettings) -> DataStream {
        let (socket, peer) = listener.accept().unwrap();
        DataStream::new(socket.into(), peer, ConnectionOpener::Peer, settings).unwrap()
    }

    fn protected() -> TransferSettings {
        let security = DataSecurity::of_one_user(DataHandshakeMode::Protected);
        TransferSettings {
            security: Some(Arc::new(security)),
            ..TransferSettings::default()
        }
    }

    #[test]
    fn a_silent_stranger_is_closed_when_its_time_is_over() {
        let settings = protected();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _silent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut stranger = HandshakingStream::new(accepted(&listener, &settings));
        assert!(!stranger.advance().unwrap());
        stranger.since = Instant::now().checked_sub(HANDSHAKE_TIMEOUT).unwrap();
        let error = stranger.advance().unwrap_err();
        assert!(
            matches!(&error, DataError::Security { reason, .. } if reason.contains("20 s")),
            "{error}"
        );
    }

    #[test]
    fn a_sender_keeps_a_limited_number_of_candidates() {
        let settings = protected();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut candidates = SenderCandidates::default();
        assert_eq!(candidates.max_wait(), Duration::MAX);
        let strangers: Vec<_> = (0..MAX_CANDIDATES + 3)
            .map(|_| {
                let stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                candidates.add(accepted(&listener, &settings));
                stranger
            })
            .collect();
        assert!(candidates.advance().is_none());
        assert_eq!(candidates.poll_fds().count(), MAX_CANDIDATES);
        assert_eq!(candidates.max_wait(), CHECK_INTERVAL);
        assert_eq!(candidates.time_left(), Duration::MAX);
        // Every one of them closes, and is counted.
        drop(strangers);
        let begin = Instant::now();
        while candidates.poll_fds().count() > 0 {
            assert!(candidates.advance().is_none());
            assert!(begin.elapsed() < Duration::from_secs(60));
        }
        assert!(candidates.time_left() <= GRACE_AFTER_FAILURE);
        candidates.failures.until = Some(Instant::now());
        assert!(candidates.time_left().is_zero());
        let failure = candidates.take_failure(Duration::ZERO);
        assert!(matches!(failure, Some(DataError::Security { .. })));
    }

    #[test]
    fn a_proved_identity_that_is_not_the_expected_one_ends_the_wait_soon() {
        let peer = "127.0.0.1:1".parse().unwrap();
        let failed = |error: ProtectionError| DataError::wire(peer, error.into());
        let mut failures = FailedHandshakes::default();
        failures.note(failed(ProtectionError::ClosedInHandshake));
        assert!(failures.time_left() > GRACE_AFTER_OTHER_IDENTITY);
        let other = TrustError::Name("the peer is Bob, but must be Ann".to_owned());
        failures.note(failed(TlsError::from(other).into()));
        assert!(failures.time_left() <= GRACE_AFTER_OTHER_IDENTITY);
    }

    #[test]
    fn a_handshake_that_is_not_finished_in_time_is_the_failure() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let settings = protected();
        let mut candidates = SenderCandidates::default();
        let _silent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        candidates.add(accepted(&listener, &settings));
        assert!(candidates.advance().is_none());
        let failure = candidates.take_failure(Duration::from_secs(2)).unwrap();
        let text = failure.to_string();
        assert!(
            text.contains("handshake did not finish within 2 s"),
            "{text}"
        );
    }
}
