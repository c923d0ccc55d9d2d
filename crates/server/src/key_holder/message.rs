//! Requests to the process that holds the key, and its answers.
//!
//! A frame is a length of four bytes (big endian) and so many bytes; the first is the kind.

use std::io::{self, Read, Write};

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
    /// The key is loaded; its public part, SubjectPublicKeyInfo DER.
    Loaded { id: KeyId, public: Vec<u8> },
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
            Self::Loaded { id, public } => joined(0, *id, public),
            Self::Signature(bytes) => prefixed(1, bytes),
            Self::Failed(problem) => prefixed(2, problem.as_bytes()),
        }
    }

    pub(super) fn decode(frame: &[u8]) -> Option<Self> {
        let (kind, rest) = frame.split_first()?;
        match kind {
            0 => split_id(rest).map(|(id, public)| Self::Loaded {
                id,
                public: public.to_vec(),
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

/// Sends a frame.
pub(super) fn write_frame(to: &mut impl Write, frame: &[u8]) -> io::Result<()> {
    let too_long = || io::Error::from(io::ErrorKind::InvalidInput);
    if frame.len() > MAX_FRAME {
        return Err(too_long());
    }
    let length = u32::try_from(frame.len()).map_err(|_| too_long())?;
    // One write: the other end wakes once.
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend(frame);
    to.write_all(&bytes)
}

/// Receives a frame; `None` at the end of the connection.
pub(super) fn read_frame(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        done => done?,
    }
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    // Checked before memory is taken.
    if length > MAX_FRAME {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut frame = vec![0; length];
    from.read_exact(&mut frame)?;
    Ok(Some(frame))
}

/// A request decoded and encoded again; `None`: the frame is no request.
#[cfg(feature = "fuzzing")]
pub fn request_again(frame: &[u8]) -> Option<Vec<u8>> {
    HolderRequest::decode(frame).map(|request| request.encode())
}

/// An answer decoded and encoded again; `None`: the frame is no answer.
#[cfg(feature = "fuzzing")]
pub fn answer_again(frame: &[u8]) -> Option<Vec<u8>> {
    HolderAnswer::decode(frame).map(|answer| answer.encode())
}

/// The first frame of some bytes; `None`: there is none.
///
/// # Errors
/// The frame is cut, or too long.
#[cfg(feature = "fuzzing")]
pub fn first_frame(mut bytes: &[u8]) -> io::Result<Option<Vec<u8>>> {
    read_frame(&mut bytes)
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
                public: vec![4; 294],
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

    #[test]
    fn long_and_cut_frames_are_errors() {
        let mut wire = Vec::new();
        write_frame(&mut wire, b"abc").unwrap();
        assert_eq!(read_frame(&mut &wire[..]).unwrap().unwrap(), b"abc");
        assert!(read_frame(&mut &wire[..6]).is_err());
        assert!(read_frame(&mut &b""[..]).unwrap().is_none());
        assert!(read_frame(&mut &[0xff; 8][..]).is_err());
        assert!(write_frame(&mut wire, &vec![0; MAX_FRAME + 1]).is_err());
    }
}
