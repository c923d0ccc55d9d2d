//! The program at the far end: the command that finds and starts it, and the line that says that there is none.
//!
//! The login shell interprets the command: sh, csh, fish, or a restricted one. Each passes the text between single quotes on to
//! `sh` as it is, if it has no `!`, no backslash, no line break and fewer than 1000 bytes, the longest word of an old csh.

use proto::carried::MAX_LINE;

/// The version of programs that work with this one without any question; the others say what they can do (FEAT).
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The beginning of the line that a search without success prints.
const ABSENT: &str = "longhaul absent 1 ";

/// The words by which longhaul prints its version.
pub(super) const VERSION_FLAG: &str = "--version";

/// The words by which longhaul serves a session.
pub(super) const SERVE: &str = "serve --stdio";

/// The program at the far end, which the user names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FarProgram(String);

impl FarProgram {
    /// A path, or a name on the PATH there. `~/` is the home directory there.
    ///
    /// # Errors
    /// One line: a character that not every shell takes as it is.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_special = |c: char| c.is_control() || "'\"`$!\\".contains(c);
        if text.is_empty() || text.starts_with('-') {
            return Err("give the path of longhaul at the far end".to_owned());
        }
        match text.chars().find(|c| is_special(*c)) {
            Some(c) => Err(format!("{c:?} may not be part of the path")),
            None => Ok(Self(text.to_owned())),
        }
    }

    /// The path as a word of any shell.
    pub fn quoted(&self) -> String {
        format!("\"{}\"", self.word())
    }

    /// The path as a word of sh between double quotes.
    fn word(&self) -> String {
        match self.0.strip_prefix("~/") {
            Some(below) => format!("$HOME/{below}"),
            None => self.0.clone(),
        }
    }
}

impl std::fmt::Display for FarProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// System and processor of a far end without longhaul, as uname(1) names them there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FarPlatform {
    pub(super) system: String,
    pub(super) machine: String,
}

impl FarPlatform {
    /// Reads the line of a search without success; `None`: it is another one. A host may print the beginning of a line before it.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let line = str::from_utf8(line.get(line.len().saturating_sub(MAX_LINE)..)?).ok()?;
        let (_, words) = line.trim_end_matches('\r').rsplit_once(ABSENT)?;
        let (system, machine) = words.split_once(' ')?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let is_word = |word: &str| (1..=32).contains(&word.len()) && word.chars().all(is_plain);
        (is_word(system) && is_word(machine)).then(|| Self {
            system: system.to_owned(),
            machine: machine.to_owned(),
        })
    }

    /// The beginning of the names of directories with this version of longhaul for this platform.
    pub(super) fn directory_prefix(&self) -> String {
        format!("{VERSION}-{}-{}-", self.system, self.machine)
    }
}

impl std::fmt::Display for FarPlatform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.system, self.machine)
    }
}

/// The command that runs `longhaul ARGUMENTS` for any login shell: the program that the user names, or else the one on the PATH, in the usual
/// places, or where [`super::install`] has put it.
pub(super) fn command(program: Option<&FarProgram>, arguments: &str) -> String {
    if let Some(program) = program {
        return format!("sh -c 'exec \"{}\" {arguments}'", program.word());
    }
    // A file system without execution (noexec) has no executable files for test(1). A crash of the host may leave an empty file.
    format!(
        "sh -c 'PATH=\"$PATH:$HOME/.local/bin:$HOME/.cargo/bin:/usr/local/bin\"; export PATH; \
         command -v longhaul >/dev/null 2>&1 && exec longhaul {arguments}; \
         s=$(uname -s); m=$(uname -m); \
         for f in \"${{XDG_CACHE_HOME:-$HOME/.cache}}/longhaul/{VERSION}-$s-$m-\"*/longhaul; do \
         test -f \"$f\" && test -s \"$f\" && test -x \"$f\" && exec \"$f\" {arguments}; done; \
         echo; echo \"{ABSENT}$s $m\"; exit 127'"
    )
}

/// The command by which any login shell runs a script of this many bytes, the first of its input. The rest is the script's.
pub(super) fn loader(bytes: usize) -> String {
    // By single bytes, as `read` and sh itself do, or what follows would be lost.
    format!("sh -c 'eval \"$(dd bs=1 count={bytes} 2>/dev/null)\"'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_shell_passes_the_commands_on_as_they_are() {
        let program = FarProgram::parse("~/opt/long haul/bin/longhaul").unwrap();
        for text in [
            command(None, SERVE),
            command(Some(&program), VERSION_FLAG),
            loader(1200),
        ] {
            let quoted = text.strip_prefix("sh -c '").unwrap();
            let quoted = quoted.strip_suffix('\'').unwrap();
            assert!(!quoted.contains(['\'', '!', '\\', '\n']), "{text}");
            assert!(text.len() < 1000, "{}", text.len());
        }
        assert_eq!(
            command(Some(&program), SERVE),
            "sh -c 'exec \"$HOME/opt/long haul/bin/longhaul\" serve --stdio'"
        );
        for special in [
            "", "-x", "a'b", "a\"b", "$HOME/x", "`x`", "a!b", "a\\b", "a\nb",
        ] {
            assert!(FarProgram::parse(special).is_err(), "{special}");
        }
    }

    #[test]
    fn a_host_without_longhaul_says_its_platform() {
        let platform = FarPlatform::parse(b"$ longhaul absent 1 Linux x86_64\r").unwrap();
        assert_eq!(platform.to_string(), "Linux x86_64");
        for other in [
            &b"longhaul absent 1 Linux"[..],
            b"longhaul absent 1 Linux x/86",
            b"longhaul absent 1  x86_64",
            b"longhaul absent 2 Linux x86_64",
            b"longhaul session 1 - -",
            b"longhaul absent 1 Linux \xff",
        ] {
            assert_eq!(FarPlatform::parse(other), None);
        }
    }
}
