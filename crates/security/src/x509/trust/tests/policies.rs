//! Signing policies of a grid directory.

use super::*;

#[test]
fn a_signing_policy_is_demanded_of_every_authority_of_a_grid_directory() {
    let root = TestAuthority::new(ROOT);
    let below = root.subordinate("/O=Grid/CN=Subordinate");
    let user = below.user("Ada");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write_authority(path, &root, None, None);
    let store = TrustStore::from_path(path).unwrap();
    let refused = |parts: &[&str]| assert_refused(verify(&store, &user, Grid), parts);
    refused(&[
        "/O=Grid/CN=Ada",
        ".signing_policy does not exist",
        "Subordinate",
    ]);
    // A directory without any policy is none of a grid, and TLS servers are never bound.
    verify(&store, &user, TlsClient).unwrap();
    let write = |authority: &TestAuthority, patterns: &[&str]| {
        let file = path.join(format!("{}.signing_policy", authority.hash()));
        fs::write(file, authority.signing_policy(patterns)).unwrap();
    };
    write(&below, &["/O=Grid/*"]);
    refused(&[
        "/O=Grid/CN=Subordinate:",
        "signed by /O=Grid/CN=Trust root",
        "does not exist",
    ]);
    write(&root, &["/O=Grid/*", "/O=Other"]);
    verify(&store, &user, Grid).unwrap();
    write(&below, &["/O=Grid/OU=People/*", "/O=Else"]);
    refused(&[
        "/O=Grid/CN=Ada",
        "does not let /O=Grid/CN=Subordinate sign",
        "OU=People",
    ]);
    write(&root, &["/O=Nobody"]);
    write(&below, &["*"]);
    refused(&["/O=Grid/CN=Subordinate:", "allowed: /O=Nobody"]);
    let file = path.join(format!("{}.signing_policy", below.hash()));
    fs::write(&file, root.signing_policy(&["*"])).unwrap();
    refused(&["has no entry for /O=Grid/CN=Subordinate"]);
    fs::write(&file, "nonsense text").unwrap();
    refused(&["cannot read the signing policy", "line 1: unknown keyword"]);
}

/// The gridmap may map such a client to an account, as it does a GSI client.
#[test]
fn tls_clients_are_bound_by_the_policies_of_a_grid_directory() {
    let (root, other) = (
        TestAuthority::new(ROOT),
        TestAuthority::new("/CN=Other root"),
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write_authority(path, &root, Some(&root.signing_policy(&["/O=Lab/*"])), None);
    write_authority(path, &other, None, None);
    let store = TrustStore::from_path(path).unwrap();
    let user = root.user("Ada");
    assert_refused(
        verify(&store, &user, TlsClient),
        &["/O=Grid/CN=Ada", "does not let", "allowed: /O=Lab/*"],
    );
    assert_refused(
        verify(&store, &other.user("Ada"), TlsClient),
        &["/O=Grid/CN=Ada", ".signing_policy does not exist"],
    );
    verify(
        &store,
        &root.issue(&TestCertificate::new("/O=Lab/CN=Bob")),
        TlsClient,
    )
    .unwrap();
    verify(&store, &root.host(&["localhost"]), TlsServer).unwrap();
    verify(&bundle(&root), &user, TlsClient).unwrap();
}

#[test]
fn a_directory_that_has_had_policies_keeps_demanding_them() {
    let root = TestAuthority::new(ROOT);
    let folder = tempfile::tempdir().unwrap();
    write_authority(folder.path(), &root, None, None);
    let store = TrustStore::from_path(folder.path()).unwrap();
    let user = root.user("Ada");
    verify(&store, &user, TlsClient).unwrap();
    let file = folder
        .path()
        .join(format!("{}.signing_policy", root.hash()));
    fs::write(&file, root.signing_policy(&["/O=Lab/*"])).unwrap();
    assert_refused(verify(&store, &user, TlsClient), &["does not let"]);
    fs::remove_file(&file).unwrap();
    assert_refused(verify(&store, &user, TlsClient), &["does not exist"]);
}
