//! Directory listings over the data connection, by one command after the other until one is known to show everything.
//!
//! MLSD comes first, then `LIST -a` and LIST, then NLST with a question about each name. A server may refuse any of them,
//! send lines that are not understood, or say that it left entries out. What one command showed is kept and not visited
//! again when the next one shows it.

use std::ops::ControlFlow;

use proto::command::Command;
use proto::listing::{EntryKind, ListedEntry, ListingFormat};

use super::listing_limits::{IN_MEMORY_LIMITS, ListingLimits, STREAMING_LIMITS};
use super::path_names::split_path;
use super::replies;
use super::{COMPRESSED_FROM, ClientSession, ListingUse};
use crate::Failure;
use crate::answers::{EntryVisitor, ListingVisitor, SymlinkCheckedEntry};
use crate::failure::Operation;
use crate::incomplete_listing::IncompleteListing;

mod completeness;
mod entries;
mod fetch;
mod inflate;
mod limit_remark;
mod shown_names;

use entries::ListingText;
use fetch::{ListingEnd, ListingRequest};
use shown_names::ShownNames;

/// A listing command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListingCommand {
    Mlsd,
    /// vsftpd hides names that begin with a dot unless `-a` is given. A server may take `-a` for a name, and list nothing
    /// or refuse.
    ListAll,
    List,
    Nlst,
}

impl ListingCommand {
    /// LIST and NLST are sent without a path, after CWD into the directory: servers differ in how they read options, blanks
    /// and wildcards in a path.
    fn request<'a>(self, path: &'a [u8], limits: ListingLimits) -> ListingRequest<'a> {
        let (command, format) = match self {
            Self::Mlsd => (Command::Mlsd(Some(path.to_vec())), ListingFormat::Facts),
            Self::ListAll => (Command::List(Some(b"-a".to_vec())), ListingFormat::AllRows),
            Self::List => (Command::List(None), ListingFormat::Rows),
            Self::Nlst => (Command::Nlst(None), ListingFormat::Names),
        };
        ListingRequest {
            path,
            command,
            format,
            limits,
            deflated: false,
        }
    }
}

/// The listing of one directory.
struct DirectoryListing<'l, 'v> {
    path: &'l [u8],
    limits: ListingLimits,
    visit: &'l mut ListingVisitor<'v>,
    names: ShownNames,
    /// Why the listings so far do not show everything, first of all.
    doubt: Option<IncompleteListing>,
    /// Entries that they are known to lack.
    lacking: u64,
    /// The first refusal, but for those that an argument may have caused.
    refusal: Option<Failure>,
    /// `LIST -a` was understood by the server.
    takes_all: bool,
}

impl<'l, 'v> DirectoryListing<'l, 'v> {
    fn new(path: &'l [u8], limits: ListingLimits, visit: &'l mut ListingVisitor<'v>) -> Self {
        Self {
            path,
            limits,
            visit,
            names: ShownNames::default(),
            doubt: None,
            lacking: 0,
            refusal: None,
            takes_all: false,
        }
    }

    /// Visits an entry unless an earlier command showed it.
    fn visit(&mut self, checked: SymlinkCheckedEntry) -> ControlFlow<()> {
        match self.names.add(&checked.entry.name) {
            true => (self.visit)(checked),
            false => ControlFlow::Continue(()),
        }
    }

    /// Whether the listing is complete with what a command showed. `doubt`: why that alone may not be everything.
    fn is_complete_with(
        &mut self,
        command: ListingCommand,
        text: &ListingText,
        doubt: Option<IncompleteListing>,
    ) -> bool {
        let shown = text.reader.entries();
        let (missed, _) = text.reader.not_understood();
        let is_readable = shown > 0 || text.reader.shows_itself();
        self.takes_all |= command == ListingCommand::ListAll && is_readable;
        if !is_readable && missed == 0 && doubt.is_none() {
            // Nothing at all: a server that took `-a` for a name, or that hides why it refused the command before.
            let is_first = self.refusal.is_none() && self.doubt.is_none();
            return command != ListingCommand::ListAll && is_first;
        }
        // A second text without an end that shows nothing new confirms the first: the server ends none of its last lines.
        let cut = Some(IncompleteListing::Cut);
        if doubt == cut && self.doubt == cut && self.names.new_ones() == 0 {
            return true;
        }
        let Some(doubt) = doubt else {
            // This one may leave out the entries that earlier texts lack.
            let shows_more = text.reader.shows_hidden() || self.names.new_ones() >= self.lacking;
            return shows_more && self.names.repeats_all();
        };
        let lacking = match &doubt {
            IncompleteListing::Cut => 0,
            // Lines of an unknown form tell nothing, those beside others are entries.
            IncompleteListing::NotUnderstood { .. } if !is_readable => 0,
            IncompleteListing::NotUnderstood { count, .. } => *count,
            IncompleteListing::SameName(_) => 1,
            IncompleteListing::NoFacts { .. }
            | IncompleteListing::Limited(_)
            | IncompleteListing::LacksDirectory
            | IncompleteListing::EndUnproved
            | IncompleteListing::HiddenFromLogin => u64::MAX,
        };
        self.lacking = self.lacking.max(lacking);
        self.doubt.get_or_insert(doubt);
        false
    }

    /// Why no command showed everything.
    fn failure(self, server: &str) -> Failure {
        if let Some(doubt) = self.doubt {
            return doubt.failure(server, self.path);
        }
        self.refusal.unwrap_or_else(|| {
            Failure::protocol(format!(
                "{server} sends no directory listing in a supported form (MLSD, LIST, NLST); name the files one by \
                 one"
            ))
        })
    }
}

impl ClientSession {
    /// Entries of a directory without `.` and `..`, by MLSD, else LIST, else NLST. At most two
    /// million entries and 512 MiB of text.
    ///
    /// # Errors
    /// The refusal by its class; `Usage` for a path that FTP cannot express; `Protocol` for a
    /// listing beyond the limits, and for one that is not known to be complete.
    pub async fn list(&mut self, path: &[u8]) -> Result<Vec<ListedEntry>, Failure> {
        let mut found = Vec::new();
        let mut visit = |checked: SymlinkCheckedEntry| {
            found.push(checked.entry);
            ControlFlow::Continue(())
        };
        self.list_entries(path, IN_MEMORY_LIMITS, &mut visit)
            .await?;
        Ok(found)
    }

    /// All entries below a directory by MLSR, as they arrive, in bounded memory; names are relative to `path`.
    /// `Ok(false)`: the server is not known to report links and unreadable directories in it.
    ///
    /// # Errors
    /// As [`ClientSession::list`]; entries may have been visited before.
    pub async fn list_tree(
        &mut self,
        path: &[u8],
        visit: &mut EntryVisitor<'_>,
    ) -> Result<bool, Failure> {
        // The greeting with pipelining is that of a longhaul server.
        let is_known = self.supports_pipelining() && self.reports_symlinks();
        if !(is_known && self.features().mlsr) {
            return Ok(false);
        }
        self.check_path(path)?;
        let request = ListingRequest {
            path,
            command: Command::Mlsr(Some(path.to_vec())),
            format: ListingFormat::Facts,
            limits: STREAMING_LIMITS,
            deflated: self.features().deflated_trees && self.rtt() >= COMPRESSED_FROM,
        };
        match self.fetch_listing(request, visit).await? {
            ListingEnd::Text { text, limit } => match doubt_of(&text, limit) {
                Some(doubt) => Err(doubt.failure(self.name(), path)),
                None => Ok(true),
            },
            ListingEnd::Stopped | ListingEnd::Empty => Ok(true),
            ListingEnd::Unsupported => Ok(false),
            ListingEnd::Refused(failure) => Err(failure),
        }
    }

    /// Visits the entries of a directory as they arrive. Each says whether the command that showed it tells links.
    ///
    /// # Errors
    /// As [`ClientSession::list`]; entries may have been visited before.
    pub(super) async fn list_entries(
        &mut self,
        path: &[u8],
        limits: ListingLimits,
        visit: &mut ListingVisitor<'_>,
    ) -> Result<(), Failure> {
        self.check_path(path)?;
        let mut listing = DirectoryListing::new(path, limits, visit);
        if self.features().mlst && self.try_command(&mut listing, ListingCommand::Mlsd).await? {
            return Ok(());
        }
        self.list_in_directory(listing).await
    }

    /// Entries by LIST, else NLST, even if the server has MLSD. Limits as for
    /// [`ClientSession::list`].
    pub(super) async fn list_by_list_command(
        &mut self,
        path: &[u8],
    ) -> Result<Vec<ListedEntry>, Failure> {
        let mut found = Vec::new();
        let mut visit = |checked: SymlinkCheckedEntry| {
            found.push(checked.entry);
            ControlFlow::Continue(())
        };
        let listing = DirectoryListing::new(path, IN_MEMORY_LIMITS, &mut visit);
        self.list_in_directory(listing).await?;
        Ok(found)
    }

    /// Goes on with the commands that list the current directory.
    async fn list_in_directory(
        &mut self,
        mut listing: DirectoryListing<'_, '_>,
    ) -> Result<(), Failure> {
        if let Some(reply) = self.change_directory(listing.path).await? {
            let operation = Operation::on_path("list", listing.path);
            let refused = replies::refusal_failure(self.name(), &operation, &reply);
            return Err(listing.refusal.unwrap_or(refused));
        }
        for command in [
            ListingCommand::ListAll,
            ListingCommand::List,
            ListingCommand::Nlst,
        ] {
            // It would show less of the same.
            let shows_less = command == ListingCommand::List && listing.takes_all;
            if shows_less || listing.names.is_full() {
                continue;
            }
            if self.try_command(&mut listing, command).await? {
                let is_by_rows = command != ListingCommand::Nlst;
                return match is_by_rows && self.listing_use == ListingUse::Deleting {
                    true => self.compare_with_names(listing).await,
                    false => Ok(()),
                };
            }
        }
        Err(listing.failure(self.name()))
    }

    /// Compares a listing by rows, by which is deleted, with NLST: some servers limit the one and not the other without a
    /// word (ProFTPD).
    async fn compare_with_names(
        &mut self,
        mut listing: DirectoryListing<'_, '_>,
    ) -> Result<(), Failure> {
        if listing.names.is_full() {
            return Ok(());
        }
        listing.doubt = None;
        // The names may be fewer, or refused.
        self.try_command(&mut listing, ListingCommand::Nlst).await?;
        match listing.doubt {
            Some(doubt @ IncompleteListing::NoFacts { .. }) => {
                Err(doubt.failure(self.name(), listing.path))
            }
            _ => Ok(()),
        }
    }

    /// Sends one command. Returns whether the listing is complete with it.
    async fn try_command(
        &mut self,
        listing: &mut DirectoryListing<'_, '_>,
        command: ListingCommand,
    ) -> Result<bool, Failure> {
        listing.names.begin_command();
        let request = command.request(listing.path, listing.limits);
        let mut names = Vec::new();
        let tells_links = self.reports_symlinks();
        let mut visit = |entry: ListedEntry| match command {
            ListingCommand::Mlsd => {
                listing.visit(SymlinkCheckedEntry::from_facts(entry, tells_links))
            }
            ListingCommand::ListAll | ListingCommand::List => {
                listing.visit(SymlinkCheckedEntry::from_row(entry))
            }
            ListingCommand::Nlst => {
                names.push(entry.name);
                ControlFlow::Continue(())
            }
        };
        let (text, limit) = match self.fetch_listing(request, &mut visit).await? {
            ListingEnd::Text { text, limit } => (text, limit),
            ListingEnd::Stopped => return Ok(true),
            ListingEnd::Empty => return Ok(listing.doubt.is_none() && listing.refusal.is_none()),
            ListingEnd::Unsupported => return Ok(false),
            ListingEnd::Refused(failure) => {
                if command != ListingCommand::ListAll {
                    listing.refusal.get_or_insert(failure);
                }
                if listing.names.new_ones() > 0 {
                    // It broke off.
                    listing.lacking = u64::MAX;
                }
                return Ok(false);
            }
        };
        let mut doubt = doubt_of(&text, limit);
        if text.reader.lines() == 0 {
            self.learn_whether_it_shows_itself(command, listing.path)
                .await?;
        }
        match self.check_itself(command, &text) {
            Ok(()) => {}
            Err(reason) if command == ListingCommand::ListAll => {
                // Nothing of it was visited: it may be the listing of something with the name `-a`.
                listing.doubt = listing.doubt.take().or(reason);
                return Ok(false);
            }
            Err(reason) => doubt = doubt.or(reason),
        }
        if command == ListingCommand::Nlst {
            match self.visit_names(listing, names).await? {
                ControlFlow::Break(()) => return Ok(true),
                ControlFlow::Continue(unknown) => doubt = doubt.or(unknown),
            }
        }
        let repeated = listing.names.take_repeated();
        let doubt = doubt.or(repeated.map(IncompleteListing::SameName));
        if let Some(doubt) = doubt.as_ref().filter(|doubt| doubt.is_final()) {
            return Err(doubt.failure(self.name(), listing.path));
        }
        Ok(listing.is_complete_with(command, &text, doubt))
    }

    /// After an empty text of a command whose texts this session has not seen: lists the directory above, once.
    async fn learn_whether_it_shows_itself(
        &mut self,
        command: ListingCommand,
        path: &[u8],
    ) -> Result<(), Failure> {
        let is_known = match command {
            ListingCommand::Mlsd => self.habits.facts_show_itself,
            ListingCommand::ListAll => self.habits.rows_show_itself,
            ListingCommand::List | ListingCommand::Nlst => true,
        };
        let (above, name) = split_path(path);
        if is_known || name.is_empty() || std::mem::replace(&mut self.has_looked_above, true) {
            return Ok(());
        }
        let is_by_rows = command == ListingCommand::ListAll;
        if is_by_rows && self.change_directory(above).await?.is_some() {
            return Ok(());
        }
        let request = command.request(above, STREAMING_LIMITS);
        let mut ignore = |_| ControlFlow::Continue(());
        if let ListingEnd::Text { text, .. } = self.fetch_listing(request, &mut ignore).await? {
            let _ = self.check_itself(command, &text);
        }
        if is_by_rows {
            self.change_directory(path).await?;
        }
        Ok(())
    }

    /// Notes whether a text shows the directory itself; fails if it has to and does not, with the reason to expect entries
    /// if there is one. A server that shows it in one directory shows it in all that it can read.
    fn check_itself(
        &mut self,
        command: ListingCommand,
        text: &ListingText,
    ) -> Result<(), Option<IncompleteListing>> {
        let is_empty = text.reader.entries() == 0;
        let (habit, must_show) = match command {
            ListingCommand::Mlsd => (&mut self.habits.facts_show_itself, is_empty),
            ListingCommand::ListAll => (&mut self.habits.rows_show_itself, true),
            ListingCommand::List | ListingCommand::Nlst => return Ok(()),
        };
        if text.reader.shows_itself() {
            *habit = true;
            return Ok(());
        }
        let lacks = habit.then_some(IncompleteListing::LacksDirectory);
        match must_show && (lacks.is_some() || command == ListingCommand::ListAll) {
            true => Err(lacks),
            false => Ok(()),
        }
    }

    /// Asks for the facts of names, but for those that were visited.
    async fn visit_names(
        &mut self,
        listing: &mut DirectoryListing<'_, '_>,
        names: Vec<Vec<u8>>,
    ) -> Result<ControlFlow<(), Option<IncompleteListing>>, Failure> {
        let mut unknown: Vec<Vec<u8>> = Vec::new();
        for name in names {
            if !listing.names.add(&name) {
                continue;
            }
            let mut full_path = listing.path.to_vec();
            if !full_path.ends_with(b"/") {
                full_path.push(b'/');
            }
            full_path.extend_from_slice(&name);
            self.asks_for_listed_names = true;
            let facts = self.facts_of_listed_name(&full_path).await;
            self.asks_for_listed_names = false;
            match facts {
                Ok(entry) => {
                    let checked = SymlinkCheckedEntry::from_facts(entry, self.reports_symlinks());
                    if (listing.visit)(checked).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Err(failure) if failure.may_retry() => return Err(failure),
                // Whether it was deleted meanwhile, is a dangling link, or has another name in truth: it may be there.
                Err(_) => unknown.push(name),
            }
        }
        let count = unknown.len() as u64;
        let first = unknown.into_iter().next();
        let doubt = first.map(|first| IncompleteListing::NoFacts { count, first });
        Ok(ControlFlow::Continue(doubt))
    }
}

/// Why the text of one command may not show everything.
fn doubt_of(text: &ListingText, limit: Option<Vec<u8>>) -> Option<IncompleteListing> {
    if text.end_is_unproved {
        return Some(IncompleteListing::EndUnproved);
    }
    if text.reader.hides_entries() {
        return Some(IncompleteListing::HiddenFromLogin);
    }
    let (count, first) = text.reader.not_understood();
    if let Some(limit) = limit {
        return Some(IncompleteListing::Limited(limit));
    }
    if count > 0 {
        let first = first.to_vec();
        return Some(IncompleteListing::NotUnderstood { count, first });
    }
    text.is_cut.then_some(IncompleteListing::Cut)
}

impl SymlinkCheckedEntry {
    /// From MLSD and MLST. `tells_links`: its facts identify links.
    fn from_facts(entry: ListedEntry, tells_links: bool) -> Self {
        let is_certain = tells_links || entry.kind != EntryKind::Dir || entry.is_symlink();
        Self { entry, is_certain }
    }

    /// From LIST. A row with a mode column shows links by its first letter.
    pub(super) fn from_row(entry: ListedEntry) -> Self {
        // Without a mode column (DOS style listings) a link cannot be distinguished from a directory.
        let is_certain = entry.kind != EntryKind::Dir || entry.mode.is_some();
        Self { entry, is_certain }
    }
}
