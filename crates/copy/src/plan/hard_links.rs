//! `--preserve links`: names of one file in a tree become names of one file at the destination.
//!
//! Only this machine tells that a file has several names, and only here one can get another: FTP has no hard links.
//! Elsewhere each name is copied as a file of its own.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;

use super::entries::NewEntry;
use crate::batch::BatchContext;
use ftp::answers::SourceFacts;
use ftp::location::{Location, StorageId};

/// The first names of files that have several.
pub(crate) struct HardLinkNames {
    ctx: Arc<BatchContext>,
    to: StorageId,
    /// Paths relative to the top, by what identifies the file.
    first: Mutex<HashMap<String, Vec<u8>>>,
}

impl HardLinkNames {
    /// The names of a tree `from` that is copied to `to`.
    pub(crate) fn of(ctx: &Arc<BatchContext>, from: &Location, to: &Location) -> Self {
        let (from, to) = (from.storage_id(), to.storage_id());
        if ctx.options.file.preserve.hard_links && from != StorageId::LocalFiles {
            ctx.warn(format!(
                "{from} does not tell which names are hard links: each is copied as a file of its own"
            ));
        }
        Self {
            ctx: Arc::clone(ctx),
            to,
            first: Mutex::default(),
        }
    }

    /// The entry of a name: the first one of a file is copied, and further ones are links to it.
    pub(crate) fn entry(&self, path: Vec<u8>, facts: SourceFacts, identity: String) -> NewEntry {
        if !self.ctx.options.file.preserve.hard_links {
            return NewEntry::File(facts);
        }
        if self.to != StorageId::LocalFiles {
            self.ctx.warn(format!(
                "{} has no hard links: each name is copied as a file of its own",
                self.to
            ));
            return NewEntry::File(facts);
        }
        let mut first = self.first.lock();
        match first.entry(identity) {
            Entry::Occupied(first) => NewEntry::HardLink {
                facts,
                first: first.get().clone(),
            },
            Entry::Vacant(none) => {
                none.insert(path);
                NewEntry::File(facts)
            }
        }
    }
}
