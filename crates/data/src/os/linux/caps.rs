//! Limits of this host on socket buffers, read from the kernel.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Socket, Type};
use tune::sizing::host_limits::{FORCED_LARGEST, FORCED_PART, HostBufferLimits};

use super::sockopt;

/// Requested size: more than any host allows by default. The kernel cuts requests to half of the
/// largest C int before it doubles them.
const REQUESTED_SIZE: i32 = 1 << 30;

/// The limits that apply to this process now. Values that cannot be read (`/proc` not mounted) are
/// measured with a test socket, or taken from the kernel's documented defaults. Takes about 25
/// microseconds. Called once per transfer, because an administrator may change them at any time.
pub fn host_limits() -> HostBufferLimits {
    let mut caps = HostBufferLimits::default();
    if let Some([first, second, third]) = sysctl("tcp_wmem") {
        caps.wmem_first_two = [first, second];
        caps.max_autotuned_send = third;
    }
    if let Some([first, second, third]) = sysctl("tcp_rmem") {
        caps.rmem_first_two = [first, second];
        caps.max_autotuned_receive = third;
    }
    if let Some([switch]) = sysctl("tcp_moderate_rcvbuf") {
        caps.receive_autotuning = switch != 0;
    }
    match settable() {
        Ok(settable) => {
            caps.max_settable_send = settable.send;
            caps.max_settable_receive = settable.receive;
            caps.max_unforced_receive = settable.receive_unforced;
            caps.may_force = settable.forced;
        }
        Err(error) => tracing::debug!(%error, "cannot measure the limits of socket buffers"),
    }
    caps
}

/// The numbers in a file of `/proc/sys/net/ipv4`.
fn sysctl<const N: usize>(name: &str) -> Option<[u64; N]> {
    numbers(&fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?)
}

/// Exactly `N` numbers separated by white space.
fn numbers<const N: usize>(text: &str) -> Option<[u64; N]> {
    let numbers: Option<Vec<u64>> = text.split_whitespace().map(|n| n.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// Sizes that a socket of this process can get, as the kernel reports them, bytes.
#[derive(Debug)]
struct SettableSizes {
    send: u64,
    receive: u64,
    receive_unforced: u64,
    forced: bool,
}

fn settable() -> io::Result<SettableSizes> {
    // A host without IPv4 still has IPv6.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)
        .or_else(|_| Socket::new(Domain::IPV6, Type::STREAM, None))?;
    let fd = socket.as_fd();
    sockopt::set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, REQUESTED_SIZE)?;
    sockopt::set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, REQUESTED_SIZE)?;
    let receive_unforced = reported(fd, libc::SO_RCVBUF)?;
    let forced = sockopt::set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, REQUESTED_SIZE).is_ok()
        // Both directions must be permitted: CAP_NET_ADMIN is needed for each.
        && sockopt::set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, REQUESTED_SIZE).is_ok();
    let own_limit = if forced { own_limit() } else { u64::MAX };
    Ok(SettableSizes {
        send: reported(fd, libc::SO_SNDBUF)?.min(own_limit),
        receive: reported(fd, libc::SO_RCVBUF)?.min(own_limit),
        receive_unforced,
        forced,
    })
}

/// The limit that this process sets itself where the kernel has none (SO_SNDBUFFORCE ignores
/// `wmem_max`, socket(7)).
fn own_limit() -> u64 {
    let system = rustix::system::sysinfo();
    // The kernel has no limit for forced buffers, so a fraction of the memory is the limit.
    let memory = system.totalram.saturating_mul(system.mem_unit.into());
    FORCED_LARGEST.min(memory / FORCED_PART)
}

fn reported(fd: BorrowedFd<'_>, name: i32) -> io::Result<u64> {
    let mut bytes = [0; 4];
    let len = sockopt::get(fd, libc::SOL_SOCKET, name, &mut bytes)?;
    u64::try_from(i32::from_ne_bytes(bytes))
        .ok()
        .filter(|_| len == bytes.len())
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_this_host_can_be_read() {
        let caps = host_limits();
        assert!(caps.max_autotuned_send >= 4096, "{caps:?}");
        assert!(caps.max_autotuned_receive >= 4096, "{caps:?}");
        if let Some([third]) = fs::read_to_string("/proc/sys/net/core/wmem_max")
            .ok()
            .and_then(|text| numbers(&text))
            && !caps.may_force
        {
            assert_eq!(caps.max_settable_send, 2 * third);
        }
    }

    #[test]
    fn the_reported_settable_size_can_be_set() {
        let caps = host_limits();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let option = if caps.may_force {
            libc::SO_RCVBUFFORCE
        } else {
            libc::SO_RCVBUF
        };
        let half = i32::try_from(caps.max_settable_receive / 2).unwrap();
        sockopt::set_int(socket.as_fd(), libc::SOL_SOCKET, option, half).unwrap();
        let granted = reported(socket.as_fd(), libc::SO_RCVBUF).unwrap();
        assert_eq!(granted, caps.max_settable_receive);
        assert!(!caps.may_force || caps.max_settable_receive <= FORCED_LARGEST);
    }

    #[test]
    fn the_unforced_size_is_twice_rmem_max() {
        let text = fs::read_to_string("/proc/sys/net/core/rmem_max");
        if let Some([max_bytes]) = text.ok().and_then(|text| numbers(&text)) {
            assert_eq!(host_limits().max_unforced_receive, 2 * max_bytes);
        }
    }

    #[test]
    fn an_incomplete_sysctl_value_is_rejected() {
        assert_eq!(
            numbers("4096\t16384\t4194304\n"),
            Some([4096, 16384, 4_194_304])
        );
        assert_eq!(numbers::<3>("4096 16384"), None);
        assert_eq!(numbers::<1>("one"), None);
        assert_eq!(numbers("1\n"), Some([1]));
    }
}
