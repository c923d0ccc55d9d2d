//! A public key infrastructure for tests: authorities, certificates, revocation lists, proxies (also
//! wrong ones), and the files that programs read.
//!
//! Compiled for this crate's tests, and for those of other crates with the feature `test-pki`.

// Tests call this, and a test that cannot make its certificates has failed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::missing_panics_doc)]

mod authority;
mod files;
mod keys;
mod proxy;
#[cfg(test)]
mod tests;

pub use authority::{TestAuthority, TestCertificate, TestUsage, name};
pub use files::{
    write_authority, write_certificates, write_credential, write_grid_directory, write_key,
    write_revocation_list,
};
pub use keys::{TestKey, key};
pub use proxy::{ProxyForm, ProxyPolicy, TestProxy};
