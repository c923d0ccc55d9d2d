//! Passwords of URLs in the arguments of this process: every user of the machine can read those (ps(1),
//! proc_pid_cmdline(5)), so they are overwritten where the kernel shows them, before anything else is done.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

/// Number of the field of `/proc/PID/stat` with the address of the first argument, behind the name of the program, which is
/// the second one (proc_pid_stat(5)).
const ARGUMENTS_BEGIN: usize = 48 - 3;

/// Overwrites the passwords in the arguments of this process, of which `arguments` is a copy.
///
/// # Errors
/// The system does not permit it: the passwords stay visible.
pub(crate) fn hide_passwords(arguments: &[OsString]) -> io::Result<()> {
    let mut hidden = Vec::new();
    let mut text = Vec::new();
    let mut is_proxy = false;
    for argument in arguments {
        let argument = argument.as_bytes();
        if let Some(found) = password_in(argument, is_proxy) {
            hidden.push(text.len() + found.start..text.len() + found.end);
        }
        is_proxy = argument == b"--proxy";
        text.extend_from_slice(argument);
        text.push(0);
    }
    if hidden.is_empty() {
        return Ok(());
    }
    let begin = arguments_begin(&std::fs::read_to_string("/proc/self/stat")?)
        .ok_or_else(|| io::Error::other("the kernel does not say where the arguments are"))?;
    let memory = File::options()
        .read(true)
        .write(true)
        .open("/proc/self/mem")?;
    let mut found = vec![0; text.len()];
    memory.read_exact_at(&mut found, begin)?;
    if found != text {
        return Err(io::Error::other(
            "the arguments are not where the kernel says",
        ));
    }
    for range in hidden {
        let place = begin + range.start as u64;
        memory.write_all_at(&b"*".repeat(range.len()), place)?;
    }
    Ok(())
}

fn arguments_begin(stat: &str) -> Option<u64> {
    // The name of the program may have blanks and parentheses.
    let (_, fields) = stat.rsplit_once(") ")?;
    let begin = fields.split(' ').nth(ARGUMENTS_BEGIN)?.parse().ok()?;
    (begin != 0).then_some(begin)
}

/// Where the password of a URL is: `scheme://user:PASSWORD@host`; that of a proxy may lack the scheme.
fn password_in(argument: &[u8], is_proxy: bool) -> Option<Range<usize>> {
    let scheme = argument.windows(3).position(|part| part == b"://");
    let begin = match scheme {
        Some(at) => at + 3,
        None if is_proxy => 0,
        None => argument
            .strip_prefix(b"--proxy=")
            .map(|_| b"--proxy=".len())?,
    };
    let rest = &argument[begin..];
    let authority = rest.split(|byte| *byte == b'/').next().unwrap_or_default();
    let login = &authority[..authority.iter().rposition(|byte| *byte == b'@')?];
    let colon = login.iter().position(|byte| *byte == b':')?;
    let password = begin + colon + 1..begin + login.len();
    (!password.is_empty()).then_some(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_of_a_url_is_between_the_colon_and_the_last_at_sign() {
        let shown = |argument: &str, is_proxy| {
            let found = password_in(argument.as_bytes(), is_proxy)?;
            Some(argument[found].to_owned())
        };
        let found = |argument, is_proxy| shown(argument, is_proxy).unwrap();
        assert_eq!(found("ftp://joe:p@ss:w@h:21/a:b@c", false), "p@ss:w");
        assert_eq!(found("--proxy=socks5://u:pw@h:1080", false), "pw");
        assert_eq!(found("--proxy=u:pw@h:1080", false), "pw");
        assert_eq!(found("u:pw@h:1080", true), "pw");
        for argument in [
            "ftp://joe@h/a:b@c",
            "ftp://h/x",
            "a:b@c",
            "ftp://joe:@h/",
            "",
        ] {
            assert_eq!(shown(argument, false), None, "{argument}");
        }
    }

    #[test]
    fn the_name_of_the_program_may_have_parentheses() {
        let fields: Vec<String> = (3..=52).map(|number| number.to_string()).collect();
        let stat = format!("1 (a) (b) {}\n", fields.join(" "));
        assert_eq!(arguments_begin(&stat), Some(48));
        assert_eq!(arguments_begin("1 (a) S 1"), None);
    }
}
