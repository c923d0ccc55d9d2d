//! Findings about this user's credentials.

use std::time::SystemTime;

use copy::Failure;
use ftp::protection::{FoundCredential, locate_user_credential};
use security::token::{TokenDiscoveryError, describe_token, discover_token};
use security::x509::grid_directory;

use super::authorities;
use super::report::{Finding, USER_RENEWAL};

const CREDENTIAL: &str = "GSI credential";
const TOKEN: &str = "bearer token";

/// Examines the user's credentials and the grid's authorities.
pub(super) fn examine() -> Vec<Finding> {
    let now = SystemTime::now();
    let mut findings = of_credential(locate_user_credential(), now);
    match grid_directory() {
        Ok(folder) => findings.extend(authorities::examine(&folder, true)),
        // Nobody needs them who does not use gsiftp.
        Err(error) => findings.push(Finding::note(
            "grid certificate authorities",
            error.to_string(),
        )),
    }
    let token = discover_token();
    let text = token
        .as_ref()
        .map(|found| found.as_ref().map(|token| token.as_bytes()));
    findings.extend(of_token(text, now));
    findings
}

/// The findings about the search for a GSI credential.
fn of_credential(found: Result<Option<FoundCredential>, Failure>, now: SystemTime) -> Vec<Finding> {
    let found = match found {
        Err(failure) => return vec![Finding::failure(CREDENTIAL, failure.to_string())],
        Ok(None) => {
            return vec![Finding::hint(
                CREDENTIAL,
                "none",
                "only gsiftp: needs one: make a proxy with `longhaul proxy init`",
            )];
        }
        Ok(Some(found)) => found,
    };
    let credential = &found.credential;
    let facts = format!(
        "{}: {}, {}, subject {}, identity {}",
        found.name,
        credential.describe_kind(),
        credential.describe_key(),
        credential.subject(),
        credential.identity()
    );
    let advice = match credential.describe_kind() {
        "certificate" => "ask your authority for a new certificate",
        _ => "make a new proxy with `longhaul proxy init`",
    };
    let validity = Finding::validity(CREDENTIAL, credential.expires(), now, USER_RENEWAL, advice);
    vec![Finding::good(CREDENTIAL, facts), validity]
}

/// The findings about the search for a token. The token itself is never shown.
fn of_token(found: Result<Option<&[u8]>, &TokenDiscoveryError>, now: SystemTime) -> Vec<Finding> {
    let token = match found {
        Err(error) => return vec![Finding::failure(TOKEN, error.to_string())],
        Ok(None) => {
            return vec![Finding::note(
                TOKEN,
                "none (BEARER_TOKEN, BEARER_TOKEN_FILE, $XDG_RUNTIME_DIR/bt_uUID, /tmp/bt_uUID)",
            )];
        }
        Ok(Some(token)) => token,
    };
    let Ok(facts) = describe_token(token) else {
        return vec![Finding::note(
            TOKEN,
            "found; it is no JSON Web Token, so only its issuer can tell until when it is valid",
        )];
    };
    let audience = match facts.audiences.is_empty() {
        true => "every server".to_owned(),
        false => facts.audiences.join(", "),
    };
    let described = format!("found; issuer {}, audience {audience}", facts.issuer);
    let mut findings = vec![Finding::good(TOKEN, described)];
    let advice = "get a new one from its issuer (for instance with oidc-token or htgettoken)";
    findings.push(match facts.expires {
        Some(expires) => Finding::validity(TOKEN, expires, now, USER_RENEWAL, advice),
        None => Finding::warning(TOKEN, "never expires: servers refuse it", advice),
    });
    findings
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD as B64;

    use super::*;
    use crate::doctor::report::{FindingLevel, worst};
    use security::test_pki::TestAuthority;

    fn found() -> FoundCredential {
        FoundCredential {
            name: "the proxy /tmp/x".to_owned(),
            credential: TestAuthority::new("/O=Grid/CN=Test root").user("Ada"),
        }
    }

    #[test]
    fn a_credential_is_shown_with_its_file_identity_and_time() {
        let found = found();
        let expires = found.credential.expires();
        let at = |now| of_credential(Ok(Some(found.clone())), now);
        let findings = at(SystemTime::now());
        assert_eq!(worst(&findings), FindingLevel::Good);
        for part in ["/tmp/x", "/O=Grid/CN=Ada", "RSA 2048"] {
            assert!(findings[0].value.contains(part), "{findings:?}");
        }
        let soon = at(expires - Duration::from_secs(60));
        assert_eq!(worst(&soon), FindingLevel::Warning);
        assert!(soon[1].advice.is_some());
        assert_eq!(
            worst(&at(expires + Duration::from_secs(60))),
            FindingLevel::Problem
        );
    }

    #[test]
    fn an_unusable_credential_is_a_problem_and_a_missing_one_is_not() {
        let now = SystemTime::now();
        let failure = Failure::refused("the proxy p expired: run it");
        assert_eq!(
            worst(&of_credential(Err(failure), now)),
            FindingLevel::Problem
        );
        let none = of_credential(Ok(None), now);
        assert_eq!(worst(&none), FindingLevel::Note);
        assert!(none[0].line().contains("longhaul proxy init"));
    }

    fn token(claims: &str) -> String {
        let header = B64.encode("{\"alg\":\"ES256\"}");
        format!("{header}.{}.c2ln", B64.encode(claims))
    }

    #[test]
    fn a_token_is_described_and_never_shown() {
        let text = token(r#"{"iss":"https://i","aud":["a","b"],"exp":2000}"#);
        let at = |seconds| {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            of_token(Ok(Some(text.as_bytes())), now)
        };
        let findings = at(1000);
        assert!(
            findings[0]
                .value
                .contains("issuer https://i, audience a, b"),
            "{findings:?}"
        );
        assert_eq!(worst(&findings), FindingLevel::Warning);
        assert_eq!(worst(&at(3000)), FindingLevel::Problem);
        let shown: Vec<String> = at(1000).iter().map(Finding::line).collect();
        assert!(!shown.join("\n").contains(&text[..20]));
    }

    #[test]
    fn other_tokens_missing_ones_and_unusable_ones_are_reported() {
        let now = SystemTime::now();
        assert_eq!(
            worst(&of_token(Ok(Some(b"opaque")), now)),
            FindingLevel::Note
        );
        assert_eq!(worst(&of_token(Ok(None), now)), FindingLevel::Note);
        let error = TokenDiscoveryError("others may read /tmp/bt".to_owned());
        assert_eq!(worst(&of_token(Err(&error), now)), FindingLevel::Problem);
        let endless = token(r#"{"iss":"https://i"}"#);
        let findings = of_token(Ok(Some(endless.as_bytes())), now);
        assert_eq!(worst(&findings), FindingLevel::Warning);
        assert!(findings[0].value.contains("every server"));
    }
}
