//! The files that programs read: credentials and grid directories.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use openssl::x509::{X509Crl, X509CrlRef};

use super::TestAuthority;
use crate::x509::CertifiedKey;

/// Writes certificate, key and chain as PEM, the order of a proxy file, readable by the owner only.
pub fn write_credential(path: &Path, credential: &CertifiedKey) {
    let mut pem = credential.leaf().to_pem().unwrap();
    pem.extend(credential.key().private_key_to_pem_pkcs8().unwrap());
    for certificate in credential.chain() {
        pem.extend(certificate.to_pem().unwrap());
    }
    write_private(path, &pem);
}

/// Writes the certificate and its chain as PEM.
pub fn write_certificates(path: &Path, credential: &CertifiedKey) {
    let mut pem = credential.leaf().to_pem().unwrap();
    for certificate in credential.chain() {
        pem.extend(certificate.to_pem().unwrap());
    }
    fs::write(path, pem).unwrap();
}

/// Writes the private key as PEM, readable by the owner only.
pub fn write_key(path: &Path, credential: &CertifiedKey) {
    let pem = credential.key().private_key_to_pem_pkcs8().unwrap();
    write_private(path, &pem);
}

fn write_private(path: &Path, text: &[u8]) {
    // An older file may have another mode, which opening would keep.
    let _ = fs::remove_file(path);
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(path).unwrap().write_all(text).unwrap();
}

/// Writes a grid directory in which each authority may sign every subject, and makes the folder.
pub fn write_grid_directory(folder: &Path, authorities: &[&TestAuthority]) {
    for authority in authorities {
        let policy = authority.signing_policy(&["*"]);
        write_authority(folder, authority, Some(&policy), None);
    }
}

/// Writes the files of one authority: `HASH.0` (the next free number), `HASH.signing_policy`,
/// `HASH.r0`. Returns the certificate's path.
pub fn write_authority(
    folder: &Path,
    authority: &TestAuthority,
    policy: Option<&str>,
    revoked: Option<&X509Crl>,
) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    let hash = authority.hash();
    let path = (0..)
        .map(|number: u32| folder.join(format!("{hash}.{number}")))
        .find(|path| !path.exists())
        .unwrap();
    fs::write(&path, authority.certificate().to_pem().unwrap()).unwrap();
    if let Some(policy) = policy {
        fs::write(folder.join(format!("{hash}.signing_policy")), policy).unwrap();
    }
    if let Some(list) = revoked {
        write_revocation_list(folder, authority, list);
    }
    path
}

/// Writes, or replaces, the revocation list of an authority: `HASH.r0`.
pub fn write_revocation_list(folder: &Path, authority: &TestAuthority, list: &X509CrlRef) {
    let path = folder.join(format!("{}.r0", authority.hash()));
    fs::write(path, list.to_pem().unwrap()).unwrap();
}
