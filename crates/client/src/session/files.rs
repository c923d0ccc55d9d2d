//! Commands on files and directories that use no data connection.

use proto::command::{Command, SiteCommand};
use proto::reply::Reply;
use proto::timestamp::Timestamp;

use super::replies::{self, RefusalCause, refusal_cause};
use super::{ClientSession, MAX_PIPELINED, MAX_SILENCE, display_path};
use crate::answers::{RefusedRenameStep, RenameFailure};
use crate::{CopyFailure, Exit};

impl ClientSession {
    /// Makes a directory (MKD); `Ok(false)` when it exists.
    ///
    /// # Errors
    /// The server's refusal by its class; `Usage` for a path that FTP cannot express.
    pub async fn make_dir(&mut self, path: &[u8]) -> Result<bool, CopyFailure> {
        self.check_path(path)?;
        let reply = self.control.call(&Command::Mkd(path.to_vec())).await?;
        if reply.is_success() {
            return Ok(true);
        }
        // Servers differ in code and text for an existing directory (550, 553, 521; vsftpd gives no
        // reason at all), so CWD decides.
        if reply.code != 421 && self.is_directory(path).await? {
            return Ok(false);
        }
        let operation = format!("make directory {}", display_path(path));
        // An existing file of this name is another common cause without a text.
        if replies::gives_no_reason(&reply) && self.stat(path).await.is_ok() {
            return Err(CopyFailure::new(
                Exit::Protocol,
                format!(
                    "{} refused to {operation}: {}; a file of that name exists already: choose another \
                     name, or remove it first",
                    self.name(),
                    replies::display_reply(&reply)
                ),
            ));
        }
        Err(self.explain_create_refusal(path, &operation, &reply).await)
    }

    /// Makes directories, parents first. On a server that announces pipelining, or one that may be tried (`may_go_ahead`),
    /// commands go ahead of replies: there first one, then two, four, and so on. Returns for each whether it was made; on
    /// other servers, none is.
    ///
    /// # Errors
    /// The session is lost: also by a server that discards commands ahead, which is noticed by its silence.
    pub(crate) async fn make_dirs(
        &mut self,
        paths: &[&[u8]],
        may_go_ahead: bool,
    ) -> Result<Vec<bool>, CopyFailure> {
        let is_known = self.supports_pipelining();
        if !is_known && !may_go_ahead {
            return Ok(vec![false; paths.len()]);
        }
        for path in paths {
            self.check_path(path)?;
        }
        let patience = self.control.reply_timeout();
        if !is_known {
            self.control.set_reply_timeout(patience.min(MAX_SILENCE));
        }
        let most = match is_known {
            true => MAX_PIPELINED,
            false => 1,
        };
        let made = self.make_in_groups(paths, most).await;
        self.control.set_reply_timeout(patience);
        made
    }

    /// Makes directories, `most` at a time first and then more.
    async fn make_in_groups(
        &mut self,
        mut paths: &[&[u8]],
        mut most: usize,
    ) -> Result<Vec<bool>, CopyFailure> {
        let mut made = Vec::with_capacity(paths.len());
        while !paths.is_empty() {
            let (group, rest) = paths.split_at(most.min(paths.len()));
            let commands: Vec<_> = group
                .iter()
                .map(|path| Command::Mkd(path.to_vec()))
                .collect();
            self.control.send_pipelined(&commands).await?;
            for _ in group {
                made.push(self.control.final_reply().await?.is_success());
            }
            paths = rest;
            most = (most * 2).min(MAX_PIPELINED);
        }
        Ok(made)
    }

    /// Deletes a file (DELE).
    ///
    /// # Errors
    /// As [`ClientSession::make_dir`].
    pub async fn delete(&mut self, path: &[u8]) -> Result<(), CopyFailure> {
        self.check_path(path)?;
        let operation = format!("delete {}", display_path(path));
        let reply = self.control.call(&Command::Dele(path.to_vec())).await?;
        self.check_reply(path, &operation, &reply).await
    }

    /// Removes a directory (RMD).
    ///
    /// # Errors
    /// As [`ClientSession::make_dir`].
    pub async fn remove_dir(&mut self, path: &[u8]) -> Result<(), CopyFailure> {
        self.check_path(path)?;
        let operation = format!("remove directory {}", display_path(path));
        let reply = self.control.call(&Command::Rmd(path.to_vec())).await?;
        self.check_reply(path, &operation, &reply).await
    }

    /// Renames a file (RNFR, RNTO).
    ///
    /// # Errors
    /// As [`ClientSession::make_dir`].
    pub async fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), CopyFailure> {
        let result = self.rename_step_by_step(from, to).await;
        result.map_err(|refused| refused.failure)
    }

    async fn rename_step_by_step(&mut self, from: &[u8], to: &[u8]) -> Result<(), RenameFailure> {
        self.check_path(from)?;
        self.check_path(to)?;
        let rnfr_reply = self.control.call(&Command::Rnfr(from.to_vec())).await?;
        if !rnfr_reply.is_intermediate() {
            return self
                .check_rename_replies((from, to), &rnfr_reply, None)
                .await;
        }
        let rnto_reply = self.control.call(&Command::Rnto(to.to_vec())).await?;
        self.check_rename_replies((from, to), &rnfr_reply, Some(&rnto_reply))
            .await
    }

    /// Evaluates the replies to RNFR and RNTO.
    async fn check_rename_replies(
        &mut self,
        (from, to): (&[u8], &[u8]),
        rnfr_reply: &Reply,
        rnto_reply: Option<&Reply>,
    ) -> Result<(), RenameFailure> {
        let operation = format!("rename {} to {}", display_path(from), display_path(to));
        let Some(rnto_reply) = rnto_reply.filter(|_| rnfr_reply.is_intermediate()) else {
            self.check_reply(from, &operation, rnfr_reply).await?;
            // A refused RNFR is about the old name; the new name was not examined.
            return Err(replies::refusal_failure(self.name(), &operation, rnfr_reply).into());
        };
        if rnto_reply.is_success() {
            return Ok(());
        }
        // These codes are used for an existing name, unless the text gives another reason.
        let may_exist = matches!(rnto_reply.code, 521 | 550 | 553)
            && matches!(
                refusal_cause(rnto_reply),
                RefusalCause::Exists | RefusalCause::Other
            );
        Err(RenameFailure {
            failure: self
                .explain_create_refusal(to, &operation, rnto_reply)
                .await,
            refused_step: match may_exist {
                true => RefusedRenameStep::NewNameMayExist,
                false => RefusedRenameStep::RntoRefused,
            },
        })
    }

    /// Sets the modification time, where the server has MFMT, and renames the file; in one pipeline
    /// where supported. A refused MFMT is ignored.
    ///
    /// # Errors
    /// As [`ClientSession::make_dir`].
    pub(crate) async fn set_time_and_rename(
        &mut self,
        from: &[u8],
        to: &[u8],
        modified: Option<Timestamp>,
    ) -> Result<(), RenameFailure> {
        let modified = modified.filter(|_| self.features().mfmt);
        // One command at a time: a refused MFMT is noticed before the rename; only a lost session
        // stops here.
        if !self.planner.takes_commands_ahead() {
            if let Some(time) = modified
                && let Err(failure) = self.set_modified(from, time).await
                && failure.transient
            {
                return Err(failure.into());
            }
            return self.rename_step_by_step(from, to).await;
        }
        self.check_path(from)?;
        self.check_path(to)?;
        let mut pipeline = Vec::from_iter(modified.map(|time| Command::Mfmt(time, from.to_vec())));
        pipeline.extend([Command::Rnfr(from.to_vec()), Command::Rnto(to.to_vec())]);
        self.control.send_pipelined(&pipeline).await?;
        // The reply to MFMT is read first, and ignored: a missing time does not fail the copy.
        if modified.is_some() {
            self.control.final_reply().await?;
        }
        let rnfr_reply = self.control.final_reply().await?;
        let rnto_reply = self.control.final_reply().await?;
        self.check_rename_replies((from, to), &rnfr_reply, Some(&rnto_reply))
            .await
    }

    /// The result of a final reply about an existing path. A 550 without a reason (vsftpd: "Delete
    /// operation failed.") does not say whether the path exists, so that is checked.
    async fn check_reply(
        &mut self,
        path: &[u8],
        operation: &str,
        reply: &Reply,
    ) -> Result<(), CopyFailure> {
        if reply.is_success() {
            return Ok(());
        }
        Err(self.explain_access_refusal(path, operation, reply).await)
    }

    /// Sets the modification time by MFMT, else SITE UTIME; `Ok(false)` when the server has
    /// neither.
    ///
    /// # Errors
    /// As [`ClientSession::make_dir`].
    pub async fn set_modified(
        &mut self,
        path: &[u8],
        time: Timestamp,
    ) -> Result<bool, CopyFailure> {
        self.check_path(path)?;
        let features = self.features();
        let mut commands = Vec::new();
        // Servers without FEAT may still support MFMT.
        if features.mfmt || !features.feat_answered {
            commands.push(Command::Mfmt(time, path.to_vec()));
        }
        commands.push(Command::Site(SiteCommand::Utime(time, path.to_vec())));
        for command in commands {
            let reply = self.control.call(&command).await?;
            if reply.is_success() {
                return Ok(true);
            }
            // vsftpd refuses every SITE with 550 "Permission denied". SITE UTIME is the last form,
            // so its refusal counts as a missing feature.
            let is_site = matches!(command, Command::Site(_));
            if !is_site && !replies::is_unsupported(&reply) || reply.code == 421 {
                let operation = format!("set the time of {}", display_path(path));
                return Err(replies::refusal_failure(self.name(), &operation, &reply));
            }
        }
        Ok(false)
    }
}
