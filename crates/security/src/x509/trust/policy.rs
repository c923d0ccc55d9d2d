//! Signing policies: which subjects an authority may sign (`HASH.signing_policy` of a grid
//! directory, Globus toolkit).

use crate::x509::DistinguishedName;
use crate::x509::name::normalize;

/// The policies of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SigningPolicy {
    authorities: Vec<AuthorityPolicy>,
}

/// The policy of one authority.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AuthorityPolicy {
    /// Normalized, see [`normalize`].
    authority: String,
    /// Patterns of subjects, with `*` and `?`; normalized.
    patterns: Vec<String>,
}

/// Whether an authority may sign a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Permission {
    /// Yes.
    Granted,
    /// No pattern matches; the patterns.
    Denied(Vec<String>),
    /// The file does not name the authority.
    Unknown,
}

impl SigningPolicy {
    /// Parses a file.
    ///
    /// # Errors
    /// Line number and problem.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut policy = Self::default();
        // Conditions belong to a right, and count only for the right to sign.
        let mut may_sign = false;
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            policy
                .add_line(line, &mut may_sign)
                .map_err(|problem| format!("line {number}: {problem}"))?;
        }
        Ok(policy)
    }

    fn add_line(&mut self, line: &str, may_sign: &mut bool) -> Result<(), String> {
        let (keyword, rest) = word(line)?;
        let (authority, value) = word(rest)?;
        match (keyword, authority) {
            ("access_id_CA", "X509") => {
                *may_sign = false;
                self.authorities.push(AuthorityPolicy {
                    authority: normalize(word(value)?.0),
                    patterns: Vec::new(),
                });
            }
            ("pos_rights", "globus") => *may_sign = word(value)?.0 == "CA:sign",
            ("neg_rights", _) => return Err("neg_rights is not supported".to_owned()),
            ("cond_subjects", "globus") => {
                let Some(last) = self.authorities.last_mut() else {
                    return Err("cond_subjects before access_id_CA".to_owned());
                };
                if *may_sign {
                    last.patterns.extend(patterns(word(value)?.0)?);
                }
            }
            // Identities and rights of others than certificate authorities.
            ("access_id_CA" | "pos_rights" | "cond_subjects", _) => {
                return Err(format!("{keyword} of the unknown kind {authority}"));
            }
            _ => return Err(format!("unknown keyword {keyword}")),
        }
        Ok(())
    }

    /// Whether `authority` may sign `subject`.
    pub(super) fn permission(
        &self,
        authority: &DistinguishedName,
        subject: &DistinguishedName,
    ) -> Permission {
        let authority = normalize(authority.as_str());
        // Policies written with OpenSSL before 3 have no backslash before a slash in a value.
        let older = authority.replace("\\/", "/").replace("\\+", "+");
        let subject = normalize(subject.as_str());
        let mut denied = None;
        for policy in &self.authorities {
            if policy.authority != authority && policy.authority != older {
                continue;
            }
            if policy
                .patterns
                .iter()
                .any(|pattern| is_match(pattern.as_bytes(), subject.as_bytes()))
            {
                return Permission::Granted;
            }
            denied
                .get_or_insert_with(Vec::new)
                .extend_from_slice(&policy.patterns);
        }
        denied.map_or(Permission::Unknown, Permission::Denied)
    }
}

/// The first word, without its quotes, and the text behind it.
fn word(text: &str) -> Result<(&str, &str), String> {
    let text = text.trim_start();
    for quote in ['\'', '"'] {
        if let Some(rest) = text.strip_prefix(quote) {
            return rest
                .split_once(quote)
                .ok_or_else(|| format!("the closing {quote} is missing"));
        }
    }
    if text.is_empty() {
        return Err("a value is missing".to_owned());
    }
    Ok(text.split_once(char::is_whitespace).unwrap_or((text, "")))
}

/// Patterns of cond_subjects: in double quotes each, or one without.
fn patterns(text: &str) -> Result<Vec<String>, String> {
    let mut rest = text.trim();
    if !rest.starts_with('"') {
        return Ok(vec![normalize(rest)]);
    }
    let mut patterns = Vec::new();
    while !rest.is_empty() {
        let (pattern, behind) = word(rest)?;
        patterns.push(normalize(pattern));
        rest = behind.trim_start();
    }
    Ok(patterns)
}

/// Whether a text matches a pattern with `*` (any bytes) and `?` (one byte). The time is bounded by
/// the product of both lengths.
fn is_match(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // Behind the last star, and where its text ends by now.
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                star = Some((at, read));
            }
            Some(&byte) if byte == b'?' || byte == text[read] => {
                at += 1;
                read += 1;
            }
            _ => {
                let Some((behind, end)) = star else {
                    return false;
                };
                at = behind;
                read = end + 1;
                star = Some((behind, read));
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AUTHORITY: &str = "/C=CH/O=Grid/CN=Test CA";

    fn permission(text: &str, authority: &str, subject: &str) -> Permission {
        SigningPolicy::parse(text).unwrap().permission(
            &DistinguishedName::from_text(authority),
            &DistinguishedName::from_text(subject),
        )
    }

    fn policy(condition: &str) -> String {
        format!(
            "# A comment\n access_id_CA      X509         '{AUTHORITY}'\n\npos_rights globus CA:sign\ncond_subjects     globus     {condition}\n"
        )
    }

    #[test]
    fn subjects_must_match_a_pattern() {
        let text = policy("'\"/O=Grid/*\" \"/O=Other/CN=?\"'");
        for (subject, granted) in [
            ("/O=Grid/CN=Ada", true),
            ("/o=Grid/CN=Ada", true),
            ("/O=Other/CN=x", true),
            ("/O=Other/CN=xy", false),
            ("/O=Gridd/CN=Ada", false),
            ("/O=Grid", false),
        ] {
            let expected = match granted {
                true => Permission::Granted,
                false => Permission::Denied(vec!["/O=Grid/*".into(), "/O=Other/CN=?".into()]),
            };
            assert_eq!(permission(&text, AUTHORITY, subject), expected, "{subject}");
        }
    }

    #[test]
    fn quotes_may_be_single_double_or_missing() {
        for condition in [
            "'/O=Grid/*'",
            "\"/O=Grid/*\"",
            "/O=Grid/*",
            "'\"/O=Grid/*\"'",
        ] {
            let granted = permission(&policy(condition), AUTHORITY, "/O=Grid/CN=a");
            assert_eq!(granted, Permission::Granted, "{condition}");
        }
    }

    #[test]
    fn each_authority_of_a_file_has_its_own_patterns() {
        let other = policy("'\"/O=B/*\"'").replace("Test CA", "Other");
        let text = policy("'\"/O=A/*\"'") + &other;
        assert_eq!(
            permission(&text, AUTHORITY, "/O=A/CN=a"),
            Permission::Granted
        );
        assert!(matches!(
            permission(&text, AUTHORITY, "/O=B/CN=a"),
            Permission::Denied(_)
        ));
        assert_eq!(
            permission(&text, "/CN=Third", "/O=A/CN=a"),
            Permission::Unknown
        );
    }

    #[test]
    fn a_condition_without_the_right_to_sign_grants_nothing() {
        let text = policy("'\"/O=A/*\"'").replace("CA:sign", "CA:other");
        assert_eq!(
            permission(&text, AUTHORITY, "/O=A/CN=a"),
            Permission::Denied(vec![])
        );
    }

    #[test]
    fn an_authority_with_a_slash_in_its_name_may_be_written_as_before_openssl_3() {
        let text = policy("'*'").replace(AUTHORITY, "/CN=a/b");
        assert_eq!(permission(&text, "/CN=a\\/b", "/CN=x"), Permission::Granted);
    }

    #[test]
    fn errors_have_their_line() {
        for (text, problem) in [
            (
                "access_id_CA X509 '/CN=a",
                "line 1: the closing ' is missing",
            ),
            ("\nfoo globus x", "line 2: unknown keyword foo"),
            ("cond_subjects globus '*'", "line 1: cond_subjects before"),
            ("access_id_CA X509", "line 1: a value is missing"),
            ("neg_rights globus CA:sign", "line 1: neg_rights"),
        ] {
            let error = SigningPolicy::parse(text).unwrap_err();
            assert!(error.starts_with(problem), "{error}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = "*a".repeat(200) + "b";
        assert!(!is_match(pattern.as_bytes(), &[b'a'; 4000]));
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "(access_id_CA|pos_rights|cond_subjects|globus|X509|CA:sign|['\" \n*/=é]){0,30}") {
            if let Ok(policy) = SigningPolicy::parse(&text) {
                let name = DistinguishedName::from_text("/CN=a");
                policy.permission(&name, &name);
            }
        }

        #[test]
        fn arbitrary_text_never_panics(text in any::<String>()) {
            let _ = SigningPolicy::parse(&text);
        }

        #[test]
        fn a_text_matches_itself_and_a_star(text in "[a-z/=]{0,20}", other in "[a-z/=]{0,5}") {
            prop_assert!(is_match(text.as_bytes(), text.as_bytes()));
            prop_assert!(is_match(b"*", text.as_bytes()));
            let (pattern, longer) = (format!("{text}*"), format!("{text}{other}"));
            prop_assert!(is_match(pattern.as_bytes(), longer.as_bytes()));
        }
    }
}
