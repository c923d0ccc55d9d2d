//! Words as a POSIX shell reads them back.

/// A word, in quotes if it needs them.
pub(crate) fn word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%,+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::word;

    #[test]
    fn a_shell_reads_back_what_was_meant() {
        for meant in ["", "a b", "it's; rm", "--only", "p=1,4", "$HOME", "ä\n"] {
            let echo = format!("printf %s {}", word(meant));
            let said = std::process::Command::new("sh")
                .args(["-c", &echo])
                .output();
            assert_eq!(said.unwrap().stdout, meant.as_bytes());
        }
        assert_eq!(word("p=1,4"), "p=1,4");
    }
}
