//! Tests of the loading and reloading of certificates.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use security::test_pki::{
    TestAuthority, TestCertificate, write_certificates, write_grid_directory, write_key,
};
use tempfile::TempDir;

use super::*;
use crate::config::{SecurityConfig, ServerConfig, TlsPolicy};
use crate::test_pipe::make_pipe;

/// A folder with a certificate, its key, a gridmap and authorities; and settings that name them.
fn site() -> (TempDir, ServerConfig) {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let authority = TestAuthority::new("/O=Grid/CN=Test CA");
    let host = authority.host(&["localhost"]);
    write_certificates(&path("cert"), &host);
    write_key(&path("key"), &host);
    write_grid_directory(&path("authorities"), &[&authority]);
    fs::write(path("gridmap"), "\"/O=Grid/CN=Ann\" ann\n").unwrap();
    let security = SecurityConfig {
        certificate: Some(path("cert")),
        key: Some(path("key")),
        gridmap: Some(path("gridmap")),
        grid_authorities: Some(path("authorities")),
        ..SecurityConfig::default()
    };
    let config = ServerConfig {
        security,
        ..ServerConfig::default()
    };
    (dir, config)
}

fn fingerprint(material: &SecurityMaterial) -> String {
    material.credential().unwrap().fingerprint()
}

fn names(material: &SecurityMaterial) -> Vec<String> {
    let mechanisms = material.mechanisms();
    mechanisms.iter().map(|m| m.name.clone()).collect()
}

#[test]
fn the_offered_mechanisms_follow_the_settings() {
    let (_dir, mut config) = site();
    let load = |config: &ServerConfig| SecurityMaterial::load(config, None).unwrap();
    assert_eq!(names(&load(&config)), ["TLS", "GSSAPI"]);
    config.security.tls = Some(TlsPolicy::Off);
    assert_eq!(names(&load(&config)), ["GSSAPI"]);
    config.security.gridmap = None;
    assert!(names(&load(&config)).is_empty());
    assert!(names(&load(&ServerConfig::default())).is_empty());
}

#[test]
fn a_certificate_that_clients_refuse_by_its_dates_is_noticed() {
    let authority = TestAuthority::new("/O=Grid/CN=Test CA");
    let problem = |change: fn(&mut TestCertificate)| {
        let mut template = TestCertificate::new("/O=Grid/CN=late");
        change(&mut template);
        material::validity_problem(&authority.issue(&template))
    };
    assert_eq!(problem(|_| ()), None);
    let expired = problem(|template| template.not_after = -3600).unwrap();
    assert!(expired.contains("/O=Grid/CN=late expired on"), "{expired}");
    let early = problem(|template| template.not_before = 3600).unwrap();
    assert!(early.contains("is not valid before"), "{early}");
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let (dir, config) = site();
    let key = dir.path().join("key");
    for mode in [0o660, 0o604] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        let error = SecurityMaterial::load(&config, None)
            .unwrap_err()
            .to_string();
        assert!(error.contains("chmod") && error.contains("key"), "{error}");
    }
}

#[test]
fn files_that_cannot_be_used_are_named() {
    for name in ["cert", "key", "gridmap"] {
        let (dir, config) = site();
        fs::write(dir.path().join(name), "\"nonsense").unwrap();
        let error = SecurityMaterial::load(&config, None)
            .unwrap_err()
            .to_string();
        assert!(error.contains(&format!("/{name}")), "{error}");
    }
    let (dir, config) = site();
    fs::remove_dir_all(dir.path().join("authorities")).unwrap();
    let error = SecurityMaterial::load(&config, None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("/authorities"), "{error}");
}

#[test]
fn a_pipe_in_place_of_a_file_does_not_block_a_reload() {
    for name in ["cert", "key", "gridmap"] {
        let (dir, config) = site();
        let before = SecurityMaterial::load(&config, None).unwrap();
        let path = dir.path().join(name);
        fs::remove_file(&path).unwrap();
        make_pipe(&path);
        let (done, result) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let loaded = SecurityMaterial::load(&config, Some(&before));
            // The test has ended if nobody listens.
            let _ = done.send(loaded.map_err(|error| error.to_string()));
        });
        let loaded = result.recv_timeout(Duration::from_secs(60));
        let error = loaded.expect("a result in time").unwrap_err();
        assert!(error.contains("it is not a regular file"), "{error}");
    }
}

#[test]
fn a_reload_takes_a_new_certificate_and_keeps_a_self_signed_one() {
    let (dir, config) = site();
    let before = SecurityMaterial::load(&config, None).unwrap();
    let renewed = TestAuthority::new("/O=Grid/CN=Test CA").host(&["renewed.example"]);
    write_certificates(&dir.path().join("cert"), &renewed);
    write_key(&dir.path().join("key"), &renewed);
    let after = SecurityMaterial::load(&config, Some(&before)).unwrap();
    assert_ne!(fingerprint(&before), fingerprint(&after));
    assert_eq!(fingerprint(&after), renewed.fingerprint());

    let mut own = ServerConfig::default();
    own.security.tls = Some(TlsPolicy::SelfSigned);
    let before = SecurityMaterial::load(&own, None).unwrap();
    assert_eq!(before.self_signed_fingerprint(), Some(fingerprint(&before)));
    let after = SecurityMaterial::load(&own, Some(&before)).unwrap();
    assert_eq!(fingerprint(&before), fingerprint(&after));
    // From a made certificate to one of a file.
    let after = SecurityMaterial::load(&config, Some(&before)).unwrap();
    assert_eq!(fingerprint(&after), renewed.fingerprint());
    assert_eq!(after.self_signed_fingerprint(), None);
}
