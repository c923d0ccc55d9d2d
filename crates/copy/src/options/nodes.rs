//! Other machines that carry out a part of a copy.

use std::ffi::OsString;
use std::path::PathBuf;

/// How a node is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeLink {
    /// By a program that ends with [`serve_node`](crate::serve_node) on the node: its standard input takes the orders, its
    /// standard output has the replies.
    Program(Vec<OsString>),
    /// By files in a directory that both machines see ([`NodeLines::of_node`](crate::NodeLines::of_node)).
    Files(PathBuf),
}

/// A machine that carries out a part of a copy. It reaches the same paths and URLs as this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyNode {
    /// Name for messages: `node a`.
    pub name: String,
    /// How it is reached.
    pub link: NodeLink,
}

/// The machines that move the files of a copy, in place of this one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyNodes {
    /// Each of them. Empty: this process moves everything.
    pub nodes: Vec<CopyNode>,
    /// The words of the command, from which they take their flags.
    pub words: Vec<String>,
}
