//! Several commands at once: lines that go out together, and questions that are asked ahead.
//!
//! Only for servers that are known to take commands before the last one is answered
//! ([`proto::client::supports_pipelining`]). Replies are taken one at a time, so that however many
//! commands are out, one read's worth of replies is the most that is kept here.

use proto::client::may_pipeline;
use proto::command::Command;

use super::ClientControlConnection;
use crate::CopyFailure;

impl ClientControlConnection {
    /// Sends commands in one piece. Their final replies are to be read in this order.
    pub(crate) async fn send_pipelined(&mut self, commands: &[Command]) -> Result<(), CopyFailure> {
        self.send_pipelined_with_prefetch(commands, &[]).await
    }

    /// As [`ClientControlConnection::send_pipelined`], and behind them `questions`, which nobody waits for yet: the
    /// answer to one is read by whoever sends the same command later, as long as nothing else is sent
    /// before. A question must change nothing that an answer thrown away would leave unnoticed.
    pub(crate) async fn send_pipelined_with_prefetch(
        &mut self,
        commands: &[Command],
        questions: &[Command],
    ) -> Result<(), CopyFailure> {
        if !may_pipeline(commands.iter().chain(questions)) {
            return Err(self.unusable_failure("a command was to go out amidst a security exchange"));
        }
        self.check_ready_to_send()?;
        self.discard_prefetched_replies(self.prefetched_commands.len())
            .await?;
        self.discard_unsolicited_replies()?;
        let mut text = Vec::new();
        for command in commands.iter().chain(questions) {
            tracing::debug!(server = %self.name, ?command, "command");
            text.extend_from_slice(&command.encode());
            text.extend_from_slice(b"\r\n");
        }
        self.outstanding_replies = commands.len();
        self.prefetched_commands
            .extend(questions.iter().map(Command::encode));
        self.write(&text).await
    }

    /// Whether `line` was asked ahead, so that its reply is the next to be read. What was asked before
    /// it, or all if it was not, is of no use any more.
    pub(super) async fn take_prefetched(&mut self, line: &[u8]) -> Result<bool, CopyFailure> {
        let found = self
            .prefetched_commands
            .iter()
            .position(|asked| asked == line);
        self.discard_prefetched_replies(found.unwrap_or(self.prefetched_commands.len()))
            .await?;
        Ok(self.prefetched_commands.pop_front().is_some())
    }

    /// Reads and drops the answers to the first `count` questions asked ahead.
    async fn discard_prefetched_replies(&mut self, count: usize) -> Result<(), CopyFailure> {
        self.prefetched_commands.drain(..count);
        self.outstanding_replies += count;
        for _ in 0..count {
            self.final_reply_with_markers().await?;
        }
        Ok(())
    }
}
