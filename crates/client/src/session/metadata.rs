//! Times and permissions of many files: MFMT and SITE CHMOD.

use proto::command::{Command, SiteCommand};
use proto::reply::Reply;

use super::{ClientSession, MAX_PIPELINED, replies};
use crate::CopyFailure;
use crate::answers::MetadataChange;

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
    pub(crate) async fn set_metadata(
        &mut self,
        changes: &[MetadataChange<'_>],
    ) -> Result<Vec<bool>, CopyFailure> {
        let mut made = vec![true; changes.len()];
        let commands = self.change_commands(changes, &mut made);
        if self.supports_pipelining() {
            for commands in commands.chunks(MAX_PIPELINED) {
                let sent: Vec<_> = commands.iter().map(|c| c.command.clone()).collect();
                self.control.send_pipelined(&sent).await?;
                for command in commands {
                    let reply = self.control.final_reply().await?;
                    made[command.change] &= self.is_change_made(&reply)?;
                }
            }
            return Ok(made);
        }
        let mut refuses_times = false;
        let mut refuses_modes = false;
        for ChangeCommand { change, command } in commands {
            let refuses = match &command {
                Command::Site(SiteCommand::Chmod(..)) => &mut refuses_modes,
                _ => &mut refuses_times,
            };
            if *refuses {
                made[change] = false;
                continue;
            }
            let reply = self.control.call(&command).await?;
            *refuses = replies::is_unsupported(&reply);
            made[change] &= self.is_change_made(&reply)?;
        }
        Ok(made)
    }

    /// The commands; changes that cannot be expressed are not made.
    fn change_commands(
        &self,
        changes: &[MetadataChange<'_>],
        made: &mut [bool],
    ) -> Vec<ChangeCommand> {
        let has_mfmt = self.features().mfmt;
        let mut commands = Vec::new();
        for (change, wanted) in changes.iter().enumerate() {
            if self.check_path(wanted.path).is_err() {
                made[change] = false;
                continue;
            }
            let time = wanted.kept.modified.map(|time| match has_mfmt {
                true => Command::Mfmt(time, wanted.path.to_vec()),
                false => Command::Site(SiteCommand::Utime(time, wanted.path.to_vec())),
            });
            let mode = wanted.kept.mode;
            let mode =
                mode.map(|mode| Command::Site(SiteCommand::Chmod(mode, wanted.path.to_vec())));
            let both = time.into_iter().chain(mode);
            commands.extend(both.map(|command| ChangeCommand { change, command }));
        }
        commands
    }

    fn is_change_made(&self, reply: &Reply) -> Result<bool, CopyFailure> {
        if reply.code == 421 {
            let operation = "set times and permissions";
            return Err(replies::refusal_failure(self.name(), operation, reply));
        }
        Ok(reply.is_success() && !replies::is_unsupported(reply))
    }
}
