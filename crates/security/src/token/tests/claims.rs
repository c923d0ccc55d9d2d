//! What the claims of a signed token must say.

use super::*;

/// A claim changed to each value (null removes it), and the claim that is refused or `ok`.
fn assert_verdicts(base: &Value, claim: &str, verdicts: &[(Value, &str)]) {
    let key = SigningKey::new("k", "ES256");
    let keys = key_set(&[&key]);
    for (value, expected) in verdicts {
        let mut claims = base.clone();
        match value.is_null() {
            true => drop(claims.as_object_mut().unwrap().remove(claim)),
            false => claims[claim] = value.clone(),
        }
        let result = verifier().verify(key.token(&claims).as_bytes(), &keys, now());
        let verdict = match &result {
            Ok(_) => "ok".to_owned(),
            Err(TokenError::Malformed(_)) => "malformed".to_owned(),
            Err(_) => refused_claim(result),
        };
        assert_eq!(verdict, *expected, "{claim}: {value}");
    }
}

#[test]
fn the_issuer_is_compared_exactly() {
    for issuer in [
        "https://issuer.example.org/vo/",
        "http://issuer.example.org/vo",
        "https://issuer.example.org/VO",
        "https://other.example.org",
        "",
    ] {
        let mut claims = wlcg_claims();
        claims["iss"] = issuer.into();
        let token = SigningKey::new("k", "ES256").token(&claims);
        let error = verifier().issuer_of(token.as_bytes()).unwrap_err();
        assert!(
            matches!(error, TokenError::Refused { claim: "iss", .. }),
            "{error}"
        );
    }
    let base = wlcg_claims();
    let verdicts = [
        (json!("https://other.example.org"), "iss"),
        (json!(null), "malformed"),
        (json!([ISSUER]), "malformed"),
    ];
    assert_verdicts(&base, "iss", &verdicts);
}

#[test]
fn the_audience_is_this_server() {
    let any = "https://wlcg.cern.ch/jwt/v1/any";
    let verdicts = [
        (json!("storage"), "ok"),
        (json!(["other", US]), "ok"),
        (json!(any), "ok"),
        (json!(["other", "another"]), "aud"),
        (json!("ANY"), "aud"),
        (json!(""), "aud"),
        (json!([]), "aud"),
        (json!(null), "aud"),
        (json!({"a": 1}), "malformed"),
    ];
    assert_verdicts(&wlcg_claims(), "aud", &verdicts);
    let mut scitoken = wlcg_claims();
    scitoken.as_object_mut().unwrap().remove("wlcg.ver");
    scitoken["ver"] = "scitoken:2.0".into();
    scitoken["scope"] = "read:/".into();
    let verdicts = [
        (json!("ANY"), "ok"),
        (json!([US]), "ok"),
        (json!(any), "aud"),
        (json!(null), "aud"),
    ];
    assert_verdicts(&scitoken, "aud", &verdicts);
}

#[test]
fn times_are_bounded() {
    let day = 24 * 3600;
    let base = wlcg_claims();
    let exp = [
        (json!(NOW + 1), "ok"),
        (json!(NOW), "exp"),
        (json!(NOW - 1), "exp"),
        (json!(NOW - 10 + day + 60), "ok"),
        (json!(NOW - 10 + day + 61), "exp"),
        (json!(1.0e300), "malformed"),
        (json!(-1), "malformed"),
        (json!("soon"), "malformed"),
        (json!(null), "exp"),
        (json!(0), "exp"),
    ];
    assert_verdicts(&base, "exp", &exp);
    for claim in ["nbf", "iat"] {
        let verdicts = [
            (json!(NOW + 60), "ok"),
            (json!(NOW + 61), claim),
            (json!(1_799_999_999.5), "ok"),
            (json!(null), "ok"),
        ];
        assert_verdicts(&base, claim, &verdicts);
    }
    let mut timeless = base;
    for claim in ["nbf", "iat"] {
        timeless.as_object_mut().unwrap().remove(claim);
    }
    let verdicts = [(json!(NOW + day), "ok"), (json!(NOW + day + 61), "exp")];
    assert_verdicts(&timeless, "exp", &verdicts);
}

#[test]
fn a_replayed_token_is_refused_after_its_end() {
    let key = SigningKey::new("k", "ES256");
    let keys = key_set(&[&key]);
    let token = key.token(&wlcg_claims());
    let at = |seconds| {
        let later = now() + Duration::from_secs(seconds);
        verifier().verify(token.as_bytes(), &keys, later)
    };
    at(0).unwrap();
    at(3599).unwrap();
    assert_eq!(refused_claim(at(3600)), "exp");
    assert_eq!(refused_claim(at(100_000)), "exp");
}

#[test]
fn subject_version_and_scope_are_checked() {
    let base = wlcg_claims();
    let long = "s".repeat(256);
    let subjects = [
        (json!("a subject"), "ok"),
        (json!(null), "sub"),
        (json!(""), "sub"),
        (json!(long), "sub"),
        (json!("a\r\nb"), "sub"),
        (json!(7), "malformed"),
    ];
    assert_verdicts(&base, "sub", &subjects);
    let versions = [
        (json!("1.2"), "ok"),
        (json!("2.0"), "ver"),
        (json!("1.x"), "ver"),
        (json!("1"), "ver"),
        (json!(null), "ver"),
    ];
    assert_verdicts(&base, "wlcg.ver", &versions);
    let scopes = [
        (json!("storage.read:/ compute.read"), "ok"),
        (json!("read:/"), "scope"),
        (json!("openid profile"), "scope"),
        (json!("storage.read:/../x"), "scope"),
        (json!("storage.read"), "scope"),
        (json!(null), "scope"),
    ];
    assert_verdicts(&base, "scope", &scopes);
    let mut scitoken = base;
    scitoken.as_object_mut().unwrap().remove("wlcg.ver");
    scitoken["scope"] = "read write:/out".into();
    let versions = [
        (json!("scitoken:2.0"), "ok"),
        (json!("scitokens:1.0"), "ver"),
        (json!("1.0"), "ver"),
        (json!(null), "ver"),
    ];
    assert_verdicts(&scitoken, "ver", &versions);
}

#[test]
fn groups_without_scopes_are_refused_with_the_reason() {
    let key = SigningKey::new("k", "ES256");
    let mut claims = wlcg_claims();
    claims["scope"] = "openid".into();
    claims["wlcg.groups"] = json!(["/vo"]);
    let error = verifier()
        .verify(key.token(&claims).as_bytes(), &key_set(&[&key]), now())
        .unwrap_err();
    assert!(
        error.to_string().contains("groups but no storage scopes"),
        "{error}"
    );
}
