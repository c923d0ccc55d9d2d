//! A receipt names the certificate that a server has shown: one with GSI, and one of the web.

use std::fmt::Write as _;
use std::path::Path;

use interop::longhaul::copy;
use interop::longhaul::rows::path_argument;
use interop::matrix::TestStore;
use interop::peer::{globus_gridftp_server as globus, nginx};
use interop::pki::environment::GridEnvironment;
use interop::pki::{PeerPki, PeerProxy};
use interop::{require, test_files};
use openssl::hash::MessageDigest;
use openssl::x509::X509;
use serde_json::Value;

/// SHA-256 of a certificate in hexadecimal digits.
fn fingerprint(certificate: &Path) -> String {
    let pem = std::fs::read(certificate).unwrap();
    let certificate = X509::from_pem(&pem).unwrap();
    let digest = certificate.digest(MessageDigest::sha256()).unwrap();
    digest.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// The entry of the only server in the receipt of a copy from `url`.
fn server_in_receipt(store: &TestStore, environment: &GridEnvironment, url: &str) -> Value {
    let receipt = store.local();
    let named = path_argument(&receipt);
    let to = path_argument(&store.local());
    copy::cp_in(environment, &["--receipt", &named, url, &to]).unwrap();
    let receipt = std::fs::read_to_string(&receipt).unwrap();
    let lines = receipt.lines().map(serde_json::from_str::<Value>);
    let told = lines.map(|line| line.unwrap()["servers"].take());
    let servers: Vec<_> = told.filter(Value::is_object).collect();
    let [Value::Object(servers)] = &servers[..] else {
        panic!("{receipt}");
    };
    assert_eq!(servers.len(), 1, "{receipt}");
    servers.values().next().unwrap().clone()
}

#[test]
fn gsi_receipts_have_the_fingerprint_of_the_host() {
    require!(globus::find());
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let server = globus::start_gsi(&store, &pki).unwrap();
    let own = GridEnvironment::proxy(&pki, &pki.proxy(PeerProxy::Full).unwrap());
    let url = server.url("src/f1");
    let said = server_in_receipt(&store, &own, &url);
    assert_eq!(
        said["certificate_sha256"],
        fingerprint(&pki.host.certificate),
        "{said}"
    );
}

#[test]
fn receipts_of_https_have_the_fingerprint_of_the_server() {
    require!(nginx::find());
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let server = nginx::start(&store, Some(&pki.host)).unwrap();
    let name = test_files::name(test_files::SIZES[1]);
    let url = format!("https://{}/src/{name}", server.address());
    let trusting = GridEnvironment::default().with("SSL_CERT_FILE", pki.ca_file());
    let said = server_in_receipt(&store, &trusting, &url);
    assert_eq!(
        said["certificate_sha256"],
        fingerprint(&pki.host.certificate),
        "{said}"
    );
}
