//! Two changes to a network interface by rtnetlink(7), which needs CAP_NET_ADMIN only in the user
//! namespace that owns the network. The ioctl(2) for the queue length needs it in the initial one.

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{recv, send, socket_with};

use crate::LabError;

/// Index of the loopback interface, the first one of every network namespace.
const LOOPBACK: u32 = 1;

/// Size of `struct nlmsghdr` and `struct ifinfomsg`, bytes.
const HEADERS_SIZE: usize = 32;
/// Size of `struct rtattr` and a 32-bit value, bytes.
const ATTRIBUTE_SIZE: usize = 8;

const RTM_NEWLINK: u16 = 16;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLMSG_ERROR: u16 = 2;
const IFF_UP: u32 = 1;
const IFLA_TXQLEN: u16 = 13;

/// Brings loopback up in this thread's namespace. Without it a host cannot reach itself.
///
/// # Errors
/// The kernel refuses.
pub(super) fn loopback_up() -> Result<(), LabError> {
    request(&change(LOOPBACK, Some(IFF_UP), None))
        .map_err(|e| LabError::system("cannot bring a host's loopback up", e))
}

/// Sets the transmit queue length of an interface, in packets.
///
/// # Errors
/// The kernel refuses.
pub(super) fn set_queue_length(index: u32, packets: u32) -> Result<(), LabError> {
    request(&change(index, None, Some(packets)))
        .map_err(|e| LabError::system("cannot set the queue length of a TUN device", e))
}

/// An `RTM_NEWLINK` message that sets a flag, or the queue length, of an existing interface.
fn change(index: u32, flag: Option<u32>, queue: Option<u32>) -> Vec<u8> {
    let attribute = if queue.is_some() { ATTRIBUTE_SIZE } else { 0 };
    let length = u32::try_from(HEADERS_SIZE + attribute).unwrap_or(u32::MAX);
    let flag = flag.unwrap_or(0).to_ne_bytes();
    let mut message = Vec::with_capacity(HEADERS_SIZE + attribute);
    message.extend(length.to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend((NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    // Sequence number and port: not needed for a single message.
    message.extend([0; 8]);
    // Family and device type: any.
    message.extend([0; 4]);
    message.extend(index.to_ne_bytes());
    // `ifi_flags` and `ifi_change`, the mask of flags to change.
    message.extend(flag);
    message.extend(flag);
    if let Some(packets) = queue {
        message.extend(8_u16.to_ne_bytes());
        message.extend(IFLA_TXQLEN.to_ne_bytes());
        message.extend(packets.to_ne_bytes());
    }
    message
}

/// Sends a message to the kernel and reads its acknowledgement.
fn request(message: &[u8]) -> Result<(), Errno> {
    // The default protocol, number 0, is NETLINK_ROUTE.
    let protocol = None;
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        protocol,
    )?;
    send(&socket, message, SendFlags::empty())?;
    let mut answer = [0; 1024];
    let (length, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    acknowledged(&answer[..length])
}

/// Checks an acknowledgement: `struct nlmsghdr` of type `NLMSG_ERROR`, then 0 or the negated error
/// number.
fn acknowledged(answer: &[u8]) -> Result<(), Errno> {
    let kind = answer.get(4..6).and_then(|b| b.try_into().ok());
    let error = answer.get(16..20).and_then(|b| b.try_into().ok());
    match (kind.map(u16::from_ne_bytes), error.map(i32::from_ne_bytes)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        // The kernel sends negative error numbers (netlink(7)).
        (Some(NLMSG_ERROR), Some(error)) => Err(Errno::from_raw_os_error(error.wrapping_neg())),
        _ => Err(Errno::BADMSG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_field_matches_the_message() {
        for message in [
            change(1, Some(IFF_UP), None),
            change(2, None, Some(20_000)),
            change(3, Some(IFF_UP), Some(1)),
        ] {
            let length = u32::from_ne_bytes(message[..4].try_into().unwrap());
            assert_eq!(length as usize, message.len());
        }
    }

    #[test]
    fn the_kernel_accepts_the_format_of_the_message() {
        // The kernel parses the message before it looks for the interface or checks the privilege.
        let answer = request(&change(0x7fff_fff0, None, Some(1)));
        assert!(
            matches!(answer, Err(Errno::NODEV | Errno::PERM)),
            "{answer:?}"
        );
    }

    #[test]
    fn the_error_number_is_read_from_the_acknowledgement() {
        let mut answer = [0; 36];
        answer[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        assert_eq!(acknowledged(&answer), Ok(()));
        answer[16..20].copy_from_slice(&(-1_i32).to_ne_bytes());
        assert_eq!(acknowledged(&answer), Err(Errno::PERM));
        assert_eq!(acknowledged(&answer[..12]), Err(Errno::BADMSG));
    }
}
