//! The place of flags among the arguments of a program.

use std::ffi::OsString;

use enable::emit::Program;

/// The arguments with the flags before them, so that the user's own flags, which come later, win.
///
/// # Errors
/// One line: the program has no place for them.
pub(crate) fn insert(
    program: Program,
    flags: Vec<String>,
    arguments: &[OsString],
) -> Result<Vec<OsString>, String> {
    if program == Program::Lftp
        && let [_, settings] = flags.as_slice()
    {
        return insert_lftp_settings(settings, arguments);
    }
    let flags = flags.into_iter().map(OsString::from);
    Ok(flags.chain(arguments.iter().cloned()).collect())
}

/// lftp obeys one `-e` or `-c` only, so the settings come before the commands of the one that is there.
fn insert_lftp_settings(settings: &str, arguments: &[OsString]) -> Result<Vec<OsString>, String> {
    if arguments.iter().any(|word| word == "-f") {
        return Err("lftp -f takes its settings from the script alone".to_owned());
    }
    let mut advised = arguments.to_vec();
    let commands = arguments
        .iter()
        .position(|word| word == "-e" || word == "-c");
    let value = commands.and_then(|flag| advised.get_mut(flag + 1));
    match value {
        Some(commands) => {
            let mut joined = OsString::from(settings);
            joined.push(" ");
            joined.push(&*commands);
            *commands = joined;
        }
        None => {
            advised.splice(0..0, [OsString::from("-e"), OsString::from(settings)]);
        }
    }
    Ok(advised)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inserted(
        program: Program,
        flags: &[&str],
        arguments: &[&str],
    ) -> Result<Vec<String>, String> {
        let flags = flags.iter().map(ToString::to_string).collect();
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let words = insert(program, flags, &arguments)?;
        Ok(words
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect())
    }

    #[test]
    fn flags_come_before_the_arguments() {
        let words = inserted(Program::Ncftpget, &["-B", "9"], &["-B", "1", "h"]);
        assert_eq!(words.unwrap(), ["-B", "9", "-B", "1", "h"]);
        let none = inserted(Program::Lftp, &[], &["h"]);
        assert_eq!(none.unwrap(), ["h"]);
    }

    #[test]
    fn settings_of_lftp_join_the_commands() {
        let lftp = |arguments: &[&str]| inserted(Program::Lftp, &["-e", "set a;"], arguments);
        assert_eq!(lftp(&["h"]).unwrap(), ["-e", "set a;", "h"]);
        assert_eq!(
            lftp(&["-c", "get f", "h"]).unwrap(),
            ["-c", "set a; get f", "h"]
        );
        assert_eq!(lftp(&["h", "-e", "ls"]).unwrap(), ["h", "-e", "set a; ls"]);
        assert!(lftp(&["-f", "script"]).unwrap_err().contains("-f"));
    }
}
