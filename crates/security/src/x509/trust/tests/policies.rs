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
