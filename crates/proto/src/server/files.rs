//! Names, sizes, times and checksums of files: MKD RMD DELE RNFR RNTO SIZE MDTM MFMT CKSM SCKS
//! (RFC 959, RFC 3659, GFD.47).

use super::file_task::SuccessReply;
use super::navigation::quoted;
use super::replies::{self, CommandFailure, CommandResult, CommandTarget};
use super::session_state::LoggedInSession;
use super::{FileError, FileErrorKind, FileRequest, SessionAction};
use crate::checksum::ChecksumAlgorithm;
use crate::reply::Reply;
use crate::timestamp::Timestamp;

/// Reply `250 OK.`
pub(super) fn ok_reply() -> SuccessReply {
    SuccessReply::Fixed(Reply::new(250, "OK."))
}

/// Error for RNFR of the root directory.
fn root_rename_error() -> FileError {
    FileError::new(
        FileErrorKind::Denied,
        "Permission denied: the root cannot be renamed",
    )
}

impl LoggedInSession {
    /// MKD. The quoted path comes first, since clients parse the 257 as RFC 959 appendix II shows it.
    pub(super) fn mkd(&mut self, argument: &[u8]) -> CommandResult {
        let path = self.resolve(argument)?;
        let mut text = quoted(&path);
        text.extend_from_slice(b" directory created.");
        let on_success = SuccessReply::Fixed(Reply::new(257, text));
        Ok(self.start_file_change("MKD", path.clone(), FileRequest::MakeDir(path), on_success))
    }

    /// RMD
    pub(super) fn rmd(&mut self, argument: &[u8]) -> CommandResult {
        let path = self.resolve(argument)?;
        Ok(self.start_file_change(
            "RMD",
            path.clone(),
            FileRequest::RemoveDir(path),
            ok_reply(),
        ))
    }

    /// DELE
    pub(super) fn dele(&mut self, argument: &[u8]) -> CommandResult {
        let path = self.resolve(argument)?;
        Ok(self.start_file_change("DELE", path.clone(), FileRequest::Delete(path), ok_reply()))
    }

    /// RNFR. The file must exist now, so that the client learns of a wrong name before RNTO.
    pub(super) fn rnfr(&mut self, argument: &[u8]) -> CommandResult {
        // A failed RNFR must not leave the path of an earlier one to RNTO.
        self.rename_from = None;
        let path = self.resolve(argument)?;
        if path.is_root() {
            let target = CommandTarget { verb: "RNFR", path };
            return Err(replies::refuse(&CommandFailure::File(
                &target,
                &root_rename_error(),
            )));
        }
        Ok(self.start_file_change(
            "RNFR",
            path.clone(),
            FileRequest::Stat(path),
            SuccessReply::RenameFrom,
        ))
    }

    /// RNTO
    pub(super) fn rnto(&mut self, argument: &[u8]) -> CommandResult {
        let Some(from) = self.rename_from.take() else {
            return Ok(replies::reply(
                503,
                "Send RNFR with the present name first.",
            ));
        };
        let to = self.resolve(argument)?;
        let request = FileRequest::Rename {
            from,
            to: to.clone(),
        };
        Ok(self.start_file_change("RNTO", to, request, ok_reply()))
    }

    /// SIZE
    pub(super) fn size(&mut self, argument: &[u8]) -> CommandResult {
        let path = self.resolve(argument)?;
        Ok(self.start_file_task(
            "SIZE",
            path.clone(),
            FileRequest::Stat(path),
            SuccessReply::Size,
        ))
    }

    /// MDTM
    pub(super) fn mdtm(&mut self, argument: &[u8]) -> CommandResult {
        let path = self.resolve(argument)?;
        Ok(self.start_file_task(
            "MDTM",
            path.clone(),
            FileRequest::Stat(path),
            SuccessReply::Modified,
        ))
    }

    /// MFMT; the reply is that of draft-somers-ftp-mfxx §3.
    pub(super) fn mfmt(&mut self, time: Timestamp, argument: &[u8]) -> CommandResult {
        let path = self.resolve(argument)?;
        // The draft shows the name as the client sent it.
        let on_success = SuccessReply::TimeKept(argument.to_vec());
        let request = FileRequest::SetModified(path.clone(), time);
        Ok(self.start_file_change("MFMT", path, request, on_success))
    }

    /// CKSM: 113 markers while it runs if OPTS CKSM asked for them, then 213 and the checksum.
    pub(super) fn cksm(
        &mut self,
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        argument: &[u8],
    ) -> CommandResult {
        let path = self.resolve(argument)?;
        let request = FileRequest::Checksum {
            algorithm,
            path: path.clone(),
            offset,
            length,
            marker_seconds: self.parameters.checksum_seconds,
        };
        Ok(self.start_file_task("CKSM", path, request, SuccessReply::Digest))
    }

    /// SCKS: the next store must have this checksum.
    pub(super) fn scks(&mut self, algorithm: ChecksumAlgorithm, hex: String) -> Vec<SessionAction> {
        self.next_transfer.store.expected_checksum = Some((algorithm, hex));
        replies::reply(200, "OK.")
    }
}
