//! Which replies can answer which commands. Some servers answer a command twice, or late, and what they send then must not
//! be taken for the answer to the next command.

use crate::command::Command;
use crate::reply::Reply;

/// Whether a final reply can be one to this command, by its code and where that is general by its text. Servers differ in
/// codes, so only those are excluded that belong to other commands (RFC 959 §5.4, RFC 3659), or say nothing that the
/// command asks for.
pub fn can_answer(command: &Command, reply: &Reply) -> bool {
    match reply.code {
        // About data connections.
        225 | 226 | 426 => command.needs_data_connection() || *command == Command::Abor,
        // Also of servers that have no port (Pure-FTPd).
        425 => {
            command.needs_data_connection() || matches!(command, Command::Pasv | Command::Epsv(_))
        }
        227 => matches!(command, Command::Pasv | Command::Epsv(_)),
        229 => matches!(
            command,
            Command::Pasv | Command::Epsv(_) | Command::Spas(_) | Command::Dpsv
        ),
        257 => matches!(command, Command::Mkd(_) | Command::Pwd),
        200..=399 => match command {
            Command::Pasv | Command::Epsv(_) => false,
            Command::Size(_) => reply.number().is_some(),
            Command::Rnfr(_) => reply.is_intermediate(),
            _ => true,
        },
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_other_commands_are_told_by_their_codes() {
        let path = || b"/f".to_vec();
        for (command, code, text, fits) in [
            (Command::Pasv, 227, "(127,0,0,1,7,208)", true),
            (Command::Pasv, 229, "(|||2000|)", true),
            (Command::Pasv, 250, "Directory changed.", false),
            (Command::Pasv, 500, "Unknown command.", true),
            (Command::Pasv, 426, "Transfer aborted.", false),
            (Command::Pasv, 425, "Can't open a port.", true),
            (Command::Noop, 425, "Late.", false),
            (Command::Size(path()), 213, "42", true),
            (Command::Size(path()), 250, "42", true),
            (Command::Size(path()), 250, "Directory changed.", false),
            (Command::Size(path()), 226, "Done.", false),
            (Command::Cwd(path()), 200, "OK", true),
            (Command::Cwd(path()), 257, "\"/\"", false),
            (Command::Mkd(path()), 257, "\"/f\" created", true),
            (Command::Rnfr(path()), 350, "Go on.", true),
            (Command::Rnfr(path()), 250, "Done.", false),
            (Command::Retr(path()), 426, "Aborted.", true),
            (Command::Retr(path()), 250, "Completed.", true),
            (Command::Noop, 421, "Idle.", true),
        ] {
            let reply = Reply::new(code, text);
            assert_eq!(can_answer(&command, &reply), fits, "{command:?} {code}");
        }
    }
}
