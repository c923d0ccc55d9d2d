//! Pipelining: several commands are sent before the first is answered, and some are sent before
//! their answers are needed.
//!
//! Only for servers that are known to accept commands before the last one is answered
//! ([`proto::client::supports_pipelining`]). Replies are taken from the socket one read at a time,
//! so that memory stays bounded however many commands are outstanding.

use std::time::Instant;

use proto::client::may_pipeline;
use proto::command::{Command, Secret};

use super::ClientControlConnection;
use crate::Failure;

impl ClientControlConnection {
    /// Sends commands in one write. The caller reads their final replies in this order.
    pub(crate) async fn send_pipelined(&mut self, commands: &[Command]) -> Result<(), Failure> {
        self.send_pipelined_with_prefetch(commands, &[]).await
    }

    /// Like [`ClientControlConnection::send_pipelined`], followed by commands whose replies are not
    /// needed yet. Such a reply is read when the same command is sent later, if nothing else was
    /// sent before. A prefetched command must change nothing on the server, since its reply may be
    /// discarded unread.
    pub(crate) async fn send_pipelined_with_prefetch(
        &mut self,
        commands: &[Command],
        prefetch: &[Command],
    ) -> Result<(), Failure> {
        if !may_pipeline(commands.iter().chain(prefetch)) {
            return Err(self.unusable_failure(
                "a command cannot be sent in the middle of a security exchange",
            ));
        }
        self.check_ready_to_send()?;
        // Prefetched replies are of no use after another command is sent: the state may have
        // changed.
        self.discard_prefetched_replies(self.prefetched_commands.len())
            .await?;
        self.discard_surplus_replies().await?;
        let mut lines = Vec::new();
        for command in commands.iter().chain(prefetch) {
            self.note_command(command);
            lines.push(self.encode_line(command.encode())?);
        }
        // One of them may hold a password, so the buffer must not move while it grows.
        let length = lines.iter().map(|line| line.0.len()).sum();
        let mut text = Secret(Vec::with_capacity(length));
        for line in &lines {
            text.0.extend_from_slice(&line.0);
        }
        // Only the commands' replies are outstanding for the caller; prefetched ones are counted
        // when they are needed.
        self.outstanding_replies = commands.len();
        self.prefetched_commands
            .extend(prefetch.iter().map(Command::encode));
        self.surplus.on_sent(commands.last().map(Command::verb));
        self.write(&text.0).await?;
        self.sent_at = Some(Instant::now());
        Ok(())
    }

    /// Sends a command behind all that are sent. Its reply is read when the same command is sent later. It may change something
    /// only if the caller does that next, whatever happens.
    pub(crate) async fn prefetch(&mut self, command: &Command) -> Result<(), Failure> {
        self.note_command(command);
        let line = self.encode_line(command.encode())?;
        self.prefetched_commands.push_back(command.encode());
        self.write(&line.0).await
    }

    /// Sends commands behind those whose replies are outstanding. Final replies are read in the order of all of them.
    pub(crate) async fn send_behind(&mut self, commands: &[Command]) -> Result<(), Failure> {
        if self.outstanding_replies == 0 || self.unusable || !may_pipeline(commands) {
            return self.send_pipelined(commands).await;
        }
        let mut text = Vec::new();
        for command in commands {
            self.note_command(command);
            text.extend_from_slice(&self.encode_line(command.encode())?.0);
        }
        self.outstanding_replies += commands.len();
        self.write(&text).await
    }

    /// Whether `line` was sent ahead, so that its reply is the next one. Discards the replies of
    /// the commands sent ahead before it, or of all if `line` is not among them.
    pub(super) async fn take_prefetched(&mut self, line: &[u8]) -> Result<bool, Failure> {
        let found = self
            .prefetched_commands
            .iter()
            .position(|prefetched| prefetched == line);
        self.discard_prefetched_replies(found.unwrap_or(self.prefetched_commands.len()))
            .await?;
        Ok(self.prefetched_commands.pop_front().is_some())
    }

    /// Reads and discards the replies to the first `count` commands sent ahead.
    async fn discard_prefetched_replies(&mut self, count: usize) -> Result<(), Failure> {
        self.prefetched_commands.drain(..count);
        self.outstanding_replies += count;
        for _ in 0..count {
            self.final_reply_with_markers().await?;
        }
        Ok(())
    }
}
