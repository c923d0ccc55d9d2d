//! Requests to the process that holds the key, and its answers.
//!
//! A frame is a length of four bytes (big endian) and so many bytes: four with the number of the request,
//! which its answer repeats, then the message, whose first byte is the kind.

use std::io::{self, Read, Write};
use std::time::Instant;

use openssl::rsa::Padding;

/// Longest frame, bytes: a public key or a signature of 16 384 bits fits many times.
const MAX_FRAME: usize = 64 * 1024;

/// A key that was loaded; each load gives another.
pub(super) type KeyId = u32;

/// Padding of an RSA operation: those that TLS uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyPadding {
    /// The caller has padded (RSASSA-PSS, TLS 1.3).
    None,
    /// PKCS #1 version 1.5 (TLS 1.2).
    Pkcs1,
}

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HolderRequest {
    /// Read the key's file.
    Load,
    /// Apply an RSA key.
    RsaPrivateEncrypt {
        id: KeyId,
        padding: KeyPadding,
        input: Vec<u8>,
    },
    /// Sign a digest.
    EcdsaSign { id: KeyId, digest: Vec<u8> },
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HolderAnswer {
    /// The key is loaded; its certificate and chain, PEM.
    Loaded { id: KeyId, chain: Vec<u8> },
    /// The result of a signature.
    Signature(Vec<u8>),
    /// The request failed, for this reason.
    Failed(String),
}

impl KeyPadding {
    pub(super) fn of(padding: Padding) -> Option<Self> {
        match padding {
            Padding::NONE => Some(Self::None),
            Padding::PKCS1 => Some(Self::Pkcs1),
            _ => None,
        }
    }

    pub(super) fn openssl(self) -> Padding {
        match self {
            Self::None => Padding::NONE,
            Self::Pkcs1 => Padding::PKCS1,
        }
    }
}

impl HolderRequest {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Load => vec![0],
            Self::RsaPrivateEncrypt { id, padding, input } => {
                let kind = match padding {
                    KeyPadding::None => 1,
                    KeyPadding::Pkcs1 => 2,
                };
                joined(kind, *id, input)
            }
            Self::EcdsaSign { id, digest } => joined(3, *id, digest),
        }
    }

    pub(super) fn decode(frame: &[u8]) -> Option<Self> {
        let (kind, rest) = frame.split_first()?;
        if *kind == 0 {
            return rest.is_empty().then_some(Self::Load);
        }
        let (id, bytes) = split_id(rest)?;
        let rsa = |padding| Self::RsaPrivateEncrypt {
            id,
            padding,
            input: bytes.to_vec(),
        };
        match kind {
            1 => Some(rsa(KeyPadding::None)),
            2 => Some(rsa(KeyPadding::Pkcs1)),
            3 => Some(Self::EcdsaSign {
                id,
                digest: bytes.to_vec(),
            }),
            _ => None,
        }
    }
}

impl HolderAnswer {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Loaded { id, chain } => joined(0, *id, chain),
            Self::Signature(bytes) => prefixed(1, bytes),
            Self::Failed(problem) => prefixed(2, problem.as_bytes()),
        }
    }

    pub(super) fn decode(frame: &[u8]) -> Option<Self> {
        let (kind, rest) = frame.split_first()?;
        match kind {
            0 => split_id(rest).map(|(id, chain)| Self::Loaded {
                id,
                chain: chain.to_vec(),
            }),
            1 => Some(Self::Signature(rest.to_vec())),
            2 => Some(Self::Failed(String::from_utf8_lossy(rest).into_owned())),
            _ => None,
        }
    }
}

fn prefixed(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind];
    frame.extend(bytes);
    frame
}

fn joined(kind: u8, id: KeyId, bytes: &[u8]) -> Vec<u8> {
    let mut frame = prefixed(kind, &id.to_be_bytes());
    frame.extend(bytes);
    frame
}

fn split_id(bytes: &[u8]) -> Option<(KeyId, &[u8])> {
    let (id, rest) = bytes.split_first_chunk()?;
    Some((KeyId::from_be_bytes(*id), rest))
}

/// Sends a message as a frame.
pub(super) fn write_frame(to: &mut impl Write, number: u32, message: &[u8]) -> io::Result<()> {
    let too_long = || io::Error::from(io::ErrorKind::InvalidInput);
    let length = size_of::<u32>() + message.len();
    if length > MAX_FRAME {
        return Err(too_long());
    }
    let length = u32::try_from(length).map_err(|_| too_long())?;
    // One write: the other end wakes once.
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend(message);
    to.write_all(&bytes)
}

/// Cuts a stream of bytes into frames. What was received of an unfinished frame stays here, so that a read
/// that took too long does not spoil the next one.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    received: Vec<u8>,
}

impl FrameReader {
    /// The next frame: the number of its request, and its message. `None` at the end of the connection.
    ///
    /// # Errors
    /// The connection's, among them a timeout; a frame that is too long; an end in the middle of a frame;
    /// `TimedOut` after `deadline`.
    pub(super) fn read(
        &mut self,
        from: &mut impl Read,
        deadline: Option<Instant>,
    ) -> io::Result<Option<(u32, Vec<u8>)>> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(frame) = self.take_frame()? {
                return Ok(Some(frame));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match from.read(&mut buffer) {
                Ok(0) if self.received.is_empty() => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.received.extend_from_slice(&buffer[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn take_frame(&mut self) -> io::Result<Option<(u32, Vec<u8>)>> {
        let Some((length, rest)) = split_id(&self.received) else {
            return Ok(None);
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > MAX_FRAME {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let Some(frame) = rest.get(..length) else {
            return Ok(None);
        };
        let Some((number, message)) = split_id(frame) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let frame = (number, message.to_vec());
        self.received.drain(..size_of::<u32>() + length);
        Ok(Some(frame))
    }
}

/// A request decoded and encoded again; `None`: the message is no request.
#[cfg(feature = "fuzzing")]
pub fn request_again(message: &[u8]) -> Option<Vec<u8>> {
    HolderRequest::decode(message).map(|request| request.encode())
}

/// An answer decoded and encoded again; `None`: the message is no answer.
#[cfg(feature = "fuzzing")]
pub fn answer_again(message: &[u8]) -> Option<Vec<u8>> {
    HolderAnswer::decode(message).map(|answer| answer.encode())
}

/// The first frame of some bytes, its number and its message; `None`: there is none.
///
/// # Errors
/// The frame is cut, or too long.
#[cfg(feature = "fuzzing")]
pub fn first_frame(mut bytes: &[u8]) -> io::Result<Option<(u32, Vec<u8>)>> {
    FrameReader::default().read(&mut bytes, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_are_read_as_they_were_written() {
        let requests = [
            HolderRequest::Load,
            HolderRequest::RsaPrivateEncrypt {
                id: 7,
                padding: KeyPadding::Pkcs1,
                input: vec![1; 51],
            },
            HolderRequest::RsaPrivateEncrypt {
                id: 8,
                padding: KeyPadding::None,
                input: vec![2; 256],
            },
            HolderRequest::EcdsaSign {
                id: u32::MAX,
                digest: vec![3; 32],
            },
        ];
        for request in requests {
            assert_eq!(HolderRequest::decode(&request.encode()), Some(request));
        }
        let answers = [
            HolderAnswer::Loaded {
                id: 9,
                chain: vec![4; 294],
            },
            HolderAnswer::Signature(vec![5; 256]),
            HolderAnswer::Failed("no such file".to_owned()),
        ];
        for answer in answers {
            assert_eq!(HolderAnswer::decode(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn malformed_requests_are_refused() {
        for frame in [&b""[..], &[0, 1], &[1], &[1, 0, 0, 0], &[9, 0, 0, 0, 1, 2]] {
            assert_eq!(HolderRequest::decode(frame), None, "{frame:?}");
        }
    }

    fn read(mut bytes: &[u8]) -> io::Result<Option<(u32, Vec<u8>)>> {
        FrameReader::default().read(&mut bytes, None)
    }

    #[test]
    fn long_and_cut_frames_are_errors() {
        let mut wire = Vec::new();
        write_frame(&mut wire, 7, b"abc").unwrap();
        assert_eq!(read(&wire).unwrap(), Some((7, b"abc".to_vec())));
        assert!(read(&wire[..6]).is_err());
        assert!(read(b"").unwrap().is_none());
        assert!(read(&[0xff; 8]).is_err());
        assert!(read(&[0, 0, 0, 2, 1, 2]).is_err());
        assert!(write_frame(&mut wire, 8, &vec![0; MAX_FRAME]).is_err());
    }

    /// Gives its parts one after the other, with a timeout before each.
    struct SlowReader(Vec<Vec<u8>>, bool);

    impl Read for SlowReader {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let part = self.0.remove(0);
            buffer[..part.len()].copy_from_slice(&part);
            Ok(part.len())
        }
    }

    #[test]
    fn a_timeout_in_the_middle_of_a_frame_loses_nothing() {
        let mut wire = Vec::new();
        write_frame(&mut wire, 1, b"late").unwrap();
        write_frame(&mut wire, 2, b"right").unwrap();
        let parts = wire.chunks(3).map(<[u8]>::to_vec).collect();
        let (mut from, mut reader) = (SlowReader(parts, false), FrameReader::default());
        let mut frames = Vec::new();
        while frames.len() < 2 {
            match reader.read(&mut from, None) {
                Ok(frame) => frames.extend(frame),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        assert_eq!(frames, [(1, b"late".to_vec()), (2, b"right".to_vec())]);
    }
}
