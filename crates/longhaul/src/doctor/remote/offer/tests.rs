//! Findings about servers that show made-up offers.

use super::*;
use crate::doctor::report::worst;
use proto::reply::Reply;
use security::test_pki::TestAuthority;
use security::x509::CertifiedKey;

const FEATURES: [&str; 7] = [
    "AUTH TLS",
    "PBSZ",
    "PROT",
    "DCAU",
    "PARALLEL",
    "MLST type*;",
    "BEARER USER=:bearer:;",
];

fn features(lines: &[&str]) -> ServerFeatures {
    let lines = lines.iter().map(|line| line.as_bytes().to_vec()).collect();
    ServerFeatures::from_reply(&Reply::with_inner_lines(211, "Features", lines, "End"))
}

fn offered(credential: &CertifiedKey) -> SecurityOffer {
    SecurityOffer::Offered(OfferedSecurity {
        description: "TLSv1.3 TLS_AES_256_GCM_SHA384".to_owned(),
        chain: ShownChain::of(credential),
        features: Some(features(&FEATURES)),
    })
}

fn offer(tls: SecurityOffer) -> ServerOffer {
    ServerOffer {
        host: "data.example".to_owned(),
        greeting: Some("220 ready".to_owned()),
        clear_features: Some(features(&["SIZE"])),
        needs_tls: true,
        needs_gsi: false,
        has_password: false,
        tls,
        gsi: SecurityOffer::Refused("504 no".to_owned()),
    }
}

fn trust(authority: &TestAuthority) -> OfferTrust {
    let of = |authority: &TestAuthority| {
        Ok(Arc::new(TrustStore::exactly(vec![
            authority.certificate().clone(),
        ])))
    };
    OfferTrust {
        tls: of(authority),
        gsi: of(authority),
    }
}

fn has(findings: &[Finding], level: FindingLevel, text: &str) -> bool {
    let is_it = |finding: &Finding| finding.level == level && finding.line().contains(text);
    findings.iter().any(is_it)
}

fn findings(offer: &ServerOffer, authority: &TestAuthority) -> Vec<Finding> {
    // The certificates of tests are valid for ten days, which is a warning.
    offer.findings(&trust(authority), SystemTime::now())
}

#[test]
fn a_server_with_an_accepted_certificate_has_no_problem() {
    let authority = TestAuthority::new("/O=Grid/CN=Test root");
    let offer = offer(offered(&authority.host(&["data.example"])));
    let found = findings(&offer, &authority);
    assert!(worst(&found) < FindingLevel::Problem, "{found:?}");
    for text in [
        "TLSv1.3",
        "accepted for data.example",
        "protection of data: encryption, authentication of both ends",
        "parallel streams, exact listings",
        "bearer tokens: accepted",
    ] {
        assert!(has(&found, FindingLevel::Good, text), "{text}: {found:?}");
    }
    assert!(has(
        &found,
        FindingLevel::Note,
        "issued by /O=Grid/CN=Test root"
    ));
    assert!(has(
        &found,
        FindingLevel::Warning,
        "TLS certificate: valid until"
    ));
}

#[test]
fn a_certificate_that_is_not_accepted_is_a_problem_with_its_reason() {
    let authority = TestAuthority::new("/O=Grid/CN=Test root");
    let other = offer(offered(&authority.host(&["other.example"])));
    let found = findings(&other, &authority);
    assert!(
        has(&found, FindingLevel::Problem, "is for other.example"),
        "{found:?}"
    );
    let stranger = TestAuthority::new("/CN=Stranger");
    let unknown = offer(offered(&authority.host(&["data.example"])));
    let found = findings(&unknown, &stranger);
    assert!(has(&found, FindingLevel::Problem, "--ca"), "{found:?}");
    let late = SystemTime::now() + SERVER_RENEWAL;
    let found = unknown.findings(&trust(&authority), late);
    assert!(
        has(&found, FindingLevel::Problem, "expired at"),
        "{found:?}"
    );
}

#[test]
fn a_grid_certificate_that_the_web_does_not_know_is_no_problem_for_a_gsi_url() {
    let authority = TestAuthority::new("/O=Grid/CN=Test root");
    let stranger = TestAuthority::new("/CN=Stranger");
    let host = authority.host(&["data.example"]);
    let offer = ServerOffer {
        needs_tls: false,
        needs_gsi: true,
        gsi: offered(&host),
        ..offer(offered(&host))
    };
    let trust = OfferTrust {
        tls: trust(&stranger).tls,
        gsi: trust(&authority).gsi,
    };
    let found = offer.findings(&trust, SystemTime::now());
    assert!(worst(&found) < FindingLevel::Problem, "{found:?}");
    assert!(
        has(&found, FindingLevel::Note, "TLS certificate: not accepted"),
        "{found:?}"
    );
}

#[test]
fn missing_tls_is_a_problem_where_the_url_demands_it() {
    let authority = TestAuthority::new("/O=Grid/CN=Test root");
    let mut offer = offer(SecurityOffer::Refused("502 no".to_owned()));
    assert!(has(
        &findings(&offer, &authority),
        FindingLevel::Problem,
        "not offered (502 no)"
    ));
    offer.needs_tls = false;
    let found = findings(&offer, &authority);
    assert_eq!(worst(&found), FindingLevel::Warning, "{found:?}");
    assert!(has(&found, FindingLevel::Warning, "travel in the clear"));
    assert!(has(
        &found,
        FindingLevel::Warning,
        "encryption is not announced"
    ));
    assert!(has(&found, FindingLevel::Note, "no parallel streams"));
    offer.has_password = true;
    assert!(has(
        &findings(&offer, &authority),
        FindingLevel::Problem,
        "travel in the clear"
    ));
    offer.tls = SecurityOffer::Failed("wrong version".to_owned());
    assert!(has(
        &findings(&offer, &authority),
        FindingLevel::Problem,
        "wrong version"
    ));
}

#[test]
fn gsi_is_judged_by_the_rules_of_the_grid() {
    let authority = TestAuthority::new("/O=Grid/CN=Test root");
    let mut offer = offer(SecurityOffer::NotAsked);
    (offer.needs_tls, offer.needs_gsi) = (false, true);
    let found = findings(&offer, &authority);
    assert!(
        has(
            &found,
            FindingLevel::Problem,
            "GSI (AUTH GSSAPI): not offered"
        ),
        "{found:?}"
    );
    offer.gsi = offered(&authority.host(&["data.example"]));
    let found = findings(&offer, &authority);
    assert!(worst(&found) < FindingLevel::Problem, "{found:?}");
    assert!(has(&found, FindingLevel::Good, "GSI certificate: accepted"));
    offer.gsi = SecurityOffer::Failed("no token".to_owned());
    assert!(has(
        &findings(&offer, &authority),
        FindingLevel::Problem,
        "no token"
    ));
}
