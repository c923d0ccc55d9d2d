use openssl::x509::X509VerifyResult;
use std::os::unix::fs::PermissionsExt;

use super::*;

#[test]
fn an_authority_issues_what_verifies_against_it() {
    let root = TestAuthority::new("/O=Grid/CN=Test root");
    let below = root.subordinate("/O=Grid/CN=Test subordinate");
    let host = below.host(&["localhost", "127.0.0.1"]);
    assert!(host.leaf().verify(below.key()).unwrap());
    assert_eq!(
        below.certificate().issued(host.leaf()),
        X509VerifyResult::OK
    );
    assert_eq!(host.chain(), [below.certificate().clone()]);
    assert_eq!(host.leaf().subject_alt_names().unwrap().len(), 2);
}

#[test]
fn proxies_are_signed_by_their_issuer() {
    let user = TestAuthority::new("/O=Grid/CN=Test root").user("Ada");
    for form in [ProxyForm::Rfc, ProxyForm::Draft, ProxyForm::Legacy] {
        let proxy = TestProxy::new(form, ProxyPolicy::Limited).of(&user);
        assert!(proxy.leaf().verify(user.key()).unwrap());
        assert_eq!(proxy.chain(), [user.leaf().clone()]);
    }
}

#[test]
fn files_have_the_names_and_modes_that_programs_expect() {
    let folder = tempfile::tempdir().unwrap();
    let root = TestAuthority::new("/O=Grid/CN=Test root");
    let user = root.user("Ada");
    let list = root.revocation_list(&[user.leaf()]);
    let path = write_authority(
        folder.path(),
        &root,
        Some(&root.signing_policy(&["/O=Grid/*"])),
        Some(&list),
    );
    assert_eq!(path, folder.path().join(format!("{}.0", root.hash())));
    assert!(folder.path().join(format!("{}.r0", root.hash())).exists());
    let credential = folder.path().join("proxy.pem");
    write_credential(&credential, &user);
    let mode = credential.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
