//! Words in the syntax of a shell.

/// A word quoted for a POSIX shell, if it needs quotes.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%,+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_a_quoted_word_unchanged() {
        for word in ["", "a b", "it's; rm", "--only", "p=1,4", "$HOME", "ä\n"] {
            let script = format!("printf %s {}", shell_word(word));
            let output = std::process::Command::new("sh")
                .args(["-c", &script])
                .output();
            assert_eq!(output.unwrap().stdout, word.as_bytes());
        }
        assert_eq!(shell_word("p=1,4"), "p=1,4");
    }
}
