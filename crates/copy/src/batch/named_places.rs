//! The places on this machine that a command names: below them, links are not followed, or as `--links` says
//! ([`crate::local::local_trees`]).

use crate::batch::BatchContext;
use crate::local::local_trees::LinksBelow;
use crate::options::SymlinkPolicy;
use ftp::location::Location;

impl BatchContext {
    /// Notes a source that the user has named: below it, links are followed as `--links` says.
    pub(crate) fn name_source(&self, at: &Location) {
        if let Location::Local(path) = at {
            self.trees.add(path, self.links_below());
        }
    }

    /// Notes a directory that the user has named as a destination.
    pub(crate) fn name_destination(&self, at: &Location) {
        if let Location::Local(path) = at {
            self.trees.add(path, LinksBelow::Refused);
        }
    }

    /// Notes one of many paths that the user has named: it matters only inside a directory that he has named, too.
    pub(crate) fn name_one_of_many(&self, at: &Location) {
        if let Location::Local(path) = at {
            self.trees.add_exception(path);
        }
    }

    /// Notes a tree and the directory that becomes its copy.
    pub(crate) fn name_tree(&self, source: &Location, destination: &Location) {
        self.name_source(source);
        if let Location::Local(path) = destination {
            self.trees.add_tree(path);
        }
    }

    fn links_below(&self) -> LinksBelow {
        match self.options.tree.symlinks {
            SymlinkPolicy::Follow => LinksBelow::Followed,
            SymlinkPolicy::Copy | SymlinkPolicy::Skip => LinksBelow::Refused,
        }
    }
}
