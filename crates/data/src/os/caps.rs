//! How far this host lets socket buffers grow, asked of the kernel and not assumed.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Socket, Type};
use tune::sizing::host_limits::{FORCED_LARGEST, FORCED_PART, HostBufferLimits};

use super::sockopt;

/// More than any host allows by default, and what the options take without overflow when doubled.
const ASKED: i32 = 1 << 30;

/// The limits that hold for this process now. What cannot be read (`/proc` not mounted) is found
/// with a scratch socket, or taken from the kernel's documented defaults. Takes some 25
/// microseconds: meant for once a transfer, since an administrator may raise them at any time.
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
        Err(error) => tracing::debug!(%error, "limits of socket buffers not found"),
    }
    caps
}

/// The numbers in a file of `/proc/sys/net/ipv4`.
fn sysctl<const N: usize>(name: &str) -> Option<[u64; N]> {
    numbers(&fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?)
}

/// Exactly `N` numbers between white space.
fn numbers<const N: usize>(text: &str) -> Option<[u64; N]> {
    let numbers: Option<Vec<u64>> = text.split_whitespace().map(|n| n.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// Sizes that a socket of this process can be given, as reported.
#[derive(Debug)]
struct SettableSizes {
    send: u64,
    receive: u64,
    receive_unforced: u64,
    forced: bool,
}

fn settable() -> io::Result<SettableSizes> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)
        .or_else(|_| Socket::new(Domain::IPV6, Type::STREAM, None))?;
    let fd = socket.as_fd();
    sockopt::set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, ASKED)?;
    sockopt::set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, ASKED)?;
    let receive_unforced = reported(fd, libc::SO_RCVBUF)?;
    let forced = sockopt::set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, ASKED).is_ok()
        && sockopt::set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, ASKED).is_ok();
    let own = if forced { own_limit() } else { u64::MAX };
    Ok(SettableSizes {
        send: reported(fd, libc::SO_SNDBUF)?.min(own),
        receive: reported(fd, libc::SO_RCVBUF)?.min(own),
        receive_unforced,
        forced,
    })
}

/// The limit that a process keeps to where the kernel sets none.
fn own_limit() -> u64 {
    let system = rustix::system::sysinfo();
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
    fn this_host_tells() {
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
    fn what_is_settable_can_be_set() {
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
    fn what_is_set_without_force_is_what_the_system_allows_everybody() {
        let text = fs::read_to_string("/proc/sys/net/core/rmem_max");
        if let Some([most]) = text.ok().and_then(|text| numbers(&text)) {
            assert_eq!(host_limits().max_unforced_receive, 2 * most);
        }
    }

    #[test]
    fn only_whole_answers_count() {
        assert_eq!(
            numbers("4096\t16384\t4194304\n"),
            Some([4096, 16384, 4_194_304])
        );
        assert_eq!(numbers::<3>("4096 16384"), None);
        assert_eq!(numbers::<1>("one"), None);
        assert_eq!(numbers("1\n"), Some([1]));
    }
}
