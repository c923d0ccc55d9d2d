//! Listings: MLST, MLSC and STAT in a reply; LIST, NLST, MLSD and MLSR over a data connection.

use super::files::SuccessReply;
use super::logged_in::LoggedInSession;
use super::replies::CommandResult;
use super::{FileRequest, ListFormat, ListRequest, SessionAction, TransferKind};
use crate::pattern::has_wildcard;

impl LoggedInSession {
    /// MLST: the facts of one path, under the name that the client sent.
    pub(super) fn mlst(&mut self, argument: Option<&[u8]>) -> CommandResult {
        let path = self.resolve_or_cwd(argument)?;
        let shown_path = self.argument_or_cwd(argument);
        Ok(self.start_file_task(
            "MLST",
            path.clone(),
            FileRequest::Stat(path),
            SuccessReply::MlstFacts(shown_path),
        ))
    }

    /// MLSC: the facts of a directory's entries, in a reply.
    pub(super) fn mlsc(&mut self, argument: Option<&[u8]>) -> CommandResult {
        let form = ListFormat::Facts(self.parameters.facts);
        let request = self.listing_of(argument, form)?;
        self.listing_reply("MLSC", argument, request, 250, b"Contents of ")
    }

    /// STAT with a path (RFC 959 §4.1.3): the lines of LIST, in a reply.
    pub(super) fn stat_path(&mut self, argument: &[u8]) -> CommandResult {
        let request = with_pattern(self.listing_of(Some(argument), ListFormat::LsLong)?);
        self.listing_reply("STAT", Some(argument), request, 213, b"status of ")
    }

    fn listing_reply(
        &mut self,
        verb: &'static str,
        argument: Option<&[u8]>,
        request: ListRequest,
        code: u16,
        first_words: &[u8],
    ) -> CommandResult {
        let first_line = [first_words, &self.argument_or_cwd(argument)].concat();
        Ok(self.start_file_task(
            verb,
            request.path.clone(),
            FileRequest::List(request),
            SuccessReply::Lines(code, first_line),
        ))
    }

    /// The path as the client sent it; the current directory when it sent none.
    fn argument_or_cwd(&self, argument: Option<&[u8]>) -> Vec<u8> {
        match argument {
            None | Some(b"") => self.cwd.as_bytes().to_vec(),
            Some(argument) => argument.to_vec(),
        }
    }

    /// LIST
    pub(super) fn list(&mut self, argument: Option<&[u8]>) -> CommandResult {
        let request = with_pattern(self.list_request(argument, ListFormat::LsLong)?);
        Ok(self.start_listing("LIST", request))
    }

    /// NLST
    pub(super) fn nlst(&mut self, argument: Option<&[u8]>) -> CommandResult {
        let mut request = with_pattern(self.list_request(argument, ListFormat::Names)?);
        let argument = argument.unwrap_or_default();
        let slash = argument.iter().rposition(|byte| *byte == b'/');
        request.prefix = argument[..slash.map_or(0, |at| at + 1)].to_vec();
        Ok(self.start_listing("NLST", request))
    }

    /// MLSD
    pub(super) fn mlsd(&mut self, argument: Option<&[u8]>) -> CommandResult {
        let form = ListFormat::Facts(self.parameters.facts);
        let request = self.list_request(argument, form)?;
        Ok(self.start_listing("MLSD", request))
    }

    /// MLSR: MLSD of a whole tree.
    pub(super) fn mlsr(&mut self, argument: Option<&[u8]>) -> CommandResult {
        let form = ListFormat::Facts(self.parameters.facts);
        let mut request = self.list_request(argument, form)?;
        request.recursive = true;
        request.deflate = self.parameters.deflate_trees;
        Ok(self.start_listing("MLSR", request))
    }

    /// A listing over a data connection. It discards REST, as every transfer command does, and does not use it.
    fn list_request(
        &mut self,
        argument: Option<&[u8]>,
        form: ListFormat,
    ) -> Result<ListRequest, Vec<SessionAction>> {
        self.next_transfer.restart = None;
        self.listing_of(argument, form)
    }

    fn listing_of(
        &self,
        argument: Option<&[u8]>,
        form: ListFormat,
    ) -> Result<ListRequest, Vec<SessionAction>> {
        Ok(ListRequest {
            path: self.resolve_or_cwd(argument)?,
            pattern: None,
            prefix: Vec::new(),
            format: form,
            recursive: false,
            deflate: false,
        })
    }

    fn start_listing(&mut self, verb: &'static str, request: ListRequest) -> Vec<SessionAction> {
        self.start_transfer(verb, request.path.clone(), TransferKind::List(request))
    }
}

/// LIST, NLST and STAT: the characters `*`, `?` and `[` in the last component make it a pattern, since `ls *.dat` and
/// `mget *.dat` of interactive clients send it. MLSD and MLST take literal names (RFC 3659 §7.2).
fn with_pattern(mut request: ListRequest) -> ListRequest {
    if has_wildcard(request.path.name()) {
        request.pattern = Some(request.path.name().to_vec());
        request.path = request.path.parent();
    }
    request
}
