//! TLS in the kernel (kTLS, `Documentation/networking/tls.rst`).
//!
//! Data is not sent through it: the keys of a connection would have to leave OpenSSL, whose safe
//! interface keeps them inside; OpenSSL's own kTLS needs the socket itself, not memory. [`available`]
//! tells what a system would permit.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use super::sockopt;

/// The name of the upper layer protocol (`include/net/tls.h`).
const TLS_LAYER: &[u8] = b"tls";

/// Whether the kernel has TLS for sockets of this process: the module `tls` is loaded or built in, or
/// this process may load it (CAP_NET_ADMIN). Connects to itself over loopback to find out.
pub fn available() -> bool {
    let asked = loopback_connection().and_then(|(near, _far)| ask(near.as_fd()));
    if let Err(error) = &asked {
        // ENOENT: no such layer; ENOPROTOOPT: a kernel without layers.
        tracing::debug!(%error, "the kernel has no TLS for sockets");
    }
    asked.is_ok()
}

/// Only a connected socket takes the layer (ENOTCONN otherwise).
fn ask(socket: BorrowedFd<'_>) -> io::Result<()> {
    sockopt::set(socket, libc::IPPROTO_TCP, libc::TCP_ULP, TLS_LAYER)
}

fn loopback_connection() -> io::Result<(TcpStream, TcpListener)> {
    let v6 = || TcpListener::bind((IpAddr::V6(Ipv6Addr::LOCALHOST), 0));
    let listener = TcpListener::bind((IpAddr::V4(Ipv4Addr::LOCALHOST), 0)).or_else(|_| v6())?;
    Ok((TcpStream::connect(listener.local_addr()?)?, listener))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_that_of_the_kernel() {
        let (near, _listener) = loopback_connection().unwrap();
        match ask(near.as_fd()) {
            // The layer is set once.
            Ok(()) => assert!(available() && ask(near.as_fd()).is_err()),
            Err(error) => {
                let absent = [libc::ENOENT, libc::ENOPROTOOPT];
                assert!(absent.contains(&error.raw_os_error().unwrap()), "{error}");
                assert!(!available());
            }
        }
    }
}
