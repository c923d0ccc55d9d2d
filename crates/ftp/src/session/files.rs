//! Commands on files and directories that use no data connection.

use std::ops::ControlFlow;

use proto::command::{Command, SiteCommand};
use proto::path::PARTIAL_SUFFIX;
use proto::reply::Reply;
use proto::timestamp::Timestamp;

use super::directories::NO_SUCH_NAME;
use super::path_names::split_path;
use super::replies::{self, RefusalCause, refusal_cause};
use super::{ClientSession, display_path};
use crate::answers::{RefusedRenameStep, RenameFailure};
use crate::failure::Operation;
use crate::{Failure, FailureKind};

impl ClientSession {
    /// Makes a directory (MKD); `Ok(false)` when it exists.
    ///
    /// # Errors
    /// The server's refusal by its class; `Usage` for a path that FTP cannot express.
    pub async fn make_dir(&mut self, path: &[u8]) -> Result<bool, Failure> {
        self.check_path(path)?;
        let reply = self.call_about(path, Command::Mkd).await?;
        if reply.is_success() {
            return Ok(true);
        }
        // Servers differ in code and text for an existing directory (550, 553, 521; vsftpd gives no
        // reason at all), so CWD decides.
        if reply.code != 421 && self.is_directory(path).await? {
            return Ok(false);
        }
        let operation = Operation::on_path("make directory", path);
        // An existing file of this name is another common cause without a text.
        if replies::gives_no_reason(&reply) && self.stat(path).await.is_ok() {
            let refused = replies::refused(FailureKind::Protocol, self.name(), &operation, &reply);
            return Err(refused.advise(
                "a file of that name exists already: choose another name, or remove it first",
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
    pub async fn make_dirs(
        &mut self,
        paths: &[&[u8]],
        may_go_ahead: bool,
    ) -> Result<Vec<bool>, Failure> {
        let is_known = self.supports_pipelining();
        if !is_known && !may_go_ahead {
            return Ok(vec![false; paths.len()]);
        }
        for path in paths {
            self.check_path(path)?;
        }
        let mut made = Vec::with_capacity(paths.len());
        let commands = paths.iter().map(|path| Command::Mkd(path.to_vec()));
        let mut note = |reply: &Reply| {
            made.push(reply.is_success());
            ControlFlow::Continue(())
        };
        self.call_ahead(commands, may_go_ahead, &mut note).await?;
        Ok(made)
    }

    /// Deletes a file (DELE).
    ///
    /// # Errors
    /// As [`ClientSession::make_dir`].
    pub async fn delete(&mut self, path: &[u8]) -> Result<(), Failure> {
        self.check_path(path)?;
        let operation = Operation::on_path("delete", path);
        let reply = self.call_about(path, Command::Dele).await?;
        self.check_reply(path, &operation, &reply).await
    }

    /// Removes a directory (RMD).
    ///
    /// # Errors
    /// As [`ClientSession::make_dir`].
    pub async fn remove_dir(&mut self, path: &[u8]) -> Result<(), Failure> {
        self.check_path(path)?;
        let operation = Operation::on_path("remove directory", path);
        let reply = self.call_about(path, Command::Rmd).await?;
        self.check_reply(path, &operation, &reply).await
    }

    /// Removes a directory with all that the server finds in it (SITE RDEL). Not every server leaves alone what links in it
    /// lead to.
    ///
    /// # Errors
    /// As [`ClientSession::make_dir`].
    pub async fn remove_whole_tree(&mut self, path: &[u8]) -> Result<(), Failure> {
        self.check_path(path)?;
        let operation = Operation::on_path("remove", path);
        let command = Command::Site(SiteCommand::RemoveTree(path.to_vec()));
        let reply = self.control.call(&command).await?;
        self.check_reply(path, &operation, &reply).await
    }

    /// Renames a file (RNFR, RNTO).
    ///
    /// # Errors
    /// As [`ClientSession::make_dir`].
    pub async fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), Failure> {
        let result = self.rename_step_by_step(from, to).await;
        result.map_err(|refused| refused.failure)
    }

    async fn rename_step_by_step(&mut self, from: &[u8], to: &[u8]) -> Result<(), RenameFailure> {
        self.check_path(from)?;
        self.check_path(to)?;
        let rnfr_reply = self.call_about(from, Command::Rnfr).await?;
        if !rnfr_reply.is_intermediate() {
            return self.check_rename_replies(from, to, &rnfr_reply, None).await;
        }
        // No CWD may come between RNFR and RNTO.
        let to_name = match self.habits.names_only && split_path(from).0 == split_path(to).0 {
            true => split_path(to).1,
            false => to,
        };
        let rnto = Command::Rnto(to_name.to_vec());
        let rnto_reply = self.control.call(&rnto).await?;
        self.check_rename_replies(from, to, &rnfr_reply, Some(&rnto_reply))
            .await
    }

    /// Evaluates the replies to RNFR and RNTO.
    async fn check_rename_replies(
        &mut self,
        from: &[u8],
        to: &[u8],
        rnfr_reply: &Reply,
        rnto_reply: Option<&Reply>,
    ) -> Result<(), RenameFailure> {
        let operation = Operation::on_path("rename", from).to(display_path(to));
        let Some(rnto_reply) = rnto_reply.filter(|_| rnfr_reply.is_intermediate()) else {
            if replies::is_unsupported(rnfr_reply) {
                return Err(self.no_rename_failure(&operation, rnfr_reply));
            }
            self.check_reply(from, &operation, rnfr_reply).await?;
            // A refused RNFR is about the old name; the new name was not examined.
            return Err(replies::refusal_failure(self.name(), &operation, rnfr_reply).into());
        };
        if rnto_reply.is_success() {
            return Ok(());
        }
        if replies::is_unsupported(rnto_reply) {
            return Err(self.no_rename_failure(&operation, rnto_reply));
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

    /// Why the server would not rename files beside `path`; `None`: nothing speaks against it.
    ///
    /// # Errors
    /// The session is lost.
    pub async fn refuses_renames(&mut self, path: &[u8]) -> Result<Option<RenameFailure>, Failure> {
        // Who may write at these servers may rename.
        if self.planner.takes_commands_ahead() {
            return Ok(None);
        }
        // After RNFR of a file that exists, servers want RNTO (ProFTPD: 501 to anything else).
        let (directory, _) = split_path(path);
        let slash: &[u8] = if directory == b"/" { b"" } else { b"/" };
        let path = &[directory, slash, NO_SUCH_NAME, PARTIAL_SUFFIX].concat();
        self.check_path(path)?;
        let reply = self.call_about(path, Command::Rnfr).await?;
        let operation = Operation::on_path("rename files in", directory);
        if replies::is_unsupported(&reply) {
            return Ok(Some(self.no_rename_failure(&operation, &reply)));
        }
        // A missing file shows nothing.
        let is_denied = !reply.is_intermediate() && refusal_cause(&reply) == RefusalCause::Denied;
        let failure = replies::refusal_failure(self.name(), &operation, &reply);
        match reply.code {
            421 => Err(failure),
            _ => Ok(is_denied.then(|| failure.into())),
        }
    }

    fn no_rename_failure(&self, operation: &Operation, reply: &Reply) -> RenameFailure {
        RenameFailure {
            failure: replies::refusal_failure(self.name(), operation, reply),
            refused_step: RefusedRenameStep::Unsupported,
        }
    }

    /// Sets the modification time, where the server has MFMT, and renames the file; in one pipeline
    /// where supported. A refused MFMT is ignored.
    ///
    /// # Errors
    /// As [`ClientSession::make_dir`].
    pub async fn set_time_and_rename(
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
                && failure.may_retry()
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
        self.check_rename_replies(from, to, &rnfr_reply, Some(&rnto_reply))
            .await
    }

    /// The result of a final reply about an existing path. A 550 without a reason (vsftpd: "Delete
    /// operation failed.") does not say whether the path exists, so that is checked.
    async fn check_reply(
        &mut self,
        path: &[u8],
        operation: &Operation,
        reply: &Reply,
    ) -> Result<(), Failure> {
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
    pub async fn set_modified(&mut self, path: &[u8], time: Timestamp) -> Result<bool, Failure> {
        self.check_path(path)?;
        let refused = |session: &Self, reply: &Reply| {
            let operation = Operation::on_path("set the time of", path);
            Err(replies::refusal_failure(session.name(), &operation, reply))
        };
        let features = self.features();
        // Servers without FEAT may still support MFMT.
        if features.mfmt || !features.feat_answered {
            let mfmt = |path| Command::Mfmt(time, path);
            let reply = self.call_about(path, mfmt).await?;
            if reply.is_success() {
                return Ok(true);
            }
            if !replies::is_unsupported(&reply) {
                return refused(self, &reply);
            }
        }
        let utime = SiteCommand::Utime(time, self.spell(path).await?);
        let reply = self.control.call(&Command::Site(utime)).await?;
        // vsftpd refuses every SITE with 550 "Permission denied", so any refusal counts as a missing feature.
        match reply.code {
            421 => refused(self, &reply),
            _ => Ok(reply.is_success()),
        }
    }
}
