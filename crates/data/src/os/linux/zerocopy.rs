//! MSG_ZEROCOPY: sending without a copy, and the kernel's notification that the memory is free
//! again (Linux Documentation/networking/msg_zerocopy.rst).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::sockopt;

/// Allows MSG_ZEROCOPY on a socket.
pub fn enable(fd: BorrowedFd<'_>) -> io::Result<()> {
    sockopt::set_int(fd, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1)
}

/// The flag for `send`.
pub const FLAG: i32 = libc::MSG_ZEROCOPY;

/// SO_EE_ORIGIN_ZEROCOPY of linux/errqueue.h.
const ORIGIN_ZEROCOPY: u8 = 5;

/// Room for one IP_RECVERR or IPV6_RECVERR control message, whose payload is a `sock_extended_err`
/// followed by a socket address.
#[repr(C, align(8))]
struct ControlMessageBuffer([u8; 128]);

/// Reads one completion from the socket's error queue: the kernel no longer uses the memory of
/// sends `first..=last`, counted from 0 over the successful zero-copy sends on this socket. `None`
/// when there is none now.
pub fn read_completion(fd: BorrowedFd<'_>) -> io::Result<Option<(u32, u32)>> {
    let mut buffer = ControlMessageBuffer([0; 128]);
    // SAFETY: msghdr is plain data for which all-zero is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_control = buffer.0.as_mut_ptr().cast();
    message.msg_controllen = buffer.0.len() as _;
    // SAFETY: `message` points at `buffer`, which outlives the call and has the length stated; no
    // name or data buffers are given.
    let result = unsafe {
        libc::recvmsg(
            fd.as_raw_fd(),
            &raw mut message,
            libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
        )
    };
    if result < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: the kernel filled `message`; CMSG_FIRSTHDR returns null or a pointer into `buffer`
    // that is aligned (ControlMessageBuffer) and large enough for a header.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    if header.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, see above; RECVERR messages carry a sock_extended_err, and the buffer holds
    // at least its size after the header. An unaligned read makes no demand on CMSG_DATA.
    let error: libc::sock_extended_err =
        unsafe { std::ptr::read_unaligned(libc::CMSG_DATA(header).cast()) };
    if error.ee_origin != ORIGIN_ZEROCOPY {
        let code = i32::try_from(error.ee_errno).unwrap_or(libc::EIO);
        return Err(io::Error::from_raw_os_error(code));
    }
    Ok(Some((error.ee_info, error.ee_data)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn a_zero_copy_send_is_completed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        enable(near.as_fd()).unwrap();
        assert_eq!(read_completion(near.as_fd()).unwrap(), None);
        let data = vec![5; 20_000];
        let sent = socket2::SockRef::from(&near)
            .send_with_flags(&data, FLAG)
            .unwrap();
        far.read_exact(&mut vec![0; sent]).unwrap();
        for _ in 0..15_000 {
            if let Some(done) = read_completion(near.as_fd()).unwrap() {
                assert_eq!(done, (0, 0));
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("no completion arrived");
    }
}
