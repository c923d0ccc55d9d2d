//! `longhaul serve --sshftp-script`: the script that clients of sshftp: URLs start at the far end.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result};
use copy::Exit;

/// The flag that asks for the script, and the one with which the script serves.
const FLAGS: (&str, &str) = ("--sshftp-script", "--sshftp");

const HEADER: &str = "\
#!/bin/sh
# Serves sshftp: URLs with longhaul. The file is ~/.globus/sshftp, or /etc/grid-security/sshftp for all users, and is
# executable. globus-url-copy starts it through ssh, which protects the commands. The data goes beside ssh, in the clear
# and without authentication, because clients of sshftp: know nothing else. Only the client's own address may open data
# connections. To receive from another server (third party), or from a client behind a jump host, add
# --foreign-data-addresses: then whoever reaches the port first may send or receive the data.
";

/// Prints the script, which serves with the other flags of this command.
///
/// # Errors
/// This program's path is unknown, or nobody reads.
pub(crate) fn print() -> Result<Exit> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let script = script(program.as_os_str(), std::env::args_os().skip(1));
    io::stdout().lock().write_all(&script)?;
    Ok(Exit::Done)
}

fn script(program: &OsStr, arguments: impl Iterator<Item = OsString>) -> Vec<u8> {
    let mut script = [HEADER.as_bytes(), b"exec ", &quoted(program)].concat();
    for argument in arguments {
        let argument = match argument == FLAGS.0 {
            true => OsString::from(FLAGS.1),
            false => argument,
        };
        script.push(b' ');
        script.extend(quoted(&argument));
    }
    script.push(b'\n');
    script
}

/// A word of a POSIX shell.
fn quoted(word: &OsStr) -> Vec<u8> {
    let bytes = word.as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-:=,".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(is_plain) {
        return bytes.to_vec();
    }
    let parts: Vec<&[u8]> = bytes.split(|byte| *byte == b'\'').collect();
    [b"'", parts.join(&b"'\\''"[..]).as_slice(), b"'"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_serves_with_the_flags_that_it_was_made_with() {
        let arguments = [
            "serve",
            "--sshftp-script",
            "--data-ports",
            "5-9",
            "--root",
            "/a b'c",
        ];
        let script = script(
            OsStr::new("/bin/longhaul"),
            arguments.map(OsString::from).into_iter(),
        );
        let script = String::from_utf8(script).unwrap();
        let last = script.lines().last().unwrap();
        assert_eq!(
            last,
            "exec /bin/longhaul serve --sshftp --data-ports 5-9 --root '/a b'\\''c'"
        );
        assert!(script.starts_with("#!/bin/sh\n") && script.contains("without authentication"));
    }
}
