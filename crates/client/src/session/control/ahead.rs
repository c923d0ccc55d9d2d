//! Several commands at once: lines that go out together, and questions that are asked ahead.
//!
//! Only for servers that are known to take commands before the last one is answered
//! ([`proto::client::takes_commands_ahead`]). Replies are taken one at a time, so that however many
//! commands are out, one read's worth of replies is the most that is kept here.

use proto::client::is_one_flight;
use proto::command::Command;

use super::ControlChannel;
use crate::Failure;

impl ControlChannel {
    /// Sends commands in one piece. Their final replies are to be read in this order.
    pub(crate) async fn send_all(&mut self, commands: &[Command]) -> Result<(), Failure> {
        self.send_with(commands, &[]).await
    }

    /// As [`ControlChannel::send_all`], and behind them `questions`, which nobody waits for yet: the
    /// answer to one is read by whoever sends the same command later, as long as nothing else is sent
    /// before. A question must change nothing that an answer thrown away would leave unnoticed.
    pub(crate) async fn send_with(
        &mut self,
        commands: &[Command],
        questions: &[Command],
    ) -> Result<(), Failure> {
        if !is_one_flight(commands.iter().chain(questions)) {
            return Err(self.gone("a command was to go out amidst a security exchange"));
        }
        self.ready_to_send()?;
        self.pass_over(self.ahead.len()).await?;
        self.drop_unasked()?;
        let mut text = Vec::new();
        for command in commands.iter().chain(questions) {
            tracing::debug!(server = %self.name, ?command, "command");
            text.extend_from_slice(&command.encode());
            text.extend_from_slice(b"\r\n");
        }
        self.awaiting = commands.len();
        self.ahead.extend(questions.iter().map(Command::encode));
        self.write(&text).await
    }

    /// Whether `line` was asked ahead, so that its reply is the next to be read. What was asked before
    /// it, or all if it was not, is of no use any more.
    pub(super) async fn was_asked(&mut self, line: &[u8]) -> Result<bool, Failure> {
        let found = self.ahead.iter().position(|asked| asked == line);
        self.pass_over(found.unwrap_or(self.ahead.len())).await?;
        Ok(self.ahead.pop_front().is_some())
    }

    /// Reads and drops the answers to the first `count` questions asked ahead.
    async fn pass_over(&mut self, count: usize) -> Result<(), Failure> {
        self.ahead.drain(..count);
        self.awaiting += count;
        for _ in 0..count {
            self.final_reply_of_long_work().await?;
        }
        Ok(())
    }
}
