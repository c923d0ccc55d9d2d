use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;

use openssl::symm::Cipher;

use super::*;
use crate::test_pki::{TestAuthority, TestProxy, write_certificates, write_credential, write_key};

fn host() -> CertifiedKey {
    let root = TestAuthority::new("/O=Grid/CN=Test root");
    root.subordinate("/O=Grid/CN=Subordinate")
        .host(&["localhost"])
}

#[test]
fn certificate_and_key_are_read_from_two_files() {
    let folder = tempfile::tempdir().unwrap();
    let (chain, key) = (folder.path().join("cert"), folder.path().join("key"));
    let host = host();
    write_certificates(&chain, &host);
    write_key(&key, &host);
    let read = CertifiedKey::from_files(&chain, &key, None).unwrap();
    assert_eq!(read.leaf(), host.leaf());
    assert_eq!(read.chain(), host.chain());
    assert_eq!(read.subject().as_str(), "/O=Grid/CN=localhost");
    let user = TestAuthority::new("/O=Grid/CN=Test root").user("Ada");
    write_key(&key, &user);
    let error = CertifiedKey::from_files(&chain, &key, None).unwrap_err();
    let expected = "the private key does not belong to this certificate";
    assert_eq!(
        error.to_string(),
        format!("{}: {expected}", chain.display())
    );
    let error = CertifiedKey::from_files(&chain, &chain, None).unwrap_err();
    assert!(
        matches!(error, CredentialError::Permissions { .. }),
        "{error}"
    );
    let error = CertifiedKey::from_files(&key, &key, None).unwrap_err();
    assert!(error.to_string().contains("no certificate"), "{error}");
    let missing = folder.path().join("none");
    let error = CertifiedKey::from_files(&missing, &key, None).unwrap_err();
    assert!(error.to_string().contains("cannot read"), "{error}");
}

#[test]
fn a_proxy_file_comes_back_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proxy");
    let user = TestAuthority::new("/O=Grid/CN=Test root").user("Ada");
    let proxy = TestProxy::default().of(&user);
    write_credential(&path, &proxy);
    let read = CertifiedKey::from_proxy_file(&path).unwrap();
    assert_eq!(read.chain(), proxy.chain());
    assert_eq!(read.identity(), user.subject());
    let text = read.to_pem().unwrap();
    assert_eq!(*text, fs::read(&path).unwrap());
    let again = CertifiedKey::from_pem(&text, "text").unwrap();
    assert_eq!(again.leaf(), proxy.leaf());
    // The key first, as DCSC allows.
    let mut other = proxy.key().private_key_to_pem_pkcs8().unwrap();
    other.extend(proxy.leaf().to_pem().unwrap());
    assert_eq!(
        CertifiedKey::from_pem(&other, "text").unwrap().leaf(),
        proxy.leaf()
    );
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proxy");
    write_credential(&path, &host());
    let is_root = fs::metadata(&path).unwrap().uid() == 0;
    for (mode, accepted) in [
        (0o600, true),
        (0o400, true),
        (0o640, is_root),
        (0o660, false),
        (0o604, false),
        (0o602, false),
    ] {
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let result = CertifiedKey::from_proxy_file(&path);
        assert_eq!(result.is_ok(), accepted, "{mode:o}");
        if let Err(error) = result {
            let error = error.to_string();
            assert!(error.contains(&format!("mode {mode:03o}")), "{error}");
            assert!(error.contains("chmod 600"), "{error}");
        }
    }
    // Only root can give a file away.
    if is_root {
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
        let error = CertifiedKey::from_proxy_file(&path).unwrap_err();
        assert!(
            error.to_string().contains("belongs to user 12345"),
            "{error}"
        );
    }
}

#[test]
fn an_encrypted_key_needs_its_passphrase() {
    let folder = tempfile::tempdir().unwrap();
    let (chain, key) = (folder.path().join("cert"), folder.path().join("key"));
    let host = host();
    write_certificates(&chain, &host);
    write_key(&key, &host);
    let pem = host
        .key()
        .private_key_to_pem_pkcs8_passphrase(Cipher::aes_128_cbc(), b"secret")
        .unwrap();
    fs::write(&key, pem).unwrap();
    CertifiedKey::from_files(&chain, &key, Some(b"secret")).unwrap();
    let error = CertifiedKey::from_files(&chain, &key, Some(b"wrong")).unwrap_err();
    assert!(
        error.to_string().contains("passphrase does not fit"),
        "{error}"
    );
    let error = CertifiedKey::from_files(&chain, &key, None)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&format!("openssl pkey -in {}", key.display())),
        "{error}"
    );
}

#[test]
fn a_self_signed_certificate_names_its_hosts() {
    let names = [
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        "::1".to_owned(),
    ];
    let own = CertifiedKey::self_signed(&names, Duration::from_secs(3600)).unwrap();
    assert_eq!(own.leaf().subject_alt_names().unwrap().len(), 3);
    assert_eq!(own.subject().as_str(), "/CN=localhost");
    assert!(own.leaf().verify(own.key()).unwrap());
    let left = own.expires().duration_since(SystemTime::now()).unwrap();
    assert!((3590..=3600).contains(&left.as_secs()), "{left:?}");
    assert_eq!(own.fingerprint().len(), 32 * 3 - 1);
    let unnamed = CertifiedKey::self_signed(&[], Duration::from_secs(60)).unwrap();
    assert_eq!(unnamed.subject().as_str(), "/CN=longhaul");
    let long = ["a".repeat(63) + ".example.org"];
    CertifiedKey::self_signed(&long, Duration::from_secs(60)).unwrap();
}

#[test]
fn the_key_is_not_shown() {
    assert_eq!(
        format!("{:?}", host()),
        "CertifiedKey(\"/O=Grid/CN=localhost\")"
    );
}

#[test]
fn the_earliest_end_of_the_chain_counts() {
    let root = TestAuthority::new("/O=Grid/CN=Test root");
    let mut short = crate::test_pki::TestCertificate::new("/O=Grid/CN=Short");
    short.authority = true;
    short.not_after = 3600;
    let user = root.subordinate_with(&short).user("Ada");
    assert_eq!(user.expires(), end(&user.chain()[0]));
}

/// Runs in a thread of its own, because a pipe without a writer would block for ever.
fn result_in_time<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(read()));
    receive
        .recv_timeout(Duration::from_secs(20))
        .expect("a result in time")
}

#[test]
fn only_regular_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    let (chain, key) = (folder.path().join("cert"), folder.path().join("key"));
    write_certificates(&chain, &host());
    write_key(&key, &host());
    for special in [pipe.as_path(), Path::new("/dev/zero"), folder.path()] {
        let (one, two) = (special.to_owned(), special.to_owned());
        let (certificate, private) = (chain.clone(), key.clone());
        let results = [
            result_in_time(move || CertifiedKey::from_files(&one, &private, None)),
            result_in_time(move || CertifiedKey::from_files(&certificate, &two, None)),
            result_in_time({
                let special = special.to_owned();
                move || CertifiedKey::from_proxy_file(&special)
            }),
        ];
        for result in results {
            let error = result.unwrap_err();
            assert!(matches!(error, CredentialError::Read { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains("it is not a regular file"), "{text}");
        }
    }
    CertifiedKey::from_files(&chain, &key, None).unwrap();
}
