//! Commands on files and directories that have no data channel.

use proto::command::{Command, SiteCommand};
use proto::reply::Reply;
use proto::timestamp::Timestamp;

use super::replies::{self, RefusalCause, refusal_cause};
use super::{ClientSession, display_path};
use crate::answers::{RefusedRenameStep, RenameFailure};
use crate::{CopyFailure, Exit};

impl ClientSession {
    /// MKD; `Ok(false)` when it exists already.
    ///
    /// # Errors
    /// The server's refusal by its class; `Usage` for a path that FTP cannot express.
    pub async fn make_dir(&mut self, path: &[u8]) -> Result<bool, CopyFailure> {
        self.check_path(path)?;
        let reply = self.control.call(&Command::Mkd(path.to_vec())).await?;
        if reply.is_success() {
            return Ok(true);
        }
        // Servers do not agree on code or text for "exists" (550, 553, 521; vsftpd gives no
        // reason at all), so the directory itself is asked.
        if reply.code != 421 && self.is_directory(path).await? {
            return Ok(false);
        }
        let doing = format!("make directory {}", display_path(path));
        if replies::gives_no_reason(&reply) && self.stat(path).await.is_ok() {
            return Err(CopyFailure::new(
                Exit::Protocol,
                format!(
                    "{} refused to {doing}: {}; a file of that name exists already: choose another \
                     name, or remove it first",
                    self.name(),
                    replies::display_reply(&reply)
                ),
            ));
        }
        Err(self.explain_create_refusal(path, &doing, &reply).await)
    }

    /// DELE
    ///
    /// # Errors
    /// As [`ClientSession::make_dir`].
    pub async fn delete(&mut self, path: &[u8]) -> Result<(), CopyFailure> {
        self.check_path(path)?;
        let doing = format!("delete {}", display_path(path));
        let reply = self.control.call(&Command::Dele(path.to_vec())).await?;
        self.check_reply(path, &doing, &reply).await
    }

    /// RMD
    ///
    /// # Errors
    /// As [`ClientSession::make_dir`].
    pub async fn remove_dir(&mut self, path: &[u8]) -> Result<(), CopyFailure> {
        self.check_path(path)?;
        let doing = format!("remove directory {}", display_path(path));
        let reply = self.control.call(&Command::Rmd(path.to_vec())).await?;
        self.check_reply(path, &doing, &reply).await
    }

    /// RNFR, RNTO
    ///
    /// # Errors
    /// As [`ClientSession::make_dir`].
    pub async fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), CopyFailure> {
        let renamed = self.rename_step_by_step(from, to).await;
        renamed.map_err(|refused| refused.failure)
    }

    async fn rename_step_by_step(&mut self, from: &[u8], to: &[u8]) -> Result<(), RenameFailure> {
        self.check_path(from)?;
        self.check_path(to)?;
        let found = self.control.call(&Command::Rnfr(from.to_vec())).await?;
        if !found.is_intermediate() {
            return self.check_rename_replies((from, to), &found, None).await;
        }
        let renamed = self.control.call(&Command::Rnto(to.to_vec())).await?;
        self.check_rename_replies((from, to), &found, Some(&renamed))
            .await
    }

    /// Reads the replies to RNFR and RNTO.
    async fn check_rename_replies(
        &mut self,
        (from, to): (&[u8], &[u8]),
        found: &Reply,
        renamed: Option<&Reply>,
    ) -> Result<(), RenameFailure> {
        let doing = format!("rename {} to {}", display_path(from), display_path(to));
        let Some(renamed) = renamed.filter(|_| found.is_intermediate()) else {
            self.check_reply(from, &doing, found).await?;
            return Err(replies::refusal_failure(self.name(), &doing, found).into());
        };
        if renamed.is_success() {
            return Ok(());
        }
        let taken = matches!(renamed.code, 521 | 550 | 553)
            && matches!(
                refusal_cause(renamed),
                RefusalCause::Exists | RefusalCause::Other
            );
        Err(RenameFailure {
            failure: self.explain_create_refusal(to, &doing, renamed).await,
            refused_step: match taken {
                true => RefusedRenameStep::NewNameMayExist,
                false => RefusedRenameStep::RntoRefused,
            },
        })
    }

    /// Gives a file its time, where the server has MFMT, and its name: in one flight where that takes
    /// commands ahead. The time is a courtesy.
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
        if !self.planner.supports_pipelining() {
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
        let mut flight = Vec::from_iter(modified.map(|time| Command::Mfmt(time, from.to_vec())));
        flight.extend([Command::Rnfr(from.to_vec()), Command::Rnto(to.to_vec())]);
        self.control.send_pipelined(&flight).await?;
        if modified.is_some() {
            self.control.final_reply().await?;
        }
        let found = self.control.final_reply().await?;
        let renamed = self.control.final_reply().await?;
        self.check_rename_replies((from, to), &found, Some(&renamed))
            .await
    }

    /// Result of a final reply about an existing path. A 550 that gives no reason (vsftpd:
    /// "Delete operation failed.") leaves open whether there is anything, so that is asked.
    async fn check_reply(
        &mut self,
        path: &[u8],
        doing: &str,
        reply: &Reply,
    ) -> Result<(), CopyFailure> {
        if reply.is_success() {
            return Ok(());
        }
        Err(self.explain_access_refusal(path, doing, reply).await)
    }

    /// MFMT, else SITE UTIME; `Ok(false)` when the server has neither.
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
        let mut forms = Vec::new();
        if features.mfmt || !features.feat_answered {
            forms.push(Command::Mfmt(time, path.to_vec()));
        }
        forms.push(Command::Site(SiteCommand::Utime(time, path.to_vec())));
        for command in forms {
            let reply = self.control.call(&command).await?;
            if reply.is_success() {
                return Ok(true);
            }
            // vsftpd refuses SITE altogether with 550 "Permission denied": that is a missing
            // ability too, as far as this is the last resort.
            let is_site = matches!(command, Command::Site(_));
            if !is_site && !replies::is_unsupported(&reply) || reply.code == 421 {
                let doing = format!("set the time of {}", display_path(path));
                return Err(replies::refusal_failure(self.name(), &doing, &reply));
            }
        }
        Ok(false)
    }
}
