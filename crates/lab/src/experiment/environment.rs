//! TestMachine that results were made in: kernel, processors, versions.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use super::results::TestMachine;
use super::template::{self, Variables, Word};

/// The machine; programs' versions and hosts' settings are added as they become known.
pub(crate) fn machine() -> TestMachine {
    let name = rustix::system::uname();
    TestMachine {
        kernel: name.release().to_string_lossy().into_owned(),
        cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        versions: BTreeMap::new(),
        sysctls: BTreeMap::new(),
    }
}

/// The first line that a version command prints.
pub(crate) fn version(words: &[Word], variables: &Variables) -> Option<String> {
    let argv = template::command(words, variables).ok()?;
    let (program, arguments) = argv.split_first()?;
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .env("LC_ALL", "C")
        .output()
        .ok()?;
    let first = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let line = text.lines().find(|line| !line.trim().is_empty())?;
        Some(line.trim().to_owned())
    };
    first(&output.stdout).or_else(|| first(&output.stderr))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_a_kernel_and_a_processor() {
        let machine = machine();
        assert!(!machine.kernel.is_empty() && machine.cpus > 0);
    }

    #[test]
    fn versions_are_one_line_from_either_stream() {
        let sh = |script: &str| {
            let words = ["sh", "-c", script].map(|w| Word::One(w.to_owned()));
            version(&words, &Variables::new())
        };
        assert_eq!(
            sh("echo; echo ' curl 7 '; echo more"),
            Some("curl 7".into())
        );
        assert_eq!(sh("echo vsftpd 3 >&2"), Some("vsftpd 3".into()));
        assert_eq!(sh("true"), None);
        assert_eq!(version(&[], &Variables::new()), None);
    }
}
