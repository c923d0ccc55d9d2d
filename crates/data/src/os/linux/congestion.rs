//! The congestion controls that a process may set, read from the kernel.

use std::fs;
use std::io;

use rustix::io::Errno;
use socket2::{Domain, Socket, Type};

/// The congestion controls that the system has loaded. Empty if `/proc` is not mounted.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// The loaded congestion controls that this process may set on its sockets. Without privilege these
/// are only those in `net.ipv4.tcp_allowed_congestion_control`. Takes some microseconds each. The
/// query loads no kernel module.
pub fn settable() -> Vec<String> {
    let available = fs::read_to_string(AVAILABLE).unwrap_or_default();
    let scratch = Socket::new(Domain::IPV4, Type::STREAM, None)
        .or_else(|_| Socket::new(Domain::IPV6, Type::STREAM, None));
    let Ok(scratch) = scratch else {
        return Vec::new();
    };
    let may = |name: &&str| sets(&scratch, name);
    let names = available.split_whitespace().filter(may);
    names.map(str::to_owned).collect()
}

/// The congestion control of a socket, as the kernel names it; it may be padded with zeros (tcp(7), TCP_CONGESTION).
///
/// # Errors
/// The system's.
pub fn in_force(socket: &Socket) -> io::Result<Vec<u8>> {
    socket.tcp_congestion()
}

/// Sets the congestion control of a socket.
///
/// # Errors
/// `NotFound`: the system has none of this name; `PermissionDenied`: this process may not set it
/// (`net.ipv4.tcp_allowed_congestion_control`).
pub fn set(socket: &Socket, name: &[u8]) -> io::Result<()> {
    socket.set_tcp_congestion(name)
}

/// Whether the socket accepts the congestion control and then reports it.
fn sets(socket: &Socket, name: &str) -> bool {
    let set = set(socket, name.as_bytes());
    let in_force = set.and_then(|()| in_force(socket));
    // The kernel pads the name with zeros (tcp(7), TCP_CONGESTION).
    in_force.is_ok_and(|bytes| bytes.split(|b| *b == 0).next() == Some(name.as_bytes()))
}

/// Whether a refusal applies to every other socket, too: the name is unknown, or this process may
/// not use it.
pub fn is_lasting(refusal: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(refusal),
        Some(Errno::NOENT | Errno::PERM | Errno::ACCESS | Errno::BUSY)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> Socket {
        Socket::new(Domain::IPV4, Type::STREAM, None).unwrap()
    }

    #[test]
    fn every_settable_congestion_control_can_be_set() {
        for name in settable() {
            socket().set_tcp_congestion(name.as_bytes()).unwrap();
        }
    }

    #[test]
    fn the_congestion_control_in_use_is_settable() {
        let Ok(in_force) = socket().tcp_congestion() else {
            return;
        };
        let name = String::from_utf8(in_force).unwrap();
        let name = name.trim_end_matches('\0').to_owned();
        if fs::read_to_string(AVAILABLE).is_ok_and(|all| all.contains(&name))
            && sets(&socket(), &name)
        {
            assert!(settable().contains(&name), "{name}");
        }
    }

    #[test]
    fn an_unknown_name_is_a_lasting_refusal() {
        assert!(!sets(&socket(), "warpdrive"));
        let error = socket().set_tcp_congestion(b"warpdrive").unwrap_err();
        assert!(is_lasting(&error), "{error}");
        assert!(!is_lasting(&io::ErrorKind::NotConnected.into()));
    }
}
