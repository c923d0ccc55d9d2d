//! `~/.netrc`: logins by machine (netrc(5)).

use proto::command::Secret;

/// One `machine` or `default` record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NetrcEntry {
    /// Host name; `None` for the `default` record.
    pub machine: Option<String>,
    /// `login`
    pub login: Option<String>,
    /// `password`
    pub password: Option<Secret>,
}

/// Parses the text of the file and skips unknown words. Also returns the first fault, described
/// without any password.
pub(crate) fn parse(text: &str) -> (Vec<NetrcEntry>, Option<String>) {
    let mut entries: Vec<NetrcEntry> = Vec::new();
    let mut fault: Option<String> = None;
    let mut in_macro = false;
    let mut tokens = NetrcExpectedToken::default();
    for (number, line) in text.lines().enumerate() {
        if in_macro {
            // netrc(5): a macro definition ends at the first empty line.
            in_macro = !line.trim().is_empty();
            continue;
        }
        for token in split_line(line) {
            match tokens.take_token(token, &mut entries) {
                Ok(false) => {}
                Ok(true) => {
                    in_macro = true;
                    break;
                }
                Err(what) => {
                    fault.get_or_insert_with(|| format!("line {}: {what}", number + 1));
                }
            }
        }
    }
    if !matches!(tokens, NetrcExpectedToken::Keyword) {
        fault.get_or_insert_with(|| "the last word has no value".to_owned());
    }
    (entries, fault)
}

/// The first record for `host` (and `user`, if given), else a matching `default` record.
pub(crate) fn find_entry<'a>(
    entries: &'a [NetrcEntry],
    host: &str,
    user: Option<&str>,
) -> Option<&'a NetrcEntry> {
    let login_matches = |e: &&NetrcEntry| match (user, e.login.as_deref()) {
        (Some(user), Some(login)) => user == login,
        (Some(_), None) => true,
        // Without a user name, a record without a login is useless.
        (None, login) => login.is_some(),
    };
    let named = |e: &&NetrcEntry| {
        e.machine
            .as_deref()
            .is_some_and(|m| m.eq_ignore_ascii_case(host))
    };
    entries
        .iter()
        .filter(named)
        .find(login_matches)
        .or_else(|| {
            entries
                .iter()
                .filter(|e| e.machine.is_none())
                .find(login_matches)
        })
}

/// Role of the next token: a keyword, or the value of the keyword before it.
#[derive(Default)]
enum NetrcExpectedToken {
    #[default]
    Keyword,
    Machine,
    Login,
    Password,
    Ignored,
}

impl NetrcExpectedToken {
    /// Takes one token; returns `true` when a macro definition begins. An unknown word where a
    /// keyword belongs is an error.
    fn take_token(
        &mut self,
        token: String,
        entries: &mut Vec<NetrcEntry>,
    ) -> Result<bool, &'static str> {
        match std::mem::take(self) {
            Self::Keyword => match token.as_str() {
                "machine" => *self = Self::Machine,
                "default" => entries.push(NetrcEntry::default()),
                "login" => *self = Self::Login,
                "password" => *self = Self::Password,
                "account" => *self = Self::Ignored,
                "macdef" => return Ok(true),
                _ => return Err(MISPLACED),
            },
            Self::Machine => entries.push(NetrcEntry {
                machine: Some(token),
                ..NetrcEntry::default()
            }),
            // A login or password before any machine record belongs to no host.
            Self::Login => {
                let entry = entries.last_mut().ok_or(NO_MACHINE)?;
                entry.login = Some(token);
            }
            Self::Password => {
                let entry = entries.last_mut().ok_or(NO_MACHINE)?;
                entry.password = Some(token.into());
            }
            Self::Ignored => {}
        }
        Ok(false)
    }
}

const NO_MACHINE: &str = "a login or password belongs to no machine";

/// The message does not show the word, which may be a part of a password.
const MISPLACED: &str = "a word is neither machine, default, login, password, account nor macdef \
     (a password with a blank needs quotes)";

/// Splits a line into words at blanks. `"..."` holds blanks, `\` takes the next character
/// literally, and a word that begins with `#` starts a comment.
fn split_line(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut chars = line.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let Some(&first) = chars.peek() else {
            return words;
        };
        if first == '#' {
            return words;
        }
        let quoted = chars.next_if_eq(&'"').is_some();
        let mut word = String::new();
        while let Some(c) = chars.next() {
            match c {
                '\\' => word.extend(chars.next()),
                '"' if quoted => break,
                c if !quoted && c.is_whitespace() => break,
                c => word.push(c),
            }
        }
        words.push(word);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = "# comment\n\
        machine ftp.example.org login alice password \"two words\"\n\
        machine ftp.example.org\n  login bob\n  password b\\\"ob\n\
        macdef init\ncd /pub\nmachine evil login x password y\n\n\
        default login anonymous password me@here\n";

    #[test]
    fn records_are_found_by_host_and_user() {
        let (entries, fault) = parse(FILE);
        assert_eq!(fault, None);
        assert_eq!(entries.len(), 3);
        let alice = find_entry(&entries, "FTP.example.org", None).unwrap();
        assert_eq!(alice.login.as_deref(), Some("alice"));
        assert_eq!(alice.password, Some("two words".into()));
        let bob = find_entry(&entries, "ftp.example.org", Some("bob")).unwrap();
        assert_eq!(bob.password, Some("b\"ob".into()));
        let other = find_entry(&entries, "elsewhere", None).unwrap();
        assert_eq!(other.password, Some("me@here".into()));
        assert_eq!(find_entry(&entries, "elsewhere", Some("carol")), None);
    }

    #[test]
    fn faults_name_the_line_without_the_password() {
        let fault = |text: &str| parse(text).1.unwrap();
        let misspelt = fault("machine h\nlogni joe pass");
        assert!(misspelt.starts_with("line 2: "), "{misspelt}");
        let blank = fault("machine h login joe password two words");
        assert!(
            blank.contains("quotes") && !blank.contains("words"),
            "{blank}"
        );
        assert!(fault("login joe").contains("no machine"));
        assert!(fault("machine h login").contains("value"));
        assert_eq!(parse("machine h login joe password loginx").1, None);
    }

    proptest! {
        #[test]
        fn parsing_any_text_never_panics(text: String) {
            let (entries, _) = parse(&text);
            let _ = find_entry(&entries, "h", Some("u"));
        }
    }
}
