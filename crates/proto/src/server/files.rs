//! Names, sizes, times and checksums of files: MKD RMD DELE RNFR RNTO SIZE MDTM MFMT CKSM SCKS
//! (RFC 959, RFC 3659, GFD.47).

use super::file_task::Then;
use super::navigation::quoted;
use super::replies::{self, Failure, Step, Subject};
use super::state::LoggedIn;
use super::{Action, FileError, FileErrorKind, FileRequest};
use crate::checksum::Algorithm;
use crate::reply::Reply;
use crate::timestamp::Timestamp;

/// `250 OK.`
pub(super) fn done() -> Then {
    Then::Reply(Reply::new(250, "OK."))
}

/// Of a session, which has no name that it could change.
fn not_the_root() -> FileError {
    FileError {
        kind: FileErrorKind::Denied,
        errno: None,
        text: "Permission denied: the root cannot be renamed".to_owned(),
    }
}

impl LoggedIn {
    /// MKD. The quoted path comes first, as RFC 959 appendix II has it and clients parse it.
    pub(super) fn mkd(&mut self, argument: &[u8]) -> Step {
        let path = self.resolve(argument)?;
        let mut text = quoted(&path);
        text.extend_from_slice(b" directory created.");
        let then = Then::Reply(Reply::new(257, text));
        Ok(self.change("MKD", path.clone(), FileRequest::MakeDir(path), then))
    }

    /// RMD
    pub(super) fn rmd(&mut self, argument: &[u8]) -> Step {
        let path = self.resolve(argument)?;
        Ok(self.change("RMD", path.clone(), FileRequest::RemoveDir(path), done()))
    }

    /// DELE
    pub(super) fn dele(&mut self, argument: &[u8]) -> Step {
        let path = self.resolve(argument)?;
        Ok(self.change("DELE", path.clone(), FileRequest::Delete(path), done()))
    }

    /// RNFR: the name must exist now, so that the client learns of a mistake before RNTO.
    pub(super) fn rnfr(&mut self, argument: &[u8]) -> Step {
        self.rename_from = None;
        let path = self.resolve(argument)?;
        if path.is_root() {
            let subject = Subject { verb: "RNFR", path };
            return Err(replies::refuse(&Failure::File(&subject, &not_the_root())));
        }
        Ok(self.change(
            "RNFR",
            path.clone(),
            FileRequest::Stat(path),
            Then::RenameFrom,
        ))
    }

    /// RNTO
    pub(super) fn rnto(&mut self, argument: &[u8]) -> Step {
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
        Ok(self.change("RNTO", to, request, done()))
    }

    /// SIZE
    pub(super) fn size(&mut self, argument: &[u8]) -> Step {
        let path = self.resolve(argument)?;
        Ok(self.inspect("SIZE", path.clone(), FileRequest::Stat(path), Then::Size))
    }

    /// MDTM
    pub(super) fn mdtm(&mut self, argument: &[u8]) -> Step {
        let path = self.resolve(argument)?;
        Ok(self.inspect(
            "MDTM",
            path.clone(),
            FileRequest::Stat(path),
            Then::Modified,
        ))
    }

    /// MFMT; the reply is that of draft-somers-ftp-mfxx §3.
    pub(super) fn mfmt(&mut self, time: Timestamp, argument: &[u8]) -> Step {
        let path = self.resolve(argument)?;
        let mut text = format!("Modify={}; ", time.format()).into_bytes();
        text.extend_from_slice(argument);
        let then = Then::Reply(Reply::new(213, text));
        let request = FileRequest::SetModified(path.clone(), time);
        Ok(self.change("MFMT", path, request, then))
    }

    /// CKSM: 113 markers while it runs if OPTS CKSM asked for them, then 213 and the digest.
    pub(super) fn cksm(
        &mut self,
        algorithm: Algorithm,
        offset: u64,
        length: Option<u64>,
        argument: &[u8],
    ) -> Step {
        let path = self.resolve(argument)?;
        let request = FileRequest::Checksum {
            algorithm,
            path: path.clone(),
            offset,
            length,
            marker_seconds: self.settings.checksum_seconds,
        };
        Ok(self.inspect("CKSM", path, request, Then::Digest))
    }

    /// SCKS: the next store must have this checksum.
    pub(super) fn scks(&mut self, algorithm: Algorithm, hex: String) -> Vec<Action> {
        self.next.store.expect = Some((algorithm, hex));
        replies::reply(200, "OK.")
    }
}
