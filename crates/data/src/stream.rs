//! One data TCP connection.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proto::address::is_same_host;
use proto::command::TransferMode;
use socket2::{Socket, TcpKeepalive};

use tune::sample::{StreamId, TcpSample};

use crate::budget::StreamPermit;
use crate::error::DataError;
use crate::handshake;
use crate::options::CongestionChoice;
use crate::os::tcp_info::{add_socket_memory, tcp_info};
use crate::os::{congestion, sockopt, wake};
use crate::security::{ConnectionOpener, ProtectionError};
use crate::settings::TransferSettings;
use crate::transport::DataTransport;

/// Limit of unsent bytes in the kernel: bounds memory and keeps progress figures accurate with a
/// large send buffer, without costing throughput on fast paths.
pub(crate) const UNSENT_LIMIT: u32 = 1 << 20;

/// Least and most of the same near the end of a file that is sent over several streams: bytes queued on a slow stream
/// cannot be sent by a faster one.
const SHORT_QUEUE: (u32, u32) = (32 << 10, 128 << 10);

/// Idle time before the first keepalive probe (tcp(7), TCP_KEEPIDLE).
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

/// The next stream's number.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// One data TCP connection. The socket is non-blocking; `stream_io` does all waiting, so that every
/// wait can be cancelled. As a descriptor it is for options, samples and waits: bytes go through
/// its transport.
#[derive(Debug)]
pub struct DataStream {
    id: StreamId,
    transport: DataTransport,
    peer: SocketAddr,
    /// Whether it goes through a proxy or a program.
    is_tunnelled: bool,
    /// Whether a program carries it: the kernel sees the way to that alone.
    is_carried: bool,
    /// The receive buffer as reported after its last change, bytes; 0: never changed.
    receive_buffer: AtomicU64,
    /// Largest read since it was last taken, bytes.
    largest_read: AtomicU64,
    /// Bytes that the peer had acknowledged when the present transfer began to use the connection.
    acknowledged_before: AtomicU64,
    /// The congestion control before the first change.
    first_congestion: OnceLock<Vec<u8>>,
    /// A transfer has decided on the congestion control.
    is_congestion_decided: AtomicBool,
    /// Held as long as the socket is open, so that cached connections count.
    permit: Mutex<Option<StreamPermit>>,
}

impl DataStream {
    /// Wraps a connected socket. Its handshake, if any, runs later in the thread that serves it.
    pub(crate) fn new(
        socket: Socket,
        peer: SocketAddr,
        opener: ConnectionOpener,
        settings: &TransferSettings,
    ) -> io::Result<Self> {
        // Blocking calls could neither be cancelled nor time out.
        socket.set_nonblocking(true)?;
        // Headers and end marks are small and must not wait for an acknowledgement (Nagle's
        // algorithm).
        socket.set_tcp_nodelay(true)?;
        // A peer that vanishes without a FIN must not keep a connection open for ever.
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_IDLE))?;
        limit_unsent(&socket, UNSENT_LIMIT);
        limit_backoff(&socket, settings.options.stall);
        // A named congestion control is the user's choice and stays.
        if settings.options.congestion.pinned_name().is_none() {
            replace_bbr_on_short_path(&socket);
        }
        handshake::after(&socket, settings.options.buffers)?;
        let first_congestion = OnceLock::new();
        if let Some(before) = set_known_congestion(&socket, settings) {
            first_congestion.get_or_init(|| before);
        }
        pace_as_known(&socket, settings);
        if let Some(bytes) = settings.options.buffers.receive {
            // Before Linux 7.1 the window of a live connection follows the buffer only when the
            // clamp is raised, too.
            let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
            sockopt::raise_window_clamp(socket.as_fd(), bytes)?;
        }
        Ok(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            transport: transport_for(socket, opener, settings)?,
            peer,
            is_tunnelled: false,
            is_carried: false,
            receive_buffer: AtomicU64::new(0),
            largest_read: AtomicU64::new(0),
            acknowledged_before: AtomicU64::new(0),
            first_congestion,
            is_congestion_decided: AtomicBool::new(false),
            permit: Mutex::new(Some(StreamPermit::unlimited())),
        })
    }

    /// The same connection, which goes through a proxy or a program if `is_tunnelled`, and through a program if `is_carried`.
    pub(crate) fn with_tunnel(self, is_tunnelled: bool, is_carried: bool) -> Self {
        Self {
            is_tunnelled,
            is_carried,
            ..self
        }
    }

    /// Whether a program carries it, so that samples of it say nothing about the path.
    pub(crate) fn is_carried(&self) -> bool {
        self.is_carried
    }

    /// Whether it goes through a proxy or a program.
    pub(crate) fn is_tunnelled(&self) -> bool {
        self.is_tunnelled
    }

    /// The same connection, holding `permit`.
    pub(crate) fn with_permit(self, permit: StreamPermit) -> Self {
        self.set_permit(permit);
        self
    }

    /// Holds `permit` from now on.
    pub(crate) fn set_permit(&self, permit: StreamPermit) {
        *self.permit.lock() = Some(permit);
    }

    /// Gives its permit to another connection, while it has no part in the transfer.
    pub(crate) fn take_permit(&self) -> Option<StreamPermit> {
        self.permit.lock().take()
    }

    /// Whether it has a permit.
    pub(crate) fn has_permit(&self) -> bool {
        self.permit.lock().is_some()
    }

    /// Lets about `bytes` be unsent in the kernel, and little in any case: others wait for this stream at the end of a file.
    pub(crate) fn shorten_queue(&self, bytes: u64) {
        let (least, most) = SHORT_QUEUE;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        limit_unsent(self.socket(), bytes.clamp(least, most));
    }

    /// Prepares a cached connection for another transfer with this congestion control.
    pub(crate) fn prepare_reuse(&self, congestion: &CongestionChoice) -> Result<(), DataError> {
        limit_unsent(self.socket(), UNSENT_LIMIT);
        // An earlier transfer may have been too short for the thread that ends its pacing.
        if let Err(error) = sockopt::set_max_pacing_rate(self.as_fd(), None) {
            tracing::debug!(%error, "the pacing rate of an earlier transfer stays");
        }
        match congestion {
            CongestionChoice::Auto => Ok(()),
            CongestionChoice::Named(name) => self
                .set_congestion(name)
                .map_err(|e| congestion_error(name, e)),
            CongestionChoice::System => {
                let original = self.first_congestion.get();
                let restored =
                    original.map_or(Ok(()), |original| congestion::set(self.socket(), original));
                if let Err(error) = restored {
                    tracing::debug!(%error, "cannot restore the congestion control");
                }
                Ok(())
            }
        }
    }

    /// Sets another congestion control.
    ///
    /// # Errors
    /// `NotFound`: the system has none of this name; `PermissionDenied`: this process may not set
    /// it (`net.ipv4.tcp_allowed_congestion_control`).
    pub(crate) fn set_congestion(&self, name: &str) -> io::Result<()> {
        let before = congestion::in_force(self.socket())?;
        congestion::set(self.socket(), name.as_bytes())?;
        // The original is recorded once, so that later changes do not hide it.
        self.first_congestion.get_or_init(|| before);
        Ok(())
    }

    /// Begins the congestion control anew: it forgets the path, its window stays. The kernel begins one anew only if it
    /// replaces another.
    ///
    /// # Errors
    /// As [`DataStream::set_congestion`]; Reno, which every system has and allows, is then in force.
    pub(crate) fn restart_congestion(&self) -> io::Result<()> {
        let in_force = congestion::in_force(self.socket())?;
        congestion::set(self.socket(), b"reno")?;
        congestion::set(self.socket(), &in_force)
    }

    /// Notes that a transfer has decided on the congestion control: the next one over this connection need not compare again.
    pub(crate) fn note_congestion_decided(&self) {
        self.is_congestion_decided.store(true, Ordering::Relaxed);
    }

    /// See [`DataStream::note_congestion_decided`].
    pub(crate) fn is_congestion_decided(&self) -> bool {
        self.is_congestion_decided.load(Ordering::Relaxed)
    }

    /// The present congestion control, as the kernel names it.
    pub(crate) fn congestion(&self) -> Option<String> {
        congestion::in_force(self.socket())
            .ok()
            .map(|name| congestion_name(&name))
    }

    /// The congestion control before the first change; `None`: never changed.
    pub(crate) fn first_congestion(&self) -> Option<String> {
        self.first_congestion
            .get()
            .map(|name| congestion_name(name))
    }

    /// Sets the number of bytes that the peer had acknowledged before the present transfer.
    pub(crate) fn note_acknowledged_before(&self, bytes: u64) {
        self.acknowledged_before.store(bytes, Ordering::Relaxed);
    }

    /// See [`DataStream::note_acknowledged_before`].
    pub(crate) fn acknowledged_before(&self) -> u64 {
        self.acknowledged_before.load(Ordering::Relaxed)
    }

    /// Unique in this process.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// The address of the other end.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether the other end is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        // A peer may be reached by a non-loopback address of this machine.
        let here = self.socket().local_addr().ok().and_then(|a| a.as_socket());
        self.peer.ip().to_canonical().is_loopback()
            || here.is_some_and(|here| is_same_host(here.ip(), self.peer.ip()))
    }

    /// A sample from the kernel now.
    pub(crate) fn sample(&self) -> io::Result<TcpSample> {
        let mut sample = tcp_info(self.as_fd())?;
        add_socket_memory(self.as_fd(), &mut sample)?;
        sample.stream = self.id;
        Ok(sample)
    }

    /// Bytes that arrived in order and were not read yet (SIOCINQ, tcp(7)).
    pub(crate) fn readable_bytes(&self) -> io::Result<u64> {
        Ok(rustix::io::ioctl_fionread(self)?)
    }

    /// Records a new size of the receive buffer, as reported, bytes.
    pub(crate) fn note_receive_buffer(&self, reported: u64) {
        self.receive_buffer.store(reported, Ordering::Relaxed);
    }

    /// See [`DataStream::note_receive_buffer`]; 0 if it was never changed.
    pub(crate) fn receive_buffer(&self) -> u64 {
        self.receive_buffer.load(Ordering::Relaxed)
    }

    /// Records a read of the program, bytes.
    pub(crate) fn note_read(&self, bytes: u64) {
        self.largest_read.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Takes the largest recorded read since the last call, bytes.
    pub(crate) fn take_largest_read(&self) -> u64 {
        self.largest_read.swap(0, Ordering::Relaxed)
    }

    /// The transport of its bytes.
    pub(crate) fn transport(&self) -> &DataTransport {
        &self.transport
    }

    /// For options and samples; see [`DataTransport::socket`].
    fn socket(&self) -> &Socket {
        self.transport.socket()
    }

    /// Whether the peer has neither closed nor reset the connection.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(
            wake::wait([(self.as_fd(), wake::PEER_CLOSED)], Duration::ZERO),
            Ok([false])
        )
    }

    /// Ends the connection with a reset instead of a FIN, at once, and discards queued bytes: in
    /// MODE S a FIN would tell the receiver that the file is complete (RFC 959 §3.4.1).
    pub(crate) fn reset(&self) {
        if let Err(error) = sockopt::reset(self.socket()) {
            tracing::debug!(%error, "cannot reset the connection, setting SO_LINGER to 0 instead");
            // SO_LINGER with 0 resets when the last descriptor is closed (socket(7)).
            let _ = self.socket().set_linger(Some(Duration::ZERO));
        }
    }
}

impl AsFd for DataStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

/// The transport of a transfer's connection, by the transfer's settings. Its handshake is still to come.
///
/// # Errors
/// [`ProtectionError::Tls`]: the protection is not configured for this end.
fn transport_for(
    socket: Socket,
    opener: ConnectionOpener,
    settings: &TransferSettings,
) -> Result<DataTransport, ProtectionError> {
    #[cfg(test)]
    if let Some(gate) = &settings.gate {
        return Ok(DataTransport::gated(socket, std::sync::Arc::clone(gate)));
    }
    let ends_file = settings.mode == TransferMode::Stream;
    match &settings.security {
        None => Ok(DataTransport::clear(socket)),
        Some(security) => DataTransport::protected(socket, opener, security, ends_file),
    }
}

/// Sets the options that act on the handshake, before connect(2), and again on accepted sockets
/// whose listener was made before the settings were known.
pub(crate) fn set_handshake_options(
    socket: &Socket,
    settings: &TransferSettings,
) -> Result<(), DataError> {
    handshake::before(socket, settings.options.buffers)?;
    if let Some(name) = settings.options.congestion.pinned_name() {
        congestion::set(socket, name.as_bytes()).map_err(|e| congestion_error(name, e))?;
    }
    Ok(())
}

/// A name as the kernel returns it, without padding.
fn congestion_name(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    name.trim_end_matches('\0').to_owned()
}

/// Limits the unsent bytes in the send queue (TCP_NOTSENT_LOWAT), bytes.
fn limit_unsent(socket: &Socket, bytes: u32) {
    // Older kernels and containers may not support it; it is not needed for correctness.
    if let Err(error) = sockopt::limit_unsent(socket, bytes) {
        tracing::debug!(%error, "TCP_NOTSENT_LOWAT not set");
    }
}

/// Lets a stream whose segments were lost again and again come back within a part of the time after which its transfer counts
/// as stalled. The kernel's own limit is two minutes, in which all others may have ended long ago.
fn limit_backoff(socket: &Socket, stall: Duration) {
    // An eighth: the kernel gives up after 15 times (`net.ipv4.tcp_retries2`), later than the transfer.
    let set = sockopt::set_max_retransmission_timeout(socket.as_fd(), stall / 8);
    if let Err(error) = set {
        tracing::debug!(%error, "TCP_RTO_MAX_MS not set");
    }
}

fn congestion_error(name: &str, error: io::Error) -> DataError {
    let permitted = congestion::settable().join(", ");
    let what = format!("congestion control `{name}` (this system permits {permitted})");
    DataError::setup(what, error)
}

/// Replaces the system's congestion control if [`tune::congestion`] has a better one for the
/// round-trip time of the handshake: BBR costs too much processor time on short paths. What the
/// system refuses stays.
fn replace_bbr_on_short_path(socket: &Socket) {
    let (Ok(in_force), Ok(info)) = (congestion::in_force(socket), tcp_info(socket.as_fd())) else {
        return;
    };
    let name = String::from_utf8_lossy(&in_force);
    for better in
        tune::congestion::short_path_alternatives(name.trim_end_matches('\0'), info.smoothed_rtt)
    {
        if congestion::set(socket, better.as_bytes()).is_ok() {
            return;
        }
    }
}

/// Sets the congestion control that is known to suit the path, so that it counts from the first byte. Returns the one
/// before. The tuner finds it in force at its first sample, and may return to the other.
fn set_known_congestion(socket: &Socket, settings: &TransferSettings) -> Option<Vec<u8>> {
    let known = settings.prior.congestion_control.as_deref()?;
    if settings.options.congestion != CongestionChoice::Auto {
        return None;
    }
    let before = congestion::in_force(socket).ok()?;
    match congestion::set(socket, known.as_bytes()) {
        Ok(()) => Some(before),
        Err(error) => {
            tracing::debug!(known, %error, "the known congestion control is refused");
            None
        }
    }
}

/// Sets this stream's share of the pacing rate that is known to fill the path. The tuner's first sample corrects it to
/// the real number of streams.
fn pace_as_known(socket: &Socket, settings: &TransferSettings) {
    let prior = &settings.prior;
    let Some(rate) = prior.pacing_rate.filter(|rate| *rate > 0 && settings.adapt) else {
        return;
    };
    let streams = prior.streams.map_or(settings.streams as u64, u64::from);
    let share = (rate / streams.clamp(1, settings.max_streams.max(1) as u64)).max(1);
    if let Err(error) = sockopt::set_max_pacing_rate(socket.as_fd(), Some(share)) {
        tracing::debug!(%error, "the known pacing rate is refused");
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use tune::Prior;

    use super::*;
    use crate::os::sockopt::max_pacing_rate;

    /// A new connection of a transfer with these settings, and its other end.
    fn opened(settings: &TransferSettings) -> (DataStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let peer = near.peer_addr().unwrap();
        let opener = ConnectionOpener::ThisEnd;
        let stream = DataStream::new(near.into(), peer, opener, settings).unwrap();
        (stream, far)
    }

    #[test]
    fn known_settings_are_in_force_before_the_first_byte() {
        let (plain, _far) = opened(&TransferSettings::default());
        let system = plain.congestion().unwrap();
        let Some(other) = congestion::settable()
            .into_iter()
            .find(|name| *name != system)
        else {
            return;
        };
        let mut settings = TransferSettings {
            prior: Prior {
                congestion_control: Some(other.clone()),
                pacing_rate: Some(800_000),
                ..Prior::with_streams(4)
            },
            adapt: true,
            max_streams: 8,
            ..TransferSettings::default()
        };
        settings.options.congestion = CongestionChoice::Auto;
        let (known, _far) = opened(&settings);
        assert_eq!(known.congestion(), Some(other.clone()));
        assert_eq!(known.first_congestion(), Some(system.clone()));
        assert_eq!(max_pacing_rate(known.as_fd()).unwrap(), Some(200_000));
        // The next transfer over the connection knows its own path.
        known.prepare_reuse(&CongestionChoice::System).unwrap();
        assert_eq!(max_pacing_rate(known.as_fd()).unwrap(), None);

        // The user's choice is not replaced, and a setting that the system refuses stays as it was.
        settings.options.congestion = CongestionChoice::Named(other.clone());
        assert_eq!(opened(&settings).0.first_congestion(), None);
        settings.options.congestion = CongestionChoice::System;
        assert_eq!(opened(&settings).0.congestion(), Some(system.clone()));
        settings.options.congestion = CongestionChoice::Auto;
        settings.prior.congestion_control = Some("warpdrive".to_owned());
        settings.adapt = false;
        let (refused, _far) = opened(&settings);
        assert_eq!(refused.congestion(), Some(system));
        assert_eq!(max_pacing_rate(refused.as_fd()).unwrap(), None);
    }

    #[test]
    fn the_error_names_the_unknown_congestion_control() {
        let socket = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let mut settings = TransferSettings::default();
        settings.options.congestion = CongestionChoice::Named("warpdrive".into());
        let error = set_handshake_options(&socket, &settings).unwrap_err();
        assert!(error.to_string().contains("`warpdrive`"), "{error}");
    }
}
