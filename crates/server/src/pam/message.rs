//! Questions to the process that asks PAM, and its answers. Each is one packet, whose bounds the socket keeps.

use std::net::IpAddr;

use data::os::pam::PamLogin;
use proto::command::Secret;

/// Longest name of an account, bytes (`LOGIN_NAME_MAX` of limits.h).
const MAX_USER: usize = 256;
/// Longest password, bytes: PAM takes no longer answer (`PAM_MAX_RESP_SIZE`, with its NUL).
const MAX_PASSWORD: usize = 511;
/// Longest reason, bytes.
const MAX_REASON: usize = 400;
/// Longest packet, bytes.
pub(super) const MAX_PACKET: usize = 1024;

/// A login to check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PamQuestion {
    /// The account that the client names.
    pub(crate) user: String,
    /// Its password.
    pub(crate) password: Secret,
    /// Address of the client.
    pub(crate) peer: IpAddr,
}

/// An answer; the texts are for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PamAnswer {
    /// Password and account are good.
    Granted,
    /// One of them is not.
    Refused(String),
    /// PAM could not be asked, or gave no answer.
    Broken(String),
}

impl PamQuestion {
    /// Whether the question is within its bounds. A longer name has no account, a longer password is wrong.
    pub(super) fn fits(&self) -> bool {
        self.user.len() <= MAX_USER && self.password.0.len() <= MAX_PASSWORD
    }

    /// The question for the modules of a service; `host` is the text of the address.
    pub(super) fn for_service<'l>(&'l self, service: &'l str, host: &'l str) -> PamLogin<'l> {
        PamLogin {
            service,
            user: &self.user,
            password: &self.password,
            remote_host: host,
        }
    }

    /// The packet; only for a question that [`PamQuestion::fits`].
    pub(super) fn encode(&self, number: u32) -> Secret {
        let peer = self.peer.to_string();
        // As large as it becomes: no copy of the password stays where a buffer grew.
        let mut packet = Secret(Vec::with_capacity(MAX_PACKET));
        packet.0.extend(number.to_be_bytes());
        for part in [self.user.as_bytes(), &self.password.0, peer.as_bytes()] {
            let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
            packet.0.extend(length.to_be_bytes());
            packet.0.extend_from_slice(part);
        }
        packet
    }

    /// The number and the question of a packet.
    pub(super) fn decode(packet: &[u8]) -> Option<(u32, Self)> {
        let (number, rest) = packet.split_first_chunk()?;
        let (user, rest) = split_part(rest)?;
        let (password, rest) = split_part(rest)?;
        let (peer, rest) = split_part(rest)?;
        let question = Self {
            user: String::from_utf8(user.to_vec()).ok()?,
            password: Secret(password.to_vec()),
            peer: std::str::from_utf8(peer).ok()?.parse().ok()?,
        };
        let is_whole = rest.is_empty() && question.fits();
        is_whole.then_some((u32::from_be_bytes(*number), question))
    }
}

impl PamAnswer {
    pub(super) fn encode(&self, number: u32) -> Vec<u8> {
        let (kind, reason) = match self {
            Self::Granted => (0, ""),
            Self::Refused(reason) => (1, reason.as_str()),
            Self::Broken(reason) => (2, reason.as_str()),
        };
        let reason = &reason[..reason.floor_char_boundary(MAX_REASON)];
        let mut packet = number.to_be_bytes().to_vec();
        packet.push(kind);
        packet.extend_from_slice(reason.as_bytes());
        packet
    }

    /// The number and the answer of a packet.
    pub(super) fn decode(packet: &[u8]) -> Option<(u32, Self)> {
        let (number, rest) = packet.split_first_chunk()?;
        let (kind, reason) = rest.split_first()?;
        let reason = || String::from_utf8_lossy(reason).into_owned();
        let answer = match kind {
            0 => Self::Granted,
            1 => Self::Refused(reason()),
            2 => Self::Broken(reason()),
            _ => return None,
        };
        Some((u32::from_be_bytes(*number), answer))
    }
}

fn split_part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u16::from_be_bytes(*length).into())
}

/// A question decoded and encoded again; `None`: the packet is no question.
#[cfg(feature = "fuzzing")]
pub fn question_again(packet: &[u8]) -> Option<Vec<u8>> {
    PamQuestion::decode(packet).map(|(number, question)| question.encode(number).0.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(user: &str, password: &str) -> PamQuestion {
        PamQuestion {
            user: user.to_owned(),
            password: password.into(),
            peer: "2001:db8::1".parse().unwrap(),
        }
    }

    #[test]
    fn questions_and_answers_are_read_as_they_were_written() {
        for question in [question("ann", "a password"), question("", "")] {
            let packet = question.encode(7);
            assert_eq!(PamQuestion::decode(&packet.0), Some((7, question)));
        }
        let longest = question(&"u".repeat(MAX_USER), &"p".repeat(MAX_PASSWORD));
        assert!(longest.fits() && longest.encode(1).0.len() <= MAX_PACKET);
        for answer in [
            PamAnswer::Granted,
            PamAnswer::Refused("Authentication failure".to_owned()),
            PamAnswer::Broken("signal 11".to_owned()),
        ] {
            assert_eq!(PamAnswer::decode(&answer.encode(8)), Some((8, answer)));
        }
        let long = PamAnswer::Refused("ä".repeat(MAX_PACKET)).encode(9);
        assert!(long.len() <= MAX_PACKET && PamAnswer::decode(&long).is_some());
    }

    #[test]
    fn malformed_packets_are_refused() {
        let packet = question("ann", "x").encode(7).0.clone();
        for length in 0..packet.len() {
            assert_eq!(PamQuestion::decode(&packet[..length]), None, "{length}");
        }
        let mut longer = packet;
        longer.push(0);
        assert_eq!(PamQuestion::decode(&longer), None);
        let too_long = question("ann", &"p".repeat(MAX_PASSWORD + 1));
        assert!(!too_long.fits());
        assert_eq!(PamQuestion::decode(&too_long.encode(1).0), None);
        for packet in [&b""[..], &[0, 0, 0, 1], &[0, 0, 0, 1, 3]] {
            assert_eq!(PamAnswer::decode(packet), None);
        }
    }
}
