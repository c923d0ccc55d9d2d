//! Authorities and revocation lists in one PEM file.

use super::*;

#[test]
fn a_file_without_certificates_is_no_trust_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    fs::write(&path, "text").unwrap();
    let error = TrustStore::from_path(&path).unwrap_err().to_string();
    assert!(error.contains("no certificate"), "{error}");
    fs::write(
        &path,
        TestAuthority::new(ROOT).certificate().to_pem().unwrap(),
    )
    .unwrap();
    TrustStore::from_path(&path).unwrap();
}
