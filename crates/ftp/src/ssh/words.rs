//! Why ssh has ended. It tells by words alone, beside two exit codes: its own is 255, and a shell's is 127 for a program that it
//! does not find (ssh(1), sh(1)).

use std::io;
use std::process::{Command, ExitStatus};

use proto::printable::printable;

use super::far_end::{FarProgram, VERSION};
use super::{SshRun, SshTarget};
use crate::{Failure, FailureKind};

/// Exit code of ssh's own failures.
const OWN_FAILURE: i32 = 255;
/// Exit codes of a shell that cannot start a program.
pub(super) const NO_PROGRAM: [i32; 2] = [126, 127];

/// Exit codes of a shell from which on its program was killed by a signal (sh(1)).
const SIGNALS: i32 = 128;
/// The beginning of messages of longhaul itself.
const OWN_WORDS: &str = "longhaul: ";

/// Lines, from the last, in which ssh says why it ends. Those before are a banner's, or the far end's.
const LAST_LINES: usize = 5;

/// Words of ssh (OpenSSH 9.2: sshconnect.c, sshconnect2.c, mux.c), in lower case, and the kind of failure that they tell.
const WORDS: &[(&str, FailureKind)] = &[
    ("session open refused by peer", FailureKind::SessionLimit),
    ("session request failed", FailureKind::SessionLimit),
    // Of the login that there is: the server has nothing of that kind (clientloop.c).
    ("subsystem request failed", FailureKind::NoProgram),
    ("exec request failed", FailureKind::NoCommands),
    ("permission denied", FailureKind::Refused),
    ("host key verification failed", FailureKind::Refused),
    // A name that cannot be resolved is final: trying again rarely helps.
    ("could not resolve hostname", FailureKind::Unreachable),
    // One that was never reached does not run.
    ("connection refused", FailureKind::Unreachable),
    ("too many authentication failures", FailureKind::Refused),
    ("no matching host key type", FailureKind::Refused),
];

/// The failure of a program that has not started.
pub(super) fn not_started(command: &Command, error: &io::Error) -> Failure {
    let program = command.get_program().to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::local(format!("there is no program {program} here"))
            .advise("install OpenSSH's client, or name another program with --ssh"),
        _ => Failure::local(format!("cannot start {program}: {error}")),
    }
}

/// The failure of a session that has not begun.
pub(super) fn failure(
    target: &SshTarget,
    run: &SshRun,
    status: Option<ExitStatus>,
    said: &[u8],
) -> Failure {
    let last = last_line(said);
    let Some(status) = status else {
        return Failure::protocol(format!(
            "{target} has begun no session: its login prints something else"
        ))
        .advise("at most 64 KB may come before a session");
    };
    let code = status.code();
    match code {
        Some(code) if NO_PROGRAM.contains(&code) => {
            return no_program(target, run, &last);
        }
        Some(OWN_FAILURE) => {}
        // Not the account, but what happens there now.
        Some(code) if last.starts_with(OWN_WORDS) => {
            return Failure::protocol(format!(
                "{target} has begun no session: code {code}: {last}"
            ));
        }
        None | Some(SIGNALS..) => {
            return Failure::transient(
                FailureKind::Unreachable,
                format!("{target} has begun no session: something was killed: {last}"),
            );
        }
        _ => {
            let reason = format!(
                "{target} has begun no session: the login ended with {}{}",
                code.map_or_else(String::new, |code| format!("code {code}")),
                match last.as_str() {
                    "" => String::new(),
                    last => format!(": {last}"),
                }
            );
            return no_commands(reason);
        }
    }
    let lines: Vec<String> = lines_from_the_last(said)
        .take(LAST_LINES)
        .map(|line| String::from_utf8_lossy(line).to_ascii_lowercase())
        .collect();
    let is_said = |text: &str| lines.iter().any(|line| line.contains(text));
    let known = WORDS.iter().find(|(text, _)| is_said(text));
    match known.map(|(_, kind)| *kind) {
        Some(FailureKind::SessionLimit) => Failure::transient(
            FailureKind::SessionLimit,
            format!("the ssh login at {target} carries no further session: {last}"),
        ),
        Some(FailureKind::NoProgram) => no_program(target, run, &last),
        Some(FailureKind::NoCommands) => {
            no_commands(format!("{target} has begun no session: {last}"))
        }
        Some(FailureKind::Refused) => {
            Failure::refused(format!("ssh cannot log in at {target}: {last}"))
        }
        Some(kind) => Failure::new(kind, format!("ssh cannot reach {target}: {last}")),
        // It tells why it cannot log in, and not why a shared login refuses a channel.
        None if last.is_empty() => match run {
            // So it does if the subsystem's program was killed.
            SshRun::Subsystem(_) => {
                no_program(target, run, "the login ended without a word").retried(true)
            }
            // proftpd ends the login with any command.
            SshRun::Command(_) => Failure::transient(
                FailureKind::NoCommands,
                format!("{target} has begun no session: the login ended without a word"),
            ),
        },
        None => Failure::unreachable(format!("ssh cannot reach {target}: {last}")),
    }
}

/// The failure of a far end that does not run the program of `--ssh-program`.
pub(super) fn not_run(target: &SshTarget, program: &FarProgram, said: &[u8]) -> Failure {
    let last = last_line(said);
    Failure::new(
        FailureKind::NoProgram,
        format!("{target} cannot run {program}: {last}"),
    )
    .advise("look at --ssh-program (ssh-program in the configuration)")
}

/// The failure of a far end whose longhaul does not know sessions by ssh.
pub(super) fn too_old(target: &SshTarget, version: &str) -> Failure {
    Failure::protocol(format!(
        "longhaul {version} at {target} is too old for ssh: URLs; here is longhaul {VERSION}"
    ))
    .advise("update it there, or name another one with --ssh-program")
}

/// The failure of a far end that begins sessions of another version.
pub(super) fn other_version(target: &SshTarget, version: u32) -> Failure {
    Failure::protocol(format!(
        "longhaul at {target} begins sessions of version {version}, which longhaul {VERSION} here does not know"
    ))
    .advise("update longhaul here")
}

/// The failure of a far end that does not find what was put there.
pub(super) fn not_found_again(target: &SshTarget) -> Failure {
    Failure::new(
        FailureKind::NoProgram,
        format!("{target} does not find the longhaul that was put into its cache directory"),
    )
    .advise("its logins may have different home directories: install longhaul there")
}

fn no_program(target: &SshTarget, run: &SshRun, last: &str) -> Failure {
    let absent = |reason: String| Failure::new(FailureKind::NoProgram, reason);
    match run {
        SshRun::Command(_) => absent(format!("{target} cannot run longhaul: {last}")).advise(
            "the login needs a shell, with sh on its PATH, and longhaul must be for that machine",
        ),
        SshRun::Subsystem(name) => {
            absent(format!("there is no subsystem {name} at {target}: {last}"))
        }
    }
}

fn no_commands(reason: String) -> Failure {
    Failure::new(FailureKind::NoCommands, reason).advise(
        "a login that may run no commands (internal-sftp, ForceCommand) cannot serve longhaul",
    )
}

/// The last line of what was said, for people.
pub(super) fn last_line(said: &[u8]) -> String {
    let line = lines_from_the_last(said).next();
    printable(line.unwrap_or_default()).to_string()
}

fn lines_from_the_last(said: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = said.rsplit(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_subsystem_that_ends_without_a_word_may_have_been_killed() {
        let target = SshTarget {
            host: "h".to_owned(),
            port: None,
            user: None,
        };
        let ended = |said: &str| {
            let status = Some(ExitStatus::from_raw(255 << 8));
            failure(&target, &SshRun::Subsystem("sftp"), status, said.as_bytes())
        };
        assert!(ended("").may_retry());
        let absent = ended("subsystem request failed on channel 0\n");
        assert_eq!(absent.kind(), FailureKind::NoProgram);
        assert!(!absent.may_retry());
    }

    #[test]
    fn the_reason_decides_about_the_exit_code() {
        for (code, said, kind) in [
            (
                255,
                "joe@h: Permission denied (publickey).\r\n",
                FailureKind::Refused,
            ),
            (
                255,
                "@@@\nHost key verification failed.\n",
                FailureKind::Refused,
            ),
            (
                255,
                "ssh: connect to host h port 22: Connection refused\n",
                FailureKind::Unreachable,
            ),
            (
                255,
                "mux_client_request_session: session request failed: Session open refused by peer\n",
                FailureKind::SessionLimit,
            ),
            (
                127,
                "rbash: sh: command not found\n",
                FailureKind::NoProgram,
            ),
            (
                1,
                "This service allows sftp connections only.\n",
                FailureKind::NoCommands,
            ),
            (255, "", FailureKind::NoCommands),
            (
                255,
                "exec request failed on channel 0\n",
                FailureKind::NoCommands,
            ),
        ] {
            let target = SshTarget {
                host: "h".to_owned(),
                port: Some(2200),
                user: None,
            };
            let failure = failure(
                &target,
                &SshRun::Command(String::new()),
                Some(ExitStatus::from_raw(code << 8)),
                said.as_bytes(),
            );
            assert_eq!(failure.kind(), kind, "{said}");
            assert!(failure.to_string().contains("h:2200"), "{failure}");
        }
    }
}
