//! Secrets in what a server says: some servers repeat the line that they do not understand, PASS included, and their replies end
//! in messages and logs.

use std::borrow::Cow;

use proto::command::{Command, Secret};
use proto::echo::replace_part;
use proto::reply::{Reply, ReplyError};

use super::{ClientControlConnection, dialogue};

/// Stands for a secret.
const MASK: &[u8] = b"***";
/// A shorter secret may be part of any word; it is looked for as a word of its own.
const UNMISTAKABLE: usize = 8;
/// Most secrets of a session: a password, and the credential of its data connections.
const MAX_SECRETS: usize = 4;

/// The secrets that were sent to a server.
#[derive(Debug, Default)]
pub(super) struct SentSecrets {
    secrets: Vec<Secret>,
    is_logged_in: bool,
}

impl SentSecrets {
    /// Notes the secret of a command that is sent, if it has one.
    fn note(&mut self, command: &Command) {
        let secret = command.credential();
        let secret = secret.filter(|secret| !self.secrets.contains(secret));
        if self.secrets.len() < MAX_SECRETS {
            self.secrets.extend(secret);
        }
    }

    /// The reply for its reader. After the login the text of a success is content, such as a path, and stays as it is.
    fn in_reply(&self, reply: Reply) -> Reply {
        match self.is_logged_in && reply.code < 400 {
            true => reply,
            false => self.in_log(&reply).into_owned(),
        }
    }

    /// The reply for a log.
    fn in_log<'r>(&self, reply: &'r Reply) -> Cow<'r, Reply> {
        let is_clean = |line: &Vec<u8>| matches!(self.masked(line), Cow::Borrowed(_));
        if reply.lines.iter().all(is_clean) {
            return Cow::Borrowed(reply);
        }
        let lines = reply.lines.iter();
        Cow::Owned(Reply {
            code: reply.code,
            lines: lines.map(|line| self.masked(line).into_owned()).collect(),
        })
    }

    /// The text of an error, which may quote what was received.
    pub(super) fn in_error(&self, error: &ReplyError) -> String {
        let text = error.to_string();
        String::from_utf8_lossy(&self.masked(text.as_bytes())).into_owned()
    }

    fn masked<'t>(&self, text: &'t [u8]) -> Cow<'t, [u8]> {
        let mut masked = Cow::Borrowed(text);
        for secret in &self.secrets {
            let is_unmistakable = secret.0.len() >= UNMISTAKABLE;
            let joins = |byte: u8| !is_unmistakable && byte.is_ascii_alphanumeric();
            let without = replace_part(&masked, &secret.0, MASK, joins);
            if without != *masked {
                masked = Cow::Owned(without);
            }
        }
        masked
    }
}

impl ClientControlConnection {
    /// Notes that the login is over.
    pub(crate) fn end_login(&mut self) {
        self.secrets.is_logged_in = true;
    }

    /// Notes a command that is sent.
    pub(super) fn note_command(&mut self, command: &Command) {
        dialogue::log_command(&self.name, command);
        self.secrets.note(command);
    }

    /// The next reply that was received, without secrets.
    pub(super) fn take_received(&mut self) -> Option<Reply> {
        let reply = self.received_replies.pop_front()?;
        dialogue::log_reply(&self.name, &self.secrets.in_log(&reply));
        Some(self.secrets.in_reply(reply))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(password: &str) -> SentSecrets {
        let mut secrets = SentSecrets::default();
        secrets.note(&Command::Pass(password.into()));
        secrets
    }

    #[test]
    fn an_echoed_password_is_masked() {
        let long = sent("correct horse");
        let reply = long.in_reply(Reply::new(
            500,
            "'PASS correct horse': what? (correct horse!)",
        ));
        assert_eq!(reply.text(), "'PASS ***': what? (***!)");
        let short = sent("in");
        let reply = short.in_reply(Reply::new(530, "Login incorrect: joe/in"));
        assert_eq!(reply.text(), "Login incorrect: joe/***");
        let nobody = sent("");
        let reply = Reply::new(230, "welcome");
        assert_eq!(nobody.in_reply(reply.clone()), reply);
    }

    #[test]
    fn content_stays_as_it_is_and_is_masked_in_logs() {
        let mut secrets = sent("backup2024");
        secrets.is_logged_in = true;
        let path = Reply::new(257, "\"/home/backup2024\"");
        assert_eq!(secrets.in_reply(path.clone()), path);
        assert_eq!(secrets.in_log(&path).text(), "\"/home/***\"");
        let refused = secrets.in_reply(Reply::new(550, "backup2024 is wrong"));
        assert_eq!(refused.text(), "*** is wrong");
    }
}
