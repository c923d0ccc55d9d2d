//! Hosts that certificates name.

use super::*;
use crate::x509::der;

#[test]
fn the_common_name_names_a_host_for_grids_alone() {
    let root = TestAuthority::new(ROOT);
    let mut template = TestCertificate::new("/O=Grid/CN=host\\/localhost");
    template.usages = vec![TestUsage::Server];
    let host = root.issue(&template);
    let store = bundle(&root);
    let grid = verify(&store, &host, Grid).unwrap();
    grid.check_host("localhost").unwrap();
    let web = verify(&store, &host, TlsServer).unwrap();
    let error = web.check_host("localhost").unwrap_err().to_string();
    assert!(error.contains("CN=host/localhost"), "{error}");
    // A proxy of a host stands for the host.
    let proxy = TestProxy::default().of(&host);
    let peer = verify(&store, &proxy, Grid).unwrap();
    peer.check_host("localhost").unwrap();
}

#[test]
fn a_proxy_of_a_host_stands_for_the_host() {
    let root = TestAuthority::new(ROOT);
    let store = bundle(&root);
    let host = root.host(&["ftp.example.org"]);
    for form in [ProxyForm::Rfc, ProxyForm::Draft, ProxyForm::Legacy] {
        let limited = TestProxy::new(form, ProxyPolicy::Limited);
        let one = TestProxy::new(form, ProxyPolicy::InheritAll).of(&host);
        for proxy in [limited.of(&one), one] {
            let peer = verify(&store, &proxy, Grid).unwrap();
            peer.check_host("ftp.example.org").unwrap();
            peer.check_host("other.example.org").unwrap_err();
        }
    }
}

/// The owner of a certificate chooses the name of such a proxy.
#[test]
fn an_independent_proxy_names_no_host() {
    let root = TestAuthority::new(ROOT);
    let store = bundle(&root);
    let owners = [root.user("Ada"), root.host(&["ftp.example.org"])];
    for owner in &owners {
        for form in [ProxyForm::Rfc, ProxyForm::Draft] {
            for name in ["ftp.example.org", "host/ftp.example.org"] {
                let independent = TestProxy {
                    common_name: Some(name.to_owned()),
                    ..TestProxy::new(form, ProxyPolicy::Independent)
                };
                let full = TestProxy::new(form, ProxyPolicy::InheritAll);
                for proxy in [
                    independent.of(owner),
                    full.of(&independent.of(owner)),
                    independent.of(&full.of(owner)),
                ] {
                    let peer = verify(&store, &proxy, Grid).unwrap();
                    let error = peer.check_host("ftp.example.org").unwrap_err();
                    let text = error.to_string();
                    assert!(text.contains("independent proxy"), "{text}");
                    assert!(text.ends_with("not for ftp.example.org"), "{text}");
                }
            }
        }
    }
}

/// Its subject looks like a legacy proxy's, of which the web knows nothing.
#[test]
fn a_web_server_may_be_called_proxy() {
    let root = TestAuthority::new(ROOT);
    let mut template = TestCertificate::new("/O=Grid/CN=proxy");
    template.alternative_names = vec!["proxy".to_owned()];
    let peer = verify(&bundle(&root), &root.issue(&template), TlsServer).unwrap();
    peer.check_host("proxy").unwrap();
}

/// Name constraints with these DNS names: permitted, excluded (RFC 5280 §4.2.1.10).
fn name_constraints(permitted: &[&str], excluded: &[&str]) -> (String, Vec<u8>) {
    let subtrees = |tag: u8, names: &[&str]| {
        let subtree =
            |name: &&str| der::element(der::SEQUENCE, &der::element(0x82, name.as_bytes()));
        let all: Vec<Vec<u8>> = names.iter().map(subtree).collect();
        match names {
            [] => Vec::new(),
            _ => der::element(tag, &all.concat()),
        }
    };
    let both = [subtrees(0xa0, permitted), subtrees(0xa1, excluded)].concat();
    ("2.5.29.30".to_owned(), der::element(der::SEQUENCE, &both))
}

#[test]
fn name_constraints_bind_every_form_in_which_a_common_name_names_a_host() {
    let root = TestAuthority::new(ROOT);
    let store = bundle(&root);
    for (permitted, excluded) in [
        (&["good.example"][..], &[][..]),
        (&[], &["bank.example", "localhost"]),
    ] {
        let mut template = TestCertificate::new("/O=Grid/CN=Constrained");
        template.authority = true;
        template.critical = vec![name_constraints(permitted, excluded)];
        let below = root.subordinate_with(&template);
        let check = |common_name: &str, host: &str| {
            let subject = format!("/O=Grid/CN={}", common_name.replace('/', "\\/"));
            let credential = below.issue(&TestCertificate::new(&subject));
            for shown in [TestProxy::default().of(&credential), credential] {
                let peer = verify(&store, &shown, Grid)?;
                peer.check_host(host).map_err(|error| error.to_string())?;
            }
            Ok::<(), String>(())
        };
        for (common_name, host) in [
            ("host/bank.example", "bank.example"),
            ("host/ftp.bank.example", "ftp.bank.example"),
            ("bank.example", "bank.example"),
            ("host/localhost", "localhost"),
            ("localhost", "localhost"),
        ] {
            let error = check(common_name, host).unwrap_err();
            // OpenSSL checks the form with a dot itself, whatever the use.
            let by_openssl =
                error.contains("permitted subtree") || error.contains("excluded subtree");
            assert!(
                by_openssl || error.contains("name constraints of /O=Grid/CN=Constrained"),
                "{error}"
            );
        }
        check("host/good.example", "good.example").unwrap();
        check("host/ftp.good.example", "ftp.good.example").unwrap();
        // A person's name is no host.
        let person = below.issue(&TestCertificate::new("/O=Grid/CN=Ada"));
        verify(&store, &person, Grid).unwrap();
    }
}
