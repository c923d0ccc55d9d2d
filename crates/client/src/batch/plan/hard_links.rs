//! `--preserve links`: names of one file in a tree become names of one file at the destination.
//!
//! Only this machine tells that a file has several names, and only here one can get another: FTP has no hard links.
//! Elsewhere each name is copied as a file of its own.

use std::collections::HashMap;

use crate::batch::BatchContext;
use crate::location::{Location, StorageId};
use crate::tree::{DirectoryTree, HardLink};

/// Leaves one name of each file in `tree.files`; the others become [`DirectoryTree::hard_links`]. `from` and `to` are
/// the tops of the trees.
pub(crate) fn keep_hard_links(
    ctx: &BatchContext,
    (from, to): (&Location, &Location),
    mut tree: DirectoryTree,
) -> DirectoryTree {
    let linked = std::mem::take(&mut tree.linked_files);
    if !ctx.options.preserve.hard_links {
        return tree;
    }
    let (from, to) = (from.storage_id(), to.storage_id());
    if from != StorageId::LocalFiles {
        ctx.warn(format!(
            "{from} does not tell which names are hard links: each is copied as a file of its own"
        ));
        return tree;
    }
    if to != StorageId::LocalFiles {
        if !linked.is_empty() {
            ctx.warn(format!(
                "{to} has no hard links: each name is copied as a file of its own"
            ));
        }
        return tree;
    }
    let mut first_names: HashMap<&str, Vec<u8>> = HashMap::new();
    let mut links = Vec::new();
    tree.files.retain(|(path, facts)| {
        let Some(identity) = linked.get(path) else {
            return true;
        };
        match first_names.get(identity.as_str()) {
            None => {
                first_names.insert(identity, path.clone());
                true
            }
            Some(first) => {
                links.push(HardLink {
                    path: path.clone(),
                    first: first.clone(),
                    facts: *facts,
                });
                false
            }
        }
    });
    tree.hard_links = links;
    tree
}
