//! Keys, made once per process.

use std::collections::HashMap;
use std::sync::OnceLock;

use openssl::ec::{EcGroup, EcKey};
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use parking_lot::Mutex;

/// Kind of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TestKey {
    /// RSA, 2048 bits: what grid software expects.
    #[default]
    Rsa2048,
    /// RSA, 4096 bits: what careful users have.
    Rsa4096,
    /// RSA, 1024 bits: too short for TLS today.
    Rsa1024,
    /// RSA, 512 bits: what the oldest grid software made.
    Rsa512,
    /// ECDSA on P-256.
    P256,
}

type KeysByName = HashMap<(TestKey, String), PKey<Private>>;

/// The key of this kind with this name; the same name has the same key throughout the process.
pub fn key(kind: TestKey, name: &str) -> PKey<Private> {
    static KEYS: OnceLock<Mutex<KeysByName>> = OnceLock::new();
    let keys = KEYS.get_or_init(Mutex::default);
    let place = (kind, name.to_owned());
    let known = keys.lock().get(&place).cloned();
    known.unwrap_or_else(|| {
        // Made without the lock, so that tests make different keys at the same time.
        let made = make(kind);
        keys.lock().entry(place).or_insert(made).clone()
    })
}

fn make(kind: TestKey) -> PKey<Private> {
    match kind {
        TestKey::Rsa2048 => PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap(),
        TestKey::Rsa4096 => PKey::from_rsa(Rsa::generate(4096).unwrap()).unwrap(),
        TestKey::Rsa1024 => PKey::from_rsa(Rsa::generate(1024).unwrap()).unwrap(),
        TestKey::Rsa512 => PKey::from_rsa(Rsa::generate(512).unwrap()).unwrap(),
        TestKey::P256 => {
            let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
            PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
        }
    }
}
