//! Findings about a directory of certificate authorities.

use std::path::Path;
use std::time::SystemTime;

use security::x509::{AuthorityFile, AuthorityState, TrustError, inspect_authorities};

use super::report::{Finding, show_time};

const NAME: &str = "certificate authorities";
/// The program that renews revocation lists of grid authorities.
const RENEW_LISTS: &str = "run fetch-crl, and let cron run it every six hours";

/// Examines a directory. `policies`: its use needs signing policies.
pub(super) fn examine(folder: &Path, policies: bool) -> Vec<Finding> {
    match inspect_authorities(folder) {
        Ok((authorities, problems)) => {
            of_authorities(folder, &authorities, &problems, policies, SystemTime::now())
        }
        Err(error) => vec![Finding::problem(
            NAME,
            error.to_string(),
            "install the certificates of your authorities there",
        )],
    }
}

/// The findings about the authorities of a directory.
fn of_authorities(
    folder: &Path,
    authorities: &[AuthorityState],
    problems: &[TrustError],
    policies: bool,
    now: SystemTime,
) -> Vec<Finding> {
    let place = folder.display();
    let count = authorities.len();
    let mut findings = vec![match count {
        0 => Finding::problem(
            NAME,
            format!("{place} has none (HASH.0)"),
            format!("copy them there and run openssl rehash {place}"),
        ),
        _ => Finding::good(NAME, format!("{count} in {place}")),
    }];
    let unreadable = problems
        .iter()
        .map(|problem| Finding::warning(NAME, problem.to_string(), "replace or remove the file"));
    findings.extend(unreadable);
    for authority in authorities {
        findings.extend(of_authority(authority, policies, now));
    }
    findings
}

/// The findings about one authority; none if all is well.
fn of_authority(authority: &AuthorityState, policies: bool, now: SystemTime) -> Vec<Finding> {
    let name = format!("authority {}", authority.subject);
    let mut findings = Vec::new();
    if authority.expires <= now {
        findings.push(Finding::warning(
            &name,
            format!("expired at {}", show_time(authority.expires)),
            format!("replace {}", authority.file.display()),
        ));
    }
    match &authority.policy {
        AuthorityFile::Unusable(problem) => findings.push(Finding::problem(
            &name,
            problem,
            "grid connections refuse what it signs: get the policy from the authority",
        )),
        AuthorityFile::Missing if policies => findings.push(Finding::warning(
            &name,
            "has no signing policy",
            "grid connections refuse what it signs: add HASH.signing_policy",
        )),
        AuthorityFile::Missing | AuthorityFile::Usable(_) => {}
    }
    match &authority.revocation {
        AuthorityFile::Unusable(problem) => {
            findings.push(Finding::problem(&name, problem, RENEW_LISTS));
        }
        AuthorityFile::Usable(Some(until)) if *until <= now => findings.push(Finding::problem(
            &name,
            format!("its revocation list expired at {}", show_time(*until)),
            RENEW_LISTS,
        )),
        AuthorityFile::Missing if policies => findings.push(Finding::hint(
            &name,
            "has no revocation list, so nothing of it is ever revoked",
            RENEW_LISTS,
        )),
        AuthorityFile::Missing | AuthorityFile::Usable(_) => {}
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::{FindingLevel, worst};
    use security::test_pki::{TestAuthority, write_authority, write_revocation_list};

    const DAY: i64 = 24 * 3600;

    #[test]
    fn a_directory_with_all_files_is_good() {
        let folder = tempfile::tempdir().unwrap();
        let authority = TestAuthority::new("/O=Grid/CN=Test root");
        let policy = authority.signing_policy(&["*"]);
        write_authority(folder.path(), &authority, Some(&policy), None);
        write_revocation_list(folder.path(), &authority, &authority.revocation_list(&[]));
        let findings = examine(folder.path(), true);
        assert_eq!(worst(&findings), FindingLevel::Good, "{findings:?}");
        assert!(findings[0].value.starts_with("1 in "), "{findings:?}");
    }

    #[test]
    fn missing_and_expired_files_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let bare = TestAuthority::new("/O=Grid/CN=Bare");
        write_authority(folder.path(), &bare, None, None);
        let late = TestAuthority::new("/O=Grid/CN=Late");
        write_authority(
            folder.path(),
            &late,
            Some(&late.signing_policy(&["*"])),
            None,
        );
        let list = late.revocation_list_of(&[], -3 * DAY, -DAY);
        write_revocation_list(folder.path(), &late, &list);
        std::fs::write(folder.path().join("0badcafe.0"), "nothing").unwrap();
        let findings = examine(folder.path(), true);
        let has = |name: &str, text: &str, level| {
            findings.iter().any(|finding| {
                finding.level == level
                    && finding.name.ends_with(name)
                    && finding.value.contains(text)
                    && finding.advice.is_some()
            })
        };
        assert!(
            has("CN=Bare", "no signing policy", FindingLevel::Warning),
            "{findings:?}"
        );
        assert!(
            has("CN=Bare", "no revocation list", FindingLevel::Note),
            "{findings:?}"
        );
        assert!(
            has("CN=Late", "list expired", FindingLevel::Problem),
            "{findings:?}"
        );
        assert!(
            has(NAME, "0badcafe.0", FindingLevel::Warning),
            "{findings:?}"
        );
        // TLS clients need no signing policies.
        let findings = examine(folder.path(), false);
        assert!(
            !findings
                .iter()
                .any(|finding| finding.value.contains("policy"))
        );
    }

    #[test]
    fn an_empty_or_missing_directory_is_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        for place in [folder.path(), Path::new("/nowhere")] {
            let findings = examine(place, true);
            assert_eq!(worst(&findings), FindingLevel::Problem);
        }
    }
}
