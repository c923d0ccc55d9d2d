//! Files of this machine: opened below the directories that the user names, locked, written beside their final names, and
//! put in place whole.

pub(crate) mod disk;
pub(crate) mod journal;
pub(crate) mod local_name;
pub(crate) mod local_trees;
pub(crate) mod lock_file;
pub(crate) mod partial;
pub(crate) mod replacement;
