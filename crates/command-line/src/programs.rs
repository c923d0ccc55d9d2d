//! How a program of longhaul begins, and how it finds and starts the others.

use std::convert::Infallible;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use data::os::signals;
use rustix::process::Signal;

use crate::argument_memory;
use crate::output::print_to_stderr;

/// Prepares this process, before anything else: passwords among its arguments are hidden from other users of the machine,
/// and SIGUSR1 and SIGUSR2 do not end it. They ask `cp` and `sync` for something, and scripts that send them must not have to
/// know which verb runs.
pub fn prepare_process(arguments: &[OsString]) {
    for signal in [Signal::USR1, Signal::USR2] {
        if let Err(error) = signals::survive(signal.as_raw()) {
            print_to_stderr(&format!("longhaul: cannot handle signals: {error}"));
        }
    }
    if let Err(error) = argument_memory::hide_passwords(arguments) {
        print_to_stderr(&format!(
            "longhaul: other users of this machine can see the password in the URL ({error}): keep it in ~/.netrc"
        ));
    }
}

/// The file of another program of longhaul: in the directory of this one, or else on `PATH`. Relative directories of `PATH`
/// do not count: they would be of whatever directory this process is in.
pub fn find(name: &str) -> Option<PathBuf> {
    let own = env::current_exe().ok();
    let beside = own.as_deref().and_then(|own| own.parent());
    let on_path = env::var_os("PATH").unwrap_or_default();
    let directories = beside.map(PathBuf::from).into_iter();
    directories
        .chain(env::split_paths(&on_path))
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|file| {
            let facts = file.metadata();
            facts.is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
        })
}

/// Finds the program of a verb, `longhaul-VERB`.
///
/// # Errors
/// One line that says how to get it.
pub fn find_program_of(verb: &str) -> Result<PathBuf, String> {
    let name = format!("longhaul-{verb}");
    find(&name).ok_or_else(|| {
        format!(
            "`longhaul {verb}` needs the program {name}, which is neither beside longhaul nor on PATH: it is in longhaul's \
             packages, and `cargo build --release -p {name}` builds it"
        )
    })
}

/// Becomes the program of a verb (execve(2)), with the words behind it.
///
/// # Errors
/// One line: there is no such program, or it cannot be executed.
pub fn become_program_of<W: AsRef<OsStr>>(
    verb: &str,
    words: impl IntoIterator<Item = W>,
) -> Result<Infallible, String> {
    let program = find_program_of(verb)?;
    let error: io::Error = Command::new(&program).args(words).exec();
    Err(format!("cannot execute {}: {error}", program.display()))
}

/// The address in the line with which a server says that it is ready.
pub fn listening_address(line: &str) -> Option<SocketAddr> {
    let address = line.trim_end().strip_prefix("listening on ")?;
    address.parse().ok()
}

/// An error and its causes in one line. Causes that an outer text already contains are left out.
pub fn error_in_one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Some errors contain the text of their cause already.
        if line.contains(&cause) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&cause);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_in_the_outer_text_is_not_repeated() {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let named = anyhow::Error::new(missing()).context(format!("cannot read u: {}", missing()));
        assert_eq!(error_in_one_line(&named), "cannot read u: entity not found");
        let unnamed = anyhow::Error::new(missing()).context("cannot read u");
        assert_eq!(
            error_in_one_line(&unnamed),
            "cannot read u: entity not found"
        );
    }
}
