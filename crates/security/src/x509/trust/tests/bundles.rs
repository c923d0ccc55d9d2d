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

/// A PEM file of these blocks, and its store.
fn store_of(blocks: &[Vec<u8>]) -> Result<(TempDir, TrustStore), TrustError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    fs::write(&path, blocks.concat()).unwrap();
    TrustStore::from_path(&path).map(|store| (folder, store))
}

#[test]
fn revocation_lists_of_a_bundle_count() {
    let (one, two) = (
        TestAuthority::new(ROOT),
        TestAuthority::new("/CN=Second root"),
    );
    let (ada, bob, eve) = (one.user("Ada"), one.user("Bob"), two.user("Eve"));
    let (_folder, store) = store_of(&[
        one.revocation_list(&[ada.leaf()]).to_pem().unwrap(),
        one.certificate().to_pem().unwrap(),
        b"A comment\n".to_vec(),
        two.certificate().to_pem().unwrap(),
        two.revocation_list(&[eve.leaf()]).to_pem().unwrap(),
    ])
    .unwrap();
    for usage in [Grid, TlsClient] {
        for revoked in [&ada, &eve] {
            assert_refused(
                verify(&store, revoked, usage),
                &["revoked on", "serial number", "ca.pem"],
            );
        }
        verify(&store, &bob, usage).unwrap();
        verify(&store, &two.user("Bob"), usage).unwrap();
    }
    let proxy = TestProxy::default().of(&ada);
    assert_refused(verify(&store, &proxy, Grid), &["CN=Ada: revoked on"]);
}

#[test]
fn a_bundle_revokes_a_subordinate_authority() {
    let root = TestAuthority::new(ROOT);
    let below = root.subordinate("/O=Grid/CN=Subordinate");
    let list = root.revocation_list(&[below.certificate()]);
    let (_folder, store) =
        store_of(&[root.certificate().to_pem().unwrap(), list.to_pem().unwrap()]).unwrap();
    assert_refused(
        verify(&store, &below.user("Ada"), TlsClient),
        &["/O=Grid/CN=Subordinate: revoked"],
    );
}

#[test]
fn a_list_of_a_bundle_must_be_valid_itself() {
    let root = TestAuthority::new(ROOT);
    let authority = root.certificate().to_pem().unwrap();
    let expired = root.revocation_list_of(&[], -7200, -3600).to_pem().unwrap();
    let (_folder, store) = store_of(&[authority.clone(), expired]).unwrap();
    assert_refused(
        verify(&store, &root.user("Ada"), TlsClient),
        &["ca.pem", "has expired on"],
    );
    let list = String::from_utf8(root.revocation_list(&[]).to_pem().unwrap()).unwrap();
    let broken = list.replacen("MII", "!!!", 1);
    let cut = &list[..list.len() / 2];
    for wrong in [broken.as_str(), cut] {
        let error = store_of(&[authority.clone(), wrong.as_bytes().to_vec()]).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("read the revocation list"), "{error}");
    }
}

/// Some authorities publish the lists of several keys in one file.
#[test]
fn all_lists_of_a_file_count() {
    let root = TestAuthority::new(ROOT);
    let (folder, store) = grid(&root);
    let (ada, bob) = (root.user("Ada"), root.user("Bob"));
    let lists = [&ada, &bob].map(|one| root.revocation_list(&[one.leaf()]).to_pem().unwrap());
    fs::write(
        folder.path().join(format!("{}.r0", root.hash())),
        lists.concat(),
    )
    .unwrap();
    for one in [&ada, &bob] {
        assert_refused(verify(&store, one, Grid), &["revoked on", ".r0"]);
    }
    verify(&store, &root.user("Carol"), Grid).unwrap();
}
