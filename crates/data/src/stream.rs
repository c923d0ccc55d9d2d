//! One data TCP connection.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use proto::address::is_same_host;
use rustix::event::PollFlags;
use socket2::{Socket, TcpKeepalive};

use tune::sample::StreamId;

use crate::budget::StreamPermit;
use crate::error::DataError;
use crate::handshake;
use crate::locks::lock;
use crate::options::CongestionChoice;
use crate::os::tcp_info::{SocketMemory, TcpInfo, socket_memory, tcp_info};
use crate::os::{congestion, sockopt, wake};
use crate::settings::TransferSettings;
use crate::transport::DataTransport;

/// Unsent bytes that may queue in the kernel: bounds memory and keeps progress figures honest
/// even with a large send buffer, without costing throughput on fast paths.
const UNSENT: u32 = 1 << 20;

/// The same towards the end of a file that goes over several streams: what a slow one has taken, no
/// faster one can send.
const UNSENT_AT_LAST: u32 = 128 << 10;

/// Idle time after which the kernel begins to ask whether the peer is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// The next stream's number.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// One stream as its kernel shows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamSample {
    /// Which: unique in this process.
    pub stream: StreamId,
    /// TCP_INFO.
    pub info: TcpInfo,
    /// SO_MEMINFO.
    pub memory: SocketMemory,
}

/// One data TCP connection. The socket never blocks; waiting is `wire`'s business, so that every
/// wait can be cancelled. As a descriptor it is for options, looks and waits: bytes go through its
/// transport.
#[derive(Debug)]
pub struct DataStream {
    id: StreamId,
    transport: DataTransport,
    peer: SocketAddr,
    /// The receive buffer as last reported to whoever changed it, bytes; 0: nobody did.
    receive_buffer: AtomicU64,
    /// Bytes that the peer had acknowledged when the present transfer began to use it.
    acknowledged_before: AtomicU64,
    /// The congestion control it had before somebody changed it.
    first_congestion: OnceLock<Vec<u8>>,
    /// Lasts as long as the socket, so that connections kept between transfers count.
    permit: Mutex<Option<StreamPermit>>,
}

impl DataStream {
    /// Takes a connected socket. Its handshake, if it has one, is still to come: that is for the thread
    /// that will serve it.
    pub(crate) fn new(
        socket: Socket,
        peer: SocketAddr,
        settings: &TransferSettings,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
        limit_unsent(&socket, UNSENT);
        if settings.options.congestion.pinned_name().is_none() {
            replace_bbr_on_short_path(&socket);
        }
        handshake::after(&socket, settings.options.buffers)?;
        if let Some(bytes) = settings.options.buffers.receive {
            // Before Linux 7.1 the window of a live connection only follows the buffer when the
            // clamp is lifted too.
            sockopt::set_window_clamp(socket.as_fd(), i32::try_from(bytes).unwrap_or(i32::MAX))?;
        }
        Ok(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            transport: DataTransport::for_transfer(socket, settings),
            peer,
            receive_buffer: AtomicU64::new(0),
            acknowledged_before: AtomicU64::new(0),
            first_congestion: OnceLock::new(),
            permit: Mutex::new(Some(StreamPermit::unlimited())),
        })
    }

    /// The same connection, open by the right of `permit`.
    pub(crate) fn with_permit(self, permit: StreamPermit) -> Self {
        self.set_permit(permit);
        self
    }

    /// Is open by the right of `permit` from now on.
    pub(crate) fn set_permit(&self, permit: StreamPermit) {
        *lock(&self.permit) = Some(permit);
    }

    /// Gives its permit to another connection, while it has no part in the transfer.
    pub(crate) fn take_permit(&self) -> Option<StreamPermit> {
        lock(&self.permit).take()
    }

    /// Whether it has a permit.
    pub(crate) fn has_permit(&self) -> bool {
        lock(&self.permit).is_some()
    }

    /// From now on takes no more than can be sent soon.
    pub(crate) fn limit_unsent_near_end(&self) {
        limit_unsent(self.socket(), UNSENT_AT_LAST);
    }

    /// A kept connection is to be used again, with this congestion control.
    pub(crate) fn prepare_reuse(&self, congestion: &CongestionChoice) -> Result<(), DataError> {
        limit_unsent(self.socket(), UNSENT);
        match congestion {
            CongestionChoice::Auto => Ok(()),
            CongestionChoice::Named(name) => self
                .set_congestion(name)
                .map_err(|e| congestion_error(name, e)),
            CongestionChoice::System => {
                let first = self.first_congestion.get();
                let back = first.map_or(Ok(()), |first| self.socket().set_tcp_congestion(first));
                if let Err(error) = back {
                    tracing::debug!(%error, "congestion control not taken back");
                }
                Ok(())
            }
        }
    }

    /// Runs another congestion control from now on.
    ///
    /// # Errors
    /// `NotFound`: the system has none of this name; `PermissionDenied`: not for this process
    /// (`net.ipv4.tcp_allowed_congestion_control`).
    pub(crate) fn set_congestion(&self, name: &str) -> io::Result<()> {
        let before = self.socket().tcp_congestion()?;
        self.socket().set_tcp_congestion(name.as_bytes())?;
        self.first_congestion.get_or_init(|| before);
        Ok(())
    }

    /// The congestion control in force, as the kernel names it.
    pub(crate) fn congestion(&self) -> Option<String> {
        self.socket()
            .tcp_congestion()
            .ok()
            .map(|name| congestion_name(&name))
    }

    /// The one that it had before somebody changed it; `None`: nobody did.
    pub(crate) fn first_congestion(&self) -> Option<String> {
        self.first_congestion
            .get()
            .map(|name| congestion_name(name))
    }

    /// A transfer begins to use it, whose peer has acknowledged so much before, bytes.
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

    /// The other end.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether the other end is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        let here = self.socket().local_addr().ok().and_then(|a| a.as_socket());
        self.peer.ip().to_canonical().is_loopback()
            || here.is_some_and(|here| is_same_host(here.ip(), self.peer.ip()))
    }

    /// Sample of it now as the kernel shows it.
    pub(crate) fn sample(&self) -> io::Result<StreamSample> {
        Ok(StreamSample {
            stream: self.id,
            info: tcp_info(self.as_fd())?,
            memory: socket_memory(self.as_fd())?,
        })
    }

    /// Payload that is there in order and was not read yet, bytes (SIOCINQ, tcp(7)).
    pub(crate) fn readable_bytes(&self) -> io::Result<u64> {
        Ok(rustix::io::ioctl_fionread(self)?)
    }

    /// The receive buffer was changed to this size, as reported, bytes.
    pub(crate) fn note_receive_buffer(&self, reported: u64) {
        self.receive_buffer.store(reported, Ordering::Relaxed);
    }

    /// See [`DataStream::note_receive_buffer`]; 0 if it was never changed.
    pub(crate) fn receive_buffer(&self) -> u64 {
        self.receive_buffer.load(Ordering::Relaxed)
    }

    /// The transport that its bytes go through.
    pub(crate) fn transport(&self) -> &DataTransport {
        &self.transport
    }

    /// For options and the kernel's view; see [`DataTransport::socket`].
    fn socket(&self) -> &Socket {
        self.transport.socket()
    }

    /// Whether the peer has not closed or reset the connection.
    pub(crate) fn is_alive(&self) -> bool {
        let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        matches!(
            wake::wait([(self.as_fd(), closed)], Duration::ZERO),
            Ok([false])
        )
    }

    /// Ends the connection with a reset instead of a FIN, at once, and forgets what was queued: in
    /// MODE S a FIN would tell the receiver that the file is whole (RFC 959 §3.4.1).
    pub(crate) fn reset(&self) {
        // Disconnecting (connect(2), AF_UNSPEC) resets now; a close would wait for the last owner.
        if let Err(error) = rustix::net::connect_unspec(self.socket()) {
            tracing::debug!(%error, "connection not reset, lingering off instead");
            let _ = self.socket().set_linger(Some(Duration::ZERO));
        }
    }
}

impl AsFd for DataStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

/// Options that act on the handshake, to be set before connect, and again on accepted sockets
/// whose listener was made before the settings were known.
pub(crate) fn set_handshake_options(
    socket: &Socket,
    settings: &TransferSettings,
) -> Result<(), DataError> {
    handshake::before(socket, settings.options.buffers)?;
    if let Some(name) = settings.options.congestion.pinned_name() {
        socket
            .set_tcp_congestion(name.as_bytes())
            .map_err(|e| congestion_error(name, e))?;
    }
    Ok(())
}

/// A name as the kernel gives it, without the padding.
fn congestion_name(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    name.trim_end_matches('\0').to_owned()
}

/// Bounds what may queue unsent (TCP_NOTSENT_LOWAT), bytes.
fn limit_unsent(socket: &Socket, bytes: u32) {
    // Older kernels and containers may not know it; it is not needed for correctness.
    if let Err(error) = socket.set_tcp_notsent_lowat(bytes) {
        tracing::debug!(%error, "TCP_NOTSENT_LOWAT not set");
    }
}

fn congestion_error(name: &str, error: io::Error) -> DataError {
    let permitted = congestion::settable().join(", ");
    let what = format!("congestion control `{name}` (this system permits {permitted})");
    DataError::setup(what, error)
}

/// Replaces the system's congestion control where [`set_handshake_options::congestion`] knows a better one for the
/// round trip of the handshake. What the system refuses stays as it was.
fn replace_bbr_on_short_path(socket: &Socket) {
    let (Ok(in_force), Ok(info)) = (socket.tcp_congestion(), tcp_info(socket.as_fd())) else {
        return;
    };
    let name = String::from_utf8_lossy(&in_force);
    let rtt = Duration::from_micros(info.rtt_us.into());
    for better in tune::congestion::short_path_alternatives(name.trim_end_matches('\0'), rtt) {
        if socket.set_tcp_congestion(better.as_bytes()).is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_congestion_control_is_named_in_the_error() {
        let socket = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let mut settings = TransferSettings::default();
        settings.options.congestion = CongestionChoice::Named("warpdrive".into());
        let error = set_handshake_options(&socket, &settings).unwrap_err();
        assert!(error.to_string().contains("`warpdrive`"), "{error}");
    }
}
