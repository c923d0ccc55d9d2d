//! The commands that announce and name a bundle of files.

use proto::bundle::{BundleEntry, announcement_lines};
use proto::client::RetrievalPlan;
use proto::command::{Command, ExtendedRetrieve, SiteCommand, packed_announcements};

use crate::session::{COMPRESSED_FROM, ClientSession};

/// The announcements of these files for the server of `session`.
pub(super) fn announcements(entries: &[BundleEntry], session: &ClientSession) -> Vec<Command> {
    if session.features().packed_bundles && session.rtt() >= COMPRESSED_FROM {
        let commands = packed_announcements(entries).into_iter();
        return commands.map(Command::Site).collect();
    }
    let mut rest = entries;
    let mut commands = Vec::new();
    for line in announcement_lines(entries) {
        let (these, others) = rest.split_at(line.split(' ').count());
        commands.push(Command::Site(SiteCommand::BundleAdd(these.to_vec())));
        rest = others;
    }
    commands
}

/// The command that has the source send a bundle. A bundle has no REST and always moves whole.
pub(super) fn bundle_retrieval(from: &[BundleEntry]) -> RetrievalPlan {
    RetrievalPlan {
        restart: None,
        command: Command::Eret(
            ExtendedRetrieve::Bundle { count: from.len() },
            directory_of(from),
        ),
        start: 0,
        overruns: false,
    }
}

/// The directory of the first file, which stands for the bundle in logs.
pub(super) fn directory_of(entries: &[BundleEntry]) -> Vec<u8> {
    let path = entries.first().map_or(&b""[..], |entry| &entry.path);
    match path.iter().rposition(|byte| *byte == b'/') {
        None => b".".to_vec(),
        Some(0) => b"/".to_vec(),
        Some(end) => path[..end].to_vec(),
    }
}
