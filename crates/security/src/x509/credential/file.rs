//! PEM files and texts of credentials.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::x509::X509;
use zeroize::Zeroizing;

use super::{CredentialError, invalid};
use smallfile::regular_file;

/// Longest credential file, bytes.
const LONGEST_FILE: u64 = 1 << 20;

pub(super) fn show(path: &Path) -> String {
    path.display().to_string()
}

/// Kind of a file's content.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Certificates.
    Public,
    /// A private key.
    Private,
}

pub(super) fn read(path: &Path, content: Content) -> Result<Zeroizing<Vec<u8>>, CredentialError> {
    let failed = |source| CredentialError::Read {
        path: path.to_owned(),
        source,
    };
    let file = regular_file::open(path).map_err(failed)?;
    if content == Content::Private {
        check_permissions(path, &file.1)?;
    }
    let mut text = Zeroizing::new(Vec::new());
    regular_file::read(file, LONGEST_FILE, &mut text).map_err(failed)?;
    Ok(text)
}

fn check_permissions(path: &Path, metadata: &std::fs::Metadata) -> Result<(), CredentialError> {
    let refused = |problem: String| {
        Err(CredentialError::Permissions {
            path: path.to_owned(),
            problem,
        })
    };
    let user = rustix::process::geteuid().as_raw();
    if metadata.uid() != 0 && metadata.uid() != user {
        return refused(format!(
            "belongs to user {}, not to root or this user ({user}): chown it or use a copy of your own",
            metadata.uid()
        ));
    }
    // Debian's convention for hosts: root's keys are readable by the group ssl-cert.
    let forbidden = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if metadata.mode() & forbidden != 0 {
        return refused(format!(
            "holds a private key but has mode {:03o}, so others can use it: chmod 600 {}",
            metadata.mode() & 0o777,
            path.display()
        ));
    }
    Ok(())
}

pub(super) fn certificates(pem: &[u8], what: &str) -> Result<Vec<X509>, CredentialError> {
    let certificates = X509::stack_from_pem(pem)
        .map_err(|problem| invalid(what, format!("a certificate cannot be read: {problem}")))?;
    if certificates.is_empty() {
        return Err(invalid(
            what,
            "no certificate (a block -----BEGIN CERTIFICATE-----)".to_owned(),
        ));
    }
    Ok(certificates)
}

pub(super) fn private_key(
    pem: &[u8],
    what: &str,
    passphrase: Option<&[u8]>,
) -> Result<PKey<Private>, CredentialError> {
    let mut is_encrypted = false;
    // Without a callback OpenSSL would ask at the terminal.
    let key = PKey::private_key_from_pem_callback(pem, |buffer| {
        is_encrypted = true;
        let passphrase = passphrase.unwrap_or_default();
        if passphrase.is_empty() || passphrase.len() > buffer.len() {
            return Err(ErrorStack::get());
        }
        buffer[..passphrase.len()].copy_from_slice(passphrase);
        Ok(passphrase.len())
    });
    key.map_err(|problem| {
        let problem = match (is_encrypted, passphrase) {
            (true, None) => format!(
                "the private key is encrypted; write a decrypted copy: (umask 077; openssl pkey -in {what} -out NEWKEY)"
            ),
            (true, Some(_)) => "the passphrase does not fit the private key".to_owned(),
            (false, _) if problem.errors().is_empty() => "no private key".to_owned(),
            (false, _) => {
                "no private key that can be read (a block -----BEGIN PRIVATE KEY-----)".to_owned()
            }
        };
        invalid(what, problem)
    })
}
