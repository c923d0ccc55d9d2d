//! Keys of session tickets that several processes share, so that a session of one resumes at the others.

use std::sync::{Arc, OnceLock};

use openssl::error::ErrorStack;
use openssl::rand::rand_bytes;
use openssl::ssl::SslContextBuilder;
use zeroize::Zeroizing;

use super::TlsError;
use super::error::in_words;

/// Bytes of OpenSSL's keys: the name, and the keys of HMAC and AES (SSL_CTX_set_tlsext_ticket_keys).
const KEYS: usize = 80;
/// Bytes of the name of the sessions' context.
const CONTEXT: usize = 32;
/// Length of a secret in bytes.
const SECRET: usize = KEYS + CONTEXT;

/// Whoever has it can make and read the tickets of a [`TlsConfig`](super::TlsConfig).
#[derive(Clone, PartialEq, Eq)]
pub struct TicketSecret(Arc<Zeroizing<[u8; SECRET]>>);

/// Sets the keys of a context's tickets, 80 bytes.
pub type TicketKeySetter = fn(&mut SslContextBuilder, &[u8; KEYS]) -> Result<(), ErrorStack>;

static TICKET_KEY_SETTER: OnceLock<TicketKeySetter> = OnceLock::new();

/// Sets the function by which servers share the keys of tickets; the first call counts. It is unsafe code, which this crate has
/// none of. Without it no configuration can have a [`TicketSecret`].
pub fn install_ticket_key_setter(setter: TicketKeySetter) {
    let _ = TICKET_KEY_SETTER.set(setter);
}

impl TicketSecret {
    /// A new one.
    ///
    /// # Errors
    /// [`TlsError::Config`]: there is no randomness.
    pub fn random() -> Result<Self, TlsError> {
        let mut secret = Zeroizing::new([0; SECRET]);
        let made = rand_bytes(&mut *secret);
        made.map_err(|e| TlsError::Config(format!("cannot make a secret: {}", in_words(&e))))?;
        Ok(Self(Arc::new(secret)))
    }

    /// The secret that [`TicketSecret::to_bytes`] gave; `None`: it is none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let secret = Zeroizing::new(bytes.try_into().ok()?);
        Some(Self(Arc::new(secret)))
    }

    /// The secret, for another process that is to have it.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(self.0.to_vec())
    }

    /// Name of the context: OpenSSL resumes no session of another one.
    pub(super) fn context_name(&self) -> &[u8] {
        &self.0[KEYS..]
    }

    /// Gives a context the keys.
    pub(super) fn apply(&self, builder: &mut SslContextBuilder) -> Result<(), TlsError> {
        let setter = TICKET_KEY_SETTER.get();
        let setter = setter.ok_or_else(|| {
            TlsError::Config("this program cannot share the keys of tickets".to_owned())
        })?;
        let (keys, _) = self.0.split_first_chunk::<KEYS>().ok_or_else(|| {
            TlsError::Config("the keys of tickets have another length".to_owned())
        })?;
        setter(builder, keys).map_err(|e| {
            TlsError::Config(format!("cannot set the keys of tickets: {}", in_words(&e)))
        })
    }
}

impl std::fmt::Debug for TicketSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketSecret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_the_same_after_a_journey_and_says_nothing() {
        let one = TicketSecret::random().unwrap();
        assert_eq!(TicketSecret::from_bytes(&one.to_bytes()), Some(one.clone()));
        assert_ne!(TicketSecret::random().unwrap(), one);
        assert_eq!(TicketSecret::from_bytes(&[1; SECRET - 1]), None);
        assert_eq!(format!("{one:?}"), "TicketSecret");
    }
}
