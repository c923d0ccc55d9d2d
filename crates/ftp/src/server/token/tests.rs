use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::FailureKind;

fn read(text: &str, mode: u32) -> Result<Secret, Failure> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    read_token_file(&path)
}

#[test]
fn a_token_file_is_read_without_its_line_end() {
    assert_eq!(
        read("eyJ.abc-_=\n", 0o600).unwrap(),
        Secret::from("eyJ.abc-_=")
    );
}

#[test]
fn a_token_that_others_may_read_or_that_is_malformed_is_refused_without_being_shown() {
    for (text, mode, word) in [
        ("s3cret", 0o644, "chmod 600"),
        ("s3cret s3cret", 0o600, "RFC 6750"),
        ("s3cret\r\nDELE /x", 0o600, "RFC 6750"),
        ("s3cret", 0o640, "chmod 600"),
        ("", 0o600, "empty"),
    ] {
        let failure = read(text, mode).unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Refused);
        assert!(failure.to_string().contains(word), "{failure}");
        assert!(!failure.to_string().contains("s3cret"), "{failure}");
    }
    let missing = read_token_file(Path::new("/nonexistent/token")).unwrap_err();
    assert!(missing.to_string().contains("/nonexistent/token"));
}

#[test]
fn a_token_file_that_is_no_regular_file_is_refused_and_never_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = crate::test_files::make_pipe(dir.path());
    for special in [pipe.as_path(), Path::new("/dev/zero"), dir.path()] {
        let failure = read_token_file(special).unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Refused);
        assert!(
            failure.to_string().contains("not a regular file"),
            "{failure}"
        );
    }
}

/// A token with this audience, as JSON.
fn discovered(audience: &str) -> DiscoveredToken {
    use base64::Engine as _;
    let part = |text: &str| base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(text);
    let claims = format!("{{\"iss\": \"https://i.example\", \"aud\": {audience}}}");
    let token = [part("{\"alg\": \"RS256\"}"), part(&claims), part("x")].join(".");
    DiscoveredToken {
        facts: describe_token(token.as_bytes()).ok(),
        token: Secret::from(token),
    }
}

#[test]
fn the_token_of_the_environment_goes_to_its_audience_and_to_hosts_that_the_user_names() {
    for (audience, host, expected) in [
        ("\"se.example\"", "SE.example", true),
        ("\"https://se.example:8443/data\"", "se.example", true),
        (
            "[\"https://a.example\", \"https://[2001:db8::1]:443\"]",
            "2001:db8::1",
            true,
        ),
        ("\"https://se.example\"", "other.example", false),
        ("\"https://se.example@other.example\"", "se.example", false),
        ("\"https://wlcg.cern.ch/jwt/v1/any\"", "wlcg.cern.ch", false),
        ("\"ANY\"", "any", false),
        ("[]", "", false),
    ] {
        let token = discovered(audience);
        assert_eq!(
            token.for_host(host, &[]).is_some(),
            expected,
            "{audience} {host}"
        );
        let named = ["Named.example".to_owned()];
        assert!(token.for_host("named.example", &named).is_some());
        assert!(token.for_host("unnamed.example", &named).is_none());
    }
    let opaque = DiscoveredToken {
        token: "opaque".into(),
        facts: None,
    };
    assert!(opaque.for_host("se.example", &[]).is_none());
}
