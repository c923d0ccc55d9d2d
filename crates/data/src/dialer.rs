//! TCP connections on which the caller runs its own protocol (HTTP).
//!
//! A [`Dialer`] makes the connections of one stream, one after the other. It ends a wait on them
//! when its transfer is stopped or the peer is silent for too long. While it works for a transfer,
//! its connection is part of the transfer's [`TransferControl`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proto::tunnel::TunnelTarget;
use rustix::event::PollFlags;
use socket2::Socket;
use tune::Evidence;
use tune::sample::TcpSample;

use crate::control::TransferControl;
use crate::error::DataError;
use crate::job::{ReaderContext, TransferSettings};
use crate::opening::OpeningConnection;
use crate::os::tcp_info;
use crate::os::wake::{self, WakeEvent};
use crate::security::ConnectionOpener;
use crate::stream::{DataStream, set_handshake_options};
use crate::stream_io::stream_evidence;
use crate::tunnel::{ProxyService, Tunnel};

/// Every address but the last gets the remaining time divided by this.
const TIME_DIVISOR: u32 = 2;

/// Makes the connections of one stream, and ends the waits on them.
#[derive(Debug)]
pub struct Dialer {
    /// Woken by [`Dialer::stop`].
    stop_event: Arc<WakeEvent>,
    stopped: AtomicBool,
    state: Mutex<DialerState>,
}

/// The present settings, transfer and connection.
#[derive(Debug)]
struct DialerState {
    settings: TransferSettings,
    /// Woken when the work must stop.
    stop: Arc<WakeEvent>,
    transfer: Option<DialerTransfer>,
    /// The connection in use, or kept for the next request.
    connection: Option<Arc<DataStream>>,
    /// The error of the last failed wait.
    failure: Option<DataError>,
    /// Behind a proxy: how long it took to open the connection.
    tunnel_time: Option<Duration>,
}

/// The transfer that the dialer works for.
#[derive(Debug)]
struct DialerTransfer {
    control: Arc<TransferControl>,
    /// Evidence from connections that have ended.
    evidence: Evidence,
    /// The kernel's counters when the transfer began to use the open connection.
    before: TcpSample,
    joined: Instant,
}

impl Dialer {
    /// A dialer for requests outside of transfers. `settings.connect_timeout` limits the wait for a
    /// connection, `settings.options.stall` the silence of the peer.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(settings: &TransferSettings) -> Result<Arc<Self>, DataError> {
        let wake = WakeEvent::new().map_err(|e| DataError::setup("an event descriptor", e))?;
        let stop_event = Arc::new(wake);
        Ok(Arc::new(Self {
            stopped: AtomicBool::new(false),
            state: Mutex::new(DialerState {
                settings: settings.clone(),
                stop: Arc::clone(&stop_event),
                transfer: None,
                connection: None,
                failure: None,
                tunnel_time: None,
            }),
            stop_event,
        }))
    }

    /// Ends every wait from now on with [`DataError::Aborted`], in transfers and outside.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.stop_event.wake();
        self.state.lock().stop.wake();
    }

    /// Takes the error of the last failed wait. Errors that pass through an HTTP library lose their
    /// type, so the caller asks here.
    pub fn take_failure(&self) -> Option<DataError> {
        self.state.lock().failure.take()
    }

    /// Smoothed round-trip time of the connection according to the kernel; `None` without a
    /// connection. Behind a proxy the kernel sees a part of the path: it is the time that the connection took to open, a round trip
    /// or more.
    pub fn rtt(&self) -> Option<Duration> {
        if let Some(time) = self.state.lock().tunnel_time {
            return Some(time);
        }
        let connection = self.state.lock().connection.clone()?;
        let rtt = tcp_info::tcp_info(connection.as_fd()).ok()?.smoothed_rtt;
        (!rtt.is_zero()).then_some(rtt)
    }

    /// The addresses of this machine and of the peer, of the connection; `None` without one, and behind a proxy.
    pub fn path_ends(&self) -> Option<(IpAddr, IpAddr)> {
        let connection = {
            let state = self.state.lock();
            let direct = state.connection.clone();
            direct.filter(|_| state.tunnel_time.is_none())?
        };
        let local =
            SocketAddr::try_from(rustix::net::getsockname(connection.as_fd()).ok()?).ok()?;
        let peer = connection.peer();
        Some((local.ip().to_canonical(), peer.ip().to_canonical()))
    }

    /// Assigns the present and further connections to a transfer, until [`Dialer::leave_transfer`].
    pub fn join_transfer(&self, context: ReaderContext<'_>) {
        let mut state = self.state.lock();
        state.settings = context.settings.clone();
        state.stop = Arc::clone(context.stop);
        state.failure = None;
        state.transfer = Some(DialerTransfer {
            control: Arc::clone(context.control),
            evidence: Evidence::default(),
            before: TcpSample::default(),
            joined: Instant::now(),
        });
        // A connection kept from an earlier request counts in this transfer, too.
        if let Some(stream) = state.connection.take() {
            state.set_connection(stream);
        }
    }

    /// Ends the assignment to a transfer. Returns the evidence of its connections.
    pub fn leave_transfer(&self) -> Evidence {
        let mut state = self.state.lock();
        let connection = state.connection.take();
        if let Some(stream) = &connection {
            state.clear_connection(stream);
        }
        state.connection = connection;
        state.stop = Arc::clone(&self.stop_event);
        state
            .transfer
            .take()
            .map_or_else(Evidence::default, |d| d.evidence)
    }

    /// Connects to the first of `targets` that answers. Each target gets a share of the time, the
    /// last one all that is left. The dialer gives up its previous connection.
    ///
    /// # Errors
    /// The last target's error; [`DataError::Aborted`] when stopped.
    pub fn dial(self: &Arc<Self>, targets: &[SocketAddr]) -> Result<DialedConnection, DataError> {
        self.dial_by(targets, None)
    }

    /// [`Dialer::dial`] through a proxy: `at` are its addresses.
    ///
    /// # Errors
    /// As [`Dialer::dial`]; [`DataError::Tunnel`].
    pub fn dial_through(
        self: &Arc<Self>,
        proxy: &ProxyService,
        at: &[SocketAddr],
        target: &TunnelTarget,
    ) -> Result<DialedConnection, DataError> {
        self.dial_by(at, Some(Tunnel { proxy, target }))
    }

    /// Notes that the present connection ends at a proxy, with which the caller itself has the dialogue.
    pub fn ends_at_proxy(&self) {
        let rtt = self.rtt().unwrap_or_default();
        self.state.lock().tunnel_time = Some(rtt);
    }

    fn dial_by(
        self: &Arc<Self>,
        targets: &[SocketAddr],
        tunnel: Option<Tunnel<'_>>,
    ) -> Result<DialedConnection, DataError> {
        let (settings, stop) = {
            let mut state = self.state.lock();
            // The old connection leaves the transfer before the dial, so that its counters are not
            // lost.
            if let Some(stream) = state.connection.take() {
                state.clear_connection(&stream);
            }
            (state.settings.clone(), Arc::clone(&state.stop))
        };
        let begin = Instant::now();
        let until = begin + settings.connect_timeout;
        let mut last = DataError::NoPeer { seconds: 0 };
        for (nth, to) in targets.iter().enumerate() {
            let left = until.saturating_duration_since(Instant::now());
            // A dead first address must not use up all the time.
            let timeout = match nth + 1 == targets.len() {
                true => left,
                false => left / TIME_DIVISOR,
            };
            match self.connect(*to, tunnel, &settings, &stop, timeout) {
                Ok(stream) => {
                    let stream = Arc::new(stream);
                    let mut state = self.state.lock();
                    state.set_connection(Arc::clone(&stream));
                    state.tunnel_time = tunnel.map(|_| begin.elapsed());
                    drop(state);
                    let dialer = Arc::clone(self);
                    return Ok(DialedConnection { stream, dialer });
                }
                Err(DataError::Aborted) => {
                    last = DataError::Aborted;
                    break;
                }
                Err(error) => last = error,
            }
        }
        Err(self.note(last))
    }

    fn connect(
        &self,
        to: SocketAddr,
        tunnel: Option<Tunnel<'_>>,
        settings: &TransferSettings,
        stop: &WakeEvent,
        timeout: Duration,
    ) -> Result<DataStream, DataError> {
        let prepare = |socket: &Socket| set_handshake_options(socket, settings);
        let connection = match tunnel {
            Some(tunnel) => OpeningConnection::start_through(tunnel, to, None, prepare)?,
            None => OpeningConnection::start(to, None, prepare)?,
        };
        // A stop may have come before this call began to wait.
        let is_stopped = || self.stopped.load(Ordering::SeqCst);
        let socket = connection.complete(Instant::now() + timeout, stop, is_stopped)?;
        DataStream::new(socket, to, ConnectionOpener::ThisEnd, settings)
            .map_err(|source| DataError::Connect { to, source })
    }

    /// Runs `op` on a connection, and waits for `ready` whenever it would block.
    fn retry_until_ready(
        &self,
        stream: &DataStream,
        ready: PollFlags,
        mut op: impl FnMut(&DataStream) -> io::Result<usize>,
    ) -> Result<usize, DataError> {
        let (timeout, stop) = {
            let state = self.state.lock();
            (state.settings.options.stall, Arc::clone(&state.stop))
        };
        let broke = |source| DataError::wire(stream.peer(), source);
        let mut until = Instant::now() + timeout;
        let mut acknowledged = None;
        loop {
            match op(stream) {
                Err(e) if should_retry(&e) => {}
                done => return done.map_err(|e| self.note(broke(e))),
            }
            // A large send buffer on a slow path drains without any call returning: bytes that the
            // peer acknowledges count as progress.
            let acked = tcp_info::tcp_info(stream.as_fd()).map(|info| info.bytes_acked);
            if let (Ok(acked_now), PollFlags::OUT) = (acked, ready)
                // The first value only starts the comparison.
                && acknowledged
                    .replace(acked_now)
                    .is_some_and(|before| before != acked_now)
            {
                until = Instant::now() + timeout;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // At least one: the message counts whole seconds.
                let seconds = timeout.as_secs().max(1);
                return Err(self.note(DataError::Stalled { seconds }));
            }
            let fds = [(stream.as_fd(), ready), (stop.as_fd(), PollFlags::IN)];
            // Look at the acknowledged bytes at least once a second.
            let poll_interval = left.min(Duration::from_secs(1));
            let [_, stopped] = wake::wait(fds, poll_interval).map_err(|e| self.note(broke(e)))?;
            if stopped || self.stopped.load(Ordering::SeqCst) {
                return Err(self.note(DataError::Aborted));
            }
        }
    }

    /// Stores an error for [`Dialer::take_failure`]. Returns an equivalent one for the caller.
    fn note(&self, error: DataError) -> DataError {
        // `DataError` owns an `io::Error` and cannot be cloned.
        let returned = match &error {
            DataError::Aborted => DataError::Aborted,
            DataError::Stalled { seconds } => DataError::Stalled { seconds: *seconds },
            other => DataError::Wire {
                peer: String::new(),
                source: io::Error::other(other.to_string()),
            },
        };
        self.state.lock().failure = Some(error);
        returned
    }
}

/// Whether the call must be repeated.
fn should_retry(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

impl DialerState {
    /// Makes this the present connection.
    fn set_connection(&mut self, stream: Arc<DataStream>) {
        if let Some(transfer) = &mut self.transfer {
            transfer.before = tcp_info::tcp_info(stream.as_fd()).unwrap_or_default();
            transfer.joined = Instant::now();
            transfer.control.attach(&stream);
        }
        self.connection = Some(stream);
    }

    /// Ends the use of a connection, or its use for this transfer.
    fn clear_connection(&mut self, stream: &Arc<DataStream>) {
        if let Some(transfer) = &mut self.transfer {
            transfer.control.detach(stream);
            let evidence = stream_evidence(stream, &transfer.before, transfer.joined);
            transfer.evidence.add_stream(&evidence);
        }
    }
}

/// A connection that a [`Dialer`] made.
#[derive(Debug)]
pub struct DialedConnection {
    stream: Arc<DataStream>,
    dialer: Arc<Dialer>,
}

impl DialedConnection {
    /// Receives the available bytes, and waits for the first one. 0 is the peer's FIN.
    ///
    /// # Errors
    /// [`DataError::Wire`], [`DataError::Stalled`], [`DataError::Aborted`].
    pub fn recv(&self, buf: &mut [u8]) -> Result<usize, DataError> {
        let read = |s: &DataStream| s.transport().recv(buf);
        self.dialer
            .retry_until_ready(&self.stream, PollFlags::IN, read)
    }

    /// Waits at most `timeout` until the peer has sent something or closed. Returns whether it has.
    pub fn has_input(&self, timeout: Duration) -> bool {
        let fds = [(self.stream.as_fd(), PollFlags::IN)];
        matches!(wake::wait(fds, timeout), Ok([true]))
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// As [`DialedConnection::recv`].
    pub fn send_all(&self, bytes: &[u8]) -> Result<(), DataError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let send = |s: &DataStream| s.transport().send(&[io::IoSlice::new(rest)], false);
            let n = self
                .dialer
                .retry_until_ready(&self.stream, PollFlags::OUT, send)?;
            rest = rest.get(n..).unwrap_or_default();
        }
        Ok(())
    }

    /// Whether it can carry another request: it is open, and no unrequested bytes came.
    pub fn is_idle(&self) -> bool {
        // Unrequested bytes mean that the peer ends the connection or answers a request that was
        // never made.
        self.stream.is_alive() && !self.has_input(Duration::ZERO)
    }
}

impl Drop for DialedConnection {
    fn drop(&mut self) {
        let mut state = self.dialer.state.lock();
        let is_this = |connection: &mut Arc<DataStream>| Arc::ptr_eq(connection, &self.stream);
        if let Some(stream) = state.connection.take_if(is_this) {
            state.clear_connection(&stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn settings(stall: Duration) -> TransferSettings {
        let mut settings = TransferSettings::default();
        settings.options.stall = stall;
        settings
    }

    #[test]
    fn a_silent_peer_is_a_stall_and_the_error_is_kept() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dialer = Dialer::new(&settings(Duration::from_millis(50))).unwrap();
        let connection = dialer.dial(&[listener.local_addr().unwrap()]).unwrap();
        let silent = connection.recv(&mut [0; 10]);
        assert!(matches!(silent, Err(DataError::Stalled { .. })));
        let kept = dialer.take_failure();
        assert!(matches!(kept, Some(DataError::Stalled { .. })) && dialer.take_failure().is_none());
    }

    #[test]
    fn the_next_address_is_tried_after_a_refusal() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap();
        let dead = closed.local_addr().unwrap();
        drop(closed);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dialer = Dialer::new(&settings(Duration::from_secs(60))).unwrap();
        assert!(dialer.dial(&[dead]).is_err());
        let to = [dead, listener.local_addr().unwrap()];
        let connection = dialer.dial(&to).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        connection.send_all(b"hello").unwrap();
        let mut hello = [0; 5];
        peer.read_exact(&mut hello).unwrap();
        peer.write_all(&hello).unwrap();
        assert_eq!(connection.recv(&mut hello).unwrap(), 5);
        assert!(connection.is_idle());
        drop(peer);
        assert!(connection.has_input(Duration::from_secs(60)) && !connection.is_idle());
    }

    #[test]
    fn stop_wakes_a_waiting_receiver() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dialer = Dialer::new(&settings(Duration::from_secs(3600))).unwrap();
        let connection = dialer.dial(&[listener.local_addr().unwrap()]).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| connection.recv(&mut [0; 10]));
            dialer.stop();
            let ended = waiting.join().unwrap();
            assert!(matches!(ended, Err(DataError::Aborted)));
        });
    }

    #[test]
    fn the_connection_is_visible_while_a_transfer_uses_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let settings = settings(Duration::from_secs(60));
        let dialer = Dialer::new(&settings).unwrap();
        let connection = dialer.dial(&[listener.local_addr().unwrap()]).unwrap();
        let control = Arc::new(TransferControl::new());
        let stop = Arc::new(WakeEvent::new().unwrap());
        let context = ReaderContext {
            settings: &settings,
            control: &control,
            stop: &stop,
        };
        dialer.join_transfer(context);
        assert_eq!((control.streams(), control.sample_streams().len()), (1, 1));
        let evidence = dialer.leave_transfer();
        assert_eq!(control.streams(), 0);
        assert!(evidence.buffer_bytes > 0);
        drop(connection);
        dialer.join_transfer(context);
        assert_eq!(control.streams(), 0);
    }
}
