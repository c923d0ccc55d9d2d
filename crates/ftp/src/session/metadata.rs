//! Times and permissions of many files: MFMT and SITE CHMOD.

use proto::command::{Command, SiteCommand};
use proto::reply::Reply;

use super::{ClientSession, MAX_PIPELINED, replies};
use crate::Failure;
use crate::answers::{KeptMetadata, MetadataChange};
use crate::failure::Operation;

/// A command for one of the changes.
struct ChangeCommand {
    /// Position of the change.
    change: usize,
    command: Command,
}

impl ClientSession {
    /// Sets times and permissions, in pipelines where the server supports it. Returns for each change whether all of it
    /// was made. Other servers are not asked again for what they do not know.
    ///
    /// # Errors
    /// The session is lost.
    pub async fn set_metadata(
        &mut self,
        changes: &[MetadataChange<'_>],
    ) -> Result<Vec<bool>, Failure> {
        let mut made = vec![true; changes.len()];
        if !self.supports_pipelining() {
            self.set_one_by_one(changes, &mut made).await?;
            return Ok(made);
        }
        let mut commands = Vec::new();
        for (change, wanted) in changes.iter().enumerate() {
            made[change] = self.check_path(wanted.path).is_ok();
            let of_change = self.change_commands(wanted.path, wanted.kept);
            let of_change = of_change.filter(|_| made[change]);
            commands.extend(of_change.map(|command| ChangeCommand { change, command }));
        }
        for commands in commands.chunks(MAX_PIPELINED) {
            let sent: Vec<_> = commands.iter().map(|c| c.command.clone()).collect();
            self.control.send_pipelined(&sent).await?;
            for command in commands {
                let reply = self.control.final_reply().await?;
                made[command.change] &= self.is_change_made(&reply)?;
            }
        }
        Ok(made)
    }

    async fn set_one_by_one(
        &mut self,
        changes: &[MetadataChange<'_>],
        made: &mut [bool],
    ) -> Result<(), Failure> {
        let mut refuses_times = false;
        let mut refuses_modes = false;
        for (wanted, made) in changes.iter().zip(made) {
            if self.check_path(wanted.path).is_err() {
                *made = false;
                continue;
            }
            let path = self.spell(wanted.path).await?;
            let commands: Vec<Command> = self.change_commands(&path, wanted.kept).collect();
            for command in commands {
                let refuses = match &command {
                    Command::Site(SiteCommand::Chmod(..)) => &mut refuses_modes,
                    _ => &mut refuses_times,
                };
                if *refuses {
                    *made = false;
                    continue;
                }
                let reply = self.control.call(&command).await?;
                *refuses = replies::is_unsupported(&reply);
                *made &= self.is_change_made(&reply)?;
            }
        }
        Ok(())
    }

    /// The commands for one change.
    fn change_commands(
        &self,
        path: &[u8],
        kept: KeptMetadata,
    ) -> impl Iterator<Item = Command> + use<> {
        let has_mfmt = self.features().mfmt;
        let time = kept.modified.map(|time| match has_mfmt {
            true => Command::Mfmt(time, path.to_vec()),
            false => Command::Site(SiteCommand::Utime(time, path.to_vec())),
        });
        let mode = kept
            .mode
            .map(|mode| Command::Site(SiteCommand::Chmod(mode, path.to_vec())));
        time.into_iter().chain(mode)
    }

    fn is_change_made(&self, reply: &Reply) -> Result<bool, Failure> {
        if reply.code == 421 {
            let operation = &Operation::from("set times and permissions");
            return Err(replies::refusal_failure(self.name(), operation, reply));
        }
        Ok(reply.is_success() && !replies::is_unsupported(reply))
    }
}
