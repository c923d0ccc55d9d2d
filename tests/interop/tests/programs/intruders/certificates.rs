//! Clients whose certificates or proxies fail a check, and data connections of others.

use std::net::TcpStream;

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use security::test_pki::{
    ProxyForm, ProxyPolicy, TestAuthority, TestCertificate, TestKey, TestProxy, TestUsage,
};
use security::tls::TlsConfig;
use security::x509::CertifiedKey;

use super::session::IntruderSession;
use super::target::{AttackTarget, IntruderPki, add_options, client};

/// A credential, its name, and the words of the log about it.
type BadCredential = (&'static str, Option<CertifiedKey>, Vec<&'static str>);

/// Certificates that neither FTPS nor GSI accepts.
fn bad_certificates(pki: &IntruderPki) -> Vec<BadCredential> {
    let issue = |name: &str, change: fn(&mut TestCertificate)| {
        let mut template = client(name);
        change(&mut template);
        Some(pki.authority.issue(&template))
    };
    let alone = TestAuthority::self_signed(&client("Self"));
    let alone = CertifiedKey::from_parts(alone.certificate().clone(), alone.key().clone(), vec![]);
    let other = TestAuthority::new("/O=Elsewhere/CN=Other CA").issue(&client("Ann"));
    // A user's certificate that signs as if it were an authority's.
    let end_entity = pki.authority.subordinate_with(&TestCertificate {
        digital_signature: None,
        ..client("Signer")
    });
    vec![
        (
            "expired",
            issue("Expired", |template| template.not_after = -3600),
            vec!["/O=Grid/CN=Expired", "expired on"],
        ),
        (
            "not yet valid",
            issue("Early", |template| template.not_before = 3600),
            vec!["/O=Grid/CN=Early", "not valid before"],
        ),
        (
            "of an unknown authority",
            Some(other),
            vec![
                "/O=Elsewhere/CN=Other CA",
                "not among the trusted authorities",
            ],
        ),
        (
            "revoked",
            Some(pki.revoked.clone()),
            vec!["/O=Grid/CN=Carol", "revoked on", "serial number"],
        ),
        (
            "self-signed",
            Some(alone.unwrap()),
            vec!["/O=Grid/CN=Self", "self-signed"],
        ),
        (
            "signed by an end entity",
            Some(end_entity.issue(&client("Below"))),
            vec!["/O=Grid/CN=Signer", "is no authority"],
        ),
    ]
}

/// Proxies that GSI does not accept.
fn bad_proxies(pki: &IntruderPki) -> Vec<BadCredential> {
    let elliptic = || TestProxy {
        key: TestKey::P256,
        ..TestProxy::default()
    };
    let limited = TestProxy {
        key: TestKey::P256,
        ..TestProxy::new(ProxyForm::Rfc, ProxyPolicy::Limited)
    };
    let end_of_path = TestProxy {
        path_length: Some(0),
        ..elliptic()
    };
    let forged = TestProxy {
        signer: Some(pki.authority.issue(&client("Bob"))),
        ..elliptic()
    };
    let unsigned = pki.authority.issue(&TestCertificate {
        digital_signature: Some(false),
        ..client("Mute")
    });
    vec![
        (
            "an expired proxy",
            Some(
                TestProxy {
                    not_after: -60,
                    ..elliptic()
                }
                .of(&pki.user),
            ),
            vec!["/O=Grid/CN=Ann/CN=", "expired on"],
        ),
        (
            "a proxy beyond the path length",
            Some(elliptic().of(&end_of_path.of(&pki.user))),
            vec!["/O=Grid/CN=Ann/CN=", "path length"],
        ),
        (
            "a full proxy below a limited one",
            Some(elliptic().of(&limited.of(&pki.user))),
            vec!["/O=Grid/CN=Ann/CN=", "full proxy below a limited proxy"],
        ),
        (
            "a proxy that another end entity has signed",
            Some(forged.of(&pki.user)),
            vec!["/O=Grid/CN=Ann/CN=", "signature"],
        ),
        (
            "a proxy of an end entity that may not sign",
            Some(elliptic().of(&unsigned)),
            vec!["/O=Grid/CN=Mute", "without digitalSignature"],
        ),
        (
            "a proxy that is an authority",
            Some(
                TestProxy {
                    authority: true,
                    ..elliptic()
                }
                .of(&pki.user),
            ),
            vec!["/O=Grid/CN=Ann/CN=", "is an authority too"],
        ),
        (
            "a proxy of another name",
            Some(
                TestProxy {
                    subject: Some("/O=Grid/CN=Bob/CN=1".to_owned()),
                    ..elliptic()
                }
                .of(&pki.user),
            ),
            vec!["/O=Grid/CN=Bob/CN=1", "must be its issuer's"],
        ),
    ]
}

/// The client never gets as far as a command.
fn ensure_refused_by_tls(target: &AttackTarget, config: &TlsConfig) -> Result<()> {
    let mut session = IntruderSession::connect(target.server.address())?;
    // With TLS 1.3 the client's handshake is complete before the server refuses its certificate.
    if session.start_tls(config).is_ok() {
        let _ = session.send("USER anonymous");
        ensure!(session.expect_end().is_ok(), "the session goes on");
    }
    Ok(())
}

#[test]
fn intruders_with_bad_certificates_are_refused_by_ftps() {
    let mut target = AttackTarget::start_with(|pki, command| {
        let authorities = pki.text_path("certificates");
        let options = ["--client-certs", "required", "--client-ca", &authorities];
        Ok(add_options(command, &options))
    })
    .unwrap();
    let pki = &target.pki;
    let for_servers = TestCertificate {
        usages: vec![TestUsage::Server],
        ..client("Wrong")
    };
    let mut rows = bad_certificates(pki);
    rows.push(("none", None, vec!["the peer has shown no certificate"]));
    rows.push((
        "for servers",
        Some(pki.authority.issue(&for_servers)),
        vec!["/O=Grid/CN=Wrong", "without clientAuth"],
    ));
    rows.push((
        "a proxy",
        Some(TestProxy::default().of(&pki.user)),
        vec!["/O=Grid/CN=Ann/CN=", "a proxy, which only GSI"],
    ));
    let mut cells = MatrixRow::new("client certificates of FTPS");
    for (name, credential, words) in rows {
        cells.check(name, || {
            let mark = target.log_mark();
            ensure_refused_by_tls(&target, &target.pki.web_client(credential.as_ref())?)?;
            let words = [&["TLS handshake failed"], &words[..]].concat();
            target.server.wait_for_message(mark, &words).map(drop)
        });
    }
    cells.check("the server serves on", || target.serves_others());
    cells.finish();
    target.ensure_running().unwrap();
}

#[test]
fn intruders_with_bad_credentials_are_refused_by_gsi() {
    let mut target = AttackTarget::start(&[]).unwrap();
    let mut rows = bad_certificates(&target.pki);
    rows.extend(bad_proxies(&target.pki));
    let mut cells = MatrixRow::new("credentials of GSI");
    for (name, credential, words) in rows {
        cells.check(name, || {
            let Some(credential) = credential else {
                return Ok(());
            };
            let mark = target.log_mark();
            let mut session = IntruderSession::connect(target.server.address())?;
            let config = target.pki.grid_client(&credential)?;
            let refusal = session.authenticate(&config)?;
            let refusal = refusal.unwrap_or_default();
            ensure!(refusal.starts_with("535"), "{refusal:?}");
            // Which check has failed is for the log only.
            ensure!(!refusal.contains("CN="), "{refusal}");
            let words = [&["GSI exchange refused"], &words[..]].concat();
            target.server.wait_for_message(mark, &words).map(drop)
        });
    }
    cells.check("the server serves on", || target.serves_others());
    cells.finish();
    target.ensure_running().unwrap();
}

/// Valid certificates that the gridmap does not list, and a proxy that has its own name.
#[test]
fn intruders_of_other_names_have_no_account() {
    let target = AttackTarget::start(&[]).unwrap();
    let independent = TestProxy::new(ProxyForm::Rfc, ProxyPolicy::Independent);
    let rows = [
        (
            "a stranger",
            target.pki.authority.issue(&client("Stranger")),
            "the gridmap does not list /O=Grid/CN=Stranger",
        ),
        (
            "an independent proxy",
            independent.of(&target.pki.user),
            "an independent proxy has no account, whatever it is called: /O=Grid/CN=Ann/CN=",
        ),
    ];
    let mut cells = MatrixRow::new("names that the gridmap does not list");
    for (name, credential, reason) in rows {
        cells.check(name, || {
            let mark = target.log_mark();
            let mut session = IntruderSession::connect(target.server.address())?;
            let config = target.pki.grid_client(&credential)?;
            ensure!(session.authenticate(&config)?.is_none(), "not a login yet");
            session.expect("USER :globus-mapping:", "331")?;
            let refusal = session.expect("PASS x", "530")?;
            ensure!(!refusal.contains("CN="), "{refusal}");
            let words = ["login refused", reason];
            target.server.wait_for_message(mark, &words).map(drop)
        });
    }
    cells.check("the server serves on", || target.serves_others());
    cells.finish();
}

/// Another user finds the port of a data connection (DCAU A, DCAU S).
#[test]
fn intruders_on_data_connections_are_refused_and_logged() {
    let target = AttackTarget::start(&["--stall-timeout", "2"]).unwrap();
    let bob = target.pki.authority.issue(&client("Bob"));
    let own = target.pki.grid_client(&target.pki.user).unwrap();
    let mut cells = MatrixRow::new("data connections of others");
    for (name, dcau, credential, words) in [
        ("DCAU A, another user", "DCAU A", &bob, "/O=Grid/CN=Bob"),
        (
            "DCAU S, the user itself",
            "DCAU S /O=Grid/CN=Bob",
            &target.pki.user,
            "/O=Grid/CN=Ann",
        ),
    ] {
        cells.check(name, || {
            let mark = target.log_mark();
            let mut session = IntruderSession::with_grid(target.server.address(), &own)?;
            session.expect(dcau, "200")?;
            let address = interop::net::passive_address(&session.expect("PASV", "227")?)?;
            session.send("RETR src/f65536")?;
            let config = target.pki.grid_client(credential)?;
            let stolen = super::messages::read_data(TcpStream::connect(address)?, &config);
            ensure!(stolen.is_err(), "the intruder has read the file");
            let mut reply = session.reply()?;
            while reply.starts_with('1') {
                reply = session.reply()?;
            }
            ensure!(reply.starts_with("42"), "{reply}");
            target.server.wait_for_message(mark, &[words]).map(drop)
        });
    }
    cells.check("the server serves on", || target.serves_others());
    cells.finish();
}
