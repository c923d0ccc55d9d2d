//! Gridmap files: certificate subjects and the accounts that they may use.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::x509::DistinguishedName;
use crate::x509::name::{BACKSLASH, normalize, push_printable};
use smallfile::regular_file;

/// Longest file, bytes.
const MAX_FILE: u64 = 16 << 20;

/// A gridmap, one line per subject: `"SUBJECT" ACCOUNT[,ACCOUNT...]`.
///
/// Quotes are needed where the subject has blanks. A backslash takes the next character as it is,
/// inside quotes and outside, so the backslash of `CN=host\/NAME` is written twice; `\xHH` is a byte.
/// `#` begins a comment line. Letter case of attribute types does not count; `emailAddress`, `Email`
/// and `E` are the same, as are `UID` and `USERID`. Values are compared exactly (Globus toolkit).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gridmap {
    /// Accounts by normalized subject.
    entries: BTreeMap<String, Vec<String>>,
}

/// Error in a gridmap.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct GridmapError {
    /// File, and line if one is at fault.
    pub place: String,
    /// The problem in plain words.
    pub problem: String,
}

impl Gridmap {
    /// Reads a file. It must be writable by its owner alone, who is root or this user.
    ///
    /// # Errors
    /// See [`GridmapError`].
    pub fn load(path: &Path) -> Result<Self, GridmapError> {
        let place = path.display().to_string();
        let failed = |problem: String| GridmapError {
            place: place.clone(),
            problem,
        };
        let cannot = |error: std::io::Error| failed(format!("cannot read the gridmap: {error}"));
        let file = regular_file::open(path).map_err(cannot)?;
        let metadata = &file.1;
        if metadata.mode() & 0o022 != 0 {
            return Err(failed(format!(
                "mode {:03o} lets others change the gridmap: chmod go-w {place}",
                metadata.mode() & 0o777
            )));
        }
        let user = rustix::process::geteuid().as_raw();
        if metadata.uid() != 0 && metadata.uid() != user {
            return Err(failed(format!(
                "the gridmap belongs to user {}, who could change it: chown it to root or to user {user}",
                metadata.uid()
            )));
        }
        let mut text = Vec::new();
        regular_file::read(file, MAX_FILE, &mut text).map_err(cannot)?;
        Self::parse(&text, &place)
    }

    /// Parses the text of a gridmap; `place` names it in errors.
    ///
    /// # Errors
    /// See [`GridmapError`].
    pub fn parse(text: &[u8], place: &str) -> Result<Self, GridmapError> {
        let mut map = Self::default();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = line.trim_ascii();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let (subject, accounts) = parse_line(line).map_err(|problem| GridmapError {
                place: format!("{place}:{number}"),
                problem: problem.to_owned(),
            })?;
            let known = map.entries.entry(normalize(&subject)).or_default();
            for account in accounts {
                if !known.contains(&account) {
                    known.push(account);
                }
            }
        }
        Ok(map)
    }

    /// The subjects, normalized for comparison, with their accounts.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.entries
            .iter()
            .map(|(subject, accounts)| (subject.as_str(), accounts.as_slice()))
    }

    /// The accounts of a subject, the default first; empty: none.
    pub fn accounts(&self, subject: &DistinguishedName) -> &[String] {
        self.entries
            .get(&normalize(subject.as_str()))
            .map_or(&[], Vec::as_slice)
    }
}

/// Subject and accounts of a line that is neither empty nor a comment.
fn parse_line(line: &[u8]) -> Result<(String, Vec<String>), &'static str> {
    let (subject, rest) = parse_subject(line)?;
    if !subject.starts_with('/') {
        return Err("the line must begin with a subject, such as \"/O=Grid/CN=Ada Lovelace\"");
    }
    let rest = std::str::from_utf8(rest)
        .map_err(|_| "the accounts are not UTF-8")?
        .trim();
    if rest.is_empty() {
        return Err("an account must follow the subject (quote a subject that has blanks)");
    }
    let accounts: Vec<String> = rest.split(',').map(|name| name.trim().to_owned()).collect();
    for account in &accounts {
        if account.is_empty() {
            return Err("an account name is missing at a comma");
        }
        if account.contains(char::is_whitespace) {
            return Err(
                "accounts are separated by commas (and a subject that has blanks is quoted)",
            );
        }
    }
    Ok((subject, accounts))
}

/// The subject in OpenSSL's one-line form, and the bytes behind it.
fn parse_subject(line: &[u8]) -> Result<(String, &[u8]), &'static str> {
    let (is_quoted, mut rest) = match line {
        [b'"', rest @ ..] => (true, rest),
        _ => (false, line),
    };
    let mut subject = String::new();
    loop {
        rest = match rest {
            [] if is_quoted => return Err("the closing quote is missing"),
            [] => return Ok((subject, rest)),
            [b'"', behind @ ..] if is_quoted => return Ok((subject, behind)),
            [b' ' | b'\t', behind @ ..] if !is_quoted => return Ok((subject, behind)),
            [b'\\', b'x', high, low, behind @ ..] if is_hex(*high) && is_hex(*low) => {
                match value(*high) << 4 | value(*low) {
                    b'\\' => subject.push_str(BACKSLASH),
                    byte => push_printable(&mut subject, byte),
                }
                behind
            }
            [b'\\', next, behind @ ..] => {
                push_printable(&mut subject, *next);
                behind
            }
            [b'\\'] => return Err("nothing follows the last backslash"),
            [byte, behind @ ..] => {
                push_printable(&mut subject, *byte);
                behind
            }
        };
    }
}

fn is_hex(byte: u8) -> bool {
    byte.is_ascii_hexdigit()
}

fn value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        other => (other.to_ascii_lowercase() - b'a') + 10,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;
    use crate::test_pki::name;

    fn accounts(text: &str, subject: &str) -> Vec<String> {
        let map = Gridmap::parse(text.as_bytes(), "test").unwrap();
        map.accounts(&DistinguishedName::from_text(subject))
            .to_vec()
    }

    fn problem(text: &str) -> String {
        Gridmap::parse(text.as_bytes(), "map")
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_quoted_subject_may_have_blanks() {
        let text = "# comment\n\n\t\"/O=Grid/CN=Ada Lovelace\" \t ada\r\n/O=Grid/CN=bob bob\n";
        assert_eq!(accounts(text, "/O=Grid/CN=Ada Lovelace"), ["ada"]);
        assert_eq!(accounts(text, "/O=Grid/CN=bob"), ["bob"]);
        assert_eq!(accounts(text, "/O=Grid/CN=Eve"), [""; 0]);
    }

    #[test]
    fn the_first_account_is_the_default() {
        let text = "/CN=a one,two , three\n/CN=b x\n/CN=a four,one\n";
        assert_eq!(accounts(text, "/CN=a"), ["one", "two", "three", "four"]);
    }

    #[test]
    fn a_backslash_takes_the_next_character() {
        let subject = DistinguishedName::of(&name("/O=Grid/CN=host\\/localhost"));
        assert_eq!(
            accounts("\"/O=Grid/CN=host\\\\/localhost\" h", subject.as_str()),
            ["h"]
        );
        assert_eq!(
            accounts("/O=Grid/CN=Ada\\ Lovelace ada", "/O=Grid/CN=Ada Lovelace"),
            ["ada"]
        );
        assert_eq!(accounts("\"/CN=a\\\"b\" x", "/CN=a\"b"), ["x"]);
    }

    #[test]
    fn a_backslash_of_a_value_is_written_as_openssl_shows_it_or_hexadecimal() {
        let subject = DistinguishedName::of(&name("/O=Grid/CN=LAB\\\\ada"));
        for line in ["/O=Grid/CN=LAB\\\\ada a", "/O=Grid/CN=LAB\\x5Cada a"] {
            assert_eq!(accounts(line, subject.as_str()), ["a"], "{line}");
        }
        // O=x with a backslash, then a CN, is another name than O=x/CN=ada.
        let other = DistinguishedName::of(&name("/O=x\\/CN=ada"));
        assert_eq!(accounts("/O=x\\x5C/CN=ada a", other.as_str()), [""; 0]);
    }

    #[test]
    fn bytes_outside_ascii_are_written_raw_or_hexadecimal() {
        let subject = DistinguishedName::of(&name("/CN=J\u{f6}rg"));
        assert_eq!(accounts("/CN=J\u{f6}rg j", subject.as_str()), ["j"]);
        assert_eq!(accounts("/CN=J\\xC3\\xb6rg j", subject.as_str()), ["j"]);
    }

    #[test]
    fn names_of_attribute_types_have_aliases() {
        let text = "/o=Grid/Email=a@x/userid=7 a";
        assert_eq!(accounts(text, "/O=Grid/emailAddress=a@x/UID=7"), ["a"]);
        assert_eq!(accounts(text, "/O=grid/emailAddress=a@x/UID=7"), [""; 0]);
    }

    #[test]
    fn a_slash_in_a_value_is_no_separator() {
        // The certificate CN=a/CN=b (one attribute) is another identity than CN=a, CN=b.
        let one = DistinguishedName::of(&name("/CN=a\\/CN=b"));
        assert_eq!(accounts("/CN=a/CN=b x", one.as_str()), [""; 0]);
    }

    #[test]
    fn errors_have_file_and_line() {
        assert!(problem("\n\"/CN=a b").starts_with("map:2: the closing quote"));
        assert!(problem("/CN=a").starts_with("map:1: an account must follow"));
        assert!(problem("/CN=Ada Lovelace ada").contains("quoted"));
        assert!(problem("/CN=a x,,y").contains("comma"));
        assert!(problem("ada /CN=a").contains("begin with a subject"));
        assert!(problem("/CN=a\\").contains("backslash"));
    }

    #[test]
    fn a_file_that_others_may_change_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gridmap");
        std::fs::write(&path, "/CN=a x").unwrap();
        for (mode, accepted) in [(0o644, true), (0o600, true), (0o664, false), (0o646, false)] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let result = Gridmap::load(&path);
            assert_eq!(result.is_ok(), accepted, "{mode:o}");
            if let Err(error) = result {
                assert!(error.to_string().contains("chmod go-w"), "{error}");
            }
        }
        let missing = Gridmap::load(&folder.path().join("none")).unwrap_err();
        assert!(missing.to_string().contains("cannot read"), "{missing}");
        let folder = Gridmap::load(folder.path()).unwrap_err().to_string();
        assert!(folder.contains("it is not a regular file"), "{folder}");
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Gridmap::parse(&text, "test");
        }

        #[test]
        fn parsing_of_likely_text_never_panics(text in "[\"\\\\x/=,# a-fA-F\n\t]{0,80}") {
            let _ = Gridmap::parse(text.as_bytes(), "test");
        }

        #[test]
        fn every_subject_can_be_written(common_name in "\\PC{1,30}") {
            let mut subject = openssl::x509::X509Name::builder().unwrap();
            subject.append_entry_by_nid(openssl::nid::Nid::COMMONNAME, &common_name).unwrap();
            let subject = DistinguishedName::of(&subject.build());
            let escaped = subject.as_str().replace('\\', "\\\\").replace('"', "\\\"");
            prop_assert_eq!(accounts(&format!("\"{escaped}\" x"), subject.as_str()), ["x"]);
        }
    }
}
