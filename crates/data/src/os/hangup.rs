//! Whether the other end of a connection has gone.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Whether the peer of a connected socket has closed its side, or reset the connection, as far as
/// this host knows by now. Looks past input that nobody has read yet.
pub fn has_hung_up(socket: impl AsFd) -> bool {
    let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::RDHUP)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().intersects(gone)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn an_end_is_seen_behind_input_that_nobody_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.write_all(b"STOR f\r\n").unwrap();
        assert!(!has_hung_up(&server));
        drop(client);
        while !has_hung_up(&server) {
            std::thread::yield_now();
        }
        let mut byte = [0];
        assert_eq!(server.peek(&mut byte).unwrap(), 1);
    }
}
