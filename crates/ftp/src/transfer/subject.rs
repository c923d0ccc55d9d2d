//! The subject of a third-party transfer, a file or a bundle, and the commands that name it.

use proto::bundle::BundleEntry;
use proto::command::{Command, ExtendedStore};

use crate::Failure;
use crate::failure::Operation;
use crate::session::{ClientSession, display_path};
use crate::transfer::bundle_commands::{announcements, directory_of};
use crate::transfer::{TransferSpec, negotiation};

/// The bytes that are moved.
#[derive(Debug, Clone, Copy)]
pub(super) enum TransferSubject<'a> {
    /// A file, or a part of one.
    File {
        /// Path at the source.
        from: &'a [u8],
        /// Path at the destination.
        to: &'a [u8],
    },
    /// A bundle of files ([`proto::bundle`]). Both lists have the same sizes and times in the same order.
    Bundle {
        /// The files as the source names them.
        from: &'a [BundleEntry],
        /// The files as the destination names them.
        to: &'a [BundleEntry],
    },
}

impl TransferSubject<'_> {
    /// Refuses paths that cannot be sent to a server.
    pub(super) fn check_paths(
        &self,
        source: &ClientSession,
        destination: &ClientSession,
    ) -> Result<(), Failure> {
        match self {
            Self::File { from, to } => {
                source.check_path(from)?;
                destination.check_path(to)
            }
            // Announcements encode every path.
            Self::Bundle { .. } => Ok(()),
        }
    }

    /// For messages: what the source does before the transfer and in it, and what the destination does.
    pub(super) fn operation_names(&self) -> [Operation; 3] {
        let (from, to) = match self {
            Self::File { from, to } => (display_path(from), display_path(to)),
            Self::Bundle { from, to } => (
                format!("{} files", from.len()),
                format!("{} files", to.len()),
            ),
        };
        [
            Operation::on("read", &from),
            Operation::on("send", &from),
            Operation::on("write", &to),
        ]
    }

    /// The command that has the destination store it.
    pub(super) fn store_command(&self, spec: &TransferSpec) -> Command {
        match self {
            Self::File { to, .. } => negotiation::store_command(spec, to),
            Self::Bundle { to, .. } => {
                Command::Esto(ExtendedStore::Bundle { count: to.len() }, directory_of(to))
            }
        }
    }

    /// Commands for the source before its transfer command.
    pub(super) fn retrieve_announcements(&self, session: &ClientSession) -> Vec<Command> {
        match self {
            Self::File { .. } => Vec::new(),
            Self::Bundle { from, .. } => announcements(from, session),
        }
    }

    /// Commands for the destination before its transfer command.
    pub(super) fn store_announcements(&self, session: &ClientSession) -> Vec<Command> {
        match self {
            Self::File { .. } => Vec::new(),
            Self::Bundle { to, .. } => announcements(to, session),
        }
    }
}
