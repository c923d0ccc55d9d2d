//! Identities and protected connections: X.509 certificates and RFC 3820 proxies, TLS, GSI, and
//! bearer tokens.
//!
//! No socket is opened here: TLS and GSI take received bytes and return bytes to send. Files are
//! read (credentials, certificate authorities, gridmaps), and refused if others could change or
//! read what they must not. OpenSSL is the cryptography, because it accepts proxy certificates.

#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod gridmap;
pub mod gsi;
#[cfg(any(test, feature = "test-pki"))]
pub mod test_pki;
pub mod tls;
pub mod token;
pub mod x509;
