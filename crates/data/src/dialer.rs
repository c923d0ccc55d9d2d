//! TCP connections on which the caller speaks a protocol of its own (HTTP).
//!
//! A [`Dialer`] makes the connections of one stream, one after the other, and says what ends a wait on
//! them: the transfer that it works for was stopped, or the peer was silent for too long. While it
//! works for a transfer, its connection is shown in the transfer's [`TransferControl`].

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use tune::Evidence;

use crate::connect::{is_connect_decided, start_connect};
use crate::control::TransferControl;
use crate::error::DataError;
use crate::job::TransferSettings;
use crate::locks::lock;
use crate::os::tcp_info::{self, TcpInfo};
use crate::os::wake::{self, WakeEvent};
use crate::pull::ReaderContext;
use crate::stream::{DataStream, set_handshake_options};
use crate::stream_io::stream_evidence;

/// An address that is not the host's last one has this part of the time that is left.
const SHARE: u32 = 2;

/// Makes the connections of one stream and ends the waits on them.
#[derive(Debug)]
pub struct Dialer {
    /// Rung by [`Dialer::stop`].
    own: Arc<WakeEvent>,
    stopped: AtomicBool,
    now: Mutex<DialerState>,
}

/// Whom the dialer works for.
#[derive(Debug)]
struct DialerState {
    settings: TransferSettings,
    /// Rung when the work is to stop.
    stop: Arc<WakeEvent>,
    work: Option<DialerTransfer>,
    /// The connection in use, or kept for the next request.
    open: Option<Arc<DataStream>>,
    /// Why the last wait failed.
    failure: Option<DataError>,
}

/// A transfer under way.
#[derive(Debug)]
struct DialerTransfer {
    control: Arc<TransferControl>,
    /// Of connections that have ended.
    stats: Evidence,
    /// The kernel's counts for the open connection before.
    before: TcpInfo,
    joined: Instant,
}

impl Dialer {
    /// For requests outside of transfers: `settings.connect` bounds the wait for a connection,
    /// `settings.options.stall` the peer's silence.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(settings: &TransferSettings) -> Result<Arc<Self>, DataError> {
        let wake = WakeEvent::new().map_err(|e| DataError::setup("an event descriptor", e))?;
        let own = Arc::new(wake);
        Ok(Arc::new(Self {
            stopped: AtomicBool::new(false),
            now: Mutex::new(DialerState {
                settings: settings.clone(),
                stop: Arc::clone(&own),
                work: None,
                open: None,
                failure: None,
            }),
            own,
        }))
    }

    /// Ends every wait from now on with [`DataError::Aborted`], in transfers and outside.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.own.wake();
        lock(&self.now).stop.wake();
    }

    /// Why the last wait failed, once: errors that pass through a library lose their kind.
    pub fn take_failure(&self) -> Option<DataError> {
        lock(&self.now).failure.take()
    }

    /// Smoothed round-trip time of the connection, as the kernel sees it; `None` without one.
    pub fn rtt(&self) -> Option<Duration> {
        let open = lock(&self.now).open.clone()?;
        let micros = tcp_info::tcp_info(open.as_fd()).ok()?.rtt_us;
        (micros > 0).then(|| Duration::from_micros(micros.into()))
    }

    /// The connection and further ones belong to a transfer from now on, until [`Dialer::leave_transfer`].
    pub fn join_transfer(&self, duty: ReaderContext<'_>) {
        let mut now = lock(&self.now);
        now.settings = duty.settings.clone();
        now.stop = Arc::clone(duty.stop);
        now.failure = None;
        now.work = Some(DialerTransfer {
            control: Arc::clone(duty.control),
            stats: Evidence::default(),
            before: TcpInfo::default(),
            joined: Instant::now(),
        });
        if let Some(stream) = now.open.take() {
            now.show(stream);
        }
    }

    /// The transfer has ended; returns what the kernel saw of its connections here.
    pub fn leave_transfer(&self) -> Evidence {
        let mut now = lock(&self.now);
        let open = now.open.take();
        if let Some(stream) = &open {
            now.hide(stream);
        }
        now.open = open;
        now.stop = Arc::clone(&self.own);
        now.work.take().map_or_else(Evidence::default, |d| d.stats)
    }

    /// Connects to the first of `targets` that answers; each has a share of the time, the last one all
    /// that is left. The connection that there was is no longer this dialer's.
    ///
    /// # Errors
    /// The last target's; [`DataError::Aborted`] when stopped.
    pub fn dial(self: &Arc<Self>, targets: &[SocketAddr]) -> Result<DialedConnection, DataError> {
        let (settings, stop) = {
            let mut now = lock(&self.now);
            if let Some(stream) = now.open.take() {
                now.hide(&stream);
            }
            (now.settings.clone(), Arc::clone(&now.stop))
        };
        let until = Instant::now() + settings.connect_timeout;
        let mut last = DataError::NoPeer { seconds: 0 };
        for (nth, to) in targets.iter().enumerate() {
            let left = until.saturating_duration_since(Instant::now());
            let limit = match nth + 1 == targets.len() {
                true => left,
                false => left / SHARE,
            };
            match self.connect(*to, &settings, &stop, limit) {
                Ok(stream) => {
                    let stream = Arc::new(stream);
                    lock(&self.now).show(Arc::clone(&stream));
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
        settings: &TransferSettings,
        stop: &WakeEvent,
        limit: Duration,
    ) -> Result<DataStream, DataError> {
        let failed = |source| DataError::Connect { to, source };
        let socket = start_connect(to, None, |socket| set_handshake_options(socket, settings))?;
        let until = Instant::now() + limit;
        while !is_connect_decided(&socket) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(failed(io::ErrorKind::TimedOut.into()));
            }
            let fds = [
                (socket.as_fd(), PollFlags::OUT),
                (stop.as_fd(), PollFlags::IN),
            ];
            let [_, stopped] = wake::wait(fds, left).map_err(|e| DataError::setup("a wait", e))?;
            if stopped || self.stopped.load(Ordering::SeqCst) {
                return Err(DataError::Aborted);
            }
        }
        let error = socket.take_error().map_err(failed)?;
        error.map_or(Ok(()), |e| Err(failed(e)))?;
        DataStream::new(socket, to, settings).map_err(failed)
    }

    /// Runs `op` on a connection, waiting for `ready` whenever it would block.
    fn retry_until_ready(
        &self,
        stream: &DataStream,
        ready: PollFlags,
        mut op: impl FnMut(&DataStream) -> io::Result<usize>,
    ) -> Result<usize, DataError> {
        let (limit, stop) = {
            let now = lock(&self.now);
            (now.settings.options.stall, Arc::clone(&now.stop))
        };
        let broke = |source| DataError::Wire {
            peer: stream.peer().to_string(),
            source,
        };
        let mut until = Instant::now() + limit;
        let mut acknowledged = None;
        loop {
            match op(stream) {
                Err(e) if should_retry(&e) => {}
                done => return done.map_err(|e| self.note(broke(e))),
            }
            // A large send buffer over a slow path: what the peer acknowledges moves.
            let acked = tcp_info::tcp_info(stream.as_fd()).map(|info| info.bytes_acked);
            if let (Ok(now), PollFlags::OUT) = (acked, ready)
                && acknowledged
                    .replace(now)
                    .is_some_and(|before| before != now)
            {
                until = Instant::now() + limit;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let seconds = limit.as_secs().max(1);
                return Err(self.note(DataError::Stalled { seconds }));
            }
            let fds = [(stream.as_fd(), ready), (stop.as_fd(), PollFlags::IN)];
            let look = left.min(Duration::from_secs(1));
            let [_, stopped] = wake::wait(fds, look).map_err(|e| self.note(broke(e)))?;
            if stopped || self.stopped.load(Ordering::SeqCst) {
                return Err(self.note(DataError::Aborted));
            }
        }
    }

    /// Remembers a failure for [`Dialer::take_failure`].
    fn note(&self, error: DataError) -> DataError {
        let told = match &error {
            DataError::Aborted => DataError::Aborted,
            DataError::Stalled { seconds } => DataError::Stalled { seconds: *seconds },
            other => DataError::Wire {
                peer: String::new(),
                source: io::Error::other(other.to_string()),
            },
        };
        lock(&self.now).failure = Some(error);
        told
    }
}

/// Whether the call is to be made again.
fn should_retry(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

impl DialerState {
    /// This is the connection now.
    fn show(&mut self, stream: Arc<DataStream>) {
        if let Some(work) = &mut self.work {
            work.before = tcp_info::tcp_info(stream.as_fd()).unwrap_or_default();
            work.joined = Instant::now();
            work.control.attach(&stream);
        }
        self.open = Some(stream);
    }

    /// It is no longer, or not for this transfer.
    fn hide(&mut self, stream: &Arc<DataStream>) {
        if let Some(work) = &mut self.work {
            work.control.detach(stream);
            let stats = stream_evidence(stream, &work.before, work.joined);
            work.stats.add_stream(&stats);
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
    /// Receives what is there, waiting for the first byte; 0 is the peer's FIN.
    ///
    /// # Errors
    /// [`DataError::Wire`], [`DataError::Stalled`], [`DataError::Aborted`].
    pub fn recv(&self, buf: &mut [u8]) -> Result<usize, DataError> {
        let read = |s: &DataStream| s.transport().recv(buf);
        self.dialer
            .retry_until_ready(&self.stream, PollFlags::IN, read)
    }

    /// Waits at most `limit` until the peer has sent something or closed; whether it has.
    pub fn has_input(&self, limit: Duration) -> bool {
        let fds = [(self.stream.as_fd(), PollFlags::IN)];
        matches!(wake::wait(fds, limit), Ok([true]))
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

    /// Whether it can carry another request: open, and nothing came unasked.
    pub fn is_idle(&self) -> bool {
        self.stream.is_alive() && !self.has_input(Duration::ZERO)
    }
}

impl Drop for DialedConnection {
    fn drop(&mut self) {
        let mut now = lock(&self.dialer.now);
        let is_this = |open: &mut Arc<DataStream>| Arc::ptr_eq(open, &self.stream);
        if let Some(stream) = now.open.take_if(is_this) {
            now.hide(&stream);
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
    fn a_silent_peer_is_given_up_and_the_reason_kept() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dialer = Dialer::new(&settings(Duration::from_millis(50))).unwrap();
        let connection = dialer.dial(&[listener.local_addr().unwrap()]).unwrap();
        let silent = connection.recv(&mut [0; 10]);
        assert!(matches!(silent, Err(DataError::Stalled { .. })));
        let kept = dialer.take_failure();
        assert!(matches!(kept, Some(DataError::Stalled { .. })) && dialer.take_failure().is_none());
    }

    #[test]
    fn the_next_address_is_tried_when_one_refuses() {
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
    fn a_stop_wakes_whoever_waits() {
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
    fn its_connection_is_shown_while_it_works_for_a_transfer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let settings = settings(Duration::from_secs(60));
        let dialer = Dialer::new(&settings).unwrap();
        let connection = dialer.dial(&[listener.local_addr().unwrap()]).unwrap();
        let control = Arc::new(TransferControl::new());
        let stop = Arc::new(WakeEvent::new().unwrap());
        let duty = ReaderContext {
            settings: &settings,
            control: &control,
            stop: &stop,
        };
        dialer.join_transfer(duty);
        assert_eq!((control.streams(), control.sample_streams().len()), (1, 1));
        let stats = dialer.leave_transfer();
        assert_eq!(control.streams(), 0);
        assert!(stats.buffer_bytes > 0);
        drop(connection);
        dialer.join_transfer(duty);
        assert_eq!(control.streams(), 0);
    }
}
