//! Hosts that certificates name.

use super::*;

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
