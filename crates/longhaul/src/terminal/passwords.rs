//! Passwords that no source has: asked for on the terminal, once per server.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::sync::Arc;

use anyhow::Result;
use copy::ConnectionSecurity;
use ftp::MissingPassword;
use ftp::location::Location;
use proto::command::Secret;
use proto::printable::printable;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use zeroize::Zeroizing;

use super::until_interrupted;

/// Longest password, bytes.
const MAX_PASSWORD: u64 = 4096;

/// Asks for the passwords that these arguments lack, unless there is no terminal. Errors in an argument are left to
/// the verb, which reports them.
pub(crate) async fn ask_for_missing<'a>(
    arguments: impl IntoIterator<Item = &'a str>,
    security: &Arc<ConnectionSecurity>,
) {
    ask(missing(arguments, security), security).await;
}

/// [`ask_for_missing`] outside of a runtime; `None`: interrupted.
///
/// # Errors
/// No runtime can be made.
pub(crate) fn ask_before<'a>(
    arguments: impl IntoIterator<Item = &'a str>,
    security: &Arc<ConnectionSecurity>,
) -> Result<Option<()>> {
    match missing(arguments, security) {
        none if none.is_empty() => Ok(Some(())),
        logins => until_interrupted(ask(logins, security)),
    }
}

/// The logins without a password, each once.
fn missing<'a>(
    arguments: impl IntoIterator<Item = &'a str>,
    security: &Arc<ConnectionSecurity>,
) -> Vec<MissingPassword> {
    let mut logins: Vec<MissingPassword> = Vec::new();
    for argument in arguments {
        let login = Location::missing_password(argument, security);
        let login = login.ok().flatten();
        logins.extend(login.filter(|login| !logins.contains(login)));
    }
    logins
}

async fn ask(logins: Vec<MissingPassword>, security: &Arc<ConnectionSecurity>) {
    for login in logins {
        let Some(terminal) = HiddenInput::open() else {
            return;
        };
        if let Ok(password) = terminal.ask(&prompt(&login)).await {
            security.remotes().remember(&login, password);
        }
    }
}

fn prompt(login: &MissingPassword) -> String {
    let (user, host) = (printable(&login.user), printable(&login.host));
    format!("no password found for {user}@{host}: password: ")
}

/// The terminal while it does not show what is typed. Dropping it shows it again, also after SIGINT.
struct HiddenInput {
    terminal: File,
    before: Termios,
    /// The prompt waits for the end of its line.
    is_asking: bool,
}

impl HiddenInput {
    /// `None`: there is no terminal that shows the prompt, or this process may not read it now.
    fn open() -> Option<Self> {
        // A prompt that goes to a file would wait for ever.
        if !io::stderr().is_terminal() {
            return None;
        }
        let terminal = File::options().read(true).write(true).open("/dev/tty");
        let terminal = terminal.ok()?;
        // The system stops a process in the background that reads from its terminal.
        if tcgetpgrp(&terminal).ok()? != rustix::process::getpgrp() {
            return None;
        }
        let before = tcgetattr(&terminal).ok()?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        // The line's end is shown, so that the next output begins a line.
        hidden
            .local_modes
            .insert(LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(&terminal, OptionalActions::Flush, &hidden).ok()?;
        Some(Self {
            terminal,
            before,
            is_asking: false,
        })
    }

    /// Reads one line.
    async fn ask(mut self, prompt: &str) -> io::Result<Secret> {
        self.is_asking = true;
        self.terminal.write_all(prompt.as_bytes())?;
        let terminal = self.terminal.try_clone()?;
        // The thread stays behind if the program is interrupted.
        let line = tokio::task::spawn_blocking(move || read_line(terminal)).await;
        let line = line.map_err(io::Error::other)??;
        // Ctrl-D ends the input without ending the line.
        self.is_asking = !line.has_end;
        Ok(line.password)
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        if self.is_asking {
            // The next message begins a line.
            let _ = self.terminal.write_all(b"\n");
        }
        // There is nothing else to do for a terminal that is gone.
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}

/// A line as it was typed.
struct TypedLine {
    password: Secret,
    has_end: bool,
}

fn read_line(terminal: File) -> io::Result<TypedLine> {
    let mut line = Zeroizing::new(Vec::with_capacity(256));
    BufReader::with_capacity(1, terminal)
        .take(MAX_PASSWORD)
        .read_until(b'\n', &mut line)?;
    let has_end = line.ends_with(b"\n");
    let line = line.strip_suffix(b"\n").unwrap_or(&line);
    match line.iter().any(|byte| matches!(byte, 0 | b'\r')) {
        true => Err(io::Error::other("a password has no NUL and no CR")),
        false => Ok(TypedLine {
            password: Secret(line.to_vec()),
            has_end,
        }),
    }
}
