//! Parts of the session fuzz: random commands, one random dialogue, and the file tree.

mod commands;
pub(crate) mod dialogue;
pub(crate) mod tree;
