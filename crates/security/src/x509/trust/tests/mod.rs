mod bundles;
mod names;
mod policies;

use std::fs;
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::test_pki::{
    ProxyForm, ProxyPolicy, TestAuthority, TestCertificate, TestKey, TestProxy, TestUsage,
    write_authority, write_grid_directory, write_revocation_list,
};
use crate::x509::time::end;
use crate::x509::{CertifiedKey, ProxyKind, ProxyOptions};

const ROOT: &str = "/O=Grid/CN=Trust root";

fn chain(credential: &CertifiedKey) -> Vec<X509> {
    std::iter::once(credential.leaf())
        .chain(credential.chain())
        .cloned()
        .collect()
}

fn verify(
    store: &TrustStore,
    credential: &CertifiedKey,
    usage: CertificateUsage,
) -> Result<PeerIdentity, String> {
    store
        .verify(&chain(credential), usage, SystemTime::now())
        .map_err(|error| error.to_string())
}

/// The text of a refusal, which must have all parts.
fn assert_refused(result: Result<PeerIdentity, String>, parts: &[&str]) {
    let error = result.expect_err("a refusal");
    for part in parts {
        assert!(error.contains(part), "no {part:?} in: {error}");
    }
}

/// A bundle of one authority.
fn bundle(authority: &TestAuthority) -> TrustStore {
    TrustStore::of(vec![AuthoritySource::of_certificates(
        "test bundle".to_owned(),
        vec![authority.certificate().clone()],
        Vec::new(),
    )])
}

/// A grid directory in which the authority may sign everything.
fn grid(authority: &TestAuthority) -> (TempDir, TrustStore) {
    let folder = tempfile::tempdir().unwrap();
    write_grid_directory(folder.path(), &[authority]);
    let store = TrustStore::from_path(folder.path()).unwrap();
    (folder, store)
}

use CertificateUsage::{Grid, TlsClient, TlsServer};

#[test]
fn a_host_is_accepted_for_every_usage() {
    let root = TestAuthority::new(ROOT);
    let host = root.host(&["localhost"]);
    for usage in [TlsServer, TlsClient, Grid] {
        let peer = verify(&bundle(&root), &host, usage).unwrap();
        assert_eq!(peer.subject.as_str(), "/O=Grid/CN=localhost");
        assert_eq!(peer.identity, peer.subject);
        assert_eq!(peer.chain, [host.leaf().to_der().unwrap()]);
        // The authority may have been made in the second before.
        assert_eq!(peer.expires, host.expires().min(end(root.certificate())));
        assert!(!peer.limited);
        peer.check_host("LOCALHOST").unwrap();
        let error = peer.check_host("example.org").unwrap_err().to_string();
        assert_eq!(
            error,
            "the certificate /O=Grid/CN=localhost is for localhost, not for example.org"
        );
    }
}

#[test]
fn validity_is_that_of_the_given_time() {
    let root = TestAuthority::new(ROOT);
    let store = bundle(&root);
    let mut template = TestCertificate::new("/O=Grid/CN=late");
    template.not_after = -60;
    let expired = root.issue(&template);
    assert_refused(
        verify(&store, &expired, TlsServer),
        &["/O=Grid/CN=late", "expired on", "GMT"],
    );
    let earlier = SystemTime::now() - Duration::from_secs(3600);
    store.verify(&chain(&expired), TlsServer, earlier).unwrap();
    let mut template = TestCertificate::new("/O=Grid/CN=early");
    template.not_before = 3600;
    assert_refused(
        verify(&store, &root.issue(&template), Grid),
        &["/O=Grid/CN=early", "not valid before", "GMT"],
    );
}

#[test]
fn an_unknown_or_self_signed_issuer_is_refused() {
    let root = TestAuthority::new(ROOT);
    let store = bundle(&root);
    let other = TestAuthority::new("/O=Grid/CN=Other root");
    let host = other.host(&["localhost"]);
    assert_refused(
        verify(&store, &host, TlsServer),
        &[
            "its issuer /O=Grid/CN=Other root is not among",
            "test bundle",
        ],
    );
    // An authority that the peer sends is not trusted for that.
    let mut sent = chain(&host);
    sent.push(other.certificate().clone());
    let error = store.verify(&sent, Grid, SystemTime::now()).unwrap_err();
    assert!(error.to_string().contains("self-signed"), "{error}");
    assert!(matches!(error, TrustError::UnknownAuthority { .. }));
    let own = CertifiedKey::self_signed(&["localhost".into()], Duration::from_secs(60)).unwrap();
    assert_refused(
        verify(&store, &own, TlsServer),
        &["self-signed, and not among"],
    );
    // The same name with another key.
    let mut template = TestCertificate::new(ROOT);
    template.authority = true;
    template.key = TestKey::P256;
    let impostor = TestAuthority::self_signed(&template);
    assert!(verify(&store, &impostor.user("Eve"), Grid).is_err());
    assert_eq!(
        store.verify(&[], Grid, SystemTime::now()),
        Err(TrustError::NoCertificate)
    );
}

#[test]
fn usages_count_on_the_web_alone() {
    let root = TestAuthority::new(ROOT);
    let (_folder, store) = grid(&root);
    let user = root.user("Ada");
    assert_refused(
        verify(&store, &user, TlsServer),
        &[
            "/O=Grid/CN=Ada",
            "may not be used by a TLS server",
            "serverAuth",
        ],
    );
    verify(&store, &user, TlsClient).unwrap();
    verify(&store, &user, Grid).unwrap();
    let mut template = TestCertificate::new("/O=Grid/CN=server");
    template.usages = vec![TestUsage::Server];
    assert_refused(
        verify(&store, &root.issue(&template), TlsClient),
        &["clientAuth"],
    );
}

#[test]
fn an_end_entity_signs_no_certificates() {
    let root = TestAuthority::new(ROOT);
    let mut template = TestCertificate::new("/O=Grid/CN=Ada");
    template.usages = vec![TestUsage::Client];
    let false_authority = root.subordinate_with(&template);
    let victim = false_authority.user("Eve");
    for usage in [TlsClient, Grid] {
        assert!(verify(&bundle(&root), &victim, usage).is_err());
    }
}

#[test]
fn proxies_are_for_grids_alone() {
    let root = TestAuthority::new(ROOT);
    let (_folder, store) = grid(&root);
    let user = root.user("Ada");
    for form in [ProxyForm::Rfc, ProxyForm::Draft, ProxyForm::Legacy] {
        let proxy = TestProxy::new(form, ProxyPolicy::Limited).of(&user);
        let peer = verify(&store, &proxy, Grid).unwrap();
        assert_eq!(peer.subject, proxy.subject());
        assert_eq!(peer.identity, user.subject());
        assert!(peer.limited);
        assert_eq!(peer.chain.len(), 2);
        assert_eq!(peer.expires, proxy.expires());
        assert!(verify(&store, &proxy, TlsClient).is_err(), "{form:?}");
    }
    let proxy = TestProxy::default().of(&user);
    assert_refused(verify(&store, &proxy, TlsClient), &["only GSI"]);
}

#[test]
fn an_independent_proxy_has_its_own_identity() {
    let root = TestAuthority::new(ROOT);
    let proxy = TestProxy::new(ProxyForm::Rfc, ProxyPolicy::Independent).of(&root.user("Ada"));
    let peer = verify(&bundle(&root), &proxy, Grid).unwrap();
    assert_eq!(peer.identity, peer.subject);
}

#[test]
fn wrong_proxies_are_refused_in_a_whole_chain() {
    let root = TestAuthority::new(ROOT);
    let store = bundle(&root);
    let user = root.user("Ada");
    let stolen = TestProxy {
        signer: Some(root.user("Eve")),
        ..TestProxy::default()
    };
    assert_refused(
        verify(&store, &stolen.of(&user), Grid),
        &["/O=Grid/CN=Ada/CN=", "key of its issuer /O=Grid/CN=Ada"],
    );
    let proxy = TestProxy::default().of(&user);
    let alone = [proxy.leaf().clone()];
    let error = store.verify(&alone, Grid, SystemTime::now()).unwrap_err();
    assert!(error.to_string().contains("is not in the chain"), "{error}");
    let other = TestAuthority::new("/O=Grid/CN=Other root");
    let foreign = TestProxy::default().of(&other.user("Ada"));
    assert_refused(verify(&store, &foreign, Grid), &["/O=Grid/CN=Other root"]);
}

#[test]
fn the_order_above_the_leaf_does_not_matter() {
    let root = TestAuthority::new(ROOT);
    let below = root.subordinate("/O=Grid/CN=Subordinate");
    let proxy = TestProxy::default().of(&TestProxy::default().of(&below.user("Ada")));
    let mut sent = chain(&proxy);
    sent.push(root.certificate().clone());
    sent[1..].reverse();
    let peer = bundle(&root)
        .verify(&sent, Grid, SystemTime::now())
        .unwrap();
    assert_eq!(peer.identity.as_str(), "/O=Grid/CN=Ada");
    // Two proxies, the user, the subordinate authority; not the trusted one.
    assert_eq!(peer.chain.len(), 4);
}

#[test]
fn a_proxys_issuer_is_found_among_few_of_its_name_and_many_are_not_tried() {
    let root = TestAuthority::new(ROOT);
    let user = root.user("Ada");
    let proxy = TestProxy::default().of(&user);
    let mut template = TestCertificate::new(user.subject().as_str());
    template.key = TestKey::P256;
    let namesake = root.issue(&template);
    for (namesakes, is_found) in [(0, true), (1, true), (3, true), (4, false), (50, false)] {
        let mut sent = vec![proxy.leaf().clone()];
        sent.extend(std::iter::repeat_n(namesake.leaf().clone(), namesakes));
        sent.push(user.leaf().clone());
        let result = bundle(&root).verify(&sent, Grid, SystemTime::now());
        match is_found {
            true => assert_eq!(result.unwrap().identity, user.subject()),
            false => assert_refused(
                result.map_err(|error| error.to_string()),
                &["not made with the key of its issuer"],
            ),
        }
    }
}

#[test]
fn revocation_lists_count_as_soon_as_they_are_written() {
    let root = TestAuthority::new(ROOT);
    let (folder, store) = grid(&root);
    let (ada, bob) = (root.user("Ada"), root.user("Bob"));
    let proxy = TestProxy::default().of(&ada);
    for one in [&ada, &bob, &proxy] {
        verify(&store, one, Grid).unwrap();
    }
    write_revocation_list(folder.path(), &root, &root.revocation_list(&[ada.leaf()]));
    for usage in [Grid, TlsClient] {
        assert_refused(
            verify(&store, &ada, usage),
            &["/O=Grid/CN=Ada: revoked on", "serial number", ".r0"],
        );
        verify(&store, &bob, usage).unwrap();
    }
    assert_refused(
        verify(&store, &proxy, Grid),
        &["/O=Grid/CN=Ada: revoked on"],
    );
    write_revocation_list(folder.path(), &root, &root.revocation_list(&[]));
    verify(&store, &proxy, Grid).unwrap();
}

#[test]
fn a_revocation_list_must_be_valid_itself() {
    let root = TestAuthority::new(ROOT);
    let (folder, store) = grid(&root);
    let user = root.user("Ada");
    let write =
        |list: &openssl::x509::X509CrlRef| write_revocation_list(folder.path(), &root, list);
    write(&root.revocation_list_of(&[], -7200, -3600));
    assert_refused(
        verify(&store, &user, Grid),
        &[
            "/O=Grid/CN=Ada",
            "revocation list",
            "has expired on",
            "nextUpdate",
        ],
    );
    write(&root.revocation_list_of(&[], 3600, 7200));
    assert_refused(
        verify(&store, &user, Grid),
        &["is not valid before", "thisUpdate"],
    );
    // The same name with another key has signed it.
    let mut template = TestCertificate::new(ROOT);
    template.authority = true;
    template.key = TestKey::P256;
    write(&TestAuthority::self_signed(&template).revocation_list(&[]));
    assert_refused(
        verify(&store, &user, Grid),
        &["is not signed by /O=Grid/CN=Trust root"],
    );
    let file = folder.path().join(format!("{}.r0", root.hash()));
    fs::write(&file, "nonsense").unwrap();
    assert_refused(
        verify(&store, &user, Grid),
        &["cannot read the revocation list", ".r0"],
    );
    fs::write(&file, root.revocation_list(&[]).to_der().unwrap()).unwrap();
    verify(&store, &user, Grid).unwrap();
}

#[test]
fn a_subordinate_authority_can_be_revoked() {
    let root = TestAuthority::new(ROOT);
    let below = root.subordinate("/O=Grid/CN=Subordinate");
    let folder = tempfile::tempdir().unwrap();
    write_grid_directory(folder.path(), &[&root, &below]);
    let store = TrustStore::from_path(folder.path()).unwrap();
    let user = below.user("Ada");
    verify(&store, &user, Grid).unwrap();
    let list = root.revocation_list(&[below.certificate()]);
    write_revocation_list(folder.path(), &root, &list);
    assert_refused(
        verify(&store, &user, Grid),
        &["/O=Grid/CN=Subordinate: revoked"],
    );
}

#[test]
fn authorities_of_one_name_have_numbered_files() {
    let mut template = TestCertificate::new(ROOT);
    template.authority = true;
    template.key = TestKey::P256;
    let (one, two) = (
        TestAuthority::new(ROOT),
        TestAuthority::self_signed(&template),
    );
    let (folder, store) = grid(&one);
    assert!(verify(&store, &two.user("Ada"), Grid).is_err());
    let path = write_authority(folder.path(), &two, None, None);
    assert!(path.to_str().unwrap().ends_with(".1"));
    for authority in [&one, &two] {
        verify(&store, &authority.user("Ada"), Grid).unwrap();
    }
    fs::remove_file(path).unwrap();
    assert!(verify(&store, &two.user("Ada"), Grid).is_err());
}

#[test]
fn a_missing_number_hides_none_of_the_files_behind_it() {
    let root = TestAuthority::new(ROOT);
    let (folder, store) = grid(&root);
    let (ada, bob) = (root.user("Ada"), root.user("Bob"));
    let of_hash = |ending: &str| folder.path().join(format!("{}.{ending}", root.hash()));
    write_revocation_list(folder.path(), &root, &root.revocation_list(&[ada.leaf()]));
    for (from, to) in [("r0", "r1"), ("0", "3")] {
        fs::rename(of_hash(from), of_hash(to)).unwrap();
        assert_refused(verify(&store, &ada, Grid), &["revoked on", ".r1"]);
        verify(&store, &bob, Grid).unwrap();
    }
    let store = TrustStore::from_path(folder.path()).unwrap();
    assert_refused(verify(&store, &ada, Grid), &["revoked on"]);
}

#[test]
fn exactly_trusts_certificates_that_are_no_authorities() {
    let own = CertifiedKey::self_signed(&[], Duration::from_secs(3600)).unwrap();
    let store = TrustStore::exactly(vec![own.leaf().clone()]);
    let peer = verify(&store, &own, Grid).unwrap();
    assert_eq!(peer.identity, own.subject());
    let other = CertifiedKey::self_signed(&[], Duration::from_secs(3600)).unwrap();
    assert_refused(verify(&store, &other, Grid), &["given for this connection"]);
    let later = SystemTime::now() + Duration::from_secs(7200);
    let error = store.verify(&chain(&own), Grid, later).unwrap_err();
    assert!(error.to_string().contains("expired"), "{error}");
    // A credential of an unknown authority, and a proxy that its owner makes.
    let user = TestAuthority::new("/O=Grid/CN=Other root").user("Ada");
    let store = TrustStore::exactly(vec![user.leaf().clone()]);
    verify(&store, &user, Grid).unwrap();
    let options = ProxyOptions {
        kind: ProxyKind::Full,
        valid: Duration::from_secs(60),
        path_length: None,
        key_bits: 2048,
    };
    let proxy = user.new_proxy(&options).unwrap();
    assert_eq!(
        verify(&store, &proxy, Grid).unwrap().identity,
        user.subject()
    );
    let store = TrustStore::exactly(chain(&proxy));
    assert_eq!(
        verify(&store, &proxy, Grid).unwrap().identity,
        user.subject()
    );
}

#[test]
fn places_of_authorities_are_searched_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let root = TestAuthority::new(ROOT);
    let none = |_: &str| None;
    let host = folder.path().join("host");
    let error = TrustStore::grid_of(none, &host).unwrap_err().to_string();
    assert!(error.contains("host: set X509_CERT_DIR"), "{error}");
    write_grid_directory(&host, &[&root]);
    TrustStore::grid_of(none, &host).unwrap();
    let home = folder.path().join("home/.globus/certificates");
    write_grid_directory(&home, &[&root]);
    let with_home =
        |name: &str| (name == "HOME").then(|| folder.path().join("home").into_os_string());
    let store = TrustStore::grid_of(with_home, &host).unwrap();
    assert_eq!(store.sources[0].name(), home.display().to_string());
    let error = TrustStore::grid_of(|_| Some("/nowhere".into()), &host).unwrap_err();
    assert!(error.to_string().contains("/nowhere"), "{error}");
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let error = TrustStore::from_path(&empty).unwrap_err().to_string();
    assert!(error.contains("openssl rehash"), "{error}");
}

#[test]
fn the_systems_authorities_are_a_file_and_directories() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (
        TestAuthority::new(ROOT),
        TestAuthority::new("/CN=Second root"),
    );
    let file = folder.path().join("cert.pem");
    let defaults = format!("OPENSSLDIR: \"{}\"", folder.path().display());
    let error = TrustStore::system_of(|_| None, &defaults).unwrap_err();
    assert!(error.to_string().contains("ca-certificates"), "{error}");
    fs::write(&file, one.certificate().to_pem().unwrap()).unwrap();
    write_authority(&folder.path().join("certs"), &two, None, None);
    let store = TrustStore::system_of(|_| None, &defaults).unwrap();
    for authority in [&one, &two] {
        verify(&store, &authority.host(&["localhost"]), TlsServer).unwrap();
    }
    let named = |name: &str| (name == "SSL_CERT_DIR").then(|| "/nowhere".into());
    let store = TrustStore::system_of(named, &defaults).unwrap();
    assert!(verify(&store, &two.host(&["localhost"]), TlsServer).is_err());
    let wrong = |name: &str| (name == "SSL_CERT_FILE").then(|| "/nowhere".into());
    assert!(TrustStore::system_of(wrong, &defaults).is_err());
}
