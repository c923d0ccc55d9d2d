//! Which congestion controls a process may set, asked of the kernel and not assumed.

use std::fs;

use rustix::io::Errno;
use socket2::{Domain, Socket, Type};

/// The congestion controls that the system has loaded. None where `/proc` does not tell.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// The loaded congestion controls that this process may set on its sockets: without privilege those
/// in `net.ipv4.tcp_allowed_congestion_control` alone. Takes some microseconds each; nothing is
/// loaded by asking.
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

/// Whether the socket takes it, and says so.
fn sets(socket: &Socket, name: &str) -> bool {
    let set = socket.set_tcp_congestion(name.as_bytes());
    let in_force = set.and_then(|()| socket.tcp_congestion());
    in_force.is_ok_and(|bytes| bytes.split(|b| *b == 0).next() == Some(name.as_bytes()))
}

/// Whether a refusal holds for every other socket too: there is none of this name, or not for this
/// process.
pub fn is_lasting(refusal: &std::io::Error) -> bool {
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
    fn what_is_settable_can_be_set() {
        for name in settable() {
            socket().set_tcp_congestion(name.as_bytes()).unwrap();
        }
    }

    #[test]
    fn what_is_in_force_is_settable() {
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
    fn a_name_that_nobody_knows_is_refused_for_good() {
        assert!(!sets(&socket(), "warpdrive"));
        let error = socket().set_tcp_congestion(b"warpdrive").unwrap_err();
        assert!(is_lasting(&error), "{error}");
        assert!(!is_lasting(&std::io::ErrorKind::NotConnected.into()));
    }
}
