//! Listings: MLST, MLSC and STAT in a reply; LIST, NLST, MLSD and MLSR over a data connection.

use super::file_task::Then;
use super::replies::Step;
use super::state::LoggedIn;
use super::{FileRequest, ListForm, ListRequest, TransferKind};

impl LoggedIn {
    /// MLST: the facts of one path, under the name as asked.
    pub(super) fn mlst(&mut self, argument: Option<&[u8]>) -> Step {
        let path = self.resolve_or_cwd(argument)?;
        let shown = self.shown(argument);
        Ok(self.inspect(
            "MLST",
            path.clone(),
            FileRequest::Stat(path),
            Then::Facts(shown),
        ))
    }

    /// MLSC: the facts of a directory's entries, in a reply.
    pub(super) fn mlsc(&mut self, argument: Option<&[u8]>) -> Step {
        let form = ListForm::Facts(self.settings.facts);
        self.listing_reply("MLSC", argument, form, 250, b"Contents of ")
    }

    /// STAT with a path (RFC 959 §4.1.3): LIST in a reply.
    pub(super) fn stat_path(&mut self, argument: &[u8]) -> Step {
        self.listing_reply("STAT", Some(argument), ListForm::Long, 213, b"status of ")
    }

    fn listing_reply(
        &mut self,
        verb: &'static str,
        argument: Option<&[u8]>,
        form: ListForm,
        code: u16,
        title: &[u8],
    ) -> Step {
        let path = self.resolve_or_cwd(argument)?;
        let first = [title, &self.shown(argument)].concat();
        let request = FileRequest::List(ListRequest {
            path: path.clone(),
            pattern: None,
            form,
            recursive: false,
        });
        Ok(self.inspect(verb, path, request, Then::Lines(code, first)))
    }

    /// A path as the client wrote it; the current directory when it wrote none.
    fn shown(&self, argument: Option<&[u8]>) -> Vec<u8> {
        match argument {
            None | Some(b"") => self.cwd.as_bytes().to_vec(),
            Some(argument) => argument.to_vec(),
        }
    }

    /// LIST: `*`, `?` and `[` in the last component make it a pattern.
    pub(super) fn list(&mut self, argument: Option<&[u8]>) -> Step {
        self.next.restart = None;
        let path = self.resolve_or_cwd(argument)?;
        let is_glob = path.name().iter().any(|b| b"*?[".contains(b));
        let request = if is_glob {
            ListRequest {
                pattern: Some(path.name().to_vec()),
                path: path.parent(),
                form: ListForm::Long,
                recursive: false,
            }
        } else {
            plain(path, ListForm::Long)
        };
        Ok(self.start("LIST", request.path.clone(), TransferKind::List(request)))
    }

    /// NLST
    pub(super) fn nlst(&mut self, argument: Option<&[u8]>) -> Step {
        self.next.restart = None;
        let path = self.resolve_or_cwd(argument)?;
        let request = plain(path, ListForm::Names);
        Ok(self.start("NLST", request.path.clone(), TransferKind::List(request)))
    }

    /// MLSD
    pub(super) fn mlsd(&mut self, argument: Option<&[u8]>) -> Step {
        self.next.restart = None;
        let path = self.resolve_or_cwd(argument)?;
        let request = plain(path, ListForm::Facts(self.settings.facts));
        Ok(self.start("MLSD", request.path.clone(), TransferKind::List(request)))
    }

    /// MLSR: MLSD of the whole tree.
    pub(super) fn mlsr(&mut self, argument: Option<&[u8]>) -> Step {
        self.next.restart = None;
        let path = self.resolve_or_cwd(argument)?;
        let request = ListRequest {
            recursive: true,
            ..plain(path, ListForm::Facts(self.settings.facts))
        };
        Ok(self.start("MLSR", request.path.clone(), TransferKind::List(request)))
    }
}

fn plain(path: crate::path::VPath, form: ListForm) -> ListRequest {
    ListRequest {
        path,
        pattern: None,
        form,
        recursive: false,
    }
}
