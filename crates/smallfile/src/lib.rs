//! Small files that are read whole and replaced whole: credentials, settings, records of a service.
//!
//! Nothing is read beyond a bound that the caller states, and a pipe or a device in a file's place neither blocks nor is
//! read without end. The crate depends on no other crate of the workspace.

#![forbid(unsafe_code)]

pub mod regular_file;
mod replacement;
pub mod settings;

pub use replacement::{FileReplacement, replace, replace_with_mode};
