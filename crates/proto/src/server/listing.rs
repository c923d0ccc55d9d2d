//! Listings: MLST, MLSC and STAT in a reply; LIST, NLST, MLSD and MLSR over a data connection.

use super::file_task::Then;
use super::replies::Step;
use super::state::LoggedIn;
use super::{Action, FileRequest, ListForm, ListRequest, TransferKind};
use crate::pattern::has_wildcard;

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
        let mut request = self.list_request(argument, ListForm::Long)?;
        let name = request.path.name();
        if has_wildcard(name) {
            request.pattern = Some(name.to_vec());
            request.path = request.path.parent();
        }
        Ok(self.start_listing("LIST", request))
    }

    /// NLST
    pub(super) fn nlst(&mut self, argument: Option<&[u8]>) -> Step {
        let request = self.list_request(argument, ListForm::Names)?;
        Ok(self.start_listing("NLST", request))
    }

    /// MLSD
    pub(super) fn mlsd(&mut self, argument: Option<&[u8]>) -> Step {
        let form = ListForm::Facts(self.settings.facts);
        let request = self.list_request(argument, form)?;
        Ok(self.start_listing("MLSD", request))
    }

    /// MLSR: MLSD of the whole tree.
    pub(super) fn mlsr(&mut self, argument: Option<&[u8]>) -> Step {
        let form = ListForm::Facts(self.settings.facts);
        let mut request = self.list_request(argument, form)?;
        request.recursive = true;
        Ok(self.start_listing("MLSR", request))
    }

    /// A listing is a transfer and takes REST away, though it has no use for it.
    fn list_request(
        &mut self,
        argument: Option<&[u8]>,
        form: ListForm,
    ) -> Result<ListRequest, Vec<Action>> {
        self.next.restart = None;
        Ok(ListRequest {
            path: self.resolve_or_cwd(argument)?,
            pattern: None,
            form,
            recursive: false,
        })
    }

    fn start_listing(&mut self, verb: &'static str, request: ListRequest) -> Vec<Action> {
        self.start(verb, request.path.clone(), TransferKind::List(request))
    }
}
