//! The process that holds the key: reads requests, answers them, ends with its parent.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use openssl::ecdsa::EcdsaSig;
use openssl::error::ErrorStack;
use openssl::pkey::{Id, PKey, Private};
use security::x509::CertifiedKey;

use super::message::{self, FrameReader, HolderAnswer, HolderRequest, KeyId};
use crate::sandbox;

/// Keys kept at most: the newest, and those of connections that began before a new one came.
const MAX_KEYS: usize = 64;

/// Serves requests from standard input, a socket, until it closes. Run it in a process of its own.
/// The process confines itself first: no core dumps, nothing but the two files can be opened, and
/// only the system calls that reading and signing need are permitted.
///
/// # Errors
/// Standard input is no socket, or the connection broke.
pub fn run(chain: &Path, key: &Path) -> io::Result<()> {
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    if let Err(error) = sandbox::enter_key_holder(&[chain, key]) {
        // The server says in its log what the system lacks; the key is still apart from the sessions.
        tracing::warn!(%error, "the process that holds the private key is not confined");
    }
    let mut holder = Holder::new(chain, key);
    let mut reader = FrameReader::default();
    while let Some((number, frame)) = reader.read(&mut socket, None)? {
        message::write_frame(&mut socket, number, &holder.answer_frame(&frame))?;
    }
    Ok(())
}

/// The keys.
pub(crate) struct Holder {
    chain: PathBuf,
    key: PathBuf,
    keys: VecDeque<(KeyId, PKey<Private>)>,
    next: KeyId,
}

impl Holder {
    pub(crate) fn new(chain: &Path, key: &Path) -> Self {
        Self {
            chain: chain.to_owned(),
            key: key.to_owned(),
            keys: VecDeque::new(),
            next: 0,
        }
    }

    /// The frame that answers a frame.
    pub(crate) fn answer_frame(&mut self, frame: &[u8]) -> Vec<u8> {
        let answer = match HolderRequest::decode(frame) {
            Some(request) => self.answer(&request),
            None => HolderAnswer::Failed("invalid request".to_owned()),
        };
        answer.encode()
    }

    fn answer(&mut self, request: &HolderRequest) -> HolderAnswer {
        let done = match request {
            HolderRequest::Load => self.load(),
            HolderRequest::RsaPrivateEncrypt { id, padding, input } => self
                .key(*id)
                .and_then(|key| rsa_private_encrypt(key, input, padding.openssl()))
                .map(HolderAnswer::Signature),
            HolderRequest::EcdsaSign { id, digest } => self
                .key(*id)
                .and_then(|key| ecdsa_sign(key, digest))
                .map(HolderAnswer::Signature),
        };
        done.unwrap_or_else(HolderAnswer::Failed)
    }

    fn load(&mut self) -> Result<HolderAnswer, String> {
        // The chain is read, too: a key that does not belong to the certificate is found here.
        let credential = CertifiedKey::from_files(&self.chain, &self.key, None)
            .map_err(|error| error.to_string())?;
        let key = credential.key().clone();
        if !matches!(key.id(), Id::RSA | Id::EC) {
            return Err(format!(
                "{}: the key is neither RSA nor ECDSA; use one of these",
                self.key.display()
            ));
        }
        let chain = pem_chain(&credential).map_err(|error| error.to_string())?;
        // The same key again keeps its number, so that any number of reloads leaves it usable for the
        // connections that began before them.
        let known = self.keys.iter().find(|(_, known)| known.public_eq(&key));
        if let Some((id, _)) = known {
            return Ok(HolderAnswer::Loaded { id: *id, chain });
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        if self.keys.len() == MAX_KEYS {
            self.keys.pop_front();
        }
        self.keys.push_back((id, key));
        Ok(HolderAnswer::Loaded { id, chain })
    }

    fn key(&self, id: KeyId) -> Result<&PKey<Private>, String> {
        let found = self.keys.iter().find(|(known, _)| *known == id);
        found
            .map(|(_, key)| key)
            .ok_or_else(|| "the key has been replaced".to_owned())
    }
}

/// Certificate and chain, PEM.
fn pem_chain(credential: &CertifiedKey) -> Result<Vec<u8>, ErrorStack> {
    let mut pem = credential.leaf().to_pem()?;
    for issuer in credential.chain() {
        pem.extend(issuer.to_pem()?);
    }
    Ok(pem)
}

fn rsa_private_encrypt(
    key: &PKey<Private>,
    input: &[u8],
    padding: openssl::rsa::Padding,
) -> Result<Vec<u8>, String> {
    let rsa = key.rsa().map_err(|error| error.to_string())?;
    let mut output = vec![0; usize::try_from(rsa.size()).unwrap_or_default()];
    // The openssl crate panics on an input that is longer than the key.
    if input.len() > output.len() {
        return Err("the input is longer than the key".to_owned());
    }
    let length = rsa
        .private_encrypt(input, &mut output, padding)
        .map_err(|error| error.to_string())?;
    output.truncate(length);
    Ok(output)
}

fn ecdsa_sign(key: &PKey<Private>, digest: &[u8]) -> Result<Vec<u8>, String> {
    let ec = key.ec_key().map_err(|error| error.to_string())?;
    EcdsaSig::sign(digest, &ec)
        .and_then(|signature| signature.to_der())
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_key_stays_usable_through_any_number_of_reloads() {
        let dir = tempfile::tempdir().unwrap();
        let [chain, key] = ["cert.pem", "key.pem"].map(|name| dir.path().join(name));
        let day = Duration::from_secs(24 * 3600);
        let credential = CertifiedKey::self_signed(&["localhost".to_owned()], day).unwrap();
        std::fs::write(&chain, credential.leaf().to_pem().unwrap()).unwrap();
        std::fs::write(&key, credential.key().private_key_to_pem_pkcs8().unwrap()).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut holder = Holder::new(&chain, &key);
        let HolderAnswer::Loaded { id: first, .. } = holder.answer(&HolderRequest::Load) else {
            unreachable!()
        };
        for _ in 0..2 * MAX_KEYS {
            holder.answer(&HolderRequest::Load);
        }
        let request = HolderRequest::EcdsaSign {
            id: first,
            digest: vec![7; 32],
        };
        assert!(matches!(
            holder.answer(&request),
            HolderAnswer::Signature(_)
        ));
        let unknown = HolderRequest::EcdsaSign {
            id: first + 1,
            digest: vec![7; 32],
        };
        assert!(matches!(holder.answer(&unknown), HolderAnswer::Failed(_)));
    }
}
