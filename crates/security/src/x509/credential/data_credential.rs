//! Throw-away credentials for data connections (DCSC, GFD.47 §2).

use std::time::{Duration, SystemTime};

use openssl::bn::{BigNum, MsbOption};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::x509::{X509, X509Name};

use super::{CertifiedKey, CredentialError};
use crate::x509::time::certificate_time;

/// Size of the RSA key, bits. Servers of the Globus toolkit expect RSA.
const KEY_BITS: u32 = 2048;
/// Longer than any transfer; the key is forgotten with the process.
const VALIDITY: Duration = Duration::from_secs(7 * 24 * 3600);
/// The start of validity lies so far in the past, for servers whose clocks are behind.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(3600);
/// Random bits of the serial number, which is also in the name.
const SERIAL_BITS: i32 = 64;

impl CertifiedKey {
    /// Makes a self-signed RSA credential with a name of its own. Both ends of a data connection
    /// hold it, so it proves that they were named by one client. The certificate is also its own
    /// chain, because servers of the Globus toolkit look there for a trusted root.
    ///
    /// Takes some tenths of a second.
    ///
    /// # Errors
    /// [`CredentialError::Invalid`]: OpenSSL refused a step.
    pub fn new_data_credential() -> Result<Self, CredentialError> {
        let invalid = |error: ErrorStack| CredentialError::Invalid {
            what: "a new credential for data connections".to_owned(),
            problem: error.to_string(),
        };
        let (certificate, key) = self_signed().map_err(invalid)?;
        Self::from_parts(certificate.clone(), key, vec![certificate])
    }
}

fn self_signed() -> Result<(X509, PKey<Private>), ErrorStack> {
    let key = PKey::from_rsa(Rsa::generate(KEY_BITS)?)?;
    let mut serial = BigNum::new()?;
    serial.rand(SERIAL_BITS, MsbOption::ONE, false)?;
    let mut name = X509Name::builder()?;
    let common_name = format!("longhaul data {}", &*serial.to_hex_str()?);
    name.append_entry_by_nid(Nid::COMMONNAME, &common_name)?;
    let name = name.build();
    let mut builder = X509::builder()?;
    // X.509 version 3 has the number 2 (RFC 5280 §4.1.2.1).
    builder.set_version(2)?;
    let serial = serial.to_asn1_integer()?;
    builder.set_serial_number(&serial)?;
    builder.set_subject_name(&name)?;
    builder.set_issuer_name(&name)?;
    let now = SystemTime::now();
    builder.set_not_before(&*certificate_time(now - CLOCK_TOLERANCE)?)?;
    builder.set_not_after(&*certificate_time(now + VALIDITY)?)?;
    builder.set_pubkey(&key)?;
    builder.sign(&key, MessageDigest::sha256())?;
    Ok((builder.build(), key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_data_credential_has_a_name_of_its_own_and_is_its_own_root() {
        let names: Vec<String> = (0..2)
            .map(|_| {
                let made = CertifiedKey::new_data_credential().unwrap();
                let key = made.leaf().public_key().unwrap();
                assert!(made.leaf().verify(&key).unwrap());
                assert!(made.key().public_eq(&key));
                assert_eq!(made.chain().len(), 1);
                format!("{:?}", made.leaf().subject_name())
            })
            .collect();
        assert_ne!(names[0], names[1]);
    }
}
